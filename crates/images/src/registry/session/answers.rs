//! What answers say beside their content: whether to try again, where to go on, and why not.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, Uri};
use serde::Deserialize;

/// Longest part of a refusal that is passed on, in characters.
const MESSAGE_CHARS_MAX: usize = 300;

/// Whether it may be another answer in a while.
pub(crate) fn is_passing(status: u16) -> bool {
    matches!(status, 408 | 429 | 500 | 502 | 503 | 504)
}

/// Where a redirect from `uri` leads.
pub(crate) fn next(uri: &Uri, to: &str) -> Option<Uri> {
    let address = match to.strip_prefix("//") {
        Some(rest) => format!("{}://{rest}", uri.scheme_str()?),
        None if to.starts_with('/') => format!("{}://{}{to}", uri.scheme_str()?, uri.authority()?),
        None => to.to_owned(),
    };
    let next: Uri = address.parse().ok()?;
    (matches!(next.scheme_str(), Some("http" | "https")) && next.authority().is_some()).then_some(next)
}

/// In seconds; a date says no more than that it is busy.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// The first error of a registry's answer.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Refusal {
    message: Option<String>,
    /// Such as `DIGEST_INVALID`.
    code: Option<String>,
}

impl Refusal {
    pub(super) fn read(body: &[u8]) -> Refusal {
        #[derive(Deserialize)]
        struct Errors {
            errors: Vec<Refusal>,
        }
        let errors: Option<Errors> = serde_json::from_slice(body).ok();
        errors.and_then(|errors| errors.errors.into_iter().next()).unwrap_or_default()
    }

    pub(super) fn has_code(&self, code: &str) -> bool {
        self.code.as_deref() == Some(code)
    }

    /// As one line that can be shown, or nothing.
    pub(super) fn message(self) -> String {
        let text = self.message.or(self.code).unwrap_or_default();
        text.chars().filter(|c| !c.is_control()).take(MESSAGE_CHARS_MAX).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_lead_to_addresses_alone() {
        let from: Uri = "https://h:1/v2/a".parse().unwrap();
        let cases = [
            ("/x?y", Some("https://h:1/x?y")),
            ("//other/x", Some("https://other/x")),
            ("http://h/x", Some("http://h/x")),
            ("file:///etc/passwd", None),
            ("x", None),
            ("", None),
        ];
        for (to, expected) in cases {
            assert_eq!(next(&from, to).map(|uri| uri.to_string()).as_deref(), expected, "{to}");
        }
    }

    fn message(body: &[u8]) -> String {
        Refusal::read(body).message()
    }

    #[test]
    fn a_registrys_message_is_one_line() {
        assert_eq!(message(br#"{"errors": [{"code": "X", "message": "a\nb\u001b[1m"}]}"#), "ab[1m");
        assert_eq!(message(br#"{"errors": [{"code": "X"}]}"#), "X");
        assert_eq!(message(b"<html>"), "");
    }
}
