//! Logins: `GET /pumice/login` says to anybody how people log in, `POST /pumice/token` gives tokens for passwords, and
//! `POST /pumice/logout` ends the login whose token it brings.
//!
//! Invariant: nothing secret is said but to whom it belongs. A login that has ended stays so: its other tokens hold no more, and
//! its streams end. Called by the pipeline before it asks for rights: all are for people who have none.

pub(crate) mod tokens;

use http::{Method, StatusCode};
use pumice_auth::{Unknown, Verified};
use pumice_objects::status::{GroupResource, Status};
use serde_json::json;

use crate::authn::{ended_logins, password_logins};
use crate::context::State;
use crate::http::respond::{self, Answer};
use crate::storage::apply_status;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Methods,
    Token,
    Logout,
}

/// What a path asks for, if it is one of these.
pub(crate) fn wanted(method: &Method, segments: &[String]) -> Option<Wanted> {
    let [first, second] = segments else { return None };
    match (method, first.as_str(), second.as_str()) {
        (&Method::GET | &Method::HEAD, "pumice", "login") => Some(Wanted::Methods),
        (&Method::POST, "pumice", "token") => Some(Wanted::Token),
        (&Method::POST, "pumice", "logout") => Some(Wanted::Logout),
        _ => None,
    }
}

/// What anybody is told.
pub(crate) fn methods(state: &State) -> Answer {
    Ok(respond::json(StatusCode::OK, state.storage.logins.document()))
}

/// Ends the login of a token, of which `verified` is what the issuer says. One of our own is `token`.
pub(crate) async fn logout(
    state: &State,
    verified: Option<Result<Verified, Unknown>>,
    token: Option<String>,
) -> Answer {
    let (store, now) = (&state.storage.store, state.storage.clock.now());
    let (user, ended) = match (verified, token) {
        (Some(Ok(last)), _) => {
            let ended = ended_logins::end(store, &last, now).await;
            (last.identity.user, ended)
        }
        (Some(Err(Unknown::Away)), _) => return Err(Status::service_unavailable(Unknown::Away.to_string())),
        (Some(Err(Unknown::Token(_))), _) => return Err(Status::unauthorized()),
        (None, Some(token)) => {
            let (user, login) = password_logins::login_of(store, &token, now).ok_or_else(Status::unauthorized)?;
            let ended = password_logins::end(store, &login).await;
            (user, ended)
        }
        (None, None) => return Err(Status::bad_request("a logout needs the token of a login; there is none to end")),
    };
    ended.map_err(|error| apply_status(GroupResource { group: "", resource: "secrets" }, &error))?;
    tracing::info!(user, "a login has ended");
    let done = json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" });
    Ok(respond::json(StatusCode::OK, done.to_string()))
}
