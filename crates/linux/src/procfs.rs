//! What `/proc` says about processes.
//!
//! A pid alone names nothing for long; a pid with its start time does. Called by the shim (resident
//! set watch, killing without a pid namespace) and by the agent (is this shim still the same one?).

use std::fs;

/// Deepest process tree walked and most processes counted, against a fork bomb.
const PROCESSES_MAX: usize = 65_536;

/// The start time of a process in clock ticks since boot: field 22 of its `stat`.
pub fn start_ticks(pid: i32) -> Option<u64> {
    parse_start_ticks(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The parent of a process: field 4 of its `stat`.
pub fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The name of a process's command and the letter of its state: fields 2 and 3 of its `stat`.
pub fn name_and_state(pid: i32) -> Option<(String, char)> {
    parse_name_and_state(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_name_and_state(stat: &str) -> Option<(String, char)> {
    let (start, rest) = stat.rsplit_once(')')?;
    let name = start.split_once('(')?.1.to_owned();
    Some((name, rest.trim_start().chars().next()?))
}

/// The command's name may hold spaces and brackets, so fields are counted from its last bracket.
fn parse_start_ticks(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// All processes below `pid`, parents before children.
pub fn descendants(pid: i32) -> Vec<i32> {
    let mut found = children(pid);
    let mut next = 0;
    while next < found.len() && found.len() < PROCESSES_MAX {
        found.extend(children(found[next]));
        next += 1;
    }
    found
}

/// The processes whose parent is `pid`.
pub fn children(pid: i32) -> Vec<i32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|text| text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// Resident bytes of one process.
pub fn resident_bytes(pid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages: u64 = text.split_ascii_whitespace().nth(1).and_then(|field| field.parse().ok()).unwrap_or(0);
    pages.saturating_mul(page_bytes())
}

/// Time that a process and those of its children whose end it has taken have computed, in nanoseconds: fields 14 to 17 of
/// its `stat`.
pub fn cpu_ns(pid: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    parse_cpu_ticks(&stat).unwrap_or(0).saturating_mul(1_000_000_000 / ticks_per_second())
}

fn parse_cpu_ticks(stat: &str) -> Option<u64> {
    let fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11).take(4);
    fields.map(|field| field.parse::<u64>().ok()).sum()
}

/// What `/proc/PID/net/dev` says of a network's links but its loopback: bytes received and sent.
pub fn network_bytes(pid: i32) -> (u64, u64) {
    parse_network(&fs::read_to_string(format!("/proc/{pid}/net/dev")).unwrap_or_default())
}

fn parse_network(text: &str) -> (u64, u64) {
    let links = text.lines().filter_map(|line| line.split_once(':')).filter(|(name, _)| name.trim() != "lo");
    links.fold((0, 0), |(received, sent), (_, numbers)| {
        let number = |at: usize| numbers.split_ascii_whitespace().nth(at).and_then(|text| text.parse::<u64>().ok());
        (received + number(0).unwrap_or(0), sent + number(8).unwrap_or(0))
    })
}

/// Time that the machine's processors have computed since it started, in nanoseconds.
pub fn machine_cpu_ns() -> Option<u64> {
    let ticks = parse_machine_ticks(&fs::read_to_string("/proc/stat").ok()?)?;
    Some(ticks.saturating_mul(1_000_000_000 / ticks_per_second()))
}

/// User, nice, system, then without idle and waiting: interrupts, soft interrupts, stolen.
fn parse_machine_ticks(stat: &str) -> Option<u64> {
    let numbers = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let numbers: Vec<u64> = numbers.split_ascii_whitespace().map_while(|number| number.parse().ok()).collect();
    let busy = numbers.iter().take(3).chain(numbers.iter().skip(5).take(3));
    (numbers.len() > 3).then(|| busy.sum())
}

/// Bytes of memory that the machine could not give to somebody else now.
pub fn machine_memory_bytes() -> Option<u64> {
    parse_memory_in_use(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn parse_memory_in_use(text: &str) -> Option<u64> {
    Some(memory_field(text, "MemTotal")?.saturating_sub(memory_field(text, "MemAvailable")?))
}

/// All memory of this machine in bytes.
pub fn machine_memory_total_bytes() -> Option<u64> {
    memory_field(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal")
}

/// A field of `/proc/meminfo` in bytes.
fn memory_field(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(field, _)| *field == name)?;
    let kibibytes: u64 = value.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kibibytes.saturating_mul(1024))
}

fn ticks_per_second() -> u64 {
    let found = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten();
    found.and_then(|ticks| u64::try_from(ticks).ok()).filter(|ticks| *ticks > 0).unwrap_or(100)
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
        assert_eq!(parse_name_and_state("42 (x) y) D 1"), Some(("x) y".to_owned(), 'D')));
        assert_eq!(parse_name_and_state("42 (x)"), None);
    }

    #[test]
    fn time_and_traffic_are_read() {
        let stat = "42 (a b) S 1 2 3 4 5 6 7 8 9 10 100 20 3 4 15";
        assert_eq!(parse_cpu_ticks(stat), Some(127));
        assert_eq!(parse_cpu_ticks("42 (sh) S"), Some(0));
        assert_eq!(parse_cpu_ticks("nothing"), None);
        let dev = "Inter-|   Receive  |  Transmit\n face |bytes packets\n    lo: 9 9 0 0 0 0 0 0 9 9 0 0 0 0 0 0\n  eth0: 120 3 0 0 0 0 0 0 70 2 0\n eth1:5 1 0 0 0 0 0 0 1 1\n";
        assert_eq!(parse_network(dev), (125, 71));
        assert_eq!(parse_network(""), (0, 0));
        assert_eq!(parse_machine_ticks("cpu  10 1 5 900 70 2 3 4 9 9\ncpu0 1 1 1 1\n"), Some(25));
        assert_eq!(parse_machine_ticks("cpu 1 2\n"), None);
        assert_eq!(parse_memory_in_use("MemTotal:  10 kB\nMemFree: 1 kB\nMemAvailable: 4 kB\n"), Some(6144));
        assert_eq!(parse_memory_in_use("MemTotal:  10 kB\n"), None);
        assert_eq!(memory_field("MemTotal:       2048 kB\nMemFree: 1 kB\n", "MemTotal"), Some(2 << 20));
    }

    #[test]
    fn this_process_has_a_start_time_and_a_resident_set() {
        let pid = std::process::id() as i32;
        assert!(start_ticks(pid).is_some());
        assert_eq!(parent(pid), Some(nix::unistd::getppid().as_raw()));
        assert!(resident_bytes(pid) > 0);
    }
}
