//! The beginning of a WebSocket: whether a request asks for one, the answer that agrees, and a token that comes with it.
//!
//! Invariant: only heads of requests are looked at; what is said over the socket is of who takes it. Called by the pipeline,
//! by watches and by streams to pods.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use pumice_objects::status::Status;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::http::body::Body;

/// What browsers, which can't set headers, put in front of a token to send it as a protocol.
const BEARER: &str = "base64url.bearer.authorization.k8s.io.";
/// The version that everybody speaks.
const VERSION: &str = "13";

/// The entries of a header that is a list, over one or more lines.
fn entries<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h str> {
    let lines = headers.get_all(name).into_iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim).filter(|entry| !entry.is_empty())
}

/// Whether an entry of a header that is a list is as wanted; entries are compared in lower case.
pub(crate) fn has(headers: &HeaderMap, name: &HeaderName, wanted: impl Fn(&str) -> bool) -> bool {
    entries(headers, name).any(|entry| wanted(&entry.to_ascii_lowercase()))
}

/// Whether a request asks to become a WebSocket.
pub(crate) fn is_asked(headers: &HeaderMap) -> bool {
    has(headers, &UPGRADE, |entry| entry == "websocket") && has(headers, &CONNECTION, |entry| entry == "upgrade")
}

/// The token that a request for a WebSocket brings as a protocol; empty for one that is no text.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<String> {
    if !is_asked(headers) {
        return None;
    }
    let encoded = entries(headers, &SEC_WEBSOCKET_PROTOCOL).find_map(|entry| entry.strip_prefix(BEARER))?;
    let decoded = URL_SAFE_NO_PAD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    Some(decoded.unwrap_or_default())
}

/// Takes tokens out of the protocols: nobody but this server needs to see them.
pub(crate) fn without_bearer(headers: &mut HeaderMap) {
    if !entries(headers, &SEC_WEBSOCKET_PROTOCOL).any(|entry| entry.starts_with(BEARER)) {
        return;
    }
    let kept: Vec<&str> =
        entries(headers, &SEC_WEBSOCKET_PROTOCOL).filter(|entry| !entry.starts_with(BEARER)).collect();
    let kept = HeaderValue::from_str(&kept.join(", ")).ok().filter(|kept| !kept.is_empty());
    headers.remove(SEC_WEBSOCKET_PROTOCOL);
    if let Some(kept) = kept {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, kept);
    }
}

/// The answer that agrees. Of the protocols that are offered it takes the first: clients that offer any insist on one.
pub(crate) fn agree(headers: &HeaderMap) -> Result<Response<Body>, Status> {
    if headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version != VERSION) {
        return Err(Status::bad_request(format!("WebSocket version {VERSION} is served (Sec-WebSocket-Version)")));
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).ok_or_else(|| Status::bad_request("Sec-WebSocket-Key is missing"))?;
    let accepted = HeaderValue::try_from(derive_accept_key(key.as_bytes())).map_err(Status::internal_error)?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().extend([
        (CONNECTION, HeaderValue::from_static("Upgrade")),
        (UPGRADE, HeaderValue::from_static("websocket")),
        (SEC_WEBSOCKET_ACCEPT, accepted),
    ]);
    let protocol = entries(headers, &SEC_WEBSOCKET_PROTOCOL).next();
    if let Some(protocol) = protocol.and_then(|protocol| HeaderValue::from_str(protocol).ok()) {
        response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    const ASKED: [(&str, &str); 4] = [
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "WebSocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];

    #[test]
    fn a_handshake_is_agreed_to() {
        let mut asked = headers(&ASKED);
        assert!(is_asked(&asked));
        let answer = agree(&asked).unwrap();
        assert_eq!(answer.status(), 101);
        // The example of RFC 6455.
        assert_eq!(answer.headers()[SEC_WEBSOCKET_ACCEPT], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert!(!answer.headers().contains_key(SEC_WEBSOCKET_PROTOCOL));
        asked.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static("one, two"));
        assert_eq!(agree(&asked).unwrap().headers()[SEC_WEBSOCKET_PROTOCOL], "one");
        for name in ["sec-websocket-version", "sec-websocket-key"] {
            let mut broken = headers(&ASKED);
            broken.remove(name);
            assert_eq!(agree(&broken).unwrap_err().code, 400, "{name}");
        }
    }

    #[test]
    fn a_token_is_read_and_taken_out() {
        let mut asked = headers(&ASKED);
        assert_eq!(bearer(&asked), None);
        asked.insert(SEC_WEBSOCKET_PROTOCOL, format!("{BEARER}dG9rZW4, other").parse().unwrap());
        assert_eq!(bearer(&asked).as_deref(), Some("token"));
        without_bearer(&mut asked);
        assert_eq!(asked[SEC_WEBSOCKET_PROTOCOL], "other");
        asked.insert(SEC_WEBSOCKET_PROTOCOL, format!("{BEARER}%%%").parse().unwrap());
        assert_eq!(bearer(&asked).as_deref(), Some(""), "refused, not nobody");
        without_bearer(&mut asked);
        assert!(!asked.contains_key(SEC_WEBSOCKET_PROTOCOL));
        let plain = headers(&[("sec-websocket-protocol", &format!("{BEARER}dG9rZW4"))]);
        assert_eq!(bearer(&plain), None, "a token in a request for no WebSocket does not count");
    }
}
