//! The workload that is tried: queues, and what is submitted to them and when.
//!
//! Invariant: every template has at least one job, its dependencies are other templates and never, by way of others, itself.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pumice_ledger::{Digest, Shape};
use pumice_translate::armada::{self, JobTemplateFields, Requirements, SpecError, WorkloadSpec, wrong};
use pumice_units::Quantity;
use serde_json::{Map, Value};

use super::clusters::CLUSTER_LABEL;
use super::draw::Distribution;
use pumice_fleet_server::api::{canonical, shape_of};

/// Queues of one workload.
pub const QUEUES_MAX: usize = 1_000;
/// Jobs of one workload.
pub const JOBS_MAX: usize = 1_000_000;
/// Templates of one workload, each as often as it is repeated.
pub const TEMPLATES_MAX: usize = 100_000;
/// The seed of a workload that names none.
pub const SEED: u64 = 1;

/// Queues and the jobs that come to them.
#[derive(Debug, Clone)]
pub struct Workload {
    /// What it is called.
    pub name: String,
    /// What run times are drawn by.
    pub seed: u64,
    /// Queues, in the order of the specification.
    pub queues: Vec<WorkloadQueue>,
    pub(super) templates: Vec<Template>,
    /// What is in the specification and changes nothing.
    pub notes: Vec<String>,
}

/// A queue that the workload submits to.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkloadQueue {
    pub name: String,
    /// Its share is in proportion to this.
    pub weight: f64,
}

/// Jobs that are alike.
#[derive(Debug, Clone)]
pub(super) struct Template {
    /// Where it stands in the specification.
    pub path: String,
    pub id: String,
    pub queue: usize,
    pub job_set: String,
    pub priority: u32,
    /// Empty for the configuration's.
    pub class: String,
    pub number: u32,
    pub gang: Option<GangOf>,
    pub requirements: Pod,
    pub runs: Distribution,
    pub earliest_ms: i64,
    pub after_dependencies_ms: i64,
    pub repeats: u32,
    pub period_ms: i64,
    /// Templates all of whose jobs have to succeed before.
    pub dependencies: Vec<usize>,
}

/// The gangs that a template's jobs are in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GangOf {
    pub cardinality: u32,
    /// The label that all of its nodes share.
    pub uniformity: String,
}

/// What the pod of a job is.
#[derive(Debug, Clone)]
pub(super) struct Pod {
    requests: BTreeMap<String, Quantity>,
    metadata: ObjectMeta,
    spec: core::PodSpec,
}

impl Pod {
    /// What scheduling reads of it, and the digest of that.
    pub(super) fn shape(&self, class: &str) -> Result<(Digest, Shape), serde_json::Error> {
        let shape = shape_of(class, &self.requests, &self.metadata, &self.spec)?;
        let (digest, _) = canonical(&serde_json::to_value(&shape)?)?;
        Ok((digest, shape))
    }
}

impl Workload {
    /// Reads a specification; `name` is what it is called where it does not say so itself.
    ///
    /// # Errors
    /// What can't be run, and where it stands.
    pub fn read(text: &str, name: &str) -> Result<Self, SpecError> {
        let spec: WorkloadSpec = armada::read(text)?;
        if spec.queues.len() > QUEUES_MAX {
            return Err(wrong("queues", format!("there are more than {QUEUES_MAX}")));
        }
        let (mut queues, mut templates, mut names) = (Vec::new(), Vec::new(), BTreeSet::new());
        let mut notes = BTreeSet::new();
        let mut wants = Vec::new();
        for (place, queue) in spec.queues.into_iter().enumerate() {
            let place = format!("queues[{place}]");
            armada::name(format!("{place}.name"), &queue.name)?;
            if !queue.weight.is_finite() || queue.weight <= 0.0 {
                return Err(wrong(format!("{place}.weight"), "it has to be above 0"));
            }
            if !names.insert(queue.name.clone()) {
                return Err(wrong(format!("{place}.name"), format!("there is another queue {}", queue.name)));
            }
            for (index, mut fields) in queue.job_templates.into_iter().enumerate() {
                if fields.id.is_empty() {
                    fields.id = format!("{}-{index}", queue.name);
                }
                if fields.requirements.preemption_policy.is_some() {
                    notes.insert("preemptionPolicy: the priority class says who makes room for whom".to_owned());
                }
                wants.push(std::mem::take(&mut fields.dependencies));
                templates.push(template(format!("{place}.jobTemplates[{index}]"), queues.len(), fields)?);
            }
            queues.push(WorkloadQueue { name: queue.name, weight: queue.weight });
        }
        bounded(&templates)?;
        depend(&mut templates, &wants)?;
        Ok(Self {
            name: if spec.name.is_empty() { name.to_owned() } else { spec.name },
            seed: if spec.random_seed == 0 { SEED } else { spec.random_seed },
            queues,
            templates,
            notes: notes.into_iter().collect(),
        })
    }

    /// How many jobs there are.
    pub fn jobs(&self) -> usize {
        self.templates.iter().map(Template::jobs).sum()
    }
}

impl Template {
    pub(super) fn jobs(&self) -> usize {
        (self.number as usize).saturating_mul(self.repeats as usize)
    }
}

fn bounded(templates: &[Template]) -> Result<(), SpecError> {
    let repeated = templates.iter().map(|template| template.repeats as usize);
    if repeated.fold(0_usize, usize::saturating_add) > TEMPLATES_MAX {
        let problem = format!("there are more than {TEMPLATES_MAX} templates, each as often as it is repeated");
        return Err(wrong("queues", problem));
    }
    let jobs = templates.iter().map(Template::jobs).fold(0_usize, usize::saturating_add);
    match jobs {
        0 => Err(wrong("queues", "there are no jobs")),
        1..=JOBS_MAX => Ok(()),
        _ => Err(wrong("queues", format!("there are {jobs} jobs: have at most {JOBS_MAX}"))),
    }
}

fn template(place: String, queue: usize, fields: JobTemplateFields) -> Result<Template, SpecError> {
    let at = |field: &str| format!("{place}.{field}");
    if fields.number == 0 {
        return Err(wrong(at("number"), "it has to be at least 1"));
    }
    let uniformity = match fields.gang_node_uniformity_label.as_str() {
        "" => CLUSTER_LABEL,
        label => label,
    };
    let gang = if fields.gang_cardinality > 1 {
        Some(GangOf { cardinality: fields.gang_cardinality, uniformity: uniformity.to_owned() })
    } else {
        None
    };
    if let Some(gang) = gang.as_ref().filter(|gang| !fields.number.is_multiple_of(gang.cardinality)) {
        let problem = format!("{} jobs can't be in gangs of {}", fields.number, gang.cardinality);
        return Err(wrong(at("gangCardinality"), problem));
    }
    let (repeats, period_ms) = match &fields.repeat {
        None => (1, 0),
        Some(repeat) if repeat.num_times == 0 => return Err(wrong(at("repeat.numTimes"), "it has to be at least 1")),
        Some(repeat) => (repeat.num_times, repeat.period.ms),
    };
    Ok(Template {
        requirements: pod(&place, fields.requirements)?,
        path: place,
        id: fields.id,
        queue,
        job_set: fields.job_set,
        priority: fields.queue_priority,
        class: fields.priority_class_name,
        number: fields.number,
        gang,
        runs: fields.runtime_distribution.into(),
        earliest_ms: fields.earliest_submit_time.ms,
        after_dependencies_ms: fields.earliest_submit_time_from_dependency_completion.ms,
        repeats,
        period_ms,
        dependencies: Vec::new(),
    })
}

/// The pod, read as Kubernetes reads it.
fn pod(place: &str, requirements: Requirements) -> Result<Pod, SpecError> {
    let at = |field: &str| format!("{place}.requirements.{field}");
    let mut spec = Map::new();
    spec.insert("containers".to_owned(), Value::Array(Vec::new()));
    let nodes = requirements.node_selector.into_iter().map(|(name, value)| (name, Value::String(value)));
    spec.insert("nodeSelector".to_owned(), Value::Object(nodes.collect()));
    let tolerations = serde_json::to_value(requirements.tolerations);
    spec.insert("tolerations".to_owned(), tolerations.map_err(|error| wrong(at("tolerations"), error.to_string()))?);
    if let Some(affinity) = requirements.affinity.filter(|affinity| !affinity.is_null()) {
        let refuse = |error: serde_json::Error| wrong(at("affinity"), error.to_string());
        let read: core::Affinity = serde_json::from_value(affinity.clone()).map_err(refuse)?;
        if let Some(field) = armada::lost(&affinity, &serde_json::to_value(&read).map_err(refuse)?) {
            return Err(wrong(at(&format!("affinity{field}")), "Kubernetes has no such field"));
        }
        spec.insert("affinity".to_owned(), affinity);
    }
    let read = serde_json::from_value(Value::Object(spec));
    Ok(Pod {
        requests: requirements.resource_requirements.requests.into_iter().map(|(name, is)| (name, is.0)).collect(),
        metadata: ObjectMeta {
            annotations: Some(requirements.annotations).filter(|annotations| !annotations.is_empty()),
            ..ObjectMeta::default()
        },
        spec: read.map_err(|error| wrong(at("nodeSelector"), error.to_string()))?,
    })
}

/// Finds the templates that others wait for.
fn depend(templates: &mut [Template], wants: &[Vec<String>]) -> Result<(), SpecError> {
    let mut by_id: BTreeMap<String, usize> = BTreeMap::new();
    for (index, template) in templates.iter().enumerate() {
        if by_id.insert(template.id.clone(), index).is_some() {
            let problem = format!("there is another template with the id {:?}", template.id);
            return Err(wrong(format!("{}.id", template.path), problem));
        }
    }
    for (template, wants) in templates.iter_mut().zip(wants) {
        let mut dependencies = BTreeSet::new();
        for id in wants {
            let Some(index) = by_id.get(id) else {
                let problem = format!("there is no template with the id {id:?}");
                return Err(wrong(format!("{}.dependencies", template.path), problem));
            };
            dependencies.insert(*index);
        }
        template.dependencies = dependencies.into_iter().collect();
    }
    match circle(templates) {
        None => Ok(()),
        Some(circle) => {
            let ids: Vec<&str> = circle.iter().map(|index| templates[*index].id.as_str()).collect();
            let place = format!("{}.dependencies", templates[circle[0]].path);
            Err(wrong(place, format!("each waits for the next, in a circle: {}", ids.join(", "))))
        }
    }
}

/// Templates of which each depends on the next, and the last on the first; no recursion, as they may be many.
fn circle(templates: &[Template]) -> Option<Vec<usize>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        Never,
        OnTheWay,
        Done,
    }
    let mut seen = vec![Seen::Never; templates.len()];
    for start in 0..templates.len() {
        // Which template, and which of its dependencies comes next.
        let mut way: Vec<(usize, usize)> = Vec::new();
        if seen[start] == Seen::Never {
            seen[start] = Seen::OnTheWay;
            way.push((start, 0));
        }
        while let Some((at, next)) = way.last_mut() {
            let Some(dependency) = templates[*at].dependencies.get(*next).copied() else {
                seen[*at] = Seen::Done;
                way.pop();
                continue;
            };
            *next += 1;
            match seen[dependency] {
                Seen::Done => {}
                Seen::Never => {
                    seen[dependency] = Seen::OnTheWay;
                    way.push((dependency, 0));
                }
                Seen::OnTheWay => {
                    let way = way.into_iter().map(|(index, _)| index);
                    return Some(way.skip_while(|index| *index != dependency).collect());
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(fields: &str) -> String {
        format!("queues:\n- name: A\n  weight: 1\n  jobTemplates:\n  - number: 4\n    {fields}\n")
    }

    #[test]
    fn a_template_says_what_its_jobs_are() {
        let text = one(
            "id: t\n    jobSet: s\n    queuePriority: 3\n    priorityClassName: low\n    requirements:\n      \
             nodeSelector: {zone: 'true'}\n      tolerations: [{key: gpu, operator: Exists}]\n      affinity: \
             {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: \
             [{key: a, operator: In, values: ['b']}]}]}}}\n      resourceRequirements: {requests: {cpu: 2, memory: 1Gi}, \
             limits: {cpu: 2}}\n    earliestSubmitTime: 10m\n    runtimeDistribution: {minimum: 5m, tailMean: 90s}\n    \
             repeat: {numTimes: 2, period: 1h}\n    gangCardinality: 2",
        );
        let workload = Workload::read(&text, "named").unwrap();
        assert_eq!((workload.name.as_str(), workload.seed, workload.jobs()), ("named", SEED, 8));
        assert_eq!(workload.queues, [WorkloadQueue { name: "A".to_owned(), weight: 1.0 }]);
        let template = &workload.templates[0];
        assert_eq!((template.earliest_ms, template.repeats, template.period_ms), (600_000, 2, 3_600_000));
        assert_eq!(template.runs, Distribution { minimum_ms: 300_000, tail_mean_ms: 90_000 });
        assert_eq!(template.gang, Some(GangOf { cardinality: 2, uniformity: CLUSTER_LABEL.to_owned() }));
        let (digest, shape) = template.requirements.shape("low").unwrap();
        assert_eq!((shape.requests["cpu"], shape.requests["memory"]), (2_000, 1 << 30));
        assert!(shape.template.to_string().contains("zone") && shape.template.to_string().contains("gpu"));
        assert_ne!(digest, template.requirements.shape("high").unwrap().0);
    }

    #[test]
    fn dependencies_are_found_by_id() {
        let text = "queues:\n- name: A\n  weight: 1\n  jobTemplates:\n  - {number: 1, dependencies: [B-0, last]}\n- name: B\n  \
                    weight: 2\n  jobTemplates:\n  - {number: 1}\n  - {number: 1, id: last, dependencies: [B-0]}\n";
        let workload = Workload::read(text, "w").unwrap();
        let all: Vec<&[usize]> = workload.templates.iter().map(|template| template.dependencies.as_slice()).collect();
        assert_eq!(all, [[1, 2].as_slice(), &[], &[1]]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let chain = |ids: &[(&str, &str)]| {
            let templates: Vec<String> =
                ids.iter().map(|(id, on)| format!("{{number: 1, id: {id}, dependencies: [{on}]}}")).collect();
            format!("queues: [{{name: A, weight: 1, jobTemplates: [{}]}}]", templates.join(", "))
        };
        for (text, message) in [
            ("queues: []".to_owned(), "queues: there are no jobs"),
            ("queues: {".to_owned(), "line 1"),
            (one("fast: true"), "gangNodeUniformityLabel, repeat at line 6, column 5"),
            (
                one("requirements:\n      resourceRequirements:\n        asks: {}"),
                "unknown field `asks`, expected one of requests, limits at line 8, column 9",
            ),
            (one("earliestSubmitTime: -5m"), "a time lies between 0 and ten years"),
            (one("earliestSubmitTime: 5"), "line 6"),
            (one("gangCardinality: 3"), "queues[0].jobTemplates[0].gangCardinality: 4 jobs can't be in gangs of 3"),
            (one("repeat: {numTimes: 0, period: 1s}"), "repeat.numTimes: it has to be at least 1"),
            (one("repeat: {numTimes: 2}"), "missing field `period`"),
            (one("repeat: {numTimes: 4294967295, period: 1s}"), "more than 100000 templates"),
            (
                one("requirements: {affinity: {nodes: {}}}"),
                "jobTemplates[0].requirements.affinity.nodes: Kubernetes has no",
            ),
            (one("requirements: {affinity: {nodeAffinity: 3}}"), "requirements.affinity: invalid type"),
            (
                one("dependencies: [X]"),
                "queues[0].jobTemplates[0].dependencies: there is no template with the id \"X\"",
            ),
            ("queues: [{name: A, weight: 0}]".to_owned(), "queues[0].weight: it has to be above 0"),
            ("queues: [{name: A, weight: 1}, {name: A, weight: 1}]".to_owned(), "there is another queue A"),
            (
                "queues: [{name: A, weight: 1, jobTemplates: [{number: 2000000}]}]".to_owned(),
                "there are 2000000 jobs: have at most 1000000",
            ),
            (chain(&[("a", ""), ("a", "")]), "there is another template with the id \"a\""),
            (chain(&[("a", "a")]), "in a circle: a"),
            (
                chain(&[("start", "b"), ("b", "c"), ("c", "d"), ("d", "b")]),
                "queues[0].jobTemplates[1].dependencies: each waits for the next, in a circle: b, c, d",
            ),
        ] {
            let error = Workload::read(&text, "w").unwrap_err().to_string();
            assert!(error.contains(message), "{text}: {error}");
        }
    }

    #[test]
    fn a_long_chain_is_no_circle() {
        let mut templates = vec!["{number: 1, id: t0}".to_owned()];
        templates
            .extend((1..20_000).map(|index| format!("{{number: 1, id: t{index}, dependencies: [t{}]}}", index - 1)));
        templates.reverse();
        let text = format!("queues: [{{name: A, weight: 1, jobTemplates: [{}]}}]", templates.join(", "));
        assert_eq!(Workload::read(&text, "w").unwrap().jobs(), 20_000);
    }
}
