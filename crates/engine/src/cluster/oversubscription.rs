//! What a node's agent offers beyond what the node has: idle use of pods that asked for more than they take.
//! Counted whatever the node's labels say, as in Volcano. Called when a node is told of.

use std::collections::BTreeMap;

use crate::resource_dims::Resources;

/// Milli-cores that the node's agent offers besides.
const CPU: &str = "volcano.sh/oversubscription-cpu";
/// Bytes that the node's agent offers besides.
const MEMORY: &str = "volcano.sh/oversubscription-memory";

/// `resources` with the amounts of the annotations added; what does not read, or is not above zero, adds nothing.
pub(super) fn added(resources: &Resources, annotations: &BTreeMap<String, String>) -> Resources {
    let mut sum = resources.clone();
    for (name, annotation) in [("cpu", CPU), ("memory", MEMORY)] {
        let more = annotations.get(annotation).and_then(|text| text.trim().parse::<i64>().ok());
        if let Some(more) = more.filter(|more| *more > 0) {
            let total = sum.entry(name.to_owned()).or_default();
            *total = total.saturating_add(more);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_add_to_what_there_is() {
        let of = |pairs: &[(&str, i64)]| -> Resources {
            pairs.iter().map(|(name, amount)| ((*name).to_owned(), *amount)).collect()
        };
        for (cpu, memory, sum) in [
            (Some("2500"), Some("1000"), of(&[("cpu", 6_500), ("memory", 1_000)])),
            (Some("-1"), None, of(&[("cpu", 4_000)])),
            (Some("2 cores"), Some(""), of(&[("cpu", 4_000)])),
            (Some("9223372036854775807"), None, of(&[("cpu", i64::MAX)])),
        ] {
            let pairs = [(CPU, cpu), (MEMORY, memory)].into_iter();
            let annotations = pairs.filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned()))).collect();
            assert_eq!(added(&of(&[("cpu", 4_000)]), &annotations), sum, "{cpu:?} {memory:?}");
        }
    }
}
