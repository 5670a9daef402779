//! Devices that a container may open: those that every one has, those among its volumes, and no others.

use std::path::{Path, PathBuf};

use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use pumice_linux::cgroup::{Device, DeviceKind};
use pumice_shim::spec::MountSpec;
use serde_json::{Value, json};

use crate::exec::{Session, script};
use crate::harness::{TestPod, is_root};
use crate::node::TestNode;

/// Numbers of `/dev/fuse`.
const FUSE: (u64, u64) = (10, 229);

/// Opens each of these to read and write, and tells which it could.
const OPEN: &str = "for path in /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/ptmx /volume/node /dev/fuse; do \
                    test -c $path && (exec 3<> $path) 2> /dev/null && echo opened $path; done; \
                    mknod /volume/made c 10 229 2> /dev/null && echo made; mknod /made c 1 3 2> /dev/null && echo made; echo end";
const STANDARD: [&str; 6] = [
    "opened /dev/null",
    "opened /dev/zero",
    "opened /dev/full",
    "opened /dev/random",
    "opened /dev/urandom",
    "opened /dev/ptmx",
];

/// A volume with a node of the host's making.
fn volume() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let everybody = Mode::S_IRUSR | Mode::S_IWUSR;
    mknod(&folder.path().join("node"), SFlag::S_IFCHR, everybody, makedev(FUSE.0, FUSE.1)).unwrap();
    folder
}

fn pod(volume: &Path, device: Option<&Path>, context: Value) -> Value {
    let mut volumes = vec![json!({"name": "volume", "hostPath": {"path": volume}})];
    let mut mounts = vec![json!({"name": "volume", "mountPath": "/volume"})];
    if let Some(device) = device {
        volumes.push(json!({"name": "device", "hostPath": {"path": device, "type": "CharDevice"}}));
        mounts.push(json!({"name": "device", "mountPath": "/dev/fuse"}));
    }
    let container = json!({"name": "main", "image": "none", "command": ["sh", "-c", OPEN], "volumeMounts": mounts,
        "securityContext": context});
    json!({"containers": [container], "volumes": volumes, "restartPolicy": "Never"})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_opens_what_was_given_to_it_alone() {
    if !is_root() {
        return;
    }
    let node = TestNode::start().await;
    let limits_devices = node.handle().capabilities().cgroup.as_ref().is_some_and(|groups| groups.limits_devices());
    assert!(limits_devices, "{}", node.handle().capabilities().summary());
    let volume = volume();
    // A node of the same device, which the pod names.
    let named = volume.path().join("node");
    let with_right = json!({"capabilities": {"add": ["MKNOD"]}});
    let all = ["opened /volume/node", "opened /dev/fuse"];
    for (name, device, context, more) in [
        ("usual", None, json!({}), &[] as &[&str]),
        ("right", None, with_right, &[]),
        ("named", Some(&*named), json!({}), &all),
    ] {
        node.create(name, pod(volume.path(), device, context)).await;
        node.phase(name, "Succeeded").await;
        let expected = [&STANDARD[..], more, &["end"]].concat();
        assert_eq!(node.log(name, "main").await.lines().collect::<Vec<_>>(), expected, "{name}");
    }
    let privileged = json!({"privileged": true});
    node.create("privileged", pod(volume.path(), None, privileged)).await;
    node.phase("privileged", "Succeeded").await;
    let log = node.log("privileged", "main").await;
    assert!(log.contains("opened /volume/node") && log.matches("made").count() == 2, "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_beside_the_containers_own_is_limited_as_well_and_may_have_a_terminal() {
    if !is_root() {
        return;
    }
    let node = TestNode::start().await;
    let volume = volume();
    let mut spec = pod(volume.path(), None, json!({}));
    spec["containers"][0]["command"] = json!(["sleep", "600"]);
    node.create("p", spec).await;
    node.phase("p", "Running").await;
    let tried = "test -t 0 && echo terminal; (exec 3<> /volume/node) 2> /dev/null && echo opened; echo tried";
    let ended = Session::open(node.handle(), "p", &script(tried, "tty=1&input=1&output=1")).await.unwrap();
    let said = ended.end().await.stdout;
    assert_eq!(said.lines().collect::<Vec<_>>(), ["terminal", "tried"], "{said:?}");
}

#[test]
fn the_groups_of_devices_follow_the_spec_and_go_with_the_pod() {
    if !is_root() {
        return;
    }
    let volume = volume();
    let device = Device { kind: DeviceKind::Character, major: 10, minor: Some(229) };
    for (devices, opened) in [(None, true), (Some(vec![]), false), (Some(vec![device]), true)] {
        let mut pod = TestPod::sh(
            "(exec 3<> /volume/node) && (exec 3<> /dev/dri/renderD128) && echo opened; (exec 3<> /dev/null) && echo end",
        );
        let spec = &mut pod.spec.containers[0];
        spec.devices.clone_from(&devices);
        let mount = |source: PathBuf, target: &str| MountSpec {
            source,
            sub_path: None,
            target: target.into(),
            read_only: true,
        };
        // As accelerators are shown.
        spec.mounts =
            vec![mount(volume.path().into(), "/volume"), mount(volume.path().join("node"), "/dev/dri/renderD128")];
        pod.start().done();
        assert_eq!(pod.log().contains("opened"), opened, "{devices:?}: {}", pod.log());
        // What the shell says of a refusal may come after it.
        assert!(pod.log().lines().any(|line| line == "end"), "{}", pod.log());
        assert_eq!(pod.groups(), [] as [&Path; 0]);
    }
}
