//! The streams of a container's own program: a socket to the pod's shim, which has them.
//!
//! Called by the kubelet API's attach. Invariant: the container goes on whatever becomes of this side; its shim reads what was typed
//! before this side is gone, and sends it away if it is behind for too long.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{SockFlag, accept4};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use pumice_shim::attach::{self, ATTACHED, DATA_BYTES_MAX, ENDED, INPUT_ENDED, Listener, REFUSED, RESIZE, STDIN};
use pumice_shim::control;

/// How long a shim may take to come.
const COME_WITHIN: Duration = Duration::from_secs(5);

/// Why a client is not attached, or not any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConsoleError {
    #[error("can't reach the pod's shim")]
    Reach(#[source] io::Error),
    #[error(
        "the pod's shim does not answer: one that an earlier release started can't be attached to; use kubectl logs -f, or start \
         the pod again"
    )]
    NoAnswer,
    #[error("{0}")]
    Refused(String),
    #[error(
        "the pod's shim has ended, or has sent this client away since it was too slow; the pod's log has what it missed"
    )]
    Lost,
    #[error("the connection to the pod's shim broke")]
    Broken(#[source] io::Error),
}

/// What comes from the container.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// It has written so many bytes on a channel.
    Written { channel: u8, length: usize },
    /// Its run has ended.
    Ended,
}

/// A connection to the streams of a container that runs.
pub(crate) struct Console {
    socket: AsyncFd<OwnedFd>,
}

impl Console {
    /// Attaches to a container of the pod in `dir`. Needs a runtime.
    pub(crate) async fn attach(dir: &Path, container: &str) -> Result<Console, ConsoleError> {
        let listener = attach::listen(dir, container).map_err(ConsoleError::Reach)?;
        control::wake(dir).map_err(ConsoleError::Reach)?;
        let accepted = tokio::time::timeout(COME_WITHIN, accept(&listener)).await;
        let socket = accepted.map_err(|_| ConsoleError::NoAnswer)?.map_err(ConsoleError::Reach)?;
        let console = Console { socket: register(socket).map_err(ConsoleError::Reach)? };
        let mut buffer = Box::new([0; DATA_BYTES_MAX]);
        match console.receive(&mut buffer).await? {
            (ATTACHED, _) => Ok(console),
            (REFUSED, length) => Err(ConsoleError::Refused(String::from_utf8_lossy(&buffer[..length]).into_owned())),
            _ => Err(ConsoleError::Lost),
        }
    }

    /// The next output, in `buffer`. Cancel safe.
    pub(crate) async fn output(&self, buffer: &mut [u8; DATA_BYTES_MAX]) -> Result<Output, ConsoleError> {
        match self.receive(buffer).await? {
            (ENDED, _) => Ok(Output::Ended),
            (channel, length) => Ok(Output::Written { channel, length }),
        }
    }

    /// Types, waiting for a program that is slow to read. Nothing at all says that this client types.
    pub(crate) async fn write(&self, bytes: &[u8]) -> Result<(), ConsoleError> {
        if bytes.is_empty() {
            return self.send(STDIN, bytes).await;
        }
        for chunk in bytes.chunks(DATA_BYTES_MAX) {
            self.send(STDIN, chunk).await?;
        }
        Ok(())
    }

    /// What is typed ends here; the container's own input ends with it where that is for one client.
    pub(crate) async fn end_input(&self) -> Result<(), ConsoleError> {
        self.send(INPUT_ENDED, &[]).await
    }

    /// Tells the size of the client's window, in characters.
    pub(crate) async fn resize(&self, columns: u16, rows: u16) -> Result<(), ConsoleError> {
        self.send(RESIZE, &attach::window(columns, rows)).await
    }

    async fn send(&self, channel: u8, data: &[u8]) -> Result<(), ConsoleError> {
        let sent = self.socket.async_io(Interest::WRITABLE, |socket| Ok(attach::send(socket, channel, data)?)).await;
        sent.map_err(broken)
    }

    async fn receive(&self, buffer: &mut [u8; DATA_BYTES_MAX]) -> Result<(u8, usize), ConsoleError> {
        let received = self.socket.async_io(Interest::READABLE, |socket| Ok(attach::receive(socket, buffer)?)).await;
        received.map_err(broken)?.ok_or(ConsoleError::Lost)
    }
}

fn broken(error: io::Error) -> ConsoleError {
    match error.raw_os_error() {
        Some(libc::EPIPE | libc::ECONNRESET) => ConsoleError::Lost,
        _ => ConsoleError::Broken(error),
    }
}

#[allow(unsafe_code)]
async fn accept(listener: &Listener) -> io::Result<OwnedFd> {
    let listening = register(listener.socket.try_clone()?)?;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let take = |socket: &OwnedFd| -> io::Result<OwnedFd> {
        let descriptor = accept4(socket.as_raw_fd(), flags).map_err(|errno| match errno {
            // Somebody who came and went.
            Errno::ECONNABORTED => Errno::EAGAIN,
            other => other,
        })?;
        // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    };
    listening.async_io(Interest::READABLE, take).await
}

/// Hands a descriptor to the runtime's poller.
#[allow(unsafe_code)]
fn register(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` owns its one descriptor, keeps it open as long as it lives, and always names the same one.
    unsafe { AsyncFd::register(descriptor) }.map_err(|error| error.into_parts().1)
}
