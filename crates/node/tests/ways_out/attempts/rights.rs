//! Rights of root, and the programs that have or give them: those in volumes, and the platform's own, which starts every pod.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use nix::unistd::{Gid, Uid, chroot, setgid, setuid};

use super::syscall::call;
use super::{done, is_so};
use crate::facts::Facts;
use crate::probe::{GAINED, PROBE_ARGS};
use crate::table::{Control, PodKind, Row};

/// The program of pods that run the platform's own.
pub const EXE: &str = "/proc/self/exe";

const fn gaining(name: &'static str, attempt: fn(&Facts) -> io::Result<()>) -> Row {
    Row { name, attempt, pod: PodKind::Tenant, control: Control::NoNewPrivileges }
}

const fn platform(name: &'static str, attempt: fn(&Facts) -> io::Result<()>) -> Row {
    Row { name, attempt, pod: PodKind::PlatformProgram, control: Control::ProgramView }
}

const fn row(name: &'static str, right: &'static str, attempt: fn(&Facts) -> io::Result<()>) -> Row {
    Row { name, attempt, pod: PodKind::RightsDropped, control: Control::Capability(right) }
}

pub const ROWS: &[Row] = &[
    gaining("become root by a program in a volume", |facts| gains(&facts.volume.join("set-id"), "user")),
    gaining("become a member of root's group by a program in a volume", |facts| {
        gains(&facts.volume.join("set-id"), "group")
    }),
    gaining("become root by a program in the root", |facts| gains(&facts.folder.join("set-id"), "user")),
    gaining("gain a right of root by a program in a volume", |facts| gains(&facts.volume.join("with-right"), "right")),
    platform("change the mode of the platform's program", |_| {
        fs::set_permissions(EXE, fs::metadata(EXE)?.permissions())
    }),
    platform("change the owner of the platform's program", |_| {
        let now = fs::metadata(EXE)?;
        Ok(nix::unistd::chown(EXE, Some(Uid::from_raw(now.uid())), Some(Gid::from_raw(now.gid())))?)
    }),
    platform("set an attribute of the platform's program", |_| {
        call!(SYS_setxattr, c"/proc/self/exe", c"user.ways-out", c"out", 3, 0)?;
        done(call!(SYS_removexattr, c"/proc/self/exe", c"user.ways-out"))
    }),
    row("give a file to another user", "CHOWN", |facts| chown(made(facts)?, Some(1), None)),
    row("read a file of another user", "DAC_OVERRIDE", |facts| fs::read(facts.volume.join("of-nobody")).map(drop)),
    row("change the mode of another user's file", "FOWNER", |facts| {
        fs::set_permissions(facts.volume.join("of-nobody"), fs::Permissions::from_mode(0o600))
    }),
    row("become another user", "SETUID", |_| Ok(setuid(Uid::from_raw(1))?)),
    row("become a member of another group", "SETGID", |_| Ok(setgid(Gid::from_raw(1))?)),
    row("chroot", "SYS_CHROOT", |facts| Ok(chroot(&facts.scratch())?)),
    row("give a right of root to a program", "SETFCAP", |facts| {
        Ok(give_right(&std::ffi::CString::new(made(facts)?)?)?)
    }),
    row("listen at a port below 1024", "NET_BIND_SERVICE", |_| TcpListener::bind((Ipv4Addr::LOCALHOST, 80)).map(drop)),
];

/// Whether this binary's copy at `program` has what its file promises.
pub fn gains(program: &Path, what: &str) -> io::Result<()> {
    is_so(Command::new(program).args(PROBE_ARGS).env(GAINED, what).status()?.success())
}

/// Gives `CAP_CHOWN` to whoever runs a program.
pub fn give_right(program: &CStr) -> nix::Result<()> {
    // `struct vfs_cap_data` of version 2: the right is permitted and in effect at once.
    let mut rights = [1, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let length = rights.len();
    call!(SYS_setxattr, program, c"security.capability", rights.as_mut_slice(), length, 0).map(drop)
}

fn made(facts: &Facts) -> io::Result<String> {
    let path = facts.scratch().join(format!("made-{}", std::process::id()));
    fs::write(&path, "")?;
    Ok(path.to_string_lossy().into_owned())
}
