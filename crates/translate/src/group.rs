//! PodGroups.

use pumice_api::scheduling::{
    NetworkTopologyMode, NetworkTopologySpec, PodGroup, PodGroupCondition, PodGroupPhase, ResourceList,
    SubGroupPolicySpec,
};
use pumice_api::{names, profile::base_name};
use pumice_engine::{
    GroupCondition, GroupFacts, GroupPhase, GroupStatus, OwnerFacts, Resources, SubGroupPolicy, TimeMs, TopologySpec,
};

use super::{annotation, count, created, preemptable, requirements, resources, text, volcano_annotations};

/// What the engine reads of a PodGroup.
pub fn group_facts(group: &PodGroup) -> GroupFacts {
    let (metadata, spec) = (&group.metadata, &group.spec);
    let owners = metadata.owner_references.iter().flatten();
    let mut owner = owners.filter(|owner| owner.controller == Some(true)).map(|owner| OwnerFacts {
        kind: owner.kind.clone(),
        name: owner.name.clone(),
        uid: owner.uid.clone(),
    });
    let owner = owner.next();
    let run_profile = owner.as_ref().map_or_else(String::new, |owner| base_name(&owner.name).to_owned());
    GroupFacts {
        namespace: text(metadata.namespace.as_ref()),
        name: text(metadata.name.as_ref()),
        uid: text(metadata.uid.as_ref()).into(),
        queue: spec.queue.clone(),
        min_member: count(spec.min_member),
        min_task_member: spec.min_task_member.iter().map(|(task, min)| (task.clone(), count(*min))).collect(),
        min_resources: spec.min_resources.as_ref().map(room),
        priority_class: spec.priority_class_name.clone(),
        created: created(metadata),
        owner,
        annotations: volcano_annotations(metadata),
        preemptable: preemptable(metadata),
        topology: spec.network_topology.as_ref().map(topology),
        sub_groups: spec.sub_group_policy.iter().map(sub_group).collect(),
        run_profile,
        deadline: annotation(metadata, names::DEADLINE).and_then(moment),
        status: GroupStatus {
            phase: phase(group.status.phase.as_ref()),
            conditions: group.status.conditions.iter().map(condition).collect(),
            running: count(group.status.running),
            succeeded: count(group.status.succeeded),
            failed: count(group.status.failed),
        },
    }
}

/// What is room on nodes: Volcano's controllers write down what quotas count, too.
fn room(list: &ResourceList) -> Resources {
    let mut resources = resources(list);
    resources.retain(|name, _| !["limits.", "requests."].iter().any(|quota| name.starts_with(quota)));
    resources
}

/// A time as people write it; what can't be read is none.
fn moment(text: &str) -> Option<TimeMs> {
    text.parse::<jiff::Timestamp>().ok().map(|time| TimeMs(time.as_millisecond()))
}

fn topology(spec: &NetworkTopologySpec) -> TopologySpec {
    TopologySpec {
        hard: spec.mode != Some(NetworkTopologyMode::Soft),
        highest_tier: spec.highest_tier_allowed.map(|tier| u32::try_from(tier.max(0)).unwrap_or(u32::MAX)),
        highest_tier_name: Some(spec.highest_tier_name.clone()).filter(|name| !name.is_empty()),
    }
}

fn sub_group(policy: &SubGroupPolicySpec) -> SubGroupPolicy {
    SubGroupPolicy {
        name: policy.name.clone(),
        selector: policy.label_selector.as_ref().map(requirements).unwrap_or_default(),
        match_label_keys: policy.match_label_keys.clone(),
        size: policy.sub_group_size.map(count),
        min_sub_groups: policy.min_sub_groups.map(count),
        topology: policy.network_topology.as_ref().map(topology),
    }
}

fn condition(condition: &PodGroupCondition) -> GroupCondition {
    GroupCondition {
        kind: condition.type_.as_ref().map_or_else(String::new, |kind| kind.as_str().to_owned()),
        status: condition.status == "True",
        reason: condition.reason.clone(),
        message: condition.message.clone(),
    }
}

fn phase(phase: Option<&PodGroupPhase>) -> GroupPhase {
    match phase {
        Some(PodGroupPhase::Running) => GroupPhase::Running,
        Some(PodGroupPhase::Unknown) => GroupPhase::Unknown,
        Some(PodGroupPhase::Inqueue) => GroupPhase::Inqueue,
        Some(PodGroupPhase::Completed) => GroupPhase::Completed,
        _ => GroupPhase::Pending,
    }
}

/// The phase's word on the wire.
pub fn phase_word(phase: GroupPhase) -> &'static str {
    match phase {
        GroupPhase::Pending => "Pending",
        GroupPhase::Inqueue => "Inqueue",
        GroupPhase::Running => "Running",
        GroupPhase::Unknown => "Unknown",
        GroupPhase::Completed => "Completed",
    }
}
