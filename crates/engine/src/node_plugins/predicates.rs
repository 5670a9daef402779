//! `predicates`: may this pod run on this node? Cordons, node selector and required affinity, taints, host ports;
//! and for pods that say so: where other pods are, volumes, devices.
//! Room for its resources and one more pod is no predicate: it is checked even where this plugin is off.

use crate::cluster::classes::ClassRow;
use crate::cluster::inter_pod::{Rules, When};
use crate::cluster::node_matching::{matches_term, selects, tolerates, untolerated};
use crate::cluster::nodes::NodeRow;
use crate::config::PluginConfig;
use crate::facts::{HostPort, NodeTerm, PodTemplate, Taint, TaintEffect, Toleration};
use crate::ids::{NodeId, TaskId};
use crate::plan::Prebind;
use crate::plugin::Plugin;
use crate::reasons::Check;
use crate::world::tables::Tables;

mod claims;
mod volumes;

use claims::Claims;

/// Arguments that Volcano reads. Caching and time limits of single checks have no counterpart here and are accepted.
pub(crate) const ARGUMENTS: &[&str] = &[
    "predicate.NodeAffinityEnable",
    "predicate.NodePortsEnable",
    "predicate.TaintTolerationEnable",
    "predicate.PodAffinityEnable",
    "predicate.NodeVolumeLimitsEnable",
    "predicate.VolumeZoneEnable",
    "predicate.PodTopologySpreadEnable",
    "predicate.VolumeBindingEnable",
    "predicate.CacheEnable",
    "predicate.DynamicResourceAllocationEnable",
    "volumebinding.weight",
    "volumebinding.bindTimeoutSeconds",
    "volumebinding.shape",
    "dynamicresources.filterTimeoutSeconds",
];

const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";
/// Annotation of a node that takes nothing new although nobody has cordoned it: in words, whose nodes are.
pub const CLOSED_ANNOTATION: &str = "pumice.sh/closed";

#[derive(Debug)]
pub(crate) struct Predicates {
    node_affinity: bool,
    node_ports: bool,
    taints: bool,
    pod_affinity: bool,
    spread: bool,
    volumes: volumes::Switches,
}

impl Predicates {
    pub(crate) fn new(config: &PluginConfig) -> Self {
        Self {
            node_affinity: config.bool("predicate.NodeAffinityEnable", true),
            node_ports: config.bool("predicate.NodePortsEnable", true),
            taints: config.bool("predicate.TaintTolerationEnable", true),
            pod_affinity: config.bool("predicate.PodAffinityEnable", true),
            spread: config.bool("predicate.PodTopologySpreadEnable", true),
            volumes: volumes::Switches {
                binding: config.bool("predicate.VolumeBindingEnable", true),
                zone: config.bool("predicate.VolumeZoneEnable", true),
                limits: config.bool("predicate.NodeVolumeLimitsEnable", true),
            },
        }
    }
}

impl Plugin for Predicates {
    fn check_facts(&self, tables: &Tables, class: &ClassRow, node: NodeId) -> Option<Check> {
        self.facts_of(&class.template, tables.nodes.row(node))
    }

    fn checks_use_of(&self, class: &ClassRow) -> bool {
        self.node_ports && !class.template.host_ports.is_empty()
    }

    fn scores_nodes(&self) -> bool {
        false
    }

    fn check_use(&self, tables: &Tables, class: &ClassRow, node: NodeId) -> Option<Check> {
        self.use_of(&class.template, tables.nodes.row(node))
    }

    /// What a failed check is about, for reasons.
    fn detail(&self, tables: &Tables, check: Check, class: &ClassRow, node: NodeId) -> String {
        detail(check, &class.template, tables.nodes.row(node))
    }

    fn is_specific(&self, tables: &Tables, task: TaskId) -> bool {
        let row = tables.task(task);
        row.claims.is_some() || tables.inter_pod.restricts(row.profile, row.class, self.rules())
    }

    fn check_task(&self, tables: &Tables, task: TaskId, node: NodeId) -> Option<Check> {
        self.check_at(tables, task, node, When::Now)
    }

    fn check_task_later(&self, tables: &Tables, task: TaskId, node: NodeId) -> Option<Check> {
        self.check_at(tables, task, node, When::Later)
    }

    fn keep_for_task(&self, tables: &Tables, task: TaskId, nodes: &mut Vec<NodeId>) {
        let row = tables.task(task);
        let probe = tables.inter_pod.probe(row.profile, row.class, When::Now, self.rules());
        nodes.retain(|node| probe.check(*node).is_none());
        if let Some(claims) = Claims::of(tables, task, self.volumes) {
            nodes.retain(|node| claims.check(*node).is_none());
        }
    }

    fn detail_of_task(&self, tables: &Tables, check: Check, task: TaskId, node: NodeId) -> String {
        let row = tables.task(task);
        let probe = tables.inter_pod.probe(row.profile, row.class, When::Now, self.rules());
        let key = tables.inter_pod.topology_key(&probe, check, node);
        if !key.is_empty() {
            return key.to_owned();
        }
        let failed = Claims::of(tables, task, self.volumes).and_then(|claims| claims.check(node));
        failed.filter(|(failed, _)| *failed == check).map_or_else(String::new, |(_, detail)| detail)
    }

    fn failed(&self, tables: &Tables, class: &ClassRow, task: Option<TaskId>, node: NodeId) -> Vec<(Check, String)> {
        let (template, row) = (&class.template, tables.nodes.row(node));
        let mut failed: Vec<(Check, String)> = Vec::new();
        let mut note = |fails: bool, check: Check, about: String| failed.extend(fails.then_some((check, about)));
        note(row.unschedulable && !tolerates_cordon(template), Check::Unschedulable, closed(row).to_owned());
        let selected = selects(&template.node_selector, template.required_terms.as_deref(), row);
        note(self.node_affinity && !selected, Check::NodeAffinity, String::new());
        if self.taints {
            for taint in untolerated(&template.tolerations, row) {
                note(true, Check::Taint, taint_text(taint));
            }
        }
        note(!template.unsupported.is_empty(), Check::Unsupported, template.unsupported.join(" and "));
        if self.node_ports {
            for port in taken_ports(template, row) {
                note(true, Check::HostPort, port.port.to_string());
            }
        }
        if let Some(task) = task {
            let row = tables.task(task);
            let probe = tables.inter_pod.probe(row.profile, row.class, When::Now, self.rules());
            failed.extend(tables.inter_pod.failed(&probe, node));
            failed.extend(Claims::of(tables, task, self.volumes).into_iter().flat_map(|claims| claims.failed(node)));
        }
        failed
    }

    fn prebind(&self, tables: &Tables, task: TaskId, node: NodeId) -> Vec<Prebind> {
        claims::prebind(tables, task, node, self.volumes.binding)
    }
}

impl Predicates {
    fn rules(&self) -> Rules {
        Rules { affinity: self.pod_affinity, spread: self.spread }
    }

    fn check_at(&self, tables: &Tables, task: TaskId, node: NodeId, when: When) -> Option<Check> {
        let row = tables.task(task);
        let of_others = tables.inter_pod.probe(row.profile, row.class, when, self.rules()).check(node);
        of_others.or_else(|| Claims::of(tables, task, self.volumes)?.check(node).map(|(check, _)| check))
    }

    fn use_of(&self, template: &PodTemplate, node: &NodeRow) -> Option<Check> {
        (self.node_ports && taken_ports(template, node).next().is_some()).then_some(Check::HostPort)
    }

    fn facts_of(&self, template: &PodTemplate, node: &NodeRow) -> Option<Check> {
        if node.unschedulable && !tolerates_cordon(template) {
            return Some(Check::Unschedulable);
        }
        if self.node_affinity && !selects(&template.node_selector, template.required_terms.as_deref(), node) {
            return Some(Check::NodeAffinity);
        }
        if self.taints && untolerated(&template.tolerations, node).next().is_some() {
            return Some(Check::Taint);
        }
        (!template.unsupported.is_empty()).then_some(Check::Unsupported)
    }
}

fn detail(check: Check, template: &PodTemplate, node: &NodeRow) -> String {
    match check {
        Check::Unschedulable => closed(node).to_owned(),
        Check::Taint => untolerated(&template.tolerations, node).next().map_or_else(String::new, taint_text),
        Check::Unsupported => template.unsupported.join(" and "),
        Check::HostPort => taken_ports(template, node).next().map_or_else(String::new, |port| port.port.to_string()),
        _ => String::new(),
    }
}

/// Why a node takes nothing new; empty where it is cordoned.
pub(crate) fn closed(node: &NodeRow) -> &str {
    node.annotations.get(CLOSED_ANNOTATION).map_or("", String::as_str)
}

fn taint_text(taint: &Taint) -> String {
    if taint.value.is_empty() { taint.key.clone() } else { format!("{}={}", taint.key, taint.value) }
}

fn tolerates_cordon(template: &PodTemplate) -> bool {
    let taint = Taint { key: UNSCHEDULABLE_TAINT.to_owned(), value: String::new(), effect: TaintEffect::NoSchedule };
    template.tolerations.iter().any(|toleration| tolerates(toleration, &taint))
}

/// Soft taints that the pod does not tolerate.
pub(super) fn soft_taints(template: &PodTemplate, node: &NodeRow) -> i64 {
    let soft = node.taints.iter().filter(|taint| taint.effect == TaintEffect::PreferNoSchedule);
    let counts =
        |toleration: &Toleration| toleration.effect.is_none_or(|effect| effect == TaintEffect::PreferNoSchedule);
    let untolerated = soft
        .filter(|taint| {
            !template.tolerations.iter().filter(|t| counts(t)).any(|toleration| tolerates(toleration, taint))
        })
        .count();
    i64::try_from(untolerated).unwrap_or(i64::MAX)
}

/// Whether any pod may be kept away by `soft_taints`.
pub(super) fn has_soft_taints(node: &NodeRow) -> bool {
    node.taints.iter().any(|taint| taint.effect == TaintEffect::PreferNoSchedule)
}

/// The weights of the preferred terms that the node matches.
pub(super) fn preferred_weight(template: &PodTemplate, node: &NodeRow) -> i64 {
    let matching = template
        .preferred_terms
        .iter()
        .filter(|preferred| preferred.weight > 0 && matches_preferred(&preferred.term, node));
    matching.map(|preferred| i64::from(preferred.weight)).sum()
}

/// An empty preferred term matches every node, an empty required one none (as in Kubernetes).
fn matches_preferred(term: &NodeTerm, node: &NodeRow) -> bool {
    (term.expressions.is_empty() && term.fields.is_empty()) || matches_term(term, node)
}

fn taken_ports<'a>(template: &'a PodTemplate, node: &'a NodeRow) -> impl Iterator<Item = &'a HostPort> {
    let any = |ip: &str| ip.is_empty() || ip == "0.0.0.0";
    let conflicts = move |wanted: &HostPort, taken: &HostPort| {
        wanted.port == taken.port
            && wanted.protocol == taken.protocol
            && (wanted.ip == taken.ip || any(&wanted.ip) || any(&taken.ip))
    };
    template.host_ports.iter().filter(move |wanted| node.ports.iter().any(|(taken, _)| conflicts(wanted, taken)))
}

#[cfg(test)]
mod tests;
