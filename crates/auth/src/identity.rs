//! Who sends a request.
//!
//! Invariant: an identity is anonymous or authenticated, never both: exactly one of the two
//! system groups is in it when it was made here. Made by the listener from the peer's certificate.

use pumice_api::names::USER_NODE;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use x509_parser::parse_x509_certificate;
use x509_parser::prelude::{GeneralName, X509Certificate};

/// User of requests without credentials.
pub const ANONYMOUS: &str = "system:anonymous";
/// Group of everybody with credentials.
pub const AUTHENTICATED: &str = "system:authenticated";
/// Group of everybody without credentials.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// Group that may do everything.
pub const MASTERS: &str = "system:masters";

/// Group of all node agents, and what the user of one begins with; its node's name follows.
pub const NODES: &str = "system:nodes";
const NODE_USER: &str = "system:node:";

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

    /// The agent of a node.
    pub fn node(name: &str) -> Self {
        Self::new(node_user(name), [NODES])
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

/// The user that stands for a node's agent.
pub(crate) fn node_user(name: &str) -> String {
    format!("{NODE_USER}{name}")
}

/// The node whose agent this is: both user and group say so.
pub fn node_of(identity: &Identity) -> Option<&str> {
    let name = identity.user.strip_prefix(NODE_USER)?;
    (!name.is_empty() && identity.is_in(NODES)).then_some(name)
}

/// Namespace and name of the service account that `user` stands for, if it does.
pub fn service_account_of(user: &str) -> Option<(&str, &str)> {
    user.strip_prefix(SERVICE_ACCOUNT_USER)?.split_once(':')
}

/// The identity in a client certificate (DER) that TLS has verified already: CN is the user, each
/// O a group. A certificate that release 0.1 issued to a node's agent names the agent of all nodes, and its node as the host that
/// it is for: it is that node's.
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
    if user == USER_NODE
        && let Some(host) = only_host(&parsed)
    {
        return Ok(Identity::node(&host));
    }
    Ok(Identity::new(user, groups))
}

/// The one host name of a certificate that servers show, too.
fn only_host(certificate: &X509Certificate<'_>) -> Option<String> {
    let usage = certificate.extended_key_usage().ok().flatten()?;
    let names = certificate.subject_alternative_name().ok().flatten()?;
    match (usage.value.server_auth, &names.value.general_names[..]) {
        (true, [GeneralName::DNSName(host)]) => Some((*host).to_owned()),
        _ => None,
    }
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
    fn a_node_is_one_by_user_and_group() {
        assert_eq!(node_of(&Identity::node("n1")), Some("n1"));
        for other in [
            Identity::new("system:node:n1", [] as [&str; 0]),
            Identity::new("system:node:", [NODES]),
            Identity::new("n1", [NODES]),
            Identity::new("system:nodes:n1", [NODES]),
        ] {
            assert_eq!(node_of(&other), None, "{other:?}");
        }
    }

    #[test]
    fn garbage_is_no_certificate() {
        for bytes in [&b""[..], b"x", &[0x30, 0x82, 0xff, 0xff, 0], &[0x30; 400]] {
            assert!(matches!(identity_of(bytes), Err(IdentityError::ParseCertificate { .. })));
        }
    }
}
