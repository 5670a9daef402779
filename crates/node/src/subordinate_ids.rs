//! Users and groups that an ordinary user's pods have beside that user: those that the machine gives to the user for containers
//! (`/etc/subuid`, `/etc/subgid`), as `newuidmap` and `newgidmap` name them to the kernel.
//!
//! Invariant: all pods of the user have the same ids, in a user namespace that is made once, when the agent starts. Files of those ids
//! are nobody's to the agent, so what it does with them a process in that namespace does. [`listed`] finds which ids there are.

pub(crate) mod listed;

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::unistd::{Gid, Uid};

use crate::launcher::Launcher;
use listed::Missing;
use pumice_shim::remove::REMOVE;
use pumice_shim::spec::{IdRange, Users};
use pumice_shim::user_namespace::INSIDE;
use pumice_shim::users_files::{COUNT, Counted, GIVE_TO_GROUP, TAKE};

/// Ids of a pod, as many as programs expect that know of 16 bits.
pub(crate) const POD_IDS: u32 = 1 << 16;
/// Programs of Debian's package `uidmap`, and the file that each goes by.
const HELPERS: [(&str, &str); 2] = [("newuidmap", "uid_map"), ("newgidmap", "gid_map")];

/// The users of this user's pods.
#[derive(Debug)]
pub(crate) struct SubordinateIds {
    namespace: File,
    users: Users,
    shim: Launcher,
}

impl SubordinateIds {
    /// Makes their user namespace, unless root needs none. `dir` is any folder.
    pub(crate) fn of_user(dir: &Path, shim: &Launcher) -> Result<Option<SubordinateIds>, Missing> {
        if Uid::effective().is_root() { Ok(None) } else { SubordinateIds::make(dir, shim).map(Some) }
    }

    fn make(dir: &Path, shim: &Launcher) -> Result<SubordinateIds, Missing> {
        let users = listed::of_this_user()?;
        let mut refused = None;
        let namespace = shim.user_namespace(dir, |pid| {
            let ranges = [&users.uids, &users.gids];
            HELPERS.iter().zip(ranges).try_for_each(|((helper, _), ranges)| {
                name_ids(helper, pid, ranges).map_err(|missing| {
                    let error = io::Error::other(missing.why.clone());
                    refused = Some(missing);
                    error
                })
            })
        });
        match namespace {
            Ok(namespace) => Ok(SubordinateIds { namespace, users, shim: shim.clone() }),
            Err(error) => Err(refused.unwrap_or_else(|| Missing::namespaces(&error))),
        }
    }

    pub(crate) fn users(&self) -> &Users {
        &self.users
    }

    /// The machine's group that is `gid` in pods.
    pub(crate) fn gid(&self, gid: u32) -> Option<u32> {
        self.users.gids.iter().find_map(|range| {
            let offset = gid.checked_sub(range.inside).filter(|offset| *offset < range.count)?;
            range.outside.checked_add(offset)
        })
    }

    /// The user namespace, to be given to a process as its standard input.
    pub(crate) fn namespace(&self) -> io::Result<OwnedFd> {
        self.namespace.as_fd().try_clone_to_owned()
    }

    /// Has a folder, whose owner a pod may have changed, belong to this user again.
    pub(crate) fn take(&self, folder: &Path) -> io::Result<()> {
        match std::fs::symlink_metadata(folder) {
            Ok(found) if found.uid() != Uid::effective().as_raw() => self.run(&[TAKE], folder),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Gives a folder to a group of pods, and what is made in it from then on.
    pub(crate) fn give_to_group(&self, folder: &Path, gid: u32) -> io::Result<()> {
        self.run(&[GIVE_TO_GROUP, &gid.to_string()], folder)
    }

    /// Removes a tree; blocks for as long as that takes.
    pub(crate) fn remove(&self, tree: &Path) -> io::Result<()> {
        self.run(&[REMOVE], tree)
    }

    /// Begins to count what is below a folder.
    pub(crate) fn count(&self, folder: &Path) -> io::Result<Count> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut launch = self.shim.launch();
        launch.command().args([INSIDE, COUNT]).arg(folder).stdin(self.namespace()?).stdout(OwnedFd::from(theirs));
        let process = launch.spawn()?;
        Ok(Count { process, socket: BufReader::new(ours) })
    }

    fn run(&self, words: &[&str], folder: &Path) -> io::Result<()> {
        let mut launch = self.shim.launch();
        launch.command().arg(INSIDE).args(words).arg(folder).stdin(self.namespace()?);
        let out = launch.output()?;
        if out.status.success() {
            return Ok(());
        }
        let said = [out.stderr, out.stdout].concat();
        let last = String::from_utf8_lossy(&said).lines().last().map(str::to_owned);
        Err(io::Error::other(last.unwrap_or_else(|| format!("the shim's program ended with {}", out.status))))
    }
}

/// A count of files by a process that may see them all.
#[derive(Debug)]
pub(crate) struct Count {
    process: Child,
    socket: BufReader<UnixStream>,
}

impl Count {
    /// Goes on for at most `entries` more; blocks meanwhile.
    pub(crate) fn go_on(&mut self, entries: u32) -> io::Result<Counted> {
        self.socket.get_mut().write_all(format!("{entries}\n").as_bytes())?;
        let mut line = String::new();
        self.socket.read_line(&mut line)?;
        Counted::parse(&line).ok_or_else(|| io::Error::other("the process that counts has ended"))
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        // It may wait for the next request, or be in the middle of one.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Has a helper name the ids of the user namespace of process `pid` to the kernel.
fn name_ids(helper: &str, pid: u32, ranges: &[IdRange]) -> Result<(), Missing> {
    let numbers = ranges.iter().flat_map(|range| [range.inside, range.outside, range.count]);
    let mut command = Command::new(helper);
    command.arg(pid.to_string()).args(numbers.map(|number| number.to_string()));
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Missing::helper(helper),
        _ => Missing::refused(helper, &error.to_string()),
    })?;
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        let _ = stderr.read_to_string(&mut said);
    }
    match child.wait() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(Missing::refused(helper, said.lines().last().unwrap_or("it did not say why"))),
        Err(error) => Err(Missing::refused(helper, &error.to_string())),
    }
}

/// Which ids this process has.
fn own_ids() -> (u32, u32) {
    (Uid::effective().as_raw(), Gid::effective().as_raw())
}
