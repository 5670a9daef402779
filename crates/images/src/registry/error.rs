//! Why a registry did not give what it was asked for.

use std::error::Error as _;

use rustls::CertificateError;

use crate::registry::credentials::CredentialsError;
use crate::registry::session::{Right, is_passing};

/// An answer that is no help, or none at all. No credential is part of it.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// No connection came about.
    #[error("registry {host} can't be reached; check its name and port, and whether it runs")]
    Reach {
        host: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The same, where a proxy is in between.
    #[error("registry {host} can't be reached through the proxy {proxy}; check HTTPS_PROXY, HTTP_PROXY and NO_PROXY")]
    Proxy {
        host: String,
        proxy: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error(
        "registry {host} has no TLS; if that is right, write it into the registries' file ({host}: {{plainHttp: true}})"
    )]
    NoTls {
        host: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Somebody answers whom nobody vouches for.
    #[error(
        "the certificate of registry {host} is not trusted; name its authority in the registries' file ({host}: {{authority: FILE}}), \
         or say that it has no TLS ({host}: {{plainHttp: true}})"
    )]
    Certificate {
        host: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Whoever vouches for it, it says nothing of this host at this time.
    #[error("the certificate of registry {host} {problem}")]
    CertificateUse {
        host: String,
        problem: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("registry {host} did not answer within {seconds} s")]
    Silent { host: String, seconds: u64 },
    /// It begins to send, and does not go on.
    #[error("registry {host} sends too slowly: {received} bytes within {seconds} s")]
    Slow { host: String, received: u64, seconds: u64 },
    /// The connection ended in the middle.
    #[error("registry {host} ended the connection after {received} bytes")]
    Cut {
        host: String,
        received: u64,
        #[source]
        source: hyper::Error,
    },
    #[error("registry {host} ended the connection after {sent} bytes were sent to it")]
    CutUpload {
        host: String,
        sent: u64,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("registry {host} takes too slowly: {sent} bytes so far, and next to nothing within {seconds} s")]
    SlowToTake { host: String, sent: u64, seconds: u64 },
    #[error("registry {host} has no place for {what}{}; make the repository there first", clause(.message))]
    NoRepository { host: String, what: String, message: String },
    #[error(
        "registry {host} refuses the size of {what}{}; raise its limit, or that of the proxy before it", clause(.message)
    )]
    SizeRefused { host: String, what: String, message: String },
    #[error("registry {host} has no room for {what}{}; make room there, then push again", clause(.message))]
    NoRoom { host: String, what: String, message: String },
    #[error(
        "registry {host} got another content than {what}{}; push again, and look at what is between this machine and the registry",
        clause(.message)
    )]
    DigestRefused { host: String, what: String, message: String },
    #[error("registry {host} does not say where {what} is to be sent (header Location)")]
    NoLocation { host: String, what: String },
    #[error("registry {host} ends {what} after {received} bytes, before its end")]
    Short { host: String, what: String, received: u64 },
    #[error("{what} is not in registry {host}; check the name and the tag")]
    NotFound { host: String, what: String },
    /// With these credentials, or without.
    #[error("registry {host} refuses {what} {}{}; {}", with_or_without(*.with_credential), clause(.message), advice(.host, *.with_credential, .right))]
    Denied { host: String, what: String, with_credential: bool, right: Right, message: String },
    #[error("registry {host} has had too many requests; it was asked {tries} times")]
    Busy { host: String, tries: u32 },
    /// Another answer than those of the specification.
    #[error("registry {host} answers {status} for {what}{}", clause(.message))]
    Answer { host: String, what: String, status: u16, message: String },
    #[error("registry {host} answers with more than {limit} bytes for {what}")]
    TooLarge { host: String, what: String, limit: u64 },
    #[error("registry {host} redirects {what} to {to:?}, which is not followed: {problem}")]
    Redirect { host: String, what: String, to: String, problem: &'static str },
    /// A credential would go to somebody else.
    #[error(
        "registry {host} wants its credentials to be shown to {realm}; if that is right, write it into the registries' file \
         ({host}: {{tokenHosts: [{realm}]}})"
    )]
    TokenHost { host: String, realm: String },
    #[error("registry {host} asks for a token from {realm:?}, which is no https address")]
    Realm { host: String, realm: String },
    #[error("{realm} gives no token for registry {host}: it answers {problem}")]
    Token { host: String, realm: String, problem: String },
    #[error("the helper docker-credential-{helper} gives no credential for {host}: {problem}")]
    Helper { helper: String, host: String, problem: String },
    #[error("can't read {what}")]
    Credentials {
        what: String,
        #[source]
        source: CredentialsError,
    },
    /// This machine can't speak TLS.
    #[error("can't set up TLS: {problem}")]
    Tls { problem: String },
}

/// The error of TLS in one of the system, which may lie in another one. None of them is the source of the next.
fn inner(error: &std::io::Error) -> Option<&rustls::Error> {
    let inner: &(dyn std::error::Error + 'static) = error.get_ref()?;
    inner.downcast_ref().or_else(|| inner.downcast_ref().and_then(self::inner))
}

/// What is wrong with a certificate that no authority would mend.
fn problem_of_use(refusal: &CertificateError) -> Option<&'static str> {
    match refusal {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            Some("has expired: look at this machine's clock, or have the registry's certificate renewed")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            Some("is not valid yet: look at the clocks of this machine and of the registry")
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            Some("is for other names: name the registry in the image as its certificate does")
        }
        _ => None,
    }
}

fn with_or_without(with_credential: bool) -> &'static str {
    if with_credential { "with the credentials that there are" } else { "without credentials" }
}

fn advice(host: &str, with_credential: bool, right: &Right) -> String {
    match (right, with_credential) {
        (Right::Pull, true) => format!(
            "check the password and its rights in the secret that the pod's imagePullSecrets name, or that of {host} in \
             ~/.docker/config.json"
        ),
        (Right::Pull, false) => format!(
            "name a secret with a password for this registry in the pod's imagePullSecrets, or write one into \
             ~/.docker/config.json, as docker login {host} does"
        ),
        (Right::Push { .. }, true) => format!(
            "check the password of {host} in ~/.docker/config.json, and whether its user may push to this repository"
        ),
        (Right::Push { .. }, false) => {
            format!("write a user and a password for {host} into ~/.docker/config.json, as docker login {host} does")
        }
    }
}

fn clause(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {message}") }
}

impl RegistryError {
    /// What a connection failed with, as the error that says most.
    pub(crate) fn of_connection(host: &str, error: hyper_util::client::legacy::Error) -> RegistryError {
        let host = host.to_owned();
        let mut cause = error.source();
        while let Some(found) = cause {
            match found.downcast_ref().or_else(|| found.downcast_ref().and_then(inner)) {
                Some(rustls::Error::InvalidCertificate(refusal)) => {
                    return match problem_of_use(refusal) {
                        Some(problem) => RegistryError::CertificateUse { host, problem, source: Box::new(error) },
                        None => RegistryError::Certificate { host, source: Box::new(error) },
                    };
                }
                // Whoever answers with plain HTTP has no message of TLS.
                Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)) => {
                    return RegistryError::NoTls { host, source: Box::new(error) };
                }
                _ => {}
            }
            cause = found.source();
        }
        RegistryError::Reach { host, source: Box::new(error) }
    }

    /// Whether it may go better by itself in a while.
    pub(crate) fn is_passing(&self) -> bool {
        if let RegistryError::Answer { status, .. } = self {
            return is_passing(*status);
        }
        matches!(
            self,
            RegistryError::Reach { .. }
                | RegistryError::Proxy { .. }
                | RegistryError::Silent { .. }
                | RegistryError::Slow { .. }
                | RegistryError::Cut { .. }
                | RegistryError::Short { .. }
                | RegistryError::CutUpload { .. }
                | RegistryError::SlowToTake { .. }
                | RegistryError::DigestRefused { .. }
                | RegistryError::Busy { .. }
        )
    }

    /// Whether another credential, or none, might do.
    pub(crate) fn is_of_rights(&self) -> bool {
        // Registries say that what one may not see is not there.
        matches!(self, RegistryError::Denied { .. } | RegistryError::NotFound { .. } | RegistryError::Token { .. })
    }
}
