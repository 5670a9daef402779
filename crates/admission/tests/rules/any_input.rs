//! Whatever comes, the rules answer: no panic, and filling in twice is filling in once.

use proptest::prelude::*;
use pumice_admission::{Findings, Rules, hyper_node, job, pod, pod_group, queue, user};
use serde_json::{Map, Value};

use super::cluster::Cluster;

/// Member names the rules look at, so that random objects reach them.
const NAMES: &[&str] = &[
    "metadata",
    "annotations",
    "name",
    "spec",
    "tasks",
    "replicas",
    "minAvailable",
    "maxRetry",
    "template",
    "hostNetwork",
    "dnsPolicy",
    "plugins",
    "mpi",
    "queue",
    "parent",
    "weight",
    "reclaimable",
    "partitionPolicy",
    "minPartitions",
    "partitionSize",
    "totalPartitions",
    "dependsOn",
    "volumes",
    "mountPath",
    "capability",
    "deserved",
    "guarantee",
    "resource",
    "cpu",
    "containers",
    "policies",
    "exitCode",
    "scaleUp",
    "minSuccess",
    "pumice.sh/on-oom",
    "pumice.sh/min-success",
    "maxParallel",
    "pumice.sh/max-parallel",
    "retries",
    "pumice.sh/retries",
    "pumice.sh/after",
    "volcano.sh/hierarchy",
    "volcano.sh/hierarchy-weights",
    "pumice.sh/user",
    "schedulerName",
    "schedulingGates",
    "volcano.sh/jdb-min-available",
    "scheduling.volcano.sh/queue-allocation-gate",
    "members",
    "selector",
    "regexMatch",
    "exactMatch",
    "labelMatch",
    "pattern",
];

pub fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-2_i64..5).prop_map(Value::from),
        "[a-z/0-9.-]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 6, |inner| {
        let name = prop::sample::select(NAMES).prop_map(str::to_owned);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name, inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn object_of(spec: Value) -> Value {
    serde_json::json!({ "metadata": { "name": "x" }, "spec": spec })
}

proptest! {
    #[test]
    fn filling_in_is_total_and_idempotent(value in any_json(), spec in any_json()) {
        for given in [value, object_of(spec)] {
            let steps: [fn(&mut Value); 5] = [
                |value| {
                    pod::mutate(value, "n", &Rules::default());
                },
                |value| job::mutate(value, &Rules::default()),
                |value| queue::mutate(value),
                |value| pod_group::mutate(value, "n", &Cluster::default()),
                |value| user::stamp(value, None, "ann", &Rules::default(), &mut Findings::default()),
            ];
            for step in steps {
                let mut once = given.clone();
                step(&mut once);
                let mut twice = once.clone();
                step(&mut twice);
                prop_assert_eq!(&once, &twice);
            }
        }
    }

    #[test]
    fn judging_is_total(spec in any_json(), old in any_json()) {
        let (new, old) = (object_of(spec), object_of(old));
        let cluster = Cluster::default();
        let mut findings = Findings::default();
        if let Ok(job) = serde_json::from_value(new.clone()) {
            job::validate_create(&job, &cluster, &Rules::default(), &mut findings);
            if let Ok(old) = serde_json::from_value(old.clone()) {
                job::validate_update(&job, &old, &cluster, &mut findings);
            }
        }
        if let Ok(new) = serde_json::from_value(new.clone()) {
            queue::validate(&new, serde_json::from_value(old).ok().as_ref(), &cluster, &Rules::default(), &mut findings);
        }
        if let Ok(hyper_node) = serde_json::from_value(new.clone()) {
            hyper_node::validate(&hyper_node, &mut findings);
        }
        pod::validate(&new, &Rules::default(), &mut findings);
        if let Ok(group) = serde_json::from_value(new) {
            pod_group::validate(&group, &cluster, &mut findings);
        }
    }
}
