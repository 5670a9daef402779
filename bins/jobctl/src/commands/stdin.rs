//! What `jobctl run` gets on its standard input, which does not reach the pods of a job.
//!
//! Nothing is read. It is said only where there is something: many programs start others with an open pipe that nobody writes to.

use std::io::Seek;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::args::Work;
use crate::terminal;

/// Says that nobody reads it, if there is something to read.
pub fn say_if_unread(work: &Work, fleet: bool) {
    let is_manifest = work.files.iter().any(|file| file == Path::new("-"));
    if is_manifest || !has_data() {
        return;
    }
    let instead = if fleet { "" } else { "`jobctl shell -- COMMAND` passes it on, or " };
    terminal::say(&format!("standard input does not reach the pods: {instead}let the command read a file"));
}

fn has_data() -> bool {
    let stdin = std::io::stdin();
    let Ok(owned) = stdin.as_fd().try_clone_to_owned() else { return false };
    let mut file = std::fs::File::from(owned);
    let Ok(metadata) = file.metadata() else { return false };
    if metadata.file_type().is_fifo() {
        let mut ready = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
        let count = poll(&mut ready, PollTimeout::ZERO).unwrap_or(0);
        return count > 0 && ready[0].revents().is_some_and(|events| events.contains(PollFlags::POLLIN));
    }
    metadata.is_file() && file.stream_position().is_ok_and(|at| at < metadata.len())
}
