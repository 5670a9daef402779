//! The file of resource groups (`--admission-conf`), read at the start and again when it changes.
//!
//! Invariant: a file that is refused changes nothing: the groups before it go on, with one warning per change.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::LiveRules;
use crate::pod::{ResourceGroups, ResourceGroupsError};

/// How often the file is looked at. Files of ConfigMaps are swapped by links, which a watch of the file itself misses.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Why there are no resource groups.
#[derive(Debug, thiserror::Error)]
pub enum GroupsError {
    /// The file is not there, or not for us.
    #[error("{path} can't be read", path = path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Parse(#[from] ResourceGroupsError),
}

/// The file, and what was read last.
#[derive(Debug)]
pub struct GroupsFile {
    path: PathBuf,
    text: String,
}

impl GroupsFile {
    /// Reads the file for the first time, and puts its groups into the rules.
    pub fn load(path: &Path, rules: &LiveRules) -> Result<Self, GroupsError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| GroupsError::Read { path: path.to_owned(), source })?;
        apply(&text, rules)?;
        Ok(Self { path: path.to_owned(), text })
    }

    /// Follows the file for as long as it is polled, which it never ends. Cancel safe.
    pub async fn follow(mut self, rules: LiveRules) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            // A file that is gone for a moment is being swapped.
            if let Ok(text) = tokio::fs::read_to_string(&self.path).await {
                self.take(text, &rules);
            }
        }
    }

    /// Takes what the file says now.
    fn take(&mut self, text: String, rules: &LiveRules) {
        if text == self.text {
            return;
        }
        match apply(&text, rules) {
            Ok(()) => tracing::info!(path = %self.path.display(), "other resource groups"),
            Err(error) => tracing::warn!(path = %self.path.display(), %error, "resource groups stay as they were"),
        }
        self.text = text;
    }
}

fn apply(text: &str, rules: &LiveRules) -> Result<(), ResourceGroupsError> {
    let resource_groups = ResourceGroups::parse(text)?;
    rules.set(crate::Rules { resource_groups, ..crate::Rules::clone(&rules.get()) });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUPS: &str = "resourceGroups: [{resourceGroup: g, object: {key: namespace, value: [n]}, schedulerName: s}]";

    #[test]
    fn a_changed_file_counts_and_a_bad_one_does_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("admission.yaml");
        let rules = LiveRules::default();
        assert!(matches!(GroupsFile::load(&path, &rules), Err(GroupsError::Read { .. })));
        std::fs::write(&path, GROUPS).expect("write");
        let mut file = GroupsFile::load(&path, &rules).expect("good");
        let first = rules.get();
        assert_ne!(first.resource_groups, ResourceGroups::default());
        assert_eq!(first.queue_depth_max, 5, "the other rules stay");
        file.take("resourceGroups: 7".to_owned(), &rules);
        assert_eq!(rules.get().resource_groups, first.resource_groups);
        file.take(String::new(), &rules);
        assert_eq!(rules.get().resource_groups, ResourceGroups::default());
        file.take(GROUPS.to_owned(), &rules);
        assert_eq!(rules.get().resource_groups, first.resource_groups);
    }
}
