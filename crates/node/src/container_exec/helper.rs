//! The process that enters a container for us: started, told what to run, listened to.
//!
//! Invariant: when this side is dropped, the program that it started is ended too. The process is in the pod's control
//! groups from its first instruction, so that what it needs is the pod's use and not the platform's.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;

use nix::cmsg_space;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::UnixStream;

use crate::launcher::Launcher;
use crate::layout::SHIM_LOG;
use pumice_linux::files::append_private;
use pumice_shim::exec::{EXEC, Request};
use pumice_shim::report::Report;
use pumice_shim::spec::ShimSpec;

/// Longest report in bytes.
const REPORT_BYTES_MAX: usize = 64 << 10;
/// Streams of one program at most.
const STREAMS_MAX: usize = 3;

/// The socket to the process in the container's surroundings.
pub(crate) struct Helper {
    socket: UnixStream,
    /// What was read and is no whole line yet.
    read: Vec<u8>,
    /// Streams that came along.
    ends: Vec<OwnedFd>,
}

impl Helper {
    /// Starts the process for a pod's directory and tells it what to run.
    pub(crate) async fn start(shim: Launcher, dir: &Path, request: &Request) -> io::Result<Helper> {
        let mut line = serde_json::to_vec(request).map_err(io::Error::other)?;
        line.push(b'\n');
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        let dir = dir.to_owned();
        let spawned = tokio::task::spawn_blocking(move || spawn(&shim, &dir, theirs.into()));
        spawned.await.map_err(io::Error::other)??;
        ours.set_nonblocking(true)?;
        let mut socket = UnixStream::from_std(ours)?;
        socket.write_all(&line).await?;
        Ok(Helper { socket, read: Vec::new(), ends: Vec::new() })
    }

    /// The next report; an error when the process is gone without one. Cancel safe.
    pub(crate) async fn report(&mut self) -> io::Result<Report> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                let line = String::from_utf8_lossy(&line);
                return Report::parse(line.trim_end()).ok_or_else(|| io::Error::other("an unknown report"));
            }
            self.receive().await?;
        }
    }

    /// The streams that came with [`Report::Started`].
    pub(crate) fn take_ends(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.ends)
    }

    async fn receive(&mut self) -> io::Result<()> {
        let socket = &self.socket;
        let (bytes, ends) = socket.async_io(Interest::READABLE, || receive_from(socket.as_raw_fd())).await?;
        if bytes.is_empty() || self.read.len() > REPORT_BYTES_MAX {
            return Err(io::Error::other("the process that enters the container ended early; its shim.log says why"));
        }
        self.read.extend(bytes);
        self.ends.extend(ends);
        Ok(())
    }
}

fn spawn(shim: &Launcher, dir: &Path, socket: OwnedFd) -> io::Result<()> {
    let log = append_private(&dir.join(SHIM_LOG))?;
    let spec = ShimSpec::read(dir).map_err(io::Error::other)?;
    let mut launch = shim.launch();
    launch.command().arg(EXEC).arg(dir).stdin(Stdio::from(socket)).stderr(log).process_group(0);
    if let Some(group) = &spec.cgroup {
        launch.join(group.exec_processes_files()?);
    }
    // It leaves a child in a session of its own, so this does not wait for the program.
    let status = launch.status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("the shim's program ended with {status}"))) }
}

#[allow(unsafe_code)]
fn receive_from(socket: RawFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut buffer = [0; 4096];
    let mut control = cmsg_space!([RawFd; STREAMS_MAX]);
    let mut parts = [IoSliceMut::new(&mut buffer)];
    let message = recvmsg::<()>(socket, &mut parts, Some(&mut control), MsgFlags::MSG_CMSG_CLOEXEC)?;
    let mut ends = Vec::new();
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(descriptors) = control {
            // SAFETY: the kernel has just made these descriptors for us, and nobody else knows them.
            ends.extend(descriptors.into_iter().map(|descriptor| unsafe { OwnedFd::from_raw_fd(descriptor) }));
        }
    }
    let length = message.bytes;
    Ok((buffer[..length].to_vec(), ends))
}
