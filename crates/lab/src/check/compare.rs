//! A cycle's answer against what a case expects. Pure; called by `check`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use super::file::Expect;
use super::run::{Answer, amount};

/// Any node will do.
const ANY: &str = "any";
/// `deserved` is divided in integers; a remainder of so many units of a queue's share is no difference.
const DESERVED_SLACK: i64 = 1;

/// All that is not as expected; nothing when it is.
pub(super) fn differences(expect: &Expect, answer: &Answer) -> Vec<String> {
    let mut wrong = answer.violations.iter().map(|text| format!("the plan breaks a promise: {text}")).collect();
    binds(expect, answer, &mut wrong);
    if let Some(evicted) = &expect.evicted {
        let wanted: BTreeSet<String> = evicted.iter().cloned().collect();
        unequal("evicted", &answer.evicted, &wanted, &mut wrong);
    }
    pipelined(expect, answer, &mut wrong);
    for (group, phase) in expect.phases.iter().flatten() {
        let actual = answer.phases.get(group).map_or("unknown", String::as_str);
        if actual != phase {
            wrong.push(format!("{group} is {actual}, expected {phase}"));
        }
    }
    for (group, counts) in expect.task_counts.iter().flatten() {
        let actual = answer.task_counts.get(group);
        for (status, count) in counts {
            let actual = actual.and_then(|counts| counts.get(status)).copied().unwrap_or(0);
            if actual != *count {
                wrong.push(format!("{group} has {actual} pods {status}, expected {count}"));
            }
        }
    }
    deserved(expect, answer, &mut wrong);
    wrong
}

fn unequal<T: PartialEq + Debug>(what: &str, actual: &T, wanted: &T, wrong: &mut Vec<String>) {
    if actual != wanted {
        wrong.push(format!("{what} {actual:?}, expected {wanted:?}"));
    }
}

fn binds(expect: &Expect, answer: &Answer, wrong: &mut Vec<String>) {
    let got = &answer.binds;
    if let Some(wanted) = &expect.binds {
        let fits = |(pod, node): (&String, &String)| got.get(pod).is_some_and(|on| on == node || node == ANY);
        if wanted.len() != got.len() || !wanted.iter().all(fits) {
            wrong.push(format!("binds {got:?}, expected {wanted:?}"));
        }
    }
    if let Some(count) = expect.bind_count.filter(|count| *count != got.len()) {
        wrong.push(format!("{} binds, expected {count}: {got:?}", got.len()));
    }
    if let Some(admissible) = &expect.bind_count_per_hyper_node {
        let bad = answer.binds_per_hyper_node.iter().filter(|(_, count)| !admissible.contains(count));
        for (name, count) in bad {
            wrong.push(format!("{count} binds in HyperNode {name}, expected one of {admissible:?}"));
        }
    }
    for (queue, count) in expect.bind_count_per_queue.iter().flatten() {
        let actual = answer.binds_per_queue.get(queue).copied().unwrap_or(0);
        if actual != *count {
            wrong.push(format!("{actual} binds of queue {queue}, expected {count}"));
        }
    }
    let nodes: BTreeSet<&String> = got.values().collect();
    if expect.one_per_node && nodes.len() != got.len() {
        wrong.push(format!("two pods share a node: {got:?}"));
    }
    if let Some(allowed) = &expect.allowed_nodes
        && !nodes.iter().all(|node| allowed.contains(node))
    {
        wrong.push(format!("binds {got:?}, allowed nodes {allowed:?}"));
    }
}

fn pipelined(expect: &Expect, answer: &Answer, wrong: &mut Vec<String>) {
    for (group, nodes) in expect.pipelined.iter().flatten() {
        let got = answer.pipelined.get(group);
        let pods = got.into_iter().flatten();
        if got.is_none_or(BTreeMap::is_empty) || !pods.clone().all(|(_, node)| nodes.contains(node)) {
            let pods: Vec<_> = pods.collect();
            wrong.push(format!("{group} has pipelined {pods:?}, expected at least one pod, each on one of {nodes:?}"));
        }
    }
}

fn deserved(expect: &Expect, answer: &Answer, wrong: &mut Vec<String>) {
    for (queue, wanted) in expect.deserved.iter().flatten() {
        for (name, value) in wanted {
            let actual = answer.deserved.get(queue).and_then(|list| list.get(name)).copied().unwrap_or(0);
            match amount(name, value) {
                Ok(wanted) if actual.abs_diff(wanted) <= DESERVED_SLACK.unsigned_abs() => {}
                Ok(wanted) => wrong.push(format!("queue {queue} deserves {actual} {name}, expected {wanted}")),
                Err(error) => wrong.push(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer() -> Answer {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        Answer {
            binds: BTreeMap::from([pair("ns/a", "n1"), pair("ns/b", "n2")]),
            evicted: BTreeSet::from(["ns/v".to_owned()]),
            pipelined: BTreeMap::from([("ns/g".to_owned(), BTreeMap::from([pair("ns/p", "n3")]))]),
            phases: BTreeMap::from([pair("ns/g", "Inqueue")]),
            task_counts: BTreeMap::from([("ns/g".to_owned(), BTreeMap::from([("Pending".to_owned(), 2)]))]),
            deserved: BTreeMap::from([("q".to_owned(), BTreeMap::from([("cpu".to_owned(), 1999)]))]),
            binds_per_queue: BTreeMap::from([("q".to_owned(), 2)]),
            binds_per_hyper_node: BTreeMap::from([("s0".to_owned(), 2)]),
            violations: Vec::new(),
        }
    }

    #[test]
    fn each_expectation_accepts_what_fits_and_names_what_does_not() {
        let cases = [
            (json!({"binds": {"ns/a": "n1", "ns/b": "any"}}), true),
            (json!({"binds": {"ns/a": "n1"}}), false),
            (json!({"binds": {"ns/a": "n1", "ns/b": "n1"}}), false),
            (json!({"binds": {"ns/a": "n1", "ns/c": "n2"}}), false),
            (json!({"bindCount": 2}), true),
            (json!({"bindCount": 3}), false),
            (json!({"bindCountPerHyperNode": [2, 4]}), true),
            (json!({"bindCountPerHyperNode": [1]}), false),
            (json!({"bindCountPerQueue": {"q": 2, "r": 0}}), true),
            (json!({"bindCountPerQueue": {"r": 1}}), false),
            (json!({"evicted": ["ns/v"]}), true),
            (json!({"evicted": []}), false),
            (json!({"pipelined": {"ns/g": ["n3", "n4"]}}), true),
            (json!({"pipelined": {"ns/g": ["n4"]}}), false),
            (json!({"pipelined": {"ns/h": ["n3"]}}), false),
            (json!({"phases": {"ns/g": "Inqueue"}}), true),
            (json!({"phases": {"ns/g": "Running"}}), false),
            (json!({"phases": {"ns/h": "Running"}}), false),
            (json!({"taskCounts": {"ns/g": {"Pending": 2, "Binding": 0}}}), true),
            (json!({"taskCounts": {"ns/g": {"Pending": 1}}}), false),
            (json!({"deserved": {"q": {"cpu": "2", "memory": "0"}}}), true),
            (json!({"deserved": {"q": {"cpu": "3"}}}), false),
            (json!({"deserved": {"q": {"cpu": "many"}}}), false),
            (json!({"allowedNodes": ["n1", "n2"], "onePerNode": true}), true),
            (json!({"allowedNodes": ["n1"]}), false),
        ];
        for (expect, fits) in cases {
            let typed: Expect = serde_json::from_value(expect.clone()).unwrap();
            assert_eq!(differences(&typed, &answer()).is_empty(), fits, "{expect}");
        }
    }

    #[test]
    fn a_broken_promise_is_a_difference_even_where_nothing_is_expected() {
        let answer = Answer { violations: vec!["node n1 is over".to_owned()], ..answer() };
        assert_eq!(differences(&Expect::default(), &answer).len(), 1);
        let shared = Answer {
            binds: BTreeMap::from([("a".to_owned(), "n".to_owned()), ("b".to_owned(), "n".to_owned())]),
            ..Answer::default()
        };
        assert_eq!(differences(&Expect { one_per_node: true, ..Expect::default() }, &shared).len(), 1);
    }
}
