//! Which devices the programs of a container may open: by the controller of devices in version 1, by a program that the kernel
//! asks in version 2.
//!
//! Invariant: what is not allowed can't be opened wherever its node lies, in `/dev` or in a volume, and no node of any device
//! can be made. A rule is about the device's numbers: the rights of the node's file hold as well. Called when the group of a
//! container is made.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Hierarchy, device_program};

/// The devices in each container's own `/dev`: name, major and minor number.
pub const OWN: [(&str, u32, u32); 6] =
    [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];
/// Terminals: what makes them, and all that are made.
const TERMINALS: [Device; 2] = [
    Device { kind: DeviceKind::Character, major: 5, minor: Some(2) },
    Device { kind: DeviceKind::Character, major: 136, minor: None },
];

/// A device of the machine, by its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Device {
    pub kind: DeviceKind,
    pub major: u32,
    /// None stands for all that have the major number.
    pub minor: Option<u32>,
}

/// Numbers of character and of block devices are apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum DeviceKind {
    Character,
    Block,
}

impl Device {
    /// The device whose node a path leads to; none where it leads to something else, or nowhere.
    pub fn of_node(path: &Path) -> Option<Device> {
        let found = fs::metadata(path).ok()?;
        let kind = match found.file_type() {
            kind if kind.is_char_device() => DeviceKind::Character,
            kind if kind.is_block_device() => DeviceKind::Block,
            _ => return None,
        };
        let (major, minor) = (libc::major(found.rdev()), libc::minor(found.rdev()));
        Some(Device { kind, major, minor: Some(minor) })
    }

    /// Those that every container may use.
    pub(super) fn of_every_container() -> impl Iterator<Item = Device> {
        let own = OWN.map(|(_, major, minor)| Device { kind: DeviceKind::Character, major, minor: Some(minor) });
        own.into_iter().chain(TERMINALS)
    }
}

/// A rule of version 1: reading and writing.
impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            DeviceKind::Character => 'c',
            DeviceKind::Block => 'b',
        };
        match self.minor {
            Some(minor) => write!(f, "{kind} {}:{minor} rw", self.major),
            None => write!(f, "{kind} {}:* rw", self.major),
        }
    }
}

impl Hierarchy {
    /// Whether the devices of containers can be limited.
    pub fn limits_devices(&self) -> bool {
        match self {
            Hierarchy::V1 { devices, .. } => devices.is_some(),
            Hierarchy::V2 { devices, .. } => *devices,
        }
    }

    /// The same where devices can't be limited.
    pub fn without_devices(self) -> Hierarchy {
        match self {
            Hierarchy::V1 { memory, cpu, pids, disk, .. } => Hierarchy::V1 { memory, cpu, pids, devices: None, disk },
            Hierarchy::V2 { root, pids, disk, .. } => Hierarchy::V2 { root, pids, devices: false, disk },
        }
    }

    /// Where the devices of containers are limited, in version 1.
    pub(super) fn devices_root(&self) -> Option<&Path> {
        match self {
            Hierarchy::V1 { devices, .. } => devices.as_deref(),
            Hierarchy::V2 { .. } => None,
        }
    }

    /// Has the processes of a container's group use these devices, and those of every container, and no others.
    pub(super) fn limit_devices(&self, group: &Path, allowed: &[Device]) -> io::Result<()> {
        let allowed: Vec<Device> = Device::of_every_container().chain(allowed.iter().copied()).collect();
        match self {
            Hierarchy::V1 { devices: Some(root), .. } => write_rules(&root.join(group), &allowed),
            Hierarchy::V2 { root, devices: true, .. } => device_program::attach(&root.join(group), &allowed),
            Hierarchy::V1 { devices: None, .. } | Hierarchy::V2 { devices: false, .. } => Ok(()),
        }
    }
}

fn write_rules(group: &Path, allowed: &[Device]) -> io::Result<()> {
    fs::write(group.join("devices.deny"), "a")?;
    // The kernel takes one rule a write.
    let mut file = File::create(group.join("devices.allow"))?;
    for device in allowed {
        file.write_all(format!("{device}\n").as_bytes()).map_err(|error| {
            let rule = format!("can't allow device \"{device}\" in {}: {error}", group.display());
            io::Error::new(error.kind(), rule)
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_known_by_its_node() {
        let device = |kind, major, minor| Some(Device { kind, major, minor: Some(minor) });
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/dev/zero", dir.path().join("link")).unwrap();
        let cases = [
            (Path::new("/dev/null"), device(DeviceKind::Character, 1, 3)),
            (&dir.path().join("link"), device(DeviceKind::Character, 1, 5)),
            (dir.path(), None),
            (Path::new("/dev/none-such"), None),
        ];
        for (path, expected) in cases {
            assert_eq!(Device::of_node(path), expected, "{}", path.display());
        }
    }

    #[test]
    fn a_pod_of_the_version_before_goes_on_without() {
        for text in
            [r#"{"V1": {"memory": "/m", "cpu": null, "pids": "/p"}}"#, r#"{"V2": {"root": "/r", "pids": true}}"#]
        {
            let hierarchy: Hierarchy = serde_json::from_str(text).unwrap();
            assert!(!hierarchy.limits_devices() && hierarchy.counts_processes(), "{text}");
        }
    }

    #[test]
    fn everything_is_denied_before_rules_allow_some() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("p/u/c")).unwrap();
        let devices = Some(root.path().to_owned());
        let hierarchy = Hierarchy::V1 { memory: root.path().into(), cpu: None, pids: None, devices, disk: None };
        let extra = [
            Device { kind: DeviceKind::Block, major: 8, minor: Some(16) },
            Device { kind: DeviceKind::Character, major: 195, minor: None },
        ];
        hierarchy.limit_devices(Path::new("p/u/c"), &extra).unwrap();
        let read = |name: &str| fs::read_to_string(root.path().join("p/u/c").join(name)).unwrap();
        assert_eq!(read("devices.deny"), "a");
        let expected =
            "c 1:3 rw\nc 1:5 rw\nc 1:7 rw\nc 1:8 rw\nc 1:9 rw\nc 5:0 rw\nc 5:2 rw\nc 136:* rw\nb 8:16 rw\nc 195:* rw\n";
        assert_eq!(read("devices.allow"), expected);
        hierarchy.without_devices().limit_devices(Path::new("none"), &extra).unwrap();
    }
}
