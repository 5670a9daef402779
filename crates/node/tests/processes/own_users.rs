//! Pods whose users and groups are their own (`hostUsers: false`), as root.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use pumice_shim::spec::{IdRange, MemoryVolume, MountSpec, Processes, RootKind, SPEC_FILE, ShimSpec, Sysctl, Users};
use serde_json::{Value, json};

use crate::exec::{Session, script};
use crate::harness::{TestPod, container, is_root};
use crate::node::{TestNode, sh};

/// The first id that the machine has for the pods of these tests.
const FIRST: u32 = 0x7ff0_0000;
const COUNT: u32 = 65_536;

fn own_users() -> Users {
    let range = IdRange { inside: 0, outside: FIRST, count: COUNT };
    Users { uids: vec![range], gids: vec![range] }
}

fn pod(script: &str) -> TestPod {
    let mut pod = TestPod::sh(script);
    pod.spec.users = Some(own_users());
    pod
}

/// A folder that everybody may write to, as volumes are, with a file of a user's.
fn volume(pod: &TestPod, name: &str) -> MountSpec {
    let source = pod.path().join(name);
    std::fs::create_dir_all(&source).unwrap();
    std::fs::set_permissions(&source, PermissionsExt::from_mode(0o777)).unwrap();
    std::fs::write(source.join("given"), "given\n").unwrap();
    std::os::unix::fs::chown(source.join("given"), Some(1000), Some(2000)).unwrap();
    MountSpec { source, sub_path: None, target: Path::new("/data").join(name), read_only: false }
}

fn owner(path: &Path) -> (u32, u32) {
    let found = std::fs::symlink_metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    (found.uid(), found.gid())
}

fn ran(pod: &TestPod) -> String {
    let exit = pod.start().exit();
    assert_eq!(exit.code, 0, "{exit:?} {}", pod.log());
    pod.log()
}

#[test]
fn files_have_the_same_owners_in_the_pod_as_on_the_disk() {
    if !is_root() {
        return;
    }
    let mut pod =
        pod("id -u; id -g; cat /proc/self/uid_map; stat -c '%n %u %g' / /etc /etc/passwd /data /dev /dev/null \
         /dev/shm /dev/pts /data/v /data/v/given /tmp /proc/self/fd/1; \
         touch /data/v/made /data/memory/made /etc/made /data/beside; chown 1000:2000 /data/v/made; rm /etc/hostname; \
         stat -c '%n %u %g' /data/v/made /data/memory/made; cp /bin/true /data/v/suid; chmod u+s /data/v/suid; \
         echo message > /dev/termination-log; echo again > /dev/stdout; hostname; grep CapEff /proc/self/status");
    pod.spec.memory_volumes =
        vec![MemoryVolume { path: pod.path().join("m"), size_bytes: Some(1 << 20), group: Some(7) }];
    let memory =
        MountSpec { source: pod.path().join("m"), sub_path: None, target: "/data/memory".into(), read_only: false };
    pod.spec.containers[0].mounts = vec![volume(&pod, "v"), memory];
    let log = ran(&pod);
    let expected = format!(
        "0\n0\n         0 {FIRST:10} {COUNT:10}\n/ 0 0\n/etc 0 0\n/etc/passwd 0 0\n/data 0 0\n/dev 0 0\n/dev/null 0 0\n\
         /dev/shm 0 0\n/dev/pts 65534 65534\n/data/v 0 0\n/data/v/given 1000 2000\n/tmp 0 0\n/proc/self/fd/1 0 0\n\
         /data/v/made 1000 2000\n/data/memory/made 0 7\nagain\npod-host\nCapEff:\t00000000a00405fb\n"
    );
    assert_eq!(log, expected);
    assert_eq!(pod.exit().message.as_deref(), Some("message\n"));
    let volume = pod.path().join("v");
    assert_eq!(owner(&volume.join("made")), (1000, 2000));
    assert_eq!(owner(&volume.join("suid")), (0, 0));
    let layer = pod.path().join("c/main/0/upper");
    for made in ["", "etc/made", "data/beside"] {
        assert_eq!(owner(&layer.join(made)), (FIRST, FIRST), "{made}");
    }
}

/// What the root of a pod's users may do, and what not.
#[test]
fn rights_are_those_over_the_pods_own() {
    if !is_root() {
        return;
    }
    let hosts = std::process::id();
    let mut pod = pod(&format!(
        "mkdir /tmp/m; mount -t tmpfs none /tmp/m && echo mounted; mount -t ext4 /dev/vda /tmp/m 2>/dev/null && echo disk; \
         umount /proc/sys 2>/dev/null && echo unmasked; mknod /tmp/null c 1 3 2>/dev/null && echo node; \
         mount -o remount,rw /proc/sys 2>/dev/null && echo writable; chown 70000 /tmp 2>/dev/null && echo foreign; \
         hostname other && hostname; cat /proc/sys/kernel/shm_rmid_forced; \
         su nobody -s /bin/sh -c 'id -u; sleep 50 & kill $!'; kill -0 {hosts} 2>/dev/null && echo hosts; \
         cat /etc/shadow > /dev/null && echo shadow; ( echo x > /proc/sys/kernel/core_pattern ) 2>/dev/null && echo core; \
         ls /proc/1/root 2>/dev/null && echo first; ls {0} 2>/dev/null && echo data; true",
        "/root/..data"
    ));
    pod.spec.containers[0].capabilities_add = vec!["SYS_ADMIN".into(), "MKNOD".into(), "SYS_PTRACE".into()];
    pod.spec.sysctls = vec![Sysctl { name: "kernel.shm_rmid_forced".into(), value: "1".into() }];
    assert_eq!(ran(&pod), "mounted\nother\n1\n65534\nshadow\n");
}

#[test]
fn a_root_of_listed_programs_belongs_to_the_pods_root() {
    if !is_root() {
        return;
    }
    let mut pod = pod("id -u; id -g; stat -c '%n %u' / /usr /etc /etc/passwd /tmp /home/runner; \
         touch /tmp/a /home/runner/b && echo wrote; touch /x 2>/dev/null || echo refused; touch /data/v/made; \
         python3 -c 'print(6 * 7)'");
    pod.spec.isolation.root = RootKind::AllowList;
    pod.spec.containers[0].mounts = vec![volume(&pod, "v")];
    let container = &mut pod.spec.containers[0];
    container.env.push(("HOME".into(), "/home/runner".into()));
    (container.uid, container.gid, container.no_new_privileges) = (1234, 5678, true);
    container.capabilities_drop = vec!["ALL".into()];
    let expected = "1234\n5678\n/ 0\n/usr 0\n/etc 0\n/etc/passwd 0\n/tmp 0\n/home/runner 1234\nwrote\nrefused\n42\n";
    assert_eq!(ran(&pod), expected);
    assert_eq!(owner(&pod.path().join("v/made")), (1234, 5678));
}

#[test]
fn a_root_of_listed_programs_that_can_only_be_read_takes_no_writes_anywhere() {
    if !is_root() {
        return;
    }
    for (read_only, expected) in [(false, "wrote /\nwrote /tmp\nwrote /var/tmp\nwrote /home\n"), (true, "")] {
        let mut pod = pod("for dir in / /tmp /var/tmp /home; do touch $dir/x 2>/dev/null && echo wrote $dir; done; \
             touch /tmp/v/made");
        pod.spec.isolation.root = RootKind::AllowList;
        pod.spec.containers[0].read_only_root = read_only;
        // What lies over a part of the root is written as before.
        pod.spec.containers[0].mounts = vec![MountSpec { target: "/tmp/v".into(), ..volume(&pod, "v") }];
        assert_eq!(ran(&pod), expected);
    }
}

/// Containers of a pod share their users, and each others' processes where the pod says so.
#[test]
fn containers_of_a_pod_have_the_same_users() {
    if !is_root() {
        return;
    }
    let mut pod =
        pod("while ! pgrep -f '[s]leep 777' > /dev/null; do sleep 0.05; done; pkill -f '[s]leep 777' && echo killed");
    pod.spec.processes = Processes::Pod;
    pod.spec.containers.push(container("other", "sleep 777; exit 0"));
    assert_eq!(ran(&pod), "killed\n");
    assert_eq!(pod.done().containers[1].exit().unwrap().code, 143);
}

#[test]
fn all_of_proc_is_there_where_the_container_says_so() {
    if !is_root() {
        return;
    }
    let look = "mount | grep -c ' on /proc/'; wc -c < /proc/interrupts | grep -c '^0$'; \
                unshare -Urpf --mount-proc sh -c 'echo nested $$' 2>/dev/null || echo none";
    for (unmasked, expected) in [(true, "0\n0\nnested 1\n"), (false, "12\n1\nnone\n")] {
        let mut pod = pod(look);
        pod.spec.containers[0].unmasked_proc = unmasked;
        let exit = pod.start().exit();
        let log = pod.log();
        let mut lines: Vec<&str> = log.lines().collect();
        if !unmasked {
            // How many are covered is the kernel's.
            assert_ne!(lines[0], "0", "{exit:?}");
            lines[0] = "12";
        }
        assert_eq!(lines.join("\n") + "\n", expected, "{exit:?}");
    }
}

fn users_of(node: &TestNode, pod: &Pod) -> Option<u32> {
    let spec = std::fs::read(node.pod_dir(pod).join(SPEC_FILE)).unwrap();
    let spec: ShimSpec = serde_json::from_slice(&spec).unwrap();
    spec.users.map(|users| users.uids[0].outside)
}

/// A pod with users of its own whose one container runs `script`, with these volumes at `/NAME`.
fn of_own_users(script: &str, volumes: &[Value]) -> Value {
    let mut main = sh(script);
    let at =
        |volume: &Value| json!({"name": volume["name"], "mountPath": format!("/{}", volume["name"].as_str().unwrap())});
    main["volumeMounts"] = volumes.iter().map(at).collect();
    json!({"hostUsers": false, "containers": [main], "volumes": volumes})
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_are_shared_with_pods_that_have_the_machines_users() {
    if !is_root() {
        return;
    }
    let node = TestNode::start().await;
    node.config_map("settings", json!({"key": "value"})).await;
    let shared = node.data_dir.path().join("shared");
    let folder = json!({"name": "shared", "hostPath": {"path": shared, "type": "DirectoryOrCreate"}});
    let settings = json!({"name": "settings", "configMap": {"name": "settings", "defaultMode": 288}});
    let empty = json!({"name": "empty", "emptyDir": {}});
    let memory = json!({"name": "memory", "emptyDir": {"medium": "Memory"}});
    let mut spec = of_own_users(
        "id -u; id -G; for v in empty memory settings/key shared; do stat -c '%n %u %g %a' /$v; done; cat /settings/key; echo; \
         echo text > /shared/file; chmod 600 /shared/file; touch /memory/a /empty/b; stat -c '%u %g' /memory/a /empty/b",
        &[folder.clone(), settings, empty, memory],
    );
    spec["securityContext"] =
        json!({"runAsUser": 1234, "runAsGroup": 1234, "fsGroup": 2000, "supplementalGroups": [3000]});
    std::fs::create_dir(&shared).unwrap();
    std::os::unix::fs::chown(&shared, Some(1234), Some(1234)).unwrap();
    let pod = node.create("own", spec).await;
    node.phase("own", "Succeeded").await;
    let log = node.log("own", "main").await;
    let expected = "1234\n1234 2000 3000\n/empty 0 2000 2777\n/memory 0 2000 2777\n/settings/key 0 2000 440\n\
                    /shared 1234 1234 755\nvalue\n1234 2000\n1234 2000\n";
    assert_eq!(log, expected);
    assert_eq!(owner(&shared.join("file")), (1234, 1234));
    let other = json!({"containers": [{"name": "main", "image": "none", "command": ["cat", "/shared/file"],
        "securityContext": {"runAsUser": 1234}, "volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}],
        "volumes": [folder]});
    let other = node.create("other", other).await;
    node.phase("other", "Succeeded").await;
    assert_eq!(node.log("other", "main").await, "text\n");
    assert!(users_of(&node, &pod).is_some());
    assert_eq!(users_of(&node, &other), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_has_its_users_over_a_restart_of_the_agent_and_nobody_else_has_them() {
    if !is_root() {
        return;
    }
    let mut node = TestNode::start().await;
    let first = node.create("first", of_own_users("echo up; trap 'exit 3' TERM; sleep 600 & wait", &[])).await;
    node.phase("first", "Running").await;
    let ids = users_of(&node, &first);
    node.kill_agent().await;
    node.start_agent().await;
    let second = node.create("second", of_own_users("sleep 600", &[])).await;
    node.phase("second", "Running").await;
    assert_eq!(users_of(&node, &first), ids);
    assert_ne!(users_of(&node, &second), ids);
    node.pod("first", "adopted", |pod| pod.status.as_ref().is_some_and(|status| status.pod_ip.is_some())).await;
    let query = script(
        "id -u; cat /proc/self/uid_map; touch /x /dev/shm/y; stat -c %u /x; echo a > /dev/stdout; grep CapEff /proc/self/status",
        "output=1&error=1",
    );
    let ended = Session::open(node.handle(), "first", &query).await.unwrap().end().await;
    let ids = ids.unwrap();
    let expected = format!("0\n         0 {ids:10}      65536\n0\na\nCapEff:\t00000000a00405fb\n");
    assert_eq!(ended.stdout, expected, "{}", ended.stderr);
    node.delete("first", &DeleteParams::default().grace_period(10)).await;
    node.gone(&first).await;
    let third = node.create("third", of_own_users("true", &[])).await;
    node.phase("third", "Succeeded").await;
    assert!(![Some(ids), users_of(&node, &second)].contains(&users_of(&node, &third)), "it rests for long");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_enforces_restricted_has_pods_with_users_of_their_own() {
    if !is_root() {
        return;
    }
    let node = TestNode::start().await;
    let namespaces: Api<Namespace> = Api::all(node.admin.clone());
    let label = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    namespaces.patch("default", &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
    let spec = |host_users: Value| {
        let mut main = sh("cat /proc/self/uid_map; id -u");
        main["securityContext"] = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
        json!({"hostUsers": host_users, "containers": [main], "securityContext": {
            "runAsNonRoot": true, "runAsUser": 1234, "seccompProfile": {"type": "RuntimeDefault"}}})
    };
    let pod = node.create("unset", spec(Value::Null)).await;
    node.phase("unset", "Succeeded").await;
    assert!(users_of(&node, &pod).is_some());
    assert!(node.log("unset", "main").await.ends_with("\n1234\n"));
    node.create("machines", spec(json!(true))).await;
    let is_refused = |pod: &Pod| waiting(pod).is_some_and(|(reason, _)| reason == "CreateContainerConfigError");
    let pod = node.pod("machines", "refused", is_refused).await;
    let (_, message) = waiting(&pod).unwrap();
    assert!(message.starts_with("spec.hostUsers: its namespace enforces restricted"), "{message}");
}

/// Where a file system shows its files with their own owners only, a pod that would see others' is refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_can_not_have_the_pods_owners_is_refused_with_its_field() {
    if !is_root() {
        return;
    }
    let node = TestNode::start().await;
    let volumes = [json!({"name": "empty", "emptyDir": {}}), json!({"name": "proc", "hostPath": {"path": "/proc"}})];
    node.create("refused", of_own_users("true", &volumes)).await;
    let has_reason = |pod: &Pod| waiting(pod).is_some_and(|(reason, _)| reason == "CreateContainerConfigError");
    let pod = node.pod("refused", "refused", has_reason).await;
    let (_, message) = waiting(&pod).unwrap();
    assert!(message.starts_with("spec.volumes[1].hostPath.path: /proc can't be shown"), "{message}");
}

fn waiting(pod: &Pod) -> Option<(String, String)> {
    let state = pod.status.as_ref()?.container_statuses.as_ref()?.first()?.state.as_ref()?.waiting.as_ref()?;
    Some((state.reason.clone()?, state.message.clone()?))
}
