//! Logins by password: short tokens of our own, and what gets the next ones. Each login is a Secret in `kube-system`.
//!
//! Invariant: only hashes of tokens are stored. A refresh token is good once: one that comes again was stolen, or its thief
//! came first, and the login ends for both. A login whose Secret is gone has ended, whoever removed it. Looked up with every
//! request that shows such a token.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::{SignedDuration, Timestamp};
use pumice_clock::wire_time;
use pumice_store::{ApplyError, Change, Expect, Key, Object, Store};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::{Deserialize, Serialize};
use serde_json::json;
use uuid::Uuid;

use super::ended_logins::{NAMESPACE, SECRETS};
use crate::stored::{draft, parse};

/// What the names of the Secrets begin with; the login's number follows.
const PREFIX: &str = "login-";
/// The type of these Secrets.
const TYPE: &str = "pumice.sh/login";
/// What tokens begin with that open the API, and those that get the next ones.
const ACCESS: &str = "pumice-access.";
const REFRESH: &str = "pumice-refresh.";
/// How long a token is good.
const ACCESS_LIFE: SignedDuration = SignedDuration::from_mins(15);
/// How long a login lasts that nobody refreshes, and how long one lasts at all.
const IDLE_MAX: SignedDuration = SignedDuration::from_hours(7 * 24);
const LIFE_MAX: SignedDuration = SignedDuration::from_hours(30 * 24);
/// Tokens of one login that are good at a time: whoever refreshes has others beside him that still use the one before.
const ACCESS_MAX: usize = 4;
/// Refresh tokens of before that are recognised.
const USED_MAX: usize = 32;
/// How often a login is written against others who do.
const ATTEMPTS_MAX: usize = 8;

/// What is stored of a login.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    user: String,
    created: Timestamp,
    until: Timestamp,
    /// Hash of the token that gets the next ones.
    refresh: String,
    /// Hashes of those that did.
    used: Vec<String>,
    access: Vec<AccessRecord>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct AccessRecord {
    hash: String,
    until: Timestamp,
}

/// Tokens as a client gets them. They are nowhere else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tokens {
    pub(crate) access: String,
    pub(crate) refresh: String,
    pub(crate) life: SignedDuration,
}

/// Why there are no tokens.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoginError {
    #[error("the login has ended, or there was none")]
    Unknown,
    #[error("no random numbers can be had")]
    Random,
    #[error(transparent)]
    Store(#[from] ApplyError),
}

/// Begins the login of somebody whose password was right.
pub(crate) async fn begin(store: &Store, user: &str, now: Timestamp) -> Result<Tokens, LoginError> {
    let login = hex(&random::<16>()?);
    let nothing = Record {
        user: user.to_owned(),
        created: now,
        until: now,
        refresh: String::new(),
        used: Vec::new(),
        access: Vec::new(),
    };
    let (record, tokens) = next(&login, nothing, now)?;
    store.apply(put(&login, &record, now, Expect::Absent)).await?;
    Ok(tokens)
}

/// The next tokens of a login, in place of its refresh token.
pub(crate) async fn refresh(store: &Store, token: &str, now: Timestamp) -> Result<Tokens, LoginError> {
    let (login, hash) = read(token, REFRESH).ok_or(LoginError::Unknown)?;
    for _ in 0..ATTEMPTS_MAX {
        let (object, record) = find(store, login, now).ok_or(LoginError::Unknown)?;
        if record.refresh != hash {
            if record.used.contains(&hash) {
                tracing::warn!(user = record.user, "a refresh token came twice: its login is ended");
                end(store, login).await?;
            }
            return Err(LoginError::Unknown);
        }
        let (record, tokens) = next(login, record, now)?;
        match store.apply(put(login, &record, now, Expect::Revision(object.revision))).await {
            Ok(_) => return Ok(tokens),
            // Somebody has used the same token at the same moment: the next look tells.
            Err(ApplyError::Conflict(_) | ApplyError::NotFound(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(LoginError::Unknown)
}

/// Whose a token is, and of which login, if it is good at `now`.
pub(crate) fn verify(store: &Store, token: &str, now: Timestamp) -> Option<(String, String)> {
    let (login, hash) = read(token, ACCESS)?;
    let (_, record) = find(store, login, now)?;
    let is_good = record.access.iter().any(|access| access.hash == hash && now < access.until);
    is_good.then(|| (record.user, login.to_owned()))
}

/// The user of a login, by either of its tokens, whether that is good or not.
pub(crate) fn login_of(store: &Store, token: &str, now: Timestamp) -> Option<(String, String)> {
    let (login, hash) = read(token, REFRESH).or_else(|| read(token, ACCESS))?;
    let (_, record) = find(store, login, now)?;
    let is_of_it = record.refresh == hash || record.access.iter().any(|access| access.hash == hash);
    is_of_it.then(|| (record.user, login.to_owned()))
}

/// Whether a token has the form of one that opens the API.
pub(crate) fn is_one(token: &str) -> bool {
    token.starts_with(ACCESS)
}

/// Whether a login goes on.
pub(crate) fn goes_on(store: &Store, login: &str) -> bool {
    store.find(SECRETS, NAMESPACE, &format!("{PREFIX}{login}")).is_some()
}

/// Removes the login, so that none of its tokens counts any more.
pub(crate) async fn end(store: &Store, login: &str) -> Result<(), ApplyError> {
    for _ in 0..ATTEMPTS_MAX {
        let Some(object) = store.find(SECRETS, NAMESPACE, &format!("{PREFIX}{login}")) else { return Ok(()) };
        match store.apply(delete(&object)).await {
            Err(ApplyError::Conflict(_)) => {}
            Ok(_) | Err(ApplyError::NotFound(_)) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Removes logins whose time is over.
pub(crate) async fn forget_old(store: &Store, now: Timestamp) {
    for object in store.list(SECRETS, Some(NAMESPACE)).items {
        let is_one = object.key.name.starts_with(PREFIX);
        if is_one
            && record(&object).is_some_and(|record| record.until <= now)
            && let Err(error) = store.apply(delete(&object)).await
        {
            tracing::debug!(%error, "a login that is over stays for now");
        }
    }
}

/// The record with new tokens, and these.
fn next(login: &str, before: Record, now: Timestamp) -> Result<(Record, Tokens), LoginError> {
    let [access, refresh] = [(ACCESS, random::<32>()?), (REFRESH, random::<32>()?)]
        .map(|(kind, secret)| format!("{kind}{login}.{}", URL_SAFE_NO_PAD.encode(secret)));
    let later = |from: Timestamp, by| from.checked_add(by).unwrap_or(Timestamp::MAX);
    let Record { user, created, refresh: last, mut used, access: mut good, .. } = before;
    if !last.is_empty() {
        used.push(last);
        used.drain(..used.len().saturating_sub(USED_MAX));
    }
    good.retain(|one| now < one.until);
    good.push(AccessRecord { hash: hash(&access), until: later(now, ACCESS_LIFE) });
    good.drain(..good.len().saturating_sub(ACCESS_MAX));
    let until = later(now, IDLE_MAX).min(later(created, LIFE_MAX));
    let record = Record { user, created, until, refresh: hash(&refresh), used, access: good };
    Ok((record, Tokens { access, refresh, life: ACCESS_LIFE }))
}

/// The login and the hash of a token of a kind.
fn read<'t>(token: &'t str, kind: &str) -> Option<(&'t str, String)> {
    let (login, secret) = token.strip_prefix(kind)?.split_once('.')?;
    let is_login = login.len() == 32 && login.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (is_login && secret.len() == 43).then(|| (login, hash(token)))
}

fn find(store: &Store, login: &str, now: Timestamp) -> Option<(std::sync::Arc<Object>, Record)> {
    let object = store.find(SECRETS, NAMESPACE, &format!("{PREFIX}{login}"))?;
    let record = record(&object).filter(|record| now < record.until)?;
    Some((object, record))
}

fn record(object: &Object) -> Option<Record> {
    let secret = parse(object);
    let text = secret["data"]["login"].as_str().filter(|_| secret["type"] == TYPE)?;
    serde_json::from_slice(&STANDARD.decode(text).ok()?).ok()
}

fn put(login: &str, record: &Record, now: Timestamp, expect: Expect) -> Change {
    let name = format!("{PREFIX}{login}");
    let object = json!({
        "apiVersion": "v1", "kind": "Secret", "type": TYPE,
        "metadata": {
            "name": name, "namespace": NAMESPACE, "uid": Uuid::now_v7().to_string(), "creationTimestamp": wire_time(now),
        },
        "data": { "user": STANDARD.encode(&record.user), "login": STANDARD.encode(json!(record).to_string()) },
    });
    Change::Put { key: Key::new(SECRETS, NAMESPACE, &*name), draft: draft(&object), expect }
}

fn delete(object: &Object) -> Change {
    let expect = Expect::Revision(object.revision);
    Change::Delete { key: object.key.clone(), draft: draft(&parse(object)), expect }
}

fn hash(token: &str) -> String {
    hex(digest(&SHA256, token.as_bytes()).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn random<const N: usize>() -> Result<[u8; N], LoginError> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| LoginError::Random)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_second(1_764_000_000 + 60 * minutes).expect("a time")
    }

    fn store() -> Store {
        Store::in_memory(pumice_store::Options::default()).expect("a store")
    }

    fn user(store: &Store, token: &str, minutes: i64) -> Option<String> {
        verify(store, token, at(minutes)).map(|(user, _)| user)
    }

    #[tokio::test]
    async fn tokens_follow_each_other_and_none_is_stored() {
        let store = store();
        let first = begin(&store, "alice", at(0)).await.expect("tokens");
        assert_eq!(user(&store, &first.access, 14).as_deref(), Some("alice"));
        assert_eq!(user(&store, &first.access, 15), None, "it is short");
        let second = refresh(&store, &first.refresh, at(10)).await.expect("tokens");
        for (token, minutes, good) in
            [(&first.access, 14, true), (&second.access, 24, true), (&second.access, 25, false)]
        {
            assert_eq!(user(&store, token, minutes).is_some(), good, "{minutes}");
        }
        for token in [&first.refresh, &second.refresh, "", "pumice-access.", "pumice-access.x.y"] {
            assert_eq!(user(&store, token, 10), None, "{token}");
        }
        let stored: String = store.list(SECRETS, None).items.iter().map(|one| parse(one).to_string()).collect();
        let secret = |token: &str| token.rsplit('.').next().expect("a secret").to_owned();
        for token in [&first.access, &first.refresh, &second.access, &second.refresh] {
            assert!(!stored.contains(&secret(token)) && !stored.contains(&STANDARD.encode(token)));
        }
    }

    #[tokio::test]
    async fn a_refresh_token_that_comes_again_ends_the_login() {
        let store = store();
        let first = begin(&store, "alice", at(0)).await.expect("tokens");
        let second = refresh(&store, &first.refresh, at(1)).await.expect("tokens");
        let third = refresh(&store, &second.refresh, at(2)).await.expect("tokens");
        let forged = format!("{}A", &third.refresh[..third.refresh.len() - 1]);
        if forged != third.refresh {
            assert!(matches!(refresh(&store, &forged, at(3)).await, Err(LoginError::Unknown)));
            assert!(user(&store, &third.access, 3).is_some(), "who guesses ends nothing");
        }
        assert!(matches!(refresh(&store, &first.refresh, at(3)).await, Err(LoginError::Unknown)));
        assert_eq!(user(&store, &third.access, 3), None);
        assert!(matches!(refresh(&store, &third.refresh, at(3)).await, Err(LoginError::Unknown)));
    }

    #[tokio::test]
    async fn a_login_ends_with_its_secret_and_with_its_time() {
        let store = store();
        let tokens = begin(&store, "alice", at(0)).await.expect("tokens");
        let (_, login) = login_of(&store, &tokens.refresh, at(0)).expect("a login");
        assert!(goes_on(&store, &login));
        end(&store, &login).await.expect("ended");
        assert!(!goes_on(&store, &login) && user(&store, &tokens.access, 0).is_none());
        let idle = begin(&store, "alice", at(0)).await.expect("tokens");
        let week = 7 * 24 * 60;
        forget_old(&store, at(week - 1)).await;
        assert!(login_of(&store, &idle.refresh, at(week - 1)).is_some());
        assert!(matches!(refresh(&store, &idle.refresh, at(week)).await, Err(LoginError::Unknown)));
        forget_old(&store, at(week)).await;
        assert_eq!(store.count(SECRETS, None), 0);
        // However often it is refreshed, it does not go on for ever.
        let mut tokens = begin(&store, "alice", at(0)).await.expect("tokens");
        for day in (0..30).step_by(5) {
            tokens = refresh(&store, &tokens.refresh, at(day * 24 * 60)).await.expect("tokens");
        }
        assert!(matches!(refresh(&store, &tokens.refresh, at(30 * 24 * 60)).await, Err(LoginError::Unknown)));
    }
}
