//! Pods that mind where others are: anti-affinity, spread, and gangs inside one part of the network.

use pumice_bench::figures::Figures;
use pumice_engine::{
    Delta, HyperNodeFacts, HyperNodeMember, LabelSelector, MemberKind, NodeFacts, Operator, PodSelector, PodTemplate,
    PodTerm, Requirement, SpreadConstraint, TopologySpec,
};

use crate::cost;
use crate::placement::cycle;
use crate::worlds::{Builder, Group, NOW, PLACING, node, resources, template};

/// The pods of one application, by their label, and where they are together.
fn term(application: usize, topology_key: &str) -> PodTerm {
    let values = vec![format!("a{application}")];
    let requirement = Requirement { key: "app".to_owned(), operator: Operator::In, values };
    let labels = Some(LabelSelector { requirements: vec![requirement] });
    let pods = PodSelector { namespaces: vec!["ns".to_owned()], labels, ..PodSelector::default() };
    PodTerm { pods, topology_key: topology_key.to_owned() }
}

fn application(index: usize, pods: u32, template: PodTemplate) -> Group {
    let mut group = Group::new(format!("g{index}"), pods, pods, template);
    group.labels.insert("app".to_owned(), format!("a{index}"));
    group
}

/// 10 applications of 1,000 pods, each pod on a node of its own, on 1,000 nodes.
pub fn apart(figures: &mut Figures) {
    let mut builder = Builder::new(PLACING, 1_000);
    for index in 0..10 {
        let mut template = template(1_000, 200);
        template.inter_pod.anti_affinity.push(term(index, "kubernetes.io/hostname"));
        builder.group(&application(index, 1_000, template));
    }
    cycle(figures, "apart", &mut builder, 10_000);
}

/// 10 applications of 1,000 pods spread evenly over 10 zones, on 1,000 nodes.
pub fn spread(figures: &mut Figures) {
    let mut builder = Builder::new(PLACING, 0);
    for index in 0..1_000 {
        let mut facts = node(index);
        facts.labels.insert("zone".to_owned(), format!("z{}", index % 10));
        builder.apply(Delta::NodeUpsert(facts));
    }
    for index in 0..10 {
        let mut template = template(1_000, 200);
        let term = term(index, "zone");
        template.inter_pod.spread.push(SpreadConstraint { term, max_skew: 1, hard: true, ..Default::default() });
        builder.group(&application(index, 1_000, template));
    }
    cycle(figures, "spread", &mut builder, 10_000);
}

const DOMAIN: usize = 512;

/// Gangs of 512 pods of 8 GPUs on 10,000 nodes in domains of 512, each gang inside one.
pub fn topology(figures: &mut Figures) {
    let config = PLACING.replace("  - name: nodeorder", "  - name: nodeorder\n  - name: network-topology-aware");
    let mut builder = Builder::new(&config, 0);
    let nodes = 10_000 / DOMAIN * DOMAIN;
    for index in 0..nodes {
        let facts = node(index);
        let allocatable = facts.allocatable.into_iter().chain([("nvidia.com/gpu".to_owned(), 8)]).collect();
        builder.apply(Delta::NodeUpsert(NodeFacts { allocatable, ..facts }));
    }
    for domain in 0..nodes / DOMAIN {
        let members = (domain * DOMAIN..(domain + 1) * DOMAIN)
            .map(|node| HyperNodeMember { hyper_node: false, which: MemberKind::Exact(format!("n{node:05}")) });
        let facts =
            HyperNodeFacts { name: format!("s{domain}"), tier: 1, members: members.collect(), ..Default::default() };
        builder.apply(Delta::HyperNodeUpsert(facts));
    }
    let gangs = 10;
    for index in 0..gangs {
        let template = PodTemplate { requests: resources(8_000, 1_024, 8), ..PodTemplate::default() };
        let mut group = Group::new(format!("g{index}"), DOMAIN as u32, DOMAIN as u32, template);
        group.topology = Some(TopologySpec { hard: true, highest_tier: Some(1), ..TopologySpec::default() });
        builder.group(&group);
    }
    let (plan, cost) = cost::of(|| builder.world.cycle(NOW));
    assert_eq!(plan.binds.len(), gangs * DOMAIN);
    figures.add("topology/per_gang", cost.cpu * 1e3 / gangs as f64, "ms", gangs);
    figures.add("topology/peak", cost.peak_mib, "MiB", 1);
}
