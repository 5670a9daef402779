//! Calls that are about the whole machine.
//!
//! None of them does anything: the arguments are refused after the check of rights, or say what is so already.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};

use nix::errno::Errno;

use super::syscall::{call, open};
use super::{but_for, calls, done};
use crate::facts::Facts;
use crate::table::{Control, PodKind, Row};

const fn row(name: &'static str, right: &'static str, attempt: fn(&Facts) -> io::Result<()>) -> Row {
    Row { name, attempt, pod: PodKind::Usual, control: Control::Capability(right) }
}

const fn privileged(name: &'static str, attempt: fn(&Facts) -> io::Result<()>) -> Row {
    Row { name, attempt, pod: PodKind::Usual, control: Control::Unprivileged }
}

pub const ROWS: &[Row] = &[
    row("reboot", "SYS_BOOT", |_| {
        // Without its magic numbers it is refused.
        but_for(Errno::EINVAL, call!(SYS_reboot, 0, 0, 0, 0))
    }),
    row("init_module", "SYS_MODULE", |_| {
        let mut nothing = [0; 8];
        but_for(Errno::ENOEXEC, call!(SYS_init_module, nothing.as_mut_slice(), 8, c""))
    }),
    row("delete_module", "SYS_MODULE", |_| {
        but_for(Errno::ENOENT, call!(SYS_delete_module, c"pumice_no_such_module", libc::O_NONBLOCK))
    }),
    row("settimeofday", "SYS_TIME", |_| done(call!(SYS_settimeofday, 0, 0))),
    row("change how fast the clock goes", "SYS_TIME", |_| set_same_tick()),
    row("read the kernel's log", "SYSLOG", |_| {
        const READ_ALL: u32 = 3;
        let mut text = [0; 128];
        done(call!(SYS_syslog, READ_ALL, text.as_mut_slice(), 128))
    }),
    row("read where the kernel is in memory", "SYSLOG", |_| {
        let symbols = BufReader::new(File::open("/proc/kallsyms")?).lines().next().transpose()?.unwrap_or_default();
        super::is_so(symbols.bytes().take_while(u8::is_ascii_hexdigit).any(|digit| digit != b'0'))
    }),
    row("make a map of BPF", "BPF", |_| {
        const MAP_CREATE: u32 = 0;
        // Kind (an array) and bytes of a key, bytes of a value and number of entries, two in each word.
        let mut attributes = [2 | 4 << 32, 8 | 1 << 32, 0, 0, 0, 0];
        done(open!(SYS_bpf, MAP_CREATE, &mut attributes, size_of::<[u64; 6]>()))
    }),
    row("count events of the kernel", "PERFMON", |_| calls::open_counter(0)),
    row("acct", "SYS_PACCT", |_| but_for(Errno::ENOENT, call!(SYS_acct, c"/no such folder/file"))),
    row("iopl", "SYS_RAWIO", |_| done(call!(SYS_iopl, 3))),
    row("ioperm", "SYS_RAWIO", |_| done(call!(SYS_ioperm, 0x80, 1, 1))),
    row("watch all accesses by fanotify", "SYS_ADMIN", |_| {
        const FAN_CLASS_CONTENT: u32 = 4;
        done(open!(SYS_fanotify_init, FAN_CLASS_CONTENT, 0))
    }),
    row("setdomainname", "SYS_ADMIN", |_| {
        let name = fs::read_to_string("/proc/sys/kernel/domainname")?;
        let mut name = name.trim_end().as_bytes().to_vec();
        let length = name.len();
        done(call!(SYS_setdomainname, name.as_mut_slice(), length))
    }),
    privileged("swapon", |_| but_for(Errno::ENOENT, call!(SYS_swapon, c"/no such folder/file", 0))),
    privileged("kexec_load", |_| {
        // More segments than there may be, and no such flags: nothing is loaded or unloaded.
        but_for(Errno::EINVAL, call!(SYS_kexec_load, 0, 1 << 20, 0, 0x7fff))
    }),
    privileged("vhangup", |_| {
        // The terminal of a new session, which is none.
        nix::unistd::setsid()
            .or_else(|errno| if errno == Errno::EPERM { Ok(nix::unistd::getpid()) } else { Err(errno) })?;
        done(call!(SYS_vhangup))
    }),
];

fn set_same_tick() -> io::Result<()> {
    const ADJ_TICK: u32 = 0x4000;
    // `struct timex`, whose first word is what to set.
    let mut clock = [0_u64; size_of::<libc::timex>() / 8];
    call!(SYS_adjtimex, &mut clock)?;
    clock[0] = u64::from(ADJ_TICK);
    done(call!(SYS_adjtimex, &mut clock))
}
