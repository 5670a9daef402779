//! Descriptors of the built-in kinds, as data.
//!
//! Invariant: a kind stands here only if what it promises happens, or the compatibility table says what does not.

use std::sync::{Arc, LazyLock};

use pumice_objects::table::Table;

use super::descriptor::{Descriptor, Subresource};
use super::schemas;
use crate::reviews::Review;
use crate::strategy::{Node, Plain, Strategy, claim, config, crd, lease, namespace, pod, priority, rights, service};
use crate::tables::{core, events, nodes, pods, rights as rights_tables};

struct Kind {
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
    short_names: &'static [&'static str],
    categories: &'static [&'static str],
    namespaced: bool,
    component: &'static str,
    table: fn() -> Table,
    subresources: &'static [Subresource],
    selectable: &'static [&'static str],
    strategy: &'static dyn Strategy,
    review: Option<Review>,
}

const CORE: Kind = Kind {
    group: "",
    version: "v1",
    plural: "",
    kind: "",
    short_names: &[],
    categories: &[],
    namespaced: true,
    component: "",
    table: || Table::new(Vec::new()),
    subresources: &[],
    selectable: &[],
    strategy: &Plain,
    review: None,
};

static KINDS: &[Kind] = &[
    Kind {
        plural: "namespaces",
        kind: "Namespace",
        short_names: &["ns"],
        namespaced: false,
        component: "io.k8s.api.core.v1.Namespace",
        table: core::namespace,
        subresources: &[Subresource::Status, Subresource::Finalize],
        selectable: &["status.phase"],
        strategy: &namespace::Namespace,
        ..CORE
    },
    Kind {
        plural: "nodes",
        kind: "Node",
        short_names: &["no"],
        namespaced: false,
        component: "io.k8s.api.core.v1.Node",
        table: nodes::table,
        subresources: &[Subresource::Status],
        selectable: &["spec.unschedulable"],
        strategy: &Node,
        ..CORE
    },
    Kind {
        plural: "pods",
        kind: "Pod",
        short_names: &["po"],
        categories: &["all"],
        component: "io.k8s.api.core.v1.Pod",
        table: pods::table,
        subresources: &[
            Subresource::Status,
            Subresource::Binding,
            Subresource::Eviction,
            Subresource::Log,
            Subresource::Exec,
            Subresource::PortForward,
        ],
        selectable: &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        strategy: &pod::Pod,
        ..CORE
    },
    Kind {
        plural: "configmaps",
        kind: "ConfigMap",
        short_names: &["cm"],
        component: "io.k8s.api.core.v1.ConfigMap",
        table: core::config_map,
        strategy: &config::ConfigMap,
        ..CORE
    },
    Kind {
        plural: "secrets",
        kind: "Secret",
        component: "io.k8s.api.core.v1.Secret",
        table: core::secret,
        selectable: &["type"],
        strategy: &config::Secret,
        ..CORE
    },
    Kind {
        plural: "services",
        kind: "Service",
        short_names: &["svc"],
        categories: &["all"],
        component: "io.k8s.api.core.v1.Service",
        table: core::service,
        subresources: &[Subresource::Status],
        selectable: &["spec.clusterIP", "spec.type"],
        strategy: &service::Service,
        ..CORE
    },
    Kind {
        plural: "serviceaccounts",
        kind: "ServiceAccount",
        short_names: &["sa"],
        component: "io.k8s.api.core.v1.ServiceAccount",
        table: core::service_account,
        subresources: &[Subresource::Token],
        ..CORE
    },
    Kind {
        plural: "events",
        kind: "Event",
        short_names: &["ev"],
        component: "io.k8s.api.core.v1.Event",
        table: events::table,
        selectable: &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "type",
        ],
        ..CORE
    },
    Kind {
        plural: "persistentvolumeclaims",
        kind: "PersistentVolumeClaim",
        short_names: &["pvc"],
        component: "io.k8s.api.core.v1.PersistentVolumeClaim",
        table: core::claim,
        subresources: &[Subresource::Status],
        strategy: &claim::Claim,
        ..CORE
    },
    Kind {
        group: "coordination.k8s.io",
        plural: "leases",
        kind: "Lease",
        component: "io.k8s.api.coordination.v1.Lease",
        table: core::lease,
        strategy: &lease::Lease,
        ..CORE
    },
    Kind {
        group: "scheduling.k8s.io",
        plural: "priorityclasses",
        kind: "PriorityClass",
        short_names: &["pc"],
        namespaced: false,
        component: "io.k8s.api.scheduling.v1.PriorityClass",
        table: core::priority_class,
        strategy: &priority::PriorityClass,
        ..CORE
    },
    Kind {
        group: "rbac.authorization.k8s.io",
        plural: "roles",
        kind: "Role",
        component: "io.k8s.api.rbac.v1.Role",
        table: rights_tables::role,
        strategy: &rights::Role { namespaced: true },
        ..CORE
    },
    Kind {
        group: "rbac.authorization.k8s.io",
        plural: "rolebindings",
        kind: "RoleBinding",
        component: "io.k8s.api.rbac.v1.RoleBinding",
        table: rights_tables::binding,
        strategy: &rights::Binding { namespaced: true },
        ..CORE
    },
    Kind {
        group: "rbac.authorization.k8s.io",
        plural: "clusterroles",
        kind: "ClusterRole",
        namespaced: false,
        component: "io.k8s.api.rbac.v1.ClusterRole",
        table: rights_tables::role,
        strategy: &rights::Role { namespaced: false },
        ..CORE
    },
    Kind {
        group: "rbac.authorization.k8s.io",
        plural: "clusterrolebindings",
        kind: "ClusterRoleBinding",
        namespaced: false,
        component: "io.k8s.api.rbac.v1.ClusterRoleBinding",
        table: rights_tables::binding,
        strategy: &rights::Binding { namespaced: false },
        ..CORE
    },
    Kind {
        group: "authentication.k8s.io",
        plural: "selfsubjectreviews",
        kind: "SelfSubjectReview",
        namespaced: false,
        component: "io.k8s.api.authentication.v1.SelfSubjectReview",
        table: rights_tables::review,
        review: Some(Review::SelfSubjectReview),
        ..CORE
    },
    Kind {
        group: "authentication.k8s.io",
        plural: "tokenreviews",
        kind: "TokenReview",
        namespaced: false,
        component: "io.k8s.api.authentication.v1.TokenReview",
        table: rights_tables::review,
        review: Some(Review::TokenReview),
        ..CORE
    },
    Kind {
        group: "authorization.k8s.io",
        plural: "localsubjectaccessreviews",
        kind: "LocalSubjectAccessReview",
        component: "io.k8s.api.authorization.v1.LocalSubjectAccessReview",
        table: rights_tables::review,
        review: Some(Review::LocalSubjectAccessReview),
        ..CORE
    },
    Kind {
        group: "authorization.k8s.io",
        plural: "selfsubjectaccessreviews",
        kind: "SelfSubjectAccessReview",
        namespaced: false,
        component: "io.k8s.api.authorization.v1.SelfSubjectAccessReview",
        table: rights_tables::review,
        review: Some(Review::SelfSubjectAccessReview),
        ..CORE
    },
    Kind {
        group: "authorization.k8s.io",
        plural: "selfsubjectrulesreviews",
        kind: "SelfSubjectRulesReview",
        namespaced: false,
        component: "io.k8s.api.authorization.v1.SelfSubjectRulesReview",
        table: rights_tables::review,
        review: Some(Review::SelfSubjectRulesReview),
        ..CORE
    },
    Kind {
        group: "authorization.k8s.io",
        plural: "subjectaccessreviews",
        kind: "SubjectAccessReview",
        namespaced: false,
        component: "io.k8s.api.authorization.v1.SubjectAccessReview",
        table: rights_tables::review,
        review: Some(Review::SubjectAccessReview),
        ..CORE
    },
    Kind {
        group: "apiextensions.k8s.io",
        plural: "customresourcedefinitions",
        kind: "CustomResourceDefinition",
        short_names: &["crd", "crds"],
        categories: &["api-extensions"],
        namespaced: false,
        component: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
        table: core::definition,
        strategy: &crd::CustomResourceDefinition,
        ..CORE
    },
];

/// The built-in descriptors. Made once per process: their schemas are the same for every server.
pub(crate) fn descriptors() -> Vec<Arc<Descriptor>> {
    static DESCRIPTORS: LazyLock<Vec<Arc<Descriptor>>> =
        LazyLock::new(|| KINDS.iter().map(|kind| Arc::new(kind.descriptor())).collect());
    DESCRIPTORS.clone()
}

impl Kind {
    fn descriptor(&self) -> Descriptor {
        let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        let storage =
            if self.group.is_empty() { self.plural.to_owned() } else { format!("{}/{}", self.group, self.plural) };
        Descriptor {
            group: self.group.to_owned(),
            version: self.version.to_owned(),
            plural: self.plural.to_owned(),
            singular: self.kind.to_lowercase(),
            kind: self.kind.to_owned(),
            list_kind: format!("{}List", self.kind),
            short_names: owned(self.short_names),
            categories: owned(self.categories),
            namespaced: self.namespaced,
            storage: Arc::from(storage),
            storage_version: self.version.to_owned(),
            schema: schemas::builtin(self.component),
            component: self.component.to_owned(),
            openapi: None,
            table: (self.table)(),
            subresources: self.subresources.to_vec(),
            counts_generation: self.plural == "pods",
            drops_nulls: true,
            selectable: owned(self.selectable),
            strategy: self.strategy,
            terminating: false,
            review: self.review,
            version_rank: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_structural_schema_and_columns() {
        for descriptor in descriptors() {
            assert!(!descriptor.table.columns().is_empty(), "{}", descriptor.kind);
        }
    }
}
