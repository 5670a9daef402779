//! Groups and home of a container's user: what the pod names, and what the lists of users and groups of the container's root say.
//!
//! Invariant: reads the files of a root folder that the administrator chose, or of the machine; what is not there or can't be read
//! says nothing. Called when a pod is resolved.

use std::fs;
use std::io::Read;
use std::path::Path;

use k8s_openapi::api::core::v1::{PodSecurityContext, SecurityContext};

use crate::spec_numbers::{self, NumberError};

/// Largest list that is read, in bytes.
const LIST_BYTES_MAX: u64 = 4 << 20;

/// The home of `uid` as the list of users in `root` says.
pub(crate) fn home(root: &Path, uid: u32) -> String {
    let found = user(&list(root, "etc/passwd"), uid).map(|user| user.home).filter(|home| !home.is_empty());
    found.unwrap_or_else(|| if uid == 0 { "/root".into() } else { "/".into() })
}

/// The groups that have `uid` among their members, by the lists of the first of `roots` that has one.
fn groups(roots: &[&Path], uid: u32) -> Vec<u32> {
    let first =
        |name: &str| roots.iter().map(|root| list(root, name)).find(|text| !text.is_empty()).unwrap_or_default();
    match user(&first("etc/passwd"), uid) {
        Some(user) => groups_of(&first("etc/group"), &user.name),
        None => Vec::new(),
    }
}

/// All groups of a container whose first is `gid`; with them those of its user in the lists of its `roots`, unless the pod wants
/// only what it names itself.
pub(crate) fn all_groups(
    pod: &PodSecurityContext,
    uid: u32,
    gid: u32,
    roots: &[&Path],
) -> Result<Vec<u32>, NumberError> {
    let supplemental = pod.supplemental_groups.iter().flatten().map(|group| ("supplementalGroups", *group));
    let named = supplemental.chain(pod.fs_group.map(|group| ("fsGroup", group)));
    let named = named.map(|(field, group)| spec_numbers::identity(&format!("spec.securityContext.{field}"), group));
    let mut all = named.chain([Ok(gid)]).collect::<Result<Vec<u32>, NumberError>>()?;
    if pod.supplemental_groups_policy.as_deref() != Some("Strict") {
        let listed = groups(roots, uid).into_iter().filter(|group| !all.contains(group)).collect::<Vec<_>>();
        all.extend(listed);
    }
    Ok(all)
}

/// Whether the groups of a container are left to the node.
pub(crate) fn names_no_group(pod: &PodSecurityContext, context: &SecurityContext) -> bool {
    let names_some = context.run_as_group.or(pod.run_as_group).or(pod.fs_group).is_some()
        || pod.supplemental_groups.as_ref().is_some_and(|groups| !groups.is_empty());
    !names_some && pod.supplemental_groups_policy.as_deref() != Some("Strict")
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
    use serde_json::json;

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

    #[test]
    fn groups_of_the_image_are_merged_unless_the_policy_is_strict() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("etc")).unwrap();
        fs::write(root.path().join("etc/passwd"), "ada:x:7:7::/:/bin/sh\n").unwrap();
        fs::write(root.path().join("etc/group"), "video:x:44:ada\nfour:x:4:ada\n").unwrap();
        for (policy, expected) in
            [(json!(null), vec![4, 2, 44]), (json!("Merge"), vec![4, 2, 44]), (json!("Strict"), vec![4, 2])]
        {
            let context =
                json!({"runAsUser": 7, "runAsGroup": 2, "supplementalGroups": [4], "supplementalGroupsPolicy": policy});
            let context = serde_json::from_value(context).unwrap();
            assert_eq!(all_groups(&context, 7, 2, &[root.path()]).unwrap(), expected, "{policy}");
        }
    }
}
