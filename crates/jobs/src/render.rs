//! From flags to a Volcano Job, purely.
//!
//! Invariant: the Job that comes out passes Volcano's admission if the flags are sane; what is not
//! sane is refused here with the flag's name. Called by `jobctl run` and `submit`, and by Python.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, EnvVar, HostPathVolumeSource, PodSpec, PodTemplateSpec, ResourceRequirements, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pumice_api::batch::{Action, Event, Job, JobSpec, LifecyclePolicy, TaskSpec};

use crate::names::{self, NameError};

/// The image of a container that runs the host's own programs.
///
/// Kubernetes wants an image in every container; the process runtime of one machine needs none. This
/// name stands for "the host's file system" and is never pulled.
pub const HOST_IMAGE: &str = "pumice.sh/host";
/// The task of a rendered Job, so its hosts are in `/etc/volcano/main.host`.
pub const TASK: &str = "main";
/// The volume of a working directory that is this machine's own.
const WORKDIR_VOLUME: &str = "workdir";
/// The most characters of a Job's name: pod names append the task and an index and must stay within 63.
pub const NAME_MAX: usize = 45;
/// The most pods of a Job, as the platform allows them.
pub const REPLICAS_MAX: u32 = 100_000;

/// What a user may say on the command line or from Python.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JobFlags {
    /// The Job's name; generated from the command's if `None`.
    pub name: Option<String>,
    /// The namespace; the connection's if `None`.
    pub namespace: Option<String>,
    /// Number of pods; 1 if `None`.
    pub replicas: Option<u32>,
    /// CPU of each pod, as a quantity.
    pub cpu: Option<String>,
    /// Memory of each pod, as a quantity.
    pub memory: Option<String>,
    /// The queue; the server's default if `None`.
    pub queue: Option<String>,
    /// Image; [`HOST_IMAGE`] if `None`.
    pub image: Option<String>,
    /// Environment variables.
    pub env: Vec<(String, String)>,
    /// Absolute working directory.
    pub workdir: Option<String>,
    /// The platform runs on this machine: the working directory is this machine's own, and what pods write there stays.
    pub share_workdir: bool,
    /// Pods that must run together; all of them if `None`.
    pub min_available: Option<u32>,
    /// Runs the whole job again when a pod fails, until it ran this many times.
    pub max_retry: Option<u32>,
    /// The priority class.
    pub priority_class: Option<String>,
    /// The program and its arguments.
    pub command: Vec<String>,
}

/// Flags that make no Job.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum RenderError {
    /// No program.
    #[error("no command: name it after `--`, as in `jobctl run -- python train.py`")]
    NoCommand,
    /// A name that is none.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A job's name that can't name its Service.
    #[error("--name {name:?} is not valid: use lower case letters, digits and '-', and begin with a letter")]
    ServiceName {
        /// The name.
        name: String,
    },
    /// Not a quantity, or not positive.
    #[error("{flag} {value:?} is not a positive quantity such as 500m, 2 or 1Gi")]
    Quantity {
        /// The flag.
        flag: &'static str,
        /// What it was given.
        value: String,
    },
    /// A number out of range.
    #[error("{flag} {value} is not within {min} to {max}")]
    Range {
        /// The flag.
        flag: &'static str,
        /// What it was given.
        value: u32,
        /// The least.
        min: u32,
        /// The most.
        max: u32,
    },
    /// An environment variable's name.
    #[error("--env {name:?} is not a variable's name: no '=' and no control characters in it")]
    EnvName {
        /// The name.
        name: String,
    },
    /// A relative directory.
    #[error("--workdir {path:?} is not an absolute path")]
    Workdir {
        /// The path.
        path: String,
    },
}

/// Renders the Job. Deterministic: without a name the server generates one from `generateName`.
pub fn render(flags: &JobFlags) -> Result<Job, RenderError> {
    let program = flags.command.first().filter(|p| !p.is_empty()).ok_or(RenderError::NoCommand)?;
    let replicas = in_range("--replicas", flags.replicas.unwrap_or(1), 1, REPLICAS_MAX)?;
    let min_available = match flags.min_available {
        Some(n) => in_range("--min-available", n, 1, flags.replicas.unwrap_or(1))?,
        None => replicas,
    };
    // Volcano reads 0 as "not said", which is 3.
    let max_retry = flags.max_retry.map(|n| in_range("--max-retry", n, 1, 1000)).transpose()?;
    let restart = max_retry.map(|_| LifecyclePolicy {
        event: Some(Event::PodFailed),
        action: Some(Action::RestartJob),
        ..LifecyclePolicy::default()
    });
    Ok(Job {
        metadata: metadata(flags, program)?,
        spec: JobSpec {
            queue: checked("queue", flags.queue.as_deref(), 253)?.unwrap_or_default(),
            min_available,
            max_retry: max_retry.unwrap_or_default(),
            policies: restart.into_iter().collect(),
            priority_class_name: checked("priority class", flags.priority_class.as_deref(), 253)?.unwrap_or_default(),
            plugins: BTreeMap::from([("env".to_owned(), vec![]), ("svc".to_owned(), vec![])]),
            tasks: vec![TaskSpec {
                name: TASK.to_owned(),
                replicas,
                template: template(flags)?,
                ..TaskSpec::default()
            }],
            ..JobSpec::default()
        },
        ..Job::default()
    })
}

fn metadata(flags: &JobFlags, program: &str) -> Result<ObjectMeta, RenderError> {
    let mut metadata = ObjectMeta {
        name: checked("job name", flags.name.as_deref(), NAME_MAX)?,
        namespace: checked("namespace", flags.namespace.as_deref(), 63)?,
        ..ObjectMeta::default()
    };
    // Pods find each other by a Service of the job's name, which is one label.
    if let Some(name) = metadata.name.as_ref().filter(|name| !is_service_name(name)) {
        return Err(RenderError::ServiceName { name: name.clone() });
    }
    if metadata.name.is_none() {
        let file_name = program.rsplit('/').next().unwrap_or(program);
        // Six characters are left for the server's suffix.
        let stem = names::from_text(file_name, NAME_MAX - 6 - 4);
        let front = if is_service_name(&stem) { "" } else { "job-" };
        metadata.generate_name = Some(format!("{front}{stem}-"));
    }
    Ok(metadata)
}

/// Of names that are valid for a job: whether a Service can have it.
fn is_service_name(name: &str) -> bool {
    !name.contains('.') && !name.starts_with(|c: char| c.is_ascii_digit())
}

fn template(flags: &JobFlags) -> Result<PodTemplateSpec, RenderError> {
    let mut requests = BTreeMap::new();
    for (flag, resource, value) in [("--cpu", "cpu", &flags.cpu), ("--memory", "memory", &flags.memory)] {
        if let Some(value) = value {
            requests.insert(resource.to_owned(), quantity(flag, value)?);
        }
    }
    // A limit on memory as asked for, so that a runaway program is stopped and not its neighbour.
    let limits: BTreeMap<_, _> =
        requests.iter().filter(|(k, _)| *k == "memory").map(|(k, v)| (k.clone(), v.clone())).collect();
    let resources = (!requests.is_empty()).then(|| ResourceRequirements {
        requests: Some(requests),
        limits: (!limits.is_empty()).then_some(limits),
        ..ResourceRequirements::default()
    });
    if let Some(path) = flags.workdir.as_deref().filter(|path| !path.starts_with('/')) {
        return Err(RenderError::Workdir { path: path.to_owned() });
    }
    // The root itself can't be laid over the root.
    let shared = flags.workdir.clone().filter(|path| flags.share_workdir && !path.trim_matches('/').is_empty());
    let mount = |path: &String| VolumeMount {
        name: WORKDIR_VOLUME.to_owned(),
        mount_path: path.clone(),
        ..VolumeMount::default()
    };
    let volume = |path: String| Volume {
        name: WORKDIR_VOLUME.to_owned(),
        host_path: Some(HostPathVolumeSource { path, type_: Some("Directory".to_owned()) }),
        ..Volume::default()
    };
    let container = Container {
        name: TASK.to_owned(),
        image: Some(flags.image.clone().unwrap_or_else(|| HOST_IMAGE.to_owned())),
        command: Some(flags.command.iter().map(|word| literal(word)).collect()),
        env: env(flags)?,
        working_dir: flags.workdir.clone(),
        resources,
        volume_mounts: shared.as_ref().map(|path| vec![mount(path)]),
        ..Container::default()
    };
    Ok(PodTemplateSpec {
        metadata: None,
        spec: Some(PodSpec {
            containers: vec![container],
            restart_policy: Some("Never".to_owned()),
            volumes: shared.map(|path| vec![volume(path)]),
            ..PodSpec::default()
        }),
    })
}

/// A variable said twice keeps its last value, as in a shell.
fn env(flags: &JobFlags) -> Result<Option<Vec<EnvVar>>, RenderError> {
    let mut variables: Vec<EnvVar> = Vec::new();
    for (name, value) in &flags.env {
        if name.is_empty() || name.contains(|c: char| c == '=' || c.is_control()) {
            return Err(RenderError::EnvName { name: name.clone() });
        }
        let variable = EnvVar { name: name.clone(), value: Some(literal(value)), ..EnvVar::default() };
        match variables.iter_mut().find(|known| known.name == *name) {
            Some(known) => *known = variable,
            None => variables.push(variable),
        }
    }
    Ok((!variables.is_empty()).then_some(variables))
}

/// Writes a text so that it reaches the process as it is: in commands and values of variables
/// Kubernetes replaces `$(NAME)` and reads `$$` as `$`, which would break `sh -c 'kill $$'`.
fn literal(text: &str) -> String {
    if text.contains("$(") || text.contains("$$") { text.replace('$', "$$") } else { text.to_owned() }
}

fn checked(what: &'static str, name: Option<&str>, max: usize) -> Result<Option<String>, RenderError> {
    name.map(|name| names::check(what, name, max).map(|()| name.to_owned())).transpose().map_err(Into::into)
}

fn in_range(flag: &'static str, value: u32, min: u32, max: u32) -> Result<i32, RenderError> {
    i32::try_from(value).ok().filter(|_| (min..=max).contains(&value)).ok_or(RenderError::Range {
        flag,
        value,
        min,
        max,
    })
}

fn quantity(flag: &'static str, value: &str) -> Result<Quantity, RenderError> {
    value
        .parse::<pumice_units::Quantity>()
        .ok()
        .filter(|quantity| !quantity.is_negative() && !quantity.is_zero())
        .map(|_| Quantity(value.to_owned()))
        .ok_or_else(|| RenderError::Quantity { flag, value: value.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::literal;

    /// Kubernetes' rule for a text that names no known variable.
    fn expanded(text: &str) -> String {
        let mut expanded = String::new();
        let mut characters = text.chars().peekable();
        while let Some(character) = characters.next() {
            expanded.push(character);
            if character == '$' && characters.peek() == Some(&'$') {
                characters.next();
            }
        }
        expanded
    }

    #[test]
    fn words_reach_the_process_as_typed() {
        for text in
            ["plain", "$HOME", "kill -TERM $$", "$(date)", "echo $$(A)", "$", "a$", "$$$", "$((1 + $$))", "é$(x"]
        {
            let written = literal(text);
            assert_eq!(expanded(&written), text, "{written}");
            assert!(!written.replace("$$", "").contains("$("), "{written}: nothing is left to replace");
        }
        assert_eq!(literal("echo $HOME"), "echo $HOME", "what needs no care stays readable");
    }
}
