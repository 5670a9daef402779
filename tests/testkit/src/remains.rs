//! What a platform left on the machine after it was torn down: it should be nothing.

use std::path::Path;

/// Things that still carry the mark of a data directory.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Remains {
    /// Command lines of processes that name the directory or run under it.
    pub processes: Vec<String>,
    /// Mount points under the directory.
    pub mounts: Vec<String>,
    /// Network interfaces: the platform's bridge, and its pods' links.
    pub interfaces: Vec<String>,
    /// Control groups of pods.
    pub cgroups: Vec<String>,
}

/// What the things of one platform are marked with on the machine.
#[derive(Debug, Clone)]
pub struct Marks {
    data_dir: String,
    /// `pm` and the start of the name of its control groups.
    bridge: String,
}

impl Marks {
    /// Of the platform of `data_dir`, which has to have come up before.
    ///
    /// # Panics
    /// When its node has not written down its network.
    pub fn of(data_dir: &Path) -> Marks {
        let record = std::fs::read_to_string(data_dir.join("node/network.json")).expect("the node's network");
        let record: serde_json::Value = serde_json::from_str(&record).expect("JSON");
        let bridge = record["bridge"].as_str().expect("its bridge").to_owned();
        Marks { data_dir: data_dir.to_string_lossy().into_owned(), bridge }
    }

    /// All that carries these marks now.
    pub fn look(&self) -> Remains {
        Remains {
            processes: processes(&self.data_dir),
            mounts: mounts(&self.data_dir),
            interfaces: interfaces(&self.bridge),
            cgroups: cgroups(self.bridge.trim_start_matches("pm")),
        }
    }
}

impl Remains {
    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        *self == Remains::default()
    }
}

fn processes(mark: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let me = std::process::id().to_string();
    entries
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.bytes().all(|b| b.is_ascii_digit()) && name != me
        })
        .filter_map(|entry| {
            let command = std::fs::read(entry.path().join("cmdline")).ok()?;
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            command.contains(mark).then_some(command)
        })
        .collect()
}

fn mounts(mark: &str) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .filter(|point| point.starts_with(mark))
        .map(str::to_owned)
        .collect()
}

/// The bridge, and this machine's ends of pods' links, whose group the bridge's name says.
fn interfaces(bridge: &str) -> Vec<String> {
    let hash = bridge.trim_start_matches("pm");
    let group = u32::from_str_radix(hash, 16).expect("a bridge is called by a number");
    let entries = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    entries
        .filter(|entry| {
            let found = std::fs::read_to_string(entry.path().join("netdev_group")).unwrap_or_default();
            // The kernel shows it as a signed number.
            let found = found.trim().parse::<i64>().map(|found| found as u32);
            *entry.file_name() == *bridge || found == Ok(group)
        })
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// Control groups of the node whose names start with `mark`, in every hierarchy.
fn cgroups(mark: &str) -> Vec<String> {
    let root = Path::new("/sys/fs/cgroup");
    let hierarchies = std::fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
    hierarchies
        .chain([root.to_owned()])
        .flat_map(|hierarchy| std::fs::read_dir(hierarchy.join("pumice")).into_iter().flatten().flatten())
        .filter(|group| group.file_name().to_string_lossy().starts_with(mark))
        .map(|group| group.path().display().to_string())
        .collect()
}
