//! Objects as users write them, and the facts that follow.

use k8s_openapi::api::core::v1::{Node, Pod, ResourceQuota};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use pumice_api::batch::Job;
use pumice_api::scheduling::{PodGroup, Queue};
use pumice_api::shard::NodeShard;
use pumice_api::topology::HyperNode;
use pumice_engine::{Delta, GroupPhase, MemberKind, PodPhase, QueueState, TaintEffect};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn amounts(list: &[(&str, i64)]) -> Resources {
    list.iter().map(|(name, amount)| ((*name).to_owned(), *amount)).collect()
}

fn requests_of(spec: Value) -> Resources {
    let pod: Pod = read(json!({"metadata": {"name": "p"}, "spec": spec}));
    pod_facts(&pod, &[]).template.requests.clone()
}

#[test]
fn effective_requests_follow_kubernetes() {
    let asks =
        |cpu: &str, memory: &str| json!({"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}});
    let mut sidecar = asks("100m", "10Mi");
    sidecar["restartPolicy"] = json!("Always");
    let mi = 1 << 20;
    for (name, spec, expected) in [
        ("nothing", json!({"containers": [{"name": "c"}]}), amounts(&[])),
        (
            "containers add up",
            json!({"containers": [asks("500m", "1Mi"), asks("1", "2Mi")]}),
            amounts(&[("cpu", 1500), ("memory", 3 * mi)]),
        ),
        (
            "a large init container counts alone",
            json!({"containers": [asks("500m", "5Mi")], "initContainers": [asks("2", "1Mi")]}),
            amounts(&[("cpu", 2000), ("memory", 5 * mi)]),
        ),
        (
            "a sidecar before it counts with it",
            json!({"containers": [asks("500m", "5Mi")], "initContainers": [sidecar.clone(), asks("2", "1Mi")]}),
            amounts(&[("cpu", 2100), ("memory", 15 * mi)]),
        ),
        (
            "a sidecar after it does not",
            json!({"containers": [asks("500m", "5Mi")], "initContainers": [asks("2", "1Mi"), sidecar]}),
            amounts(&[("cpu", 2000), ("memory", 15 * mi)]),
        ),
        (
            "overhead comes on top",
            json!({"containers": [asks("1", "1Mi")], "overhead": {"cpu": "250m"}}),
            amounts(&[("cpu", 1250), ("memory", mi)]),
        ),
        (
            "pod-level resources replace",
            json!({"containers": [asks("1", "1Mi")], "resources": {"requests": {"cpu": "4"}}}),
            amounts(&[("cpu", 4000), ("memory", mi)]),
        ),
        (
            "a limit alone is a request",
            json!({"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 2, "cpu": "1"}, "requests": {"cpu": "500m"}}}]}),
            amounts(&[("cpu", 500), ("nvidia.com/gpu", 2)]),
        ),
        (
            "an unreadable amount never fits",
            json!({"containers": [{"name": "c", "resources": {"requests": {"memory": "lots"}}}]}),
            amounts(&[("memory", i64::MAX)]),
        ),
    ] {
        assert_eq!(requests_of(spec), expected, "{name}");
    }
}

#[test]
fn pods_carry_what_scheduling_reads() {
    let pod: Pod = read(json!({
        "metadata": {
            "name": "j-worker-1", "namespace": "ns", "uid": "u", "creationTimestamp": "1970-01-01T00:00:02Z",
            "annotations": {"scheduling.k8s.io/group-name": "j-1", "volcano.sh/task-spec": "worker", "volcano.sh/task-priority": "7"},
        },
        "spec": {
            "schedulerName": "volcano", "priority": 3, "nodeSelector": {"disk": "ssd"},
            "containers": [{"name": "c", "ports": [{"containerPort": 80}, {"containerPort": 81, "hostPort": 8081, "hostIP": "10.0.0.1"}]}],
            "schedulingGates": [{"name": "hold"}],
            "tolerations": [{"operator": "Exists", "effect": "NoSchedule"}],
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}},
                "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "podAffinityTerm": {"topologyKey": "zone"}}]},
            },
        },
        "status": {"phase": "Pending"},
    }));
    let facts = pod_facts(&pod, &["volcano".to_owned()]);
    assert!(facts.mine && facts.gated && !facts.terminating);
    assert_eq!((facts.group.as_deref(), facts.role.as_str(), facts.node.as_deref()), (Some("j-1"), "worker", None));
    assert_eq!((facts.phase, facts.created), (PodPhase::Pending, TimeMs(2_000)));
    assert_eq!(facts.template.priority, 7, "the annotation wins");
    assert_eq!(facts.template.host_ports.len(), 1);
    assert_eq!(facts.template.host_ports[0].port, 8081);
    assert_eq!(facts.template.required_terms.as_ref().unwrap()[0].expressions[0].key, "zone");
    assert!(
        facts.template.tolerations[0].exists && facts.template.tolerations[0].effect == Some(TaintEffect::NoSchedule)
    );
    assert_eq!(facts.template.unsupported, [""; 0]);
    assert_eq!((facts.template.inter_pod.spread.len(), facts.template.inter_pod.preferred.len()), (1, 1));
    assert!(!pod_facts(&pod, &["pumice".to_owned()]).mine);
}

#[test]
fn a_pod_without_a_scheduler_name_is_the_default_schedulers() {
    let pod: Pod =
        read(json!({"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [], "hostNetwork": true}}));
    assert!(pod_facts(&pod, &["default-scheduler".to_owned()]).mine);
    assert!(!pod_facts(&pod, &["volcano".to_owned()]).mine);
    assert_eq!(pod_facts(&pod, &[]).template.priority, 1);
}

#[test]
fn nodes_offer_what_is_allocatable() {
    let node: Node = read(json!({
        "metadata": {"name": "n", "labels": {"a": "b"}},
        "spec": {"unschedulable": true, "taints": [{"key": "gpu", "effect": "NoSchedule"}, {"key": "x", "effect": "Strange"}]},
        "status": {"capacity": {"cpu": "9"}, "allocatable": {"cpu": "3500m", "memory": "2Gi", "pods": "110"}},
    }));
    let facts = node_facts(&node);
    assert_eq!(facts.allocatable, amounts(&[("cpu", 3500), ("memory", 2 << 30), ("pods", 110)]));
    assert!(facts.unschedulable);
    assert_eq!(facts.taints.len(), 1);
}

#[test]
fn groups_queues_and_jobs() {
    let group: PodGroup = read(json!({
        "metadata": {"name": "j-1", "namespace": "ns", "uid": "g",
            "ownerReferences": [{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j", "uid": "1", "controller": true}]},
        "spec": {"minMember": 3, "minTaskMember": {"worker": 2}, "queue": "q", "minResources": {"cpu": "1500m", "count/pods": "3"}},
        "status": {"phase": "Inqueue", "conditions": [{"type": "Unschedulable", "status": "True", "reason": "NotEnoughResources"}]},
    }));
    let facts = group_facts(&group);
    assert_eq!((facts.min_member, facts.queue.as_str(), facts.status.phase), (3, "q", GroupPhase::Inqueue));
    assert_eq!(facts.min_resources, Some(amounts(&[("cpu", 1500)])));
    assert_eq!(facts.owner.unwrap().name, "j");
    assert!(facts.status.conditions[0].status);

    let queue: Queue = read(
        json!({"metadata": {"name": "q"}, "spec": {"weight": 2, "capability": {"cpu": "4"}}, "status": {"state": "Closing"}}),
    );
    let facts = queue_facts(&queue);
    assert_eq!((facts.state, facts.capability), (QueueState::Closing, amounts(&[("cpu", 4000)])));

    for (phase, over) in
        [("", false), ("Running", false), ("Restarting", false), ("Completed", true), ("Aborted", true)]
    {
        let job: Job = read(json!({
            "metadata": {"name": "j", "namespace": "ns", "uid": "1"},
            "spec": {"tasks": [{"name": "worker", "replicas": 3, "template": {"spec": {"containers": [
                {"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}}]},
            "status": {"state": {"phase": phase}},
        }));
        let Delta::ShapeUpsert { owner_uid, tasks, ended } = job_shape(&job) else { panic!("a job is a shape") };
        assert_eq!((owner_uid.as_str(), tasks[0].count, ended), ("1", 3, over), "{phase}");
        assert_eq!(tasks[0].template.requests, amounts(&[("cpu", 1000)]));
    }
    let job: Job = read(json!({"metadata": {"name": "j"}, "spec": {"tasks": [{"template": {}}, {"template": {}}]}}));
    let Delta::ShapeUpsert { tasks, .. } = job_shape(&job) else { panic!("a job is a shape") };
    assert_eq!(tasks.iter().map(|task| task.role.as_str()).collect::<Vec<_>>(), ["default0", "default1"]);
}

#[test]
fn amounts_go_back_to_the_wire() {
    for (name, amount, text) in [("cpu", 1500, "1500m"), ("cpu", 2000, "2"), ("memory", 1024, "1024"), ("pods", 3, "3")]
    {
        assert_eq!(wire_amount(name, amount), text);
    }
}

#[test]
fn pods_carry_what_preemption_reads() {
    let pod: Pod = read(json!({
        "metadata": {
            "name": "p",
            "labels": {"volcano.sh/preemptable": "yes", "app": "x"},
            "annotations": {
                "volcano.sh/cooldown-time": "10m",
                "volcano.sh/job-name": "j",
                "scheduling.k8s.io/group-name": "g",
                "example.org/x": "y",
            },
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u"}],
        },
        "spec": {"containers": [], "preemptionPolicy": "Never", "priorityClassName": "system-node-critical"},
        "status": {
            "startTime": "1970-01-01T00:00:02Z",
            "nominatedNodeName": "n",
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:00:09Z"},
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": "1970-01-01T00:00:01Z"},
            ],
        },
    }));
    let facts = pod_facts(&pod, &[]);
    assert_eq!(facts.preemptable, Some(false), "what can't be read is false");
    assert_eq!(facts.annotations.keys().collect::<Vec<_>>(), ["volcano.sh/cooldown-time"]);
    assert_eq!(facts.labels.len(), 2);
    assert!(facts.never_preempts && facts.of_daemon_set);
    assert_eq!((facts.started, facts.scheduled), (Some(TimeMs(2_000)), Some(TimeMs(1_000))));
    assert_eq!(facts.nominated.as_deref(), Some("n"));
    assert_eq!(facts.pod_priority_class, "system-node-critical");
}

/// Without it a part of a gang would be bound before anybody knows how large it is.
#[test]
fn a_pod_of_a_controller_waits_for_its_group() {
    let group = |metadata: Value, spec: Value| {
        let pod: Pod = read(json!({"metadata": metadata, "spec": spec}));
        pod_facts(&pod, &[]).group
    };
    let spec = json!({"containers": []});
    let owners = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "7", "controller": true}]);
    assert_eq!(group(json!({"uid": "1"}), spec.clone()), None, "alone");
    assert_eq!(group(json!({"uid": "1", "ownerReferences": owners}), spec).as_deref(), Some("podgroup-7"));
    let native = json!({"containers": [], "schedulingGroup": {"podGroupName": "gang"}});
    assert_eq!(group(json!({"uid": "1", "ownerReferences": owners}), native).as_deref(), Some("gang"));
}

#[test]
fn groups_and_queues_carry_their_place_in_network_and_tree() {
    let group: PodGroup = read(json!({
        "metadata": {"name": "g", "annotations": {"sla-waiting-time": "1h", "other": "x"}},
        "spec": {
            "networkTopology": {"mode": "soft", "highestTierName": "rack"},
            "subGroupPolicy": [{
                "name": "s", "subGroupSize": 2, "minSubGroups": 1, "matchLabelKeys": ["k"],
                "labelSelector": {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "Exists"}]},
                "networkTopology": {"highestTierAllowed": 1},
            }],
        },
    }));
    let facts = group_facts(&group);
    assert_eq!(facts.annotations.len(), 1);
    assert_eq!(facts.preemptable, None);
    let topology = facts.topology.unwrap();
    assert!(!topology.hard);
    assert_eq!((topology.highest_tier, topology.highest_tier_name.as_deref()), (None, Some("rack")));
    let sub_group = &facts.sub_groups[0];
    assert_eq!((sub_group.size, sub_group.min_sub_groups), (Some(2), Some(1)));
    assert_eq!(sub_group.selector[0].values, ["b"]);
    assert_eq!(sub_group.selector[1].operator, Operator::Exists);
    assert!(sub_group.topology.as_ref().is_some_and(|topology| topology.hard && topology.highest_tier == Some(1)));

    let queue: Queue = read(json!({
        "metadata": {"name": "q"},
        "spec": {
            "parent": "p", "reclaimable": false, "deserved": {"cpu": "2"}, "guarantee": {"resource": {"memory": "1Ki"}},
            "affinity": {"nodeGroupAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": ["slow"]}},
        },
    }));
    let facts = queue_facts(&queue);
    assert_eq!((facts.parent.as_deref(), facts.reclaimable), (Some("p"), Some(false)));
    assert_eq!((facts.deserved["cpu"], facts.guarantee["memory"]), (2000, 1024));
    assert_eq!(facts.affinity.unwrap().anti_required, ["slow"]);
}

#[test]
fn nodes_carry_capacity_images_and_volcanos_annotations() {
    let node: Node = read(json!({
        "metadata": {"name": "n", "annotations": {
            "volcano.sh/oversubscription-cpu": "100", "volcano.sh/node-vgpu-handshake": "now", "other": "x",
        }},
        "status": {
            "allocatable": {"cpu": "1"}, "capacity": {"cpu": "2"},
            "images": [{"names": ["a", "b"], "sizeBytes": 7}],
        },
    }));
    let facts = node_facts(&node);
    assert_eq!((facts.allocatable["cpu"], facts.capacity["cpu"]), (1000, 2000));
    assert_eq!((facts.images["a"], facts.images["b"]), (7, 7));
    assert_eq!(facts.annotations.len(), 1);
}

#[test]
fn smaller_objects_are_read() {
    let node: HyperNode = read(json!({
        "metadata": {"name": "s0"},
        "spec": {"tier": 1, "tierName": "rack", "members": [
            {"type": "Node", "selector": {"exactMatch": {"name": "n0"}}},
            {"type": "HyperNode", "selector": {"regexMatch": {"pattern": "^s"}}},
            {"type": "Node", "selector": {"labelMatch": {"matchLabels": {"rack": "a"}}}},
            {"type": "Node"},
        ]},
    }));
    let facts = hyper_node_facts(&node);
    assert_eq!((facts.tier, facts.tier_name.as_str(), facts.members.len()), (1, "rack", 3));
    assert_eq!(facts.members[0].which, MemberKind::Exact("n0".into()));
    assert!(facts.members[1].hyper_node && facts.members[1].which == MemberKind::Pattern("^s".into()));

    let shard: NodeShard = read(json!({
        "metadata": {"name": "volcano"}, "spec": {"nodesDesired": ["a"]}, "status": {"nodesInUse": ["b"]},
    }));
    let facts = shard_facts(&shard);
    assert_eq!((facts.desired, facts.in_use), (vec!["a".into()], vec!["b".into()]));

    let budget: PodDisruptionBudget = read(json!({
        "metadata": {"name": "b", "namespace": "ns"},
        "spec": {"selector": {"matchLabels": {"app": "x"}}},
        "status": {"disruptionsAllowed": 2, "currentHealthy": 3, "desiredHealthy": 1, "expectedPods": 3},
    }));
    let facts = budget_facts(&budget);
    assert_eq!((facts.allowed, facts.selector.map(|all| all.len())), (2, Some(1)));
    assert_eq!(budget_facts(&PodDisruptionBudget::default()).selector, None, "selects nothing");

    let quota: ResourceQuota = read(json!({
        "metadata": {"name": "q", "namespace": "ns"},
        "spec": {"hard": {"requests.cpu": "2", "pods": "10", "memory": "1Ki"}},
        "status": {"used": {"requests.cpu": "500m"}},
    }));
    let facts = quota_facts(&quota);
    assert_eq!((facts.hard["requests.cpu"], facts.hard["pods"], facts.hard["memory"]), (2000, 10, 1024));
    assert_eq!(facts.used["requests.cpu"], 500);

    for (text, wanted) in [("3", 3), ("0", 1), ("-5", 1), ("many", 1), ("99999999999", 1_000_000)] {
        let object = read(json!({"metadata": {"name": "ns", "annotations": {"pumice.sh/weight": text}}}));
        assert!(matches!(namespace(&object), Delta::NamespaceUpsert { weight, .. } if weight == wanted), "{text}");
    }
    let object = read(json!({"metadata": {"name": "ns", "annotations": {"scheduling.volcano.sh/queue-name": "q"}}}));
    assert!(matches!(namespace(&object), Delta::NamespaceUpsert { queue: Some(queue), .. } if queue == "q"));
}
