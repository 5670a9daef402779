//! How a built-in kind is described, and the descriptor that this makes.

use std::sync::Arc;

use pumice_objects::table::Table;

use crate::kinds::Review;
use crate::kinds::conversion::Conversion;
use crate::kinds::descriptor::{Descriptor, Subresource};
use crate::schemas;
use crate::schemas::zero_values::ZeroValues;
use crate::strategies::{Plain, Strategy, admission};

/// A built-in kind, as data.
pub(super) struct Kind {
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) plural: &'static str,
    pub(super) kind: &'static str,
    pub(super) short_names: &'static [&'static str],
    pub(super) categories: &'static [&'static str],
    pub(super) namespaced: bool,
    pub(super) component: &'static str,
    pub(super) table: fn() -> Table,
    pub(super) subresources: &'static [Subresource],
    /// Whether `spec.replicas` can be set by itself.
    pub(super) scales: bool,
    pub(super) selectable: &'static [&'static str],
    pub(super) strategy: &'static dyn Strategy,
    pub(super) review: Option<Review>,
}

/// Kinds whose `metadata.generation` counts changes of the specification.
const COUNTED: [&str; 13] = [
    "cronjobs",
    "customresourcedefinitions",
    "deployments",
    "deviceclasses",
    "endpointslices",
    "jobs",
    "networkpolicies",
    "poddisruptionbudgets",
    "pods",
    "replicasets",
    "replicationcontrollers",
    "resourceslices",
    "statefulsets",
];

/// The group with the newer form of events.
pub(super) const EVENTS_GROUP: &str = "events.k8s.io";

pub(super) const CORE: Kind = Kind {
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
    scales: false,
    selectable: &[],
    strategy: &Plain,
    review: None,
};

impl Kind {
    pub(super) fn descriptor(&self) -> Descriptor {
        let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        // Events of both groups are the same ones.
        let storage = if self.group.is_empty() || self.group == EVENTS_GROUP {
            self.plural.to_owned()
        } else {
            format!("{}/{}", self.group, self.plural)
        };
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
            conversion: if self.plural == "events" && self.group == EVENTS_GROUP {
                Conversion::Events
            } else {
                Conversion::Same
            },
            schema: schemas::builtin(self.component),
            zero_values: ZeroValues::of_builtin(self.component),
            rules: None,
            component: self.component.to_owned(),
            openapi: None,
            table: (self.table)(),
            subresources: self.subresources.iter().cloned().chain(self.scales.then(scale)).collect(),
            counts_generation: COUNTED.contains(&self.plural) || self.group == admission::GROUP,
            drops_nulls: true,
            selectable: owned(self.selectable),
            strategy: self.strategy,
            terminating: false,
            review: self.review,
            version_rank: 0,
        }
    }
}

/// The scale of a kind with `spec.replicas`.
fn scale() -> Subresource {
    Subresource::Scale {
        spec: "spec.replicas".to_owned(),
        status: "status.replicas".to_owned(),
        selector: Some("spec.selector".to_owned()),
    }
}
