//! The program in both containers: prints what it finds of itself and around it, a `name=value` a line.
//!
//! Invariant: it is one static file that uses the standard library alone, so that it runs in any root; and it begins where C
//! does, since Rust's own start ignores a signal and handles others. Built by `main.rs`, not by cargo.

#![no_main]

use masked::MASKED;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

mod calls;
mod ends;
#[path = "../masked.rs"]
mod masked;

/// Paths whose mounts are looked at, beside those where nothing is to be seen.
const MOUNTS: [&str; 18] = [
    "/",
    "/dev",
    "/dev/mqueue",
    "/dev/pts",
    "/dev/shm",
    "/dev/termination-log",
    "/etc/hostname",
    "/etc/hosts",
    "/etc/resolv.conf",
    "/probe",
    "/proc",
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
    "/sys",
    "/sys/fs/cgroup",
];
/// Fields of `/proc/self/status`.
const STATUS: [&str; 20] = [
    "CapAmb",
    "CapBnd",
    "CapEff",
    "CapInh",
    "CapPrm",
    "Cpus_allowed_list",
    "Gid",
    "Groups",
    "Mems_allowed_list",
    "NoNewPrivs",
    "Seccomp",
    "Seccomp_filters",
    "SigBlk",
    "SigCgt",
    "SigIgn",
    "SigPnd",
    "THP_enabled",
    "Threads",
    "Uid",
    "Umask",
];
/// Files of `/proc/self` with one value.
const OWN: [&str; 7] = ["gid_map", "loginuid", "oom_score_adj", "sessionid", "setgroups", "timens_offsets", "uid_map"];
/// Parameters of the kernel that a network or a namespace of its own has.
const PARAMETERS: [&str; 6] = [
    "kernel/domainname",
    "kernel/hostname",
    "kernel/shmmax",
    "net/ipv4/ip_unprivileged_port_start",
    "net/ipv4/ping_group_range",
    "user/max_user_namespaces",
];
/// Limits of a control group: the controller and the file.
const LIMITS: [(&str, &str); 9] = [
    ("cpu", "cpu.cfs_period_us"),
    ("cpu", "cpu.cfs_quota_us"),
    ("cpu", "cpu.shares"),
    ("cpuset", "cpuset.cpus"),
    ("devices", "devices.list"),
    ("memory", "memory.limit_in_bytes"),
    ("memory", "memory.memsw.limit_in_bytes"),
    ("memory", "memory.oom_control"),
    ("memory", "memory.swappiness"),
];
/// The host's control groups, for reading.
const GROUPS: &str = "/groups";

fn print(name: impl Display, value: impl Display) {
    println!("{name}={value}");
}

#[unsafe(no_mangle)]
extern "C" fn main() -> i32 {
    let args: Vec<_> = std::env::args().skip(1).collect();
    if let Some(end) = args.first() {
        return ends::end(end);
    }
    status();
    limits();
    numbers();
    files();
    mounts();
    devices();
    groups();
    calls::print_all();
    ends::print_all();
    0
}

fn text(path: impl AsRef<Path>) -> String {
    let found = fs::read_to_string(path);
    found.map_or_else(|error| error.kind().to_string(), |text| text.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn status() {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    for name in STATUS {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        print(format_args!("status.{name}"), value.unwrap_or("none").split_whitespace().collect::<Vec<_>>().join(" "));
    }
}

fn limits() {
    // The name of a limit takes this many columns.
    const NAME: usize = 26;
    let text = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    for line in text.lines().skip(1) {
        let (name, value) = line.split_at(NAME);
        let fields: Vec<_> = value.split_whitespace().take(2).collect();
        print(format_args!("limit.{}", name.trim().replace(' ', "_")), fields.join(" "));
    }
}

/// What the kernel says of this process in numbers.
fn numbers() {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    // Counted from the state, which is the third in the manual.
    let field = |at: usize| *fields.get(at).unwrap_or(&"none");
    let of_stat = [("terminal", 4), ("priority", 15), ("nice", 16), ("real-time_priority", 37), ("policy", 38)];
    for (name, at) in of_stat {
        print(format_args!("process.{name}"), field(at));
    }
    let own = std::process::id().to_string();
    for (name, at) in [("group", 2), ("session", 3)] {
        print(format_args!("process.{name}"), if field(at) == own { "its own" } else { "another's" });
    }
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_number = |name: &str| name.chars().all(|character| character.is_ascii_digit());
    let visible = numbers.filter(|entry| is_number(&entry.file_name().to_string_lossy())).count();
    print("process.numbers", format_args!("{own} of {}, sees {visible}", field(1)));
    print("process.directory", std::env::current_dir().unwrap_or_default().display());
    print("process.name", text("/proc/self/comm"));
    let names: BTreeSet<_> = std::env::vars().map(|(name, _)| name).collect();
    print("process.environment", Vec::from_iter(names).join(" "));
    print("process.path", std::env::var("PATH").unwrap_or_default());
    for name in OWN {
        print(format_args!("process.{name}"), text(Path::new("/proc/self").join(name)));
    }
    for name in ["cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"] {
        let link = fs::read_link(Path::new("/proc/self/ns").join(name)).unwrap_or_default();
        print(format_args!("namespace.{name}"), link.display());
    }
    for name in PARAMETERS {
        print(format_args!("parameter.{}", name.replace('/', ".")), text(Path::new("/proc/sys").join(name)));
    }
}

fn kind(found: &fs::Metadata) -> &'static str {
    let kind = found.file_type();
    match () {
        () if kind.is_dir() => "folder",
        () if kind.is_symlink() => "link",
        () if kind.is_char_device() => "device",
        () if kind.is_fifo() => "pipe",
        () if kind.is_socket() => "socket",
        () => "file",
    }
}

/// Open descriptors, and what of files a program finds that is not a matter of mounts.
fn files() {
    let listed = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let mut open: Vec<u32> = listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    open.sort_unstable();
    // The last is of this list itself.
    open.pop();
    print("descriptors", format_args!("{open:?}"));
    for number in 0..3 {
        let path = format!("/proc/self/fd/{number}");
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap_or_default();
        let Ok(found) = fs::metadata(&path) else { continue };
        let again = OpenOptions::new().write(number > 0).read(number == 0).open(&path).is_ok();
        let device = if found.rdev() == 0 { String::new() } else { format!(" {:x}", found.rdev()) };
        print(
            format_args!("descriptor.{number}"),
            format_args!(
                "{}{device} of {} flags {} can be opened again {again}",
                kind(&found),
                found.uid(),
                flags.trim()
            ),
        );
    }
    let mut first = [0];
    print(
        "descriptor.0.read",
        format_args!("{:?}", File::open("/dev/stdin").and_then(|mut input| input.read(&mut first)).ok()),
    );
    for path in ["/", "/dev", "/dev/shm", "/etc/hostname", "/etc/hosts", "/etc/resolv.conf", "/tmp", "/proc/self"] {
        let owner = fs::metadata(path)
            .map(|found| format!("{} {:o} {} {}", kind(&found), found.mode() & 0o7777, found.uid(), found.gid()));
        print(format_args!("owner.{path}"), owner.unwrap_or_else(|error| error.kind().to_string()));
    }
    for path in ["/written", "/tmp/written", "/dev/written", "/dev/shm/written", "/proc/sys/vm/written", "/sys/written"]
    {
        let made = fs::write(path, "");
        print(format_args!("write.{path}"), made.map_or_else(|error| error.to_string(), |()| "written".to_owned()));
        let _ = fs::remove_file(path);
    }
    for path in ["/proc/sys/kernel/hostname", "/proc/sysrq-trigger", "/proc/self/oom_score_adj"] {
        let opened = OpenOptions::new().write(true).open(path);
        print(format_args!("open.{path}"), opened.map_or_else(|error| error.to_string(), |_| "opened".to_owned()));
    }
}

fn mounts() {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    for path in MOUNTS {
        // What was mounted last is what is seen.
        let found = table.lines().filter_map(|line| mount_at(line, path)).last();
        print(format_args!("mount.{path}"), found.unwrap_or_else(|| "none".to_owned()));
    }
    for path in MASKED {
        print(format_args!("masked.{path}"), state_of(path));
    }
}

/// What is at `path`, how much of it, and whether something can be made there.
fn state_of(path: &str) -> String {
    let Ok(found) = fs::metadata(path) else { return "nothing".to_owned() };
    if found.is_dir() {
        let made = fs::create_dir(Path::new(path).join("made"));
        return format!(
            "folder of {:?}, {:?}",
            fs::read_dir(path).map(Iterator::count).ok(),
            made.map_err(|error| error.kind())
        );
    }
    let mut first = [0; 16];
    let read = File::open(path).and_then(|mut file| file.read(&mut first));
    format!("{} {:x} of {:?}", kind(&found), found.rdev(), read.ok())
}

/// The type and the options of the mount that a line of `mountinfo` is about, if it is at `path`.
fn mount_at(line: &str, path: &str) -> Option<String> {
    let (own, file_system) = line.split_once(" - ")?;
    let own: Vec<_> = own.split(' ').collect();
    let fields: Vec<_> = file_system.split(' ').collect();
    if own.get(4) != Some(&path) {
        return None;
    }
    let kind = *fields.first()?;
    let propagation = if own.len() > 6 { own[6].split(':').next()? } else { "private" };
    // Folders of an overlay and sizes of the host's own file systems are the machine's.
    let is_known =
        |option: &&str| ["size=", "mode=", "gid=", "ptmxmode="].iter().any(|known| option.starts_with(known));
    let hosts = matches!(kind, "overlay" | "ext4" | "xfs" | "btrfs");
    let of_kind = fields.get(2).copied().unwrap_or_default().split(',').filter(|option| !hosts && is_known(option));
    let kind = if hosts && path != "/" { "file system" } else { kind };
    let mut options: BTreeSet<_> = own.get(5)?.split(',').collect();
    if fields.get(2)?.split(',').any(|option| option == "ro") {
        options.remove("rw");
        options.insert("ro");
    }
    let of_kind: BTreeSet<_> = of_kind.collect();
    let joined = |options: BTreeSet<&str>| Vec::from_iter(options).join(",");
    Some(format!("{kind} {} {} {propagation}", joined(options), joined(of_kind)))
}

fn devices() {
    // Folders are for mounts, which are looked at by themselves.
    let entries = fs::read_dir("/dev").into_iter().flatten().flatten();
    let entries = entries.filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_dir()));
    let names: BTreeSet<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    print("devices", Vec::from_iter(names).join(" "));
    for name in ["full", "null", "ptmx", "random", "tty", "urandom", "zero"] {
        let path = Path::new("/dev").join(name);
        let Ok(found) = fs::symlink_metadata(&path) else { continue };
        let link = fs::read_link(&path).unwrap_or_default();
        let opened = File::open(&path).map_or_else(|error| error.to_string(), |_| "opens".to_owned());
        let (mode, uid, gid) = (found.mode() & 0o7777, found.uid(), found.gid());
        print(
            format_args!("device.{name}"),
            format_args!("{} {:x} {mode:o} {uid} {gid} {} {opened}", kind(&found), found.rdev(), link.display()),
        );
    }
}

fn groups() {
    let table = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    print("groups", table.trim().replace('\n', " "));
    let path_of = |wanted: &str| {
        table.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            fields
                .next()?
                .split(',')
                .any(|controller| controller == wanted)
                .then(|| fields.next().unwrap_or_default().to_owned())
        })
    };
    for (controller, file) in LIMITS {
        let path = path_of(controller).unwrap_or_default();
        print(
            format_args!("group.{file}"),
            text(Path::new(GROUPS).join(controller).join(path.trim_start_matches('/')).join(file)),
        );
    }
    // What counts is the least of all groups above.
    let path = path_of("pids").unwrap_or_default();
    let groups = Path::new(path.trim_start_matches('/')).ancestors();
    let limits = groups
        .filter_map(|group| text(Path::new(GROUPS).join("pids").join(group).join("pids.max")).parse::<u64>().ok());
    print("group.pids.max", limits.min().unwrap_or(u64::MAX));
}

/// A path for the kernel.
fn c_string(path: &str) -> CString {
    CString::new(path).unwrap_or_default()
}
