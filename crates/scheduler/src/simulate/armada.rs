//! The specs of Armada's simulator: a workload of queues with templates of jobs, and clusters of templates of nodes, in YAML.
//!
//! Invariant: equal texts give equal jobs; what a spec says and this simulator does not follow is named in the notes, with
//! how often. Called by the edge that reads traces. Run times are drawn as Armada draws them: a least time, and beyond it an
//! exponential one with a given mean; the numbers are our own.

use std::sync::Arc;

use pumice_engine::{NodeFacts, Resources};
use pumice_units::{GoDuration, Quantity};
use serde_json::{Map, Value};

use super::generate::Random;
use super::nodes::{self, NODES_MAX, NodesError};
use super::trace::{JOBS_MAX, Job, Notes, PODS_MAX, TIME_MAX_MS, Trace};

/// Bytes of a spec.
const BYTES_MAX: usize = 16 << 20;
/// A priority class that a template which names none has, and the one whose pods may be victims.
const CLASSES: [(&str, bool); 2] = [("armada-default", false), ("armada-preemptible", true)];
/// Weights that are no whole numbers are told in so many parts.
const WEIGHT_PARTS: f64 = 100.0;
/// Queues of one spec.
const QUEUES_MAX: usize = 10_000;

/// Why a text is no spec of Armada's simulator.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ArmadaError {
    /// It is too long.
    #[error("it has {bytes} bytes, more than {BYTES_MAX}")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// It is no YAML.
    #[error("it can't be read: {0}")]
    Yaml(String),
    /// It is YAML of something else.
    #[error("it is no {0}: it has no {1}")]
    Other(&'static str, &'static str),
    /// A value is not what it must be.
    #[error("{place}: {what}")]
    Value {
        /// Where.
        place: String,
        /// What is wrong.
        what: String,
    },
    /// It has too many jobs.
    #[error("it has more than {JOBS_MAX} jobs")]
    TooMany,
}

/// Whether a text is a cluster of Armada's simulator, and not Node objects.
pub fn is_cluster(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("clusters:"))
}

/// Reads a workload.
///
/// # Errors
/// At the first value that can't be what it says.
pub fn workload(text: &str) -> Result<Trace, ArmadaError> {
    let spec = document(text)?;
    let top = Table::of("", &spec)?;
    let queues = top.list("queues")?.ok_or(ArmadaError::Other("workload of Armada's simulator", "queues"))?;
    if queues.len() > QUEUES_MAX {
        return Err(top.wrong("queues", format!("there are more than {QUEUES_MAX}")));
    }
    let seed = top.number("randomSeed")?.unwrap_or(1.0);
    let mut reading = Reading { random: Random::new(seed as u64), notes: Notes::default(), jobs: Vec::new() };
    reading.others(&top, &["name", "randomSeed", "queues"]);
    let mut weights = Vec::new();
    for (place, queue) in queues.iter().enumerate() {
        let queue = Table::of(&format!("queues[{place}]"), queue)?;
        let name: Arc<str> = queue.text("name")?.ok_or_else(|| queue.wrong("name", "it has none".to_owned()))?.into();
        let weight = queue.number("weight")?.unwrap_or(1.0);
        if weight <= 0.0 {
            return Err(queue.wrong("weight", "it must be above 0".to_owned()));
        }
        weights.push((name.clone(), weight));
        reading.others(&queue, &["name", "weight", "jobTemplates"]);
        for (index, template) in queue.list("jobTemplates")?.unwrap_or_default().iter().enumerate() {
            let template = Table::of(&format!("queues[{place}].jobTemplates[{index}]"), template)?;
            reading.template(&template, &name, index)?;
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
pub fn nodes(text: &str) -> Result<(Vec<NodeFacts>, Notes), ArmadaError> {
    let spec = document(text)?;
    let top = Table::of("", &spec)?;
    let clusters = top.list("clusters")?.ok_or(ArmadaError::Other("cluster of Armada's simulator", "clusters"))?;
    let mut reading = Reading { random: Random::new(1), notes: Notes::default(), jobs: Vec::new() };
    reading.others(&top, &["name", "clusters"]);
    let (mut all, mut pools) = (Vec::new(), std::collections::BTreeSet::new());
    for (place, cluster) in clusters.iter().enumerate() {
        let cluster = Table::of(&format!("clusters[{place}]"), cluster)?;
        pools.insert(cluster.text("pool")?.unwrap_or("default"));
        reading.others(&cluster, &["name", "pool", "nodeTemplates"]);
        for (index, template) in cluster.list("nodeTemplates")?.unwrap_or_default().iter().enumerate() {
            let template = Table::of(&format!("clusters[{place}].nodeTemplates[{index}]"), template)?;
            reading.others(&template, &["number", "totalResources", "labels"]);
            let number = template.count("number")?.unwrap_or(0);
            let resources = template.table("totalResources")?;
            let resources = resources.as_ref().map(|table| table.table("resources")).transpose()?.flatten();
            let offered = resources.as_ref().map(resources_of).transpose()?.unwrap_or_default();
            if all.len() as u64 + number > NODES_MAX as u64 {
                return Err(template.wrong("number", format!("more than {NODES_MAX} nodes")));
            }
            for _ in 0..number {
                let mut node = nodes::node_of(all.len(), offered.clone());
                for (key, value) in template.table("labels")?.iter().flat_map(|labels| labels.fields) {
                    node.labels.insert(key.clone(), value.as_str().unwrap_or_default().to_owned());
                }
                all.push(node);
            }
        }
    }
    if pools.len() > 1 {
        reading.notes.count("pools of the cluster: taken as one");
    }
    if all.is_empty() {
        return Err(top.wrong("clusters", NodesError::Count { nodes: 0 }.to_string()));
    }
    Ok((all, reading.notes))
}

fn document(text: &str) -> Result<Value, ArmadaError> {
    if text.len() > BYTES_MAX {
        return Err(ArmadaError::TooLong { bytes: text.len() });
    }
    let wrong = |error: serde_saphyr::Error| error.to_string().lines().next().unwrap_or_default().to_owned();
    serde_saphyr::from_str(text).map_err(|error| ArmadaError::Yaml(wrong(error)))
}

struct Reading {
    random: Random,
    notes: Notes,
    jobs: Vec<Job>,
}

impl Reading {
    /// Names the fields that nobody follows.
    fn others(&mut self, table: &Table<'_>, known: &[&str]) {
        for field in table.fields.keys().filter(|field| !known.contains(&field.as_str())) {
            let shown: String = field.chars().filter(|letter| !letter.is_control()).take(60).collect();
            self.notes.count(format!("{shown}: not followed"));
        }
    }

    fn template(&mut self, template: &Table<'_>, queue: &Arc<str>, index: usize) -> Result<(), ArmadaError> {
        self.others(template, KNOWN);
        let number = template.count("number")?.unwrap_or(0);
        let gang = template.count("gangCardinality")?.unwrap_or(1).max(1);
        let gang = u32::try_from(gang).ok().filter(|gang| *gang <= PODS_MAX);
        let gang = gang.ok_or_else(|| template.wrong("gangCardinality", format!("more than {PODS_MAX}")))?;
        let class = template.text("priorityClassName")?.unwrap_or(CLASSES[0].0);
        let preemptable = CLASSES.iter().find(|(name, _)| *name == class).map(|(_, preemptable)| *preemptable);
        if preemptable.is_none() {
            self.notes.count("priorityClassName that is not Armada's own: taken as armada-default");
        }
        let requirements = template.table("requirements")?;
        let asked = requirements.as_ref().map(|table| table.table("resourceRequirements")).transpose()?.flatten();
        for (table, known) in [(&requirements, "resourceRequirements"), (&asked, "requests")] {
            table.iter().for_each(|table| self.others(table, &[known, "limits"]));
        }
        let requests = asked.as_ref().map(|table| table.table("requests")).transpose()?.flatten();
        let requests = Arc::new(requests.as_ref().map(resources_of).transpose()?.unwrap_or_default());
        let runtime = template.table("runtimeDistribution")?;
        let of = |name: &str| runtime.as_ref().map(|table| table.duration(name)).transpose().map(Option::flatten);
        let (least, tail) = (of("minimum")?.unwrap_or(0), of("tailMean")?.unwrap_or(0));
        let first = template.duration("earliestSubmitTime")?.unwrap_or(0);
        let repeat = template.table("repeat")?;
        let times = repeat.as_ref().map(|table| table.count("numTimes")).transpose()?.flatten().unwrap_or(1);
        let period = repeat.as_ref().map(|table| table.duration("period")).transpose()?.flatten().unwrap_or(0);
        let gangs = number.div_ceil(u64::from(gang));
        if gangs.saturating_mul(times).saturating_add(self.jobs.len() as u64) > JOBS_MAX as u64 {
            return Err(ArmadaError::TooMany);
        }
        if !number.is_multiple_of(u64::from(gang)) {
            self.notes.count("number that is no multiple of gangCardinality: the last gang is smaller");
        }
        let profile: Arc<str> = format!("{queue}-{index}").into();
        for round in 0..times {
            for place in 0..gangs {
                let pods = u32::try_from(number - place * u64::from(gang)).unwrap_or(gang).min(gang);
                let tail = -self.random.unit().ln() * tail as f64;
                self.jobs.push(Job {
                    name: format!("j{}", self.jobs.len() + 1),
                    submit_ms: first.saturating_add(period.saturating_mul(round as i64)).min(TIME_MAX_MS),
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
}

/// Fields of a template that are followed, or mean nothing here.
const KNOWN: &[&str] = &[
    "id",
    "jobSet",
    "number",
    "gangCardinality",
    "priorityClassName",
    "requirements",
    "runtimeDistribution",
    "earliestSubmitTime",
    "repeat",
];

fn resources_of(table: &Table<'_>) -> Result<Resources, ArmadaError> {
    let mut resources = Resources::new();
    for (name, value) in table.fields {
        let text = match value {
            Value::Number(number) => number.to_string(),
            Value::String(text) => text.clone(),
            _ => String::new(),
        };
        let wrong = || table.wrong(name, "it is no quantity".to_owned());
        let amount: Quantity = text.parse().map_err(|_| wrong())?;
        let amount = if name == "cpu" { amount.cpu_milli() } else { amount.value() };
        if amount < 0 {
            return Err(wrong());
        }
        resources.insert(name.clone(), amount);
    }
    Ok(resources)
}

/// A mapping of the spec, and where it stands.
struct Table<'v> {
    place: String,
    fields: &'v Map<String, Value>,
}

impl<'v> Table<'v> {
    fn of(place: &str, value: &'v Value) -> Result<Self, ArmadaError> {
        let fields = value.as_object().ok_or_else(|| ArmadaError::Value {
            place: if place.is_empty() { "the spec".to_owned() } else { place.to_owned() },
            what: "it is no mapping".to_owned(),
        })?;
        Ok(Self { place: place.to_owned(), fields })
    }

    fn at(&self, name: &str) -> String {
        if self.place.is_empty() { name.to_owned() } else { format!("{}.{name}", self.place) }
    }

    fn wrong(&self, name: &str, what: String) -> ArmadaError {
        ArmadaError::Value { place: self.at(name), what }
    }

    fn get(&self, name: &str) -> Option<&'v Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    fn list(&self, name: &str) -> Result<Option<&'v [Value]>, ArmadaError> {
        let list = |value: &'v Value| value.as_array().ok_or_else(|| self.wrong(name, "it is no list".to_owned()));
        Ok(self.get(name).map(list).transpose()?.map(Vec::as_slice))
    }

    fn table(&self, name: &str) -> Result<Option<Self>, ArmadaError> {
        self.get(name).map(|value| Self::of(&self.at(name), value)).transpose()
    }

    fn text(&self, name: &str) -> Result<Option<&'v str>, ArmadaError> {
        self.get(name)
            .map(|value| value.as_str().ok_or_else(|| self.wrong(name, "it is no text".to_owned())))
            .transpose()
    }

    fn number(&self, name: &str) -> Result<Option<f64>, ArmadaError> {
        let number = |value: &Value| value.as_f64().filter(|number| number.is_finite());
        self.get(name)
            .map(|value| number(value).ok_or_else(|| self.wrong(name, "it is no number".to_owned())))
            .transpose()
    }

    fn count(&self, name: &str) -> Result<Option<u64>, ArmadaError> {
        let wrong = || self.wrong(name, "it is no number of 0 or more".to_owned());
        self.get(name).map(|value| value.as_u64().ok_or_else(wrong)).transpose()
    }

    /// Milliseconds, from text such as `1h30m`.
    fn duration(&self, name: &str) -> Result<Option<i64>, ArmadaError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let wrong = || self.wrong(name, format!("{text:?} is no time of 0 or more, such as 1h30m"));
        let span: GoDuration = text.parse().map_err(|_| wrong())?;
        let ms = Some(span.as_millis()).filter(|ms| *ms >= 0).ok_or_else(wrong)?;
        Ok(Some(ms.min(TIME_MAX_MS)))
    }
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
        let text = "name: c\nclusters:\n- name: a\n  pool: x\n  nodeTemplates:\n  - number: 2\n    taints: []\n    \
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
        let template = |fields: &str| format!("queues: [{{name: A, jobTemplates: [{{number: 1, {fields}}}]}}]");
        for (text, message) in [
            ("a: [b".to_owned(), "it can't be read"),
            ("3".to_owned(), "the spec: it is no mapping"),
            ("name: x".to_owned(), "it is no workload of Armada's simulator: it has no queues"),
            ("queues: {}".to_owned(), "queues: it is no list"),
            ("queues: [{weight: 1}]".to_owned(), "queues[0].name: it has none"),
            ("queues: [{name: A, weight: 0}]".to_owned(), "queues[0].weight: it must be above 0"),
            (template("earliestSubmitTime: -5m"), "queues[0].jobTemplates[0].earliestSubmitTime: \"-5m\" is no time"),
            (template("earliestSubmitTime: 5"), "queues[0].jobTemplates[0].earliestSubmitTime: it is no text"),
            (template("gangCardinality: 99999999999"), "queues[0].jobTemplates[0].gangCardinality: more than"),
            (template("repeat: {numTimes: 18446744073709551615}"), "it has more than"),
            (
                template("requirements: {resourceRequirements: {requests: {cpu: lots}}}"),
                "queues[0].jobTemplates[0].requirements.resourceRequirements.requests.cpu: it is no quantity",
            ),
        ] {
            let error = workload(&text).unwrap_err().to_string();
            assert!(error.starts_with(message), "{text}: {error}");
        }
        for text in ["queues: []", "clusters: []", "clusters: [{nodeTemplates: [{number: 9999999}]}]"] {
            assert!(nodes(text).is_err(), "{text}");
        }
        assert!(matches!(workload(&" ".repeat(BYTES_MAX + 1)), Err(ArmadaError::TooLong { .. })));
    }
}
