//! Answers: JSON, refusals, warnings.
//!
//! Invariant: every refusal is a `Status` of Kubernetes, with the code that stands in it. Called by whatever answers requests.

use http::{HeaderValue, Response, StatusCode, header};
use pumice_objects::status::Status;

use super::body::Body;
use super::negotiate;

/// Most `Warning` headers of one answer.
const WARNINGS_MAX: usize = 32;
/// Warnings that together are longer than this, in bytes, are cut.
const WARNINGS_BYTES_MAX: usize = 4096;
/// What is left of each then, in bytes.
const WARNING_BYTES_MAX: usize = 256;

/// What a verb answers with.
pub(crate) type Answer = Result<Response<Body>, Status>;

pub(crate) fn json(code: StatusCode, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// The answer that a refusal becomes.
pub(crate) fn refusal(status: &Status) -> Response<Body> {
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json(code, status.to_json().to_string());
    let retry = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    if retry > 0 {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(retry));
    }
    response
}

/// Adds a `Warning` header for each text, stripped of what a header can't hold; those beyond the most are left out. Long ones
/// are cut only where there is too much of them in all, as upstream: one may name all that a profile asks of a pod.
pub(crate) fn warn(response: &mut Response<Body>, warnings: &[String]) {
    let bytes: usize = warnings.iter().map(String::len).sum();
    let bytes_max = if bytes > WARNINGS_BYTES_MAX { WARNING_BYTES_MAX } else { WARNINGS_BYTES_MAX };
    for warning in warnings.iter().take(WARNINGS_MAX) {
        let mut text = String::new();
        for letter in warning.chars().filter(|letter| letter.is_ascii() && !letter.is_ascii_control()) {
            if letter == '"' || letter == '\\' {
                text.push('\\');
            }
            text.push(letter);
            if text.len() >= bytes_max {
                break;
            }
        }
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{text}\"")) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}

/// 406 that says what can be had.
pub(crate) fn not_acceptable() -> Status {
    Status::not_acceptable(&[negotiate::WRITTEN])
}
