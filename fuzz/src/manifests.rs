//! Bytes into objects that admission judges: good ones with edits in places that its rules look at.
//!
//! Invariant: equal bytes give equal objects, of bounded depth and size.

use serde_json::{Map, Value, json};

use crate::Bytes;

/// Most edits of one object.
const EDITS_MAX: u8 = 12;
/// Most steps down to the place of an edit.
const DEPTH_MAX: u8 = 9;

/// The kinds that there are rules for: group, resource, namespaced.
pub const KINDS: &[(&str, &str, bool)] = &[
    ("batch.volcano.sh", "jobs", true),
    ("batch.volcano.sh", "cronjobs", true),
    ("flow.volcano.sh", "jobflows", true),
    ("flow.volcano.sh", "jobtemplates", true),
    ("scheduling.volcano.sh", "queues", false),
    ("scheduling.volcano.sh", "podgroups", true),
    ("topology.volcano.sh", "hypernodes", false),
    ("", "pods", true),
];

/// Member names that rules look at, beside those that are there already.
const KEYS: &[&str] = &[
    "name",
    "spec",
    "metadata",
    "annotations",
    "labels",
    "queue",
    "parent",
    "tasks",
    "replicas",
    "minAvailable",
    "minSuccess",
    "maxRetry",
    "policies",
    "event",
    "events",
    "action",
    "exitCode",
    "timeout",
    "plugins",
    "env",
    "svc",
    "ssh",
    "mpi",
    "ray",
    "pytorch",
    "tensorflow",
    "hcclrank",
    "volumes",
    "mountPath",
    "volumeClaim",
    "volumeClaimName",
    "dependsOn",
    "iteration",
    "partitionPolicy",
    "totalPartitions",
    "partitionSize",
    "minPartitions",
    "networkTopology",
    "highestTierAllowed",
    "highestTierName",
    "mode",
    "topologyPolicy",
    "runningEstimate",
    "ttlSecondsAfterFinished",
    "priorityClassName",
    "schedulerName",
    "template",
    "containers",
    "initContainers",
    "resources",
    "requests",
    "limits",
    "cpu",
    "memory",
    "hostNetwork",
    "dnsPolicy",
    "hostname",
    "weight",
    "capability",
    "deserved",
    "guarantee",
    "resource",
    "reclaimable",
    "status",
    "state",
    "allocated",
    "pods",
    "schedule",
    "timeZone",
    "jobTemplate",
    "concurrencyPolicy",
    "startingDeadlineSeconds",
    "suspend",
    "flows",
    "targets",
    "probe",
    "jobOnFailed",
    "members",
    "selector",
    "type",
    "exactMatch",
    "regexMatch",
    "labelMatch",
    "pattern",
    "matchLabels",
    "matchExpressions",
    "key",
    "operator",
    "values",
    "tier",
    "tierName",
    "schedulingGates",
    "nodeSelector",
    "tolerations",
    "affinity",
    "minMember",
    "subGroupPolicy",
    "pumice.sh/user",
    "volcano.sh/hierarchy",
    "volcano.sh/hierarchy-weights",
    "volcano.sh/jdb-min-available",
    "volcano.sh/jdb-max-unavailable",
    "volcano.sh/resource-group",
    "scheduling.volcano.sh/queue-allocation-gate",
    "scheduling.volcano.sh/queue-name",
];

/// Words with a meaning somewhere.
const WORDS: &[&str] = &[
    "",
    "default",
    "root",
    "team",
    "a",
    "b",
    "volcano",
    "true",
    "*",
    "Unknown",
    "PodFailed",
    "PodEvicted",
    "TaskCompleted",
    "JobUpdated",
    "RestartJob",
    "RestartTask",
    "RestartPod",
    "CompleteJob",
    "ResumeJob",
    "--master=a",
    "--master",
    "--port=70000",
    "-1",
    "0",
    "1",
    "0%",
    "50%",
    "100%",
    "1.5",
    "4",
    "500m",
    "1e30",
    "-3",
    "9Ei",
    "10m",
    "1h",
    "-1h",
    "9999999h",
    "root/a/b",
    "1/2/3",
    "1/-2",
    "*/5 * * * *",
    "@every 1s",
    "@hourly",
    "0 0 30 2 *",
    "CRON_TZ=UTC * * * * *",
    "Europe/Berlin",
    "Local",
    "UTC",
    "../../etc/passwd",
    "^n[0-9]+$",
    "((((a{99}){99}){99})",
    "(a+)+$",
    "Node",
    "HyperNode",
    "In",
    "Exists",
    "Near",
    "gpu",
    "restricted",
    "single-numa-node",
    "ClusterFirstWithHostNet",
    "/data",
    "Open",
    "Closed",
    "\u{0}",
    "ä",
];

/// A good object of the kind at this place of [`KINDS`].
fn good(kind: usize) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}});
    let pod = json!({"spec": {"containers": [container], "restartPolicy": "OnFailure"}});
    let job = json!({
        "queue": "default", "minAvailable": 2, "maxRetry": 3, "plugins": {"env": [], "svc": [], "ssh": []},
        "policies": [{"event": "PodEvicted", "action": "RestartJob"}],
        "volumes": [{"mountPath": "/data", "volumeClaimName": "claim"}],
        "tasks": [
            {"name": "a", "replicas": 1, "template": pod, "policies": [{"exitCode": 3, "action": "RestartTask"}]},
            {"name": "b", "replicas": 4, "template": pod, "dependsOn": {"name": ["a"]},
                "partitionPolicy": {"totalPartitions": 2, "partitionSize": 2}},
        ],
    });
    let spec = match KINDS[kind].1 {
        "jobs" | "jobtemplates" => job,
        "cronjobs" => json!({"schedule": "*/5 * * * *", "timeZone": "UTC", "jobTemplate": {"spec": job}}),
        "jobflows" => json!({"flows": [{"name": "a"}, {"name": "b", "dependsOn": {"targets": ["a"]}}]}),
        "queues" => json!({"parent": "team", "weight": 1, "capability": {"cpu": "4"}, "deserved": {"cpu": "2"},
            "guarantee": {"resource": {"cpu": "1"}}}),
        "podgroups" => {
            json!({"queue": "default", "minMember": 2, "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
            "subGroupPolicy": [{"name": "s"}]})
        }
        "hypernodes" => json!({"tier": 1, "members": [
            {"type": "Node", "selector": {"exactMatch": {"name": "n1"}}},
            {"type": "Node", "selector": {"regexMatch": {"pattern": "^n[0-9]+$"}}},
            {"type": "Node", "selector": {"labelMatch": {"matchLabels": {"a": "b"}}}},
        ]}),
        _ => json!({"schedulerName": "volcano", "containers": [container], "nodeSelector": {"a": "b"}}),
    };
    json!({"metadata": {"name": "x", "namespace": "n", "uid": "u", "annotations": {"volcano.sh/jdb-min-available": "1"}},
        "spec": spec})
}

/// Queues that others are judged beside.
pub fn queues() -> Vec<Value> {
    vec![
        json!({"metadata": {"name": "root"}, "status": {"state": "Open"}}),
        json!({"metadata": {"name": "default"}, "status": {"state": "Open"}}),
        json!({"metadata": {"name": "team"}, "spec": {"capability": {"cpu": "8"}, "guarantee": {"resource": {"cpu": "2"}}},
            "status": {"state": "Open"}}),
        json!({"metadata": {"name": "b"}, "spec": {"parent": "team"}, "status": {"allocated": {"pods": "3"}}}),
    ]
}

/// An object of a kind with edits.
pub fn object(bytes: &mut Bytes<'_>, kind: usize) -> Value {
    let mut object = good(kind);
    for _ in 0..bytes.below(EDITS_MAX) {
        edit(&mut object, bytes);
    }
    object
}

/// Changes one place.
fn edit(object: &mut Value, bytes: &mut Bytes<'_>) {
    let mut place = object;
    for _ in 0..bytes.below(DEPTH_MAX).saturating_add(1) {
        let is_empty = place.as_array().is_none_or(Vec::is_empty);
        place = match place {
            Value::Object(members) => {
                let key = key(members, bytes);
                members.entry(key).or_insert(Value::Null)
            }
            leaf if is_empty => {
                *leaf = value(bytes);
                return;
            }
            list => {
                let Some(items) = list.as_array_mut() else { return };
                let index = usize::from(bytes.byte()) % items.len();
                if bytes.one_in(8) && items.len() < 40 {
                    items.push(items[index].clone());
                }
                if bytes.one_in(16) {
                    items.remove(index);
                    return;
                }
                &mut items[index]
            }
        };
    }
    *place = value(bytes);
}

/// Mostly one that is there.
fn key(members: &Map<String, Value>, bytes: &mut Bytes<'_>) -> String {
    if members.is_empty() || bytes.one_in(4) {
        return bytes.pick(KEYS).to_owned();
    }
    let index = usize::from(bytes.byte()) % members.len();
    members.keys().nth(index).cloned().unwrap_or_default()
}

fn value(bytes: &mut Bytes<'_>) -> Value {
    match bytes.below(12) {
        0 => Value::Null,
        1 => bytes.one_in(2).into(),
        2 | 3 => i64::from(bytes.below(8)).into(),
        4 => bytes.amount().into(),
        5 => [i64::from(i32::MAX), i64::from(i32::MIN), 100_000, -1][usize::from(bytes.below(4))].into(),
        6 => json!({ bytes.pick(KEYS): bytes.pick(WORDS) }),
        7 => json!([bytes.pick(WORDS), bytes.pick(WORDS)]),
        8 => "x".repeat(usize::from(bytes.byte())).into(),
        9 => bytes.text().into(),
        _ => bytes.pick(WORDS).into(),
    }
}
