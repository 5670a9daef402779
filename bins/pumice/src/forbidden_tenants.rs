//! What no tenant may be on this machine: the platform's own user, and groups that are as good as root.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;

use pumice_controllers::{Forbidden, POWERFUL_GROUPS};

/// Where the machine lists its groups.
const GROUPS_FILE: &str = "/etc/group";
/// What is read of it at most.
const BYTES_MAX: u64 = 4 << 20;

/// Of this machine, as it is now.
pub fn of_this_machine() -> Forbidden {
    let mut text = String::new();
    let read = File::open(GROUPS_FILE).and_then(|file| file.take(BYTES_MAX).read_to_string(&mut text));
    if let Err(error) = read {
        tracing::warn!(%error, "{GROUPS_FILE} can't be read: tenants may have groups such as docker that are numbered 1000 or more");
    }
    let own = rustix::process::geteuid().as_raw();
    Forbidden { uids: BTreeSet::from([i64::from(own)]), gids: powerful(&text) }
}

/// Numbers of the powerful groups of such a file: `name:password:number:members`.
fn powerful(groups: &str) -> BTreeSet<i64> {
    let number = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let number = fields.nth(1)?.parse().ok()?;
        POWERFUL_GROUPS.contains(&name).then_some(number)
    };
    groups.lines().filter_map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powerful_groups_are_found_by_their_names() {
        let groups = "root:x:0:\nresearch:x:5000:alice,bob\ndocker:x:1001:\n# docker:x:7\nbroken\ndisk:x:many:\n";
        assert_eq!(powerful(groups), BTreeSet::from([0, 1001]));
    }
}
