//! Which ids `/etc/subuid` and `/etc/subgid` give to a user, and what is missing where that is not enough.
//!
//! Invariant: no id is taken that is somebody else's: another user's by the same files, or an account's or a group's of the machine.
//! Pods would be that somebody.

use std::fs;
use std::ops::Range;

use nix::unistd::{Uid, User};

use super::{HELPERS, POD_IDS, own_ids};
use pumice_shim::spec::{IdRange, Users};

/// Ids beside the user's own.
const OTHERS: u32 = POD_IDS - 1;
/// The first ids that the machine's own tools give to users.
const FIRST_GIVEN: u64 = 100_000;
/// Lines of one user that are looked at: the kernel takes 340 ranges.
const LINES_MAX: usize = 64;

/// Why a user's pods have no other ids, and what gives them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Missing {
    pub why: String,
    pub remedy: String,
}

impl Missing {
    fn new(why: impl Into<String>, remedy: impl Into<String>) -> Missing {
        Missing { why: why.into(), remedy: remedy.into() }
    }

    pub(super) fn helper(helper: &str) -> Missing {
        Missing::new(format!("{helper} is not there"), "install the package uidmap")
    }

    pub(super) fn refused(helper: &str, said: &str) -> Missing {
        let text = "have it belong to root with the set-user-ID bit, as the package uidmap installs it, and start pumice where \
                    programs may gain rights (no NoNewPrivileges=yes)";
        Missing::new(format!("{helper} refuses: {said}"), text)
    }

    pub(super) fn namespaces(error: &std::io::Error) -> Missing {
        Missing::new(
            format!("no user namespaces: {error}"),
            "allow them to users (user.max_user_namespaces, and kernel.apparmor_restrict_unprivileged_userns=0 on Ubuntu)",
        )
    }

    /// Both at once, so that one visit to root is enough.
    fn and(self, other: Missing) -> Missing {
        let joined =
            |one: String, other: String, by: &str| if one == other { one } else { format!("{one}{by}{other}") };
        Missing { why: joined(self.why, other.why, "; "), remedy: joined(self.remedy, other.remedy, ", and ") }
    }
}

/// The file of one kind of ids, and whose these are otherwise.
struct Source<'a> {
    path: &'a str,
    text: &'a str,
    /// Accounts or groups of the machine, in lines `NAME:x:ID`.
    accounts: &'a str,
    accounts_path: &'a str,
    own: u32,
}

/// The ids of the user that this process is.
pub(super) fn of_this_user() -> Result<Users, Missing> {
    let (uid, gid) = own_ids();
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let name = User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name);
    let Some(name) = name else {
        return Err(Missing::new(
            format!("user {uid} has no name, by which newuidmap knows it"),
            format!("add user {uid} to /etc/passwd"),
        ));
    };
    let (subuid, subgid, passwd, group) =
        (read("/etc/subuid"), read("/etc/subgid"), read("/etc/passwd"), read("/etc/group"));
    let uids = Source { path: "/etc/subuid", text: &subuid, accounts: &passwd, accounts_path: "/etc/passwd", own: uid };
    let gids = Source { path: "/etc/subgid", text: &subgid, accounts: &group, accounts_path: "/etc/group", own: gid };
    let found = users(&name, uid, &uids, &gids);
    let absent = HELPERS.iter().find(|(helper, _)| !is_on_path(helper));
    match (absent, found) {
        (None, found) => found,
        (Some((helper, _)), Ok(_)) => Err(Missing::helper(helper)),
        (Some((helper, _)), Err(missing)) => Err(Missing::helper(helper).and(missing)),
    }
}

fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

fn users(name: &str, uid: u32, uids: &Source<'_>, gids: &Source<'_>) -> Result<Users, Missing> {
    match (ranges(name, uid, uids), ranges(name, uid, gids)) {
        (Ok(uids), Ok(gids)) => Ok(Users { uids, gids }),
        (Err(one), Err(other)) if one.remedy == other.remedy => Err(one.and(other)),
        (Err(one), Err(other)) => {
            // Most often neither has a line, and the same one does for both.
            let line =
                |missing: &Missing, path: &str| missing.remedy.strip_suffix(&format!(" to {path}")).map(str::to_owned);
            match (line(&one, uids.path), line(&other, gids.path)) {
                (Some(added), Some(same)) if added == same => {
                    let remedy = format!("{added} to {} and {}", uids.path, gids.path);
                    Err(Missing { remedy, ..one.and(other) })
                }
                _ => Err(one.and(other)),
            }
        }
        (Err(missing), Ok(_)) | (Ok(_), Err(missing)) => Err(missing),
    }
}

/// A line of a file of ids.
struct Line<'a> {
    text: &'a str,
    ids: Range<u64>,
    is_own: bool,
}

fn lines<'a>(text: &'a str, name: &str, uid: u32) -> impl Iterator<Item = Line<'a>> {
    let uid = uid.to_string();
    text.lines().filter_map(move |text| {
        let mut fields = text.split(':').map(str::trim);
        let (owner, first, count) = (fields.next()?, fields.next()?.parse::<u64>().ok()?, fields.next()?.parse().ok()?);
        Some(Line { text, ids: first..first.saturating_add(count), is_own: owner == name || owner == uid })
    })
}

/// The ids of a pod: 0 is the user's own, and the others are of the lines of this user, one after the other.
fn ranges(name: &str, uid: u32, source: &Source<'_>) -> Result<Vec<IdRange>, Missing> {
    let Source { path, text, own, .. } = source;
    let mut found = vec![IdRange { inside: 0, outside: *own, count: 1 }];
    let mut taken: Vec<Range<u64>> = Vec::new();
    let mut inside = 1;
    for Line { text: line, ids, .. } in lines(text, name, uid).filter(|line| line.is_own).take(LINES_MAX) {
        // A line that is there twice, as by name and by number, gives nothing more.
        if inside >= POD_IDS || taken.iter().any(|before| overlap(before, &ids)) {
            continue;
        }
        if let Some(other) = others(name, uid, source, &ids) {
            return Err(Missing::new(
                format!("{line} in {path} has ids of {other}"),
                format!("have that line name ids that are nobody's, as {}", free_line(name, uid, source)),
            ));
        }
        let length = u32::try_from(ids.end - ids.start).unwrap_or(u32::MAX);
        let (Ok(outside), count) = (u32::try_from(ids.start), length.min(POD_IDS - inside)) else { continue };
        if count == 0 || outside.checked_add(count).is_none() {
            continue;
        }
        found.push(IdRange { inside, outside, count });
        taken.push(ids);
        inside += count;
    }
    match inside - 1 {
        OTHERS => Ok(found),
        given => {
            let why = match given {
                0 => format!("{path} gives no ids to {name}"),
                given => format!("{path} gives {given} ids to {name}, and a pod takes {OTHERS}"),
            };
            Err(Missing::new(why, format!("add {} to {path}", free_line(name, uid, source))))
        }
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

/// Whose else some of `ids` are.
fn others(name: &str, uid: u32, source: &Source<'_>, ids: &Range<u64>) -> Option<String> {
    if ids.contains(&u64::from(source.own)) {
        return Some(format!("{name}'s own ({})", source.own));
    }
    let line = lines(source.text, name, uid).find(|line| !line.is_own && overlap(&line.ids, ids));
    let line = line.map(|line| format!("another user, by {}", line.text));
    let account = || {
        source.accounts.lines().find_map(|line| {
            let mut fields = line.split(':');
            let (account, id) = (fields.next()?, fields.nth(1)?.parse().ok()?);
            ids.contains(&id).then(|| format!("{account} in {}", source.accounts_path))
        })
    };
    line.or_else(account)
}

/// A line that would do.
fn free_line(name: &str, uid: u32, source: &Source<'_>) -> String {
    let last =
        lines(source.text, name, uid).map(|line| line.ids.end).filter(|end| *end < u64::from(u32::MAX / 2)).max();
    let mut first = last.unwrap_or(FIRST_GIVEN).max(FIRST_GIVEN);
    while others(name, uid, source, &(first..first + u64::from(POD_IDS))).is_some() {
        first += u64::from(POD_IDS);
    }
    format!("{name}:{first}:{POD_IDS}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str =
        "root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\nbob:x:70000:1::/:/bin/sh\n";

    fn uids(text: &str) -> Source<'_> {
        Source { path: "/etc/subuid", text, accounts: PASSWD, accounts_path: "/etc/passwd", own: 1000 }
    }

    fn found(text: &str) -> Result<Vec<(u32, u32, u32)>, Missing> {
        let ranges = ranges("alice", 1000, &uids(text))?;
        Ok(ranges.into_iter().map(|range| (range.inside, range.outside, range.count)).collect())
    }

    #[test]
    fn a_pod_has_the_user_and_65535_others() {
        let own = (0, 1000, 1);
        for (text, expected) in [
            ("alice:100000:65536\n", vec![own, (1, 100_000, 65_535)]),
            ("1000:200000:65535\n", vec![own, (1, 200_000, 65_535)]),
            (
                "bob:100000:65536\nodd\nalice:x:1\nalice:200000:1000\n1000:200000:1000\nalice:300000:65536\n",
                vec![own, (1, 200_000, 1000), (1001, 300_000, 64_535)],
            ),
        ] {
            assert_eq!(found(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_missing_is_told_with_a_line_that_gives_it() {
        for (text, why, remedy) in [
            ("", "/etc/subuid gives no ids to alice", "add alice:100000:65536 to /etc/subuid"),
            ("bob:100000:65536\n", "/etc/subuid gives no ids to alice", "add alice:165536:65536 to /etc/subuid"),
            (
                "alice:100000:65534\n",
                "/etc/subuid gives 65534 ids to alice, and a pod takes 65535",
                "add alice:165534:65536 to /etc/subuid",
            ),
            (
                "alice:500:65536\n",
                "alice:500:65536 in /etc/subuid has ids of alice's own (1000)",
                "have that line name ids that are nobody's, as alice:100000:65536",
            ),
            (
                "bob:100000:65536\nalice:150000:65536\n",
                "alice:150000:65536 in /etc/subuid has ids of another user, by bob:100000:65536",
                "have that line name ids that are nobody's, as alice:215536:65536",
            ),
            (
                "alice:65536:65536\n",
                "alice:65536:65536 in /etc/subuid has ids of bob in /etc/passwd",
                "have that line name ids that are nobody's, as alice:131072:65536",
            ),
            ("alice:4294967290:65536\n", "/etc/subuid gives no ids to alice", "add alice:100000:65536 to /etc/subuid"),
        ] {
            assert_eq!(found(text), Err(Missing::new(why, remedy)), "{text}");
        }
    }

    #[test]
    fn one_line_for_both_files_is_told_once() {
        let groups = Source { path: "/etc/subgid", accounts_path: "/etc/group", accounts: "", ..uids("") };
        let missing = users("alice", 1000, &uids(""), &groups).unwrap_err();
        assert_eq!(missing.remedy, "add alice:100000:65536 to /etc/subuid and /etc/subgid");
        let both = Missing::helper("newuidmap").and(missing);
        assert_eq!(
            both.remedy,
            "install the package uidmap, and add alice:100000:65536 to /etc/subuid and /etc/subgid"
        );
        let missing = users("alice", 1000, &uids("alice:100000:65536"), &groups).unwrap_err();
        assert_eq!(missing.remedy, "add alice:100000:65536 to /etc/subgid");
    }
}
