//! The authority's files and certificates over time.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use jiff::{Timestamp, ToSpan};
use pumice_auth::{AUTHENTICATED, Ca, CaError, MASTERS, identity_of, kubeconfig};

pub fn now() -> Timestamp {
    "2026-11-21T08:00:00Z".parse().unwrap()
}

fn days(count: i64) -> Timestamp {
    now() + (count * 24).hours()
}

#[test]
fn a_fingerprint_is_the_one_that_openssl_shows() {
    let directory = tempfile::tempdir().unwrap();
    let ca = Ca::open_or_create(directory.path(), now()).unwrap();
    let shown = pumice_auth::fingerprint(ca.pem()).unwrap();
    let path = directory.path().join("ca.crt");
    let openssl = std::process::Command::new("openssl")
        .args(["x509", "-noout", "-fingerprint", "-sha256", "-in"])
        .arg(path)
        .output();
    let openssl = String::from_utf8(openssl.unwrap().stdout).unwrap();
    let digits: String = openssl.trim().rsplit('=').next().unwrap().chars().filter(|letter| *letter != ':').collect();
    use base64::Engine as _;
    let hash = base64::engine::general_purpose::STANDARD_NO_PAD.decode(shown.strip_prefix("SHA256:").unwrap()).unwrap();
    assert_eq!(hash.iter().map(|byte| format!("{byte:02X}")).collect::<String>(), digits);
    assert_eq!(pumice_auth::fingerprint("no certificate"), None);
}

#[test]
fn a_restart_keeps_the_authority_and_its_key_private() {
    let dir = tempfile::tempdir().unwrap();
    let pki = dir.path().join("pki");
    let first = Ca::open_or_create(&pki, now()).unwrap();
    let again = Ca::open_or_create(&pki, days(100)).unwrap();
    assert_eq!(first.pem(), again.pem());
    let mode = fs::metadata(pki.join("ca.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_renewed_authority_keeps_its_key() {
    let dir = tempfile::tempdir().unwrap();
    let first = Ca::open_or_create(dir.path(), now()).unwrap();
    let key = fs::read(dir.path().join("ca.key")).unwrap();
    let renewed = Ca::open_or_create(dir.path(), days(3640)).unwrap();
    assert_ne!(first.pem(), renewed.pem());
    assert_eq!(fs::read(dir.path().join("ca.key")).unwrap(), key);
}

#[test]
fn a_start_that_was_cut_short_is_completed() {
    let dir = tempfile::tempdir().unwrap();
    Ca::open_or_create(dir.path(), now()).unwrap();
    let key = fs::read(dir.path().join("ca.key")).unwrap();
    fs::remove_file(dir.path().join("ca.crt")).unwrap();
    Ca::open_or_create(dir.path(), now()).unwrap();
    assert_eq!(fs::read(dir.path().join("ca.key")).unwrap(), key);
}

#[test]
fn damaged_files_are_named_and_kept() {
    let other = tempfile::tempdir().unwrap();
    Ca::open_or_create(other.path(), now()).unwrap();
    let foreign = fs::read(other.path().join("ca.crt")).unwrap();
    let cases: [(&str, Option<&[u8]>); 5] = [
        ("ca.crt", Some(b"nonsense")),
        ("ca.crt", Some(&foreign)),
        ("ca.key", Some(b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")),
        ("ca.key", Some(&[0xff, 0xfe])),
        ("ca.key", None),
    ];
    for (file, contents) in cases {
        let dir = tempfile::tempdir().unwrap();
        Ca::open_or_create(dir.path(), now()).unwrap();
        let path = dir.path().join(file);
        match contents {
            Some(contents) => fs::write(&path, contents).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        let error = Ca::open_or_create(dir.path(), now()).unwrap_err();
        assert!(error.to_string().contains(file), "{error}");
        assert_eq!(fs::read(&path).ok().as_deref(), contents);
    }
}

#[test]
fn a_client_certificate_carries_user_and_groups() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Ca::open_or_create(dir.path(), now()).unwrap();
    for groups in [vec![], vec![MASTERS], vec!["team-a", "team-b"]] {
        let issued = ca.issue_client("ann@example.org", &groups, now()).unwrap();
        let identity = identity_of(&issued.certificate).unwrap();
        assert_eq!(identity.user, "ann@example.org");
        assert_eq!(identity.groups, [groups, vec![AUTHENTICATED]].concat());
    }
    let error = ca.issue_client("ann", &["a", "b", "c"], now()).unwrap_err();
    assert!(matches!(error, CaError::TooManyGroups { groups: 3, limit: 2 }));
    let nobody = ca.issue_client("", &[], now()).unwrap();
    assert!(identity_of(&nobody.certificate).is_err());
}

#[test]
fn certificates_end_and_say_so_before() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Ca::open_or_create(dir.path(), now()).unwrap();
    let issued = ca.issue_client("ann", &[], now()).unwrap();
    assert!(!issued.is_near_end(days(300)));
    assert!(issued.is_near_end(days(340)));
    assert!(issued.not_after > days(360) && issued.not_after < days(370));
    assert!(ca.issue_client("ann", &[], Timestamp::MIN).is_err());
    assert!(ca.issue_client("ann", &[], Timestamp::MAX).is_err());
    let error = ca.issue_server(&["not a name \u{e9}".to_owned()], now()).unwrap_err();
    assert!(matches!(error, CaError::Issue { .. }));
}

#[test]
fn the_kubeconfig_is_one_that_clients_read() {
    use base64::Engine;
    let dir = tempfile::tempdir().unwrap();
    let ca = Ca::open_or_create(dir.path(), now()).unwrap();
    let admin = ca.issue_client("admin", &[MASTERS], now()).unwrap();
    let text = kubeconfig("https://127.0.0.1:6443/a\"b: #c", &ca, &admin);
    let field = |name: &str| -> &str {
        let line = text.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
        line.split_once(": ").unwrap().1
    };
    assert_eq!(field("server"), r##""https://127.0.0.1:6443/a\"b: #c""##);
    assert_eq!(field("current-context"), "pumice");
    for (name, expected) in [
        ("certificate-authority-data", ca.pem()),
        ("client-certificate-data", admin.certificate_pem.as_str()),
        ("client-key-data", admin.key_pem.as_str()),
    ] {
        let decoded = base64::engine::general_purpose::STANDARD.decode(field(name)).unwrap();
        assert_eq!(String::from_utf8(decoded).unwrap(), expected);
    }
    assert!(!format!("{ca:?} {admin:?}").contains("PRIVATE"));
}
