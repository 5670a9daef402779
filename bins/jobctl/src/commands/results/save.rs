//! Results as files of a folder, one for each key.
//!
//! Invariant: keys that differ have names that differ, and no name leaves the folder or is longer than file systems take.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use pumice_jobs::bundle::Status;
use pumice_jobs::results::Row;
use pumice_units::stable_hash;

use crate::failure::Failure;

/// The longest name that is written out; file systems take 255 bytes.
const NAME_BYTES_MAX: usize = 200;

/// A folder that gets the result of each record, and counts them.
pub struct Folder {
    path: PathBuf,
    saved: u64,
    without: u64,
}

impl Folder {
    /// Makes it, if it is not there.
    pub fn make(path: &Path) -> Result<Folder, Failure> {
        let made = fs::create_dir_all(path).with_context(|| format!("cannot make {}", path.display()));
        made.map_err(Failure::Machine)?;
        Ok(Folder { path: path.to_owned(), saved: 0, without: 0 })
    }

    /// Writes the result of a record that succeeded, or that `also_failed`, over one that is there.
    pub fn save(&mut self, row: &Row, also_failed: bool) -> Result<(), Failure> {
        let counts = row.status == Some(Status::Succeeded) || also_failed;
        let (true, Some(result)) = (counts, &row.report.result) else {
            self.without += 1;
            return Ok(());
        };
        let path = self.path.join(name_of(&row.key));
        let written = fs::write(&path, result).with_context(|| format!("cannot write {}", path.display()));
        written.map_err(Failure::Machine)?;
        self.saved += 1;
        Ok(())
    }

    /// What came of it.
    pub fn summary(&self) -> String {
        let without = if self.without > 0 { format!("; {} records have none", self.without) } else { String::new() };
        format!("{} results saved in {}{without}", self.saved, self.path.display())
    }
}

/// The key where it is harmless, else with `%` and two digits for each byte that is not.
fn name_of(key: &str) -> String {
    let mut name = String::new();
    for (at, byte) in key.bytes().enumerate() {
        let plain = byte.is_ascii_alphanumeric() || b"_-+=,@".contains(&byte) || (byte == b'.' && at > 0);
        if plain {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("%{byte:02X}"));
        }
    }
    if name.len() > NAME_BYTES_MAX {
        name.truncate(NAME_BYTES_MAX);
        // No key that fits has a name as long as this.
        name.push_str(&format!("~{:016x}", stable_hash(key.bytes())));
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_become_names_within_the_folder() {
        for (key, name) in [
            ("2024-01-02", "2024-01-02"),
            ("2024-01-15..2024-01-31", "2024-01-15..2024-01-31"),
            ("lr=0.1,seed=2", "lr=0.1,seed=2"),
            ("..", "%2E."),
            (".hidden", "%2Ehidden"),
            ("../../etc/passwd", "%2E.%2F..%2Fetc%2Fpasswd"),
            ("50%", "50%25"),
            ("日", "%E6%97%A5"),
        ] {
            assert_eq!(name_of(key), name);
        }
        let [one, other] = ["a", "b"].map(|end| name_of(&format!("{}{end}", "é".repeat(120))));
        assert!(one != other && one.len() < 255, "{one}");
    }
}
