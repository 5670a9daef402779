//! What becomes of system calls: each is made by a process of its own, which it may change.

use super::{c_string, print};

unsafe extern "C" {
    fn syscall(number: i64, ...) -> i64;
    fn fork() -> i32;
    fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
    fn _exit(code: i32) -> !;
    fn __errno_location() -> *mut i32;
}

/// A call by its name and number, and arguments that an allowed one refuses after the check of rights, or that do no harm.
type Call = (&'static str, i64, [i64; 6]);

const NONE: i64 = -1;
const NEW_USER_NAMESPACE: i64 = 0x1000_0000;
const NEW_NETWORK: i64 = 0x4000_0000;
const FIXED_ADDRESSES: i64 = 0x0004_0000;

const CALLS: [Call; 67] = [
    ("acct", 163, [0; 6]),
    ("add_key", 248, [0; 6]),
    ("adjtimex", 159, [0; 6]),
    ("bpf", 321, [NONE; 6]),
    ("clock_settime", 227, [0; 6]),
    ("clone of a user namespace", 56, [NEW_USER_NAMESPACE | 17, 0, 0, 0, 0, 0]),
    ("clone3", 435, [0; 6]),
    ("delete_module", 176, [0; 6]),
    ("fanotify_init", 300, [0; 6]),
    ("finit_module", 313, [NONE, 0, 0, 0, 0, 0]),
    ("fsopen", 430, [0; 6]),
    ("init_module", 175, [0; 6]),
    ("io_uring_setup", 425, [0; 6]),
    ("ioperm", 173, [0, 1, 1, 0, 0, 0]),
    ("iopl", 172, [3, 0, 0, 0, 0, 0]),
    ("kcmp", 312, [1, 1, 0, 0, 0, 0]),
    ("kexec_load", 246, [0, 17, 0, 0, 0, 0]),
    ("keyctl", 250, [0, -3, 0, 0, 0, 0]),
    ("landlock_create_ruleset", 444, [0, 0, 1, 0, 0, 0]),
    ("membarrier", 324, [0; 6]),
    ("memfd_secret", 447, [NONE; 6]),
    ("migrate_pages", 256, [0; 6]),
    ("modify_ldt", 154, [0, 0, 0, 0, 0, 0]),
    ("mount", 165, [0; 6]),
    ("mount_setattr", 442, [0; 6]),
    ("move_pages", 279, [0; 6]),
    ("open_by_handle_at", 304, [NONE, 0, 0, 0, 0, 0]),
    ("open_tree", 428, [NONE, 0, 0, 0, 0, 0]),
    ("perf_event_open", 298, [0; 6]),
    ("personality of 32 bits", 135, [8, 0, 0, 0, 0, 0]),
    ("personality without random addresses", 135, [FIXED_ADDRESSES, 0, 0, 0, 0, 0]),
    ("pidfd_getfd", 438, [NONE; 6]),
    ("pivot_root", 155, [0; 6]),
    ("prctl of all memory at once", 157, [41, 0, 0, 0, 0, 0]),
    ("prctl of what a parent's end does", 157, [2, 0, 0, 0, 0, 0]),
    ("prctl of who may read its memory", 157, [3, 0, 0, 0, 0, 0]),
    ("prctl of rights on a change of user", 157, [7, 0, 0, 0, 0, 0]),
    ("prctl of security bits", 157, [27, 0, 0, 0, 0, 0]),
    ("prctl of slack of timers", 157, [30, 0, 0, 0, 0, 0]),
    ("process_madvise", 440, [NONE; 6]),
    ("process_vm_readv", 310, [1, 0, 0, 0, 0, 0]),
    ("ptrace", 101, [16, 0, 0, 0, 0, 0]),
    ("quotactl", 179, [NONE; 6]),
    ("reboot", 169, [0; 6]),
    ("request_key", 249, [0; 6]),
    ("set_mempolicy", 238, [0; 6]),
    ("setdomainname", 171, [0, NONE, 0, 0, 0, 0]),
    ("sethostname", 170, [0, NONE, 0, 0, 0, 0]),
    ("setns", 308, [NONE, 0, 0, 0, 0, 0]),
    ("setpriority to more", 141, [0, 0, -5, 0, 0, 0]),
    ("settimeofday", 164, [0, 0, 0, 0, 0, 0]),
    ("socket of a hypervisor", 41, [40, 1, 0, 0, 0, 0]),
    ("socket of all packets", 41, [17, 3, 0, 0, 0, 0]),
    ("socket of audit", 41, [16, 3, 9, 0, 0, 0]),
    ("socket of ciphers", 41, [38, 5, 0, 0, 0, 0]),
    ("socket of echoes", 41, [2, 2, 1, 0, 0, 0]),
    ("socket of raw packets", 41, [2, 3, 1, 0, 0, 0]),
    ("swapon", 167, [0; 6]),
    ("syslog", 103, [10, 0, 0, 0, 0, 0]),
    ("umount2", 166, [0; 6]),
    ("unknown to any kernel", 1000, [0; 6]),
    ("unshare of a network", 272, [NEW_NETWORK, 0, 0, 0, 0, 0]),
    ("unshare of a user namespace", 272, [NEW_USER_NAMESPACE, 0, 0, 0, 0, 0]),
    ("uselib", 134, [0; 6]),
    ("userfaultfd", 323, [1, 0, 0, 0, 0, 0]),
    ("ustat", 136, [0; 6]),
    ("vhangup", 153, [0; 6]),
];

pub fn print_all() {
    for (name, number, arguments) in CALLS {
        print(format_args!("call.{name}"), outcome(number, arguments));
    }
    let folder = c_string("/");
    print("call.chroot", outcome(161, [folder.as_ptr().addr() as i64, 0, 0, 0, 0, 0]));
    let (device, pipe) = (c_string("/tmp/device"), c_string("/tmp/pipe"));
    print("call.mknod of a device", outcome(133, [device.as_ptr().addr() as i64, 0o020_666, 0x103, 0, 0, 0]));
    print("call.mknod of a pipe", outcome(133, [pipe.as_ptr().addr() as i64, 0o010_666, 0, 0, 0, 0]));
    let _ = (std::fs::remove_file("/tmp/device"), std::fs::remove_file("/tmp/pipe"));
    let name = c_string("/probe");
    print("call.mq_open", outcome(240, [name.as_ptr().addr() as i64, 0o102, 0o600, 0, 0, 0]));
    let port = |port: u16| {
        std::net::TcpListener::bind(("0.0.0.0", port)).map_or_else(|error| error.to_string(), |_| "bound".to_owned())
    };
    print("call.bind to port 80", port(80));
}

/// What a call returns, in a process that ends with it.
fn outcome(number: i64, arguments: [i64; 6]) -> String {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: this process has one thread; the child makes one call whose pointers are null, invalid or of a string that lives,
    // and ends at once.
    let status = unsafe {
        let child = fork();
        if child == 0 {
            let returned = syscall(number, a, b, c, d, e, f);
            // A number that is no error is one bit.
            _exit(if returned < 0 { *__errno_location() } else { 128 + returned.clamp(0, 63) as i32 })
        }
        let mut status = 0;
        waitpid(child, &raw mut status, 0);
        status
    };
    super::ends::words(status, |code| match code {
        128.. => format!("returns {}", code - 128),
        _ => std::io::Error::from_raw_os_error(code).to_string(),
    })
}
