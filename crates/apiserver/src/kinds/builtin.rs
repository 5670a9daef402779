//! Descriptors of the built-in kinds, as data.
//!
//! Invariant: a kind stands here only if what it promises happens, or the compatibility table says what does not.

use std::sync::{Arc, LazyLock};

use super::descriptor::{Descriptor, Subresource};
use crate::kinds::Review;
use crate::kinds::crd::strategy;
use crate::kinds::tables::{
    admission as admission_tables, core, events, limits, nodes, pods, rbac as rbac_tables, storage, workloads,
};
use crate::strategies::{
    Node, admission, batch_cron_job, batch_job, claim, config, deployment, disruption_budget, endpoint_slice, event,
    lease, limit_range, namespace, network_policy, pod, priority, rbac, replica_set, resource_quota, service,
    service_account, stateful_set, storage_class, volume,
};

mod kind;
mod stored_only;

use kind::{CORE, EVENTS_GROUP, Kind};

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
            Subresource::Attach,
            Subresource::PortForward,
            Subresource::EphemeralContainers,
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
        strategy: &service_account::ServiceAccount,
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
        group: EVENTS_GROUP,
        plural: "events",
        kind: "Event",
        short_names: &["ev"],
        component: "io.k8s.api.events.v1.Event",
        table: events::table,
        selectable: &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
        strategy: &event::Event,
        ..CORE
    },
    Kind {
        plural: "persistentvolumeclaims",
        kind: "PersistentVolumeClaim",
        short_names: &["pvc"],
        component: "io.k8s.api.core.v1.PersistentVolumeClaim",
        table: storage::claim,
        subresources: &[Subresource::Status],
        strategy: &claim::Claim,
        ..CORE
    },
    Kind {
        plural: "persistentvolumes",
        kind: "PersistentVolume",
        short_names: &["pv"],
        namespaced: false,
        component: "io.k8s.api.core.v1.PersistentVolume",
        table: storage::volume,
        subresources: &[Subresource::Status],
        strategy: &volume::Volume,
        ..CORE
    },
    Kind {
        plural: "resourcequotas",
        kind: "ResourceQuota",
        short_names: &["quota"],
        component: "io.k8s.api.core.v1.ResourceQuota",
        table: limits::resource_quota,
        subresources: &[Subresource::Status],
        strategy: &resource_quota::ResourceQuota,
        ..CORE
    },
    Kind {
        plural: "limitranges",
        kind: "LimitRange",
        short_names: &["limits"],
        component: "io.k8s.api.core.v1.LimitRange",
        table: limits::limit_range,
        strategy: &limit_range::LimitRange,
        ..CORE
    },
    Kind {
        group: "apps",
        plural: "controllerrevisions",
        kind: "ControllerRevision",
        component: "io.k8s.api.apps.v1.ControllerRevision",
        table: workloads::controller_revision,
        strategy: &stateful_set::ControllerRevision,
        ..CORE
    },
    Kind {
        group: "apps",
        plural: "deployments",
        kind: "Deployment",
        short_names: &["deploy"],
        categories: &["all"],
        component: "io.k8s.api.apps.v1.Deployment",
        table: workloads::deployment,
        subresources: &[Subresource::Status],
        scales: true,
        strategy: &deployment::Deployment,
        ..CORE
    },
    Kind {
        group: "apps",
        plural: "replicasets",
        kind: "ReplicaSet",
        short_names: &["rs"],
        categories: &["all"],
        component: "io.k8s.api.apps.v1.ReplicaSet",
        table: workloads::replica_set,
        subresources: &[Subresource::Status],
        scales: true,
        selectable: &["status.replicas"],
        strategy: &replica_set::ReplicaSet,
        ..CORE
    },
    Kind {
        group: "apps",
        plural: "statefulsets",
        kind: "StatefulSet",
        short_names: &["sts"],
        categories: &["all"],
        component: "io.k8s.api.apps.v1.StatefulSet",
        table: workloads::stateful_set,
        subresources: &[Subresource::Status],
        scales: true,
        strategy: &stateful_set::StatefulSet,
        ..CORE
    },
    Kind {
        group: "batch",
        plural: "cronjobs",
        kind: "CronJob",
        short_names: &["cj"],
        categories: &["all"],
        component: "io.k8s.api.batch.v1.CronJob",
        table: workloads::cron_job,
        subresources: &[Subresource::Status],
        strategy: &batch_cron_job::CronJob,
        ..CORE
    },
    Kind {
        group: "batch",
        plural: "jobs",
        kind: "Job",
        categories: &["all"],
        component: "io.k8s.api.batch.v1.Job",
        table: workloads::job,
        subresources: &[Subresource::Status],
        strategy: &batch_job::Job,
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
        group: "discovery.k8s.io",
        plural: "endpointslices",
        kind: "EndpointSlice",
        component: "io.k8s.api.discovery.v1.EndpointSlice",
        table: limits::endpoint_slice,
        strategy: &endpoint_slice::EndpointSlice,
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
        group: "networking.k8s.io",
        plural: "networkpolicies",
        kind: "NetworkPolicy",
        short_names: &["netpol"],
        component: "io.k8s.api.networking.v1.NetworkPolicy",
        table: limits::network_policy,
        strategy: &network_policy::NetworkPolicy,
        ..CORE
    },
    Kind {
        group: "policy",
        plural: "poddisruptionbudgets",
        kind: "PodDisruptionBudget",
        short_names: &["pdb"],
        component: "io.k8s.api.policy.v1.PodDisruptionBudget",
        table: limits::disruption_budget,
        subresources: &[Subresource::Status],
        strategy: &disruption_budget::DisruptionBudget,
        ..CORE
    },
    Kind {
        group: "rbac.authorization.k8s.io",
        plural: "roles",
        kind: "Role",
        component: "io.k8s.api.rbac.v1.Role",
        table: rbac_tables::role,
        strategy: &rbac::Role { namespaced: true },
        ..CORE
    },
    Kind {
        group: "rbac.authorization.k8s.io",
        plural: "rolebindings",
        kind: "RoleBinding",
        component: "io.k8s.api.rbac.v1.RoleBinding",
        table: rbac_tables::binding,
        strategy: &rbac::Binding { namespaced: true },
        ..CORE
    },
    Kind {
        group: "rbac.authorization.k8s.io",
        plural: "clusterroles",
        kind: "ClusterRole",
        namespaced: false,
        component: "io.k8s.api.rbac.v1.ClusterRole",
        table: rbac_tables::role,
        strategy: &rbac::Role { namespaced: false },
        ..CORE
    },
    Kind {
        group: "rbac.authorization.k8s.io",
        plural: "clusterrolebindings",
        kind: "ClusterRoleBinding",
        namespaced: false,
        component: "io.k8s.api.rbac.v1.ClusterRoleBinding",
        table: rbac_tables::binding,
        strategy: &rbac::Binding { namespaced: false },
        ..CORE
    },
    Kind {
        group: "storage.k8s.io",
        plural: "storageclasses",
        kind: "StorageClass",
        short_names: &["sc"],
        namespaced: false,
        component: "io.k8s.api.storage.v1.StorageClass",
        table: storage::class,
        strategy: &storage_class::StorageClass,
        ..CORE
    },
    Kind {
        group: "authentication.k8s.io",
        plural: "selfsubjectreviews",
        kind: "SelfSubjectReview",
        namespaced: false,
        component: "io.k8s.api.authentication.v1.SelfSubjectReview",
        table: rbac_tables::review,
        review: Some(Review::Myself),
        ..CORE
    },
    Kind {
        group: "authentication.k8s.io",
        plural: "tokenreviews",
        kind: "TokenReview",
        namespaced: false,
        component: "io.k8s.api.authentication.v1.TokenReview",
        table: rbac_tables::review,
        review: Some(Review::Token),
        ..CORE
    },
    Kind {
        group: "authorization.k8s.io",
        plural: "localsubjectaccessreviews",
        kind: "LocalSubjectAccessReview",
        component: "io.k8s.api.authorization.v1.LocalSubjectAccessReview",
        table: rbac_tables::review,
        review: Some(Review::LocalAccess),
        ..CORE
    },
    Kind {
        group: "authorization.k8s.io",
        plural: "selfsubjectaccessreviews",
        kind: "SelfSubjectAccessReview",
        namespaced: false,
        component: "io.k8s.api.authorization.v1.SelfSubjectAccessReview",
        table: rbac_tables::review,
        review: Some(Review::MyAccess),
        ..CORE
    },
    Kind {
        group: "authorization.k8s.io",
        plural: "selfsubjectrulesreviews",
        kind: "SelfSubjectRulesReview",
        namespaced: false,
        component: "io.k8s.api.authorization.v1.SelfSubjectRulesReview",
        table: rbac_tables::review,
        review: Some(Review::MyRules),
        ..CORE
    },
    Kind {
        group: "authorization.k8s.io",
        plural: "subjectaccessreviews",
        kind: "SubjectAccessReview",
        namespaced: false,
        component: "io.k8s.api.authorization.v1.SubjectAccessReview",
        table: rbac_tables::review,
        review: Some(Review::Access),
        ..CORE
    },
    Kind {
        group: admission::GROUP,
        plural: "mutatingwebhookconfigurations",
        kind: "MutatingWebhookConfiguration",
        categories: &["api-extensions"],
        namespaced: false,
        component: "io.k8s.api.admissionregistration.v1.MutatingWebhookConfiguration",
        table: admission_tables::webhooks,
        strategy: &admission::WebhookConfiguration { mutates: true },
        ..CORE
    },
    Kind {
        group: admission::GROUP,
        plural: "validatingadmissionpolicies",
        kind: "ValidatingAdmissionPolicy",
        categories: &["api-extensions"],
        namespaced: false,
        component: "io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicy",
        table: admission_tables::policy,
        subresources: &[Subresource::Status],
        strategy: &admission::ValidatingAdmissionPolicy,
        ..CORE
    },
    Kind {
        group: admission::GROUP,
        plural: "validatingadmissionpolicybindings",
        kind: "ValidatingAdmissionPolicyBinding",
        categories: &["api-extensions"],
        namespaced: false,
        component: "io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicyBinding",
        table: admission_tables::binding,
        strategy: &admission::ValidatingAdmissionPolicyBinding,
        ..CORE
    },
    Kind {
        group: admission::GROUP,
        plural: "validatingwebhookconfigurations",
        kind: "ValidatingWebhookConfiguration",
        categories: &["api-extensions"],
        namespaced: false,
        component: "io.k8s.api.admissionregistration.v1.ValidatingWebhookConfiguration",
        table: admission_tables::webhooks,
        strategy: &admission::WebhookConfiguration { mutates: false },
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
        subresources: &[Subresource::Status],
        strategy: &strategy::CustomResourceDefinition,
        ..CORE
    },
];

/// The built-in descriptors. Made once per process: their schemas are the same for every server.
pub(crate) fn descriptors() -> Vec<Arc<Descriptor>> {
    static DESCRIPTORS: LazyLock<Vec<Arc<Descriptor>>> =
        LazyLock::new(|| KINDS.iter().chain(stored_only::KINDS).map(|kind| Arc::new(kind.descriptor())).collect());
    DESCRIPTORS.clone()
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
