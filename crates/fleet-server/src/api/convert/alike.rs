//! Which items of a request ask for the same, so that it is read once.
//!
//! Invariant: items that are told to be alike differ in nothing but what each job has of its own.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};

use pumice_wire::api::JobSubmitRequestItem;

/// For each item the place of the first that asks for the same.
pub(super) fn firsts(items: &[JobSubmitRequestItem]) -> Vec<usize> {
    let mut known: HashMap<Alike<'_>, usize> = HashMap::new();
    let mut before: Option<(Alike<'_>, usize)> = None;
    let firsts = items.iter().enumerate().map(|(index, item)| {
        let item = Alike(item);
        // Jobs that are alike mostly follow each other.
        let first = match before {
            Some((before, first)) if before == item => first,
            _ => *known.entry(item).or_insert(index),
        };
        before = Some((item, first));
        first
    });
    firsts.collect()
}

/// An item, equal to those that ask for the same.
#[derive(Clone, Copy)]
struct Alike<'i>(&'i JobSubmitRequestItem);

impl PartialEq for Alike<'_> {
    #[allow(deprecated, reason = "older clients send what newer ones do not")]
    fn eq(&self, other: &Self) -> bool {
        // All fields are named: one that is new is to be compared, too.
        let JobSubmitRequestItem {
            priority: _,
            client_id: _,
            external_job_uri: _,
            namespace,
            labels,
            annotations,
            required_node_labels,
            pod_spec,
            pod_specs,
            ingress,
            services,
            scheduler,
        } = self.0;
        let other = other.0;
        *pod_specs == other.pod_specs
            && *pod_spec == other.pod_spec
            && *namespace == other.namespace
            && *labels == other.labels
            && *annotations == other.annotations
            && *required_node_labels == other.required_node_labels
            && *ingress == other.ingress
            && *services == other.services
            && *scheduler == other.scheduler
    }
}

impl Eq for Alike<'_> {}

impl Hash for Alike<'_> {
    #[allow(deprecated, reason = "older clients send what newer ones do not")]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let item = self.0;
        (&item.pod_specs, &item.pod_spec, &item.namespace, &item.labels, &item.annotations).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_what_each_job_has_of_its_own_may_differ() {
        let read = |item: Value| serde_json::from_value::<JobSubmitRequestItem>(item).expect("an item");
        let plain = json!({ "namespace": "lab", "podSpecs": [{ "hostname": "a" }] });
        let with = |name: &str, value: Value| {
            let mut item = plain.clone();
            item[name] = value;
            read(item)
        };
        let own = [("priority", json!(3)), ("clientId", json!("b")), ("externalJobUri", json!("at://home"))];
        let alike = own.map(|(name, value)| with(name, value));
        let others = [
            with("namespace", json!("else")),
            with("labels", json!({ "a": "b" })),
            with("annotations", json!({ "a": "b" })),
            with("requiredNodeLabels", json!({ "a": "b" })),
            with("podSpec", json!({})),
            with("podSpecs", json!([{ "hostname": "b" }])),
            with("podSpecs", json!([])),
            with("ingress", json!([{ "ports": [80] }])),
            with("services", json!([{ "ports": [80] }])),
            with("scheduler", json!("mine")),
        ];
        let items =
            [vec![read(plain.clone())], alike.to_vec(), others.to_vec(), others.to_vec(), alike.to_vec()].concat();
        let (first, all) = (1 + alike.len(), others.len());
        let places = std::iter::repeat_n(0, first)
            .chain(first..first + all)
            .chain(first..first + all)
            .chain(std::iter::repeat_n(0, alike.len()));
        assert_eq!(firsts(&items), places.collect::<Vec<_>>());
    }
}
