//! Groups and home of a container's user: what the pod names, and what the lists of users and groups of the container's root say.
//!
//! Invariant: reads the files of a root folder that the administrator chose, or of the machine, or of an image's layers and nothing
//! outside of them; what is not there or can't be read says nothing. Called when a pod is resolved.

use std::fs;
use std::io::Read;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{PodSecurityContext, SecurityContext};
use pumice_linux::detached_mount::descriptor_path;
use pumice_linux::paths::{Missing, open_in_root, open_path};

use crate::spec_numbers::{self, NumberError};

const PASSWD: &str = "etc/passwd";
const GROUP: &str = "etc/group";
/// Largest list that is read, in bytes.
const LIST_BYTES_MAX: u64 = 4 << 20;

/// The lists of users and groups that a container sees.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    passwd: String,
    group: String,
}

impl Lists {
    /// Each of the first folder that has it.
    pub(crate) fn of_roots(roots: &[&Path]) -> Lists {
        let first =
            |name: &str| roots.iter().map(|root| list(root, name)).find(|text| !text.is_empty()).unwrap_or_default();
        Lists { passwd: first(PASSWD), group: first(GROUP) }
    }

    /// Of an image, the lowest layer first. Links in it lead nowhere but into the layer.
    pub(crate) fn of_layers(layers: &[PathBuf]) -> Lists {
        Lists { passwd: list_in_layers(layers, PASSWD), group: list_in_layers(layers, GROUP) }
    }

    /// The home of `uid`.
    pub(crate) fn home(&self, uid: u32) -> String {
        let found = self.by_uid(uid).map(|user| user.home).filter(|home| !home.is_empty());
        found.unwrap_or_else(|| if uid == 0 { "/root".into() } else { "/".into() })
    }

    /// Whether they have `uid`.
    pub(crate) fn has(&self, uid: u32) -> bool {
        self.by_uid(uid).is_some()
    }

    /// The groups that have `uid` among their members.
    pub(crate) fn groups(&self, uid: u32) -> Vec<u32> {
        self.by_uid(uid).map(|user| groups_of(&self.group, &user.name)).unwrap_or_default()
    }

    /// The group that `uid` is in first of all.
    pub(crate) fn first_group(&self, uid: u32) -> Option<u32> {
        self.by_uid(uid).and_then(|user| user.gid)
    }

    /// Who an image's `USER` is: a user, or a user and a group, each by name or number. The error is the name that is not listed.
    pub(crate) fn find(&self, text: &str) -> Result<(u32, Option<u32>), String> {
        let (user, group) = text.split_once(':').map_or((text, None), |(user, group)| (user, Some(group)));
        let (uid, first) = match (user.parse::<u32>(), self.user(|listed| listed.name == user)) {
            // A number is a number, as for every engine.
            (Ok(uid), _) => (uid, self.first_group(uid)),
            (Err(_), Some(listed)) => (listed.uid, listed.gid),
            (Err(_), None) => return Err(user.to_owned()),
        };
        let group = group.filter(|group| !group.is_empty());
        let Some(group) = group else { return Ok((uid, first)) };
        let listed = || self.group.lines().find_map(|line| group_number(line, group));
        group.parse().ok().or_else(listed).map(|gid| (uid, Some(gid))).ok_or_else(|| group.to_owned())
    }

    fn by_uid(&self, uid: u32) -> Option<User> {
        self.user(|user| user.uid == uid)
    }

    fn user(&self, is_it: impl Fn(&User) -> bool) -> Option<User> {
        self.passwd.lines().filter_map(User::read).find(is_it)
    }
}

/// All groups of a container whose first is `gid`; with them those of its user in the lists of its `roots`, unless the pod wants
/// only what it names itself.
pub(crate) fn all_groups(pod: &PodSecurityContext, uid: u32, gid: u32, lists: &Lists) -> Result<Vec<u32>, NumberError> {
    let supplemental = pod.supplemental_groups.iter().flatten().map(|group| ("supplementalGroups", *group));
    let named = supplemental.chain(pod.fs_group.map(|group| ("fsGroup", group)));
    let named = named.map(|(field, group)| spec_numbers::identity(&format!("spec.securityContext.{field}"), group));
    let mut all = named.chain([Ok(gid)]).collect::<Result<Vec<u32>, NumberError>>()?;
    if pod.supplemental_groups_policy.as_deref() != Some("Strict") {
        let listed = lists.groups(uid).into_iter().filter(|group| !all.contains(group)).collect::<Vec<_>>();
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
    uid: u32,
    gid: Option<u32>,
    home: String,
}

impl User {
    fn read(line: &str) -> Option<User> {
        let fields: Vec<_> = line.split(':').collect();
        let [name, _, uid, gid, _, home, ..] = fields[..] else { return None };
        Some(User { name: name.to_owned(), uid: uid.parse().ok()?, gid: gid.parse().ok(), home: home.to_owned() })
    }
}

fn group_number(line: &str, name: &str) -> Option<u32> {
    let fields: Vec<_> = line.split(':').collect();
    let [listed, _, gid, ..] = fields[..] else { return None };
    if listed == name { gid.parse().ok() } else { None }
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
    text_of(&root.join(name))
}

/// The text of a list in the uppermost layer that has it.
fn list_in_layers(layers: &[PathBuf], name: &str) -> String {
    for layer in layers.iter().rev() {
        let opened = open_path(layer).and_then(|layer| open_in_root(layer.as_fd(), Path::new(name), Missing::Refuse));
        // One that was taken away in a layer is a device there, and has no text.
        if let Ok(file) = opened {
            return text_of(Path::new(&descriptor_path(&file)));
        }
    }
    String::new()
}

fn text_of(path: &Path) -> String {
    // A pipe that somebody put there would hold us up.
    if !fs::metadata(path).is_ok_and(|found| found.is_file()) {
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
            let lists = Lists::of_roots(&[root]);
            assert_eq!((lists.home(uid).as_str(), lists.groups(uid)), (home_of, groups_of), "{uid}");
        }
        assert_eq!(Lists::of_roots(&[over, root]).groups(7), [80], "a layer over the root has its own list of groups");
        let none = Lists::of_roots(&[&over.join("none")]);
        assert_eq!((none.home(0).as_str(), none.groups(0)), ("/root", vec![]));
    }

    #[test]
    fn an_images_user_is_looked_up_in_its_own_lists() {
        let (low, high) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for dir in [&low, &high] {
            fs::create_dir(dir.path().join("etc")).unwrap();
        }
        fs::write(low.path().join("etc/passwd"), "old:x:1:1::/:\n").unwrap();
        fs::write(low.path().join("etc/group"), "staff:x:50:\n").unwrap();
        fs::write(high.path().join("etc/passwd"), "app:x:1000:1001::/srv:\n7:x:8:8::/:\n").unwrap();
        let layers = [low.path().to_owned(), high.path().to_owned()];
        let lists = Lists::of_layers(&layers);
        let cases = [
            ("app", Ok((1000, Some(1001)))),
            ("app:staff", Ok((1000, Some(50)))),
            ("app:9", Ok((1000, Some(9)))),
            ("1000", Ok((1000, Some(1001)))),
            ("7", Ok((7, None))),
            ("12:", Ok((12, None))),
            ("old", Err("old".to_owned())),
            ("app:wheel", Err("wheel".to_owned())),
            ("-1", Err("-1".to_owned())),
        ];
        for (text, expected) in cases {
            assert_eq!(lists.find(text), expected, "{text}");
        }
        // A link of the image's leads into the image.
        fs::remove_file(high.path().join("etc/passwd")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", high.path().join("etc/passwd")).unwrap();
        assert_eq!(Lists::of_layers(&layers).find("root"), Err("root".to_owned()));
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
            assert_eq!(all_groups(&context, 7, 2, &Lists::of_roots(&[root.path()])).unwrap(), expected, "{policy}");
        }
    }
}
