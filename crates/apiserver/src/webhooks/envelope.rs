//! The envelope of every review: which API it is of, and the answer in it.
//!
//! Invariant: an answer of another version or kind than was asked does not count. Pure.

use serde::Deserialize;
use serde::de::DeserializeOwned;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound = "R: DeserializeOwned")]
struct Review<R> {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    response: Option<R>,
}

/// The `response` of a review of this version (`group/version`) and kind, or what is wrong with it.
pub(crate) fn response<R: DeserializeOwned>(body: &[u8], version: &str, kind: &str) -> Result<R, String> {
    let review: Review<R> = serde_json::from_slice(body)
        .map_err(|error| format!("couldn't get version/kind; json parse error: {error}"))?;
    if review.api_version != version || review.kind != kind {
        let (other, got) = (review.api_version, review.kind);
        return Err(format!("expected webhook response of {version}, Kind={kind}, got {other}, Kind={got}"));
    }
    review.response.ok_or_else(|| "webhook response was absent".to_owned())
}
