//! The table of accelerators: which resources stand for them, which nodes in `/dev` they are, how many a machine has.
//!
//! Invariant: a container has the nodes of the devices that are allotted to it, and what all of their kind need beside them; of
//! kinds that are shared it has all nodes where its resources name them; and no others. A node of Pumice offers the resources of
//! the kinds that its machine has. Called when a pod is made and when the Node is registered.

mod environment;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod};
use pumice_shim::spec::DeviceNumbers;

use crate::confinement::allotment::{Request, Role};
use crate::downward_api;
use crate::pod_spec::resolve::is_sidecar;

/// One kind of accelerator.
struct Accelerator {
    /// Beginnings of the resources that stand for it.
    resources: &'static [&'static str],
    /// Entries of `/dev` for a container that shares them all; where one is a folder, all nodes in it. A `*` at the end stands
    /// for any rest of the name.
    entries: &'static [&'static str],
    /// Those of them that every container needs that has one device. Among NVIDIA's they are what its device plugin passes: the
    /// others change partitions of all devices.
    common: &'static [&'static str],
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
const NVIDIA: &str = "nvidia.com/gpu";
const AMD: &str = "amd.com/gpu";
/// Before the number of a node for computing.
const RENDERING: &str = "renderD";

const TABLE: &[Accelerator] = &[
    Accelerator {
        resources: &["nvidia.com/", "volcano.sh/vgpu-", "volcano.sh/gpu-"],
        entries: &["nvidia*"],
        common: &["nvidiactl", "nvidia-uvm*", "nvidia-modeset"],
        drivers: &["nvidia"],
        offers: &[Offer { resource: NVIDIA, amount: Amount::Numbered("nvidia") }],
    },
    Accelerator {
        resources: &["amd.com/"],
        entries: &["kfd"],
        common: &["kfd"],
        drivers: &["amdgpu"],
        offers: &[Offer { resource: AMD, amount: Amount::Rendering { driver: "amdgpu", with: Some("kfd") } }],
    },
    Accelerator {
        resources: &["gpu.intel.com/"],
        entries: &[],
        common: &[],
        drivers: &["i915", "xe"],
        offers: &[
            Offer { resource: "gpu.intel.com/i915", amount: Amount::Rendering { driver: "i915", with: None } },
            Offer { resource: "gpu.intel.com/xe", amount: Amount::Rendering { driver: "xe", with: None } },
        ],
    },
    Accelerator {
        resources: &["rdma/", "mellanox.com/", "infiniband/"],
        entries: &["infiniband"],
        common: &[],
        drivers: &[],
        offers: &[Offer { resource: "rdma/hca", amount: Amount::Shared("infiniband", "uverbs") }],
    },
];

/// Where a machine has its devices.
#[derive(Debug, Clone)]
pub struct DeviceFolders {
    pub dev: PathBuf,
    /// What the kernel tells of graphics cards.
    pub graphics: PathBuf,
    /// What NVIDIA's driver tells of its cards.
    pub nvidia: PathBuf,
}

/// Where containers have devices.
const DEV: &str = "/dev";

impl Default for DeviceFolders {
    /// Those of this machine.
    fn default() -> Self {
        DeviceFolders { dev: DEV.into(), graphics: "/sys/class/drm".into(), nvidia: "/proc/driver/nvidia/gpus".into() }
    }
}

/// The node of a device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DeviceNode {
    pub path: PathBuf,
    /// Where containers have it.
    pub target: PathBuf,
}

/// A card, as NVIDIA's driver tells of it.
struct NvidiaCard {
    number: u32,
    /// Its address on the bus, such as `0000:3b:00.0`.
    address: String,
    uuid: Option<String>,
}

impl DeviceFolders {
    /// The nodes that a container sees: of the devices that it has, and of all accelerators that it shares by naming them.
    pub(crate) fn nodes_of(&self, container: &Container, own: &DeviceNumbers) -> Vec<DeviceNode> {
        let amounts = amounts(container);
        let is_named =
            |kind: &&Accelerator| amounts.keys().any(|name| kind.resources.iter().any(|start| name.starts_with(start)));
        let names: BTreeSet<PathBuf> = TABLE.iter().filter(is_named).flat_map(|kind| self.names(kind, own)).collect();
        names
            .into_iter()
            .map(|name| DeviceNode { path: self.dev.join(&name), target: Path::new(DEV).join(&name) })
            .collect()
    }

    /// Names below `/dev`. Who has a device of a kind sees no others of it, also where it names some that are shared: so Intel's
    /// resources go together.
    fn names(&self, kind: &Accelerator, own: &DeviceNumbers) -> Vec<PathBuf> {
        let own: Vec<(&Offer, &BTreeSet<u32>)> =
            kind.offers.iter().filter_map(|offer| Some((offer, own.get(offer.resource)?))).collect();
        if own.is_empty() {
            let mut names = self.entries(kind.entries);
            names.extend(self.graphics(|_, card| card.is_driven_by(kind.drivers)));
            return names;
        }
        let mut names = self.entries(kind.common);
        for (offer, numbers) in own {
            numbers.iter().for_each(|number| names.extend(self.names_of_one(&offer.amount, *number)));
        }
        names
    }

    /// What belongs to one device: its own node, and those in `/dev/dri` of the same address on the bus.
    fn names_of_one(&self, amount: &Amount, number: u32) -> Vec<PathBuf> {
        match amount {
            Amount::Numbered(start) => {
                let card = self.nvidia_cards().into_iter().find(|card| card.number == number);
                let mut names = vec![PathBuf::from(format!("{start}{number}"))];
                if let Some(card) = card {
                    names.extend(self.graphics(|_, found| found.address.as_deref() == Some(&*card.address)));
                }
                names
            }
            Amount::Rendering { .. } => {
                let own = format!("{RENDERING}{number}");
                let address = self.graphics_card(&own).address;
                self.graphics(|name, found| {
                    name == own || !name.starts_with(RENDERING) && address.is_some() && found.address == address
                })
            }
            Amount::Shared(..) => Vec::new(),
        }
    }

    fn entries(&self, wanted: &[&str]) -> Vec<PathBuf> {
        let is_wanted = |name: &str| {
            wanted.iter().any(|entry| match entry.strip_suffix('*') {
                Some(start) => name.starts_with(start),
                None => name == *entry,
            })
        };
        let found = names(&self.dev).into_iter().filter(|name| is_wanted(name));
        let nodes = found.flat_map(|name| {
            let path = self.dev.join(&name);
            let name = PathBuf::from(name);
            if path.is_dir() { names(&path).iter().map(|inner| name.join(inner)).collect() } else { vec![name] }
        });
        nodes.collect()
    }

    /// Nodes in `/dev/dri`, by their names below `/dev`.
    fn graphics(&self, is_wanted: impl Fn(&str, &GraphicsCard) -> bool) -> Vec<PathBuf> {
        let found = names(&self.dev.join(DRI)).into_iter().filter(|name| is_wanted(name, &self.graphics_card(name)));
        found.map(|name| Path::new(DRI).join(name)).collect()
    }

    /// What the kernel tells of a node in `/dev/dri`.
    fn graphics_card(&self, name: &str) -> GraphicsCard {
        let device = self.graphics.join(name).join("device");
        let last = |path: PathBuf| path.file_name().map(|name| name.to_string_lossy().to_ascii_lowercase());
        GraphicsCard {
            driver: fs::read_link(device.join("driver")).ok().and_then(last),
            address: fs::canonicalize(device).ok().and_then(last),
        }
    }

    fn nvidia_cards(&self) -> Vec<NvidiaCard> {
        let card = |address: String| {
            let text = fs::read_to_string(self.nvidia.join(&address).join("information")).ok()?;
            let value = |name: &str| {
                let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
                pairs.find(|(found, _)| found.trim() == name).map(|(_, value)| value.trim())
            };
            // Marks stand in it until the driver has looked.
            let uuid = value("GPU UUID").filter(|uuid| uuid.starts_with("GPU-") && !uuid.contains('?'));
            let (number, uuid) = (value("Device Minor")?.parse().ok()?, uuid.map(str::to_owned));
            Some(NvidiaCard { number, address: address.to_ascii_lowercase(), uuid })
        };
        names(&self.nvidia).into_iter().filter_map(card).collect()
    }

    /// The devices of this machine that are allotted, by the resources that stand for them.
    pub(crate) fn allottable(&self) -> DeviceNumbers {
        let offers = TABLE.iter().flat_map(|kind| kind.offers);
        let found = offers.filter_map(|offer| Some((offer.resource.to_owned(), self.numbers(&offer.amount)?)));
        found.filter(|(_, numbers)| !numbers.is_empty()).collect()
    }

    /// The resources that this machine offers for its accelerators, with their amounts.
    pub(crate) fn offered(&self) -> BTreeMap<&'static str, u32> {
        let offers = TABLE.iter().flat_map(|kind| kind.offers);
        offers.map(|offer| (offer.resource, self.amount(&offer.amount))).filter(|(_, amount)| *amount > 0).collect()
    }

    fn amount(&self, amount: &Amount) -> u32 {
        match (amount, self.numbers(amount)) {
            (_, Some(numbers)) => u32::try_from(numbers.len()).unwrap_or(u32::MAX),
            (Amount::Shared(folder, start), _)
                if names(&self.dev.join(folder)).iter().any(|name| name.starts_with(start)) =>
            {
                SHARED_MAX
            }
            _ => 0,
        }
    }

    /// The numbers of the devices that there are; none where they are shared.
    fn numbers(&self, amount: &Amount) -> Option<BTreeSet<u32>> {
        let numbered = |names: Vec<String>, start: &str| {
            names.iter().filter_map(|name| number(name.strip_prefix(start)?)).collect::<BTreeSet<u32>>()
        };
        match amount {
            Amount::Numbered(start) => Some(numbered(names(&self.dev), start)),
            Amount::Rendering { with: Some(entry), .. } if !self.dev.join(entry).exists() => Some(BTreeSet::new()),
            Amount::Rendering { driver, .. } => {
                let mut found = names(&self.dev.join(DRI));
                found.retain(|name| self.graphics_card(name).is_driven_by(&[driver]));
                Some(numbered(found, RENDERING))
            }
            Amount::Shared(..) => None,
        }
    }

    /// Of the devices that there are, those whose nodes are among these of `/dev`.
    pub(crate) fn among(&self, shown: &[&Path]) -> DeviceNumbers {
        let mut found = self.allottable();
        for offer in TABLE.iter().flat_map(|kind| kind.offers) {
            let Some(numbers) = found.get_mut(offer.resource) else { continue };
            numbers.retain(|number| {
                let name = match &offer.amount {
                    Amount::Numbered(start) => format!("{start}{number}"),
                    Amount::Rendering { .. } => format!("{DRI}/{RENDERING}{number}"),
                    Amount::Shared(..) => return false,
                };
                shown.contains(&&*Path::new(DEV).join(name))
            });
        }
        found.retain(|_, numbers| !numbers.is_empty());
        found
    }
}

/// The folder of `/dev` with the nodes of graphics cards.
const DRI: &str = "dri";

/// What a node in `/dev/dri` belongs to.
struct GraphicsCard {
    driver: Option<String>,
    /// As `0000:3b:00.0`.
    address: Option<String>,
}

impl GraphicsCard {
    fn is_driven_by(&self, drivers: &[&str]) -> bool {
        self.driver.as_deref().is_some_and(|driver| drivers.contains(&driver))
    }
}

fn number(text: &str) -> Option<u32> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// Names of a folder's entries; of none where it can't be read.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// What a pod asks for of the devices that are allotted, container by container, in the order in which they start.
pub(crate) fn requests(pod: &Pod) -> Vec<Request> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let allotted: BTreeSet<&str> = TABLE
        .iter()
        .flat_map(|kind| kind.offers)
        .filter(|offer| !matches!(offer.amount, Amount::Shared(..)))
        .map(|offer| offer.resource)
        .collect();
    let request = |container: &Container, role| {
        let mut amounts = amounts(container);
        amounts.retain(|name, _| allotted.contains(name));
        let amounts = amounts.into_iter().map(|(name, amount)| (name.to_owned(), amount)).collect();
        Request { container: container.name.clone(), role, amounts }
    };
    let init = spec.init_containers.iter().flatten();
    let init = init.map(|container| request(container, if is_sidecar(container) { Role::Sidecar } else { Role::Init }));
    let main = spec.containers.iter().map(|container| request(container, Role::Main));
    init.chain(main).filter(|request| !request.amounts.is_empty()).collect()
}

/// The resources of which a container names more than none, in `limits` or `requests`.
fn amounts(container: &Container) -> BTreeMap<&str, u64> {
    let Some(resources) = &container.resources else { return BTreeMap::new() };
    let lists = [&resources.limits, &resources.requests].into_iter().flatten().flatten();
    let mut amounts = BTreeMap::new();
    for (name, amount) in lists {
        let amount = downward_api::parse(amount).and_then(|amount| u64::try_from(amount.value()).ok()).unwrap_or(0);
        if amount > 0 {
            let most = amounts.entry(name.as_str()).or_insert(0);
            *most = amount.max(*most);
        }
    }
    amounts
}

#[cfg(test)]
mod tests;
