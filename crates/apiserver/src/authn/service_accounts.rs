//! Service accounts: whose token one is, and what every namespace has for them.
//!
//! Invariant: a token counts only while its account, and the pod or secret that it is bound to, are stored with the same
//! uid; that is looked up with every request. Asked by the pipeline and by token reviews.

use std::sync::{Arc, PoisonError, RwLock};

use jiff::Timestamp;
use pumice_auth::{BoundTo, Claims, Named, TokenError, TokenKeys};
use pumice_clock::{Clock, wire_time};
use pumice_objects::meta;
use pumice_store::{Change, Expect, Key, Store};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::stored::{draft, parse, parse_metadata};
use crate::strategies::service_account::{DEFAULT, ROOT_CERTIFICATE, SERVICE_ACCOUNTS};

/// The store's name of ConfigMaps.
pub(crate) const CONFIG_MAPS: &str = "configmaps";
/// The store's name of namespaces.
pub(crate) const NAMESPACES: &str = "namespaces";
/// The key of the certificate in its ConfigMap.
const CERTIFICATE_KEY: &str = "ca.crt";

/// What tokens are signed with, and what pods are told to trust.
pub(crate) struct Accounts {
    pub(crate) keys: Arc<TokenKeys>,
    /// The certificates of the authorities that are trusted, PEM.
    root_certificates: RwLock<Option<Arc<str>>>,
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
    pub(crate) fn new(keys: Arc<TokenKeys>, root_certificates: Option<String>) -> Self {
        Self { keys, root_certificates: RwLock::new(root_certificates.map(Arc::from)) }
    }

    /// Has pods trust these from now on: what namespaces have is made anew where somebody looks at them.
    pub(crate) fn trust(&self, root_certificates: &str) {
        *self.root_certificates.write().unwrap_or_else(PoisonError::into_inner) = Some(root_certificates.into());
    }

    /// What `token` says, if it holds now for one of `audiences`.
    pub(crate) fn verify(
        &self,
        store: &Store,
        token: &str,
        audiences: &[&str],
        now: Timestamp,
    ) -> Result<Arc<Claims>, Rejected> {
        let claims = self.keys.open(token)?;
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

impl Accounts {
    /// What `namespace` lacks. A certificate that is no longer the authority's is replaced.
    pub(crate) fn missing(&self, store: &Store, namespace: &str, now: &str) -> Vec<Change> {
        let metadata = |name: &str| {
            let uid = Uuid::now_v7().to_string();
            json!({ "name": name, "namespace": namespace, "uid": uid, "creationTimestamp": now })
        };
        let mut changes = Vec::new();
        if store.find(SERVICE_ACCOUNTS, namespace, DEFAULT).is_none() {
            let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(DEFAULT) });
            changes.push(put(Key::new(SERVICE_ACCOUNTS, namespace, DEFAULT), &account, Expect::Absent));
        }
        let certificate = self.root_certificates.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(certificate) = certificate else { return changes };
        let key = Key::new(CONFIG_MAPS, namespace, ROOT_CERTIFICATE);
        let Some(stored) = store.get(&key) else {
            let map = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(ROOT_CERTIFICATE),
                "data": { CERTIFICATE_KEY: &*certificate },
            });
            changes.push(put(key, &map, Expect::Absent));
            return changes;
        };
        let mut map = parse(&stored);
        if map["data"][CERTIFICATE_KEY] != *certificate {
            map["data"] = json!({ CERTIFICATE_KEY: &*certificate });
            changes.push(put(key, &map, Expect::Revision(stored.revision)));
        }
        changes
    }

    /// What has to be made together with a change: that of a new namespace.
    pub(crate) fn beside(&self, store: &Store, change: &Change, clock: &dyn Clock) -> Vec<Change> {
        match change {
            Change::Put { key, expect: Expect::Absent, .. } if *key.resource == *NAMESPACES => {
                self.missing(store, &key.name, &wire_time(clock.now()))
            }
            _ => Vec::new(),
        }
    }
}

fn put(key: Key, object: &Value, expect: Expect) -> Change {
    Change::Put { key, draft: draft(object), expect }
}

fn require(store: &Store, resource: &'static str, namespace: &str, wanted: &Named) -> Result<(), Rejected> {
    let found = store.find(resource, namespace, &wanted.name).map(|object| parse_metadata(&object));
    if found.as_ref().and_then(meta::uid) == Some(&wanted.uid) {
        return Ok(());
    }
    Err(Rejected::Gone { resource, namespace: namespace.to_owned(), name: wanted.name.clone() })
}
