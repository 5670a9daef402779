//! Why a request to a fleet is not done, as a Kubernetes server would say it.

use serde_json::{Value, json};
use tonic::{Code, Status};

/// The reason of what a fleet does not do: its sentence says what to do instead.
pub const NOT_HERE: &str = "NotOfAFleet";

/// A request that is not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP's number for it.
    pub code: u16,
    /// A word for programs.
    pub reason: &'static str,
    /// A sentence for people.
    pub message: String,
}

impl Refusal {
    /// What a fleet does not do; `instead` says what to do.
    pub fn not_here(message: impl Into<String>) -> Self {
        Refusal { code: 405, reason: NOT_HERE, message: message.into() }
    }

    /// Nothing is there under that name.
    pub fn missing(what: &str, name: &str) -> Self {
        Refusal { code: 404, reason: "NotFound", message: format!("there is no {what} {name}") }
    }

    /// Something is there under that name.
    pub fn exists(what: &str, name: &str) -> Self {
        Refusal { code: 409, reason: "AlreadyExists", message: format!("there is a {what} {name} already") }
    }

    /// What was sent can't be used.
    pub fn invalid(message: impl Into<String>) -> Self {
        Refusal { code: 422, reason: "Invalid", message: message.into() }
    }

    /// As Kubernetes' clients read it.
    pub fn status(&self) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
            "code": self.code, "reason": self.reason, "message": self.message,
        })
    }
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        let (code, reason) = match status.code() {
            Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => (422, "Invalid"),
            Code::NotFound => (404, "NotFound"),
            Code::AlreadyExists => (409, "AlreadyExists"),
            Code::PermissionDenied => (403, "Forbidden"),
            Code::Unauthenticated => (401, "Unauthorized"),
            Code::ResourceExhausted => (429, "TooManyRequests"),
            // Asking again would not help.
            Code::Unimplemented => (405, NOT_HERE),
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => (503, "ServiceUnavailable"),
            _ => (500, "InternalError"),
        };
        Refusal { code, reason, message: sentence(&status) }
    }
}

/// The server's words, and the innermost cause where it was not reached.
fn sentence(status: &Status) -> String {
    let mut cause: Option<&dyn std::error::Error> = std::error::Error::source(status);
    let mut last = None;
    // Bounded: a chain of causes this long is a loop.
    for _ in 0..32 {
        let Some(error) = cause else { break };
        last = Some(error.to_string());
        cause = error.source();
    }
    match (status.message(), last) {
        ("", Some(cause)) => cause,
        ("", None) => format!("the server said no more than {}", status.code()),
        (message, Some(cause)) if !message.contains(&cause) => format!("{message}: {cause}"),
        (message, _) => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_says_keeps_its_meaning() {
        for (status, code) in [
            (Status::not_found("there is no queue x"), 404),
            (Status::permission_denied("no"), 403),
            (Status::unavailable("away"), 503),
            (Status::unimplemented("not yet"), 405),
            (Status::invalid_argument("wrong"), 422),
            (Status::internal("broken"), 500),
        ] {
            let message = status.message().to_owned();
            let refusal = Refusal::from(status);
            assert_eq!((refusal.code, &refusal.message), (code, &message));
            assert_eq!(refusal.status()["code"], code);
        }
        assert_eq!(
            Refusal::from(Status::new(Code::Unavailable, "")).message,
            "the server said no more than The service is currently unavailable"
        );
    }
}
