//! Which strategy and weight a resource has: by its name, else by the longest pattern, else none. A pod's annotations
//! stand in for the configuration. Called by `resource-strategy-fit` for every score.

use std::collections::BTreeMap;

use crate::config::{Fault, Field};

/// The pod's strategy for all resources.
pub(super) const TYPE: &str = "volcano.sh/resource-strategy-scoring-type";
/// The pod's weights, a JSON map.
pub(super) const WEIGHT: &str = "volcano.sh/resource-strategy-weight";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strategy {
    Least,
    Most,
}

impl Strategy {
    fn named(name: &str) -> Option<Self> {
        match name {
            "LeastAllocated" => Some(Self::Least),
            "MostAllocated" => Some(Self::Most),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Strategies {
    exact: BTreeMap<String, (Strategy, i64)>,
    /// The longest prefix first.
    patterns: Vec<Pattern>,
}

/// What all resources get whose names begin alike.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern {
    /// What stands before the `*`.
    prefix: String,
    strategy: Strategy,
    weight: i64,
}

impl Strategies {
    pub(super) fn new(resources: Option<Field<'_>>) -> Result<Self, Fault> {
        let mut chosen = BTreeMap::new();
        for (name, entry) in resources.map_or(Ok(BTreeMap::new()), |field| field.entries())? {
            let fields = entry.entries()?;
            let strategy = fields.get("type").map_or(Ok(""), |field| field.text())?;
            let weight = fields.get("weight").map_or(Ok(1), |field| field.int())?;
            chosen.insert(name.to_owned(), (Strategy::named(strategy).unwrap_or(Strategy::Least), weight.max(1)));
        }
        if chosen.is_empty() {
            chosen = ["cpu", "memory"].map(|name| (name.to_owned(), (Strategy::Least, 1))).into();
        }
        Ok(Self::sorted(chosen))
    }

    /// A name with a `*` before its end means nothing, and neither does a bare one.
    fn sorted(chosen: BTreeMap<String, (Strategy, i64)>) -> Self {
        let (patterns, exact): (BTreeMap<_, _>, BTreeMap<_, _>) =
            chosen.into_iter().partition(|(name, _)| name.contains('*'));
        let known = patterns.into_iter().filter_map(|(name, (strategy, weight))| {
            let prefix = name.strip_suffix('*').filter(|rest| !rest.is_empty() && !rest.contains('*'))?;
            Some(Pattern { prefix: prefix.to_owned(), strategy, weight })
        });
        let mut patterns: Vec<Pattern> = known.collect();
        patterns.sort_by(|left, right| {
            let (left, right) = (&left.prefix, &right.prefix);
            right.len().cmp(&left.len()).then_with(|| left.cmp(right))
        });
        Self { exact, patterns }
    }

    pub(super) fn of(&self, resource: &str) -> Option<(Strategy, i64)> {
        let pattern = || self.patterns.iter().find(|pattern| resource.starts_with(pattern.prefix.as_str()));
        self.exact.get(resource).copied().or_else(|| pattern().map(|pattern| (pattern.strategy, pattern.weight)))
    }
}

/// The strategies of a pod whose annotations name some: its weights in place of the configured ones, its type in place
/// of all types. Annotations that don't read are as absent.
pub(super) fn of_pod(configured: &Strategies, annotations: &BTreeMap<String, String>) -> Option<Strategies> {
    let strategy = annotations.get(TYPE).and_then(|name| Strategy::named(name));
    let weights = annotations.get(WEIGHT).and_then(|text| serde_saphyr::from_str::<BTreeMap<String, i64>>(text).ok());
    match (strategy, weights) {
        (None, None) => None,
        (strategy, Some(weights)) => {
            let kept = |name: &str| configured.of(name).map_or(Strategy::Least, |(strategy, _)| strategy);
            let own = weights.into_iter().map(|(name, weight)| {
                let strategy = strategy.unwrap_or_else(|| kept(&name));
                (name, (strategy, weight.max(1)))
            });
            Some(Strategies::sorted(own.collect()))
        }
        (Some(strategy), None) => {
            let mut own = configured.clone();
            own.exact.values_mut().for_each(|entry| entry.0 = strategy);
            own.patterns.iter_mut().for_each(|pattern| pattern.strategy = strategy);
            Some(own)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(entries: &[(&str, Strategy, i64)]) -> Strategies {
        Strategies::sorted(
            entries.iter().map(|(name, strategy, weight)| ((*name).to_owned(), (*strategy, *weight))).collect(),
        )
    }

    #[test]
    fn the_exact_name_wins_then_the_longest_pattern() {
        let strategies = of(&[
            ("nvidia.com/gpu", Strategy::Most, 5),
            ("nvidia.com/*", Strategy::Most, 2),
            ("nvidia.com/gpu-*", Strategy::Least, 3),
            ("*", Strategy::Most, 9),
            ("a*b", Strategy::Most, 9),
        ]);
        for (name, want) in [
            ("nvidia.com/gpu", Some((Strategy::Most, 5))),
            ("nvidia.com/gpu-shared", Some((Strategy::Least, 3))),
            ("nvidia.com/mig", Some((Strategy::Most, 2))),
            ("cpu", None),
            ("a*b", None),
        ] {
            assert_eq!(strategies.of(name), want, "{name}");
        }
    }

    #[test]
    fn a_pods_annotations_stand_in_for_the_configuration() {
        let configured = of(&[("cpu", Strategy::Least, 1), ("memory", Strategy::Most, 2)]);
        let annotations = |kind: Option<&str>, weight: Option<&str>| {
            let entries = [(TYPE, kind), (WEIGHT, weight)];
            entries.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned()))).collect()
        };
        for (name, kind, weight, resource, want) in [
            ("nothing said", None, None, "cpu", None),
            ("nothing that reads", Some("Half"), Some("{"), "cpu", None),
            ("type alone", Some("MostAllocated"), None, "cpu", Some(Some((Strategy::Most, 1)))),
            ("weights alone", None, Some(r#"{"memory": 7}"#), "memory", Some(Some((Strategy::Most, 7)))),
            ("weights leave others out", None, Some(r#"{"memory": 7}"#), "cpu", Some(None)),
            ("both", Some("LeastAllocated"), Some(r#"{"memory": 0}"#), "memory", Some(Some((Strategy::Least, 1)))),
        ] {
            let own = of_pod(&configured, &annotations(kind, weight));
            assert_eq!(own.map(|own| own.of(resource)), want, "{name}");
        }
    }
}
