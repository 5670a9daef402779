//! From one template to another: by and by, or all at once; and to another number of pods.

use k8s_openapi::api::apps::v1::ReplicaSet;

use super::sets::{make, scale};
use super::{DeploymentPlan, StepContext, available, replicas_of};

/// Ends all old pods, and makes new ones when those are gone.
pub(super) fn recreate(context: &StepContext<'_>, plan: &mut DeploymentPlan) {
    let mut is_quiet = true;
    for set in &context.old {
        is_quiet &= replicas_of(set) == 0
            && context.pods.get(set.metadata.uid.as_deref().unwrap_or_default()).is_none_or(|pods| *pods == 0);
        if replicas_of(set) > 0 {
            scale(context, set, 0, plan);
        }
    }
    match context.new {
        _ if !is_quiet => {}
        Some(new) => scale(context, new, context.replicas(), plan),
        None => make(context, context.replicas(), plan),
    }
}

/// One step of a rolling update: up first if there is room, else down.
pub(super) fn roll(context: &StepContext<'_>, plan: &mut DeploymentPlan) {
    let before = plan.effects.len();
    grow(context, plan);
    if plan.effects.len() == before {
        shrink(context, plan);
    }
}

fn total(context: &StepContext<'_>) -> i32 {
    context.all().fold(0, |sum, set| sum.saturating_add(replicas_of(set)))
}

fn grow(context: &StepContext<'_>, plan: &mut DeploymentPlan) {
    let wanted = context.replicas();
    let room = wanted.saturating_add(context.bounds().0).saturating_sub(total(context)).max(0);
    match context.new {
        None => make(context, room.min(wanted), plan),
        Some(new) if replicas_of(new) >= wanted => scale(context, new, wanted, plan),
        Some(new) => scale(context, new, replicas_of(new).saturating_add(room.min(wanted - replicas_of(new))), plan),
    }
}

/// Takes old pods away: first those that do not serve, then others as far as enough serve.
fn shrink(context: &StepContext<'_>, plan: &mut DeploymentPlan) {
    let least = context.replicas().saturating_sub(context.bounds().1);
    let missing_new = context.new.map_or(0, |new| replicas_of(new).saturating_sub(available(new)).max(0));
    let mut spare = total(context).saturating_sub(least).saturating_sub(missing_new);
    if spare <= 0 {
        return;
    }
    let mut sizes: Vec<(&ReplicaSet, i32)> = context.old.iter().map(|set| (*set, replicas_of(set))).collect();
    for (set, size) in &mut sizes {
        let idle = size.saturating_sub(available(set)).clamp(0, spare.max(0));
        *size -= idle;
        spare -= idle;
    }
    // Those that do not serve are gone by now: what serves beyond the least may go, too.
    let serving = context.all().fold(0_i32, |sum, set| sum.saturating_add(available(set).min(replicas_of(set))));
    let mut surplus = serving.saturating_sub(least).clamp(0, spare.max(0));
    for (_, size) in &mut sizes {
        let less = (*size).min(surplus);
        *size -= less;
        surplus -= less;
    }
    for (set, size) in sizes {
        if size != replicas_of(set) {
            scale(context, set, size, plan);
        }
    }
}

/// Shares a new number of pods out: all to the only one that has some, else to each by its size.
pub(super) fn resize(context: &StepContext<'_>, plan: &mut DeploymentPlan) {
    let mut active: Vec<&ReplicaSet> = context.all().filter(|set| replicas_of(set) > 0).collect();
    let wanted = context.replicas();
    let is_done = context.new.is_some_and(|new| replicas_of(new) == wanted && available(new) == wanted);
    if is_done {
        for old in &context.old {
            scale(context, old, 0, plan);
        }
        return;
    }
    if active.len() <= 1 {
        if let Some(only) = active.first().copied().or(context.new) {
            scale(context, only, wanted, plan);
        }
        return;
    }
    let most = if wanted > 0 { wanted.saturating_add(context.bounds().0) } else { 0 };
    let now = total(context);
    let mut left = most.saturating_sub(now);
    // The larger first: the rest of a division is theirs; new ones first when it grows, old ones when it shrinks.
    active.sort_by_key(|set| {
        std::cmp::Reverse((replicas_of(set), set.metadata.creation_timestamp.as_ref().map(|time| time.0)))
    });
    let mut sizes: Vec<(&ReplicaSet, i32)> = Vec::new();
    for set in active {
        let size = i64::from(replicas_of(set));
        let exact = size * i64::from(most) / i64::from(now.max(1)) - size;
        let share = i32::try_from(exact).unwrap_or(0);
        let share = if left > 0 { share.clamp(0, left) } else { share.clamp(left, 0) };
        left -= share;
        sizes.push((set, replicas_of(set).saturating_add(share).max(0)));
    }
    if let Some((_, first)) = sizes.first_mut() {
        *first = first.saturating_add(left).max(0);
    }
    for (set, size) in sizes {
        scale(context, set, size, plan);
    }
}
