//! The process that shims begin as copies of, seen from the agent: started when the first pod is, and again whenever it is gone.
//!
//! Invariant: an order reaches it whole or not at all, and is answered by the shim itself or by nobody, which is a start that failed. It
//! ends with this value; shims go on. Called for each pod that starts.

use std::io::{self, IoSlice, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, sendmsg, socketpair};

use crate::launcher::Launcher;
use crate::layout::SHIM_LOG;
use pumice_linux::files;
use pumice_shim::starter::{START_SHIMS, outcome};

/// A name in place of a pod's uid: lists of processes show a shim's directory where this one has its own.
const NAME: &str = "------------------------------------";
/// Its log, beside the folder of pods.
const LOG: &str = "shims.log";

/// What the process is started with, and the process while there is one.
pub(crate) struct ShimStarter {
    launcher: Launcher,
    pods_dir: PathBuf,
    /// Moves it into the group of shims' CPU time, by its pid.
    join: Box<dyn Fn(u32) + Send + Sync>,
    running: Mutex<Option<Running>>,
}

/// The process, which ends when the socket is closed, however this one ends.
struct Running {
    socket: OwnedFd,
    process: Child,
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has nothing to bring to an end.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl ShimStarter {
    /// Starts nothing before the first pod.
    pub(crate) fn new(launcher: Launcher, pods_dir: PathBuf, join: impl Fn(u32) + Send + Sync + 'static) -> Self {
        ShimStarter { launcher, pods_dir, join: Box::new(join), running: Mutex::default() }
    }

    /// Starts the shim of a directory, in a network namespace for its pod alone if there is one, and waits until it stands; else the
    /// text says why it does not.
    pub(crate) fn start(&self, dir: &Path, namespace: Option<&OwnedFd>) -> io::Result<Result<(), String>> {
        let log = files::append_private(&dir.join(SHIM_LOG))?;
        let (mut answer, report) = io::pipe()?;
        let descriptors: Vec<RawFd> =
            [Some(log.as_raw_fd()), Some(report.as_raw_fd()), namespace.map(AsRawFd::as_raw_fd)]
                .into_iter()
                .flatten()
                .collect();
        self.order(dir, &descriptors)?;
        drop(report);
        let mut text = String::new();
        answer.read_to_string(&mut text)?;
        Ok(outcome(&text, dir))
    }

    /// Ends the process, which is started again for the next pod.
    pub(crate) fn end(&self) {
        drop(self.running().take());
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn order(&self, dir: &Path, descriptors: &[RawFd]) -> io::Result<()> {
        let mut running = self.running();
        if let Some(there) = &*running {
            match send(&there.socket, dir, descriptors) {
                Err(Errno::EPIPE | Errno::ECONNRESET) => {
                    tracing::warn!("the process that starts shims was ended; there is another now")
                }
                sent => return Ok(sent?),
            }
        }
        *running = None;
        let begun = running.insert(self.begin()?);
        Ok(send(&begun.socket, dir, descriptors)?)
    }

    fn begin(&self) -> io::Result<Running> {
        let (socket, its) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        let log = files::append_private(&self.pods_dir.with_file_name(LOG))?;
        let mut launch = self.launcher.launch();
        let command = launch.command().arg(START_SHIMS).arg(self.pods_dir.join(NAME));
        // Its own group: an interrupt typed at the platform's terminal is not for it.
        command.stdin(Stdio::from(its)).stderr(log).process_group(0);
        let process = launch.spawn()?;
        (self.join)(process.id());
        Ok(Running { socket, process })
    }
}

fn send(socket: &impl AsFd, dir: &Path, descriptors: &[RawFd]) -> nix::Result<()> {
    let parts = [IoSlice::new(dir.as_os_str().as_bytes())];
    let rights = [ControlMessage::ScmRights(descriptors)];
    loop {
        match sendmsg::<()>(socket.as_fd().as_raw_fd(), &parts, &rights, MsgFlags::MSG_NOSIGNAL, None) {
            Err(Errno::EINTR) => {}
            sent => return sent.map(drop),
        }
    }
}
