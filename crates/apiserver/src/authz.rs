//! Who may do what: the platform's own grants, those of the stored roles and bindings, and what is a node's.
//!
//! Invariant: a [`Rights`] never changes; it is made anew as soon as a role or binding has changed, which every decision
//! checks first, so an answered write is in force for the next request. A decision parses and scans nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use pumice_auth::{Attributes, Decision, Identity, Policy, Role, Rule, node_of};
use pumice_store::Store;

pub(crate) mod nodes;
mod stored_roles;

use nodes::{NodeRights, Selected};

/// The API group of roles and bindings.
pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";
/// The store's names of what rights are made of: cluster roles and their bindings, roles and theirs.
const RESOURCES: [&str; 4] =
    [CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, "rbac.authorization.k8s.io/roles", "rbac.authorization.k8s.io/rolebindings"];
/// The store's name of cluster roles.
pub(crate) const CLUSTER_ROLES: &str = "rbac.authorization.k8s.io/clusterroles";
/// The store's name of their bindings.
pub(crate) const CLUSTER_ROLE_BINDINGS: &str = "rbac.authorization.k8s.io/clusterrolebindings";

/// All rights at one moment.
#[derive(Default)]
pub(crate) struct Rights {
    policy: Policy,
    /// By namespace, empty for cluster roles, and name; what is aggregated is in them.
    roles: HashMap<(String, String), Arc<Role>>,
    nodes: Option<(Arc<NodeRights>, Store)>,
}

impl Rights {
    /// Whether `identity` may do this.
    pub(crate) fn decide(&self, identity: &Identity, attributes: &Attributes<'_>) -> Decision {
        self.decide_selected(identity, attributes, Selected::default())
    }

    /// The same for a list or watch of what is selected.
    pub(crate) fn decide_selected(
        &self,
        identity: &Identity,
        attributes: &Attributes<'_>,
        selected: Selected<'_>,
    ) -> Decision {
        let (Some((nodes, store)), Some(node)) = (&self.nodes, node_of(identity)) else {
            return self.policy.decide(identity, attributes);
        };
        let refused = match nodes.decide(store, node, attributes, selected) {
            Ok(()) => return Decision::Allow { by: format!("node {node}") },
            Err(refused) => refused,
        };
        match self.policy.decide(identity, attributes) {
            Decision::Deny { reason } => Decision::Deny { reason: reason + &refused.text(node) },
            allowed => allowed,
        }
    }

    /// Every rule that holds for `identity` in a namespace, or of the cluster where there is none.
    pub(crate) fn rules_of(&self, identity: &Identity, namespace: Option<&str>) -> Vec<&Rule> {
        self.policy.rules_of(identity, namespace)
    }

    /// A stored role; `namespace` is empty for cluster roles.
    pub(crate) fn role(&self, namespace: &str, name: &str) -> Option<&Role> {
        self.roles.get(&(namespace.to_owned(), name.to_owned())).map(AsRef::as_ref)
    }
}

/// When each of [`RESOURCES`] was last changed.
type Fingerprint = [u64; RESOURCES.len()];

/// The rights of now, and how to replace them.
pub(crate) struct RightsCell {
    built_in: Policy,
    nodes: Arc<NodeRights>,
    current: RwLock<(Option<Fingerprint>, Arc<Rights>)>,
    reload: Mutex<()>,
}

impl RightsCell {
    /// `built_in` holds whatever is stored.
    pub(crate) fn new(built_in: Policy) -> Self {
        Self { built_in, nodes: Arc::default(), current: RwLock::default(), reload: Mutex::default() }
    }

    /// The rights as they are stored now.
    pub(crate) fn load(&self, store: &Store) -> Arc<Rights> {
        if let Some(current) = self.fresh(store.changed(RESOURCES)) {
            return current;
        }
        let _turn = self.reload.lock().unwrap_or_else(PoisonError::into_inner);
        // Taken before the objects are read: what changes in between is read again at the next look.
        let fingerprint = store.changed(RESOURCES);
        if let Some(current) = self.fresh(fingerprint) {
            return current;
        }
        let [cluster_roles, cluster_bindings, roles, bindings] =
            RESOURCES.map(|resource| store.list(resource, None).items);
        let roles = stored_roles::roles(&cluster_roles, &roles);
        let grants = stored_roles::grants(&roles, cluster_bindings.iter().chain(&bindings));
        let nodes = Some((Arc::clone(&self.nodes), store.clone()));
        let rights = Arc::new(Rights { policy: self.built_in.with(grants), roles, nodes });
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = (Some(fingerprint), Arc::clone(&rights));
        rights
    }

    /// The same for who may not need it.
    pub(crate) fn lazy<'a>(&'a self, store: &'a Store) -> LazyRights<'a> {
        LazyRights { cell: self, store }
    }

    fn fresh(&self, fingerprint: Fingerprint) -> Option<Arc<Rights>> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        (current.0 == Some(fingerprint)).then(|| Arc::clone(&current.1))
    }
}

/// Rights that are looked up when somebody asks.
#[derive(Clone, Copy)]
pub(crate) struct LazyRights<'a> {
    cell: &'a RightsCell,
    store: &'a Store,
}

impl LazyRights<'_> {
    /// The rights as they are stored now.
    pub(crate) fn load(&self) -> Arc<Rights> {
        self.cell.load(self.store)
    }
}
