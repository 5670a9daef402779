//! Logins: `GET /pumice/login` says to anybody how people log in, `POST /pumice/logout` ends the login whose token it brings.
//!
//! Invariant: nothing secret is said, and no body is read. A login that has ended stays so: its other tokens hold no more, and
//! its streams end. Called by the pipeline before it asks for rights: both are for people who have none.

use http::{Method, StatusCode};
use pumice_auth::{Unknown, Verified};
use pumice_objects::status::{GroupResource, Status};
use serde_json::json;

use crate::authn::ended_logins;
use crate::context::State;
use crate::http::respond::{self, Answer};
use crate::storage::apply_status;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Methods,
    Logout,
}

/// What a path asks for, if it is one of these.
pub(crate) fn wanted(method: &Method, segments: &[String]) -> Option<Wanted> {
    let [first, second] = segments else { return None };
    match (method, first.as_str(), second.as_str()) {
        (&Method::GET | &Method::HEAD, "pumice", "login") => Some(Wanted::Methods),
        (&Method::POST, "pumice", "logout") => Some(Wanted::Logout),
        _ => None,
    }
}

/// Answers it. `verified` is what the issuer says of the token.
pub(crate) async fn answer(state: &State, wanted: Wanted, verified: Option<Result<Verified, Unknown>>) -> Answer {
    let storage = &state.storage;
    match (wanted, verified) {
        (Wanted::Methods, _) => Ok(respond::json(StatusCode::OK, storage.logins.document.clone())),
        (Wanted::Logout, None) => Err(Status::bad_request("a logout needs the token of a login; there is none to end")),
        (Wanted::Logout, Some(Err(Unknown::Away))) => Err(Status::service_unavailable(Unknown::Away.to_string())),
        (Wanted::Logout, Some(Err(Unknown::Token(_)))) => Err(Status::unauthorized()),
        (Wanted::Logout, Some(Ok(last))) => {
            let ended = ended_logins::end(&storage.store, &last, storage.clock.now()).await;
            ended.map_err(|error| apply_status(GroupResource { group: "", resource: "secrets" }, &error))?;
            tracing::info!(user = last.identity.user, "a login has ended");
            Ok(respond::json(
                StatusCode::OK,
                json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" }).to_string(),
            ))
        }
    }
}
