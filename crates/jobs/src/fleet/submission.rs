//! From a Job to what a fleet is asked for: one job for each pod, or one for all of it, in one job set of the Job's name.
//!
//! Invariant: pure, and nothing is dropped in silence: what a fleet does not do is refused by its name, with what to do instead.
//! An item's client id follows from the Job's key and the pod's place, so a submission that is repeated gives the same jobs.

use std::collections::BTreeMap;

use prost::Message;
use pumice_api::names::{AFTER, DEADLINE, JOB_NAME, MAX_PARALLEL, ON_OOM, RETRIES, TASK_INDEX, TASK_SPEC};
use pumice_wire::api::JobSubmitRequestItem;
use pumice_wire::kubernetes::PodSpec;
use serde_json::{Map, Value, json};

use super::objects::MANIFEST;
use super::refusal::Refusal;
use super::volcano_job;
use crate::job::{ON_OOM_OFF, REPLICAS_MAX, SCRIPT};
use crate::json::text_at;

/// Jobs of one request, which may have 10,000: smaller ones share the server's transactions and show progress.
pub const ITEMS_MAX: usize = 2_000;
/// Bytes of one request, for the same reasons.
const BATCH_BYTES: usize = 16 << 20;
/// Bytes that the server takes in one.
const REQUEST_BYTES_MAX: usize = 64 << 20;
/// Bytes around a job in a request, at most.
const AROUND: usize = 8;
/// Where a text of an annotation has this, the server puts a job's id.
const JOB_ID: &str = "{JobId}";
/// Jobs that start together, and have to be in one request.
pub const GANG_MAX: usize = 10_000;
/// A longer Job finds no place beside its first pod.
const MANIFEST_BYTES_MAX: usize = 128 << 10;
/// Variables that tell a pod its index.
const INDEX: [&str; 2] = ["VK_TASK_INDEX", "VC_TASK_INDEX"];
const GANG_ID: &str = "armadaproject.io/gangId";
const GANG_CARDINALITY: &str = "armadaproject.io/gangCardinality";
/// Armada's place in a queue where nobody says another; lower goes first.
pub(super) const PRIORITY: f64 = 1000.0;

/// Fields of a Job's spec that have a meaning here.
const SPEC_FIELDS: &[&str] = &[
    "schedulerName",
    "minAvailable",
    "tasks",
    "plugins",
    "queue",
    "maxRetry",
    "priorityClassName",
    "minSuccess",
    "policies",
    "volumes",
    "ttlSecondsAfterFinished",
    "runningEstimate",
    "networkTopology",
];
/// And of a task.
const TASK_FIELDS: &[&str] = &[
    "name",
    "replicas",
    "minAvailable",
    "template",
    "policies",
    "maxRetry",
    "dependsOn",
    "topologyPolicy",
    "minSuccess",
    "maxParallel",
    "retries",
    "partitionPolicy",
];

/// What is wished for on a platform and can't be had here: the field, and what to do instead.
const NOT_OF_JOBS: &[(&str, &str)] =
    &[("ttlSecondsAfterFinished", "a fleet forgets jobs by a rule of its own: leave the field out")];
const NOT_OF_TASKS: &[(&str, &str)] = &[("maxParallel", PARALLEL)];
const PARALLEL: &str =
    "a fleet does not bound how many of a job run at a time: leave --max-parallel out, the queue's share bounds them";
const NOT_BY_ANNOTATION: &[(&str, &str)] = &[
    (AFTER, "a fleet starts jobs as there is room: leave --after out, and submit this one when the other has ended"),
    (
        DEADLINE,
        "a fleet knows no deadlines: leave --deadline out, and ask for another --priority (--timeout ends a pod that runs too long)",
    ),
    (MAX_PARALLEL, PARALLEL),
];

/// What a fleet is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Submission {
    /// All of it, in the order of tasks and indexes.
    pub items: Vec<JobSubmitRequestItem>,
    /// How many go into one request.
    pub batch: usize,
}

/// The items of a Job whose name, namespace and queue are filled in. `key` is nobody else's, or that of this Job for ever.
///
/// # Errors
/// What a fleet does not do, or what is missing.
pub fn items(job: &Value, key: &str) -> Result<Submission, Refusal> {
    let [name, namespace] = ["/metadata/name", "/metadata/namespace"].map(|pointer| text_at(job, pointer));
    let spec = object(job.get("spec"), "spec")?;
    known(spec, "spec", SPEC_FIELDS)?;
    refuse(Some(spec), NOT_OF_JOBS)?;
    refuse(fields_at(job, "/metadata/annotations"), NOT_BY_ANNOTATION)?;
    let tasks = spec.get("tasks").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let replicas: Vec<u64> = tasks.iter().map(replicas).collect::<Result<_, _>>()?;
    let total: u64 = replicas.iter().sum();
    if total == 0 || total > u64::from(REPLICAS_MAX) {
        return Err(Refusal::invalid(format!("the job has {total} pods; it may have 1 to {REPLICAS_MAX}")));
    }
    for task in tasks {
        let fields = object(Some(task), "spec.tasks")?;
        known(fields, "spec.tasks", TASK_FIELDS)?;
        refuse(Some(fields), NOT_OF_TASKS)?;
        refuse(fields_at(task, "/template/metadata/annotations"), NOT_BY_ANNOTATION)?;
    }
    if volcano_job::is_wanted(spec) {
        return volcano_job::item(job, key, manifest(job)?);
    }
    let gang = gang(spec, total)?;
    let mut items = Vec::new();
    for (number, (task, replicas)) in tasks.iter().zip(replicas).enumerate() {
        let template = Template::read(task, number, job)?;
        for index in 0..replicas {
            let mut item = template.item(index)?;
            item.annotations.insert(JOB_NAME.to_owned(), name.to_owned());
            if gang {
                item.annotations.insert(GANG_ID.to_owned(), key.to_owned());
                item.annotations.insert(GANG_CARDINALITY.to_owned(), total.to_string());
            }
            item.namespace = namespace.to_owned();
            item.client_id = format!("{key}.{}", items.len());
            items.push(item);
        }
    }
    let manifest = manifest(job)?;
    if let Some(first) = items.first_mut() {
        first.annotations.insert(MANIFEST.to_owned(), manifest);
    }
    let batch = if gang { together(&items)? } else { batch(&items) };
    Ok(Submission { items, batch })
}

fn size(item: &JobSubmitRequestItem) -> usize {
    item.encoded_len() + AROUND
}

/// How many go into one request, of jobs that are each by itself.
fn batch(items: &[JobSubmitRequestItem]) -> usize {
    let largest = items.iter().map(size).max().unwrap_or(1);
    (BATCH_BYTES / largest).clamp(1, ITEMS_MAX)
}

/// All of them go into one request, if it takes so much.
fn together(items: &[JobSubmitRequestItem]) -> Result<usize, Refusal> {
    let bytes: usize = items.iter().map(size).sum();
    // The names of the queue and the job set are there, too.
    if bytes + 4096 <= REQUEST_BYTES_MAX {
        return Ok(GANG_MAX);
    }
    let (pods, size, most) = (items.len(), bytes.div_ceil(1 << 20), REQUEST_BYTES_MAX >> 20);
    Err(Refusal::not_here(format!(
        "pods that start together go to a fleet in one request of at most {most} MiB, and these {pods} have {size} MiB: put a \
         long script or text into the image, or say --gang 1 if each can run by itself"
    )))
}

/// The Job, to be kept beside its first pod. The server puts a job's id where [`JOB_ID`] is written, which is to stay here.
fn manifest(job: &Value) -> Result<String, Refusal> {
    let text = without_ids(&json!({"metadata": job["metadata"], "spec": job["spec"]}));
    if text.len() > MANIFEST_BYTES_MAX {
        let bytes = text.len();
        return Err(Refusal::invalid(format!(
            "the job has {bytes} bytes; a fleet takes at most {MANIFEST_BYTES_MAX}: put what is long into the image or a file"
        )));
    }
    Ok(text)
}

/// JSON in whose text the server finds no place for a job's id.
pub(super) fn without_ids(value: &Value) -> String {
    value.to_string().replace(JOB_ID, "\\u007bJobId}")
}

fn object<'j>(value: Option<&'j Value>, what: &str) -> Result<&'j Map<String, Value>, Refusal> {
    value.and_then(Value::as_object).ok_or_else(|| Refusal::invalid(format!("{what} is no object")))
}

/// A field that is misspelt must not be dropped in silence.
fn known(fields: &Map<String, Value>, what: &str, known: &[&str]) -> Result<(), Refusal> {
    match fields.keys().find(|field| !known.contains(&field.as_str())) {
        Some(field) => Err(Refusal::invalid(format!("{what} has no field {field}; is it misspelt?"))),
        None => Ok(()),
    }
}

pub(super) fn is_said(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::String(text) => !text.is_empty(),
        _ => true,
    }
}

pub(super) fn fields_at<'j>(value: &'j Value, pointer: &str) -> Option<&'j Map<String, Value>> {
    value.pointer(pointer).and_then(Value::as_object)
}

/// Refuses what is wished for and can't be had, with what to do instead.
pub(super) fn refuse(fields: Option<&Map<String, Value>>, wishes: &[(&str, &str)]) -> Result<(), Refusal> {
    match wishes.iter().find(|(field, _)| fields.is_some_and(|fields| fields.get(*field).is_some_and(is_said))) {
        Some((_, instead)) => Err(Refusal::not_here(*instead)),
        None => Ok(()),
    }
}

fn replicas(task: &Value) -> Result<u64, Refusal> {
    match task.get("replicas") {
        None | Some(Value::Null) => Ok(1),
        Some(replicas) => {
            let wrong = || Refusal::invalid(format!("spec.tasks: replicas is {replicas}, which is no number of pods"));
            replicas.as_u64().filter(|replicas| *replicas <= u64::from(REPLICAS_MAX)).ok_or_else(wrong)
        }
    }
}

/// Whether all pods start together. Where some of them do the Job goes as a whole.
fn gang(spec: &Map<String, Value>, total: u64) -> Result<bool, Refusal> {
    match spec.get("minAvailable").and_then(Value::as_u64).unwrap_or(total) {
        0 | 1 => Ok(false),
        least if least == total && total > GANG_MAX as u64 => Err(Refusal::not_here(format!(
            "a fleet starts at most {GANG_MAX} pods together, and these are {total}: say --gang 1 if each can run by itself"
        ))),
        _ => Ok(true),
    }
}

/// What the pods of a task have in common.
struct Template {
    task: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    pod: Value,
}

impl Template {
    fn read(task: &Value, number: usize, job: &Value) -> Result<Self, Refusal> {
        let name = match text_at(task, "/name") {
            "" => format!("default{number}"),
            name => name.to_owned(),
        };
        let metadata = task.pointer("/template/metadata");
        let texts = |field: &str| {
            let fields =
                metadata.and_then(|metadata| metadata.get(field)).and_then(Value::as_object).into_iter().flatten();
            fields.filter_map(|(key, text)| Some((key.clone(), text.as_str()?.to_owned()))).collect()
        };
        let mut annotations: BTreeMap<String, String> = texts("annotations");
        if let Some(retries) = task.get("retries").filter(|retries| is_said(retries)) {
            annotations.insert(RETRIES.to_owned(), retries.to_string());
        }
        let rule = fields_at(job, "/metadata/annotations").and_then(|all| all.get(ON_OOM)?.as_str());
        // A task's own goes before, but where the Job turns all of them off.
        if let Some(rule) = rule.filter(|rule| rule.trim() == ON_OOM_OFF || !annotations.contains_key(ON_OOM)) {
            annotations.insert(ON_OOM.to_owned(), rule.to_owned());
        }
        if annotations.get(SCRIPT).is_some_and(|script| script.contains(JOB_ID)) {
            return Err(Refusal::not_here(format!(
                "the script has the text {JOB_ID}, where a fleet would put the id of a job: write it in another way"
            )));
        }
        let mut pod = task.pointer("/template/spec").cloned().unwrap_or(Value::Null);
        let fields = pod.as_object_mut().ok_or_else(|| {
            Refusal::invalid(format!("task {name} says no pod: only what jobctl submitted can be submitted again"))
        })?;
        fields.remove("schedulerName");
        fields.entry("restartPolicy").or_insert_with(|| json!("Never"));
        if let Some(class) = job.pointer("/spec/priorityClassName").filter(|class| is_said(class)) {
            fields.entry("priorityClassName").or_insert_with(|| class.clone());
        }
        for containers in ["containers", "initContainers"] {
            let containers = fields.get_mut(containers).and_then(Value::as_array_mut);
            containers.into_iter().flatten().try_for_each(settle)?;
        }
        Ok(Template { task: name, labels: texts("labels"), annotations, pod })
    }

    /// The job of an index. What tells it from the others is in annotations, which placing does not read: so all have one shape.
    fn item(&self, index: u64) -> Result<JobSubmitRequestItem, Refusal> {
        let mut pod = self.pod.clone();
        let index = index.to_string();
        for containers in ["containers", "initContainers"] {
            for container in pod.get_mut(containers).and_then(Value::as_array_mut).into_iter().flatten() {
                number(container, &index);
            }
        }
        let spec =
            PodSpec::from_json(&pod).map_err(|error| Refusal::invalid(format!("task {}: {error}", self.task)))?;
        let mut annotations = self.annotations.clone();
        annotations.insert(TASK_SPEC.to_owned(), self.task.clone());
        annotations.insert(TASK_INDEX.to_owned(), index);
        Ok(JobSubmitRequestItem {
            priority: PRIORITY,
            labels: self.labels.clone(),
            annotations,
            pod_specs: vec![spec],
            ..JobSubmitRequestItem::default()
        })
    }
}

/// A fleet plans with what each container takes at most: requests and limits are one and the same, what is said of either.
pub(super) fn settle(container: &mut Value) -> Result<(), Refusal> {
    let said = |of: &str| {
        container.pointer(&format!("/resources/{of}")).and_then(Value::as_object).cloned().unwrap_or_default()
    };
    let (mut amounts, requests) = (said("limits"), said("requests"));
    amounts.extend(requests);
    if amounts.is_empty() {
        return Err(Refusal::invalid("a fleet has to know what each pod takes: say --cpu and --memory"));
    }
    let resources = container.as_object_mut().map(|fields| fields.entry("resources").or_insert_with(|| json!({})));
    if let Some(resources) = resources.and_then(Value::as_object_mut) {
        resources.insert("limits".to_owned(), json!(amounts));
        resources.insert("requests".to_owned(), json!(amounts));
    }
    Ok(())
}

/// Tells a container its index, unless it says something of its own.
fn number(container: &mut Value, index: &str) {
    let Some(fields) = container.as_object_mut() else { return };
    if let Some(variables) = fields.entry("env").or_insert_with(|| json!([])).as_array_mut() {
        variables.retain(|variable| !INDEX.contains(&text_at(variable, "/name")));
        variables.splice(0..0, INDEX.map(|name| json!({"name": name, "value": index})));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::slurm::SlurmRun;
    use crate::render::{JobFlags, render};
    use crate::script::{Carrier, Script};

    fn flags(change: impl FnOnce(&mut JobFlags)) -> Value {
        let mut flags = JobFlags {
            name: Some("sweep".to_owned()),
            namespace: Some("team".to_owned()),
            queue: Some("research".to_owned()),
            cpu: Some("500m".to_owned()),
            memory: Some("64Mi".to_owned()),
            command: ["sleep", "1"].map(str::to_owned).to_vec(),
            ..JobFlags::default()
        };
        change(&mut flags);
        serde_json::to_value(render(&flags).unwrap()).unwrap()
    }

    #[test]
    fn each_pod_is_a_job_of_its_own() {
        let job = flags(|flags| (flags.replicas, flags.min_available) = (Some(3), Some(1)));
        let Submission { items, batch } = items(&job, "k").unwrap();
        assert_eq!((items.len(), batch), (3, ITEMS_MAX));
        let ids: Vec<&str> = items.iter().map(|item| item.client_id.as_str()).collect();
        assert_eq!(ids, ["k.0", "k.1", "k.2"]);
        let pod = items[2].pod_specs[0].to_json().unwrap();
        let container = &pod["containers"][0];
        assert_eq!(container["env"][1], json!({"name": "VC_TASK_INDEX", "value": "2"}));
        let amounts = json!({"cpu": "500m", "memory": "64Mi"});
        assert_eq!((&container["resources"]["limits"], &container["resources"]["requests"]), (&amounts, &amounts));
        assert_eq!(items[2].annotations[TASK_INDEX], "2");
        assert!(!items[2].annotations.contains_key(MANIFEST) && !items[2].annotations.contains_key(GANG_ID));
        let kept: Value = serde_json::from_str(&items[0].annotations[MANIFEST]).unwrap();
        assert_eq!((&kept["spec"], &kept["metadata"]["name"]), (&job["spec"], &json!("sweep")));
    }

    #[test]
    fn pods_that_start_together_are_a_gang_in_one_request() {
        let Submission { items, batch } = items(&flags(|flags| flags.replicas = Some(3)), "k").unwrap();
        assert_eq!(batch, GANG_MAX);
        assert!(items.iter().all(|item| item.annotations[GANG_ID] == "k" && item.annotations[GANG_CARDINALITY] == "3"));
    }

    #[test]
    fn what_is_to_be_done_about_failures_is_on_each_pod() {
        let job = flags(|flags| {
            (flags.replicas, flags.min_available, flags.retries) = (Some(2), Some(1), Some(3));
            flags.on_oom = Some("factor=2,max=1Gi".to_owned());
        });
        for item in items(&job, "k").unwrap().items {
            let said = [RETRIES, ON_OOM].map(|name| item.annotations.get(name).map(String::as_str));
            assert_eq!(said, [Some("3"), Some("factor=2,ceiling=1Gi")]);
        }
        // A field of the task goes before its annotation, and the task's rule before the Job's.
        let mut job = job;
        let task = &mut job["spec"]["tasks"][0];
        task["retries"] = json!(1);
        task["template"]["metadata"]["annotations"][ON_OOM] = json!("step=1Gi");
        let item = items(&job, "k").unwrap().items.remove(0);
        assert_eq!((item.annotations[RETRIES].as_str(), item.annotations[ON_OOM].as_str()), ("1", "step=1Gi"));
        job["metadata"]["annotations"][ON_OOM] = json!("off");
        assert_eq!(items(&job, "k").unwrap().items.remove(0).annotations[ON_OOM], "off", "whatever its tasks say");
    }

    fn with_script(flags: &mut JobFlags, text: &str) {
        let script = Script::read("dir/work.py", text.as_bytes(), "t".to_owned(), Carrier::Annotation).unwrap();
        (flags.script, flags.command) = (Some(script), vec!["--fast".to_owned()]);
    }

    #[test]
    fn a_script_is_in_each_pod_and_in_what_a_retry_is_made_of() {
        let text = "#!/usr/bin/env python3\nprint(\"{'$'} é $(HOME)\")\n";
        for (gang, pods) in [(1, 3), (2, 1)] {
            let job = flags(|flags| {
                with_script(flags, text);
                (flags.replicas, flags.min_available) = (Some(3), Some(gang));
            });
            let asked = items(&job, "k").unwrap();
            assert_eq!(asked.items.len(), pods);
            let kept: Value = serde_json::from_str(&asked.items[0].annotations[MANIFEST]).unwrap();
            assert_eq!(kept["spec"], job["spec"], "which is all that a retry has");
            assert_eq!(kept["spec"]["tasks"][0]["template"]["metadata"]["annotations"][SCRIPT], text);
            let Some(pod) = asked.items.last().unwrap().pod_specs.first() else { continue };
            assert_eq!(asked.items.last().unwrap().annotations[SCRIPT], text);
            let pod = pod.to_json().unwrap();
            insta::assert_yaml_snapshot!(json!([
                pod["volumes"],
                pod["containers"][0]["volumeMounts"],
                pod["containers"][0]["command"]
            ]));
        }
    }

    #[test]
    fn a_script_of_slurm_finds_its_variables_in_each_pod() {
        let job = flags(|flags| {
            with_script(flags, "#!/bin/sh\n#SBATCH -n 1\n");
            (flags.replicas, flags.min_available) = (Some(3), Some(1));
            flags.slurm = Some(SlurmRun { job_name: "My Job".to_owned(), ..SlurmRun::default() });
        });
        let last = items(&job, "k").unwrap().items.pop().unwrap();
        assert_eq!(last.annotations[TASK_INDEX], "2", "which is where a pod of a fleet has its index");
        let pod = last.pod_specs[0].to_json().unwrap();
        let variable = |name: &str| {
            let all = pod["containers"][0]["env"].as_array().unwrap();
            all.iter().find(|variable| variable["name"] == name).cloned().unwrap()
        };
        assert_eq!(variable("SLURM_JOB_NAME")["value"], "My Job");
        let field = |name: &str| variable(name)["valueFrom"]["fieldRef"]["fieldPath"].clone();
        assert_eq!(field("SLURM_NODEID"), json!(format!("metadata.annotations['{TASK_INDEX}']")));
        assert_eq!(field("SLURMD_NODENAME"), "spec.nodeName");
    }

    #[test]
    fn requests_are_no_larger_than_a_server_takes() {
        let text = format!("#!/bin/sh\n{}\n", "x".repeat(60_000));
        let job = |gang: u32| {
            flags(|flags| {
                with_script(flags, &text);
                (flags.replicas, flags.min_available) = (Some(2_000), Some(gang));
            })
        };
        let asked = items(&job(1), "k").unwrap();
        let largest = asked.items.chunks(asked.batch).map(|items| items.iter().map(size).sum::<usize>()).max().unwrap();
        assert!((8 << 20..=BATCH_BYTES).contains(&largest), "{largest}");
        let refused = items(&job(2_000), "k").unwrap_err();
        assert!(refused.message.contains("these 2000 have 11"), "{}", refused.message);
    }

    #[test]
    fn what_a_fleet_does_not_do_is_refused_by_its_name() {
        let refused = |job: &Value| items(job, "k").expect_err("refused").message;
        let mut said = Vec::new();
        said.push(refused(&flags(|flags| flags.max_parallel = Some(1))));
        said.push(refused(&flags(|flags| flags.after = vec!["ok:other".to_owned()])));
        said.push(refused(&flags(|flags| flags.deadline = Some("2026-12-01T00:00:00Z".to_owned()))));
        said.push(refused(&flags(|flags| flags.replicas = Some(20_000))));
        said.push(refused(&flags(|flags| (flags.cpu, flags.memory) = (None, None))));
        said.push(refused(&flags(|flags| with_script(flags, "#!/bin/sh\necho ${JobId}\n"))));
        let mut job = flags(|_| ());
        job["spec"]["minAvailible"] = json!(1);
        said.push(refused(&job));
        let mut job = flags(|_| ());
        job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["comand"] = json!(["x"]);
        said.push(refused(&job));
        let mut job = flags(|_| ());
        job["metadata"]["annotations"] = json!({"a": "x".repeat(MANIFEST_BYTES_MAX)});
        said.push(refused(&job));
        insta::assert_snapshot!(said.join("\n"));
    }
}
