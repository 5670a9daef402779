//! Rotations from step to step, and with a crash before each of their files is written.

use super::*;
use crate::tls::ClientTrust;
use crate::tokens::{Claims, ISSUER, Named};

#[allow(clippy::disallowed_methods, reason = "the library that looks at certificates asks the same clock")]
fn now() -> Timestamp {
    std::time::SystemTime::now().try_into().unwrap()
}

fn hours(count: i64) -> Timestamp {
    now() + SignedDuration::from_hours(count)
}

/// Who has come to trust an authority, and what it gave him.
struct Client {
    bundle: String,
    certificate: Vec<u8>,
    token: String,
}

impl Client {
    fn of(authority: &Authority) -> Client {
        let claims = Claims {
            namespace: "n".to_owned(),
            account: Named { name: "a".to_owned(), uid: "u".to_owned() },
            audiences: vec![ISSUER.to_owned()],
            issued: now(),
            expires: hours(24),
            id: "1".to_owned(),
            bound_to: None,
        };
        Client {
            bundle: authority.bundle(),
            certificate: authority.issuing().issue_client("ann", &[], now()).unwrap().certificate.to_vec(),
            token: authority.tokens().sign(&claims).unwrap(),
        }
    }

    /// Whether he is let in by his certificate, and by his token; and believes the server.
    fn gets_on(&self, authority: &Authority) -> (bool, bool, bool) {
        let takes = ClientTrust::new(&authority.bundle(), false).unwrap().takes(&self.certificate);
        (takes, authority.tokens().open(&self.token).is_ok(), self.bundle.contains(authority.serving().pem()))
    }
}

#[test]
fn whoever_has_come_along_gets_on_from_step_to_step() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::open(directory.path(), now()).unwrap();
    let before = Client::of(&authority);
    assert_eq!(before.gets_on(&authority), (true, true, true));
    assert!(matches!(authority.finish(now(), SignedDuration::ZERO, false), Err(AuthorityError::NotUnderWay)));
    authority.rotate(now(), false).unwrap();
    let meanwhile = Client::of(&authority);
    assert_eq!(before.gets_on(&authority), (true, true, true), "nobody notices");
    assert_eq!(meanwhile.gets_on(&authority), (true, true, true));
    assert!(matches!(authority.rotate(now(), true), Err(AuthorityError::UnderWay { .. })));
    let hour = SignedDuration::from_hours(1);
    assert!(matches!(authority.finish(now(), hour, false), Err(AuthorityError::TooSoon { .. })));
    authority.finish(now(), SignedDuration::ZERO, false).unwrap();
    assert_eq!(before.gets_on(&authority), (false, true, false), "pods have their tokens for as long as these last");
    assert_eq!(meanwhile.gets_on(&authority), (true, true, true));
    assert!(matches!(authority.rotate(now(), false), Err(AuthorityError::OldTokens { .. })));
    assert!(!authority.look(hours(24)).unwrap() && authority.look(hours(26)).unwrap());
    assert_eq!((before.gets_on(&authority).1, meanwhile.gets_on(&authority).1), (false, true));
    assert_eq!(authority.rotation(), None);
    authority.rotate(now(), false).unwrap();
    assert_eq!(meanwhile.gets_on(&authority), (true, true, true), "and so on");
}

#[test]
fn what_was_stolen_ends_at_once_where_that_is_wanted() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::open(directory.path(), now()).unwrap();
    let before = Client::of(&authority);
    authority.rotate(now(), false).unwrap();
    authority.finish(now(), SignedDuration::ZERO, true).unwrap();
    assert_eq!(before.gets_on(&authority), (false, false, false));
    let again = Authority::open(directory.path(), now()).unwrap();
    assert_eq!((before.gets_on(&again), again.rotation()), ((false, false, false), None));
    let left: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "{left:?}");
}

#[test]
fn a_rotation_that_nobody_finishes_is_finished() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::open(directory.path(), now()).unwrap();
    let before = Client::of(&authority);
    authority.rotate(now(), false).unwrap();
    assert!(!authority.look(hours(29 * 24)).unwrap());
    assert!(authority.look(hours(31 * 24)).unwrap());
    assert!(!before.gets_on(&authority).0);
}

/// Does `work` with a crash before each of its steps, one after the other, and has `check` look at what is opened then, also
/// once `work` was done again.
fn crash(
    work: impl Fn(&Authority) -> Result<(), AuthorityError>,
    check: impl Fn(&Authority, &Client, bool),
    rotated: bool,
) {
    for steps in 0.. {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::open(directory.path(), now()).unwrap();
        let mut client = Client::of(&authority);
        if rotated {
            authority.rotate(now(), false).unwrap();
            client = Client::of(&authority);
        }
        authority.files.lock().unwrap().left.set(steps);
        let done = work(&authority).is_ok();
        drop(authority);
        let authority = Authority::open(directory.path(), now()).unwrap();
        check(&authority, &client, done);
        // Opened once more, it is the same.
        let again = Authority::open(directory.path(), now()).unwrap();
        assert_eq!((again.bundle(), again.rotation()), (authority.bundle(), authority.rotation()), "{steps}");
        match work(&authority) {
            Ok(()) | Err(AuthorityError::UnderWay { .. } | AuthorityError::NotUnderWay) => {}
            Err(error) => panic!("{steps}: {error}"),
        }
        check(&authority, &client, true);
        if done {
            assert!(steps > 3, "there are steps");
            return;
        }
    }
}

#[test]
fn a_crash_between_any_two_steps_of_a_rotation_loses_nobody() {
    let check = |authority: &Authority, client: &Client, done: bool| {
        assert_eq!(client.gets_on(authority), (true, true, true));
        let rotated = authority.rotation().is_some_and(|rotation| rotation.phase == Phase::Trusting);
        assert!(rotated || !done);
        let (trusted, new_ones) = (authority.bundle().matches("BEGIN").count(), authority.issuing());
        assert_eq!((trusted, new_ones.pem() != authority.serving().pem()), (1 + usize::from(rotated), rotated));
        // Tokens are of another key exactly where the certificates are of another authority.
        let old = authority.files.lock().unwrap().has(tokens::OLD_KEY_FILE);
        assert!(old || !rotated);
    };
    crash(|authority| authority.rotate(now(), false).map(drop), check, false);
}

#[test]
fn a_crash_between_any_two_steps_of_its_end_loses_nobody_who_came_along() {
    for drop_tokens in [false, true] {
        let check = |authority: &Authority, client: &Client, done: bool| {
            assert_eq!(client.gets_on(authority), (true, true, true));
            let over = authority.rotation().is_none_or(|rotation| rotation.phase == Phase::Finished);
            assert!(over || !done);
            assert_eq!(authority.bundle().matches("BEGIN").count(), if over { 1 } else { 2 });
        };
        crash(|authority| authority.finish(now(), SignedDuration::ZERO, drop_tokens), check, true);
    }
}

#[test]
fn a_newer_note_is_refused_and_a_damaged_one_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(ROTATION_FILE);
    for (text, wanted) in [
        (r#"{"format":2,"phase":"trusting","started":"2026-01-01T00:00:00Z"}"#, "has format 2, newer than 1"),
        ("{}", "rotation.json is damaged"),
    ] {
        fs::write(&path, text).unwrap();
        let error = Authority::open(directory.path(), now()).err().unwrap().to_string();
        assert!(error.contains(wanted), "{error}");
    }
}
