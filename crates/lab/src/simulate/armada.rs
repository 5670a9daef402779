//! The specs of Armada's simulator: a workload of queues with templates of jobs, and clusters of templates of nodes, in YAML.
//!
//! Invariant: equal texts give equal jobs; what a spec says and this simulator does not follow is named in the notes, with
//! how often. Called by the edge that reads traces. Run times are drawn as Armada draws them: a least time, and beyond it an
//! exponential one with a given mean; the numbers are our own.

use std::collections::BTreeSet;
use std::sync::Arc;

use pumice_engine::{NodeFacts, Resources};
use pumice_translate::armada::{
    Amount, Amounts, ClusterSpec, JobTemplateFields, Repeat, Requirements, SpecError, WorkloadSpec, read, wrong,
};

use super::generate::Random;
use super::nodes::{self, NODES_MAX, NodesError};
use super::trace::{JOBS_MAX, Job, Notes, PODS_MAX, TIME_MAX_MS, Trace};

/// A priority class that a template which names none has, and the one whose pods may be victims.
const CLASSES: [(&str, bool); 2] = [("armada-default", false), ("armada-preemptible", true)];
/// Weights that are no whole numbers are told in so many parts.
const WEIGHT_PARTS: f64 = 100.0;
/// Queues of one spec.
const QUEUES_MAX: usize = 10_000;

/// Whether a text is a cluster of Armada's simulator, and not Node objects.
pub fn is_cluster(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("clusters:"))
}

/// Reads a workload.
///
/// # Errors
/// At the first value that can't be what it says.
pub fn workload(text: &str) -> Result<Trace, SpecError> {
    let spec: WorkloadSpec = read(text)?;
    if spec.queues.len() > QUEUES_MAX {
        return Err(wrong("queues", format!("there are more than {QUEUES_MAX}")));
    }
    let seed = if spec.random_seed == 0 { 1 } else { spec.random_seed };
    let mut reading = Reading { random: Random::new(seed), notes: Notes::default(), jobs: Vec::new() };
    let mut weights: Vec<(Arc<str>, f64)> = Vec::new();
    for (place, queue) in spec.queues.iter().enumerate() {
        if !queue.weight.is_finite() || queue.weight <= 0.0 {
            return Err(wrong(format!("queues[{place}].weight"), "it has to be above 0"));
        }
        let name: Arc<str> = queue.name.as_str().into();
        weights.push((name.clone(), queue.weight));
        for (index, template) in queue.job_templates.iter().enumerate() {
            reading.template(template, &name, &format!("queues[{place}].jobTemplates[{index}]"), index)?;
        }
    }
    let whole = weights.iter().all(|(_, weight)| weight.fract() == 0.0);
    let parts = if whole { 1.0 } else { WEIGHT_PARTS };
    let weight = |(name, weight): (Arc<str>, f64)| (name, (weight * parts).round().clamp(1.0, 1e6) as i32);
    reading.jobs.sort_by_key(|job| job.submit_ms);
    Ok(Trace::new(reading.jobs, weights.into_iter().map(weight).collect(), reading.notes))
}

/// Reads clusters. All of them are taken as one.
///
/// # Errors
/// At the first value that can't be what it says.
pub fn nodes(text: &str) -> Result<(Vec<NodeFacts>, Notes), SpecError> {
    let spec: ClusterSpec = read(text)?;
    let mut notes = Notes::default();
    unfollowed(
        &mut notes,
        &[
            ("workflowManagerDelayDistribution", spec.workflow_manager_delay_distribution.is_some()),
            ("pendingDelayDistribution", spec.pending_delay_distribution.is_some()),
        ],
    );
    let (mut all, mut pools) = (Vec::new(), BTreeSet::new());
    for (place, cluster) in spec.clusters.iter().enumerate() {
        pools.insert(if cluster.pool.is_empty() { "default" } else { &cluster.pool });
        for (index, template) in cluster.node_templates.iter().enumerate() {
            unfollowed(&mut notes, &[("taints", !template.taints.is_empty())]);
            let offered = resources_of(&template.total_resources.resources);
            if all.len() + template.number as usize > NODES_MAX {
                let place = format!("clusters[{place}].nodeTemplates[{index}].number");
                return Err(wrong(place, format!("there are more than {NODES_MAX} nodes")));
            }
            for _ in 0..template.number {
                let mut node = nodes::node_of(all.len(), offered.clone());
                node.labels.extend(template.labels.clone());
                all.push(node);
            }
        }
    }
    if pools.len() > 1 {
        notes.count("pools of the cluster: taken as one");
    }
    if all.is_empty() {
        return Err(wrong("clusters", NodesError::Count { nodes: 0 }.to_string()));
    }
    Ok((all, notes))
}

/// Names the fields that a spec has and nobody follows here.
fn unfollowed(notes: &mut Notes, fields: &[(&'static str, bool)]) {
    for (field, _) in fields.iter().filter(|(_, is_said)| *is_said) {
        notes.count(format!("{field}: not followed"));
    }
}

struct Reading {
    random: Random,
    notes: Notes,
    jobs: Vec<Job>,
}

impl Reading {
    fn template(
        &mut self,
        template: &JobTemplateFields,
        queue: &Arc<str>,
        place: &str,
        index: usize,
    ) -> Result<(), SpecError> {
        self.unfollowed(template);
        let (number, gang) = (template.number, template.gang_cardinality.max(1));
        if gang > PODS_MAX {
            return Err(wrong(format!("{place}.gangCardinality"), format!("more than {PODS_MAX}")));
        }
        let class = Some(template.priority_class_name.as_str()).filter(|class| !class.is_empty());
        let preemptable = CLASSES
            .iter()
            .find(|(name, _)| *name == class.unwrap_or(CLASSES[0].0))
            .map(|(_, preemptable)| *preemptable);
        if preemptable.is_none() {
            self.notes.count("priorityClassName that is not Armada's own: taken as armada-default");
        }
        let requests = Arc::new(resources_of(&template.requirements.resource_requirements.requests));
        let (least, tail) = (template.runtime_distribution.minimum.ms, template.runtime_distribution.tail_mean.ms);
        let first = template.earliest_submit_time.ms;
        let (times, period) =
            template.repeat.as_ref().map_or((1, 0), |Repeat { num_times, period }| (*num_times, period.ms));
        let gangs = number.div_ceil(gang);
        let all = u64::from(gangs).saturating_mul(u64::from(times)).saturating_add(self.jobs.len() as u64);
        if all > JOBS_MAX as u64 {
            return Err(wrong(place, format!("with it there are more than {JOBS_MAX} jobs")));
        }
        if !number.is_multiple_of(gang) {
            self.notes.count("number that is no multiple of gangCardinality: the last gang is smaller");
        }
        let profile: Arc<str> = format!("{queue}-{index}").into();
        for round in 0..times {
            for place in 0..gangs {
                let pods = (number - place * gang).min(gang);
                let tail = -self.random.unit().ln() * tail as f64;
                self.jobs.push(Job {
                    name: format!("j{}", self.jobs.len() + 1),
                    submit_ms: first.saturating_add(period.saturating_mul(round.into())).min(TIME_MAX_MS),
                    user: queue.clone(),
                    queue: queue.clone(),
                    pods,
                    min: pods,
                    requests: requests.clone(),
                    run_ms: least.saturating_add(tail as i64).max(1),
                    limit_ms: None,
                    priority: 0,
                    preemptable: preemptable.unwrap_or(false),
                    profile: profile.clone(),
                    deadline_ms: None,
                });
            }
        }
        Ok(())
    }

    /// What a template says and nobody follows; its id and job set mean nothing here.
    fn unfollowed(&mut self, template: &JobTemplateFields) {
        let Requirements { node_selector, affinity, tolerations, annotations, preemption_policy, .. } =
            &template.requirements;
        let after = template.earliest_submit_time_from_dependency_completion.ms;
        unfollowed(
            &mut self.notes,
            &[
                ("queuePriority", template.queue_priority > 0),
                ("dependencies", !template.dependencies.is_empty()),
                ("earliestSubmitTimeFromDependencyCompletion", after > 0),
                ("gangNodeUniformityLabel", !template.gang_node_uniformity_label.is_empty()),
                ("nodeSelector", !node_selector.is_empty()),
                ("affinity", affinity.as_ref().is_some_and(|affinity| !affinity.is_null())),
                ("tolerations", !tolerations.is_empty()),
                ("annotations", !annotations.is_empty()),
                ("preemptionPolicy", preemption_policy.is_some()),
            ],
        );
    }
}

fn resources_of(amounts: &Amounts) -> Resources {
    let amount = |(name, amount): (&String, &Amount)| {
        (name.clone(), if name == "cpu" { amount.0.cpu_milli() } else { amount.0.value() })
    };
    amounts.iter().map(amount).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKLOAD: &str = "name: w\nrandomSeed: 7\nqueues:\n- name: A\n  weight: 1.5\n  jobTemplates:\n  - number: 3\n    \
        gangCardinality: 2\n    jobSet: s\n    priorityClassName: armada-preemptible\n    requirements:\n      \
        resourceRequirements: {requests: {cpu: 2, memory: 1Gi}}\n    earliestSubmitTime: 10m\n    \
        runtimeDistribution: {minimum: 5m, tailMean: 1m}\n    repeat: {numTimes: 2, period: 1h}\n    \
        queuePriority: 3\n- name: B\n  weight: 1\n  jobTemplates:\n  - {number: 1, priorityClassName: other}\n";

    #[test]
    fn a_workload_becomes_jobs() {
        let trace = workload(WORKLOAD).unwrap();
        // B's job comes first, so that A's come 10 and 70 minutes after it.
        let of =
            |index: usize| (trace.jobs[index].submit_ms / 60_000, trace.jobs[index].pods, &*trace.jobs[index].queue);
        let all: Vec<_> = (0..trace.jobs.len()).map(of).collect();
        assert_eq!(all, [(0, 1, "B"), (10, 2, "A"), (10, 1, "A"), (70, 2, "A"), (70, 1, "A")]);
        let gang = &trace.jobs[1];
        assert_eq!((gang.min, gang.requests["cpu"], gang.preemptable), (2, 2_000, true));
        assert!(trace.jobs[1..].iter().all(|job| job.run_ms >= 300_000), "no shorter than the least");
        assert!(trace.jobs[1].run_ms != trace.jobs[2].run_ms);
        assert_eq!((trace.queues["A"], trace.queues["B"]), (150, 100));
        let noted: Vec<(String, u64)> = trace.notes.iter().map(|(what, times)| (what.to_owned(), times)).collect();
        let expected = [
            ("number that is no multiple of gangCardinality: the last gang is smaller", 1),
            ("priorityClassName that is not Armada's own: taken as armada-default", 1),
            ("queuePriority: not followed", 1),
        ];
        assert_eq!(noted, expected.map(|(what, times)| (what.to_owned(), times)));
        assert_eq!(workload(WORKLOAD).unwrap(), trace, "the same each time");
    }

    #[test]
    fn clusters_become_nodes() {
        let text = "name: c\nclusters:\n- name: a\n  pool: x\n  nodeTemplates:\n  - number: 2\n    taints: [{key: a, effect: NoSchedule}]\n    \
                    labels: {zone: z}\n    totalResources: {resources: {cpu: '32', memory: 1Ti}}\n- name: b\n  \
                    nodeTemplates: [{number: 1, totalResources: {resources: {cpu: 4}}}]\n";
        assert!(is_cluster(text) && !is_cluster(WORKLOAD));
        let (nodes, notes) = nodes(text).unwrap();
        assert_eq!((nodes.len(), nodes[1].allocatable["cpu"], nodes[2].allocatable["cpu"]), (3, 32_000, 4_000));
        assert_eq!(nodes[0].labels["zone"], "z");
        let noted: Vec<&str> = notes.iter().map(|(what, _)| what).collect();
        assert_eq!(noted, ["pools of the cluster: taken as one", "taints: not followed"]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let template =
            |fields: &str| format!("queues: [{{name: A, weight: 1, jobTemplates: [{{number: 1, {fields}}}]}}]");
        for (text, message) in [
            ("name: x".to_owned(), "missing field `queues`"),
            ("queues: [{name: A, weight: 0}]".to_owned(), "queues[0].weight: it has to be above 0"),
            (template("earliestSubmitTime: -5m"), "a time lies between 0 and ten years"),
            (template("fast: true"), "unknown field `fast`"),
            (template("gangCardinality: 99999999"), "queues[0].jobTemplates[0].gangCardinality: more than"),
            (
                template("repeat: {numTimes: 4294967295, period: 1s}"),
                "queues[0].jobTemplates[0]: with it there are more than",
            ),
        ] {
            let error = workload(&text).unwrap_err().to_string();
            assert!(error.contains(message), "{text}: {error}");
        }
        let crowd = "clusters: [{name: a, nodeTemplates: [{number: 9999999, totalResources: {}}]}]";
        for (text, message) in
            [("clusters: []", "clusters: "), (crowd, "clusters[0].nodeTemplates[0].number: there are more than")]
        {
            let error = nodes(text).unwrap_err().to_string();
            assert!(error.starts_with(message), "{text}: {error}");
        }
    }
}
