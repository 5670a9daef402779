//! A user without root, as whom a platform runs, with ids that the machine gives to that user alone.

use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The user `nobody`, which every machine has. What its programs find in `/etc/subuid` and `/etc/subgid` is mounted there for
/// them alone.
#[derive(Debug, Clone, Default)]
pub struct OrdinaryUser {
    /// Lines of both files.
    pub subordinate_ids: String,
    /// Where its programs look for others; none is the usual.
    pub path: Option<String>,
    /// Whether its programs may gain rights by set-user-ID ones.
    pub no_new_privileges: bool,
}

/// A line that gives enough ids.
pub const SUBORDINATE_IDS: &str = "nobody:1000000:65536\n";
/// The first of them.
pub const FIRST_SUBORDINATE_ID: u32 = 1_000_000;
const NOBODY: u32 = 65534;

/// What becomes that user and runs a program. The file with the ids comes before it.
const BECOME: &str =
    "mount --bind \"$1\" /etc/subuid && mount --bind \"$1\" /etc/subgid && shift && exec setpriv \"$@\"";

impl OrdinaryUser {
    /// One with enough ids for pods.
    pub fn with_ids() -> OrdinaryUser {
        OrdinaryUser { subordinate_ids: SUBORDINATE_IDS.to_owned(), ..OrdinaryUser::default() }
    }

    /// Whether a test can be run as that user; else it says what is missing, and where CI is set it fails.
    pub fn can_be() -> bool {
        let is_root = nix::unistd::Uid::effective().is_root();
        let has_helpers = ["newuidmap", "newgidmap"].iter().all(|name| Path::new("/usr/bin").join(name).is_file());
        let can_be = is_root && has_helpers;
        if !can_be {
            eprintln!("not run: needs root to become another user, and the package uidmap");
            assert!(std::env::var_os("CI").is_none(), "run the tests as root, after tests/prerequisites");
        }
        can_be
    }

    /// Gives a directory to it.
    pub(crate) fn own(&self, directory: &Path) {
        chown(directory, Some(NOBODY), Some(NOBODY)).expect("give a directory to another user");
    }

    /// A command that runs `program` as that user, whose home is `directory`, with arguments that are added.
    pub fn command(&self, program: &Path, directory: &Path) -> Command {
        let ids: PathBuf = directory.join("subordinate-ids");
        std::fs::write(&ids, &self.subordinate_ids).expect("write which ids the user has");
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "--", "sh", "-c", BECOME, "sh"]).arg(ids);
        command.args(["--reuid", "nobody", "--regid", "nogroup", "--clear-groups"]);
        if self.no_new_privileges {
            command.arg("--no-new-privs");
        }
        command.args(["--", "env"]).arg(format!("HOME={}", directory.display()));
        if let Some(path) = &self.path {
            command.arg(format!("PATH={path}"));
        }
        command.arg(program);
        command
    }
}
