//! Samba as a domain controller.

use std::fmt::Write as _;

use pumice_api::directory::ACTIVE_DIRECTORY;
use pumice_testkit::DomainController;

use super::*;

/// Members of the long group: two ranges of 1,500 and some.
const MEMBERS: usize = 3_000;

fn user(name: &str, more: &str) -> String {
    format!(
        "dn: CN={name},OU=desk,DC=example,DC=org\nobjectClass: user\nsAMAccountName: {name}\nuserAccountControl: 544\n{more}\n"
    )
}

fn group(name: &str, more: &str, members: &[&str]) -> String {
    let mut ldif =
        format!("dn: CN={name},OU=desk,DC=example,DC=org\nobjectClass: group\nsAMAccountName: {name}\n{more}");
    members.iter().for_each(|member| writeln!(ldif, "member: {member},DC=example,DC=org").unwrap());
    ldif + "\n"
}

#[tokio::test]
async fn accounts_groups_and_ranges_of_active_directory() {
    let mut ldif = "dn: OU=desk,DC=example,DC=org\nobjectClass: organizationalUnit\n\n".to_owned();
    ldif += &user("alice", "uidNumber: 4001\ngidNumber: 5000\nunixHomeDirectory: /home/alice\n");
    ldif += &user("bob", "uidNumber: 4002\n");
    ldif += &user("zoe", "uidNumber: 4003\ngidNumber: 5000\n");
    ldif += &user("nouid", "");
    ldif += &user("other", "uidNumber: 4005\ngidNumber: 5000\n");
    let contacts: Vec<String> = (0..MEMBERS - 1).map(|n| format!("CN=c{n},OU=desk")).collect();
    contacts.iter().for_each(|dn| write!(ldif, "dn: {dn},DC=example,DC=org\nobjectClass: contact\n\n").unwrap());
    let mut members: Vec<&str> = contacts.iter().map(String::as_str).collect();
    members.push("CN=zoe,OU=desk");
    ldif += &group("long", "gidNumber: 5001\n", &members);
    ldif += &group("team", "", &["CN=alice,OU=desk", "CN=nouid,OU=desk"]);
    ldif += &group("research (a)", "gidNumber: 5002\n", &["CN=team,OU=desk", "CN=long,OU=desk"]);
    ldif += &group("everybody", "gidNumber: 5003\n", &["CN=Domain Users,CN=Users"]);
    let Some(server) = DomainController::start(&ldif) else {
        eprintln!("not run: a domain controller needs root for its ports");
        return;
    };
    server.change(
        "dn: CN=Domain Users,CN=Users,DC=example,DC=org\nchangetype: modify\nadd: gidNumber\ngidNumber: 5100\n",
    );
    let directory = LdapDirectory {
        url: server.url(),
        ca: server.authority().to_owned(),
        bind_dn: server.admin().0.to_owned(),
        user_base: "DC=example,DC=org".to_owned(),
        schema: ACTIVE_DIRECTORY.to_owned(),
        groups: vec!["research (a)".to_owned()],
        ..LdapDirectory::default()
    };
    let read = async |directory: &LdapDirectory, last: Option<&str>| {
        super::read(directory, Some(server.admin().1), last).await.unwrap()
    };
    let Look::Whole { mut reading, stamp } = read(&directory, None).await else { panic!("unchanged") };
    reading.entries.sort_by(|a, b| a.user.cmp(&b.user));
    // Members of members, and one behind the first range.
    assert_eq!(users(&reading.entries), ["alice", "nouid", "zoe"]);
    let alice = &reading.entries[0];
    assert_eq!(
        (alice.uid, alice.gid, alice.home.as_str(), alice.disabled),
        (Some(4001), Some(5000), "/home/alice", false)
    );
    assert_eq!((alice.id.len(), &alice.groups[..]), (36, &[5002, 5003, 5100][..]));
    assert_eq!((reading.entries[1].uid, reading.entries[1].gid), (None, Some(5100)));
    let mut groups = reading.entries[2].groups.clone();
    groups.sort_unstable();
    assert_eq!(groups, [5001, 5002, 5003, 5100]);
    assert_eq!(read(&directory, stamp.as_deref()).await, Look::Unchanged);
    // Nobody is listed as a member of his first group.
    let everybody = LdapDirectory {
        groups: vec!["everybody".to_owned()],
        user_filter: "(uidNumber=*)".to_owned(),
        ..directory.clone()
    };
    let Look::Whole { mut reading, .. } = read(&everybody, None).await else { panic!("unchanged") };
    reading.entries.sort_by(|a, b| a.user.cmp(&b.user));
    assert_eq!(users(&reading.entries), ["alice", "bob", "other", "zoe"]);
    // Disabled and renamed: the id stays.
    let dn = "dn: CN=alice,OU=desk,DC=example,DC=org\nchangetype: modify\n";
    server.change(&format!("{dn}replace: userAccountControl\nuserAccountControl: 546\n"));
    server.change(&format!("{dn}replace: sAMAccountName\nsAMAccountName: alicia\n"));
    let Look::Whole { reading, .. } = read(&directory, stamp.as_deref()).await else { panic!("unchanged") };
    let alicia = reading.entries.iter().find(|entry| entry.user == "alicia").unwrap();
    assert_eq!((alicia.id.as_str(), alicia.disabled), (alice_id(alice), true));
}

fn alice_id(alice: &Entry) -> &str {
    &alice.id
}
