//! More ways round a tenant's identity: kinds that this API server serves, other forms of requests, other makers of pods.

use pumice_realkube::tenant_attempts::YAML;
use pumice_testkit::{Clients, Output, Platform, eventually};
use serde_json::Value;

/// What is sent, in the namespace `alice`. NAME is the way's name in this round, BASE a pod that is there.
#[derive(Clone, Copy, Debug)]
pub enum Sent {
    Create(&'static str),
    /// Server-side.
    Apply(&'static str),
    /// Kind of the patch, object, subresource, patch.
    Patch(&'static str, &'static str, &'static str, &'static str),
    /// A body as it is, which kubectl would not send.
    Raw(&'static str, &'static str),
    /// As a robot of the namespace.
    AsRobot(&'static str),
    /// What makes a pod with the label `way: NAME`.
    Makes(&'static str),
    Delete(&'static str),
}

#[derive(Clone, Copy, Debug)]
pub enum Held {
    /// The refusal says this.
    Refused(&'static str),
    /// At this place there is this, and not without a Tenant; nothing is no value.
    Forced(&'static str, &'static str),
}

pub struct Way(&'static str, Sent, Held);

impl Way {
    pub fn name(&self) -> &'static str {
        self.0
    }
}

use Held::{Forced, Refused};
use Sent::{Apply, AsRobot, Create, Delete, Makes, Patch, Raw};

#[rustfmt::skip]
pub const MORE: &[Way] = &[
    // Forms of requests.
    Way("key-twice", Raw("pods", r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "NAME"}, "spec": {"securityContext": {"runAsUser": 4001, "runAsUser": 0}, "containers": [{"name": "main", "image": "none"}]}}"#), Forced("/spec/securityContext/runAsUser", "4001")),
    Way("null", Raw("pods", r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "NAME"}, "spec": {"securityContext": null, "containers": [{"name": "main", "image": "none", "securityContext": null}]}}"#), Forced("/spec/securityContext/runAsUser", "4001")),
    Way("generated-name", Create("{apiVersion: v1, kind: Pod, metadata: {generateName: NAME-}, spec: {securityContext: {runAsUser: 0}, containers: [{name: main, image: none}]}}"), Forced("/spec/securityContext/runAsUser", "4001")),
    Way("applied", Apply("{apiVersion: v1, kind: Pod, metadata: {name: NAME}, spec: {securityContext: {runAsUser: 0}, containers: [{name: main, image: none}]}}"), Forced("/spec/securityContext/runAsUser", "4001")),
    Way("applied-refused", Apply("{apiVersion: v1, kind: Pod, metadata: {name: NAME}, spec: {hostIPC: true, containers: [{name: main, image: none}]}}"), Refused("spec.hostIPC")),
    Way("by-a-robot", AsRobot("{apiVersion: v1, kind: Pod, metadata: {name: NAME}, spec: {securityContext: {runAsUser: 0}, containers: [{name: main, image: none}]}}"), Forced("/spec/securityContext/runAsUser", "4001")),
    Way("robots-user", AsRobot("{apiVersion: v1, kind: Pod, metadata: {name: NAME, annotations: {pumice.sh/user: bob}}, spec: {containers: [{name: main, image: none}]}}"), Forced("/metadata/annotations/pumice.sh~1user", "\"system:serviceaccount:alice:default\"")),
    Way("event-of-a-robot", AsRobot("{apiVersion: v1, kind: Event, metadata: {name: NAME}, involvedObject: {kind: Pod, name: BASE, namespace: alice}, reason: Killing, type: Normal, message: m, source: {component: kubelet}}"), Forced("/source/component", "\"system:serviceaccount:alice:default\"")),
    // Pods.
    Way("own-users", Create("{apiVersion: v1, kind: Pod, metadata: {name: NAME}, spec: {hostUsers: false, containers: [{name: main, image: none}]}}"), Forced("/spec/hostUsers", "")),
    Way("no-home", Create("{apiVersion: v1, kind: Pod, metadata: {name: NAME}, spec: {containers: [{name: main, image: none}]}}"), Forced("/spec/containers/0/env/0/value", "\"/home/alice\"")),
    Way("name-of-a-volume", Create("{apiVersion: v1, kind: Pod, metadata: {name: NAME}, spec: {volumes: [{name: pumice-tenant-1, emptyDir: {}}], containers: [{name: main, image: none}]}}"), Refused("spec.volumes[0].name")),
    Way("tolerates-whatever", Create("{apiVersion: v1, kind: Pod, metadata: {name: NAME}, spec: {tolerations: [{operator: Exists}], containers: [{name: main, image: none}]}}"), Refused("spec.tolerations[0].key")),
    Way("tolerates-cordons", Create("{apiVersion: v1, kind: Pod, metadata: {name: NAME}, spec: {tolerations: [{key: node.kubernetes.io/unschedulable, operator: Exists}], containers: [{name: main, image: none}]}}"), Refused("spec.tolerations[0].key")),
    Way("tolerates-later", Patch("json", "pod/BASE", "", r#"[{"op": "add", "path": "/spec/tolerations", "value": [{"operator": "Exists"}]}]"#), Refused("spec.tolerations")),
    Way("queue-by-strategic", Patch("strategic", "pod/BASE", "", r#"{"metadata": {"labels": {"volcano.sh/queue-name": "other"}}}"#), Refused("volcano.sh/queue-name")),
    Way("user-by-json", Patch("json", "pod/BASE", "", r#"[{"op": "add", "path": "/metadata/annotations", "value": {"pumice.sh/user": "bob"}}]"#), Refused("pumice.sh/user")),
    Way("mirror-later", Patch("merge", "pod/BASE", "", r#"{"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}"#), Refused("config.mirror")),
    Way("config-source", Create("{apiVersion: v1, kind: Pod, metadata: {name: NAME, annotations: {kubernetes.io/config.source: file}}, spec: {containers: [{name: main, image: none}]}}"), Refused("config.source")),
    Way("seccomp-annotation", Create("{apiVersion: v1, kind: Pod, metadata: {name: NAME, annotations: {seccomp.security.alpha.kubernetes.io/pod: unconfined}}, spec: {containers: [{name: main, image: none}]}}"), Refused("seccomp.security.alpha")),
    Way("accelerators", Create("{apiVersion: v1, kind: Pod, metadata: {name: NAME, annotations: {pumice.sh/accelerators: 'main: nvidia.com/gpu=0'}}, spec: {containers: [{name: main, image: none}]}}"), Refused("pumice.sh/accelerators")),
    Way("accelerators-later", Patch("merge", "pod/BASE", "", r#"{"metadata": {"annotations": {"pumice.sh/accelerators": "main: nvidia.com/gpu=0"}}}"#), Refused("pumice.sh/accelerators")),
    Way("accelerators-with-status", Patch("merge", "pod/BASE", "status", r#"{"metadata": {"annotations": {"pumice.sh/accelerators": "main: nvidia.com/gpu=0"}}}"#), Refused("pumice.sh/accelerators")),
    Way("cards-of-another", Create("{apiVersion: v1, kind: Pod, metadata: {name: NAME, annotations: {volcano.sh/vgpu-ids-new: GPU-1}}, spec: {containers: [{name: main, image: none}]}}"), Refused("volcano.sh/vgpu-ids-new")),
    Way("tenant-of-a-pod", Create("{apiVersion: v1, kind: Pod, metadata: {name: NAME, labels: {pumice.sh/tenant: bob}}, spec: {containers: [{name: main, image: none}]}}"), Refused("pumice.sh/tenant")),
    Way("port-of-an-init", Create("{apiVersion: v1, kind: Pod, metadata: {name: NAME}, spec: {initContainers: [{name: i, image: none, restartPolicy: Always, ports: [{containerPort: 1, hostPort: 1}]}], containers: [{name: main, image: none}]}}"), Refused("spec.initContainers[0].ports[0].hostPort")),
    Way("device-of-an-init", Create("{apiVersion: v1, kind: Pod, metadata: {name: NAME}, spec: {initContainers: [{name: i, image: none, resources: {limits: {rdma/hca: 1}}}], containers: [{name: main, image: none}]}}"), Refused("rdma/hca")),
    Way("shared-cards", Create("{apiVersion: v1, kind: Pod, metadata: {name: NAME}, spec: {containers: [{name: main, image: none, resources: {limits: {volcano.sh/vgpu-number: 1}}}]}}"), Refused("volcano.sh/vgpu-number")),
    Way("folder-of-devices", Create("{apiVersion: v1, kind: Pod, metadata: {name: NAME}, spec: {volumes: [{name: v, hostPath: {path: /dev/kvm, type: CharDevice}}], containers: [{name: main, image: none}]}}"), Refused("spec.volumes[0].hostPath.path")),
    Way("folder-in-capitals", Create("{apiVersion: v1, kind: Pod, metadata: {name: NAME}, spec: {volumes: [{name: v, hostPath: {path: /data/Alice}}], containers: [{name: main, image: none}]}}"), Refused("hostPath")),
    Way("folder-zero-width", Create("{apiVersion: v1, kind: Pod, metadata: {name: NAME}, spec: {volumes: [{name: v, hostPath: {path: \"/data/alice\\u200b\"}}], containers: [{name: main, image: none}]}}"), Refused("hostPath")),
    Way("folder-relative", Create("{apiVersion: v1, kind: Pod, metadata: {name: NAME}, spec: {volumes: [{name: v, hostPath: {path: data/alice}}], containers: [{name: main, image: none}]}}"), Refused("hostPath")),
    Way("folder-of-home-above", Create("{apiVersion: v1, kind: Pod, metadata: {name: NAME}, spec: {volumes: [{name: v, hostPath: {path: /srv}}], containers: [{name: main, image: none}]}}"), Refused("hostPath")),
    Way("team-written", Create("{apiVersion: v1, kind: Pod, metadata: {name: NAME}, spec: {volumes: [{name: v, hostPath: {path: /srv/team}}], containers: [{name: main, image: none, volumeMounts: [{name: v, mountPath: /m}]}]}}"), Refused("readOnly")),
    Way("ceph", Create("{apiVersion: v1, kind: Pod, metadata: {name: NAME}, spec: {volumes: [{name: v, cephfs: {monitors: [m]}}], containers: [{name: main, image: none}]}}"), Refused("spec.volumes[0].cephfs")),
    Way("ephemeral-of-another", Create("{apiVersion: v1, kind: Pod, metadata: {name: NAME}, spec: {volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: fast, volumeName: home-of-bob, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}], containers: [{name: main, image: none}]}}"), Refused("volumeName")),
    Way("owned-by-a-node", Create("{apiVersion: v1, kind: Pod, metadata: {name: NAME, ownerReferences: [{apiVersion: v1, kind: Node, name: node-1, uid: u-1, blockOwnerDeletion: true}]}, spec: {containers: [{name: main, image: none}]}}"), Refused("metadata.ownerReferences[0].kind")),
    Way("map-of-a-namespace", Create("{apiVersion: v1, kind: ConfigMap, metadata: {name: NAME, ownerReferences: [{apiVersion: v1, kind: Namespace, name: bob, uid: u, blockOwnerDeletion: true}]}}"), Refused("metadata.ownerReferences[0].kind")),
    Way("map-of-a-tenant-later", Patch("merge", "configmap/kube-root-ca.crt", "", r#"{"metadata": {"ownerReferences": [{"apiVersion": "pumice.sh/v1alpha1", "kind": "Tenant", "name": "bob", "uid": "u"}]}}"#), Refused("metadata.ownerReferences[0].kind")),
    // What makes pods.
    Way("job-of-root", Makes("{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: NAME}, spec: {queue: default, schedulerName: volcano, minAvailable: 1, tasks: [{name: t, replicas: 1, template: {metadata: {labels: {way: NAME}, annotations: {pumice.sh/user: bob}}, spec: {securityContext: {runAsUser: 0}, containers: [{name: main, image: none}]}}}]}}"), Forced("/spec/securityContext/runAsUser", "4001")),
    Way("job-in-anothers-name", Makes("{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: NAME}, spec: {queue: default, schedulerName: volcano, minAvailable: 1, tasks: [{name: t, replicas: 1, template: {metadata: {labels: {way: NAME}, annotations: {pumice.sh/user: bob}}, spec: {containers: [{name: main, image: none}]}}}]}}"), Forced("/metadata/annotations/pumice.sh~1user", "\"alice\"")),
    Way("job-with-network", Create("{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: NAME}, spec: {queue: default, minAvailable: 1, tasks: [{name: t, replicas: 1, template: {spec: {hostNetwork: true, restartPolicy: Never, containers: [{name: main, image: none}]}}}]}}"), Refused("spec.tasks[0].template.spec.hostNetwork")),
    Way("job-with-folder", Create("{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: NAME}, spec: {queue: default, minAvailable: 1, tasks: [{name: t, replicas: 1, template: {spec: {restartPolicy: Never, volumes: [{name: v, hostPath: {path: /etc}}], containers: [{name: main, image: none}]}}}]}}"), Refused("spec.tasks[0].template.spec.volumes[0].hostPath.path")),
    Way("job-on-a-node", Create("{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: NAME}, spec: {queue: default, minAvailable: 1, tasks: [{name: t, replicas: 1, template: {spec: {restartPolicy: Never, nodeName: node-1, containers: [{name: main, image: none}]}}}]}}"), Refused("spec.tasks[0].template.spec.nodeName")),
    Way("job-of-the-system", Create("{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: NAME}, spec: {queue: default, priorityClassName: system-cluster-critical, minAvailable: 1, tasks: [{name: t, replicas: 1, template: {spec: {restartPolicy: Never, containers: [{name: main, image: none}]}}}]}}"), Refused("spec.priorityClassName")),
    Way("group-of-the-system", Create("{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {name: NAME}, spec: {minMember: 1, queue: default, priorityClassName: system-node-critical}}"), Refused("spec.priorityClassName")),
    Way("stateful-set-of-root", Makes("{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: NAME}, spec: {replicas: 1, serviceName: s, selector: {matchLabels: {way: NAME}}, template: {metadata: {labels: {way: NAME}}, spec: {securityContext: {runAsUser: 0}, containers: [{name: main, image: none}]}}}}"), Forced("/spec/securityContext/runAsUser", "4001")),
    Way("flow-of-root", Makes("{apiVersion: v1, kind: List, items: [{apiVersion: flow.volcano.sh/v1alpha1, kind: JobTemplate, metadata: {name: NAME}, spec: {queue: default, schedulerName: volcano, minAvailable: 1, tasks: [{name: t, replicas: 1, template: {metadata: {labels: {way: NAME}}, spec: {restartPolicy: Never, securityContext: {runAsUser: 0}, containers: [{name: main, image: none}]}}}]}}, {apiVersion: flow.volcano.sh/v1alpha1, kind: JobFlow, metadata: {name: NAME}, spec: {jobRetainPolicy: retain, flows: [{name: NAME}]}}]}"), Forced("/spec/securityContext/runAsUser", "4001")),
    Way("command-to-a-queue", Create("{apiVersion: bus.volcano.sh/v1alpha1, kind: Command, metadata: {name: NAME}, action: CloseQueue, target: {apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, name: none, uid: u}}"), Refused("target.kind")),
    // What is another's.
    Way("claim-forged-bound", Create("{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: NAME, annotations: {pv.kubernetes.io/bind-completed: 'yes'}}, spec: {storageClassName: \"\", volumeName: home-of-bob, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}"), Refused("spec.volumeName")),
    Way("claim-of-no-volume", Create("{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: NAME}, spec: {storageClassName: fast, volumeName: comes-later, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}"), Refused("spec.volumeName")),
    Way("devices-of-the-cluster", Create("{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: NAME}, spec: {devices: {requests: [{name: r, exactly: {deviceClassName: cards}}]}}}"), Refused("deviceClassName")),
    Way("devices-by-template", Create("{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: NAME}, spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: cards}}]}}}}"), Refused("spec.spec.devices.requests[0].exactly.deviceClassName")),
    Way("devices-in-order", Create("{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: NAME}, spec: {devices: {requests: [{name: r, firstAvailable: [{name: a, deviceClassName: cards}]}]}}}"), Refused("firstAvailable[0].deviceClassName")),
    // Whose the namespace is.
    Way("namespace-by-json", Patch("json", "namespace/alice", "", r#"[{"op": "add", "path": "/metadata/annotations", "value": {"pumice.sh/tenant-groups": "0"}}]"#), Refused("pumice.sh/tenant-groups")),
    Way("namespace-by-strategic", Patch("strategic", "namespace/alice", "", r#"{"metadata": {"labels": {"pumice.sh/tenant": "bob"}}}"#), Refused("pumice.sh/tenant")),
    Way("namespace-queue", Patch("merge", "namespace/alice", "", r#"{"metadata": {"annotations": {"scheduling.volcano.sh/queue-name": "other"}}}"#), Refused("scheduling.volcano.sh/queue-name")),
    Way("namespace-gone", Delete("namespace/alice"), Refused("suspends the Tenant")),
];

/// Somebody who tries.
pub struct Try<'a> {
    pub tenant: &'a Clients,
    pub administrator: &'a Platform,
    pub round: &'a str,
}

impl Try<'_> {
    pub fn unsuccessful(&self, way: &Way) -> Option<String> {
        match (self.send(way), way.2) {
            (Ok(_), Refused(_)) => None,
            (Ok(object), Forced(place, wanted)) if !has(&object, place, wanted) => None,
            (outcome, _) => Some(format!("{}: {outcome:?}", way.0)),
        }
    }

    pub fn unheld(&self, way: &Way) -> Option<String> {
        match (self.send(way), way.2) {
            (Err(told), Refused(words)) if told.contains(words) => None,
            (Ok(object), Forced(place, wanted)) if has(&object, place, wanted) => None,
            (outcome, _) => Some(format!("{}: {outcome:?}", way.0)),
        }
    }

    fn send(&self, way: &Way) -> Result<Value, String> {
        let name = format!("{}-{}", way.0, self.round);
        let named = |text: &str| text.replace("NAME", &name).replace("BASE", &format!("base-{}", self.round));
        let manifest = |text: &str| format!("{YAML}{}", named(text));
        let send = |more: &[&str], text: &str| {
            let args = [more, &["-n", "alice", "-o", "json", "-f", "-"]].concat();
            self.tenant.kubectl_with_input(args, text)
        };
        match way.1 {
            Create(text) => read(&send(&["create"], &manifest(text))),
            Apply(text) => read(&send(&["apply", "--server-side"], &manifest(text))),
            AsRobot(text) => read(&send(&["create", "--as=system:serviceaccount:alice:default"], &manifest(text))),
            Makes(text) => {
                read(&send(&["create"], &manifest(text)))?;
                Ok(eventually(&format!("{name} has made a pod"), || {
                    let args = ["get", "pods", "-n", "alice", "-l", &format!("way={name}"), "-o", "json"];
                    let list: Value = serde_json::from_str(&self.administrator.kubectl(args).ok()).unwrap();
                    list["items"].get(0).cloned().ok_or_else(|| "none".to_owned())
                }))
            }
            Patch(kind, object, subresource, patch) => {
                let (kind, object) = (format!("--type={kind}"), named(object));
                let subresource = format!("--subresource={subresource}");
                let mut args =
                    vec!["patch", "-n", "alice", &object, &kind, "--dry-run=server", "-o", "json", "-p", patch];
                args.extend((subresource.len() > "--subresource=".len()).then_some(subresource.as_str()));
                read(&self.tenant.kubectl(args))
            }
            Raw(resource, body) => {
                let path = format!("/api/v1/namespaces/alice/{resource}");
                read(&self.tenant.kubectl_with_input(["create", "--raw", &path, "-f", "-"], &named(body)))
            }
            Delete(object) => {
                let deleted = self.tenant.kubectl(["delete", object, "--dry-run=server"]);
                if deleted.code == 0 { Ok(Value::Null) } else { Err(deleted.stderr) }
            }
        }
    }
}

fn read(output: &Output) -> Result<Value, String> {
    // Of several objects the last one is not looked at.
    match output.code {
        0 => Ok(serde_json::from_str(&output.stdout).unwrap_or_default()),
        _ => Err(output.stderr.clone()),
    }
}

fn has(object: &Value, place: &str, wanted: &str) -> bool {
    let found = object.pointer(place).filter(|found| !found.is_null());
    match wanted {
        "" => found.is_none(),
        wanted => found == serde_json::from_str(wanted).ok().as_ref(),
    }
}
