//! The last steps of a container's process before it becomes the user's program.
//!
//! Invariant: the program starts with exactly the rights, environment and signal state of its spec;
//! no descriptor of the shim is left open. Runs in a fresh child; any failure ends it with a text.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use caps::{CapSet, Capability};
use nix::sys::prctl;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction, sigprocmask};
use nix::unistd::{Gid, Uid, chdir, dup2_stderr, dup2_stdin, dup2_stdout, execve, setgid, setgroups, setsid, setuid};
use seccompiler::BpfProgram;

use super::capabilities;
use super::own_users::become_root;
use super::spec::ContainerSpec;
use super::syscall_filter;
use pumice_linux::{cgroup, oom};

/// Why a program could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// A step before the program failed.
    #[error("can't {step}")]
    Prepare {
        step: &'static str,
        #[source]
        source: io::Error,
    },
    /// No such program in any directory of PATH.
    #[error("{program:?}: executable file not found in $PATH")]
    NotFound { program: String },
    /// The kernel refused it.
    #[error("can't run {program:?}{}", known_cause(.source))]
    Exec {
        program: String,
        #[source]
        source: io::Error,
    },
}

/// What the kernel's refusal means where the program itself is there.
fn known_cause(refusal: &io::Error) -> &'static str {
    match refusal.raw_os_error() {
        Some(libc::ENOENT) => ": the interpreter or loader that it names is not there",
        Some(libc::ENOEXEC) => {
            ": it is neither a program for this machine's processor nor a script that begins with #!"
        }
        _ => "",
    }
}

/// Descriptors that a program gets or needs on its way.
pub(crate) struct Handles {
    /// Its standard input; none is the null device of the container.
    pub stdin: Option<File>,
    pub stdout: File,
    pub stderr: File,
    /// Whether these are a terminal, which becomes the session's own.
    pub terminal: bool,
    /// Files that move it into its control group.
    pub cgroup: Vec<File>,
    /// Filters of its system calls.
    pub filters: Vec<BpfProgram>,
    /// Whether this process has just entered a user namespace and is nobody there.
    pub becomes_root: bool,
}

/// Becomes the program; returns only when that failed.
pub(crate) fn become_program(container: &ContainerSpec, handles: &Handles, isolated: bool) -> ProgramError {
    match prepare(container, handles, isolated) {
        Ok(()) => exec(container),
        Err(error) => error,
    }
}

fn prepare(container: &ContainerSpec, handles: &Handles, isolated: bool) -> Result<(), ProgramError> {
    let step = |step| move |source: nix::Error| ProgramError::Prepare { step, source: source.into() };
    let io_step = |step| move |source: io::Error| ProgramError::Prepare { step, source };
    setsid().map_err(step("start a session"))?;
    // The shim protects itself from the kernel's choice of victims; its pods must not inherit that.
    let _ = oom::expose_this_process();
    if handles.becomes_root {
        become_root().map_err(step("become root of the pod's user namespace"))?;
    }
    for file in &handles.cgroup {
        cgroup::join(file).map_err(io_step("join the control group"))?;
    }
    let stdin = match &handles.stdin {
        Some(stdin) => stdin,
        None => &null().map_err(io_step("open the null device"))?,
    };
    if handles.terminal {
        take_terminal(stdin).map_err(step("take the terminal"))?;
    }
    dup2_stdin(stdin).map_err(step("set standard input"))?;
    dup2_stdout(&handles.stdout).map_err(step("set standard output"))?;
    dup2_stderr(&handles.stderr).map_err(step("set standard error"))?;
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    if isolated || !container.cwd.is_empty() {
        chdir(Path::new(&container.cwd)).map_err(step("enter the working directory"))?;
    }
    // Nor the keys of whoever started the platform.
    let _ = join_own_keyring();
    if let Some(profile) = &container.app_armor {
        // While the files of this process are root's.
        confine(profile).map_err(io_step("have AppArmor confine the program"))?;
    }
    let is_filtered = !handles.filters.is_empty();
    take_identity(container, is_filtered)?;
    default_signals().map_err(step("reset signals"))?;
    // Last of all: the rules are for the program, not for what comes before it.
    handles.filters.iter().try_for_each(syscall_filter::install).map_err(step("filter system calls"))
}

/// Has the kernel confine the program by a profile of AppArmor, from its start on.
fn confine(profile: &str) -> io::Result<()> {
    // Older kernels have one file for whatever confines programs.
    const FILES: [&str; 2] = ["/proc/self/attr/apparmor/exec", "/proc/self/attr/exec"];
    let order = format!("exec {profile}");
    match std::fs::write(FILES[0], &order) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => std::fs::write(FILES[1], &order),
        written => written,
    }
}

/// A keyring of this session's own, with nothing in it. A kernel may have none.
#[allow(unsafe_code)]
fn join_own_keyring() -> nix::Result<()> {
    const JOIN_SESSION_KEYRING: libc::c_long = 1;
    let unnamed = std::ptr::null::<libc::c_char>();
    // SAFETY: takes numbers and no name; it changes the credentials of this process, which has one thread.
    let result = unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, unnamed) };
    nix::errno::Errno::result(result).map(drop)
}

/// Makes a terminal the one of this session, so that keys reach its programs as signals.
#[allow(unsafe_code)]
fn take_terminal(terminal: &File) -> nix::Result<()> {
    // SAFETY: takes an open descriptor and a number; no memory is passed.
    let result = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSCTTY, 0) };
    nix::errno::Errno::result(result).map(drop)
}

fn take_identity(container: &ContainerSpec, is_filtered: bool) -> Result<(), ProgramError> {
    let step = |step| move |source: nix::Error| ProgramError::Prepare { step, source: source.into() };
    capabilities::inherit_none().map_err(|error| ProgramError::Prepare {
        step: "drop inherited capabilities",
        source: io::Error::other(error),
    })?;
    if !Uid::effective().is_root() {
        // Without root there is one identity only, our own; and the kernel filters for those alone who can't become another.
        let refused = if is_filtered { prctl::set_no_new_privs() } else { Ok(()) };
        return refused.map_err(step("refuse new privileges"));
    }
    if !container.privileged {
        capabilities::limit(&container.capabilities_add, &container.capabilities_drop)
            .map_err(step("drop capabilities"))?;
    }
    // Until the program starts, an ordinary user keeps the right to be filtered.
    let keeps_rights = is_filtered && container.uid != 0 && !container.no_new_privileges;
    if keeps_rights {
        prctl::set_keepcaps(true).map_err(step("keep the right to filter"))?;
    }
    let groups: Vec<Gid> = container.groups.iter().copied().map(Gid::from_raw).collect();
    // In a user namespace of an ordinary user there are none to set.
    if !groups.is_empty() {
        setgroups(&groups).map_err(step("set supplementary groups"))?;
    }
    setgid(Gid::from_raw(container.gid)).map_err(step("set the group id"))?;
    setuid(Uid::from_raw(container.uid)).map_err(step("set the user id"))?;
    if keeps_rights {
        let raised = caps::raise(None, CapSet::Effective, Capability::CAP_SYS_ADMIN);
        raised.map_err(|error| ProgramError::Prepare {
            step: "keep the right to filter",
            source: io::Error::other(error),
        })?;
    }
    if container.no_new_privileges {
        prctl::set_no_new_privs().map_err(step("refuse new privileges"))?;
    }
    Ok(())
}

/// Rust ignores SIGPIPE, `nohup` SIGHUP, a script's background SIGINT, and pid 1 blocks everything; a program expects none
/// of it.
#[allow(unsafe_code)]
fn default_signals() -> nix::Result<()> {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    for signal in Signal::iterator().filter(|signal| !matches!(signal, Signal::SIGKILL | Signal::SIGSTOP)) {
        // SAFETY: the default action installs no handler of ours, so no handler can break an invariant.
        unsafe { sigaction(signal, &default) }?;
    }
    for signal in libc::SIGRTMIN()..=libc::SIGRTMAX() {
        // SAFETY: as above.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)
}

fn exec(container: &ContainerSpec) -> ProgramError {
    let Some(program) = container.argv.first() else {
        return ProgramError::NotFound { program: String::new() };
    };
    let (argv, env) = (c_strings(container.argv.iter().cloned()), environment(&container.env));
    let path = container.env.iter().rfind(|(name, _)| name == "PATH").map_or("", |(_, value)| value);
    let mut last = ProgramError::NotFound { program: program.clone() };
    for candidate in candidates(program, path) {
        let Ok(file) = CString::new(candidate.clone()) else { continue };
        match execve(&file, &argv, &env) {
            Err(nix::Error::ENOENT | nix::Error::ENOTDIR) if !Path::new(&candidate).exists() => {}
            Err(errno) => last = ProgramError::Exec { program: candidate, source: errno.into() },
            Ok(never) => match never {},
        }
    }
    last
}

fn candidates(program: &str, path: &str) -> Vec<String> {
    if program.contains('/') {
        return vec![program.to_owned()];
    }
    let dirs = path.split(':').map(|dir| if dir.is_empty() { "." } else { dir });
    dirs.map(|dir| format!("{}/{program}", dir.trim_end_matches('/'))).collect()
}

fn environment(env: &[(String, String)]) -> Vec<CString> {
    c_strings(env.iter().map(|(name, value)| format!("{name}={value}")))
}

/// A text with a zero byte can't be given to a program; it is cut there, as the kernel would.
fn c_strings(texts: impl Iterator<Item = String>) -> Vec<CString> {
    texts.map(|text| CString::new(text.split('\0').next().unwrap_or_default()).unwrap_or_default()).collect()
}

/// The null device as this process sees it: in a container it is the container's own, of which a program may change the
/// mode without reaching the host's. A FIFO that somebody put there does not hold us up.
pub(crate) fn null() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOCTTY).open("/dev/null")
}

/// Closes this process's memory, descriptors and file to programs of the container that have not the right to trace
/// others, until it becomes a program itself. Without root it would close `/proc/self` to itself.
pub(crate) fn hide_process(user_namespace: bool) -> nix::Result<()> {
    if user_namespace || !Uid::effective().is_root() { Ok(()) } else { prctl::set_dumpable(false) }
}

/// Has the null device for standard streams, in place of what the host gave.
pub(crate) fn leave_streams() -> io::Result<()> {
    let null = null()?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    Ok(dup2_stderr(&null)?)
}

/// Closes everything but the standard streams. For a process that uses none of the rest: a shim at its start, which may
/// have what somebody's shell left open, and a copy of one.
#[allow(unsafe_code)]
pub(crate) fn close_all_but_streams() {
    // SAFETY: by the contract no value of this process owns such a descriptor that is used or closed later.
    unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) };
}

/// Closes descriptors in a copy of this process that never comes back to those who own them.
#[allow(unsafe_code)]
pub(crate) fn close_in_copy(descriptors: &[RawFd]) {
    for descriptor in descriptors {
        // SAFETY: by the contract their owners are not used nor dropped in this copy of the process, which ends by `_exit`.
        unsafe { libc::close(*descriptor) };
    }
}

/// Marks everything but the standard streams to be closed by the program's start.
#[allow(unsafe_code)]
pub(crate) fn close_on_exec_all() {
    // SAFETY: only sets a flag on descriptors; nothing is closed before execve.
    unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

/// Gives the pipe to the program's user, who may open it again by `/dev/stdout`.
pub(crate) fn give_away(file: &File, uid: u32, gid: u32) {
    if Uid::effective().is_root() {
        let _ = std::os::unix::fs::fchown(file, Some(uid), Some(gid));
    }
    debug_assert!(file.as_raw_fd() > 2, "pipes are made after the standard streams");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_looked_for_in_the_containers_path() {
        assert_eq!(candidates("/bin/sh", "/x"), ["/bin/sh"]);
        assert_eq!(candidates("./a", "/x"), ["./a"]);
        assert_eq!(candidates("sh", "/usr/bin/::/bin"), ["/usr/bin/sh", "./sh", "/bin/sh"]);
    }
}
