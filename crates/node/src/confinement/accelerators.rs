//! The table of accelerators: which resources stand for them, which nodes in `/dev` they are, how many a machine has.
//!
//! Invariant: a container has the nodes of the kinds that its resources name, and no others; a node of Pumice offers the
//! resources of the kinds that its machine has. Called when a pod is made and when the Node is registered.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Container;

use crate::downward_api;

/// One kind of accelerator.
struct Accelerator {
    /// Beginnings of the resources that stand for it.
    resources: &'static [&'static str],
    /// Entries of `/dev`; where one is a folder, all nodes in it. A `*` at the end stands for any rest of the name.
    entries: &'static [&'static str],
    /// Drivers whose nodes in `/dev/dri` belong to it.
    drivers: &'static [&'static str],
    /// What a machine that has some offers.
    offers: &'static [Offer],
}

struct Offer {
    resource: &'static str,
    amount: Amount,
}

enum Amount {
    /// As many as there are entries of `/dev` with this name and a number.
    Numbered(&'static str),
    /// As many as this driver has nodes for computing in `/dev/dri`, where this entry of `/dev` is there as well, if one is named.
    Rendering { driver: &'static str, with: Option<&'static str> },
    /// Any number of containers share them, where this folder of `/dev` has a node that begins so.
    Shared(&'static str, &'static str),
}

/// How many containers of a node share what is shared, as most device plugins for InfiniBand are set up.
const SHARED_MAX: u32 = 1000;

const TABLE: &[Accelerator] = &[
    Accelerator {
        resources: &["nvidia.com/", "volcano.sh/vgpu-", "volcano.sh/gpu-"],
        entries: &["nvidia*"],
        drivers: &["nvidia"],
        offers: &[Offer { resource: "nvidia.com/gpu", amount: Amount::Numbered("nvidia") }],
    },
    Accelerator {
        resources: &["amd.com/"],
        entries: &["kfd"],
        drivers: &["amdgpu"],
        offers: &[Offer { resource: "amd.com/gpu", amount: Amount::Rendering { driver: "amdgpu", with: Some("kfd") } }],
    },
    Accelerator {
        resources: &["gpu.intel.com/"],
        entries: &[],
        drivers: &["i915", "xe"],
        offers: &[
            Offer { resource: "gpu.intel.com/i915", amount: Amount::Rendering { driver: "i915", with: None } },
            Offer { resource: "gpu.intel.com/xe", amount: Amount::Rendering { driver: "xe", with: None } },
        ],
    },
    Accelerator {
        resources: &["rdma/", "mellanox.com/", "infiniband/"],
        entries: &["infiniband"],
        drivers: &[],
        offers: &[Offer { resource: "rdma/hca", amount: Amount::Shared("infiniband", "uverbs") }],
    },
];

/// Where a machine has its devices.
pub(crate) struct DeviceFolders<'a> {
    pub dev: &'a Path,
    /// What the kernel tells of graphics cards.
    pub graphics: &'a Path,
}

impl DeviceFolders<'static> {
    /// Those of this machine.
    pub(crate) fn of_machine() -> Self {
        DeviceFolders { dev: Path::new("/dev"), graphics: Path::new("/sys/class/drm") }
    }
}

impl DeviceFolders<'_> {
    /// The nodes of all accelerators that the resources of a container name.
    pub(crate) fn nodes_of(&self, container: &Container) -> Vec<PathBuf> {
        let named = named_resources(container);
        let kinds = TABLE
            .iter()
            .filter(|kind| kind.resources.iter().any(|start| named.iter().any(|name| name.starts_with(start))));
        let mut nodes: Vec<PathBuf> = kinds.flat_map(|kind| self.nodes(kind)).collect();
        nodes.sort();
        nodes.dedup();
        nodes
    }

    fn nodes(&self, kind: &Accelerator) -> Vec<PathBuf> {
        let is_entry = |name: &str| {
            kind.entries.iter().any(|entry| match entry.strip_suffix('*') {
                Some(start) => name.starts_with(start),
                None => name == *entry,
            })
        };
        let entries = names(self.dev).into_iter().filter(|name| is_entry(name)).map(|name| self.dev.join(name));
        let nodes = entries.flat_map(|path| {
            if path.is_dir() { names(&path).into_iter().map(|name| path.join(name)).collect() } else { vec![path] }
        });
        let cards = self.cards(|driver| kind.drivers.contains(&driver));
        nodes.chain(cards.into_iter().map(|name| self.dev.join("dri").join(name))).collect()
    }

    /// Names in `/dev/dri` of the nodes that have such a driver.
    fn cards(&self, is_driver: impl Fn(&str) -> bool) -> Vec<String> {
        let driver = |name: &str| fs::read_link(self.graphics.join(name).join("device/driver")).ok();
        let mut cards = names(&self.dev.join("dri"));
        cards.retain(|name| {
            driver(name).is_some_and(|path| path.file_name().is_some_and(|name| is_driver(&name.to_string_lossy())))
        });
        cards
    }

    /// The resources that this machine offers for its accelerators, with their amounts.
    pub(crate) fn offered(&self) -> BTreeMap<&'static str, u32> {
        let offers = TABLE.iter().flat_map(|kind| kind.offers);
        offers.map(|offer| (offer.resource, self.amount(&offer.amount))).filter(|(_, amount)| *amount > 0).collect()
    }

    fn amount(&self, amount: &Amount) -> u32 {
        let found = match amount {
            Amount::Numbered(start) => {
                names(self.dev).iter().filter(|name| name.strip_prefix(start).is_some_and(is_number)).count()
            }
            Amount::Rendering { with: Some(entry), .. } if !self.dev.join(entry).exists() => 0,
            Amount::Rendering { driver, .. } => {
                self.cards(|found| found == *driver).iter().filter(|name| name.starts_with("renderD")).count()
            }
            Amount::Shared(folder, start) => {
                let is_there = names(&self.dev.join(folder)).iter().any(|name| name.starts_with(start));
                return if is_there { SHARED_MAX } else { 0 };
            }
        };
        u32::try_from(found).unwrap_or(u32::MAX)
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Names of a folder's entries; of none where it can't be read.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// The resources of which a container has more than none.
fn named_resources(container: &Container) -> Vec<&str> {
    let Some(resources) = &container.resources else { return Vec::new() };
    let lists = [&resources.limits, &resources.requests].into_iter().flatten().flatten();
    let wanted = lists.filter(|(_, amount)| downward_api::parse(amount).is_some_and(|amount| amount.value() > 0));
    wanted.map(|(name, _)| name.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    use serde_json::{Value, json};

    /// A machine with cards of three makers and InfiniBand, whose nodes are files.
    fn machine() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let nodes = [
            "null",
            "fuse",
            "kvm",
            "nvidia0",
            "nvidia1",
            "nvidia10",
            "nvidiactl",
            "nvidia-uvm",
            "nvidia-caps/nvidia-cap1",
            "kfd",
            "dri/card0",
            "dri/renderD128",
            "dri/card1",
            "dri/renderD129",
            "dri/card2",
            "dri/renderD130",
            "dri/by-path/pci",
            "infiniband/uverbs0",
            "infiniband/rdma_cm",
        ];
        for node in nodes {
            let path = dir.path().join("dev").join(node);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let drivers = [
            ("card0", "amdgpu"),
            ("renderD128", "amdgpu"),
            ("card1", "i915"),
            ("renderD129", "i915"),
            ("card2", "nvidia"),
            ("renderD130", "nvidia"),
        ];
        for (node, driver) in drivers {
            let device = dir.path().join("drm").join(node).join("device");
            fs::create_dir_all(&device).unwrap();
            std::os::unix::fs::symlink(Path::new("../../bus/pci/drivers").join(driver), device.join("driver")).unwrap();
        }
        dir
    }

    fn nodes_for(machine: &Path, resources: Value) -> String {
        let container = serde_json::from_value(json!({"name": "c", "resources": resources})).unwrap();
        let (dev, graphics) = (machine.join("dev"), machine.join("drm"));
        let nodes = DeviceFolders { dev: &dev, graphics: &graphics }.nodes_of(&container);
        let names = nodes.iter().map(|path| path.strip_prefix(&dev).unwrap().to_str().unwrap());
        names.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_container_has_the_accelerators_that_it_names() {
        let machine = machine();
        let nvidia = "dri/card2 dri/renderD130 nvidia-caps/nvidia-cap1 nvidia-uvm nvidia0 nvidia1 nvidia10 nvidiactl";
        let infiniband = "infiniband/rdma_cm infiniband/uverbs0";
        for (resources, expected) in [
            (json!({}), String::new()),
            (json!({"limits": {"cpu": "2", "memory": "1Gi", "example.com/gpu": "1"}}), String::new()),
            (json!({"limits": {"nvidia.com/gpu": "0"}}), String::new()),
            (json!({"limits": {"nvidia.com/gpu": "1"}}), nvidia.to_owned()),
            (json!({"requests": {"nvidia.com/mig-1g.5gb": "2"}}), nvidia.to_owned()),
            (json!({"limits": {"volcano.sh/vgpu-number": "1"}}), nvidia.to_owned()),
            (json!({"limits": {"amd.com/gpu": "1"}}), "dri/card0 dri/renderD128 kfd".to_owned()),
            (json!({"limits": {"gpu.intel.com/i915": "1"}}), "dri/card1 dri/renderD129".to_owned()),
            (json!({"limits": {"rdma/hca_shared_devices_a": "1"}}), infiniband.to_owned()),
            (
                json!({"limits": {"amd.com/gpu": "1", "rdma/hca": "1"}}),
                format!("dri/card0 dri/renderD128 {infiniband} kfd"),
            ),
        ] {
            assert_eq!(nodes_for(machine.path(), resources.clone()), expected, "{resources}");
        }
    }

    #[test]
    fn a_machine_offers_what_it_has() {
        let machine = machine();
        let (dev, graphics) = (machine.path().join("dev"), machine.path().join("drm"));
        let folders = DeviceFolders { dev: &dev, graphics: &graphics };
        let all = [("amd.com/gpu", 1), ("gpu.intel.com/i915", 1), ("nvidia.com/gpu", 3), ("rdma/hca", SHARED_MAX)];
        assert_eq!(folders.offered(), all.into());
        // A card that shows pictures and does not compute.
        fs::remove_file(dev.join("kfd")).unwrap();
        fs::remove_dir_all(dev.join("infiniband")).unwrap();
        assert_eq!(folders.offered(), [("gpu.intel.com/i915", 1), ("nvidia.com/gpu", 3)].into());
        let none = DeviceFolders { dev: &machine.path().join("none"), graphics: &graphics };
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
}
