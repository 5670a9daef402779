//! The table on a made-up machine.

use super::*;

use serde_json::{Value, json};

/// A machine with cards of three makers and InfiniBand, whose nodes are files. Of NVIDIA's the driver tells of the first and the
/// last, and the second of AMD's cards has a name of its own.
struct Machine {
    dir: tempfile::TempDir,
    folders: DeviceFolders,
}

impl Machine {
    fn new() -> Machine {
        let dir = tempfile::tempdir().unwrap();
        let folders = DeviceFolders {
            dev: dir.path().join("dev"),
            graphics: dir.path().join("drm"),
            nvidia: dir.path().join("gpus"),
        };
        let machine = Machine { dir, folders };
        let others =
            ["null", "fuse", "kvm", "nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"];
        let more = ["nvidia-modeset", "nvidia-caps/nvidia-cap1", "kfd", "dri/by-path/pci"];
        let infiniband = ["infiniband/uverbs0", "infiniband/rdma_cm"];
        others.iter().chain(&more).chain(&infiniband).for_each(|node| machine.write(&format!("dev/{node}"), ""));
        for (address, driver, nodes) in [
            ("0000:03:00.0", "amdgpu", ["card0", "renderD128"]),
            ("0000:00:02.0", "i915", ["card1", "renderD129"]),
            ("0000:3b:00.0", "nvidia", ["card2", "renderD130"]),
            ("0000:04:00.0", "amdgpu", ["card3", "renderD131"]),
            ("0000:af:00.0", "nvidia", ["card4", "renderD132"]),
        ] {
            let device = machine.dir.path().join("pci").join(address);
            fs::create_dir_all(&device).unwrap();
            std::os::unix::fs::symlink(Path::new("../../bus/pci/drivers").join(driver), device.join("driver")).unwrap();
            for node in nodes {
                machine.write(&format!("dev/dri/{node}"), "");
                fs::create_dir_all(machine.folders.graphics.join(node)).unwrap();
                std::os::unix::fs::symlink(&device, machine.folders.graphics.join(node).join("device")).unwrap();
            }
        }
        machine.write("pci/0000:04:00.0/unique_id", "0123abcd\n");
        machine.write("gpus/0000:3B:00.0/information", "Model: \t A100\nGPU UUID: \t GPU-first\nDevice Minor: \t 0\n");
        machine.write("gpus/0000:af:00.0/information", "GPU UUID: \t GPU-??\nDevice Minor: \t 10\n");
        machine
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn nodes_for(&self, resources: &Value, own: &DeviceNumbers) -> String {
        let container = serde_json::from_value(json!({"name": "c", "resources": resources})).unwrap();
        let nodes = self.folders.nodes_of(&container, own);
        let names = nodes.iter().map(|node| {
            let name = node.target.strip_prefix("/dev").unwrap();
            assert_eq!(node.path, self.folders.dev.join(name));
            name.to_str().unwrap()
        });
        names.collect::<Vec<_>>().join(" ")
    }
}

fn devices(resource: &str, numbers: &[u32]) -> DeviceNumbers {
    [(resource.to_owned(), numbers.iter().copied().collect())].into()
}

#[test]
fn a_container_has_its_own_devices_and_no_others_of_their_kind() {
    let machine = Machine::new();
    let common = "nvidia-modeset nvidia-uvm nvidia-uvm-tools";
    for (resource, numbers, expected) in [
        (NVIDIA, &[0_u32] as &[_], format!("dri/card2 dri/renderD130 {common} nvidia0 nvidiactl")),
        // Nobody says which of the graphics nodes is the second's.
        (NVIDIA, &[1, 10], format!("dri/card4 dri/renderD132 {common} nvidia1 nvidia10 nvidiactl")),
        (AMD, &[131], "dri/card3 dri/renderD131 kfd".to_owned()),
        ("gpu.intel.com/i915", &[129], "dri/card1 dri/renderD129".to_owned()),
    ] {
        let named = json!({"limits": {resource: "1"}});
        assert_eq!(machine.nodes_for(&named, &devices(resource, numbers)), expected, "{resource} {numbers:?}");
    }
    let together = json!({"limits": {"gpu.intel.com/i915": "1", "gpu.intel.com/memory.max": "1Gi"}});
    let own = devices("gpu.intel.com/i915", &[129]);
    assert_eq!(machine.nodes_for(&together, &own), "dri/card1 dri/renderD129");
}

#[test]
fn a_container_has_all_of_what_it_names_where_that_is_shared() {
    let machine = Machine::new();
    let nvidia = "dri/card2 dri/card4 dri/renderD130 dri/renderD132 nvidia-caps/nvidia-cap1 nvidia-modeset nvidia-uvm \
                  nvidia-uvm-tools nvidia0 nvidia1 nvidia10 nvidiactl";
    let infiniband = "infiniband/rdma_cm infiniband/uverbs0";
    for (resources, expected) in [
        (json!({}), String::new()),
        (json!({"limits": {"cpu": "2", "memory": "1Gi", "example.com/gpu": "1"}}), String::new()),
        (json!({"limits": {"nvidia.com/gpu": "0"}}), String::new()),
        (json!({"requests": {"nvidia.com/mig-1g.5gb": "2"}}), nvidia.to_owned()),
        (json!({"limits": {"volcano.sh/vgpu-number": "1"}}), nvidia.to_owned()),
        (json!({"limits": {"rdma/hca_shared_devices_a": "1"}}), infiniband.to_owned()),
    ] {
        assert_eq!(machine.nodes_for(&resources, &DeviceNumbers::new()), expected, "{resources}");
    }
    let both = json!({"limits": {"amd.com/gpu": "1", "rdma/hca": "1"}});
    let own = devices(AMD, &[128]);
    assert_eq!(machine.nodes_for(&both, &own), format!("dri/card0 dri/renderD128 {infiniband} kfd"));
}

#[test]
fn a_machine_offers_what_it_has() {
    let machine = Machine::new();
    let folders = &machine.folders;
    let all = [("amd.com/gpu", 2), ("gpu.intel.com/i915", 1), ("nvidia.com/gpu", 3), ("rdma/hca", SHARED_MAX)];
    assert_eq!(folders.offered(), all.into());
    let numbers = [(AMD, vec![128, 131]), ("gpu.intel.com/i915", vec![129]), (NVIDIA, vec![0, 1, 10])];
    let numbers = numbers.map(|(name, numbers)| (name.to_owned(), BTreeSet::from_iter(numbers)));
    assert_eq!(folders.allottable(), DeviceNumbers::from(numbers));
    // A card that shows pictures and does not compute.
    fs::remove_file(folders.dev.join("kfd")).unwrap();
    fs::remove_dir_all(folders.dev.join("infiniband")).unwrap();
    assert_eq!(folders.offered(), [("gpu.intel.com/i915", 1), ("nvidia.com/gpu", 3)].into());
    let none = DeviceFolders { dev: machine.dir.path().join("none"), ..folders.clone() };
    assert_eq!(none.offered(), BTreeMap::new());
}

#[test]
fn what_a_machine_offers_is_what_containers_name() {
    for kind in TABLE {
        for Offer { resource, .. } in kind.offers {
            assert!(kind.resources.iter().any(|start| resource.starts_with(start)), "{resource}");
        }
    }
}

#[test]
fn the_devices_of_before_are_known_by_what_is_shown() {
    let machine = Machine::new();
    let shown = ["/dev/nvidia1", "/dev/nvidiactl", "/dev/dri/renderD128", "/dev/dri/card1", "/work"].map(Path::new);
    let expected = DeviceNumbers::from_iter([devices(NVIDIA, &[1]), devices(AMD, &[128])].into_iter().flatten());
    assert_eq!(machine.folders.among(&shown), expected);
    assert_eq!(machine.folders.among(&[]), DeviceNumbers::new());
}

#[test]
fn the_environment_names_devices_by_what_holds_whatever_is_seen() {
    let machine = Machine::new();
    for (own, sees_all, expected) in [
        (devices(NVIDIA, &[0]), false, vec![("NVIDIA_VISIBLE_DEVICES", "GPU-first")]),
        (
            devices(NVIDIA, &[0]),
            true,
            vec![("CUDA_VISIBLE_DEVICES", "GPU-first"), ("NVIDIA_VISIBLE_DEVICES", "GPU-first")],
        ),
        (devices(NVIDIA, &[0, 10]), true, vec![("NVIDIA_VISIBLE_DEVICES", "0,10")]),
        (devices(AMD, &[131]), true, vec![("ROCR_VISIBLE_DEVICES", "GPU-0123abcd")]),
        (devices(AMD, &[128, 131]), true, vec![]),
        (devices(AMD, &[131]), false, vec![]),
        (DeviceNumbers::new(), true, vec![]),
    ] {
        let found = machine.folders.environment(&own, sees_all);
        let found: Vec<(&str, &str)> = found.iter().map(|(name, value)| (*name, &**value)).collect();
        assert_eq!(found, expected, "{own:?} {sees_all}");
    }
}

#[test]
fn a_pod_asks_for_what_is_allotted_in_the_order_of_its_containers() {
    let container = |name: &str, limits: Value| json!({"name": name, "resources": {"limits": limits}});
    let mut sidecar = container("b", json!({"amd.com/gpu": "1"}));
    sidecar["restartPolicy"] = json!("Always");
    let pod = json!({"spec": {
        "initContainers": [container("a", json!({"nvidia.com/gpu": "2", "cpu": "1"})), sidecar],
        "containers": [
            container("c", json!({"rdma/hca": "1", "volcano.sh/vgpu-number": "1", "nvidia.com/mig-1g.5gb": "1"})),
            container("d", json!({"gpu.intel.com/xe": 1, "gpu.intel.com/tiles": "1"}))]}});
    let request = |container: &str, role, resource: &str, amount| Request {
        container: container.to_owned(),
        role,
        amounts: [(resource.to_owned(), amount)].into(),
    };
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let expected = [
        request("a", Role::Init, NVIDIA, 2),
        request("b", Role::Sidecar, AMD, 1),
        request("d", Role::Main, "gpu.intel.com/xe", 1),
    ];
    assert_eq!(requests(&pod), expected);
}
