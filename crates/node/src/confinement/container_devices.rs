//! The devices of a pod's containers, as their specs have them.
//!
//! Invariant: a container that is not privileged may use the accelerators that are its own or that it shares, the devices that are
//! volumes of its, and no others; where it has a `/dev` of its own it sees no other accelerators. Called when a pod is made, and
//! when an agent takes over a pod of an earlier one.

use k8s_openapi::api::core::v1::{Container, Pod};
use pumice_linux::cgroup::Device;
use pumice_shim::spec::{ContainerSpec, MountSpec, ShimSpec};

use crate::confinement::accelerators::{DeviceFolders, DeviceNode};
use crate::confinement::allotment::PodDevices;

/// What a pod sees of the machine's devices.
pub(crate) struct DeviceView<'a> {
    pub folders: &'a DeviceFolders,
    /// Those that are allotted to it.
    pub own: &'a PodDevices,
    /// Whether its containers have a `/dev` of their own.
    pub namespaces: bool,
    /// Whether it can be kept from other devices.
    pub is_limited: bool,
}

impl DeviceView<'_> {
    /// What the environment of a container says of its accelerators.
    pub(crate) fn environment(&self, container: &Container) -> Vec<(&'static str, String)> {
        let is_privileged = container.security_context.as_ref().and_then(|security| security.privileged) == Some(true);
        self.folders.environment(&self.own.of(&container.name), is_privileged || !self.is_limited)
    }

    /// Gives the containers of a pod their devices.
    pub(crate) fn give(&self, pod: &Pod, init_containers: &mut [ContainerSpec], containers: &mut [ContainerSpec]) {
        let Some(spec) = &pod.spec else { return };
        let given = spec.init_containers.iter().flatten().chain(&spec.containers);
        for (given, spec) in given.zip(init_containers.iter_mut().chain(containers)) {
            let own = self.own.of(&given.name);
            add(self.folders.nodes_of(given, &own), spec, self.namespaces);
            spec.accelerators = Some(own);
        }
    }
}

/// Shows a container its accelerators, and has it use these and the devices among its volumes alone.
fn add(accelerators: Vec<DeviceNode>, spec: &mut ContainerSpec, namespaces: bool) {
    // It sees the host's own devices.
    if spec.privileged {
        return;
    }
    // A node within a volume was not named: it lies there by chance, or by somebody's doing.
    let whole = spec.mounts.iter().filter(|mount| mount.sub_path.is_none()).map(|mount| &mount.source);
    let nodes = whole.chain(accelerators.iter().map(|node| &node.path));
    spec.devices = Some(nodes.filter_map(|path| Device::of_node(path)).collect());
    if namespaces {
        // Read-only, so that the owner and mode of the host's node can't be changed.
        spec.mounts.extend(accelerators.into_iter().map(|node| MountSpec {
            source: node.path,
            sub_path: None,
            target: node.target,
            read_only: true,
        }));
    }
}

/// What a pod has by its spec. One of before devices were allotted has all that its containers see, which is each of a kind: it
/// may use any of it.
pub(crate) fn devices_of(spec: &ShimSpec, folders: &DeviceFolders) -> PodDevices {
    let containers = spec.init_containers.iter().chain(&spec.containers);
    PodDevices::of_containers(containers.map(|container| {
        let shown = || {
            let targets: Vec<_> = container.mounts.iter().map(|mount| &*mount.target).collect();
            folders.among(&targets)
        };
        (container.name.clone(), container.accelerators.clone().unwrap_or_else(shown))
    }))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// What a container may use and what is mounted for it that has a card; it has the host's zero device as a volume, and its
    /// full device as a part of one.
    fn devices_of(has_card: bool, privileged: bool, namespaces: bool) -> (Option<Vec<String>>, Vec<String>) {
        let card = DeviceNode { path: "/dev/null".into(), target: "/dev/nvidia0".into() };
        let volume = |source: &str, sub_path: Option<&str>| MountSpec {
            source: source.into(),
            sub_path: sub_path.map(str::to_owned),
            target: "/volume".into(),
            read_only: false,
        };
        let mounts = vec![volume("/dev/zero", None), volume("/dev", Some("full")), volume("/usr", None)];
        let mut spec = ContainerSpec { mounts, privileged, ..ContainerSpec::default() };
        add(has_card.then_some(card).into_iter().collect(), &mut spec, namespaces);
        let devices = spec.devices.map(|devices| devices.iter().map(Device::to_string).collect());
        let shown = spec.mounts[3..].iter().map(|mount| {
            assert!(mount.read_only && mount.source == Path::new("/dev/null"));
            mount.target.file_name().unwrap().to_string_lossy().into_owned()
        });
        (devices, shown.collect())
    }

    #[test]
    fn a_container_has_the_devices_that_it_names() {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let (zero, both) = (texts(&["c 1:5 rw"]), texts(&["c 1:5 rw", "c 1:3 rw"]));
        assert_eq!(devices_of(true, false, true), (Some(both.clone()), texts(&["nvidia0"])));
        assert_eq!(devices_of(true, false, false), (Some(both), vec![]));
        assert_eq!(devices_of(false, false, true), (Some(zero), vec![]));
        assert_eq!(devices_of(true, true, true), (None, vec![]));
    }
}
