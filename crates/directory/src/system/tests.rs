//! The machine's users, and those of a `getent` that is a script.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn directory(groups: &[&str]) -> SystemDirectory {
    SystemDirectory { groups: groups.iter().map(|group| (*group).to_owned()).collect() }
}

/// A `getent` that answers as the script says; the folder has to live as long.
fn script(body: &str) -> (tempfile::TempDir, Getent) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("getent");
    std::fs::write(&program, format!("#!/bin/sh\n{body}\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    (folder, Getent { program, ..Getent::default() })
}

#[tokio::test]
async fn the_machines_own_users_are_read() {
    let reading = Getent::default().read(&directory(&["root"])).await.unwrap();
    let root = reading.entries.iter().find(|entry| entry.user == "root").unwrap();
    assert_eq!((root.id.as_str(), root.uid, root.gid, root.home.as_str()), ("root", Some(0), Some(0), "/root"));
    let error = Getent::default().read(&directory(&["root", "no-such-group"])).await.unwrap_err();
    assert!(matches!(&error, SystemReadError::NoGroup { group } if group == "no-such-group"), "{error}");
    // A number is not taken for the group that has it.
    assert!(matches!(Getent::default().read(&directory(&["0"])).await, Err(SystemReadError::NoGroup { .. })));
}

#[tokio::test]
async fn members_are_found_by_list_by_first_group_and_one_by_one() {
    let (_folder, getent) = script(
        r#"case "$*" in
          "group -- research") echo "research:x:5000:alice,far,gone" ;;
          "passwd") printf 'alice:x:4001:4001:A,,:/home/alice:/bin/sh\nbob:x:4002:5000::/home/bob:/bin/sh\nroot:x:0:0::/:/bin/sh\n' ;;
          "passwd -- far gone") echo "far:x:70001:70001::/nfs/far:/bin/sh"; exit 2 ;;
          "initgroups -- alice bob far") printf 'alice   5000 27\nbob\nfar 5000\n' ;;
          *) echo "$*" >&2; exit 9 ;;
        esac"#,
    );
    let reading = getent.read(&directory(&["research"])).await.unwrap();
    let users: Vec<_> =
        reading.entries.iter().map(|entry| (entry.user.as_str(), entry.uid, &entry.groups[..])).collect();
    let expected = [("alice", Some(4001), &[5000, 27][..]), ("bob", Some(4002), &[]), ("far", Some(70001), &[5000])];
    assert_eq!(users, expected);
    assert_eq!(reading.doubtful, BTreeSet::from(["gone".to_owned()]));
}

#[tokio::test]
async fn what_fails_or_is_not_there_is_told() {
    let (_folder, getent) = script("echo broken >&2; exit 3");
    let error = getent.read(&directory(&["research"])).await.unwrap_err();
    assert!(error.to_string().contains("getent group failed (exit status: 3): broken"), "{error}");
    let getent = Getent { program: "/no/such/getent".into(), ..Getent::default() };
    assert!(matches!(getent.read(&directory(&["x"])).await, Err(SystemReadError::Run { .. })));
}

#[tokio::test]
async fn a_service_that_hangs_is_not_waited_for() {
    let (_folder, mut getent) = script("exec sleep 1000");
    getent.answer_within = Duration::from_millis(100);
    let error = getent.read(&directory(&["x"])).await.unwrap_err();
    assert!(matches!(error, SystemReadError::TooSlow { database: "group" }), "{error}");
}
