//! Readings of OpenLDAP's and Samba's servers, and of peers that break.

mod active_directory;
mod broken;

use std::time::Duration;

use pumice_machines::directory::Entry;
use pumice_testkit::{Slapd, SlapdSetup, group_of_names, posix_account, posix_group};

use super::*;

/// A directory at that server, which is read by its administrator.
fn directory(slapd: &Slapd) -> LdapDirectory {
    LdapDirectory {
        url: slapd.url(),
        ca: slapd.authority().to_owned(),
        bind_dn: slapd.admin().0.to_owned(),
        user_base: slapd.base().to_owned(),
        ..LdapDirectory::default()
    }
}

async fn look(directory: &LdapDirectory, last: Option<&str>) -> Result<Look, LdapReadError> {
    tokio::time::timeout(Duration::from_secs(60), read(directory, Some("secret"), last)).await.expect("it ends")
}

/// Entries in the order of their users' names, and the stamp.
async fn whole(directory: &LdapDirectory) -> (Vec<Entry>, Option<String>) {
    match look(directory, None).await.unwrap() {
        Look::Whole { mut reading, stamp } => {
            reading.entries.sort_by(|a, b| a.user.cmp(&b.user));
            (reading.entries, stamp)
        }
        Look::Unchanged => panic!("nothing was read before"),
    }
}

fn users(entries: &[Entry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.user.as_str()).collect()
}

async fn refused(directory: &LdapDirectory) -> String {
    pumice_units::with_causes(&look(directory, None).await.expect_err("it is refused"))
}

#[tokio::test]
async fn users_and_their_groups_are_read_page_by_page() {
    let mut entries: String = (0..1_200).map(|n| posix_account(&format!("u{n}"), 10_000 + n)).collect();
    entries += &posix_group("desk", 5000, &["u1", "u2"]);
    entries += &group_of_names("floor", 5001, &["cn=desk", "uid=u3,ou=people"]);
    entries += &group_of_names("house", 5002, &["cn=floor"]);
    entries += &group_of_names("loop", 5003, &["cn=loop", "cn=house"]);
    let slapd = Slapd::start(&entries);
    let mut directory = directory(&slapd);
    for url in [slapd.url(), slapd.start_tls_url()] {
        directory.url = url;
        let (entries, _) = whole(&directory).await;
        assert_eq!(entries.len(), 1_200);
        let of = |user: &str| entries.iter().find(|entry| entry.user == user).unwrap();
        let u1 = of("u1");
        assert_eq!((u1.uid, u1.gid, u1.home.as_str(), u1.disabled), (Some(10_001), Some(10_001), "/home/u1", false));
        assert_eq!((u1.id.len(), &u1.groups[..]), (36, &[5000, 5001, 5002, 5003][..]));
        assert_eq!(&of("u3").groups[..], &[5001, 5002, 5003]);
        assert!(of("u4").groups.is_empty());
    }
    directory.groups = vec!["Floor".to_owned()];
    assert_eq!(users(&whole(&directory).await.0), ["u1", "u2", "u3"]);
    directory.user_filter = "(uid=u2*)".to_owned();
    assert_eq!(users(&whole(&directory).await.0), ["u2"]);
    // Whoever is not logged in may read here, too.
    directory.bind_dn = String::new();
    assert_eq!(users(&whole(&directory).await.0), ["u2"]);
    directory.groups = vec!["no-such".to_owned()];
    assert!(refused(&directory).await.contains("there is no group \"no-such\""));
    (directory.groups, directory.user_filter) = (Vec::new(), "(uid=".to_owned());
    assert!(refused(&directory).await.contains("filter \"(uid=\" is none"));
}

#[tokio::test]
async fn a_server_that_counts_its_writes_is_read_again_when_something_was_written() {
    let slapd = Slapd::start(&(posix_account("alice", 4001) + &posix_account("bob", 4002)));
    let directory = directory(&slapd);
    let (entries, stamp) = whole(&directory).await;
    let id = entries[0].id.clone();
    assert_eq!(look(&directory, stamp.as_deref()).await.unwrap(), Look::Unchanged);
    // A renamed entry is the same.
    slapd
        .change("dn: uid=alice,ou=people,dc=example,dc=org\nchangetype: modrdn\nnewrdn: uid=alicia\ndeleteoldrdn: 1\n");
    let Look::Whole { reading, stamp } = look(&directory, stamp.as_deref()).await.unwrap() else { panic!("unchanged") };
    assert!(reading.entries.iter().any(|entry| entry.user == "alicia" && entry.id == id), "{reading:?}");
    // What is gone is a write as well.
    slapd.change("dn: uid=bob,ou=people,dc=example,dc=org\nchangetype: delete\n");
    let Look::Whole { reading, .. } = look(&directory, stamp.as_deref()).await.unwrap() else { panic!("unchanged") };
    assert_eq!(users(&reading.entries), ["alicia"]);
    let setup = SlapdSetup { no_stamp: true, ..SlapdSetup::default() };
    let slapd = Slapd::start_with(&setup, &posix_account("alice", 4001));
    assert_eq!(whole(&self::directory(&slapd)).await.1, None);
}

#[tokio::test]
async fn who_may_not_is_told_why() {
    let slapd = Slapd::start(&posix_account("alice", 4001));
    let directory = directory(&slapd);
    let wrong = read(&directory, Some("wrong"), None).await.unwrap_err();
    assert!(matches!(wrong, LdapReadError::Bind { code: 49, .. }), "{wrong}");
    assert!(wrong.to_string().contains("spec.ldap.bindSecret"), "{wrong}");
    // Nobody is even called without a password.
    for password in [None, Some("")] {
        let nobody = LdapDirectory { url: "ldaps://127.0.0.1:1".to_owned(), ..directory.clone() };
        let error = read(&nobody, password, None).await.unwrap_err();
        assert!(matches!(error, LdapReadError::NoPassword { .. }), "{error}");
    }
    let nowhere = LdapDirectory { user_base: "dc=other,dc=org".to_owned(), ..directory.clone() };
    assert!(refused(&nowhere).await.contains("look at userBase"));
    let other = LdapDirectory { url: "ldaps://".to_owned(), ..directory };
    assert!(refused(&other).await.contains("write ldaps://HOST"));
}

#[tokio::test]
async fn a_server_that_is_not_known_is_not_spoken_to() {
    let slapd = Slapd::start(&posix_account("alice", 4001));
    let stranger = Slapd::start("");
    let mut unknown = LdapDirectory { ca: stranger.authority().to_owned(), ..directory(&slapd) };
    for url in [slapd.url(), slapd.start_tls_url()] {
        unknown.url = url;
        let error = refused(&unknown).await;
        assert!(error.contains("can't be reached over TLS") && error.contains("certificate"), "{error}");
    }
    // For another name.
    let name = slapd.url().replace("127.0.0.1", "localhost");
    assert!(refused(&LdapDirectory { url: name, ..directory(&slapd) }).await.contains("not valid for name"));
    let expired = Slapd::start_with(&SlapdSetup { expired: true, ..SlapdSetup::default() }, "");
    let error = refused(&directory(&expired)).await;
    assert!(error.contains("expired"), "{error}");
    // A server without TLS gets no password.
    let plain = Slapd::start_with(&SlapdSetup { no_tls: true, ..SlapdSetup::default() }, &posix_account("alice", 4001));
    let error = refused(&LdapDirectory { url: plain.start_tls_url(), ..directory(&plain) }).await;
    assert!(error.contains("can't be reached over TLS"), "{error}");
}

#[tokio::test]
async fn a_limit_of_the_server_makes_no_short_reading() {
    let entries: String = (0..100).map(|n| posix_account(&format!("u{n}"), 10_000 + n)).collect();
    let setup = SlapdSetup {
        settings: "limits * size.soft=50 size.hard=50 size.prtotal=50".to_owned(),
        ..SlapdSetup::default()
    };
    let slapd = Slapd::start_with(&setup, &entries);
    let directory = LdapDirectory { bind_dn: String::new(), ..directory(&slapd) };
    let error = look(&directory, None).await.unwrap_err();
    assert!(matches!(error, LdapReadError::Search { code: 4 | 11, .. }), "{error}");
}

#[tokio::test]
async fn an_entry_whose_id_is_hidden_makes_no_reading() {
    let settings = "access to attrs=entryUUID by * none\naccess to * by * read".to_owned();
    let slapd = Slapd::start_with(&SlapdSetup { settings, ..SlapdSetup::default() }, &posix_account("alice", 4001));
    let directory = LdapDirectory { bind_dn: String::new(), ..directory(&slapd) };
    assert!(refused(&directory).await.contains("has no attribute entryUUID"));
}
