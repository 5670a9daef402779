//! What the agent of a node may do: with its own Node and Lease, with the pods that are bound to it, and with what these refer to.
//!
//! As the node authorizer of Kubernetes decides, which a role can't: a Secret is read where a pod on that node needs it, and no
//! longer than that pod is there and has not ended. What of a write depends on the object is checked by admission.
//!
//! Invariant: what is not allowed here is left to the roles, which give the agents nothing unless somebody binds one to them. A
//! decision looks up what pods refer to in [`graph`]; it walks through no pods.

mod graph;

use pumice_auth::{Attributes, Target, node_rules};
use pumice_objects::selector::{LabelOperator, LabelSelector};
use pumice_store::Store;
use serde_json::Value;

use crate::http::query::ReadOptions;
use crate::json_scan::value_at;
use crate::stored::parse;
use graph::{Kind, NodeGraph};

/// Where the Leases of nodes are.
pub(crate) const LEASES: &str = "kube-node-lease";
/// Label of a volume that is a folder of a node: which node, or nothing where it is one of each.
pub(crate) const VOLUME_NODE: &str = "pumice.sh/node";

/// By what a list or watch is narrowed.
#[derive(Clone, Copy, Default)]
pub(crate) struct Selected<'a> {
    /// The field `spec.nodeName`.
    node: Option<&'a str>,
    labels: Option<&'a LabelSelector>,
}

impl<'a> Selected<'a> {
    /// What `options` say.
    pub(crate) fn by(options: &'a ReadOptions) -> Self {
        Self { node: options.fields.exact("spec.nodeName"), labels: Some(&options.labels) }
    }
}

/// Why something isn't a node's to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotAllowed {
    /// No pod that is bound to it refers to the object.
    NoRelation,
    /// It may be read by name alone.
    ByName,
    /// Pods are listed with the field selector of their node.
    BySelector,
    /// It is another node's.
    AnothersNode,
    /// Roles may allow it.
    Other,
}

impl NotAllowed {
    /// What stands behind the answer's text; nothing where there is nothing to add.
    pub(crate) fn text(self, node: &str) -> String {
        match self {
            Self::NoRelation => format!(": no pod on node {node:?} needs it"),
            Self::ByName => format!(": node {node:?} can only read objects by name that its pods need"),
            Self::BySelector => format!(": node {node:?} can only list and watch pods with spec.nodeName={node}"),
            Self::AnothersNode => format!(": node {node:?} can only use what is of its own name"),
            Self::Other => String::new(),
        }
    }
}

/// The rights of node agents.
#[derive(Default)]
pub(crate) struct NodeRights(NodeGraph);

impl NodeRights {
    /// Whether the agent of `node` may do this.
    pub(crate) fn decide(
        &self,
        store: &Store,
        node: &str,
        attributes: &Attributes<'_>,
        selected: Selected<'_>,
    ) -> Result<(), NotAllowed> {
        let refused = match self.by_object(store, node, attributes, selected) {
            Ok(()) => return Ok(()),
            Err(refused) => refused,
        };
        if node_rules().iter().any(|rule| rule.allows(attributes)) { Ok(()) } else { Err(refused) }
    }

    /// What depends on the object.
    fn by_object(
        &self,
        store: &Store,
        node: &str,
        attributes: &Attributes<'_>,
        selected: Selected<'_>,
    ) -> Result<(), NotAllowed> {
        let Target::Resource { group, resource, subresource, namespace, name } = attributes.target else {
            return Err(NotAllowed::Other);
        };
        let access = Access { verb: attributes.verb, namespace: namespace.unwrap_or_default(), name };
        match (group, resource, subresource.unwrap_or_default()) {
            ("", "secrets", "") => self.read(store, node, Kind::Secret, access),
            ("", "configmaps", "") => self.read(store, node, Kind::ConfigMap, access),
            ("", "persistentvolumeclaims", "") => self.read(store, node, Kind::Claim, access),
            ("resource.k8s.io", "resourceclaims", "") => self.read(store, node, Kind::ResourceClaim, access),
            ("", "serviceaccounts", "token") if access.verb == "create" => {
                self.refers(store, node, Kind::Account, access)
            }
            ("", "persistentvolumes", "") => self.volumes(store, node, access, selected),
            ("", "pods", "") => pods(store, node, access, selected),
            // Which pods is the restriction's, so that one that is gone is answered as such.
            ("", "pods", "status") if matches!(access.verb, "update" | "patch") => Ok(()),
            ("", "nodes", "" | "status") => own_node(node, subresource, access),
            ("coordination.k8s.io", "leases", "") if access.namespace == LEASES => own_lease(node, access),
            _ => Err(NotAllowed::Other),
        }
    }

    fn read(&self, store: &Store, node: &str, kind: Kind, access: Access<'_>) -> Result<(), NotAllowed> {
        match (access.is_read(), access.name) {
            (false, _) => Err(NotAllowed::Other),
            (true, None) => Err(NotAllowed::ByName),
            (true, Some(_)) => self.refers(store, node, kind, access),
        }
    }

    fn refers(&self, store: &Store, node: &str, kind: Kind, access: Access<'_>) -> Result<(), NotAllowed> {
        let name = access.name.ok_or(NotAllowed::ByName)?;
        if self.0.refers(store, node, kind, access.namespace, name) { Ok(()) } else { Err(NotAllowed::NoRelation) }
    }

    /// Those that claims of its pods are bound to; and, as they are its to remove, the folders that claims were made of on it.
    fn volumes(&self, store: &Store, node: &str, access: Access<'_>, selected: Selected<'_>) -> Result<(), NotAllowed> {
        match (access.verb, access.name) {
            ("delete", Some(_)) => Ok(()),
            ("get" | "list" | "watch", Some(name)) if self.uses_volume(store, node, name) => Ok(()),
            ("get" | "list" | "watch", Some(_)) => Err(NotAllowed::NoRelation),
            ("list" | "watch", None) if selected.labels.is_some_and(|labels| are_of_node(labels, node)) => Ok(()),
            ("list" | "watch", None) => Err(NotAllowed::ByName),
            _ => Err(NotAllowed::Other),
        }
    }

    fn uses_volume(&self, store: &Store, node: &str, name: &str) -> bool {
        let Some(volume) = store.find("persistentvolumes", "", name) else { return false };
        let claim = &parse(&volume)["spec"]["claimRef"];
        let (Some(namespace), Some(claim)) = (claim["namespace"].as_str(), claim["name"].as_str()) else {
            return false;
        };
        let of_claim = store.find("persistentvolumeclaims", namespace, claim);
        // Each side has to name the other, or whoever makes claims would choose what his node reads.
        of_claim.is_some_and(|claim| text_at(&claim.body, "spec.volumeName").as_deref() == Some(name))
            && self.0.refers(store, node, Kind::Claim, namespace, claim)
    }
}

/// A request as it is judged.
#[derive(Clone, Copy)]
struct Access<'a> {
    verb: &'a str,
    /// Empty where there is none.
    namespace: &'a str,
    name: Option<&'a str>,
}

impl Access<'_> {
    fn is_read(&self) -> bool {
        matches!(self.verb, "get" | "list" | "watch")
    }
}

fn pods(store: &Store, node: &str, access: Access<'_>, selected: Selected<'_>) -> Result<(), NotAllowed> {
    match (access.verb, access.name) {
        // One that is gone is answered as such.
        ("get" | "list" | "watch", Some(name))
            if node_of_pod(store, access.namespace, name).is_none_or(|of| of == node) =>
        {
            Ok(())
        }
        ("list" | "watch", None) if selected.node == Some(node) => Ok(()),
        ("list" | "watch", None) => Err(NotAllowed::BySelector),
        ("get" | "list" | "watch", Some(_)) => Err(NotAllowed::NoRelation),
        ("delete", Some(_)) => Ok(()),
        _ => Err(NotAllowed::Other),
    }
}

fn own_node(node: &str, subresource: Option<&str>, access: Access<'_>) -> Result<(), NotAllowed> {
    let is_own = access.name == Some(node);
    match (access.verb, subresource) {
        ("create", None) => Ok(()),
        ("get" | "list" | "watch", None) | ("update" | "patch", _) if is_own => Ok(()),
        ("get" | "list" | "watch", None) | ("update" | "patch", _) => Err(NotAllowed::AnothersNode),
        _ => Err(NotAllowed::Other),
    }
}

fn own_lease(node: &str, access: Access<'_>) -> Result<(), NotAllowed> {
    match (access.verb, access.name) {
        ("create", _) => Ok(()),
        ("get" | "update" | "patch" | "delete", Some(name)) if name == node => Ok(()),
        _ => Err(NotAllowed::AnothersNode),
    }
}

/// Whether a selector chooses folders of this node alone, and those that are of each.
fn are_of_node(labels: &LabelSelector, node: &str) -> bool {
    labels.requirements().iter().any(|one| {
        one.key == VOLUME_NODE
            && one.operator == LabelOperator::In
            && one.values.iter().all(|value| value.is_empty() || value == node)
    })
}

/// The node of a stored pod; empty for one without, nothing for one that is not there.
pub(crate) fn node_of_pod(store: &Store, namespace: &str, name: &str) -> Option<String> {
    let pod = store.find("pods", namespace, name)?;
    Some(text_at(&pod.body, "spec.nodeName").unwrap_or_default())
}

fn text_at(body: &[u8], path: &str) -> Option<String> {
    match value_at(body, path) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_of_the_node_are_chosen() {
        let chosen = |text: &str| are_of_node(&LabelSelector::parse(text).expect("a selector"), "n1");
        for (text, wanted) in [
            ("pumice.sh/node in (n1,)", true),
            ("pumice.sh/node=n1", true),
            ("pumice.sh/node=n1,x=y", true),
            ("pumice.sh/node in (n1,n2)", false),
            ("pumice.sh/node=n2", false),
            ("pumice.sh/node!=n2", false),
            ("pumice.sh/node", false),
            ("x=n1", false),
            ("", false),
        ] {
            assert_eq!(chosen(text), wanted, "{text}");
        }
    }
}
