//! What `/proc` says about processes.
//!
//! A pid alone names nothing for long; a pid with its start time does. Called by the shim (resident
//! set watch, killing without a pid namespace) and by the agent (is this shim still the same one?).

use std::fs;

/// Deepest process tree walked and most processes counted, against a fork bomb.
const PROCESSES_MAX: usize = 65_536;

/// The start time of a process in clock ticks since boot: field 22 of its `stat`.
pub(crate) fn start_ticks(pid: i32) -> Option<u64> {
    parse_start_ticks(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The parent of a process: field 4 of its `stat`.
pub(crate) fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The command's name may hold spaces and brackets, so fields are counted from its last bracket.
fn parse_start_ticks(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// All processes below `pid`, parents before children.
pub(crate) fn descendants(pid: i32) -> Vec<i32> {
    let mut found = children(pid);
    let mut next = 0;
    while next < found.len() && found.len() < PROCESSES_MAX {
        found.extend(children(found[next]));
        next += 1;
    }
    found
}

fn children(pid: i32) -> Vec<i32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|text| text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// Resident bytes of one process.
pub(crate) fn resident_bytes(pid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages: u64 = text.split_ascii_whitespace().nth(1).and_then(|field| field.parse().ok()).unwrap_or(0);
    pages.saturating_mul(page_bytes())
}

fn page_bytes() -> u64 {
    nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)
        .ok()
        .flatten()
        .and_then(|n| u64::try_from(n).ok())
        .unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_time_is_found_behind_any_command_name() {
        let tail = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 987654 20 21";
        for name in ["sh", "a b", "x) y", "((("] {
            assert_eq!(parse_start_ticks(&format!("42 ({name}) {tail}")), Some(987_654), "{name}");
        }
        assert_eq!(parse_start_ticks("42 (sh) S 1"), None);
    }

    #[test]
    fn this_process_has_a_start_time_and_a_resident_set() {
        let pid = std::process::id() as i32;
        assert!(start_ticks(pid).is_some());
        assert_eq!(parent(pid), Some(nix::unistd::getppid().as_raw()));
        assert!(resident_bytes(pid) > 0);
    }
}
