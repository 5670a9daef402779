//! What is answered differently from Volcano on purpose, as data: when it applies, what is answered instead, and why.
//!
//! Invariant: an entry excuses only the very answer that it states; any other difference is a failure. The table of the
//! docs is rendered from here, and a test holds it fresh.

use std::collections::BTreeMap;

use super::compare::differences;
use super::file::{Basis, Case, Expect};
use super::run::Answer;

/// One difference.
struct Difference {
    about: About,
    /// What Volcano does.
    volcano: &'static str,
    /// What is done instead.
    pumice: &'static str,
}

/// Which cases, and which answer is meant.
enum About {
    /// One case, by name, and the answer to it in the words of a case's `expect`.
    Case(&'static str, &'static str),
    /// Every case of basis `derived-volcano`, as long as nobody is evicted for it and more is placed than Volcano places.
    Undesirable,
}

/// All of them.
const DIFFERENCES: &[Difference] = &[
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
            About::Undesirable => "any other of basis `derived-volcano`".to_owned(),
        }
    }
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
