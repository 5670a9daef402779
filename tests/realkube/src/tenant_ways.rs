//! Ways round the identity of a tenant's pods, as data: what is sent as the tenant's user, and how it is held.
//!
//! Invariant: each way succeeds where no rule of tenants is in force; a test shows that before it counts a way as held.

/// What a way sends.
#[derive(Clone, Copy, Debug)]
pub enum Request {
    /// A pod: more metadata, more of its spec, more of its container.
    Pod(&'static str, &'static str, &'static str),
    /// Any object, called NAME.
    Object(&'static str),
    /// What makes pods: kind and group version, its spec up to the template's, and that one's spec.
    Workload(&'static str, &'static str, &'static str),
    /// A merge patch of an object, of which subresource, as a dry run.
    Patch(&'static str, &'static str, &'static str),
    /// A body for a path below the namespace.
    Post(&'static str, &'static str),
    /// A container that is added to the pod BASE: more of it.
    Ephemeral(&'static str),
    /// A deletion, as a dry run.
    Delete(&'static str),
}

/// What comes of it where the rules are in force.
#[derive(Clone, Copy, Debug)]
pub enum Expected {
    /// It is refused; the refusal says this.
    Refused(&'static str),
    /// It succeeds, and the object has this value at this place, which is not what was sent. Nothing is no value.
    Forced(&'static str, &'static str),
}

/// A request that would make a pod another's, or more than the tenant's.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// Its name, which is that of what it makes, too.
    pub name: &'static str,
    pub request: Request,
    pub expected: Expected,
}

use Expected::{Forced, Refused};
use Request::{Delete, Ephemeral, Object, Patch, Pod, Post, Workload};

const fn way(name: &'static str, request: Request, expected: Expected) -> Way {
    Way { name, request, expected }
}

/// Where the tenant works; it is the tenant's name and user, too.
pub const NAMESPACE: &str = "alice";
/// Who it is, what it may use and what it mounts, as an administrator writes it.
pub const TENANT: &str = "---
apiVersion: pumice.sh/v1alpha1
kind: Tenant
metadata: {name: alice}
spec:
  user: alice
  uid: 4001
  gid: 4002
  groups: [5000, 5001]
  namespace: alice
  queues: [default, team]
  devices: [nvidia.com/gpu]
  hostPaths: [{path: /data/alice}, {path: /data/shared, readOnly: true}]
  home: {mountPath: /home/alice, persistentVolume: home}
  volumes: [{mountPath: /team, hostPath: /srv/team, readOnly: true}, {mountPath: /shared, persistentVolume: shared}]
";
/// What the controller of Tenants writes of it.
pub const ANNOTATIONS: &[(&str, &str)] = &[
    ("pumice.sh/tenant-uid", "4001"),
    ("pumice.sh/tenant-gid", "4002"),
    ("pumice.sh/tenant-groups", "5000,5001"),
    ("pumice.sh/tenant-queues", "default,team"),
    ("pumice.sh/tenant-devices", "nvidia.com/gpu"),
    ("pumice.sh/tenant-host-paths", "rw:/data/alice\nro:/data/shared"),
    ("pumice.sh/tenant-user", "alice"),
    ("pumice.sh/tenant-home", "rw:/home/alice:claim:home"),
    ("pumice.sh/tenant-volumes", "ro:/team:hostPath:/srv/team\nrw:/shared:claim:shared"),
];

/// Every way. Names are those of objects.
#[rustfmt::skip]
pub const WAYS: &[Way] = &[
    // Who it is.
    way("user-of-another", Pod("", "securityContext: {runAsUser: 4009}", ""), Forced("/spec/securityContext/runAsUser", "4001")),
    way("user-root", Pod("", "securityContext: {runAsUser: 0, runAsNonRoot: false}", ""), Forced("/spec/securityContext/runAsUser", "4001")),
    way("no-user", Pod("", "", ""), Forced("/spec/securityContext/runAsUser", "4001")),
    way("group-root", Pod("", "securityContext: {runAsGroup: 0}", ""), Forced("/spec/securityContext/runAsGroup", "4002")),
    way("groups", Pod("", "securityContext: {supplementalGroups: [0, 27, 999]}", ""), Forced("/spec/securityContext/supplementalGroups", "[5000,5001]")),
    way("groups-of-images", Pod("", "securityContext: {supplementalGroupsPolicy: Merge}", ""), Forced("/spec/securityContext/supplementalGroupsPolicy", "\"Strict\"")),
    way("file-group", Pod("", "securityContext: {fsGroup: 0}", ""), Forced("/spec/securityContext/fsGroup", "4002")),
    way("may-be-root", Pod("", "securityContext: {runAsNonRoot: false}", ""), Forced("/spec/securityContext/runAsNonRoot", "true")),
    way("container-user", Pod("", "", "securityContext: {runAsUser: 0}"), Forced("/spec/containers/0/securityContext/runAsUser", "")),
    way("container-group", Pod("", "", "securityContext: {runAsGroup: 0}"), Forced("/spec/containers/0/securityContext/runAsGroup", "")),
    way("container-may-be-root", Pod("", "", "securityContext: {runAsNonRoot: false}"), Forced("/spec/containers/0/securityContext/runAsNonRoot", "")),
    way("init-user", Pod("", "initContainers: [{name: i, image: none, securityContext: {runAsUser: 0}}]", ""), Forced("/spec/initContainers/0/securityContext/runAsUser", "")),
    way("sidecar-user", Pod("", "initContainers: [{name: i, image: none, restartPolicy: Always, securityContext: {runAsUser: 0}}]", ""), Forced("/spec/initContainers/0/securityContext/runAsUser", "")),
    way("ephemeral-user", Ephemeral("securityContext: {runAsUser: 0}"), Forced("securityContext/runAsUser", "")),
    way("forged-user", Pod("annotations: {pumice.sh/user: bob}", "", ""), Forced("/metadata/annotations/pumice.sh~1user", "\"alice\"")),
    way("forged-later", Patch("pod/BASE", "", r#"{"metadata": {"annotations": {"pumice.sh/user": "bob"}}}"#), Refused("pumice.sh/user")),
    way("forged-with-status", Patch("pod/BASE", "status", r#"{"metadata": {"annotations": {"pumice.sh/user": "bob"}}}"#), Refused("pumice.sh/user")),
    // What its processes may.
    way("privileged", Pod("", "", "securityContext: {privileged: true}"), Forced("/spec/containers/0/securityContext/privileged", "")),
    way("privileged-init", Pod("", "initContainers: [{name: i, image: none, securityContext: {privileged: true}}]", ""), Forced("/spec/initContainers/0/securityContext/privileged", "")),
    way("privileged-ephemeral", Ephemeral("securityContext: {privileged: true}"), Forced("securityContext/privileged", "")),
    way("escalation", Pod("", "", "securityContext: {allowPrivilegeEscalation: true}"), Forced("/spec/containers/0/securityContext/allowPrivilegeEscalation", "false")),
    way("capability", Pod("", "", "securityContext: {capabilities: {add: [SYS_ADMIN]}}"), Forced("/spec/containers/0/securityContext/capabilities/add", "")),
    way("capabilities-left", Pod("", "", "securityContext: {capabilities: {drop: [CHOWN]}}"), Forced("/spec/containers/0/securityContext/capabilities/drop", "[\"ALL\"]")),
    way("proc-unmasked", Pod("", "hostUsers: false", "securityContext: {procMount: Unmasked}"), Forced("/spec/containers/0/securityContext/procMount", "")),
    way("seccomp-off", Pod("", "securityContext: {seccompProfile: {type: Unconfined}}", ""), Forced("/spec/securityContext/seccompProfile/type", "\"RuntimeDefault\"")),
    way("seccomp-off-container", Pod("", "", "securityContext: {seccompProfile: {type: Unconfined}}"), Forced("/spec/containers/0/securityContext/seccompProfile", "")),
    way("seccomp-own", Pod("", "securityContext: {seccompProfile: {type: Localhost, localhostProfile: p.json}}", ""), Forced("/spec/securityContext/seccompProfile", "{\"type\":\"RuntimeDefault\"}")),
    way("app-armor-off", Pod("", "securityContext: {appArmorProfile: {type: Unconfined}}", ""), Refused("appArmorProfile")),
    way("app-armor-off-container", Pod("", "", "securityContext: {appArmorProfile: {type: Unconfined}}"), Refused("appArmorProfile")),
    way("app-armor-annotation", Pod("annotations: {container.apparmor.security.beta.kubernetes.io/main: unconfined}", "", ""), Refused("apparmor")),
    way("users-of-its-own", Pod("", "hostUsers: false", ""), Forced("/spec/hostUsers", "")),
    way("selinux", Pod("", "securityContext: {seLinuxOptions: {type: spc_t}}", ""), Refused("seLinuxOptions")),
    way("sysctl", Pod("", "securityContext: {sysctls: [{name: kernel.shm_rmid_forced, value: \"1\"}]}", ""), Refused("sysctls")),
    way("windows", Pod("", "os: {name: windows}", ""), Refused("windows")),
    // What it sees of the node.
    way("host-network", Pod("", "hostNetwork: true", ""), Refused("hostNetwork")),
    way("host-pid", Pod("", "hostPID: true", ""), Refused("hostPID")),
    way("host-ipc", Pod("", "hostIPC: true", ""), Refused("hostIPC")),
    way("host-port", Pod("", "", "ports: [{containerPort: 80, hostPort: 80}]"), Refused("ports")),
    way("folder-root", Pod("", "volumes: [{name: v, hostPath: {path: /}}]", ""), Refused("hostPath")),
    way("folder-longer-name", Pod("", "volumes: [{name: v, hostPath: {path: /data/alice2}}]", ""), Refused("hostPath")),
    way("folder-above", Pod("", "volumes: [{name: v, hostPath: {path: /data}}]", ""), Refused("hostPath")),
    way("folder-of-another", Pod("", "volumes: [{name: v, hostPath: {path: /home/bob}}]", ""), Refused("hostPath")),
    way("folder-made", Pod("", "volumes: [{name: v, hostPath: {path: /data/alice, type: DirectoryOrCreate}}]", ""), Refused("hostPath")),
    way("folder-written", Pod("", "volumes: [{name: v, hostPath: {path: /data/shared}}]", "volumeMounts: [{name: v, mountPath: /m}]"), Refused("may only read")),
    way("folder-written-init", Pod("", "volumes: [{name: v, hostPath: {path: /data/shared}}], initContainers: [{name: i, image: none, volumeMounts: [{name: v, mountPath: /m}]}]", "volumeMounts: [{name: v, mountPath: /m, readOnly: true}]"), Refused("may only read")),
    way("nfs", Pod("", "volumes: [{name: v, nfs: {server: s, path: /}}]", ""), Refused("spec.volumes")),
    way("csi", Pod("", "volumes: [{name: v, csi: {driver: d.example.com}}]", ""), Refused("spec.volumes")),
    way("flex-volume", Pod("", "volumes: [{name: v, flexVolume: {driver: a/b}}]", ""), Refused("spec.volumes")),
    way("iscsi", Pod("", "volumes: [{name: v, iscsi: {targetPortal: 10.0.0.1, iqn: \"iqn.2001-04.com.example:a\", lun: 0}}]", ""), Refused("spec.volumes")),
    way("volume-in-the-name-of-the-home", Pod("", "volumes: [{name: pumice-tenant-0, emptyDir: {}}]", ""), Refused("spec.volumes")),
    way("ephemeral-volume-of-another", Pod("", "volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {volumeName: home-of-bob, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}]", ""), Refused("spec.volumes")),
    way("runtime-class", Pod("", "runtimeClassName: bare", ""), Refused("runtimeClassName")),
    way("device", Pod("", "", "resources: {limits: {amd.com/gpu: 1}}"), Refused("resources")),
    way("device-of-pod", Pod("", "resources: {limits: {memory: 1Gi}}", "resources: {requests: {example.com/nic: 1}, limits: {example.com/nic: 1}}"), Refused("resources")),
    way("device-claim", Object("{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: NAME}, spec: {devices: {requests: [{name: a, exactly: {deviceClassName: gpu.example.com}}]}}}"), Refused("spec.devices")),
    way("device-claim-first-of", Object("{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: NAME}, spec: {spec: {devices: {requests: [{name: a, firstAvailable: [{name: b, deviceClassName: gpu.example.com}]}]}}}}"), Refused("spec")),
    // Where it runs, and before whom.
    way("node-name", Pod("", "nodeName: node-1", ""), Refused("nodeName")),
    way("other-scheduler", Pod("", "schedulerName: mine", ""), Refused("schedulerName")),
    way("priority-of-the-system", Pod("", "priorityClassName: system-node-critical", ""), Refused("priorityClassName")),
    way("mirror-pod", Pod("annotations: {kubernetes.io/config.mirror: a}", "nodeName: node-1, automountServiceAccountToken: false", ""), Refused("kubernetes.io/config.mirror")),
    way("source-of-kubelets", Pod("annotations: {kubernetes.io/config.source: file}", "", ""), Refused("kubernetes.io/config.source")),
    way("tolerates-all", Pod("", "tolerations: [{operator: Exists}]", ""), Refused("tolerations")),
    way("tolerates-closed-nodes", Pod("", "tolerations: [{key: node.kubernetes.io/unschedulable, operator: Exists}]", ""), Refused("tolerations")),
    way("tolerates-control-plane", Pod("", "tolerations: [{key: node-role.kubernetes.io/control-plane, operator: Exists}]", ""), Refused("tolerations")),
    way("tolerates-later", Patch("pod/BASE", "", r#"{"spec": {"tolerations": [{"operator": "Exists"}, {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}, {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}]}}"#), Refused("tolerations")),
    way("notes-of-the-node", Pod("annotations: {pumice.sh/accelerators: \"main: nvidia.com/gpu=0\"}", "", ""), Refused("pumice.sh/accelerators")),
    way("binding", Post("pods/BASE/binding", r#"{"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "BASE"}, "target": {"kind": "Node", "name": "node-1"}}"#), Refused("scheduler")),
    way("binding-of-old", Post("bindings", r#"{"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "BASE"}, "target": {"kind": "Node", "name": "node-1"}}"#), Refused("scheduler")),
    way("queue-of-pod", Pod("annotations: {scheduling.volcano.sh/queue-name: other}", "", ""), Refused("queue")),
    way("queue-of-pod-by-label", Pod("labels: {volcano.sh/queue-name: other}", "", ""), Refused("queue")),
    way("queue-of-pod-later", Patch("pod/BASE", "", r#"{"metadata": {"annotations": {"scheduling.volcano.sh/queue-name": "other"}}}"#), Refused("queue")),
    way("queue-of-group", Object("{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {name: NAME}, spec: {minMember: 1, queue: other}}"), Refused("queue")),
    way("class-of-group", Object("{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {name: NAME}, spec: {minMember: 1, priorityClassName: system-cluster-critical}}"), Refused("spec.priorityClassName")),
    way("command-for-a-queue", Object("{apiVersion: bus.volcano.sh/v1alpha1, kind: Command, metadata: {name: NAME}, action: CloseQueue, target: {apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, name: default, uid: u}}"), Refused("target.kind")),
    way("queue-of-job", Object("{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: NAME}, spec: {queue: other, tasks: [{name: w, replicas: 1, template: {spec: {containers: [{name: main, image: none}]}}}]}}"), Refused("queue")),
    // What makes its pods.
    way("deployment", Workload("apps/v1, kind: Deployment", "replicas: 1", "containers: [{name: main, image: none, securityContext: {runAsUser: 0}}]"), Forced("/spec/containers/0/securityContext/runAsUser", "")),
    way("replica-set", Workload("apps/v1, kind: ReplicaSet", "replicas: 1", "hostNetwork: true, containers: [{name: main, image: none}]"), Refused("hostNetwork")),
    way("stateful-set", Workload("apps/v1, kind: StatefulSet", "replicas: 1, serviceName: s", "hostPID: true, containers: [{name: main, image: none}]"), Refused("hostPID")),
    way("kubernetes-job", Workload("batch/v1, kind: Job", "parallelism: 1", "restartPolicy: Never, volumes: [{name: v, hostPath: {path: /}}], containers: [{name: main, image: none}]"), Refused("hostPath")),
    way("replication-controller", Workload("v1, kind: ReplicationController", "replicas: 1", "securityContext: {runAsUser: 0}, containers: [{name: main, image: none}]"), Forced("/spec/securityContext/runAsUser", "4001")),
    // What is another's.
    way("volume-of-another", Object("{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: NAME}, spec: {storageClassName: fast, volumeName: home-of-bob, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}"), Refused("spec.volumeName")),
    way("volume-of-anybody", Object("{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: NAME}, spec: {storageClassName: \"\", accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}"), Refused("spec.storageClassName")),
    way("volume-by-label", Object("{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: NAME}, spec: {storageClassName: fast, selector: {matchLabels: {of: bob}}, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}"), Refused("spec.selector")),
    way("addresses", Object("{apiVersion: v1, kind: Service, metadata: {name: NAME}, spec: {ports: [{port: 80}], externalIPs: [10.1.2.3]}}"), Refused("spec.externalIPs")),
    way("owned-by-the-cluster", Object("{apiVersion: v1, kind: ConfigMap, metadata: {name: NAME, ownerReferences: [{apiVersion: v1, kind: Node, name: node-1, uid: u}]}}"), Refused("ownerReferences")),
    way("event-of-the-kubelet", Object("{apiVersion: v1, kind: Event, metadata: {name: NAME}, involvedObject: {kind: Pod, name: BASE, namespace: alice}, reason: Killing, type: Normal, message: m, source: {component: kubelet}}"), Forced("/source/component", "\"alice\"")),
    way("event-of-the-scheduler", Object("{apiVersion: events.k8s.io/v1, kind: Event, metadata: {name: NAME}, regarding: {kind: Pod, name: BASE, namespace: alice}, eventTime: \"2026-01-01T00:00:00.000000Z\", reason: Scheduled, action: Binding, type: Normal, note: m, reportingController: volcano, reportingInstance: i}"), Forced("/reportingController", "\"alice\"")),
    way("namespace-uid", Patch("namespace/alice", "", r#"{"metadata": {"annotations": {"pumice.sh/tenant-uid": "0"}}}"#), Refused("metadata.annotations")),
    way("namespace-label-gone", Patch("namespace/alice", "", r#"{"metadata": {"labels": {"pumice.sh/tenant": null}}}"#), Refused("metadata.labels")),
    way("namespace-label-of-another", Patch("namespace/alice", "", r#"{"metadata": {"labels": {"pumice.sh/tenant": "bob"}}}"#), Refused("metadata.labels")),
    way("namespace-with-status", Patch("namespace/alice", "status", r#"{"metadata": {"annotations": {"pumice.sh/tenant-gid": "0"}}}"#), Refused("metadata.annotations")),
    way("namespace-security", Patch("namespace/alice", "", r#"{"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}"#), Refused("metadata.labels")),
    way("tenant-deleted", Delete("tenant/alice"), Refused("suspend")),
];

/// What a tenant does every day, which nothing may hold up.
#[rustfmt::skip]
pub const LAWFUL: &[(&str, Request)] = &[
    ("plain", Pod("", "", "")),
    ("as-itself", Pod("", "securityContext: {runAsUser: 4001, runAsGroup: 4002}", "securityContext: {runAsUser: 4001}")),
    ("gpu", Pod("", "", "resources: {limits: {nvidia.com/gpu: 1}}")),
    ("folder", Pod("", "volumes: [{name: v, hostPath: {path: /data/alice}}]", "volumeMounts: [{name: v, mountPath: /m}]")),
    ("folder-read", Pod("", "volumes: [{name: v, hostPath: {path: /data/shared, type: Directory}}]", "volumeMounts: [{name: v, mountPath: /m, readOnly: true}]")),
    ("own-volumes", Pod("", "volumes: [{name: a, emptyDir: {}}, {name: b, configMap: {name: c}}, {name: c, persistentVolumeClaim: {claimName: c}}, {name: d, projected: {sources: [{serviceAccountToken: {path: t}}]}}]", "volumeMounts: [{name: a, mountPath: /home/alice/}]")),
    ("own-queue", Pod("annotations: {scheduling.volcano.sh/queue-name: team}", "", "")),
    ("no-queue", Object("{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: NAME}, spec: {tasks: [{name: w, replicas: 1, template: {spec: {containers: [{name: main, image: none}]}}}]}}")),
    ("claim", Object("{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: NAME}, spec: {storageClassName: fast, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}")),
    ("service", Object("{apiVersion: v1, kind: Service, metadata: {name: NAME}, spec: {ports: [{port: 80}]}}")),
    ("debugging", Ephemeral("")),
];
