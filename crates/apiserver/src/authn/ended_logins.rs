//! Logins that have ended before their tokens: their users logged out.
//!
//! Invariant: an end holds from the moment it is stored, also after a restart, until the last token of the login has expired. It
//! is about tokens that were issued no later than the one that was shown: a browser's session goes on at the issuer, and the next
//! login from it is another one, of the same session. Each is a Secret in `kube-system`, where Kubernetes has its own of this
//! kind, so backups have them. Looked up with every request that shows a token of a login.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::{SignedDuration, Timestamp};
use pumice_auth::Verified;
use pumice_clock::wire_time;
use pumice_objects::meta::parse_time;
use pumice_store::{ApplyError, Change, Expect, Key, Store};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::stored::{draft, parse};

/// The store's name of Secrets.
pub(crate) const SECRETS: &str = "secrets";
pub(crate) const NAMESPACE: &str = "kube-system";
/// What their names begin with; a hash follows.
const PREFIX: &str = "ended-login-";
/// The type of these Secrets.
const TYPE: &str = "pumice.sh/ended-login";
/// How long the end of a login is remembered at least: one that follows may have been given just before.
const REMEMBERED: SignedDuration = SignedDuration::from_hours(24);
/// How often an end is written against others of the same session.
const ATTEMPTS_MAX: usize = 16;

/// Whether the login has ended that a token of this session, issued then, comes from.
pub(crate) fn is_ended(store: &Store, session: &str, issued: Timestamp) -> bool {
    let Some(object) = store.find(SECRETS, NAMESPACE, &format!("{PREFIX}{session}")) else { return false };
    // One that can't be read ends all of the session.
    time(&parse(&object), "issued").is_none_or(|last| issued <= last)
}

/// Ends the login whose last token is `last`.
pub(crate) async fn end(store: &Store, last: &Verified, now: Timestamp) -> Result<(), ApplyError> {
    let name = format!("{PREFIX}{}", last.session);
    let key = Key::new(SECRETS, NAMESPACE, &*name);
    let until = last.expires.max(now).checked_add(REMEMBERED).unwrap_or(Timestamp::MAX);
    let object = json!({
        "apiVersion": "v1", "kind": "Secret", "type": TYPE,
        "metadata": {
            "name": name, "namespace": NAMESPACE, "uid": Uuid::now_v7().to_string(), "creationTimestamp": wire_time(now),
        },
        "data": {
            "user": BASE64.encode(&last.identity.user), "issued": BASE64.encode(wire_time(last.issued)),
            "until": BASE64.encode(wire_time(until)),
        },
    });
    for _ in 0..ATTEMPTS_MAX {
        let expect = match store.get(&key) {
            None => Expect::Absent,
            Some(_) if is_ended(store, &last.session, last.issued) => return Ok(()),
            Some(stored) => Expect::Revision(stored.revision),
        };
        let change = Change::Put { key: key.clone(), draft: draft(&object), expect };
        match store.apply(change).await {
            Err(ApplyError::AlreadyExists(_) | ApplyError::Conflict(_) | ApplyError::NotFound(_)) => {}
            done => return done.map(drop),
        }
    }
    Ok(())
}

/// Forgets the ends of logins whose tokens have all expired.
pub(crate) async fn forget_old(store: &Store, now: Timestamp) {
    for object in store.list(SECRETS, Some(NAMESPACE)).items {
        if !object.key.name.starts_with(PREFIX) {
            continue;
        }
        let secret = parse(&object);
        if secret["type"] != TYPE || time(&secret, "until").is_none_or(|until| until > now) {
            continue;
        }
        let change = Change::Delete {
            key: object.key.clone(),
            draft: draft(&secret),
            expect: Expect::Revision(object.revision),
        };
        if let Err(error) = store.apply(change).await {
            tracing::debug!(%error, "the end of a login stays for now");
        }
    }
}

fn time(secret: &Value, field: &str) -> Option<Timestamp> {
    let text = BASE64.decode(secret["data"][field].as_str()?).ok()?;
    parse_time(std::str::from_utf8(&text).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_login_ends_with_its_last_token_and_the_next_of_its_session_does_not() {
        let store = Store::in_memory(pumice_store::Options::default()).expect("a store");
        let at = |time: &str| time.parse::<Timestamp>().expect("a time");
        let nobody: [&str; 0] = [];
        let token = |issued: &str| Verified {
            identity: pumice_auth::Identity::new("alice", nobody),
            issued: at(issued),
            expires: at("2026-01-01T01:00:00Z"),
            session: "a1".to_owned(),
        };
        let [early, last, next] = ["2026-01-01T00:00:00Z", "2026-01-01T00:10:00Z", "2026-01-01T00:20:00Z"];
        let now = at("2026-01-01T00:15:00Z");
        // What is shown later and was issued earlier takes nothing back.
        for shown in [last, early] {
            end(&store, &token(shown), now).await.expect("stored");
        }
        let ended = |session: &str, issued: &str| is_ended(&store, session, at(issued));
        assert!(ended("a1", early) && ended("a1", last) && !ended("a1", next) && !ended("a2", early));
        assert!(is_ended(&store, "a1", Timestamp::MIN), "one that does not say when");
        end(&store, &token(next), now).await.expect("stored");
        assert!(ended("a1", next));
        forget_old(&store, at("2026-01-02T00:59:00Z")).await;
        assert!(ended("a1", next));
        forget_old(&store, at("2026-01-02T01:01:00Z")).await;
        assert!(!ended("a1", early));
    }
}
