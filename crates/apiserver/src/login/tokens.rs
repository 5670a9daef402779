//! `POST /pumice/token`: a password, or a refresh token, for a short token and the next refresh token, in the words of OAuth 2
//! (RFC 6749, 4.3 and 6).
//!
//! Invariant: whoever guesses learns nothing but that he guessed wrong: users that there aren't, users without a Tenant,
//! suspended ones and wrong passwords get one answer, after the same work. Tries are counted before anything is checked.
//! Passwords and tokens are in no log and no message.

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use pumice_api::names::GROUP_TENANTS;
use pumice_auth::{Identity, is_reserved};
use pumice_objects::status::{GroupResource, Status, StatusReason};
use serde_json::json;
use tokio::time::Instant;

use crate::authn::logins::PasswordCheck;
use crate::authn::password_logins::{self, LoginError, Tokens};
use crate::authn::suspensions;
use crate::context::State;
use crate::http::body::Body;
use crate::http::respond::{self, Answer};
use crate::storage::apply_status;

const BODY_BYTES_MAX: usize = 8 * 1024;
/// Longest time for a body to come, and for a password to be checked.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
const CHECK_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest name and password, in bytes.
const NAME_BYTES_MAX: usize = 253;
const PASSWORD_BYTES_MAX: usize = 1_024;
/// What everybody is told whose password is not taken.
const WRONG: &str = "the name or the password is wrong, or the user has no tenant here that is in use";
/// What everybody is told whose refresh token is not taken.
const ENDED: &str = "the login has ended; log in again";

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
enum Grant {
    Password { user: String, password: String },
    Refresh(String),
}

/// Answers it. `address` is where it comes from.
pub(crate) async fn answer(state: &State, address: Option<IpAddr>, body: Body) -> Answer {
    let Some(passwords) = &state.storage.logins.passwords else {
        return Err(Status::bad_request("nobody logs in by password here; GET /pumice/login says how"));
    };
    let reading = tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, BODY_BYTES_MAX).collect());
    let read = reading.await.map_err(|_| Status::timeout("the request did not come in time"))?;
    let bytes = read.map_err(|_| Status::bad_request("the request broke off, or is too long"))?.to_bytes();
    let grant = grant(&bytes).ok_or_else(|| {
        Status::bad_request(
            "a form is wanted: grant_type=password, username, password; or grant_type=refresh_token, refresh_token",
        )
    })?;
    let (store, now) = (&state.storage.store, state.storage.clock.now());
    let tokens = match grant {
        Grant::Refresh(token) => {
            let of = password_logins::login_of(store, &token, now);
            let tokens = password_logins::refresh(store, &token, now).await;
            // A user whom nothing is left of here goes on with no login.
            match of {
                Some((user, login)) if !may_log_in(state, &user) => {
                    password_logins::end(store, &login).await.map_err(|error| stored(&error))?;
                    Err(LoginError::Unknown)
                }
                _ => tokens,
            }
        }
        Grant::Password { user, password } => {
            if let Err(wait) = state.storage.logins.attempts.begin(&user, address, Instant::now()) {
                let seconds = u32::try_from(wait.as_secs() + 1).unwrap_or(u32::MAX);
                return Err(Status::too_many_requests("too many tries: try again later", seconds));
            }
            check(state, &**passwords, user.clone(), password).await?;
            tracing::info!(user, "somebody logged in by password");
            password_logins::begin(store, &user, now).await
        }
    };
    tokens.map(|tokens| granted(&tokens)).map_err(|error| match error {
        LoginError::Unknown => Status::new(StatusReason::Unauthorized, ENDED),
        LoginError::Random => Status::internal_error(error),
        LoginError::Store(error) => stored(&error),
    })
}

/// Whether the password is this user's, and he may log in.
async fn check(state: &State, passwords: &dyn PasswordCheck, user: String, password: String) -> Result<(), Status> {
    let wrong = || Status::new(StatusReason::Unauthorized, WRONG);
    let checking = async {
        let _turn = state.storage.logins.checks.acquire().await.ok();
        passwords.check(user.clone(), password).await
    };
    let checked = tokio::time::timeout(CHECK_TIMEOUT, checking).await;
    let checked = checked.map_err(|_| Status::service_unavailable("the password could not be checked in time"))?;
    let is_right = checked.map_err(|error| {
        tracing::warn!(%error, "a password could not be checked");
        Status::service_unavailable("passwords can't be checked at the moment; try again later")
    })?;
    // Looked up for each, so that it takes no longer for those who may.
    let may = may_log_in(state, &user);
    if is_right && may { Ok(()) } else { Err(wrong()) }
}

/// Whether a user of this name has a Tenant in use.
fn may_log_in(state: &State, user: &str) -> bool {
    let storage = &state.storage;
    let identity = Identity::new(user, [GROUP_TENANTS]);
    let is_suspended = storage.logins.suspensions(&storage.store).ends(&identity, false).is_some();
    suspensions::is_of_a_tenant(&storage.store, user) && !is_suspended && !is_reserved(user)
}

fn stored(error: &pumice_store::ApplyError) -> Status {
    apply_status(GroupResource { group: "", resource: "secrets" }, error)
}

fn granted(Tokens { access, refresh, life }: &Tokens) -> http::Response<Body> {
    let text = json!({
        "access_token": access, "token_type": "Bearer", "expires_in": life.as_secs(), "refresh_token": refresh,
    });
    let mut response = respond::json(StatusCode::OK, text.to_string());
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Reads a form. A field that is there twice could be read in two ways, and is none.
fn grant(form: &Bytes) -> Option<Grant> {
    let field = |wanted: &str| {
        let mut found = form_urlencoded::parse(form).filter(|(name, _)| name == wanted);
        let value = found.next().map(|(_, value)| value.into_owned());
        value.filter(|_| found.next().is_none())
    };
    match field("grant_type")?.as_str() {
        "refresh_token" => field("refresh_token").map(Grant::Refresh),
        "password" => {
            let (user, password) = (field("username")?, field("password")?);
            let is_name = !user.is_empty() && user.len() <= NAME_BYTES_MAX && !user.contains(char::is_control);
            // An empty password opens some directories to everybody.
            let is_password = !password.is_empty() && password.len() <= PASSWORD_BYTES_MAX && !password.contains('\0');
            (is_name && is_password).then_some(Grant::Password { user, password })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_read_in_one_way_or_not_at_all() {
        let read = |text: &str| grant(&Bytes::copy_from_slice(text.as_bytes()));
        let password =
            |user: &str, password: &str| Some(Grant::Password { user: user.to_owned(), password: password.to_owned() });
        assert_eq!(read("grant_type=password&username=alice&password=a%26b%3D+c"), password("alice", "a&b= c"));
        assert_eq!(read("refresh_token=x&grant_type=refresh_token"), Some(Grant::Refresh("x".to_owned())));
        let long = format!("grant_type=password&username=alice&password={}", "x".repeat(1_025));
        for text in [
            "",
            "grant_type=password&username=alice",
            "grant_type=password&username=alice&password=",
            "grant_type=password&username=&password=x",
            "grant_type=password&username=alice&username=bob&password=x",
            "grant_type=password&username=a%00b&password=x",
            "grant_type=password&username=alice&password=a%00b",
            "grant_type=client_credentials",
            "{\"grant_type\":\"password\"}",
            &long,
        ] {
            assert_eq!(read(text), None, "{text:.60}");
        }
    }
}
