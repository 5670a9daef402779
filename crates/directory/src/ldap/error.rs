//! Why a directory could not be read.

use std::time::Duration;

use ldap3::LdapError;

/// Why a directory could not be read to the end.
#[derive(Debug, thiserror::Error)]
pub enum LdapReadError {
    #[error(
        "spec.ldap.url {url:?} is no address of a server: write ldaps://HOST or ldap://HOST, with :PORT where it is another"
    )]
    Url { url: String },
    #[error(
        "spec.ldap.bindDN names {bind_dn:?} without a password: name a Secret with the key `password` in spec.ldap.bindSecret. A server takes an empty password for nobody"
    )]
    NoPassword { bind_dn: String },
    #[error("spec.ldap.ca can't be read: it has to be certificates as PEM")]
    Ca(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("there is no authority that the server could be known by: put its certificates into spec.ldap.ca")]
    NoAuthority,
    #[error("TLS can't be set up")]
    Tls(#[from] rustls::Error),
    #[error("{url} can't be reached over TLS")]
    Connect { url: String, source: Box<LdapError> },
    #[error("the server refuses {bind_dn:?} (code {code}, {meaning}): look at spec.ldap.bindSecret. {text}")]
    Bind { bind_dn: String, code: u32, meaning: &'static str, text: String },
    #[error("the connection broke")]
    Call(#[source] Box<LdapError>),
    #[error("the server closed the connection before it had answered")]
    Closed,
    #[error("the search below {base:?} was refused or cut short (code {code}, {meaning}). {text}")]
    Search { base: String, code: u32, meaning: &'static str, text: String },
    #[error("the filter {filter:?} is none")]
    Filter { filter: String },
    #[error("an answer can't be read: {what}")]
    Answer { what: &'static str },
    #[error("the search below {base:?} brings more than {max} entries")]
    TooMany { base: String, max: usize },
    #[error(
        "{dn:?} has no attribute {attribute}, which tells entries apart: name another one in spec.ldap.attributes.id, or let the reader see it"
    )]
    NoId { dn: String, attribute: String },
    #[error("there is no group {group:?} below {base:?}, which spec.ldap.groups names")]
    NoGroup { group: String, base: String },
    #[error("it took longer than {} s", within.as_secs())]
    TooSlow { within: Duration },
}

impl From<LdapError> for LdapReadError {
    fn from(error: LdapError) -> Self {
        Self::Call(Box::new(error))
    }
}

/// What a result code means for whoever reads.
pub(super) fn meaning(code: u32) -> &'static str {
    match code {
        1 => "operations error: many servers say so to somebody who has not logged in",
        3 => "time limit of the server",
        4 => "size limit of the server: let the reader have more",
        8 | 13 => "a stronger login is needed",
        10 => "another server has it, and referrals are not followed",
        11 => "administrative limit of the server",
        12 => "the server can't do this",
        32 => "no such entry: look at userBase and groupBase",
        34 => "the base is no distinguished name",
        49 => "wrong name or password",
        50 => "the reader may not",
        51 | 52 => "the server is busy or away",
        _ => "see the server's log",
    }
}
