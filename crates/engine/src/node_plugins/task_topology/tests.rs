//! The annotations' meaning, the order of pods, and where they go.

use super::*;
use crate::engine::tests::{Lab, group, pod};
use crate::facts::{Delta, GroupFacts, PodFacts};
use crate::plan::Plan;

const CONFIG: &str = "actions: allocate
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: predicates
  - name: task-topology
";

/// Two servers and two workers, as in TensorFlow's jobs; created turn and turn about.
fn job(lab: &mut Lab, annotations: &[(&str, &str)]) {
    for (index, role) in ["ps", "worker", "ps", "worker"].into_iter().enumerate() {
        let facts = pod("job", u32::try_from(index).unwrap(), 1_000);
        lab.pod(PodFacts { role: role.to_owned(), ..facts });
    }
    let key = |name: &str| format!("volcano.sh/task-topology-{name}");
    let annotations = annotations.iter().map(|(name, value)| (key(name), (*value).to_owned())).collect();
    lab.apply(Delta::GroupUpsert(Box::new(GroupFacts { annotations, ..group("job", 4) })));
}

/// The pods of each node that the plan binds any to, as `a-0+b-0`, sorted.
fn by_node(plan: &Plan) -> Vec<String> {
    let mut nodes: std::collections::BTreeMap<&str, Vec<&str>> = std::collections::BTreeMap::new();
    for bind in &plan.binds {
        nodes.entry(&bind.node).or_default().push(&bind.name[4..]);
    }
    nodes.values_mut().for_each(|pods| pods.sort_unstable());
    let mut pods: Vec<String> = nodes.into_values().map(|pods| pods.join("+")).collect();
    pods.sort();
    pods
}

#[test]
fn tasks_that_belong_together_share_nodes() {
    for (annotations, expected) in [
        // A server with a worker, and no two servers.
        (vec![("affinity", "ps,worker"), ("anti-affinity", "ps")], vec!["0+1", "2+3"]),
        (vec![("affinity", "ps;worker"), ("anti-affinity", "ps,worker")], vec!["0+2", "1+3"]),
    ] {
        let mut lab = Lab::of(CONFIG, &[2_000, 2_000, 2_000]);
        job(&mut lab, &annotations);
        assert_eq!(by_node(&lab.cycle()), expected, "{annotations:?}");
    }
}

#[test]
fn pods_go_bucket_by_bucket_and_as_the_user_says() {
    let mut lab = Lab::of(CONFIG, &[2_000]);
    job(&mut lab, &[("affinity", "ps,worker"), ("anti-affinity", "ps"), ("task-order", "worker,ps")]);
    let plugin = TaskTopology { weight: 1, buckets: Mutex::default() };
    let mut order = [0, 1, 2, 3];
    order.sort_by(|left, right| plugin.task_order(lab.tables(), lab.task_id("job", *left), lab.task_id("job", *right)));
    assert_eq!(order, [1, 3, 0, 2], "both workers fit one bucket, a server joins them, the other is alone");
}

#[test]
fn what_names_no_task_or_one_twice_is_ignored() {
    for annotation in ["ps,master", "ps,ps", ",", "ps,"] {
        let mut lab = Lab::of(CONFIG, &[2_000]);
        job(&mut lab, &[("affinity", annotation)]);
        let plugin = TaskTopology { weight: 1, buckets: Mutex::default() };
        assert!(!plugin.is_specific(lab.tables(), lab.task_id("job", 0)), "{annotation}");
    }
}
