//! What is judged: a request, as webhooks and expressions see it.
//!
//! Invariant: it names the object and its place as the request did; the objects themselves are given beside it.

use std::sync::Arc;

use pumice_auth::Identity;
use pumice_objects::meta;
use pumice_objects::schema::Schema;
use pumice_store::Store;
use serde_json::{Value, json};

use crate::authz::RightsCell;
use crate::kinds::Descriptor;
use crate::kinds::descriptor::GroupVersionKind;
use crate::kinds::registry::RegistryCell;
use crate::stored::parse;
use crate::strategies::admission::GROUP;

/// A request that is judged.
pub(crate) struct Subject<'a> {
    /// Where namespaces and parameters are looked up.
    pub(crate) store: &'a Store,
    pub(crate) registry: &'a RegistryCell,
    pub(crate) rights: &'a RightsCell,
    pub(crate) identity: &'a Identity,
    pub(crate) descriptor: &'a Arc<Descriptor>,
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub(crate) operation: &'static str,
    pub(crate) subresource: &'a str,
    /// Empty for resources of the cluster.
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) old: Option<&'a Value>,
    pub(crate) dry_run: bool,
}

impl Subject<'_> {
    /// Whether nobody may judge it: what says who judges, and what only asks.
    pub(super) fn is_exempt(&self) -> bool {
        self.descriptor.group == GROUP || self.descriptor.review.is_some()
    }

    /// Which kind the object is of.
    fn kind(&self) -> GroupVersionKind<'_> {
        let Descriptor { group, version, kind, .. } = &**self.descriptor;
        let below = self.descriptor.subresource(self.subresource).and_then(|one| one.kind());
        below.unwrap_or(GroupVersionKind { group, version, kind })
    }

    /// The schema of the object, where it is no part of another.
    pub(super) fn schema(&self) -> Option<&Schema> {
        let is_whole = self.descriptor.subresource(self.subresource).is_none_or(|one| one.kind().is_none());
        is_whole.then_some(&self.descriptor.schema)
    }

    /// The object's namespace as it is stored.
    pub(super) fn namespace_object(&self) -> Option<Value> {
        if self.namespace.is_empty() {
            return None;
        }
        self.store.find("namespaces", "", self.namespace).map(|found| parse(&found))
    }

    /// Whether the labels of its namespace are asked for: not for resources of the cluster.
    pub(super) fn is_namespace(&self) -> bool {
        self.descriptor.group.is_empty() && self.descriptor.plural == "namespaces"
    }

    /// The request as expressions and reviews see it; `version` is that in which the object is shown.
    pub(super) fn request(&self, uid: &str, version: &str, object: Option<&Value>) -> Value {
        let resource = |version: &str| json!({ "group": self.descriptor.group, "version": version, "resource": self.descriptor.plural });
        let asked = self.kind();
        let is_own = asked.kind == self.descriptor.kind;
        let shown = if is_own { GroupVersionKind { version, ..asked } } else { asked };
        let name = match (self.name, object) {
            ("", Some(object)) => meta::name(object),
            (name, _) => name,
        };
        let mut request = json!({
            "uid": uid,
            "kind": shown.to_json(),
            "resource": resource(version),
            "requestKind": asked.to_json(),
            "requestResource": resource(&self.descriptor.version),
            "name": name,
            "operation": self.operation,
            "userInfo": { "username": self.identity.user, "groups": self.identity.groups },
            "dryRun": self.dry_run,
            "options": self.options(),
        });
        if !self.subresource.is_empty() {
            request["subResource"] = self.subresource.into();
            request["requestSubResource"] = self.subresource.into();
        }
        if !self.namespace.is_empty() {
            request["namespace"] = self.namespace.into();
        }
        request
    }

    fn options(&self) -> Value {
        let kind = match self.operation {
            "CREATE" => "CreateOptions",
            "UPDATE" => "UpdateOptions",
            "DELETE" => "DeleteOptions",
            _ => return Value::Null,
        };
        let mut options = json!({ "kind": kind, "apiVersion": "meta.k8s.io/v1" });
        if self.dry_run {
            options["dryRun"] = json!(["All"]);
        }
        options
    }
}
