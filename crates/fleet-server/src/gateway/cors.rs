//! Which pages of other origins may ask from a browser.
//!
//! Invariant: only pages of origins that the configuration names learn an answer. What a browser asks before it asks (the
//! preflight) is answered to nobody in particular: it sends neither certificates nor passwords with that. Called by the front;
//! names and values are those of Armada's gateway.

use std::collections::BTreeSet;

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use tonic::body::Body;

/// What a request may have besides what any may have.
const HEADERS: HeaderValue = HeaderValue::from_static("Content-Type,Accept,Authorization");
const METHODS: HeaderValue = HeaderValue::from_static("GET,HEAD,POST,PUT,DELETE");
const YES: HeaderValue = HeaderValue::from_static("true");
const BY_ORIGIN: HeaderValue = HeaderValue::from_static("Origin");

/// Origins whose pages may ask; none at first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origins(BTreeSet<String>);

impl Origins {
    /// These, each as a browser writes it.
    ///
    /// # Errors
    /// The first one that no browser would send.
    pub fn new(origins: &[String]) -> Result<Self, String> {
        match origins.iter().find(|origin| !is_origin(origin)) {
            Some(wrong) => Err(wrong.clone()),
            None => Ok(Self(origins.iter().cloned().collect())),
        }
    }

    /// The origin that a request comes from, where its pages may ask.
    pub fn of(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let is_named = |origin: &&HeaderValue| origin.to_str().is_ok_and(|origin| self.0.contains(origin));
        headers.get(ORIGIN).filter(is_named).cloned()
    }
}

/// Whether it is as `https://lookout.example.com`, with a port where that is not the usual one.
fn is_origin(text: &str) -> bool {
    let Ok(uri) = text.parse::<Uri>() else { return false };
    let (Some(scheme @ ("http" | "https")), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return false;
    };
    // A browser sends no path, no name of a user, and small letters.
    let is_whole = format!("{scheme}://{authority}") == text && !text.contains('@');
    is_whole && !text.bytes().any(|byte| byte.is_ascii_uppercase())
}

/// Whether a browser asks what it may ask.
pub(super) fn is_preflight(request: &Request<Body>) -> bool {
    request.method() == Method::OPTIONS && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// What it may ask.
pub(super) fn preflight() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HEADERS);
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    response
}

/// Lets the pages of an origin read an answer.
pub(super) fn show(response: &mut Response<Body>, origin: HeaderValue) {
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, YES);
    headers.append(VARY, BY_ORIGIN);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_those_that_browsers_send() {
        let read = |text: &str| Origins::new(&[text.to_owned()]);
        for good in ["https://lookout.example.com", "http://localhost:3000", "https://[::1]:8080"] {
            let origins = read(good).expect("an origin");
            let mut headers = HeaderMap::new();
            assert_eq!(origins.of(&headers), None);
            headers.insert(ORIGIN, HeaderValue::from_static("https://other.example.com"));
            assert_eq!(origins.of(&headers), None);
            headers.insert(ORIGIN, HeaderValue::from_str(good).expect("a value"));
            assert_eq!(origins.of(&headers), headers.get(ORIGIN).cloned(), "{good}");
        }
        for bad in
            ["*", "", "null", "lookout.example.com", "https://a/", "https://a/x", "https://A", "ftp://a", "https://u@a"]
        {
            assert_eq!(read(bad), Err(bad.to_owned()));
        }
    }
}
