//! A login in the browser of this machine: the code flow with PKCE, whose answer comes to a port of the loopback (RFC 8252).
//!
//! Invariant: a code is taken only with the `state` of this login, and is worth nothing without the verifier, which never leaves
//! this process but to the issuer. Whoever else comes to the port learns and ends nothing. Everything has a limit of time.

use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use jiff::Timestamp;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::issuer::{challenge, random_text};
use super::{Issuer, LoginError, Tokens, quoted};

/// How long somebody may take to log in, in minutes.
const LOGIN_MINUTES_MAX: u64 = 10;
/// How long a browser may take to send a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Connections at a time: browsers open some that they don't use.
const CONNECTIONS_MAX: usize = 16;
/// How long ago somebody may have logged in at the issuer, in seconds: 30 days.
const SESSION_SECONDS_MAX: &str = "2592000";
/// Where the answer comes.
const PATH: &str = "/callback";

/// A login that has begun.
pub struct CodeFlow<'i> {
    issuer: &'i Issuer,
    listener: TcpListener,
    redirect: String,
    verifier: String,
    state: String,
    nonce: String,
    url: String,
}

/// What a request to the port is.
#[derive(Debug, PartialEq, Eq)]
enum Callback {
    Code(String),
    /// The issuer says no.
    Refused(String),
    /// It is none of this login.
    Strange,
}

impl<'i> CodeFlow<'i> {
    /// Takes a port, and makes the address at which people log in.
    ///
    /// # Errors
    /// Where no port can be had.
    pub async fn begin(issuer: &'i Issuer) -> Result<Self, LoginError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(LoginError::Listen)?;
        let port = listener.local_addr().map_err(LoginError::Listen)?.port();
        let redirect = format!("http://127.0.0.1:{port}{PATH}");
        let (verifier, state, nonce) = (random_text()?, random_text()?, random_text()?);
        let scopes = issuer.scopes();
        let mut query = form_urlencoded::Serializer::new(String::new());
        query
            .append_pair("response_type", "code")
            .append_pair("client_id", &issuer.method.client_id)
            .append_pair("redirect_uri", &redirect)
            .append_pair("scope", &scopes)
            .append_pair("state", &state)
            .append_pair("nonce", &nonce)
            .append_pair("code_challenge", &challenge(&verifier))
            .append_pair("code_challenge_method", "S256")
            // Makes the issuer say when somebody logged in, which tells the tokens of one login from others.
            .append_pair("max_age", SESSION_SECONDS_MAX);
        if scopes.split(' ').any(|scope| scope == "offline_access") {
            // OpenID Connect, 11: without it the scope is passed over.
            query.append_pair("prompt", "consent");
        }
        let endpoint = &issuer.discovery.authorization_endpoint;
        let mark = if endpoint.contains('?') { '&' } else { '?' };
        let url = format!("{endpoint}{mark}{}", query.finish());
        Ok(Self { issuer, listener, redirect, verifier, state, nonce, url })
    }

    /// Where people log in.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Waits for somebody who has logged in, and gets his tokens.
    ///
    /// # Errors
    /// Where nobody comes in time, or the issuer refuses.
    pub async fn finish(self, now: impl Fn() -> Timestamp) -> Result<Tokens, LoginError> {
        let minutes = Duration::from_secs(LOGIN_MINUTES_MAX * 60);
        let code = tokio::time::timeout(minutes, self.code()).await;
        let code = code.unwrap_or(Err(LoginError::NobodyCame(LOGIN_MINUTES_MAX)))?;
        let fields = [
            ("grant_type", "authorization_code"),
            ("code", code.as_str()),
            ("redirect_uri", self.redirect.as_str()),
            ("code_verifier", self.verifier.as_str()),
        ];
        let tokens = self.issuer.tokens(&fields, Some(&self.nonce), now).await?;
        tokens.map_err(|refusal| LoginError::Refused(refusal.text()))
    }

    async fn code(&self) -> Result<String, LoginError> {
        let mut connections = FuturesUnordered::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept(), if connections.len() < CONNECTIONS_MAX => {
                    if let Ok((socket, _)) = accepted {
                        connections.push(tokio::time::timeout(REQUEST_TIMEOUT, self.answer(socket)));
                    }
                }
                Some(answered) = connections.next() => match answered {
                    Ok(Some(Callback::Code(code))) => return Ok(code),
                    Ok(Some(Callback::Refused(why))) => return Err(LoginError::Refused(why)),
                    Ok(Some(Callback::Strange) | None) | Err(_) => {}
                },
            }
        }
    }

    /// Reads a request and says to the browser what became of it.
    async fn answer(&self, mut socket: TcpStream) -> Option<Callback> {
        let mut head = Vec::new();
        while !head.windows(4).any(|end| end == b"\r\n\r\n") {
            if head.len() > HEAD_BYTES_MAX || socket.read_buf(&mut head).await.ok()? == 0 {
                return None;
            }
        }
        let line = std::str::from_utf8(&head).ok()?.lines().next()?;
        let mut words = line.split(' ');
        let (method, target) = (words.next()?, words.next()?);
        let callback = if method == "GET" { self.read(target) } else { Callback::Strange };
        let (status, text) = match &callback {
            Callback::Code(_) => {
                ("200 OK", "You are logged in. You can close this window and go back to the terminal.")
            }
            Callback::Refused(_) => ("403 Forbidden", "The login was refused. The terminal says why."),
            Callback::Strange => ("404 Not Found", "This is no answer to the login that is waiting here."),
        };
        let page = format!("<!doctype html><meta charset=utf-8><title>jobctl login</title><p>{text}</p>\n");
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\
             Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nContent-Security-Policy: default-src 'none'\r\n\r\n{page}",
            page.len()
        );
        // A browser that has gone learns it from the terminal.
        let _ = socket.write_all(answer.as_bytes()).await;
        let _ = socket.shutdown().await;
        Some(callback)
    }

    fn read(&self, target: &str) -> Callback {
        let issuer = &self.issuer.method.issuer;
        read_callback(target, &self.state, issuer, self.issuer.discovery.authorization_response_iss_parameter_supported)
    }
}

/// What the target of a request says; `names_issuer` is whether the issuer names itself in each answer.
fn read_callback(target: &str, state: &str, issuer: &str, names_issuer: bool) -> Callback {
    let Some(query) = target.strip_prefix(PATH).and_then(|rest| rest.strip_prefix('?')) else {
        return Callback::Strange;
    };
    let value = |wanted: &str| {
        let mut found = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == wanted);
        let value = found.next().map(|(_, value)| value.into_owned());
        // One that is there twice could be read in two ways.
        if found.next().is_some() { None } else { value }
    };
    let is_issuer = match value("iss") {
        Some(named) => named == issuer,
        None => !names_issuer,
    };
    if value("state").as_deref() != Some(state) || !is_issuer {
        return Callback::Strange;
    }
    match (value("code"), value("error")) {
        (Some(code), None) if !code.is_empty() => Callback::Code(code),
        (None, Some(error)) => {
            let description = value("error_description").unwrap_or_default();
            let description = if description.is_empty() { String::new() } else { format!("{} ", quoted(&description)) };
            Callback::Refused(format!("{description}({})", quoted(&error)))
        }
        _ => Callback::Strange,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ISSUER: &str = "https://login.example.com";

    fn read(target: &str) -> Callback {
        read_callback(target, "s+t", ISSUER, false)
    }

    #[test]
    fn only_the_answer_to_this_login_counts() {
        let good = Callback::Code("c/1".to_owned());
        assert_eq!(read("/callback?code=c%2F1&state=s%2Bt"), good);
        assert_eq!(read("/callback?state=s%2Bt&code=c%2F1&session_state=x"), good);
        for strange in [
            "/callback",
            "/callback?",
            "/callback?code=c",
            "/callback?code=c&state=other",
            "/callback?code=c&state=",
            "/callback?code=c&state=s+t",
            "/callback?code=&state=s%2Bt",
            "/callback?state=s%2Bt",
            "/callback?code=c&code=d&state=s%2Bt",
            "/callback?code=c&state=other&state=s%2Bt",
            "/callback?code=c&error=x&state=s%2Bt",
            "/favicon.ico",
            "/callback/x?code=c&state=s%2Bt",
            "/callback?error=access_denied",
        ] {
            assert_eq!(read(strange), Callback::Strange, "{strange}");
        }
        let refused = read("/callback?error=access_denied&error_description=no%1B&state=s%2Bt");
        assert_eq!(refused, Callback::Refused("no (access_denied)".to_owned()));
    }

    #[test]
    fn an_answer_that_names_another_issuer_is_strange() {
        let read = |iss: &str, names_issuer| {
            read_callback(&format!("/callback?code=c&state=s{iss}"), "s", ISSUER, names_issuer)
        };
        let good = Callback::Code("c".to_owned());
        let (own, other) = ("&iss=https%3A%2F%2Flogin.example.com", "&iss=https%3A%2F%2Fevil.example.com");
        assert_eq!(
            (read(own, false), read(own, true), read("", false)),
            (good, Callback::Code("c".to_owned()), Callback::Code("c".to_owned()))
        );
        for (iss, names_issuer) in [(other, false), (other, true), ("", true)] {
            assert_eq!(read(iss, names_issuer), Callback::Strange, "{iss}");
        }
    }
}
