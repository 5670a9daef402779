//! The bodies of what is written: merge patches made of the engine's plans. Pure but for the stamps it keeps.

use std::collections::{BTreeSet, HashMap};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use pumice_engine::{Eviction, GroupPhase, GroupUid, GroupUpdate, PodNotice, QueueUpdate};
use serde_json::{Map, Value, json};

use crate::translate;
use crate::watch_to_deltas::Unbound;

/// When each condition of each PodGroup last changed, and in which cycle; and its phase as it was written last.
#[derive(Debug, Default)]
pub(crate) struct Stamps {
    by_uid: HashMap<GroupUid, GroupStamps>,
}

#[derive(Debug, Default)]
struct GroupStamps {
    phase: Option<GroupPhase>,
    /// One of each kind. Nearly all groups have one or two, and there may be a million groups.
    conditions: Vec<Stamp>,
}

#[derive(Debug)]
struct Stamp {
    kind: String,
    status: bool,
    reason: String,
    at: Timestamp,
    transition: String,
}

impl Stamps {
    /// Forgets groups that are gone.
    pub(crate) fn keep(&mut self, is_there: impl Fn(&GroupUid) -> bool) {
        self.by_uid.retain(|uid, _| is_there(uid));
    }

    pub(crate) fn len(&self) -> usize {
        self.by_uid.len()
    }

    /// Whether the group has just been admitted, which is what the pods are made on. No other phase holds anybody up.
    pub(crate) fn is_newly_admitted(&self, update: &GroupUpdate) -> bool {
        let written = self.by_uid.get(&update.uid).and_then(|stamps| stamps.phase);
        update.status.phase == GroupPhase::Inqueue && written != Some(GroupPhase::Inqueue)
    }

    /// A PodGroup's new status. `transition` names the cycle. The uid makes the server refuse another group of that name.
    pub(crate) fn group(&mut self, update: &GroupUpdate, now: Timestamp, transition: &str) -> Value {
        let stamps = self.by_uid.entry(update.uid.clone()).or_default();
        stamps.phase = Some(update.status.phase);
        let stamps = &mut stamps.conditions;
        let conditions = update.status.conditions.iter().map(|condition| {
            let fresh = || Stamp {
                kind: condition.kind.clone(),
                status: condition.status,
                reason: condition.reason.clone(),
                at: now,
                transition: transition.to_owned(),
            };
            let known = stamps.iter().position(|stamp| stamp.kind == condition.kind);
            let place = known.unwrap_or_else(|| {
                stamps.reserve_exact(1);
                stamps.push(fresh());
                stamps.len() - 1
            });
            let stamp = &mut stamps[place];
            if (stamp.status, &stamp.reason) != (condition.status, &condition.reason) {
                *stamp = fresh();
            }
            json!({
                "type": condition.kind,
                "status": if condition.status { "True" } else { "False" },
                "reason": condition.reason,
                "message": condition.message,
                "transitionID": stamp.transition,
                "lastTransitionTime": seconds(stamp.at),
            })
        });
        let conditions: Vec<Value> = conditions.collect();
        let status = &update.status;
        let mut metadata = json!({"uid": update.uid});
        if !update.annotations.is_empty() {
            metadata["annotations"] = json!(update.annotations);
        }
        json!({
            "metadata": metadata,
            "status": {
                "phase": translate::phase_word(status.phase),
                "conditions": conditions,
                "running": status.running,
                "succeeded": status.succeeded,
                "failed": status.failed,
            },
        })
    }
}

/// PodScheduled=False, beside the conditions that others wrote: a merge patch replaces the whole list. The version makes
/// the server refuse a pod that was bound, or written by others, in the meantime.
pub(crate) fn pod(notice: &PodNotice, seen: &Unbound, now: Timestamp) -> Value {
    let mut conditions: Vec<Value> = seen.conditions.iter().map(|condition| json!(condition)).collect();
    conditions.push(json!({
        "type": "PodScheduled",
        "status": "False",
        "reason": notice.reason,
        "message": notice.message,
        "lastTransitionTime": seconds(now),
    }));
    let mut metadata = json!({"uid": notice.uid});
    if let Some(version) = &seen.version {
        metadata["resourceVersion"] = json!(version);
    }
    json!({"metadata": metadata, "status": {"conditions": conditions}})
}

/// What is told of an eviction: who wanted it, for whom, and what it costs.
pub(crate) fn eviction_text(eviction: &Eviction) -> String {
    // Tenths of a core-hour, rounded; a core-hour is 3,600,000 core-milliseconds.
    let tenths = eviction.lost_core_ms.max(0).saturating_add(180_000) / 360_000;
    let beneficiary = eviction.beneficiary.as_deref().map(|group| format!(" for {group}")).unwrap_or_default();
    let reason = if eviction.message.is_empty() { String::new() } else { format!(": {}", eviction.message) };
    format!("{}{beneficiary}{reason}; {}.{} core-hours lost", eviction.action, tenths / 10, tenths % 10)
}

/// The conditions that Volcano gives a pod before it deletes it, beside those that others wrote.
pub(crate) fn evicted(pod: &Pod, text: &str, now: Timestamp) -> Value {
    let all = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let kept = all.filter(|condition| !matches!(condition.type_.as_str(), "Ready" | "DisruptionTarget"));
    let mut conditions: Vec<Value> = kept.map(|condition| json!(condition)).collect();
    for (kind, status, reason) in [("Ready", "False", "Evict"), ("DisruptionTarget", "True", "PreemptionByScheduler")] {
        conditions.push(json!({
            "type": kind, "status": status, "reason": reason, "message": text, "lastTransitionTime": seconds(now),
        }));
    }
    let metadata = json!({"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version});
    json!({"metadata": metadata, "status": {"conditions": conditions}})
}

/// What queues hold, as it was written last: names that are gone have to be taken out by name.
#[derive(Debug, Default)]
pub(crate) struct QueueNames {
    by_queue: HashMap<String, BTreeSet<String>>,
}

impl QueueNames {
    /// A queue's new `status.allocated`; cpu and memory are always there, as in Volcano. `seen` are the names in it as
    /// the watch has shown them: a scheduler before this one may have written them.
    pub(crate) fn queue<'a>(&mut self, update: &QueueUpdate, seen: impl Iterator<Item = &'a String>) -> Value {
        let mut allocated: Map<String, Value> = Map::new();
        let before = self.by_queue.remove(&update.name).unwrap_or_default();
        allocated.extend(before.into_iter().chain(seen.cloned()).map(|name| (name, Value::Null)));
        for name in ["cpu", "memory"] {
            allocated.insert(name.to_owned(), json!("0"));
        }
        for (name, amount) in &update.allocated {
            allocated.insert(name.clone(), json!(translate::wire_amount(name, *amount)));
        }
        self.by_queue.insert(update.name.clone(), update.allocated.keys().cloned().collect());
        json!({"status": {"allocated": allocated}})
    }
}

/// Kubernetes writes whole seconds.
pub(crate) fn seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).map_or_else(|_| time.to_string(), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodCondition;
    use pumice_engine::{GroupCondition, GroupStatus};
    use tokio::time::Instant;

    use super::*;

    fn update(status: bool, reason: &str) -> GroupUpdate {
        let condition =
            GroupCondition { kind: "Unschedulable".into(), status, reason: reason.into(), message: "why".into() };
        GroupUpdate {
            annotations: std::collections::BTreeMap::new(),
            namespace: "ns".into(),
            name: "g".into(),
            uid: "u".into(),
            status: GroupStatus { phase: GroupPhase::Inqueue, conditions: vec![condition], ..GroupStatus::default() },
        }
    }

    #[test]
    fn a_condition_is_stamped_when_it_changes() {
        let mut stamps = Stamps::default();
        let at = |second| Timestamp::from_second(second).unwrap();
        let time = |patch: &Value| patch["status"]["conditions"][0]["lastTransitionTime"].clone();
        let first = stamps.group(&update(true, "NotEnoughResources"), at(100), "1");
        assert_eq!(time(&first), "1970-01-01T00:01:40Z");
        assert_eq!(first["metadata"]["uid"], "u");
        assert_eq!(first["status"]["phase"], "Inqueue");
        let same = stamps.group(&update(true, "NotEnoughResources"), at(200), "2");
        assert_eq!(time(&same), time(&first));
        assert_eq!(same["status"]["conditions"][0]["transitionID"], "1");
        let other = stamps.group(&update(false, "Scheduled"), at(300), "3");
        assert_eq!(time(&other), "1970-01-01T00:05:00Z");
        assert_eq!(other["status"]["conditions"][0]["status"], "False");
        stamps.keep(|_| false);
        assert_eq!(stamps.len(), 0);
    }

    #[test]
    fn a_group_is_newly_admitted_until_that_is_written() {
        let in_phase = |phase| {
            let mut update = update(false, "Scheduled");
            update.status.phase = phase;
            update
        };
        let mut stamps = Stamps::default();
        for (phase, newly) in [
            (GroupPhase::Pending, false),
            (GroupPhase::Inqueue, true),
            (GroupPhase::Inqueue, false),
            (GroupPhase::Running, false),
            (GroupPhase::Inqueue, true),
        ] {
            assert_eq!(stamps.is_newly_admitted(&in_phase(phase)), newly, "{phase:?}");
            stamps.group(&in_phase(phase), Timestamp::UNIX_EPOCH, "1");
        }
    }

    #[test]
    fn the_text_of_an_eviction_says_by_whom_why_and_what_is_lost() {
        let eviction = |beneficiary: Option<&str>, message: &str, lost_core_ms| Eviction {
            uid: "u".into(),
            namespace: "ns".into(),
            name: "p".into(),
            node: "n".into(),
            group: "ns/g".into(),
            action: "reclaim".into(),
            beneficiary: beneficiary.map(Into::into),
            running: true,
            lost_core_ms,
            message: message.into(),
        };
        let long = eviction(Some("ns/urgent"), "queue a takes back its share", 4 * 3_600_000 + 180_000);
        assert_eq!(eviction_text(&long), "reclaim for ns/urgent: queue a takes back its share; 4.1 core-hours lost");
        assert_eq!(eviction_text(&eviction(None, "", i64::MIN)), "reclaim; 0.0 core-hours lost");
        assert!(eviction_text(&eviction(None, "", i64::MAX)).ends_with("core-hours lost"));
    }

    #[test]
    fn an_evicted_pod_keeps_the_conditions_of_others() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"uid": "u", "resourceVersion": "7"},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Mine", "status": "True"}]},
        }))
        .unwrap();
        let patch = evicted(&pod, "preempt", Timestamp::UNIX_EPOCH);
        assert_eq!(patch["metadata"], json!({"uid": "u", "resourceVersion": "7"}));
        let told: Vec<Value> = patch["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| json!([c["type"], c["status"], c["reason"]]))
            .collect();
        let wanted = json!([
            ["Mine", "True", null],
            ["Ready", "False", "Evict"],
            ["DisruptionTarget", "True", "PreemptionByScheduler"]
        ]);
        assert_eq!(json!(told), wanted);
    }

    #[test]
    fn conditions_of_others_survive() {
        let ready = PodCondition { type_: "Ready".into(), status: "False".into(), ..PodCondition::default() };
        let notice = PodNotice {
            uid: "u".into(),
            namespace: "ns".into(),
            name: "p".into(),
            reason: "Unschedulable".into(),
            message: "0/1 nodes".into(),
        };
        let seen = Unbound { version: Some("7".into()), conditions: vec![ready], since: Instant::now() };
        let patch = pod(&notice, &seen, Timestamp::from_second(0).unwrap());
        assert_eq!(patch["metadata"], json!({"uid": "u", "resourceVersion": "7"}));
        let kinds: Vec<&Value> = patch["status"]["conditions"].as_array().unwrap().iter().map(|c| &c["type"]).collect();
        assert_eq!(kinds, ["Ready", "PodScheduled"]);
    }

    #[test]
    fn resources_that_a_queue_no_longer_holds_are_taken_out() {
        let mut names = QueueNames::default();
        let held = |amounts: &[(&str, i64)]| QueueUpdate {
            name: "q".into(),
            allocated: amounts.iter().map(|(name, amount)| ((*name).to_owned(), *amount)).collect(),
        };
        let first = names.queue(&held(&[("cpu", 1500), ("nvidia.com/gpu", 2)]), std::iter::empty());
        assert_eq!(first["status"]["allocated"], json!({"cpu": "1500m", "memory": "0", "nvidia.com/gpu": "2"}));
        let before_a_restart = "example.com/fpga".to_owned();
        let then = names.queue(&held(&[("cpu", 2000)]), [&before_a_restart].into_iter());
        let allocated = json!({"cpu": "2", "memory": "0", "nvidia.com/gpu": null, "example.com/fpga": null});
        assert_eq!(then["status"]["allocated"], allocated);
    }
}
