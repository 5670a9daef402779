//! Who sends a request.
//!
//! Invariant: an identity is anonymous or authenticated, never both: exactly one of the two
//! system groups is in it when it was made here. Made by the listener from the peer's certificate.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use x509_parser::parse_x509_certificate;

/// User of requests without credentials.
pub const ANONYMOUS: &str = "system:anonymous";
/// Group of everybody with credentials.
pub const AUTHENTICATED: &str = "system:authenticated";
/// Group of everybody without credentials.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// Group that may do everything.
pub const MASTERS: &str = "system:masters";

/// What the user of a service account begins with.
const SERVICE_ACCOUNT_USER: &str = "system:serviceaccount:";
/// Group of all service accounts, and what the group of those of one namespace begins with.
pub const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";

/// Most groups read from one certificate.
const GROUPS_MAX: usize = 128;

/// A user and the groups it belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    pub user: String,
    pub groups: Vec<String>,
}

/// Set on an answer: the request itself showed who sent it, by a token say, and this is the user. A listener keeps
/// connections by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authenticated(pub String);

/// Why a certificate names nobody.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum IdentityError {
    /// It is no X.509 certificate.
    #[error("client certificate cannot be parsed: {detail}")]
    ParseCertificate {
        /// What the parser says.
        detail: String,
    },
    /// Its subject has no common name, which is the user.
    #[error("client certificate has no common name; issue one with CN=<user>")]
    NoCommonName,
    /// It names more groups than are read.
    #[error("client certificate names more than {limit} organizations")]
    TooManyGroups { limit: usize },
}

impl Identity {
    /// A user with credentials, a member of `groups` and of [`AUTHENTICATED`].
    pub fn new<G: Into<String>>(user: impl Into<String>, groups: impl IntoIterator<Item = G>) -> Self {
        let mut groups: Vec<String> = groups.into_iter().map(Into::into).collect();
        groups.retain(|group| group != UNAUTHENTICATED);
        if !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        Self { user: user.into(), groups }
    }

    /// A service account, with the groups that it is in.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        let groups = [SERVICE_ACCOUNTS.to_owned(), format!("{SERVICE_ACCOUNTS}:{namespace}")];
        Self::new(service_account_user(namespace, name), groups)
    }

    /// The identity of a request without credentials, whose one group is [`UNAUTHENTICATED`].
    pub fn anonymous() -> Self {
        Self { user: ANONYMOUS.to_owned(), groups: vec![UNAUTHENTICATED.to_owned()] }
    }

    /// Whether `group` is among the groups.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|mine| mine == group)
    }
}

/// The user that stands for a service account.
pub(crate) fn service_account_user(namespace: &str, name: &str) -> String {
    format!("{SERVICE_ACCOUNT_USER}{namespace}:{name}")
}

/// Namespace and name of the service account that `user` stands for, if it does.
pub fn service_account_of(user: &str) -> Option<(&str, &str)> {
    user.strip_prefix(SERVICE_ACCOUNT_USER)?.split_once(':')
}

/// The identity in a client certificate (DER) that TLS has verified already: CN is the user, each
/// O a group.
pub fn identity_of(certificate: &[u8]) -> Result<Identity, IdentityError> {
    let (_, parsed) = parse_x509_certificate(certificate)
        .map_err(|error| IdentityError::ParseCertificate { detail: error.to_string() })?;
    let subject = parsed.subject();
    let user = subject.iter_common_name().find_map(|name| name.as_str().ok()).unwrap_or_default();
    if user.is_empty() {
        return Err(IdentityError::NoCommonName);
    }
    let groups: Vec<&str> =
        subject.iter_organization().filter_map(|name| name.as_str().ok()).filter(|name| !name.is_empty()).collect();
    if groups.len() > GROUPS_MAX {
        return Err(IdentityError::TooManyGroups { limit: GROUPS_MAX });
    }
    Ok(Identity::new(user, groups))
}

/// Until when a certificate (DER) is good, seconds since 1970.
///
/// # Errors
/// Where it is none.
pub fn valid_until(certificate: &[u8]) -> Result<i64, IdentityError> {
    let (_, parsed) = parse_x509_certificate(certificate)
        .map_err(|error| IdentityError::ParseCertificate { detail: error.to_string() })?;
    Ok(parsed.validity().not_after.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_never_both_known_and_unknown() {
        let known = Identity::new("ann", [UNAUTHENTICATED, "team"]);
        assert_eq!(known.groups, ["team", AUTHENTICATED]);
        assert!(Identity::anonymous().is_in(UNAUTHENTICATED));
        assert!(!Identity::anonymous().is_in(AUTHENTICATED));
    }

    #[test]
    fn garbage_is_no_certificate() {
        for bytes in [&b""[..], b"x", &[0x30, 0x82, 0xff, 0xff, 0], &[0x30; 400]] {
            assert!(matches!(identity_of(bytes), Err(IdentityError::ParseCertificate { .. })));
        }
    }
}
