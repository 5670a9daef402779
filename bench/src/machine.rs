//! What a figure was measured on, and what a process has used, from `/proc`.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// Ticks of a second in `/proc/PID/stat`; the same on every Linux.
const TICKS: u64 = 100;

/// One line about this machine and this build.
pub fn description() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default().to_owned();
    format!("{cores} cores, linux {}, {profile}, load before {load}", kernel.trim())
}

/// CPU time, user and system, of all threads of a process so far. To 10 ms.
pub fn cpu_time(pid: u32) -> Duration {
    let ticks: u64 = stat(pid).iter().skip(11).take(2).sum();
    Duration::from_millis(ticks.saturating_mul(1000 / TICKS))
}

/// The fields of `/proc/PID/stat` behind the program's name, which may hold anything. One that is no number is 0.
fn stat(pid: u32) -> Vec<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace();
    fields.map(|field| field.parse().unwrap_or_default()).collect()
}

/// CPU time that all processes of this machine have used so far, and the kernel for them. To 10 ms.
pub fn busy() -> Duration {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = stat.lines().next().unwrap_or_default();
    // cpu user nice system idle iowait irq softirq
    let of = |field: usize| {
        line.split_ascii_whitespace().nth(field).and_then(|ticks| ticks.parse::<u64>().ok()).unwrap_or(0)
    };
    let ticks: u64 = [1, 2, 3, 6, 7].map(of).iter().sum();
    Duration::from_millis(ticks.saturating_mul(1000 / TICKS))
}

/// CPU time that the kernel's own threads have used so far. To 10 ms for each.
pub fn kernel_threads() -> Duration {
    const OF_THE_KERNEL: u64 = 0x0020_0000; // `PF_KTHREAD` of the kernel's `linux/sched.h`
    let names = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name());
    let pids = names.filter_map(|name| name.to_str()?.parse::<u32>().ok());
    let is_kernels = |pid: &u32| stat(*pid).get(6).is_some_and(|flags| flags & OF_THE_KERNEL != 0);
    pids.filter(is_kernels).map(cpu_time).sum()
}

/// The most memory that a process has held, in MiB.
pub fn peak_mib(pid: u32) -> f64 {
    memory_mib(pid, "VmHWM:")
}

/// The memory that a process holds now, in MiB.
pub fn resident_mib(pid: u32) -> f64 {
    memory_mib(pid, "VmRSS:")
}

fn memory_mib(pid: u32, entry: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(entry)).unwrap_or_default();
    line.split_ascii_whitespace().next().and_then(|kib| kib.parse::<f64>().ok()).unwrap_or_default() / 1024.0
}

/// How long the disk under `directory` takes to make 4 KiB durable, `runs` times.
///
/// # Panics
/// When the directory can't be written.
#[allow(clippy::disallowed_methods)] // a benchmark's own clock
pub fn sync_times(directory: &Path, runs: usize) -> Vec<Duration> {
    let path = directory.join("sync");
    let mut file = std::fs::File::options().create(true).append(true).open(path).expect("create a file");
    let sync = |_| {
        let begin = Instant::now();
        file.write_all(&[0u8; 4096]).expect("write");
        file.sync_data().expect("sync");
        begin.elapsed()
    };
    (0..runs).map(sync).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_used_something() {
        let mut sum = 0_u64;
        while cpu_time(std::process::id()) < Duration::from_millis(20) {
            sum = sum.wrapping_add(std::hint::black_box(1));
        }
        assert!(sum > 0 && peak_mib(std::process::id()) > 0.5);
    }
}
