//! A login on another machine: the device flow (RFC 8628), for machines without a browser.
//!
//! Invariant: the issuer is asked no faster than it says, and no longer than its code is good.

use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;

use super::http::Reply;
use super::issuer::Refusal;
use super::{Issuer, LoginError, Tokens, quoted};

/// The grant that codes of devices are.
const GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
/// Pause between two questions, where the issuer says none.
const PAUSE: u64 = 5;
/// What a pause grows by when the issuer finds it too short.
const SLOWER: u64 = 5;
/// Longest pause that is taken from an issuer, in seconds.
const PAUSE_MAX: u64 = 60;
/// Longest life of a code, in seconds.
const LIFE_MAX: u64 = 1_800;

#[derive(Deserialize)]
struct Answer {
    device_code: String,
    user_code: String,
    verification_uri: String,
    verification_uri_complete: Option<String>,
    expires_in: u64,
    interval: Option<u64>,
}

/// A login that waits for somebody to confirm it elsewhere.
pub struct DeviceFlow<'i> {
    issuer: &'i Issuer,
    answer: Answer,
}

/// What follows from a refusal.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Wait { pause: u64 },
    End,
}

fn next(refusal: &Refusal, pause: u64) -> Next {
    match refusal.error.as_str() {
        "authorization_pending" => Next::Wait { pause },
        "slow_down" => Next::Wait { pause: (pause + SLOWER).min(PAUSE_MAX) },
        _ => Next::End,
    }
}

impl<'i> DeviceFlow<'i> {
    /// Asks the issuer for a code.
    ///
    /// # Errors
    /// Where it has none.
    pub async fn begin(issuer: &'i Issuer) -> Result<Self, LoginError> {
        let no_flow = || LoginError::NoDeviceFlow(issuer.method.issuer.clone());
        let address = issuer.discovery.device_authorization_endpoint.as_ref().ok_or_else(no_flow)?;
        let scopes = issuer.scopes();
        let fields = [("client_id", issuer.method.client_id.as_str()), ("scope", scopes.as_str())];
        let Reply { status, body } = issuer.post(address, &fields).await?;
        if status != 200 {
            return Err(match serde_json::from_slice::<Refusal>(&body) {
                Ok(refusal) => LoginError::Refused(refusal.text()),
                Err(_) => LoginError::Status { url: address.clone(), status },
            });
        }
        let answer = serde_json::from_slice(&body)
            .map_err(|error| LoginError::Answer { url: address.clone(), detail: error.to_string() })?;
        Ok(Self { issuer, answer })
    }

    /// Where it is confirmed, and the code that is typed there.
    pub fn instructions(&self) -> (String, String) {
        (quoted(&self.answer.verification_uri), quoted(&self.answer.user_code))
    }

    /// Where it is confirmed without typing.
    pub fn complete_address(&self) -> Option<String> {
        self.answer.verification_uri_complete.as_deref().map(quoted)
    }

    /// Waits for the confirmation, and gets the tokens.
    ///
    /// # Errors
    /// Where it was refused, or nobody came in time.
    pub async fn finish(self, now: impl Fn() -> Timestamp) -> Result<Tokens, LoginError> {
        let life = self.answer.expires_in.min(LIFE_MAX);
        let asking = self.ask(&now);
        let asked = tokio::time::timeout(Duration::from_secs(life), asking).await;
        asked.unwrap_or(Err(LoginError::NobodyCame(life.div_ceil(60))))
    }

    async fn ask(&self, now: &impl Fn() -> Timestamp) -> Result<Tokens, LoginError> {
        let mut pause = self.answer.interval.unwrap_or(PAUSE).clamp(1, PAUSE_MAX);
        let fields = [("grant_type", GRANT), ("device_code", self.answer.device_code.as_str())];
        loop {
            tokio::time::sleep(Duration::from_secs(pause)).await;
            let refusal = match self.issuer.tokens(&fields, None, now).await {
                Ok(Ok(tokens)) => return Ok(tokens),
                Ok(Err(refusal)) => refusal,
                // RFC 8628, 3.5: an answer that did not come is asked for again, more slowly.
                Err(LoginError::Timeout { .. } | LoginError::Unreachable { .. }) => {
                    pause = (pause * 2).min(PAUSE_MAX);
                    continue;
                }
                Err(error) => return Err(error),
            };
            match next(&refusal, pause) {
                Next::Wait { pause: longer } => pause = longer,
                Next::End => return Err(LoginError::Refused(refusal.text())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_waits_as_long_as_the_issuer_wishes_and_ends_with_its_no() {
        let refusal = |error: &str| serde_json::from_value(serde_json::json!({ "error": error })).unwrap();
        assert_eq!(next(&refusal("authorization_pending"), 5), Next::Wait { pause: 5 });
        assert_eq!(next(&refusal("slow_down"), 5), Next::Wait { pause: 10 });
        assert_eq!(next(&refusal("slow_down"), PAUSE_MAX), Next::Wait { pause: PAUSE_MAX });
        for error in ["access_denied", "expired_token", "invalid_grant", ""] {
            assert_eq!(next(&refusal(error), 5), Next::End, "{error}");
        }
    }
}
