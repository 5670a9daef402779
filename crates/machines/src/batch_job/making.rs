//! Which pods a running Job lacks, and which it has too many of.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::batch::v1::JobStatus;
use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod};

use super::counting::{Count, FailedIndex, failed_indexes};
use super::{StepContext, backoff};
use crate::replica_set::BURST_MAX;
use crate::workload::{
    INDEX, INDEX_FAILURES, INDEX_IGNORED, IndexFailures, OwnedPod, PodEffect, TRACKING, WorkPlan, name_prefix,
    owner_of, pod_of,
};

/// The variable with a pod's index.
const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";
/// Longest host name, as DNS has it; a pod whose name and index are longer gets none.
const HOST_NAME_MAX: usize = 63;

/// Makes what is lacking, ends what is too much.
pub(super) fn manage(context: &StepContext<'_>, count: &Count, work: &mut WorkPlan<JobStatus>) {
    let mut active: Vec<&OwnedPod> = context.active().collect();
    if context.is_indexed() {
        active = without_doubles(context, count, active, work);
    }
    let parallelism = usize::try_from(context.spec.parallelism.unwrap_or(1)).unwrap_or(0);
    let wanted = wanted(context, count, active.len(), parallelism);
    if active.len() > wanted {
        end(active, wanted, work);
        return;
    }
    let held = if context.waits_for_ends() { context.terminating() } else { 0 };
    let lacking = wanted.saturating_sub(active.len() + held).min(BURST_MAX);
    if lacking == 0 {
        return;
    }
    if context.is_indexed() {
        make_indexed(context, count, &active, lacking, work);
        return;
    }
    if let Some(at) = backoff::until(context).filter(|at| *at > context.now) {
        work.look_at(Some(at));
        return;
    }
    work.pods.extend((0..lacking).map(|_| PodEffect::Create(Box::new(pod(context, None, IndexFailures::default())))));
}

/// How many pods are to run now.
fn wanted(context: &StepContext<'_>, count: &Count, active: usize, parallelism: usize) -> usize {
    let successes = count.successes(context);
    match context.spec.completions {
        Some(completions) => {
            let failed = count.failed_indexes.len();
            let left = usize::try_from(completions).unwrap_or(0).saturating_sub(successes + failed);
            left.min(parallelism)
        }
        // One has found that there is nothing left to do.
        None if successes > 0 => active.min(parallelism),
        None => parallelism,
    }
}

/// Ends pods beyond so many: first those that are held no more, then as those that serve least.
fn end(mut active: Vec<&OwnedPod>, kept: usize, work: &mut WorkPlan<JobStatus>) {
    active.sort_by_cached_key(|pod| (pod.is_tracked, pod.rank(0)));
    active.truncate(active.len().saturating_sub(kept).min(BURST_MAX));
    work.pods.extend(active.into_iter().map(|pod| PodEffect::Withdraw(pod.id())));
}

/// Ends pods without an index that needs one, and all but the first of an index.
fn without_doubles<'a>(
    context: &StepContext<'_>,
    count: &Count,
    mut active: Vec<&'a OwnedPod>,
    work: &mut WorkPlan<JobStatus>,
) -> Vec<&'a OwnedPod> {
    active.sort_by_key(|pod| (pod.created, &pod.name));
    let mut seen = BTreeSet::new();
    let (kept, others): (Vec<&OwnedPod>, Vec<&OwnedPod>) = active.into_iter().partition(|pod| {
        pod.index.is_some_and(|index| index < context.completions() && !count.is_done(index) && seen.insert(index))
    });
    work.pods.extend(others.into_iter().map(|pod| PodEffect::Withdraw(pod.id())));
    kept
}

fn make_indexed(
    context: &StepContext<'_>,
    count: &Count,
    active: &[&OwnedPod],
    lacking: usize,
    work: &mut WorkPlan<JobStatus>,
) {
    let is_each = context.spec.backoff_limit_per_index.is_some();
    if !is_each && let Some(at) = backoff::until(context).filter(|at| *at > context.now) {
        work.look_at(Some(at));
        return;
    }
    let mut taken: BTreeSet<u32> = active.iter().filter_map(|pod| pod.index).collect();
    if context.waits_for_ends() {
        taken.extend(
            context
                .own
                .iter()
                .filter(|pod| pod.is_leaving && !pod.has_ended() && !pod.is_stopped)
                .filter_map(|pod| pod.index),
        );
    }
    let failures = if is_each { failed_indexes(context) } else { BTreeMap::new() };
    let free = (0..context.completions()).filter(|index| !taken.contains(index) && !count.is_done(*index));
    let mut made = 0;
    for index in free {
        if made == lacking {
            break;
        }
        let failed = failures.get(&index);
        if let Some(at) = failed.and_then(waits).filter(|at| *at > context.now) {
            work.look_at(Some(at));
            continue;
        }
        let before = failed.map(|failed| failed.failures).unwrap_or_default();
        work.pods.push(PodEffect::Create(Box::new(pod(context, Some(index), before))));
        made += 1;
    }
}

/// Until when an index that has failed waits.
fn waits(failed: &FailedIndex<'_>) -> Option<Timestamp> {
    let failures = usize::try_from(failed.failures.all()).unwrap_or(0);
    backoff::after(failed.last.finished?, failures)
}

/// A pod of the Job, of this index, whose index has failed so often before.
fn pod(context: &StepContext<'_>, index: Option<u32>, failures: IndexFailures) -> Pod {
    let owner = owner_of::<Job>(&context.job.metadata);
    let mut pod = pod_of(&context.spec.template, owner, context.job.metadata.namespace.clone());
    pod.metadata.generate_name = Some(name_prefix(context.name()));
    let finalizers = pod.metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|one| one == TRACKING) {
        finalizers.push(TRACKING.to_owned());
    }
    let Some(index) = index else { return pod };
    let place = format!("{}-{index}", context.name());
    pod.metadata.generate_name = Some(name_prefix(&place));
    pod.metadata.labels.get_or_insert_default().insert(INDEX.to_owned(), index.to_string());
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(INDEX.to_owned(), index.to_string());
    if context.spec.backoff_limit_per_index.is_some() {
        annotations.insert(INDEX_FAILURES.to_owned(), failures.counted.to_string());
        if failures.ignored > 0 {
            annotations.insert(INDEX_IGNORED.to_owned(), failures.ignored.to_string());
        }
    }
    if let Some(spec) = &mut pod.spec {
        if place.len() <= HOST_NAME_MAX {
            spec.hostname = Some(place);
        }
        spec.containers.iter_mut().for_each(tell_index);
        spec.init_containers.iter_mut().flatten().for_each(tell_index);
    }
    pod
}

/// Gives a container its index, unless it brings a variable of that name.
fn tell_index(container: &mut Container) {
    let env = container.env.get_or_insert_default();
    if env.iter().any(|one| one.name == INDEX_VARIABLE) {
        return;
    }
    let field =
        ObjectFieldSelector { field_path: format!("metadata.labels['{INDEX}']"), ..ObjectFieldSelector::default() };
    let value_from = Some(EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() });
    env.push(EnvVar { name: INDEX_VARIABLE.to_owned(), value_from, ..EnvVar::default() });
}
