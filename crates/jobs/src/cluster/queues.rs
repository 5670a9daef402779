//! Queues: their rows, and whether one would take a job of some size.
//!
//! Invariant: [`check`] looks at the queue alone, pure: it knows its limits and what is allocated, not what other jobs will ask
//! for; the scheduler decides. Called by `jobctl queue`.

use std::collections::BTreeMap;

use pumice_api::names::ROOT_QUEUE;
use pumice_api::scheduling::{Queue, QueueState, ResourceList};
use pumice_units::Quantity;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::Missing;
use crate::error::Error;
use crate::job::state;
use crate::json::text_at;
use crate::names;
use crate::output::table::{Table, Tint};
use crate::platform::call::{self, CallError, FailureClass};
use crate::platform::connection::Connection;

const QUEUES: &str = "/apis/scheduling.volcano.sh/v1beta1/queues";

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// Whether such a job can ever run in the queue as it is.
    pub possible: bool,
    /// Whether there is room now.
    pub now: bool,
    /// What stands against it, or is worth to know, a sentence each.
    pub findings: Vec<String>,
}

/// Judges a job that asks for `asked` in all, by resource.
pub fn check(queue: &Queue, asked: &BTreeMap<String, Quantity>) -> Verdict {
    let name = queue.metadata.name.as_deref().unwrap_or_default();
    let mut verdict = Verdict { possible: true, now: true, findings: Vec::new() };
    let against = |verdict: &mut Verdict, finding: String| {
        (verdict.possible, verdict.now) = (false, false);
        verdict.findings.push(finding);
    };
    if name == ROOT_QUEUE {
        against(&mut verdict, "the root of the tree takes no jobs".to_owned());
    }
    match &queue.status.state {
        None | Some(QueueState::Open) => {}
        Some(state) => against(&mut verdict, format!("it is {state} and takes no new jobs")),
    }
    let amount = |text: Option<&k8s_openapi::apimachinery::pkg::api::resource::Quantity>| {
        text.and_then(|text| text.0.parse::<Quantity>().ok())
    };
    for (resource, asked) in asked {
        let allocated = amount(queue.status.allocated.get(resource)).unwrap_or(Quantity::ZERO);
        if let Some(limit) = amount(queue.spec.capability.get(resource)) {
            let left = limit.checked_sub(allocated).filter(|left| !left.is_negative()).unwrap_or(Quantity::ZERO);
            if *asked > limit {
                against(&mut verdict, format!("{asked} {resource} is more than its limit of {limit}"));
            } else if *asked > left {
                verdict.now = false;
                verdict
                    .findings
                    .push(format!("{asked} {resource} has to wait: {left} of its limit of {limit} is free"));
            }
        }
        if let Some(share) = amount(queue.spec.deserved.get(resource))
            && allocated.checked_add(*asked).is_some_and(|sum| sum > share)
        {
            verdict.findings.push(format!(
                "with {asked} {resource} it has more than the {share} it deserves; others may reclaim that"
            ));
        }
    }
    verdict
}

/// The table of queues.
pub fn table(queues: &[Queue], wide: bool) -> Table {
    let mut head = vec!["NAME", "STATE", "WEIGHT", "RUNNING", "INQUEUE", "PENDING", "ALLOCATED"];
    if wide {
        head.extend(["PARENT", "DESERVED", "CAPABILITY"]);
    }
    let mut table = Table::new(head);
    table.tint(1, |state| if state == "Open" { Tint::Good } else { Tint::Bad });
    for Queue { metadata, spec, status, .. } in queues {
        let mut row = vec![
            metadata.name.clone().unwrap_or_default(),
            status.state.as_ref().map_or_else(|| state::NEW.to_owned(), ToString::to_string),
            spec.weight.to_string(),
            status.running.to_string(),
            status.inqueue.to_string(),
            status.pending.to_string(),
            amounts(&status.allocated),
        ];
        if wide {
            row.extend([spec.parent.clone(), amounts(&spec.deserved), amounts(&spec.capability)]);
        }
        table.push(row);
    }
    table
}

/// `cpu=2,memory=4Gi`.
fn amounts(amounts: &ResourceList) -> String {
    amounts.iter().map(|(name, amount)| format!("{name}={}", amount.0)).collect::<Vec<_>>().join(",")
}

/// A queue's typed view.
pub fn typed(connection: &Connection, object: &Value) -> Result<Queue, CallError> {
    Queue::deserialize(object).map_err(|error| CallError::unreadable("read a queue", connection.url(), error))
}

/// All queues as the server has them, by name.
pub async fn list(connection: &Connection) -> Result<Vec<Value>, CallError> {
    let (mut queues, _) = call::list(connection, QUEUES, "", "list queues").await?;
    queues.sort_by_cached_key(|queue| text_at(queue, "/metadata/name").to_owned());
    Ok(queues)
}

/// A queue as the server has it.
pub async fn get(connection: &Connection, name: &str) -> Result<Value, Error> {
    names::check("queue name", name, 253)?;
    let doing = format!("get queue {name}");
    call::get(connection, &format!("{QUEUES}/{name}"), &doing).await.map_err(|error| match error.class() {
        FailureClass::NotFound => Missing { what: "queue", name: name.to_owned() }.into(),
        _ => error.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn limits_and_what_is_allocated_decide() {
        let queue = |name: &str, state: &str| -> Queue {
            serde_json::from_value(json!({"metadata": {"name": name},
                "spec": {"capability": {"cpu": "10"}, "deserved": {"cpu": "6", "memory": "8Gi"}},
                "status": {"state": state, "allocated": {"cpu": "4"}}}))
            .unwrap()
        };
        for (name, state, cpu, possible, now, findings) in [
            ("q", "Open", "2", true, true, vec![]),
            (
                "q",
                "Open",
                "5",
                true,
                true,
                vec!["with 5 cpu it has more than the 6 it deserves; others may reclaim that"],
            ),
            (
                "q",
                "Open",
                "7",
                true,
                false,
                vec![
                    "7 cpu has to wait: 6 of its limit of 10 is free",
                    "with 7 cpu it has more than the 6 it deserves; others may reclaim that",
                ],
            ),
            (
                "q",
                "Open",
                "11",
                false,
                false,
                vec![
                    "11 cpu is more than its limit of 10",
                    "with 11 cpu it has more than the 6 it deserves; others may reclaim that",
                ],
            ),
            ("q", "Closed", "1", false, false, vec!["it is Closed and takes no new jobs"]),
            ("root", "Open", "1", false, false, vec!["the root of the tree takes no jobs"]),
        ] {
            let asked = BTreeMap::from([("cpu".to_owned(), cpu.parse().unwrap())]);
            let findings = findings.into_iter().map(str::to_owned).collect();
            assert_eq!(check(&queue(name, state), &asked), Verdict { possible, now, findings }, "{name} {state} {cpu}");
        }
    }

    #[test]
    fn rows_of_queues() {
        let queues: Vec<Queue> = serde_json::from_value(json!([
            {"metadata": {"name": "night"}, "spec": {"weight": 4, "parent": "root", "capability": {"cpu": "4", "memory": "1Gi"}},
             "status": {"state": "Closing", "inqueue": 1, "pending": 2, "running": 3, "allocated": {"cpu": "2"}}},
            {"metadata": {"name": "fresh"}, "spec": {}},
        ]))
        .unwrap();
        insta::assert_snapshot!([table(&queues, false).render(false), table(&queues, true).render(false)].join("\n"));
    }
}
