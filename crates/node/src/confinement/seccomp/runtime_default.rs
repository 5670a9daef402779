//! The profile of containers that name none (`RuntimeDefault`).
//!
//! It allows what Docker's default allows, and differs in three things. Flags of files, and the project that the file system counts
//! them for, can't be changed: a pod would leave its quota by it. Memory policies are allowed to all: they are about a
//! program's own memory, and `numactl` sets them. Rules of `io_uring` are as in Docker since 25: none may use it, since so many
//! ways out of containers went through it.
//! <https://docs.docker.com/engine/security/seccomp/>

use std::collections::HashSet;

use caps::Capability;
use seccompiler::{BackendError, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};
use syscalls::Sysno;

use super::{Profile, Rule};

/// What any program may call. Names that a processor does not have are left out there.
const ALWAYS: &str = "
    accept accept4 access adjtimex alarm arch_prctl bind brk cachestat capget capset chdir chmod chown clock_adjtime
    clock_getres clock_gettime clock_nanosleep close close_range connect copy_file_range creat dup dup2 dup3
    epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd
    eventfd2 execve execveat exit exit_group faccessat faccessat2 fadvise64 fallocate fanotify_mark fchdir fchmod
    fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr flistxattr flock fork fremovexattr fsetxattr fstat
    fstatfs fsync ftruncate futex futex_requeue futex_wait futex_waitv futex_wake futimesat get_mempolicy
    get_robust_list get_thread_area getcpu getcwd getdents getdents64 getegid geteuid getgid getgroups getitimer
    getpeername getpgid getpgrp getpid getppid getpriority getrandom getresgid getresuid getrlimit getrusage getsid
    getsockname getsockopt gettid gettimeofday getuid getxattr getxattrat inotify_add_watch inotify_init
    inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents io_setup io_submit
    ioprio_get ioprio_set kill landlock_add_rule landlock_create_ruleset landlock_restrict_self lchown lgetxattr
    link linkat listen listxattr listxattrat llistxattr lremovexattr lseek lsetxattr lstat madvise map_shadow_stack
    mbind membarrier memfd_create memfd_secret mincore mkdir mkdirat mknod mknodat mlock mlock2 mlockall mmap
    modify_ldt mprotect mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink mremap mseal msgctl
    msgget msgrcv msgsnd msync munlock munlockall munmap name_to_handle_at nanosleep newfstatat open openat openat2
    pause pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect poll ppoll prctl pread64 preadv
    preadv2 prlimit64 process_mrelease process_vm_readv process_vm_writev pselect6 ptrace pwrite64 pwritev pwritev2
    read readahead readlink readlinkat readv recvfrom recvmmsg recvmsg remap_file_pages removexattr removexattrat
    rename renameat renameat2 restart_syscall rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo
    rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min
    sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval sched_setaffinity
    sched_setattr sched_setparam sched_setscheduler sched_yield seccomp select semctl semget semop semtimedop
    sendfile sendmmsg sendmsg sendto set_mempolicy set_mempolicy_home_node set_robust_list set_thread_area
    set_tid_address setfsgid setfsuid setgid setgroups setitimer setpgid setpriority setregid setresgid setresuid
    setreuid setrlimit setsid setsockopt setuid setxattr setxattrat shmat shmctl shmdt shmget shutdown sigaltstack
    signalfd signalfd4 socketpair splice stat statfs statx symlink symlinkat sync sync_file_range syncfs sysinfo tee
    tgkill time timer_create timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create
    timerfd_gettime timerfd_settime times tkill truncate umask uname unlink unlinkat utime utimensat utimes vfork
    vmsplice wait4 waitid write writev
";

/// What goes with a right of root.
const WITH_RIGHT: [(Capability, &str); 12] = [
    (
        Capability::CAP_SYS_ADMIN,
        "bpf clone clone3 fanotify_init fsconfig fsmount fsopen fspick listmount mount mount_setattr move_mount open_tree
         open_tree_attr perf_event_open quotactl quotactl_fd setdomainname sethostname setns statmount syslog umount2 unshare",
    ),
    (Capability::CAP_DAC_READ_SEARCH, "open_by_handle_at"),
    (Capability::CAP_SYS_BOOT, "reboot"),
    (Capability::CAP_SYS_CHROOT, "chroot"),
    (Capability::CAP_SYS_MODULE, "delete_module finit_module init_module"),
    (Capability::CAP_SYS_PACCT, "acct"),
    (Capability::CAP_SYS_PTRACE, "kcmp pidfd_getfd process_madvise"),
    (Capability::CAP_SYS_RAWIO, "ioperm iopl"),
    (Capability::CAP_SYS_TIME, "clock_settime settimeofday"),
    (Capability::CAP_SYSLOG, "syslog"),
    (Capability::CAP_BPF, "bpf"),
    (Capability::CAP_PERFMON, "perf_event_open"),
];

/// Flags of `clone` that make namespaces.
const NEW_NAMESPACES: u64 = 0x7e02_0000;
/// Sockets of the kernel's ciphers, and those that reach the hypervisor of a virtual machine.
const REFUSED_SOCKETS: [u64; 2] = [38, 40];
/// `FS_IOC_SETFLAGS` and `FS_IOC_FSSETXATTR`, which take a file out of the project that its folder counts for.
const REFUSED_CONTROLS: [u64; 2] = [0x4008_6602, 0x401c_5820];
/// What `personality` may be set to: the usual one, 32 bits of address space less, another `uname`, both; the last asks only.
const PERSONALITIES: [u64; 5] = [0, 8, 0x2_0000, 0x2_0008, 0xffff_ffff];

/// The profile of a container with these rights.
///
/// # Errors
/// When a condition can't be expressed, which is a fault of this file.
pub(crate) fn profile(rights: &HashSet<Capability>) -> Result<Profile, BackendError> {
    let always = |names: &str| Rule { calls: known(names), action: SeccompAction::Allow, when: Vec::new() };
    let mut rules = vec![always(ALWAYS)];
    rules.extend(WITH_RIGHT.iter().filter(|(right, _)| rights.contains(right)).map(|(_, names)| always(names)));
    let allow = |call, when| Rule { calls: vec![call], action: SeccompAction::Allow, when };
    let none_of = |argument, values: &[u64]| {
        let refused = values.iter().map(|value| condition(argument, SeccompCmpOp::Ne, *value));
        SeccompRule::new(refused.collect::<Result<_, _>>()?)
    };
    rules.push(allow(Sysno::socket, vec![none_of(0, &REFUSED_SOCKETS)?]));
    rules.push(allow(Sysno::ioctl, vec![none_of(1, &REFUSED_CONTROLS)?]));
    let personalities = PERSONALITIES.iter().map(|value| when(SeccompCmpOp::Eq, *value));
    rules.push(allow(Sysno::personality, personalities.collect::<Result<_, _>>()?));
    if !rights.contains(&Capability::CAP_SYS_ADMIN) {
        rules.push(allow(Sysno::clone, vec![when(SeccompCmpOp::MaskedEq(NEW_NAMESPACES), 0)?]));
        // Its flags are in memory, where a filter can't look. Programs go on with `clone` where it does not exist.
        let absent = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
        rules.push(Rule { calls: vec![Sysno::clone3], action: absent, when: Vec::new() });
    }
    Ok(Profile { default: SeccompAction::Errno(libc::EPERM.unsigned_abs()), rules })
}

fn when(comparison: SeccompCmpOp, value: u64) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![condition(0, comparison, value)?])
}

/// The kernel reads 32 bits of these arguments.
fn condition(argument: u8, comparison: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, comparison, value)
}

fn known(names: &str) -> Vec<Sysno> {
    names.split_whitespace().filter_map(|name| name.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::confinement::seccomp::compile;
    use pumice_shim::capability_set::retained;

    /// Calls of kernels that are newer than the table of names.
    const NEWER: [&str; 1] = ["open_tree_attr"];

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn each_name_is_a_call() {
        for name in WITH_RIGHT.iter().map(|(_, names)| *names).chain([ALWAYS]).flat_map(str::split_whitespace) {
            assert!(name.parse::<Sysno>().is_ok() || NEWER.contains(&name), "{name}");
        }
    }

    #[test]
    fn rights_bring_calls() {
        let calls = |add: &[&str]| {
            let add: Vec<String> = add.iter().map(|name| (*name).to_owned()).collect();
            let profile = profile(&retained(&add, &[])).unwrap();
            assert!(!compile(&profile).unwrap().is_empty());
            let allowed = profile.rules.into_iter().filter(|rule| rule.action == SeccompAction::Allow);
            allowed.flat_map(|rule| rule.calls).collect::<HashSet<_>>()
        };
        let (usual, admin) = (calls(&[]), calls(&["SYS_ADMIN"]));
        for call in [Sysno::mount, Sysno::unshare, Sysno::setns, Sysno::bpf, Sysno::clone3] {
            assert!(!usual.contains(&call) && admin.contains(&call), "{call}");
        }
        for call in [Sysno::keyctl, Sysno::add_key, Sysno::userfaultfd, Sysno::io_uring_setup, Sysno::kexec_load] {
            assert!(!usual.contains(&call) && !admin.contains(&call), "{call}");
        }
        assert!(usual.contains(&Sysno::ioctl));
        assert!(calls(&["SYS_TIME"]).contains(&Sysno::clock_settime) && usual.contains(&Sysno::chroot));
    }
}
