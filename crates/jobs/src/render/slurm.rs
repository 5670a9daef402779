//! The variables that Slurm sets, in the pods of scripts that were written for it.
//!
//! Slurm numbers its jobs, and scripts reckon with the number, so each job gets one: it is above all that Slurm gives, and fits into
//! 32 bits. A run of an array has its own, counted on from that of the array, as in Slurm; `jobctl shard exec` sets it.
//!
//! Invariant: what is set is true of the pod: the processors, memory and GPUs are those that it asks for, whatever lines say.

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, ObjectFieldSelector};
use pumice_api::names::TASK_INDEX;
use pumice_units::{Quantity, stable_hash};
use serde_json::{Value, json};

use super::pod::literal;
use super::{JobFlags, ShardRun};
use crate::json::text_at;
use crate::shards::{Kind, Shards};

/// The number of a job, or of a run of an array.
pub const JOB_ID: [&str; 2] = ["SLURM_JOB_ID", "SLURM_JOBID"];
/// The number of an array.
pub const ARRAY_JOB_ID: &str = "SLURM_ARRAY_JOB_ID";
/// Which run of its array this is; set by `jobctl shard exec`.
pub const ARRAY_TASK_ID: &str = "SLURM_ARRAY_TASK_ID";
/// Who submitted from where: no part of what is asked for.
pub(crate) const SUBMITTER: [&str; 2] = ["SLURM_SUBMIT_HOST", "SLURM_JOB_USER"];

/// The least number of a job, above all that Slurm gives, and how many there are. With the records of an array it stays in 31 bits.
const NUMBER_MIN: u64 = 100_000_000;
const NUMBERS: u64 = 2_000_000_000;
/// The name of the queue.
const PARTITION: &str = "SLURM_JOB_PARTITION";
/// The queue of jobs that name none.
const DEFAULT_QUEUE: &str = "default";
/// A folder of a pod that goes with it.
const TMPDIR: &str = "/tmp";

/// What a script of Slurm is to find of where it was submitted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SlurmRun {
    /// What makes the job's number: a text that no other job has.
    pub tag: String,
    /// The job's name, as the script has it.
    pub job_name: String,
    /// Tasks that the script may start in its pod, from 1.
    pub tasks: u64,
    /// The folder that it was submitted from, where pods see it.
    pub directory: Option<String>,
    /// The machine that it was submitted from.
    pub host: Option<String>,
    pub user: Option<String>,
    /// Whether it starts processes of MPI.
    pub mpi: bool,
}

/// The number that stands for a job.
fn number(tag: &str) -> u64 {
    NUMBER_MIN + stable_hash(tag.bytes()) % NUMBERS
}

/// All that are set when the pod starts.
pub(super) fn variables(flags: &JobFlags, run: &SlurmRun) -> Vec<EnvVar> {
    let mut own = Variables::default();
    let pods = match flags.replicas {
        Some(replicas) if flags.shards.is_none() => u64::from(replicas).max(1),
        _ => 1,
    };
    let tasks = run.tasks.max(1);
    let number = number(&run.tag);
    JOB_ID.iter().for_each(|name| own.set(name, number));
    own.set("SLURM_JOB_NAME", &run.job_name);
    own.set(PARTITION, flags.queue.as_deref().unwrap_or(DEFAULT_QUEUE));
    own.set_if("SLURM_SUBMIT_DIR", run.directory.as_ref());
    own.set_if("SLURM_SUBMIT_HOST", run.host.as_ref());
    own.set_if("SLURM_JOB_USER", run.user.as_ref());
    own.set("SLURM_TMPDIR", TMPDIR);

    let cpus = flags.cpu.as_deref().and_then(whole).unwrap_or(tasks).max(1);
    own.set("SLURM_CPUS_ON_NODE", cpus);
    own.set("SLURM_CPUS_PER_TASK", (cpus / tasks).max(1));
    own.set("SLURM_JOB_CPUS_PER_NODE", on_each(cpus, pods));
    own.set("SLURM_NTASKS", tasks * pods);
    own.set("SLURM_NPROCS", tasks * pods);
    own.set("SLURM_NTASKS_PER_NODE", tasks);
    own.set("SLURM_TASKS_PER_NODE", on_each(tasks, pods));
    own.set("SLURM_JOB_NUM_NODES", pods);
    own.set("SLURM_NNODES", pods);
    own.set("SLURM_LOCALID", 0);
    own.field("SLURMD_NODENAME", "spec.nodeName");
    if pods == 1 {
        own.set("SLURM_NODEID", 0);
        own.set("SLURM_PROCID", 0);
        // The host name of a pod is its own name, which programs that start processes look for in the list of nodes.
        own.field("SLURM_JOB_NODELIST", "metadata.name");
        own.field("SLURM_NODELIST", "metadata.name");
    } else {
        let index = format!("metadata.annotations['{TASK_INDEX}']");
        own.field("SLURM_NODEID", &index);
        if tasks == 1 {
            own.field("SLURM_PROCID", &index);
        }
    }

    let memory = flags.memory.as_deref().and_then(whole).map(|bytes| bytes >> 20);
    own.set_if("SLURM_MEM_PER_NODE", memory);
    own.set_if("SLURM_MEM_PER_CPU", memory.map(|memory| memory / cpus));
    if let Some(gpus) = flags.gpu {
        ["SLURM_GPUS", "SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"].iter().for_each(|name| own.set(name, gpus));
        let each = u64::from(gpus) / tasks;
        own.set_if("SLURM_GPUS_PER_TASK", Some(each).filter(|each| *each > 0));
        let gpus = u64::from(gpus.max(1));
        own.set("SLURM_CPUS_PER_GPU", (cpus / gpus).max(1));
        own.set_if("SLURM_MEM_PER_GPU", memory.map(|memory| memory / gpus));
    }
    if let Some(ShardRun { plan, .. }) = flags.shards.as_ref().filter(|run| run.plan.shards().kind() == Kind::Array) {
        own.set(ARRAY_JOB_ID, number);
        own.set("SLURM_ARRAY_TASK_COUNT", plan.shards().len());
        if let Shards::Numbers(numbers) = plan.shards() {
            own.set_if("SLURM_ARRAY_TASK_MIN", numbers.first());
            own.set_if("SLURM_ARRAY_TASK_MAX", numbers.last());
            own.set("SLURM_ARRAY_TASK_STEP", numbers.step());
        }
    }
    if run.mpi {
        // These start processes by srun where they see that Slurm runs, and it does not.
        own.set("HYDRA_LAUNCHER", "fork");
        own.set("I_MPI_HYDRA_BOOTSTRAP", "fork");
    }
    own.all
}

/// The variables of a run of an array that are another for each, where its pod has those of Slurm.
#[must_use]
pub fn of_array_task(array_job_id: &str, index: u32) -> Vec<(String, String)> {
    let number = array_job_id.parse::<u64>().ok().map(|number| number.saturating_add(u64::from(index)).to_string());
    JOB_ID.iter().filter_map(|name| Some(((*name).to_owned(), number.clone()?))).collect()
}

/// Gives the pods of a job that is submitted again another number.
pub(crate) fn renumber(spec: &mut Value, job: &str) {
    for variable in variables_mut(spec) {
        let name = text_at(variable, "/name");
        if name == ARRAY_JOB_ID || JOB_ID.contains(&name) {
            let tag = format!("{} {job}", text_at(variable, "/value"));
            variable["value"] = json!(number(&tag).to_string());
        }
    }
}

/// Sends a job to the queue of jobs that name none.
pub fn to_default_queue(spec: &mut Value) {
    if let Some(fields) = spec.as_object_mut() {
        fields.remove("queue");
    }
    for variable in variables_mut(spec).filter(|variable| text_at(variable, "/name") == PARTITION) {
        variable["value"] = json!(DEFAULT_QUEUE);
    }
}

/// The variables of all containers.
fn variables_mut(spec: &mut Value) -> impl Iterator<Item = &mut Value> {
    let tasks = spec.get_mut("tasks").and_then(Value::as_array_mut).into_iter().flatten();
    let containers = tasks.filter_map(|task| task.pointer_mut("/template/spec/containers")?.as_array_mut()).flatten();
    containers.filter_map(|container| container.get_mut("env")?.as_array_mut()).flatten()
}

/// `4`, and `4(x3)` where each of three pods has as many.
fn on_each(count: u64, pods: u64) -> String {
    if pods == 1 { count.to_string() } else { format!("{count}(x{pods})") }
}

/// The whole units of a quantity.
fn whole(text: &str) -> Option<u64> {
    let nanos = text.parse::<Quantity>().ok()?.nanos();
    u64::try_from(nanos / Quantity::from_units(1).nanos()).ok()
}

#[derive(Default)]
struct Variables {
    all: Vec<EnvVar>,
}

impl Variables {
    fn set(&mut self, name: &str, value: impl ToString) {
        let value = Some(literal(&value.to_string()));
        self.all.push(EnvVar { name: name.to_owned(), value, ..EnvVar::default() });
    }

    fn set_if(&mut self, name: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.set(name, value);
        }
    }

    fn field(&mut self, name: &str, path: &str) {
        let field = ObjectFieldSelector { field_path: path.to_owned(), ..ObjectFieldSelector::default() };
        let source = EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() };
        self.all.push(EnvVar { name: name.to_owned(), value_from: Some(source), ..EnvVar::default() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shards::{Array, Plan};

    fn told(change: impl FnOnce(&mut JobFlags, &mut SlurmRun)) -> String {
        let mut flags = JobFlags::default();
        let mut run = SlurmRun { tag: "t".to_owned(), job_name: "My Job".to_owned(), tasks: 1, ..SlurmRun::default() };
        change(&mut flags, &mut run);
        let line = |variable: EnvVar| match (variable.value, variable.value_from) {
            (Some(value), _) => format!("{}={value}\n", variable.name),
            (None, source) => format!("{} <- {}\n", variable.name, source.unwrap().field_ref.unwrap().field_path),
        };
        variables(&flags, &run).into_iter().map(line).collect()
    }

    #[test]
    fn variables_of_pods() {
        let array = |text: &str| {
            let Array { numbers, .. } = text.parse().unwrap();
            let plan = Plan::new(Shards::Numbers(numbers), 1).unwrap();
            Some(ShardRun { plan, jobctl: "jobctl".to_owned(), bundle: None })
        };
        let all = [
            ("nothing asked for", told(|_, _| {})),
            (
                "four tasks, GPUs, memory",
                told(|flags, run| {
                    (flags.cpu, flags.memory, flags.gpu) = (Some("8".into()), Some("4097Mi".into()), Some(4));
                    flags.queue = Some("research".into());
                    (run.tasks, run.mpi) = (4, true);
                    run.directory = Some("/home/ada/$(x)".into());
                    (run.host, run.user) = (Some("login1".into()), Some("ada".into()));
                }),
            ),
            ("an array", told(|flags, _| flags.shards = array("1-9:2"))),
            (
                "several pods",
                told(|flags, run| (flags.replicas, flags.cpu, run.tasks) = (Some(3), Some("1500m".into()), 1)),
            ),
        ];
        let all: Vec<_> = all.into_iter().map(|(what, told)| format!("{what}\n{told}")).collect();
        insta::assert_snapshot!(all.join("\n"));
    }

    #[test]
    fn numbers_are_numbers_and_those_of_two_jobs_differ() {
        let all: std::collections::BTreeSet<_> = (0..10_000).map(|tag| number(&tag.to_string())).collect();
        assert!(all.len() > 9_990, "{}", all.len());
        assert!(*all.first().unwrap() >= NUMBER_MIN && all.last().unwrap() + 10_000_000 < 1 << 31);
        assert_eq!(of_array_task("100000007", 3)[0], ("SLURM_JOB_ID".to_owned(), "100000010".to_owned()));
        assert!(of_array_task("x", 3).is_empty());
    }

    #[test]
    fn a_job_that_is_submitted_again_gets_another_number() {
        let spec = |id: &str| {
            let env = json!([{"name": "SLURM_JOB_ID", "value": id}, {"name": "A", "value": "1"}]);
            json!({"tasks": [{"template": {"spec": {"containers": [{"env": env}]}}}]})
        };
        let mut again = spec("100000007");
        renumber(&mut again, "x-r2");
        let value = again.pointer("/tasks/0/template/spec/containers/0/env/0/value").unwrap().clone();
        assert_ne!(value, "100000007");
        assert_eq!(again, spec(value.as_str().unwrap()), "and nothing else is another");
        renumber(&mut json!({}), "x");
        let env = json!([{"name": "SLURM_JOB_PARTITION", "value": "gpu"}]);
        let mut moved = json!({"queue": "gpu", "tasks": [{"template": {"spec": {"containers": [{"env": env}]}}}]});
        to_default_queue(&mut moved);
        assert_eq!(
            (moved.get("queue"), &moved["tasks"][0]["template"]["spec"]["containers"][0]["env"][0]["value"]),
            (None, &json!("default"))
        );
    }
}
