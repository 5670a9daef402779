//! What the lists of users and groups of a container's root say of a user.
//!
//! Invariant: reads the files of a root folder that the administrator chose, or of the machine; what is not there or can't be read
//! says nothing. Called when a pod is resolved.

use std::fs;
use std::io::Read;
use std::path::Path;

/// Largest list that is read, in bytes.
const LIST_BYTES_MAX: u64 = 4 << 20;

/// The home of `uid` as the list of users in `root` says.
pub(crate) fn home(root: &Path, uid: u32) -> String {
    let found = user(&list(root, "etc/passwd"), uid).map(|user| user.home).filter(|home| !home.is_empty());
    found.unwrap_or_else(|| if uid == 0 { "/root".into() } else { "/".into() })
}

/// The groups that have `uid` among their members, by the lists of the first of `roots` that has one.
pub(crate) fn groups(roots: &[&Path], uid: u32) -> Vec<u32> {
    let first =
        |name: &str| roots.iter().map(|root| list(root, name)).find(|text| !text.is_empty()).unwrap_or_default();
    match user(&first("etc/passwd"), uid) {
        Some(user) => groups_of(&first("etc/group"), &user.name),
        None => Vec::new(),
    }
}

struct User {
    name: String,
    home: String,
}

fn user(passwd: &str, uid: u32) -> Option<User> {
    passwd.lines().map(|line| line.split(':').collect::<Vec<_>>()).find_map(|fields| {
        let [name, _, listed, _, _, home, ..] = fields[..] else { return None };
        if listed.parse() == Ok(uid) { Some(User { name: name.to_owned(), home: home.to_owned() }) } else { None }
    })
}

fn groups_of(group: &str, name: &str) -> Vec<u32> {
    let lines = group.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let found = lines.filter_map(|fields| {
        let [_, _, gid, members] = fields[..] else { return None };
        let is_member = members.split(',').any(|member| member.trim() == name);
        if is_member { gid.parse().ok() } else { None }
    });
    found.collect()
}

/// The text of a list, or nothing.
fn list(root: &Path, name: &str) -> String {
    let path = root.join(name);
    // A pipe that somebody put there would hold us up.
    if !fs::metadata(&path).is_ok_and(|found| found.is_file()) {
        return String::new();
    }
    let mut text = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(LIST_BYTES_MAX).read_to_end(&mut text));
    if read.is_ok() { String::from_utf8_lossy(&text).into_owned() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_say_the_home_and_the_groups_of_a_user() {
        let (root, over) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for dir in [&root, &over] {
            fs::create_dir(dir.path().join("etc")).unwrap();
        }
        let passwd = "root:x:0:0:root:/root:/bin/sh\nada:x:7:7::/home/ada:/bin/sh\nnameless\nada2:x:7:7::/b:/bin/sh\n";
        fs::write(root.path().join("etc/passwd"), passwd).unwrap();
        fs::write(
            root.path().join("etc/group"),
            "root:x:0:\ndisk:x:6:root,ada\nodd:x:no:ada\nadam:x:8:adam\nvideo:x:44:ada\n",
        )
        .unwrap();
        fs::write(over.path().join("etc/group"), "web:x:80:ada\n").unwrap();
        let (root, over) = (root.path(), over.path());
        for (uid, home_of, groups_of) in [(0, "/root", vec![6]), (7, "/home/ada", vec![6, 44]), (9, "/", vec![])] {
            assert_eq!((home(root, uid).as_str(), groups(&[root], uid)), (home_of, groups_of), "{uid}");
        }
        assert_eq!(groups(&[over, root], 7), [80], "a layer over the root has its own list of groups");
        assert_eq!((home(&over.join("none"), 0).as_str(), groups(&[&over.join("none")], 0)), ("/root", vec![]));
    }
}
