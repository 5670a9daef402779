//! What is answered differently from Volcano on purpose, as data: when it applies, what is answered instead, and why.
//!
//! Invariant: an entry excuses only the very answer that it states; any other difference is a failure. The table of the
//! docs is rendered from here, and a test holds it fresh.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::compare::differences;
use super::file::{Basis, Case, Expect};
use super::run::Answer;

/// Where another answer than Volcano's is meant, and why.
struct Difference {
    about: About,
    volcano: &'static str,
    /// What is done instead.
    pumice: &'static str,
}

/// Which cases, and which answer is meant.
enum About {
    /// One case, by name, and the answer to it in the words of a case's `expect`.
    Case(&'static str, &'static str),
    /// Every case with a group of hard topology up to a tier name that no HyperNode has, as long as nothing is placed.
    UnknownTier,
    /// Every case that expects as many pods to be binding as are bound, all of them with volumes, and no binds.
    VolumesFirst,
    /// Every case of basis `derived-volcano`, as long as nobody is evicted for it and more is placed than Volcano places.
    Undesirable,
}

const DIFFERENCES: &[Difference] = &[
    Difference {
        about: About::UnknownTier,
        volcano: "a `highestTierName` that no HyperNode has is ignored, so that hard topology is not kept",
        pumice: "the group waits and says which name is unknown",
    },
    Difference {
        about: About::VolumesFirst,
        volcano: "pods whose volumes are still to be bound count as binding, and the binds are not seen in the session",
        pumice: "the binds are decided, and go out once the volumes are bound",
    },
    Difference {
        about: About::Case(
            "derived-overcommit",
            r#"{"phases": {"ns/j1": "Pending", "ns/j2": "Inqueue"}, "binds": {"ns/j2-0": "n0"}, "evicted": []}"#,
        ),
        volcano: "a gang that no node can ever take is admitted and its reservation keeps smaller ones out for ever",
        pumice: "a gang that no node can ever take is not admitted, so it holds up nobody",
    },
    Difference {
        about: About::Case("predicates-003", r#"{"binds": {}, "evicted": ["ns1/worker-1"]}"#),
        volcano: "a victim's leaving does not count for anti-affinity where predicates' enablePreemptable is off",
        pumice: "who stands in the way by anti-affinity may be a victim, whatever that switch says",
    },
    Difference {
        about: About::Undesirable,
        volcano: "leaves pods waiting that fit, which the case itself calls undesirable",
        pumice: "places them, and evicts nobody for it",
    },
];

impl Difference {
    fn is_meant(&self, case: &Case, answer: &Answer) -> bool {
        match self.about {
            About::Case(name, meant) => {
                let meant: Option<Expect> = serde_json::from_str(meant).ok();
                case.name == name && meant.is_some_and(|meant| differences(&meant, answer).is_empty())
            }
            About::UnknownTier => {
                let idle = answer.violations.is_empty() && answer.binds.is_empty() && answer.evicted.is_empty();
                idle && case.podgroups.iter().any(|group| names_no_tier(case, group))
            }
            About::VolumesFirst => {
                let binding = |counts: &BTreeMap<String, usize>| counts.get("Binding").copied().unwrap_or(0);
                let expected = case.expect.task_counts.as_ref().map_or(0, |groups| groups.values().map(binding).sum());
                let expects_none = case.expect.binds.as_ref().is_some_and(BTreeMap::is_empty);
                let answers = Expect { binds: Some(answer.binds.clone()), ..case.expect.clone() };
                expects_none
                    && expected == answer.binds.len()
                    && answer.binds.keys().all(|pod| has_volumes(case, pod))
                    && differences(&answers, answer).is_empty()
            }
            About::Undesirable => {
                case.expect.basis == Some(Basis::DerivedVolcano)
                    && answer.violations.is_empty()
                    && answer.evicted.is_empty()
                    && case.expect.binds.as_ref().is_some_and(|binds| places_more(binds, &answer.binds))
            }
        }
    }

    fn title(&self) -> String {
        match self.about {
            About::Case(name, _) => format!("`{name}`"),
            About::UnknownTier => "any with a `highestTierName` that no HyperNode has".to_owned(),
            About::VolumesFirst => "any with pods that wait for volumes".to_owned(),
            About::Undesirable => "any other of basis `derived-volcano`".to_owned(),
        }
    }
}

fn names_no_tier(case: &Case, group: &Map<String, Value>) -> bool {
    let topology = group.get("networkTopology");
    let field = |key: &str| topology.and_then(|topology| topology.get(key)?.as_str());
    let named = |node: &Map<String, Value>| node.get("tierName").and_then(Value::as_str) == field("highestTierName");
    field("mode") == Some("hard") && field("highestTierName").is_some() && !case.hypernodes.iter().any(named)
}

fn has_volumes(case: &Case, pod: &str) -> bool {
    let named = |item: &&Map<String, Value>| item.get("name").and_then(Value::as_str) == Some(pod);
    case.pods.iter().find(named).is_some_and(|item| item.contains_key("volumes"))
}

fn places_more(volcano: &BTreeMap<String, String>, pumice: &BTreeMap<String, String>) -> bool {
    pumice.len() > volcano.len() && volcano.keys().all(|pod| pumice.contains_key(pod))
}

/// Why this answer to this case is right though it is not the expected one.
pub(super) fn reason(case: &Case, answer: &Answer) -> Option<&'static str> {
    DIFFERENCES.iter().find(|difference| difference.is_meant(case, answer)).map(|difference| difference.pumice)
}

/// The table of the docs.
pub(super) fn table() -> String {
    let mut text = String::from("| Case | Volcano | Pumice |\n|---|---|---|\n");
    for difference in DIFFERENCES {
        text.push_str(&format!("| {} | {} | {} |\n", difference.title(), difference.volcano, difference.pumice));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stated_answer_can_be_read() {
        for difference in DIFFERENCES {
            if let About::Case(name, meant) = difference.about {
                serde_json::from_str::<Expect>(meant).expect(name);
            }
        }
    }
}
