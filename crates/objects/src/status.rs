//! `Status`: the one error answer of the Kubernetes API.
//!
//! Invariant: code, reason, message and details of every constructor are those kube-apiserver
//! sends in the same case, for clients switch on them. Every layer that refuses a request makes
//! one here; the API server writes it out with [`Status::to_json`].

use std::fmt;

use serde_json::{Map, Value, json};

use crate::field::FieldError;
use crate::quote::Quoted;

/// What a failure is, machine-readable; upstream's `metav1.StatusReason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StatusReason {
    /// Nothing more specific is known.
    Unknown,
    /// 401.
    Unauthorized,
    /// 403.
    Forbidden,
    /// 404.
    NotFound,
    /// 409, on create.
    AlreadyExists,
    /// 409, on update.
    Conflict,
    /// 410, the object is gone for good.
    Gone,
    /// 422.
    Invalid,
    /// 500, retry later.
    ServerTimeout,
    /// 504.
    Timeout,
    /// 429.
    TooManyRequests,
    /// 400.
    BadRequest,
    /// 405.
    MethodNotAllowed,
    /// 406.
    NotAcceptable,
    /// 413.
    RequestEntityTooLarge,
    /// 415.
    UnsupportedMediaType,
    /// 500.
    InternalError,
    /// 410, the revision asked for is no longer kept.
    Expired,
    /// 503.
    ServiceUnavailable,
    /// 507, ours: the store's disk is full.
    InsufficientStorage,
    /// 501, ours: a part of the API that is not there yet.
    NotImplemented,
}

impl StatusReason {
    /// The word on the wire; empty for `Unknown`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden => "Forbidden",
            Self::NotFound => "NotFound",
            Self::AlreadyExists => "AlreadyExists",
            Self::Conflict => "Conflict",
            Self::Gone => "Gone",
            Self::Invalid => "Invalid",
            Self::ServerTimeout => "ServerTimeout",
            Self::Timeout => "Timeout",
            Self::TooManyRequests => "TooManyRequests",
            Self::BadRequest => "BadRequest",
            Self::MethodNotAllowed => "MethodNotAllowed",
            Self::NotAcceptable => "NotAcceptable",
            Self::RequestEntityTooLarge => "RequestEntityTooLarge",
            Self::UnsupportedMediaType => "UnsupportedMediaType",
            Self::InternalError => "InternalError",
            Self::Expired => "Expired",
            Self::ServiceUnavailable => "ServiceUnavailable",
            Self::InsufficientStorage => "InsufficientStorage",
            Self::NotImplemented => "NotImplemented",
        }
    }

    /// The HTTP status code that goes with the reason.
    pub const fn code(self) -> u16 {
        match self {
            Self::Unknown | Self::InternalError | Self::ServerTimeout => 500,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::AlreadyExists | Self::Conflict => 409,
            Self::Gone | Self::Expired => 410,
            Self::Invalid => 422,
            Self::Timeout => 504,
            Self::TooManyRequests => 429,
            Self::BadRequest => 400,
            Self::MethodNotAllowed => 405,
            Self::NotAcceptable => 406,
            Self::RequestEntityTooLarge => 413,
            Self::UnsupportedMediaType => 415,
            Self::ServiceUnavailable => 503,
            Self::InsufficientStorage => 507,
            Self::NotImplemented => 501,
        }
    }
}

/// A resource and its group, printed as `pods` or `jobs.batch.volcano.sh`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupResource<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The plural resource name, with `/subresource` where one is meant.
    pub resource: &'a str,
}

impl fmt::Display for GroupResource<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_grouped(formatter, self.resource, self.group)
    }
}

/// A kind and its group, printed as `Pod` or `Job.batch.volcano.sh`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupKind<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The kind in camel case.
    pub kind: &'a str,
}

impl fmt::Display for GroupKind<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_grouped(formatter, self.kind, self.group)
    }
}

fn write_grouped(formatter: &mut fmt::Formatter<'_>, what: &str, group: &str) -> fmt::Result {
    match group {
        "" => formatter.write_str(what),
        group => write!(formatter, "{what}.{group}"),
    }
}

/// What a status is about.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatusDetails {
    /// The object's name; empty where none is meant.
    pub name: String,
    pub group: String,
    /// The kind, or the resource for errors about addressing.
    pub kind: String,
    pub uid: String,
    pub causes: Vec<StatusCause>,
    /// Seconds after which a retry makes sense; 0 = not said.
    pub retry_after_seconds: u32,
}

/// One of the failures of a status.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatusCause {
    /// The machine-readable reason, like `FieldValueInvalid`.
    pub reason: String,
    pub message: String,
    /// The field that is wrong.
    pub field: String,
}

/// A failed request, as the Kubernetes API tells it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Status {
    /// The HTTP status code.
    pub code: u16,
    pub reason: StatusReason,
    /// The text for people.
    pub message: String,
    /// What it is about, boxed for it travels in `Result`s.
    pub details: Option<Box<StatusDetails>>,
    /// The token with which a list can go on though its revision is gone.
    pub continues: Option<String>,
}

impl Status {
    /// A failure with the code that belongs to `reason` and no details.
    pub fn new(reason: StatusReason, message: impl Into<String>) -> Self {
        Self { code: reason.code(), reason, message: message.into(), details: None, continues: None }
    }

    fn about(reason: StatusReason, resource: GroupResource<'_>, name: &str, message: String) -> Self {
        Self::new(reason, message).with_details(StatusDetails {
            name: name.to_owned(),
            group: resource.group.to_owned(),
            kind: resource.resource.to_owned(),
            ..StatusDetails::default()
        })
    }

    /// The same failure about `details`.
    #[must_use]
    pub fn with_details(mut self, details: StatusDetails) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    /// The same failure with a token with which the list can go on.
    #[must_use]
    pub fn with_continue(mut self, token: String) -> Self {
        self.continues = Some(token);
        self
    }

    /// The same failure with the advice to retry after `seconds`.
    #[must_use]
    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        self.details.get_or_insert_default().retry_after_seconds = seconds;
        self
    }

    /// 404: no object of that name.
    pub fn not_found(resource: GroupResource<'_>, name: &str) -> Self {
        let message = format!("{resource} {} not found", Quoted(name));
        Self::about(StatusReason::NotFound, resource, name, message)
    }

    /// 404: no such resource or path.
    pub fn unknown_path() -> Self {
        Self::new(StatusReason::NotFound, "the server could not find the requested resource")
            .with_details(StatusDetails::default())
    }

    /// 409: create of a name that is taken.
    pub fn already_exists(resource: GroupResource<'_>, name: &str) -> Self {
        let message = format!("{resource} {} already exists", Quoted(name));
        Self::about(StatusReason::AlreadyExists, resource, name, message)
    }

    /// 409: every generated name was taken.
    pub fn generate_name_conflict(resource: GroupResource<'_>, name: &str) -> Self {
        let message = format!(
            "{resource} {} already exists, the server was not able to generate a unique name for the object",
            Quoted(name)
        );
        Self::about(StatusReason::AlreadyExists, resource, name, message).with_retry_after(1)
    }

    /// 409: `cause` says what stands against the operation.
    pub fn conflict(resource: GroupResource<'_>, name: &str, cause: impl fmt::Display) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} {}: {cause}", Quoted(name));
        Self::about(StatusReason::Conflict, resource, name, message)
    }

    /// 409: an update was based on an old revision.
    pub fn conflict_modified(resource: GroupResource<'_>, name: &str) -> Self {
        Self::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 422: the object breaks rules of its kind; equal messages are told once.
    pub fn invalid(kind: GroupKind<'_>, name: &str, errors: &[FieldError]) -> Self {
        let mut messages: Vec<String> = Vec::with_capacity(errors.len());
        for error in errors {
            let message = error.to_string();
            if !messages.contains(&message) {
                messages.push(message);
            }
        }
        let mut message = format!("{kind} {} is invalid", Quoted(name));
        match messages.as_slice() {
            [] => {}
            [only] => message.push_str(&format!(": {only}")),
            many => message.push_str(&format!(": [{}]", many.join(", "))),
        }
        let causes = errors.iter().map(StatusCause::from).collect();
        Self::new(StatusReason::Invalid, message).with_details(StatusDetails {
            name: name.to_owned(),
            group: kind.group.to_owned(),
            kind: kind.kind.to_owned(),
            causes,
            ..StatusDetails::default()
        })
    }

    /// 422: a well-formed patch that does not apply.
    pub fn unprocessable(message: impl Into<String>) -> Self {
        Self::new(StatusReason::Invalid, message)
    }

    /// 400: the request can't be understood; `message` says what of it.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusReason::BadRequest, message)
    }

    /// 401: nobody is known to have made the request.
    pub fn unauthorized() -> Self {
        Self::new(StatusReason::Unauthorized, "Unauthorized")
    }

    /// 403: `cause` says who may not do what, or which check refused. `name` may be empty.
    pub fn forbidden(resource: GroupResource<'_>, name: &str, cause: impl fmt::Display) -> Self {
        let message = if resource.resource.is_empty() {
            format!("forbidden: {cause}")
        } else if name.is_empty() {
            format!("{resource} is forbidden: {cause}")
        } else {
            format!("{resource} {} is forbidden: {cause}", Quoted(name))
        };
        Self::about(StatusReason::Forbidden, resource, name, message)
    }

    /// 405: `action` is the verb that the resource does not have.
    pub fn method_not_allowed(resource: GroupResource<'_>, action: &str) -> Self {
        let message = format!("{action} is not supported on resources of kind {}", Quoted(&resource.to_string()));
        Self::about(StatusReason::MethodNotAllowed, resource, "", message)
    }

    /// 406: none of the media types the client accepts is among `accepted`.
    pub fn not_acceptable(accepted: &[&str]) -> Self {
        let message = format!("only the following media types are accepted: {}", accepted.join(", "));
        Self::new(StatusReason::NotAcceptable, message)
    }

    /// 415: the body is in none of the formats `accepted`.
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(StatusReason::UnsupportedMediaType, message)
    }

    /// 413: `cause` names the limit.
    pub fn too_large(cause: impl fmt::Display) -> Self {
        let message = format!("Request entity is too large: {cause}");
        Self::new(StatusReason::RequestEntityTooLarge, message)
    }

    /// 410: the revision or continue token is too old.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusReason::Expired, message)
    }

    /// 410: the thing is gone and will not come back.
    pub fn gone(message: impl Into<String>) -> Self {
        Self::new(StatusReason::Gone, message)
    }

    /// 429: the client is to try again after so many seconds.
    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        Self::new(StatusReason::TooManyRequests, message).with_retry_after(retry_after_seconds)
    }

    /// 500: a fault of ours.
    pub fn internal_error(cause: impl fmt::Display) -> Self {
        let message = cause.to_string();
        let details = StatusDetails {
            causes: vec![StatusCause { message: message.clone(), ..StatusCause::default() }],
            ..StatusDetails::default()
        };
        Self::new(StatusReason::InternalError, format!("Internal error occurred: {message}")).with_details(details)
    }

    /// 503: not ready yet or shutting down.
    pub fn service_unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusReason::ServiceUnavailable, message)
    }

    /// 504: the request's time is up.
    pub fn timeout(message: impl fmt::Display) -> Self {
        Self::new(StatusReason::Timeout, format!("Timeout: {message}"))
    }

    /// 500 `ServerTimeout`: `operation` could not be done now, and may be tried again.
    pub fn server_timeout(resource: GroupResource<'_>, operation: &str, retry_after_seconds: u32) -> Self {
        let message = format!(
            "The {operation} operation against {resource} could not be completed at this time, please try again."
        );
        Self::about(StatusReason::ServerTimeout, resource, "", message).with_retry_after(retry_after_seconds)
    }

    /// 507: the store cannot take the write; nothing changed.
    pub fn insufficient_storage(message: impl Into<String>) -> Self {
        Self::new(StatusReason::InsufficientStorage, message)
    }

    /// 501: a known part of the API that is not there yet.
    pub fn not_implemented(message: impl Into<String>) -> Self {
        Self::new(StatusReason::NotImplemented, message)
    }

    /// The object `kind: Status` that goes over the wire.
    pub fn to_json(&self) -> Value {
        let mut object = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        });
        if self.reason != StatusReason::Unknown {
            object["reason"] = self.reason.as_str().into();
        }
        if let Some(token) = &self.continues {
            object["metadata"]["continue"] = token.as_str().into();
        }
        if let Some(details) = &self.details {
            object["details"] = details.to_json();
        }
        object
    }
}

/// The answer to a delete that left no object: `kind: Status` with `status: Success`.
pub fn deleted(resource: GroupResource<'_>, name: &str, uid: &str) -> Value {
    let details = StatusDetails {
        name: name.to_owned(),
        group: resource.group.to_owned(),
        kind: resource.resource.to_owned(),
        uid: uid.to_owned(),
        ..StatusDetails::default()
    };
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details.to_json(),
    })
}

impl StatusDetails {
    fn to_json(&self) -> Value {
        let mut object = Map::new();
        for (key, text) in [("name", &self.name), ("group", &self.group), ("kind", &self.kind), ("uid", &self.uid)] {
            insert_text(&mut object, key, text);
        }
        if !self.causes.is_empty() {
            let causes = self.causes.iter().map(StatusCause::to_json).collect();
            object.insert("causes".into(), Value::Array(causes));
        }
        if self.retry_after_seconds > 0 {
            object.insert("retryAfterSeconds".into(), self.retry_after_seconds.into());
        }
        Value::Object(object)
    }
}

impl StatusCause {
    fn to_json(&self) -> Value {
        let mut object = Map::new();
        for (key, text) in [("reason", &self.reason), ("message", &self.message), ("field", &self.field)] {
            insert_text(&mut object, key, text);
        }
        Value::Object(object)
    }
}

impl From<&FieldError> for StatusCause {
    fn from(error: &FieldError) -> Self {
        Self { reason: error.kind.cause().to_owned(), message: error.body(), field: error.path.clone() }
    }
}

fn insert_text(object: &mut Map<String, Value>, key: &str, text: &str) {
    if !text.is_empty() {
        object.insert(key.to_owned(), text.into());
    }
}

#[cfg(test)]
mod tests;
