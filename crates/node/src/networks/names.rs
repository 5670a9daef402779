//! Who can name whom: the pods of one subdomain, and their hosts files.
//!
//! Invariant: a file shows the members of some moment not older than its version; files are rewritten
//! one batch at a time, so that an older text never overwrites a newer one.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;

use crate::networks::hosts_file;

/// A namespace and a subdomain.
pub(crate) type GroupKey = (String, String);

/// The pods of one subdomain.
#[derive(Debug, Default)]
pub(crate) struct Group {
    pub members: BTreeSet<String>,
    pub version: u64,
}

/// All subdomains with pods on this node.
#[derive(Debug, Default)]
pub(crate) struct Names {
    groups: HashMap<GroupKey, Group>,
    changed: BTreeSet<GroupKey>,
}

impl Names {
    pub(crate) fn join(&mut self, key: GroupKey, uid: &str) {
        let group = self.groups.entry(key.clone()).or_default();
        if group.members.insert(uid.to_owned()) {
            group.version += 1;
            self.changed.insert(key);
        }
    }

    pub(crate) fn leave(&mut self, key: &GroupKey, uid: &str) {
        let Some(group) = self.groups.get_mut(key) else { return };
        group.members.remove(uid);
        if group.members.is_empty() {
            self.groups.remove(key);
            self.changed.remove(key);
        }
    }

    pub(crate) fn group(&self, key: &GroupKey) -> Option<&Group> {
        self.groups.get(key)
    }

    /// Says that a file of this group may be behind.
    pub(crate) fn touch(&mut self, key: GroupKey) {
        self.changed.insert(key);
    }

    pub(crate) fn take_changed(&mut self) -> BTreeSet<GroupKey> {
        std::mem::take(&mut self.changed)
    }
}

/// A hosts file to write.
pub(crate) struct HostsFile {
    pub uid: String,
    pub path: PathBuf,
    pub text: String,
}

/// Writes a batch of hosts files; answers the pods whose files could not be written, as on a full disk.
pub(crate) fn write_all(files: Vec<HostsFile>) -> Vec<String> {
    let failed = files.into_iter().filter_map(|HostsFile { uid, path, text }| {
        let error = hosts_file::rewrite(&path, &text).err()?;
        tracing::warn!(path = %path.display(), error = %error, "hosts file not rewritten, will be tried again");
        Some(uid)
    });
    failed.collect()
}
