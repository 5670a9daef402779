//! What a platform left on the machine after it was torn down: it should be nothing.

use std::path::Path;

/// Things that still carry the mark of a data directory.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Remains {
    /// Command lines of processes that name the directory or run under it.
    pub processes: Vec<String>,
    /// Mount points under the directory.
    pub mounts: Vec<String>,
    /// Network interfaces of the platform's bridge.
    pub interfaces: Vec<String>,
    /// Control groups of pods.
    pub cgroups: Vec<String>,
}

impl Remains {
    /// Looks for everything that belongs to `data_dir`.
    pub fn of(data_dir: &Path) -> Remains {
        let mark = data_dir.to_string_lossy().into_owned();
        Remains {
            processes: processes(&mark),
            mounts: mounts(&mark),
            interfaces: interfaces(data_dir),
            cgroups: cgroups(data_dir),
        }
    }

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

/// The node keeps the name of its bridge in `node/network.json` while it has one.
fn interfaces(data_dir: &Path) -> Vec<String> {
    let Ok(text) = std::fs::read_to_string(data_dir.join("node/network.json")) else { return Vec::new() };
    let bridge = serde_json::from_str::<serde_json::Value>(&text).unwrap_or_default();
    let Some(bridge) = bridge["bridge"].as_str() else { return Vec::new() };
    let class = Path::new("/sys/class/net");
    std::fs::read_dir(class)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            let master = std::fs::read_link(entry.path().join("master")).unwrap_or_default();
            *name == *bridge || master.file_name().is_some_and(|master| master == bridge)
        })
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// Pods' control groups carry the pod's uid, which is the name of its folder.
fn cgroups(data_dir: &Path) -> Vec<String> {
    let pods: Vec<String> = std::fs::read_dir(data_dir.join("node/pods"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    let mut found = Vec::new();
    for hierarchy in std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
        for ours in std::fs::read_dir(hierarchy.path().join("pumice")).into_iter().flatten().flatten() {
            for pod in std::fs::read_dir(ours.path()).into_iter().flatten().flatten() {
                let uid = pod.file_name().to_string_lossy().into_owned();
                if pods.contains(&uid) {
                    found.push(pod.path().display().to_string());
                }
            }
        }
    }
    found
}
