//! What the kernel tells of a process.

/// A figure of a process's memory in KiB, such as `VmRSS`, what is resident, or `VmHWM`, the most that ever was.
///
/// # Panics
/// If there is no such process or figure.
pub(crate) fn memory_kib(pid: i32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let figure = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).expect("its memory");
    figure.trim().trim_end_matches(" kB").parse().expect("a number")
}
