//! Service accounts: whose token it is, and what every namespace has for them.
//!
//! Invariant: a token counts only while its account, and the pod or secret that it is bound to, are stored with the same
//! uid; that is looked up with every request. Asked by the pipeline and by token reviews.

use std::sync::Arc;

use jiff::Timestamp;
use pumice_auth::{BoundTo, Claims, Named, OpenedTokens, TokenError, TokenKey};
use pumice_objects::meta;
use pumice_store::Store;

use crate::render::parse_metadata;

pub(crate) mod companions;

/// The store's name of service accounts.
pub(crate) const SERVICE_ACCOUNTS: &str = "serviceaccounts";
/// The account of pods that name none.
pub(crate) const DEFAULT: &str = "default";
/// The ConfigMap with the authority's certificate.
pub(crate) const ROOT_CERTIFICATE: &str = "kube-root-ca.crt";

/// What tokens are signed with, and what pods are told to trust.
pub(crate) struct Accounts {
    pub(crate) key: TokenKey,
    opened: OpenedTokens,
    /// The authority's certificate, PEM.
    root_certificate: Option<String>,
}

/// Why a token lets nobody in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Rejected {
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error("{resource} {namespace}/{name} with the uid of the token is not there")]
    Gone { resource: &'static str, namespace: String, name: String },
}

impl Accounts {
    pub(crate) fn new(key: TokenKey, root_certificate: Option<String>) -> Self {
        Self { key, opened: OpenedTokens::default(), root_certificate }
    }

    /// What `token` says, if it holds now for one of `audiences`.
    pub(crate) fn verify(
        &self,
        store: &Store,
        token: &str,
        audiences: &[&str],
        now: Timestamp,
    ) -> Result<Arc<Claims>, Rejected> {
        let claims = self.opened.open(&self.key, token)?;
        claims.check(audiences, now)?;
        let namespace = &claims.namespace;
        require(store, SERVICE_ACCOUNTS, namespace, &claims.account)?;
        match &claims.bound_to {
            Some(BoundTo::Pod(pod)) => require(store, "pods", namespace, pod)?,
            Some(BoundTo::Secret(secret)) => require(store, "secrets", namespace, secret)?,
            None => {}
        }
        Ok(claims)
    }
}

fn require(store: &Store, resource: &'static str, namespace: &str, wanted: &Named) -> Result<(), Rejected> {
    let found = store.find(resource, namespace, &wanted.name).map(|object| parse_metadata(&object));
    if found.as_ref().and_then(meta::uid) == Some(&wanted.uid) {
        return Ok(());
    }
    Err(Rejected::Gone { resource, namespace: namespace.to_owned(), name: wanted.name.clone() })
}
