//! From one template to another: by and by, or all at once; and to another number of pods.

use k8s_openapi::api::apps::v1::ReplicaSet;

use super::sets::{make, scale};
use super::{Course, DeploymentPlan, asked, available};

/// Ends all old pods, and makes new ones when those are gone.
pub(super) fn recreate(course: &Course<'_>, plan: &mut DeploymentPlan) {
    let mut is_quiet = true;
    for set in &course.old {
        is_quiet &= asked(set) == 0
            && course.pods.get(set.metadata.uid.as_deref().unwrap_or_default()).is_none_or(|pods| *pods == 0);
        if asked(set) > 0 {
            scale(course, set, 0, plan);
        }
    }
    match course.new {
        _ if !is_quiet => {}
        Some(new) => scale(course, new, course.replicas(), plan),
        None => make(course, course.replicas(), plan),
    }
}

/// One step of a rolling update: up first if there is room, else down.
pub(super) fn roll(course: &Course<'_>, plan: &mut DeploymentPlan) {
    let before = plan.effects.len();
    grow(course, plan);
    if plan.effects.len() == before {
        shrink(course, plan);
    }
}

fn total(course: &Course<'_>) -> i32 {
    course.all().fold(0, |sum, set| sum.saturating_add(asked(set)))
}

fn grow(course: &Course<'_>, plan: &mut DeploymentPlan) {
    let wanted = course.replicas();
    let room = wanted.saturating_add(course.bounds().0).saturating_sub(total(course)).max(0);
    match course.new {
        None => make(course, room.min(wanted), plan),
        Some(new) if asked(new) >= wanted => scale(course, new, wanted, plan),
        Some(new) => scale(course, new, asked(new).saturating_add(room.min(wanted - asked(new))), plan),
    }
}

/// Takes old pods away: first those that do not serve, then others as far as enough serve.
fn shrink(course: &Course<'_>, plan: &mut DeploymentPlan) {
    let least = course.replicas().saturating_sub(course.bounds().1);
    let missing_new = course.new.map_or(0, |new| asked(new).saturating_sub(available(new)).max(0));
    let mut spare = total(course).saturating_sub(least).saturating_sub(missing_new);
    if spare <= 0 {
        return;
    }
    let mut sizes: Vec<(&ReplicaSet, i32)> = course.old.iter().map(|set| (*set, asked(set))).collect();
    for (set, size) in &mut sizes {
        let idle = size.saturating_sub(available(set)).clamp(0, spare.max(0));
        *size -= idle;
        spare -= idle;
    }
    // Those that do not serve are gone by now: what serves beyond the least may go, too.
    let serving = course.all().fold(0_i32, |sum, set| sum.saturating_add(available(set).min(asked(set))));
    let mut surplus = serving.saturating_sub(least).clamp(0, spare.max(0));
    for (_, size) in &mut sizes {
        let less = (*size).min(surplus);
        *size -= less;
        surplus -= less;
    }
    for (set, size) in sizes {
        if size != asked(set) {
            scale(course, set, size, plan);
        }
    }
}

/// Shares a new number of pods out: all to the only one that has some, else to each by its size.
pub(super) fn resize(course: &Course<'_>, plan: &mut DeploymentPlan) {
    let mut active: Vec<&ReplicaSet> = course.all().filter(|set| asked(set) > 0).collect();
    let wanted = course.replicas();
    let is_done = course.new.is_some_and(|new| asked(new) == wanted && available(new) == wanted);
    if active.len() <= 1 || is_done {
        for old in course.old.iter().filter(|_| is_done) {
            scale(course, old, 0, plan);
        }
        if let Some(only) = active.first().copied().or(course.new).filter(|_| !is_done) {
            scale(course, only, wanted, plan);
        }
        return;
    }
    let most = if wanted > 0 { wanted.saturating_add(course.bounds().0) } else { 0 };
    let now = total(course);
    let mut left = most.saturating_sub(now);
    // The larger first: the rest of a division is theirs; new ones first when it grows, old ones when it shrinks.
    active.sort_by_key(|set| {
        std::cmp::Reverse((asked(set), set.metadata.creation_timestamp.as_ref().map(|time| time.0)))
    });
    let mut sizes: Vec<(&ReplicaSet, i32)> = Vec::new();
    for set in active {
        let size = i64::from(asked(set));
        let exact = size * i64::from(most) / i64::from(now.max(1)) - size;
        let share = i32::try_from(exact).unwrap_or(0);
        let share = if left > 0 { share.clamp(0, left) } else { share.clamp(left, 0) };
        left -= share;
        sizes.push((set, asked(set).saturating_add(share).max(0)));
    }
    if let Some((_, first)) = sizes.first_mut() {
        *first = first.saturating_add(left).max(0);
    }
    for (set, size) in sizes {
        scale(course, set, size, plan);
    }
}
