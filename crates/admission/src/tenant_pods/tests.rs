//! Pods as people send them, and what becomes of each.

use pumice_api::tenant::{AllowedHostPath, TenantVolume};

use super::*;

fn alice() -> TenantSpec {
    let volume = |mount: &str, host: &str, claim: &str, read_only| TenantVolume {
        mount_path: mount.into(),
        host_path: host.into(),
        persistent_volume: claim.into(),
        read_only,
    };
    TenantSpec {
        user: "alice".into(),
        uid: 4001,
        gid: 4002,
        groups: vec![5000],
        namespace: "alice".into(),
        home: Some(volume("/home/alice", "/srv/home/alice", "", false)),
        volumes: vec![volume("/team", "", "team-alice", false), volume("/reference", "/srv/reference", "", true)],
        host_paths: vec![AllowedHostPath { path: "/data".into(), read_only: true }],
        devices: vec!["nvidia.com/gpu".into()],
        queues: vec!["research".into(), "night".into()],
        ..TenantSpec::default()
    }
}

fn pod(spec: Value) -> Value {
    let mut pod =
        json!({"metadata": {"name": "p"}, "spec": {"schedulerName": "volcano", "containers": [{"name": "c"}]}});
    for (field, value) in spec.as_object().unwrap() {
        pod["spec"][field] = value.clone();
    }
    pod
}

fn forced(mut pod: Value) -> (Value, Vec<String>) {
    let mut warnings = Vec::new();
    force(&mut pod, &alice(), &mut warnings);
    let before = pod.clone();
    force(&mut pod, &alice(), &mut Vec::new());
    assert_eq!(pod, before, "forcing twice is forcing once");
    (pod, warnings)
}

fn found(pod: &Value) -> Vec<String> {
    let schedulers = ["volcano".to_owned()];
    let judged = Judged { tenant: &alice(), schedulers: &schedulers, is_new: true };
    refusals(pod, &judged).iter().map(ToString::to_string).collect()
}

#[test]
fn a_pod_is_the_tenant_whatever_it_says() {
    let asked = json!({
        "hostUsers": false,
        "securityContext": {"runAsUser": 0, "runAsGroup": 0, "supplementalGroups": [0, 6], "fsGroup": 0,
            "supplementalGroupsPolicy": "Merge", "runAsNonRoot": false, "seccompProfile": {"type": "Unconfined"}},
        "initContainers": [{"name": "i", "securityContext": {"runAsUser": 4000, "runAsGroup": 0}}],
        "containers": [{"name": "c", "securityContext": {"runAsUser": 0, "runAsNonRoot": false, "privileged": true, "procMount": "Unmasked",
            "allowPrivilegeEscalation": true, "capabilities": {"add": ["SYS_ADMIN"]}, "seccompProfile": {"type": "Unconfined"}}}],
    });
    let (pod, warnings) = forced(pod(asked));
    let context = &pod["spec"]["securityContext"];
    for (field, wanted) in identity(&alice()) {
        assert_eq!(context[field], wanted, "{field}");
    }
    assert_eq!(pod["spec"]["hostUsers"], Value::Null);
    let confined = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    for list in ["initContainers", "containers"] {
        assert_eq!(pod["spec"][list][0]["securityContext"], confined, "{list}");
        assert_eq!(pod["spec"][list][0]["env"], json!([{"name": "HOME", "value": "/home/alice"}]));
    }
    let mounts = json!([
        {"name": "pumice-tenant-0", "mountPath": "/home/alice"}, {"name": "pumice-tenant-1", "mountPath": "/team"},
        {"name": "pumice-tenant-2", "mountPath": "/reference", "readOnly": true},
    ]);
    assert_eq!(pod["spec"]["containers"][0]["volumeMounts"], mounts);
    assert_eq!(
        pod["spec"]["volumes"][1],
        json!({"name": "pumice-tenant-1", "persistentVolumeClaim": {"claimName": "team-alice"}})
    );
    assert_eq!(pod["metadata"]["annotations"]["scheduling.volcano.sh/queue-name"], "research");
    assert_eq!(found(&pod), [""; 0]);
    assert!(
        warnings.iter().any(|text| text.starts_with("spec.securityContext.runAsUser is the tenant's")),
        "{warnings:?}"
    );
}

#[test]
fn what_a_pod_mounts_itself_and_its_home_stay() {
    let container = json!({"name": "c", "env": [{"name": "HOME", "value": "/x"}],
        "volumeMounts": [{"name": "e", "mountPath": "/home/alice/"}]});
    let (pod, _) = forced(pod(json!({"volumes": [{"name": "e", "emptyDir": {}}], "containers": [container]})));
    let container = &pod["spec"]["containers"][0];
    assert_eq!(container["env"].as_array().map(Vec::len), Some(1));
    assert_eq!(container["volumeMounts"].as_array().map(Vec::len), Some(3));
    assert_eq!(found(&pod), [""; 0]);
}

#[test]
fn what_was_forced_is_judged_again() {
    let (whole, _) = forced(pod(json!({})));
    for (path, value, wanted) in [
        ("/spec/securityContext/runAsUser", json!(0), "spec.securityContext.runAsUser: Forbidden: must be 4001"),
        ("/spec/securityContext/runAsUser", json!("4001"), "spec.securityContext.runAsUser"),
        ("/spec/securityContext/runAsUser", Value::Null, "spec.securityContext.runAsUser"),
        ("/spec/securityContext/supplementalGroups", json!([5000, 0]), "spec.securityContext.supplementalGroups"),
        ("/spec/securityContext/fsGroup", json!(0), "spec.securityContext.fsGroup"),
        ("/spec/securityContext/seccompProfile", json!({"type": "Unconfined"}), "spec.securityContext.seccompProfile"),
        (
            "/spec/securityContext/supplementalGroupsPolicy",
            json!("Merge"),
            "spec.securityContext.supplementalGroupsPolicy",
        ),
        (
            "/spec/containers/0/securityContext",
            json!({}),
            "spec.containers[0].securityContext.allowPrivilegeEscalation",
        ),
        (
            "/spec/containers/0/securityContext",
            json!({"privileged": true}),
            "spec.containers[0].securityContext.privileged",
        ),
        (
            "/spec/containers/0/securityContext",
            json!({"procMount": "Unmasked"}),
            "spec.containers[0].securityContext.procMount",
        ),
        ("/spec/containers/0/securityContext", json!({"runAsUser": 0}), "spec.containers[0].securityContext.runAsUser"),
    ] {
        let mut pod = whole.clone();
        *pod.pointer_mut(path).unwrap() = value.clone();
        let found = found(&pod);
        assert!(found.iter().any(|text| text.starts_with(wanted)), "{path} {value}: {found:?}");
    }
}

#[test]
fn what_is_no_tenants_is_refused_at_its_field() {
    let volume = |source: Value| json!({"volumes": [source]});
    let container = |fields: Value| {
        let mut container = fields;
        container["name"] = json!("c");
        json!({"containers": [container]})
    };
    let context = |context: Value| container(json!({"securityContext": context}));
    for (spec, path) in [
        (json!({"nodeName": "n"}), "spec.nodeName"),
        (json!({"schedulerName": "default-scheduler"}), "spec.schedulerName"),
        (json!({"hostNetwork": true}), "spec.hostNetwork"),
        (json!({"hostPID": true}), "spec.hostPID"),
        (json!({"hostIPC": "true"}), "spec.hostIPC"),
        (json!({"runtimeClassName": "x"}), "spec.runtimeClassName"),
        (json!({"os": {"name": "windows"}}), "spec.os.name"),
        (json!({"resourceClaims": [{"name": "c"}]}), "spec.resourceClaims"),
        (json!({"priorityClassName": "system-node-critical"}), "spec.priorityClassName"),
        (json!({"priority": 2_000_000_000}), "spec.priority"),
        (json!({"tolerations": [{"operator": "Exists"}]}), "spec.tolerations[0].key"),
        (
            json!({"tolerations": [{"key": "a"}, {"key": "node-role.kubernetes.io/control-plane"}]}),
            "spec.tolerations[1].key",
        ),
        (json!({"securityContext": {"sysctls": [{"name": "a", "value": "b"}]}}), "spec.securityContext.sysctls"),
        (json!({"securityContext": {"windowsOptions": {"hostProcess": true}}}), "spec.securityContext.windowsOptions"),
        (json!({"securityContext": {"seLinuxOptions": {"type": "t"}}}), "spec.securityContext.seLinuxOptions"),
        (
            json!({"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}),
            "spec.securityContext.appArmorProfile.type",
        ),
        (
            context(json!({"windowsOptions": {"runAsUserName": "x"}})),
            "spec.containers[0].securityContext.windowsOptions",
        ),
        (container(json!({"ports": [{"hostPort": 80}]})), "spec.containers[0].ports[0].hostPort"),
        (
            container(json!({"resources": {"limits": {"amd.com/gpu": 1}}})),
            "spec.containers[0].resources.limits[amd.com/gpu]",
        ),
        (json!({"resources": {"requests": {"x.y/z": 1}}}), "spec.resources.requests[x.y/z]"),
        (volume(json!({"name": "v", "hostPath": {"path": "/"}})), "spec.volumes[0].hostPath.path"),
        (volume(json!({"name": "v", "hostPath": {"path": "/data/../etc"}})), "spec.volumes[0].hostPath.path"),
        (
            volume(json!({"name": "v", "hostPath": {"path": "/data", "type": "DirectoryOrCreate"}})),
            "spec.volumes[0].hostPath.type",
        ),
        (volume(json!({"name": "v", "csi": {"driver": "d"}})), "spec.volumes[0].csi"),
        (volume(json!({"name": "v", "nfs": {}})), "spec.volumes[0].nfs"),
        (volume(json!({"name": "v", "gitRepo": {"repository": "r"}})), "spec.volumes[0].gitRepo"),
        (
            volume(json!({"name": "v", "projected": {"sources": [{"podCertificate": {}}]}})),
            "spec.volumes[0].projected.sources[0].podCertificate",
        ),
        (
            volume(json!({"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {"volumeName": "bob"}}}})),
            "spec.volumes[0].ephemeral.volumeClaimTemplate.spec.volumeName",
        ),
        (volume(json!({"name": "pumice-tenant-0", "emptyDir": {}})), "spec.volumes[0].name"),
    ] {
        let (pod, _) = forced(pod(spec.clone()));
        let found = found(&pod);
        assert!(found.len() == 1 && found[0].starts_with(&format!("{path}: Forbidden: ")), "{spec}: {found:?}");
    }
}

#[test]
fn folders_that_may_be_read_only_are_mounted_so() {
    for (volume, read_only, refused) in [
        (json!({"name": "v", "hostPath": {"path": "/data/x"}}), false, true),
        (json!({"name": "v", "hostPath": {"path": "/data/x"}}), true, false),
        (json!({"name": "v", "hostPath": {"path": "/srv/reference"}}), false, true),
        (json!({"name": "v", "hostPath": {"path": "/srv/home/alice/project"}}), false, false),
    ] {
        let mount = json!({"name": "v", "mountPath": "/v", "readOnly": read_only});
        let spec = json!({"volumes": [volume], "containers": [{"name": "c", "volumeMounts": [mount]}]});
        let (pod, _) = forced(pod(spec.clone()));
        let found = found(&pod);
        let wanted = "spec.containers[0].volumeMounts[0].readOnly: Forbidden: must be true";
        assert_eq!(found.iter().any(|text| text.starts_with(wanted)), refused, "{spec}: {found:?}");
        assert_eq!(found.len(), usize::from(refused), "{spec}: {found:?}");
    }
}

#[test]
fn annotations_choose_no_queue_and_no_confinement() {
    for (key, value, refused) in [
        ("scheduling.volcano.sh/queue-name", "night", false),
        ("scheduling.volcano.sh/queue-name", "default", true),
        ("volcano.sh/queue-name", "bobs", true),
        ("kubernetes.io/config.mirror", "x", true),
        ("kubernetes.io/config.source", "file", true),
        ("seccomp.security.alpha.kubernetes.io/pod", "unconfined", true),
        ("container.apparmor.security.beta.kubernetes.io/c", "unconfined", true),
        ("example.org/note", "x", false),
    ] {
        let mut asked = pod(json!({}));
        asked["metadata"]["annotations"] = json!({ key: value });
        let (made, _) = forced(asked);
        assert_eq!(!found(&made).is_empty(), refused, "{key}={value}: {:?}", found(&made));
        let (old, _) = forced(pod(json!({})));
        let mut new = old.clone();
        new["metadata"]["annotations"][key] = json!(value);
        assert_eq!(!refusals_of_change(&new, &old, &alice()).is_empty(), refused, "{key}={value}");
        assert!(refusals_of_change(&new, &new, &alice()).is_empty(), "what was there holds nothing up");
    }
    let (old, new) = (json!({}), json!({"annotations": {"pumice.sh/accelerators": "c: nvidia.com/gpu=0"}}));
    assert_eq!((forged(&new, &old).len(), forged(&new, &new).len(), forged(&old, &new).len()), (1, 0, 1));
}

#[test]
fn added_containers_are_the_tenant_and_others_stay() {
    let (old, _) =
        forced(pod(json!({"ephemeralContainers": [{"name": "before", "securityContext": {"runAsUser": 0}}]})));
    let mut old = old;
    old["spec"]["ephemeralContainers"][0]["securityContext"] = json!({"runAsUser": 0});
    let mut new = old.clone();
    let debug = json!({"name": "debug", "securityContext": {"runAsUser": 0, "capabilities": {"add": ["SYS_PTRACE"]}}});
    new["spec"]["ephemeralContainers"].as_array_mut().unwrap().push(debug);
    force_added(&mut new, &old, &alice(), &mut Vec::new());
    let all = &new["spec"]["ephemeralContainers"];
    assert_eq!(all[0], old["spec"]["ephemeralContainers"][0]);
    assert_eq!(
        all[1]["securityContext"],
        json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}})
    );
    assert_eq!(all[1]["volumeMounts"].as_array().map(Vec::len), Some(3));
    assert_eq!(refusals_of_added(&new, &old, &alice()), []);
    new["spec"]["ephemeralContainers"][1]["securityContext"]["privileged"] = json!(true);
    assert_eq!(refusals_of_added(&new, &old, &alice()).len(), 1);
    let older = pod(json!({}));
    let mut added = older.clone();
    added["spec"]["ephemeralContainers"] = json!([{"name": "debug"}]);
    force_added(&mut added, &older, &alice(), &mut Vec::new());
    assert!(added["spec"]["ephemeralContainers"][0].get("volumeMounts").is_none_or(|all| *all == json!([])));
    let found = refusals_of_added(&added, &older, &alice());
    assert!(found.iter().any(|error| error.to_string().contains("delete it, and make it again")), "{found:?}");
}
