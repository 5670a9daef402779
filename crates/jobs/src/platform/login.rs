//! Logging in to a platform: whom to trust there, a token from its issuer, and a fresh one whenever it is needed.
//!
//! ```text
//!  server ──/pumice/login──► authority (pinned) · issuer, client, scopes
//!  issuer ──discovery──► code flow (browser, loopback) or device flow ──► tokens ──► session file (0600)
//!  connection ──► session::fresh ──► token of now (one process at a time refreshes)
//! ```
//!
//! Invariant: nobody is believed before the authority is pinned, and secrets are in files of mode 0600 only: never in
//! arguments, messages or the contexts. Called by `jobctl login` and `logout`, and by [`super::connection`].

use std::path::PathBuf;

use crate::error::{CORRECT, Failure, Remedy};
use crate::exit_code::Exit;

mod authority;
mod code_flow;
mod device_flow;
mod http;
mod issuer;
mod server;
mod session;

pub use authority::{Authority, fingerprint};
pub use code_flow::CodeFlow;
pub use device_flow::DeviceFlow;
pub use issuer::{Issuer, Tokens};
pub use server::{Methods, OidcMethod, Server};
pub use session::{Credential, Files, Session, fresh, keep_fresh, login_of, logout};

/// Longest text of others that an error quotes, in characters.
const QUOTED_MAX: usize = 200;

/// Why somebody could not log in, or is logged in no more.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    #[error("{0:?} is no address to log in at; https://HOST:PORT is wanted")]
    Address(String),
    #[error("{url} can't be reached")]
    Unreachable {
        url: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("no answer of {url} within {seconds} s", seconds = http::ANSWER_TIMEOUT.as_secs())]
    Timeout { url: String },
    #[error("{url} answers with status {status}")]
    Status { url: String, status: u16 },
    #[error("the answer of {url} can't be used: {detail}")]
    Answer { url: String, detail: String },
    #[error("{0} does not say by which authority it is known; give its certificate by --ca FILE")]
    NoAuthority(String),
    #[error("the file of --ca has no certificate, or more than one")]
    NotOneCertificate,
    #[error(
        "{server} is known by the authority {found}, not by {wanted}: somebody else answers, or its authority was replaced; \
         if an administrator says so, log in with --fingerprint {found}"
    )]
    OtherAuthority { server: String, wanted: String, found: String },
    #[error("{0:?} is no fingerprint; SHA256: and 64 digits or 43 characters of base64 are wanted")]
    Fingerprint(String),
    #[error(
        "the authority of {server} was not confirmed; compare {found} with what its administrator has, and give it by --fingerprint"
    )]
    NotConfirmed { server: String, found: String },
    #[error("{0} has no issuer to log in at; its administrator sets one by --oidc-issuer-url")]
    NoIssuer(String),
    #[error("{0} takes no passwords; log in without --user")]
    NoPasswords(String),
    #[error("the issuer {issuer} says that it is {named:?}; nothing is asked of it")]
    OtherIssuer { issuer: String, named: String },
    #[error("the issuer {0} offers no login for machines without a browser (no device_authorization_endpoint)")]
    NoDeviceFlow(String),
    #[error("the login was refused: {0}")]
    Refused(String),
    #[error("nobody logged in within {0} minutes")]
    NobodyCame(u64),
    #[error("the issuer's token can't be used: {0}")]
    Token(&'static str),
    #[error("the login at {server} has ended: {reason}")]
    Ended { server: String, reason: String },
    #[error("no random numbers can be had of this machine")]
    Random,
    #[error("no port of this machine can be listened on")]
    Listen(#[source] std::io::Error),
    #[error("cannot {doing} {}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{} is no login: {detail}", path.display())]
    Parse { path: PathBuf, detail: String },
    #[error("another process has been using {} for {seconds} s", path.display(), seconds = session::LOCK_TIMEOUT.as_secs())]
    Locked { path: PathBuf },
    #[error("{0} is no login of jobctl's")]
    NoLogin(String),
}

impl Failure for LoginError {
    fn exit(&self) -> Exit {
        match self {
            LoginError::Unreachable { .. }
            | LoginError::Timeout { .. }
            | LoginError::Status { .. }
            | LoginError::Locked { .. } => Exit::Unreachable,
            LoginError::Refused(_) | LoginError::Ended { .. } | LoginError::OtherAuthority { .. } => Exit::Denied,
            LoginError::NobodyCame(_) => Exit::TimedOut,
            LoginError::NoLogin(_) => Exit::NotFound,
            _ => Exit::Usage,
        }
    }

    fn remedy(&self) -> Remedy {
        match self {
            LoginError::Ended { server, .. } => Remedy::from_text(format!("jobctl login {server}")),
            LoginError::NoDeviceFlow(_) => Remedy::from_text("jobctl login without --device"),
            LoginError::NobodyCame(_) => Remedy::from_text("the same command again"),
            LoginError::NoLogin(_) => Remedy::from_text("jobctl context list"),
            LoginError::OtherAuthority { .. } | LoginError::NotConfirmed { .. } | LoginError::NoIssuer(_) => {
                Remedy::Unknown
            }
            _ => Remedy::from_text(CORRECT),
        }
    }
}

/// A text of others, short enough for a message and without what could change a terminal.
fn quoted(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(QUOTED_MAX).collect()
}
