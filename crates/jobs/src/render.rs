//! From flags to a Volcano Job, purely.
//!
//! Invariant: the Job that comes out passes Volcano's admission if the flags are sane; what is not
//! sane is refused here with the flag's name. Called by `jobctl run` and `submit`, and by Python.

use std::time::Duration;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use pumice_api::batch::{Action, Event, Job, JobSpec, LifecyclePolicy, TaskSpec};

use crate::job::REPLICAS_MAX;
use crate::names;
use crate::render::links::Link;
use crate::script::Script;
use counts::{Counts, in_range};

mod amounts;
mod counts;
mod error;
pub mod links;
mod metadata;
mod pod;
mod rules;
mod script;
mod shards;
pub mod slurm;
mod volumes;

pub use amounts::parse_memory;
pub use error::RenderError;
pub(crate) use pod::is_default;
pub use script::config_map;
pub use shards::{RULE_VARIABLE, ShardRun};

/// The task of a rendered Job, so its hosts are in `/etc/volcano/main.host`.
pub const TASK: &str = "main";
/// The most characters of a Job's name: pod names append the task and an index and must stay within 63.
pub const NAME_MAX: usize = 45;
/// What a user may say on the command line or from Python.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JobFlags {
    /// The Job's name; generated from the command's if `None`.
    pub name: Option<String>,
    /// What a generated name begins with; made of the command's if `None`.
    pub name_stem: Option<String>,
    /// The namespace; the connection's if `None`.
    pub namespace: Option<String>,
    /// Labels of the Job and of its pods.
    pub labels: Vec<(String, String)>,
    /// Submitting the same again under this key gives the same job.
    pub idempotency_key: Option<String>,
    /// The queue; the server's default if `None`.
    pub queue: Option<String>,
    /// The zone whose nodes may run it.
    pub zone: Option<String>,
    pub priority_class: Option<String>,
    /// When it is to have ended, as RFC 3339.
    pub deadline: Option<String>,
    /// Jobs to wait for, as `ok:JOB`, `any:JOB` or `failed:JOB`, also several with commas.
    pub after: Vec<String>,
    /// Records that the pods share; there is a pod for each slice of them.
    pub shards: Option<ShardRun>,
    /// Number of pods; 1 if `None`. Excludes `shards`.
    pub replicas: Option<u32>,
    /// All pods must run together, also those of shards.
    pub gang: bool,
    /// Pods that must run together; if `None` all of them, or 1 of pods that go one by one (shards, `max_parallel`).
    pub min_available: Option<u32>,
    /// The most pods at a time.
    pub max_parallel: Option<u32>,
    /// Successes that complete the job, as a number or a percentage.
    pub min_success: Option<String>,
    /// How often a failed pod of one index is made again; the others run on.
    pub retries: Option<u32>,
    /// Runs the whole job again when a pod fails, until it ran this many times.
    pub max_retry: Option<u32>,
    /// `factor=1.5,max=64Gi,tries=3` or `off`.
    pub on_oom: Option<String>,
    /// How long a pod may run.
    pub timeout: Option<Duration>,
    /// `TERM@SECONDS`: how long a pod has between the signal and the kill.
    pub signal: Option<String>,
    /// CPU of each pod, as a quantity.
    pub cpu: Option<String>,
    /// Memory of each pod, as a quantity.
    pub memory: Option<String>,
    /// GPUs of each pod.
    pub gpu: Option<u32>,
    /// Image; [`pumice_api::names::HOST_IMAGE`] if `None`.
    pub image: Option<String>,
    pub env: Vec<(String, String)>,
    /// `HOST:POD[:ro]` or `claim:NAME:POD[:ro]`, with absolute paths.
    pub volumes: Vec<String>,
    /// Absolute working directory.
    pub workdir: Option<String>,
    /// The platform runs on this machine: the working directory is this machine's own, and what pods write there stays.
    pub share_workdir: bool,
    /// Where links of the working directory lead that the pods are to share.
    pub linked: Vec<Link>,
    /// A script that travels with the job; `command` is its arguments then. Its [`config_map`] must be submitted, too, if it has one.
    pub script: Option<Script>,
    /// What the script finds of Slurm, if it was written for it.
    pub slurm: Option<slurm::SlurmRun>,
    /// The program and its arguments.
    pub command: Vec<String>,
}

/// Renders the Job. Deterministic: without a name the server generates one from `generateName`.
pub fn render(flags: &JobFlags) -> Result<Job, RenderError> {
    let program = match &flags.script {
        Some(script) => &script.file_name,
        None => flags.command.first().filter(|p| !p.is_empty()).ok_or(RenderError::NoCommand)?,
    };
    let counts = counts(flags)?;
    // Volcano reads 0 as "not said", which is 3.
    let max_retry = flags.max_retry.map(|n| in_range("--max-retry", n, 1, 1000)).transpose()?;
    if max_retry.is_some() && flags.retries.is_some() {
        let problem = "the one runs the whole job again, the other just the pod that failed; leave one out";
        return Err(RenderError::Together { flags: "--max-retry and --retries", problem });
    }
    let restart = max_retry.map(|_| LifecyclePolicy {
        event: Some(Event::PodFailed),
        action: Some(Action::RestartJob),
        ..LifecyclePolicy::default()
    });
    Ok(Job {
        metadata: metadata::of_job(flags, program)?,
        spec: JobSpec {
            queue: checked("--queue", flags.queue.as_deref(), 253)?.unwrap_or_default(),
            min_available: counts.min_available,
            min_success: counts.min_success,
            max_retry: max_retry.unwrap_or_default(),
            policies: restart.into_iter().collect(),
            priority_class_name: checked("--priority", flags.priority_class.as_deref(), 253)?.unwrap_or_default(),
            plugins: counts.plugins().map(|name| (name.to_owned(), vec![])).collect(),
            tasks: vec![TaskSpec {
                name: TASK.to_owned(),
                replicas: counts.replicas,
                template: PodTemplateSpec {
                    metadata: metadata::of_pods(flags, &counts)?,
                    spec: Some(pod::spec(flags)?),
                },
                ..TaskSpec::default()
            }],
            ..JobSpec::default()
        },
        ..Job::default()
    })
}

fn counts(flags: &JobFlags) -> Result<Counts, RenderError> {
    let pods = match (&flags.shards, flags.replicas) {
        (Some(_), Some(_)) => {
            let problem = "each shard is a pod, so their number is known; leave --replicas out";
            return Err(RenderError::Together { flags: "--replicas and shards", problem });
        }
        (Some(shards), None) => shards.pods(),
        (None, replicas) => replicas.unwrap_or(1),
    };
    let replicas = in_range("--replicas", pods, 1, REPLICAS_MAX)?;
    let max_parallel = flags.max_parallel.map(|n| in_range("--max-parallel", n, 1, REPLICAS_MAX)).transpose()?;
    let one_by_one = (flags.shards.is_some() || max_parallel.is_some()) && !flags.gang;
    let min_available = match flags.min_available {
        Some(n) => in_range("--gang", n, 1, pods)?,
        None if one_by_one => 1,
        None => replicas,
    };
    if max_parallel.is_some_and(|most| most < min_available) {
        let problem = "fewer pods may run than must run together; change one of them";
        return Err(RenderError::Together { flags: "--max-parallel and --gang", problem });
    }
    let min_success = match &flags.min_success {
        Some(text) => Some(counts::min_success(text, replicas)?),
        None => one_by_one.then_some(replicas),
    };
    Ok(Counts { replicas, min_available, min_success, max_parallel, one_by_one })
}

fn checked(what: &'static str, name: Option<&str>, max: usize) -> Result<Option<String>, RenderError> {
    name.map(|name| names::check(what, name, max).map(|()| name.to_owned())).transpose().map_err(Into::into)
}
