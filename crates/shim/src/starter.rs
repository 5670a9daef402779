//! One process that the agent leaves running, of which each shim begins as a copy.
//!
//! To load a program, have the C library find out about the processor, and end the process that leaves a shim behind costs as much as
//! all mounts of a pod. A copy of a process that has done all that costs a tenth. Invariant: the process that is copied never knew
//! anything of any pod, has one thread, and ends with the agent; shims stay. Started by the agent as `start-shims PODS_DIR/NAME` with a
//! socket of messages as standard input.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use nix::unistd::{ForkResult, dup2_stderr, dup2_stdin};

use crate::fork;
use crate::program;
use pumice_linux::last_argument::LastArgument;
use pumice_linux::oom;

/// Word that asks for the process that shims are copies of; a path as long as those of pods' directories follows.
pub const START_SHIMS: &str = "start-shims";
/// Longest order in bytes.
pub const ORDER_BYTES_MAX: usize = 4096;
/// Descriptors that come with an order: what the shim says of itself goes to the first, whether it stands to the second; the third, if
/// there is one, is a network namespace for the pod, or where this is not root the user namespace that its own lies in.
const DESCRIPTORS_MAX: usize = 3;

/// What a shim tells whoever has started it when it needs it no more.
pub(crate) const STANDS: &str = "stands\n";

/// Whether a shim stands, by what it has told; else why not.
///
/// # Errors
/// When it does not.
pub fn outcome(text: &str, dir: &Path) -> Result<(), String> {
    match text.strip_suffix(STANDS) {
        Some(_) => Ok(()),
        None if text.is_empty() => Err(format!("the shim of {} ended at once", dir.display())),
        None => Err(text.to_owned()),
    }
}

/// What a copy of this process is to become.
pub(crate) struct Order {
    pub dir: PathBuf,
    /// Whether the shim of the pod stands.
    pub report: File,
}

/// Waits for orders. Returns in each copy that is to become a shim, and with nothing when the agent has ended.
pub(crate) fn serve() -> io::Result<Option<Order>> {
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    dup2_stdin(program::null()?)?;
    std::env::set_current_dir("/")?;
    // Copies would each do that again.
    let _ = oom::spare_this_process();
    // Shims that end are nobody's to wait for: the agent watches them by what they lock.
    on_ends(SigHandler::SigIgn)?;
    let last_argument = LastArgument::find();
    loop {
        let Some((bytes, descriptors)) = receive(&socket)? else { return Ok(None) };
        match fork::fork() {
            // Who ordered it hears nothing, and then that nobody is there to hear.
            Ok(ForkResult::Parent { .. }) | Err(_) => {}
            Ok(ForkResult::Child) => {
                drop(socket);
                on_ends(SigHandler::SigDfl)?;
                if let Some(found) = last_argument {
                    found.replace(&bytes);
                }
                return order(PathBuf::from(OsString::from_vec(bytes)), descriptors).map(Some);
            }
        }
    }
}

fn order(dir: PathBuf, descriptors: Vec<OwnedFd>) -> io::Result<Order> {
    let mut descriptors = descriptors.into_iter();
    let (Some(log), Some(report)) = (descriptors.next(), descriptors.next()) else {
        return Err(io::Error::other("an order of a shim came without descriptors"));
    };
    dup2_stderr(log)?;
    if let Some(namespace) = descriptors.next() {
        dup2_stdin(namespace)?;
    }
    Ok(Order { dir, report: File::from(report) })
}

#[allow(unsafe_code)]
fn on_ends(handler: SigHandler) -> nix::Result<()> {
    let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
    // SAFETY: ignoring a signal, or its default, installs no handler of ours, so no handler can break an invariant.
    unsafe { sigaction(Signal::SIGCHLD, &action) }.map(drop)
}

/// The next message; none when the other end is closed.
#[allow(unsafe_code)]
fn receive(socket: &OwnedFd) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    let mut buffer = [0; ORDER_BYTES_MAX];
    let mut control = cmsg_space!([RawFd; DESCRIPTORS_MAX]);
    let mut parts = [IoSliceMut::new(&mut buffer)];
    let message = loop {
        match recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut control), MsgFlags::MSG_CMSG_CLOEXEC) {
            Err(Errno::EINTR) => {}
            received => break received?,
        }
    };
    let mut descriptors = Vec::new();
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(received) = control {
            // SAFETY: the kernel has just made these descriptors for us, and nobody else knows them.
            descriptors.extend(received.into_iter().map(|descriptor| unsafe { OwnedFd::from_raw_fd(descriptor) }));
        }
    }
    let length = message.bytes;
    Ok(if length == 0 { None } else { Some((buffer[..length].to_vec(), descriptors)) })
}
