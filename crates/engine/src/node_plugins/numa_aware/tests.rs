//! What the kubelet would do with a pod's cpus, and where pods go for it.

use super::*;
use crate::facts::{ContainerFacts, CpuPlace, Delta, PodFacts};
use crate::plan::Plan;
use crate::plugin::tests::small_cluster::{Scene, amounts, binds, texts};

/// Two sockets with a NUMA node each, of two cores with two threads: cpus 0-3 and 4-7.
fn facts(name: &str, policy: &str, free: &[u32]) -> NumaFacts {
    let place = |cpu: u32| (cpu, CpuPlace { numa: cpu / 4, socket: cpu / 4, core: cpu / 2 });
    NumaFacts {
        name: name.into(),
        cpu_manager: "static".to_owned(),
        topology_manager: policy.to_owned(),
        free_cpus: free.to_vec(),
        cpus: (0..8).map(place).collect(),
        shown_pods: Vec::new(),
    }
}

const ALL: &[u32] = &[0, 1, 2, 3, 4, 5, 6, 7];

#[test]
fn cpus_are_packed_by_sockets_cores_and_threads() {
    for (name, free, near, wanted, taken) in [
        ("a socket", ALL, &[0, 1][..], 4, Some(&[0, 1, 2, 3][..])),
        ("a core", ALL, &[0, 1], 2, Some(&[0, 1])),
        ("a thread", ALL, &[0, 1], 1, Some(&[0])),
        ("a socket and a thread", ALL, &[0, 1], 5, Some(&[0, 1, 2, 3, 4])),
        ("on the NUMA node of the hint", ALL, &[1], 2, Some(&[4, 5])),
        ("beyond the hint where it is too small", ALL, &[1], 6, Some(&[0, 1, 4, 5, 6, 7])),
        ("where least is free", &[0, 2, 3, 4, 5, 6, 7], &[0, 1], 1, Some(&[0])),
        ("a whole core, not two halves", &[0, 2, 3, 4, 6], &[0, 1], 2, Some(&[2, 3])),
        ("too few", &[0, 1], &[0, 1], 3, None),
        ("nothing", &[], &[0, 1], 0, Some(&[])),
    ] {
        let free: Cpus = free.iter().copied().collect();
        let found = assign::take(&facts("n", "none", &[]), &free, &near.iter().copied().collect(), wanted);
        assert_eq!(found, taken.map(|taken| taken.iter().copied().collect()), "{name}");
    }
}

#[test]
fn policies_admit_as_the_kubelet() {
    use Policy::{BestEffort, Restricted, SingleNumaNode};
    let both = Some(&[0, 1][..]);
    for (name, policy, free, wanted, near) in [
        ("one node does", SingleNumaNode, ALL, 4, Some(&[0][..])),
        ("the lower one that does", Restricted, &[3, 4, 5, 6], 2, Some(&[1])),
        ("one node would do were it free", Restricted, &[0, 1, 4, 5], 3, None),
        ("and is not insisted on", BestEffort, &[0, 1, 4, 5], 3, both),
        ("two are needed", Restricted, ALL, 6, both),
        ("two are too many", SingleNumaNode, ALL, 6, None),
        ("nothing wanted", SingleNumaNode, &[], 0, both),
        ("nowhere enough", BestEffort, &[0], 2, both),
    ] {
        let free: Cpus = free.iter().copied().collect();
        let found = policy.admit(&facts("n", "", &[]), &free, wanted);
        assert_eq!(found, near.map(|near| near.iter().copied().collect()), "{name}");
    }
    let many = NumaFacts {
        cpus: (0..9).map(|cpu| (cpu, CpuPlace { numa: cpu, socket: 0, core: cpu })).collect(),
        ..NumaFacts::default()
    };
    assert_eq!(Restricted.admit(&many, &(0..9).collect(), 1), None, "more NUMA nodes than the kubelet takes");
}

/// A Guaranteed pod with one container.
fn guaranteed(cpu_milli: i64, policy: &'static str) -> impl Fn(&mut PodFacts) {
    move |pod| {
        pod.template.guaranteed = true;
        pod.template.containers =
            vec![ContainerFacts { requests: amounts(&[("cpu", cpu_milli)]), ..ContainerFacts::default() }];
        pod.template.annotations = texts(&[(POLICY, policy)]);
    }
}

fn scene(nodes: &[(&str, &str, &[u32])]) -> Scene {
    nodes.iter().fold(Scene::default(), |scene, (name, policy, free)| {
        let mut scene = scene.node(name, &[("cpu", 8_000)], |_| {});
        scene.0.push(Delta::NumaUpsert(facts(name, policy, free)));
        scene
    })
}

fn decision(plan: &Plan) -> Option<&str> {
    plan.binds.first().and_then(|bind| bind.annotations.get(DECISION)).map(String::as_str)
}

#[test]
fn pods_go_where_their_policy_is_met() {
    let on_one = Some(r#"{"numa":{"0":{"cpu":"4"}}}"#);
    let on_both = Some(r#"{"numa":{"0":{"cpu":"2"},"1":{"cpu":"2"}}}"#);
    for (name, policy, node_policy, free, cpu, bound, told) in [
        ("one NUMA node", "single-numa-node", "single-numa-node", ALL, 4_000, true, on_one),
        ("another policy", "single-numa-node", "restricted", ALL, 4_000, false, None),
        ("too scattered", "restricted", "restricted", &[0, 1, 4, 5], 4_000, false, None),
        ("scattered at best", "best-effort", "best-effort", &[0, 1, 4, 5], 4_000, true, on_both),
        ("no free cpus", "best-effort", "best-effort", &[], 4_000, false, None),
        ("parts of cpus need none", "restricted", "restricted", &[0], 1_500, true, None),
        ("without a policy, checked", "", "restricted", &[0, 1, 4, 5], 4_000, false, None),
        ("without a policy, not told", "", "restricted", ALL, 4_000, true, None),
        ("without a policy, not checked", "none", "none", &[], 4_000, true, None),
    ] {
        let scene = scene(&[("n1", node_policy, free)]).pod("p", &[("cpu", cpu)], guaranteed(cpu, policy));
        let (_, plan) = scene.cycle("numa-aware", "{}");
        assert_eq!(plan.binds.len(), usize::from(bound), "{name}");
        assert_eq!(decision(&plan), told, "{name}");
    }
}

#[test]
fn only_guaranteed_pods_are_looked_at() {
    let scene = scene(&[("n1", "restricted", &[])]).pod("p", &[("cpu", 4_000)], |pod| {
        guaranteed(4_000, "single-numa-node")(pod);
        pod.template.guaranteed = false;
    });
    assert_eq!(scene.binds("numa-aware", "{}").len(), 1);
}

#[test]
fn a_node_without_static_cpus_meets_no_policy() {
    let mut scene = Scene::default().node("bare", &[("cpu", 8_000)], |_| {}).node("shared", &[("cpu", 8_000)], |_| {});
    let shared = NumaFacts { cpu_manager: "none".to_owned(), ..facts("shared", "restricted", ALL) };
    scene.0.push(Delta::NumaUpsert(shared));
    let asking = scene.clone().pod("p", &[("cpu", 2_000)], guaranteed(2_000, "restricted"));
    assert_eq!(asking.binds("numa-aware", "{}").len(), 0);
    let plain = scene.pod("p", &[("cpu", 2_000)], guaranteed(2_000, ""));
    assert_eq!(plain.binds("numa-aware", "{}").len(), 1);
}

#[test]
fn fewer_numa_nodes_are_better() {
    let nodes = scene(&[("n1", "best-effort", &[0, 1, 4, 5]), ("n2", "best-effort", ALL)]);
    let scene = nodes.pod("p", &[("cpu", 4_000)], guaranteed(4_000, "best-effort"));
    assert_eq!(scene.binds("numa-aware", "{}")["p"], "n2");
    assert_eq!(scene.binds("numa-aware", "{weight: -1}")["p"], "n1");
}

#[test]
fn cpus_are_promised_once_until_the_topology_shows_the_pod() {
    let pods = ["p1", "p2", "p3"];
    let scene = pods.iter().fold(scene(&[("n1", "single-numa-node", ALL)]), |scene, pod| {
        scene.pod(pod, &[("cpu", 2_000)], guaranteed(4_000, "single-numa-node"))
    });
    let (mut world, plan) = scene.cycle("numa-aware", "{}");
    assert_eq!(binds(&plan).len(), 2);
    assert_eq!(world.cycle(TimeMs(2_000_000)).binds.len(), 0);
    // The exporter shows the first pod, whose cpus are no longer free: they are not taken off twice.
    let shown = plan.binds[0].uid.clone();
    world.apply(&Delta::NumaUpsert(NumaFacts {
        shown_pods: vec![shown],
        ..facts("n1", "single-numa-node", &[4, 5, 6, 7])
    }));
    assert_eq!(world.cycle(TimeMs(3_000_000)).binds.len(), 0);
    world.apply(&Delta::TaskRemove(plan.binds[1].uid.clone()));
    assert_eq!(world.cycle(TimeMs(4_000_000)).binds.len(), 1);
    world.apply(&Delta::NumaRemove("n1".into()));
    assert!(world.cycle(TimeMs(5_000_000)).binds.is_empty());
}
