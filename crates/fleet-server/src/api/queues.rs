//! Queues on the wire and in the log, and what this server remembers of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use pumice_ledger::{ClassLimit, PRIORITY_FACTOR_MIN, Permission, Queue, Subject, SubjectKind, TimeMs, Verb};
use pumice_objects::names;
use pumice_units::GoDuration;
use pumice_wire::api;
use pumice_wire::api::queue::{Permissions, permissions};

use super::identity::verb_word;
use super::limits::TEXT_BYTES_MAX;
use super::{Api, Error};
use crate::sessions::HEARTBEAT_TIMEOUT_MIN_MS;

/// How long a definition that another server changed may be used.
const KNOWN_MS: i64 = 1_000;

/// The label that says when a queue's runs are started elsewhere: Armada's message has no field for it.
const RERUN_AFTER_LABEL: &str = "pumice.sh/rerun-after";

/// Definitions, and when they were read.
pub(super) struct Known {
    at: TimeMs,
    queues: Arc<BTreeMap<String, Queue>>,
}

impl Api {
    /// A queue as it is.
    pub(super) async fn queue(&self, name: &str) -> Result<Queue, Error> {
        let queues = self.queues().await?;
        queues.get(name).cloned().ok_or_else(|| Error::NoQueue(name.to_owned()))
    }

    /// All queues as they are.
    pub(super) async fn queues(&self) -> Result<Arc<BTreeMap<String, Queue>>, Error> {
        let at = self.now();
        let queues = Arc::new(self.log().queues().await?);
        *self.known_queues() = Some(Known { at, queues: queues.clone() });
        Ok(queues)
    }

    /// A queue as it is, or was a moment ago.
    pub(super) async fn queue_lately(&self, name: &str) -> Result<Queue, Error> {
        let now = self.now();
        let known = self.known_queues().as_ref().and_then(|known| {
            let age = now.0.saturating_sub(known.at.0);
            if (0..KNOWN_MS).contains(&age) { known.queues.get(name).cloned() } else { None }
        });
        match known {
            Some(queue) => Ok(queue),
            None => self.queue(name).await,
        }
    }

    /// Forgets what was read: a definition changes.
    pub(super) fn forget_queues(&self) {
        *self.known_queues() = None;
    }
}

fn wrong(field: impl Into<String>, problem: impl Into<String>) -> Error {
    Error::Field { field: field.into(), problem: problem.into() }
}

/// A definition of the wire, checked.
///
/// # Errors
/// The first field that has no such value.
pub fn from_wire(queue: api::Queue) -> Result<Queue, Error> {
    check(&queue)?;
    let rerun_after_ms = rerun_after_ms(&queue.labels)?;
    let permissions = queue.permissions.into_iter().enumerate();
    let permissions = permissions.map(|(index, permission)| self::permission(index, permission));
    let limits = queue.resource_limits_by_priority_class_name.into_iter().map(|(class, limit)| {
        let by_pool = limit.maximum_resource_fraction_by_pool.into_iter();
        let by_pool = by_pool.map(|(pool, limit)| (pool, limit.maximum_resource_fraction)).collect();
        (class, ClassLimit { fraction: limit.maximum_resource_fraction, by_pool })
    });
    Ok(Queue {
        permissions: permissions.collect::<Result<_, _>>()?,
        limits: limits.collect(),
        name: queue.name,
        priority_factor: queue.priority_factor,
        user_owners: queue.user_owners,
        group_owners: queue.group_owners,
        cordoned: queue.cordoned,
        labels: queue.labels,
        retry_policies: queue.retry_policies,
        rerun_after_ms,
    })
}

/// What the label says; 0 without it.
fn rerun_after_ms(labels: &BTreeMap<String, String>) -> Result<i64, Error> {
    let Some(text) = labels.get(RERUN_AFTER_LABEL) else { return Ok(0) };
    let ms = text.parse().map_or(0, GoDuration::as_millis);
    if ms < HEARTBEAT_TIMEOUT_MIN_MS {
        let problem =
            format!("{text:?} is no time from 1m upward: write one such as 5m, or leave the label out for never");
        return Err(wrong(format!("labels[{RERUN_AFTER_LABEL}]"), problem));
    }
    Ok(ms)
}

fn check(queue: &api::Queue) -> Result<(), Error> {
    if queue.name.is_empty() {
        return Err(Error::Missing { field: "name" });
    }
    // Pods have it as a label.
    names::check_label_value(&queue.name).map_err(|error| wrong("name", error.to_string()))?;
    if !queue.priority_factor.is_finite() || queue.priority_factor < PRIORITY_FACTOR_MIN {
        return Err(wrong(
            "priorityFactor",
            format!("{} is not a number from {PRIORITY_FACTOR_MIN} upward", queue.priority_factor),
        ));
    }
    let bytes = prost::Message::encoded_len(queue);
    if bytes > TEXT_BYTES_MAX {
        return Err(wrong("queue", format!("it has {bytes} bytes: have at most {TEXT_BYTES_MAX}")));
    }
    if let Some((key, _)) = queue.labels.iter().find(|(key, value)| key.is_empty() || value.is_empty()) {
        return Err(wrong(format!("labels[{key}]"), "neither key nor value may be empty"));
    }
    for (class, limit) in &queue.resource_limits_by_priority_class_name {
        let by_pool = limit.maximum_resource_fraction_by_pool.values().map(|limit| &limit.maximum_resource_fraction);
        for (resource, fraction) in by_pool.chain([&limit.maximum_resource_fraction]).flatten() {
            if !fraction.is_finite() || *fraction < 0.0 {
                let field = format!("resourceLimitsByPriorityClassName[{class}][{resource}]");
                return Err(wrong(field, format!("{fraction} is not a number from 0 upward")));
            }
        }
    }
    Ok(())
}

const VERBS: [Verb; 5] = [Verb::Submit, Verb::Cancel, Verb::Preempt, Verb::Reprioritize, Verb::Watch];

fn permission(index: usize, permission: Permissions) -> Result<Permission, Error> {
    let subject = |subject: permissions::Subject| match subject.kind.as_str() {
        "User" => Ok(Subject { kind: SubjectKind::User, name: subject.name }),
        "Group" => Ok(Subject { kind: SubjectKind::Group, name: subject.name }),
        kind => Err(wrong(format!("permissions[{index}].subjects"), format!("{kind:?} is neither User nor Group"))),
    };
    let verb = |word: String| {
        VERBS.into_iter().find(|verb| verb_word(*verb) == word).ok_or_else(|| {
            let known = VERBS.map(verb_word).join(", ");
            wrong(format!("permissions[{index}].verbs"), format!("{word:?} is none of {known}"))
        })
    };
    Ok(Permission {
        subjects: permission.subjects.into_iter().map(subject).collect::<Result<_, _>>()?,
        verbs: permission.verbs.into_iter().map(verb).collect::<Result<_, _>>()?,
    })
}

/// A definition as the wire has it.
pub fn to_wire(queue: &Queue) -> api::Queue {
    let subject = |subject: &Subject| permissions::Subject {
        kind: match subject.kind {
            SubjectKind::User => "User".to_owned(),
            SubjectKind::Group => "Group".to_owned(),
        },
        name: subject.name.clone(),
    };
    let permissions = queue.permissions.iter().map(|permission| Permissions {
        subjects: permission.subjects.iter().map(subject).collect(),
        verbs: permission.verbs.iter().map(|verb| verb_word(*verb).to_owned()).collect(),
    });
    let limits = queue.limits.iter().map(|(class, limit)| {
        let by_pool = limit.by_pool.iter().map(|(pool, fraction)| {
            (pool.clone(), api::PriorityClassPoolResourceLimits { maximum_resource_fraction: fraction.clone() })
        });
        let limits = api::PriorityClassResourceLimits {
            maximum_resource_fraction: limit.fraction.clone(),
            maximum_resource_fraction_by_pool: by_pool.collect(),
        };
        (class.clone(), limits)
    });
    api::Queue {
        name: queue.name.clone(),
        priority_factor: queue.priority_factor,
        user_owners: queue.user_owners.clone(),
        group_owners: queue.group_owners.clone(),
        permissions: permissions.collect(),
        resource_limits_by_priority_class_name: limits.collect(),
        cordoned: queue.cordoned,
        labels: queue.labels.clone(),
        retry_policies: queue.retry_policies.clone(),
        ..api::Queue::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(queue: Value) -> Result<Queue, Error> {
        from_wire(serde_json::from_value(queue).expect("a queue"))
    }

    #[test]
    fn a_definition_comes_back_as_it_was_given() {
        let queue = json!({
            "name": "team_a", "priorityFactor": 1.5, "userOwners": ["ada"], "groupOwners": ["staff"],
            "permissions": [{ "subjects": [{ "kind": "User", "name": "bob" }, { "kind": "Group", "name": "g" }],
                "verbs": ["submit", "cancel", "preempt", "reprioritize", "watch"] }],
            "resourceLimitsByPriorityClassName": { "armada-default": {
                "maximumResourceFraction": { "cpu": 0.5 },
                "maximumResourceFractionByPool": { "gpu": { "maximumResourceFraction": { "cpu": 0.25 } } } } },
            "cordoned": true, "labels": { "a": "b" }, "retryPolicies": ["often"],
        });
        let read = read(queue.clone()).expect("it is one");
        assert_eq!(serde_json::to_value(to_wire(&read)).expect("JSON"), queue);
        let kept = serde_json::to_vec(&read).expect("JSON");
        assert_eq!(serde_json::from_slice::<Queue>(&kept).expect("reads"), read);
    }

    #[test]
    fn a_label_says_when_runs_are_started_elsewhere() {
        for (text, ms) in [("1m", 60_000), ("5m", 300_000), ("1h30m", 5_400_000), ("90.0005s", 90_000)] {
            let queue = json!({ "name": "q", "priorityFactor": 1.0, "labels": { "pumice.sh/rerun-after": text } });
            let read = read(queue.clone()).expect("it is one");
            assert_eq!(read.rerun_after_ms, ms, "{text}");
            assert_eq!(serde_json::to_value(to_wire(&read)).expect("JSON"), queue);
        }
        assert_eq!(read(json!({ "name": "q", "priorityFactor": 1 })).expect("it is one").rerun_after_ms, 0);
        for text in ["59.999s", "0", "-5m", "300", "5 minutes", "soon"] {
            let queue = json!({ "name": "q", "priorityFactor": 1, "labels": { "pumice.sh/rerun-after": text } });
            let error = read(queue).expect_err("refused").to_string();
            let told = "is no time from 1m upward: write one such as 5m, or leave the label out for never";
            assert_eq!(error, format!("labels[pumice.sh/rerun-after]: {text:?} {told}"));
        }
    }

    #[test]
    fn what_can_not_be_is_refused_by_its_field() {
        for (changes, field) in [
            (json!({ "name": "" }), "name:"),
            (json!({ "name": "a b" }), "name:"),
            (json!({ "name": "x".repeat(64) }), "name:"),
            (json!({ "priorityFactor": 0.5 }), "priorityFactor:"),
            (json!({ "priorityFactor": "NaN" }), "priorityFactor:"),
            (json!({ "priorityFactor": "Infinity" }), "priorityFactor:"),
            (json!({ "labels": { "": "a" } }), "labels[]:"),
            (json!({ "labels": { "a": "" } }), "labels[a]:"),
            (json!({ "userOwners": ["x".repeat(TEXT_BYTES_MAX)] }), "queue:"),
            (json!({ "permissions": [{ "verbs": ["all"] }] }), "permissions[0].verbs:"),
            (json!({ "permissions": [{ "subjects": [{ "kind": "Robot" }] }] }), "permissions[0].subjects:"),
            (
                json!({ "resourceLimitsByPriorityClassName": { "c": { "maximumResourceFraction": { "cpu": -1 } } } }),
                "resourceLimitsByPriorityClassName[c][cpu]:",
            ),
        ] {
            let mut queue = json!({ "name": "q", "priorityFactor": 1 });
            queue.as_object_mut().expect("object").extend(changes.as_object().expect("object").clone());
            let error = read(queue).expect_err("refused").to_string();
            assert!(error.starts_with(field), "{error}");
        }
    }
}
