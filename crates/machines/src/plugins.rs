//! Job plugins: what `spec.plugins` adds to a job's pods and beside them.
//!
//! Invariant: plugins shape a pod in the order of [`KNOWN`], whatever the order in the manifest; a plugin name we can't honour
//! is an error and never ignored. Called by the Job machine, and by admission, which refuses what the machine could not do.

pub mod env;
pub mod flags;
pub mod hcclrank;
pub mod hosts;
pub mod mpi;
pub mod pytorch;
pub mod ray;
pub mod ssh;
pub mod svc;
pub mod tensorflow;

use k8s_openapi::api::core::v1::{Container, ContainerPort, EnvVar, PodSpec, VolumeMount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pumice_api::batch::{Job, TaskSpec};

use flags::Flag;

/// Names that `spec.plugins` may have, in the order in which plugins shape a pod: hcclrank reads what pytorch has set.
pub const KNOWN: &[&str] = &["env", "svc", "ssh", "tensorflow", "pytorch", "mpi", "ray", "hcclrank"];

/// A plugin with its arguments read.
#[derive(Clone, Debug, PartialEq)]
pub enum Plugin {
    /// The index of the pod in the environment, and which run of it this is.
    Env,
    /// Names and addresses of all pods, and a Service to resolve them.
    Svc(svc::Arguments),
    /// Keys to log in from pod to pod.
    Ssh(ssh::Arguments),
    /// The cluster of a TensorFlow program in the environment.
    Tensorflow(tensorflow::Cluster),
    /// The rendezvous of a PyTorch program in the environment.
    Pytorch(pytorch::Arguments),
    /// The workers' addresses for the master of an MPI program.
    Mpi(mpi::Workers),
    /// A Ray cluster: commands, ports and a Service of its head.
    Ray(ray::Arguments),
    /// Ranks of Ascend devices.
    Hcclrank(hcclrank::Arguments),
}

/// Why a job's plugins can't be honoured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PluginError {
    /// A plugin nobody knows.
    #[error("job plugin {name:?} is unknown; known are {}", KNOWN.join(", "))]
    Unknown {
        /// The name in `spec.plugins`.
        name: String,
    },
    /// Addresses that fit no object or no variable.
    #[error(transparent)]
    Hosts(#[from] hosts::TooManyHosts),
    /// A task that the others depend on.
    #[error("job plugin {plugin} needs a task {task:?}; add it, or name another with --{argument}")]
    NoTask {
        plugin: &'static str,
        /// The task it looks for.
        task: String,
        /// The argument that names it.
        argument: &'static str,
    },
}

/// The pod a plugin is asked about.
#[derive(Clone, Copy, Debug)]
pub struct PodPlace<'a> {
    pub job: &'a Job,
    pub task: &'a TaskSpec,
    pub pod_name: &'a str,
    /// Its index in its task.
    pub index: i32,
    /// Which run of this index it is, from 1.
    pub attempt: i64,
}

/// Reads the plugins of a job, in the order in which they shape a pod.
///
/// Cost: `O(pods)` of a job whose addresses are listed, which is bounded by [`hosts::LISTED_MAX`].
pub fn of_job(job: &Job) -> Result<Vec<Plugin>, PluginError> {
    let asked = &job.spec.plugins;
    if let Some(name) = asked.keys().find(|name| !KNOWN.contains(&name.as_str())) {
        return Err(PluginError::Unknown { name: name.clone() });
    }
    hosts::check_number(job)?;
    let read = |name: &&str| Plugin::read(job, name, asked.get(*name)?);
    let plugins: Vec<Plugin> = KNOWN.iter().filter_map(read).collect();
    for plugin in &plugins {
        if let Some((variable, bytes)) = plugin.longest_variable(job) {
            hosts::check_variable(variable, bytes)?;
        }
        if let Plugin::Ray(arguments) = plugin {
            ray::check(job, arguments)?;
        }
    }
    Ok(plugins)
}

impl Plugin {
    fn read(job: &Job, name: &str, arguments: &[String]) -> Option<Self> {
        Some(match name {
            "env" => Self::Env,
            "svc" => Self::Svc(svc::Arguments::parse(arguments)),
            "ssh" => Self::Ssh(ssh::Arguments::parse(arguments)),
            "tensorflow" => Self::Tensorflow(tensorflow::Cluster::of(job, tensorflow::Arguments::parse(arguments))),
            "pytorch" => Self::Pytorch(pytorch::Arguments::parse(arguments)),
            "mpi" => Self::Mpi(mpi::Workers::of(job, mpi::Arguments::parse(arguments))),
            "ray" => Self::Ray(ray::Arguments::parse(arguments)),
            "hcclrank" => Self::Hcclrank(hcclrank::Arguments::parse(arguments)),
            _ => return None,
        })
    }

    /// The name in `spec.plugins`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Env => "env",
            Self::Svc(_) => "svc",
            Self::Ssh(_) => "ssh",
            Self::Tensorflow(_) => "tensorflow",
            Self::Pytorch(_) => "pytorch",
            Self::Mpi(_) => "mpi",
            Self::Ray(_) => "ray",
            Self::Hcclrank(_) => "hcclrank",
        }
    }

    /// Whether `controlledResources` names the plugin, as all do but one.
    pub fn is_recorded(&self) -> bool {
        !matches!(self, Self::Hcclrank(_))
    }

    /// What is probably not what the job's author meant, a sentence for each.
    pub fn doubts(&self, job: &Job) -> Vec<String> {
        let name = self.name();
        let arguments = job.spec.plugins.get(name).map(Vec::as_slice).unwrap_or_default();
        let unread = flags::parse(arguments, self.flags()).stopped_at.map(|argument| {
            let rest = "it and those after it have no effect";
            format!("job plugin {name} does not understand argument {argument:?}; {rest}")
        });
        let missing = match self {
            Self::Env | Self::Svc(_) | Self::Tensorflow(_) => None,
            Self::Ssh(arguments) => ssh::doubt(arguments),
            Self::Pytorch(arguments) => pytorch::doubt(job, arguments),
            Self::Mpi(workers) => mpi::doubt(job, workers),
            Self::Ray(arguments) => ray::doubt(job, arguments),
            Self::Hcclrank(arguments) => hcclrank::doubt(job, arguments),
        };
        unread.into_iter().chain(missing).collect()
    }

    fn flags(&self) -> &'static [Flag] {
        match self {
            Self::Env => &[],
            Self::Svc(_) => svc::FLAGS,
            Self::Ssh(_) => ssh::FLAGS,
            Self::Tensorflow(_) => tensorflow::FLAGS,
            Self::Pytorch(_) => pytorch::FLAGS,
            Self::Mpi(_) => mpi::FLAGS,
            Self::Ray(_) => ray::FLAGS,
            Self::Hcclrank(_) => hcclrank::FLAGS,
        }
    }

    /// The longest environment variable the plugin sets that grows with the job, and its length in bytes.
    fn longest_variable(&self, job: &Job) -> Option<(String, usize)> {
        match self {
            Self::Svc(arguments) => svc::longest_variable(arguments, job),
            Self::Tensorflow(cluster) => cluster.longest_variable(),
            Self::Mpi(workers) => workers.longest_variable(),
            Self::Env | Self::Ssh(_) | Self::Pytorch(_) | Self::Ray(_) | Self::Hcclrank(_) => None,
        }
    }

    /// Changes a pod that is about to be made.
    pub fn shape_pod(&self, place: &PodPlace<'_>, metadata: &mut ObjectMeta, pod: &mut PodSpec) {
        match self {
            Self::Env => env::shape_pod(place, pod),
            Self::Svc(arguments) => svc::shape_pod(arguments, place, pod),
            Self::Ssh(arguments) => ssh::shape_pod(arguments, place, pod),
            Self::Tensorflow(cluster) => tensorflow::shape_pod(cluster, place, pod),
            Self::Pytorch(arguments) => pytorch::shape_pod(arguments, place, pod),
            Self::Mpi(workers) => mpi::shape_pod(workers, place, pod),
            Self::Ray(arguments) => ray::shape_pod(arguments, place, pod),
            Self::Hcclrank(arguments) => hcclrank::shape_pod(arguments, place, metadata, pod),
        }
    }
}

/// The task of a name.
fn task<'a>(job: &'a Job, name: &str) -> Option<&'a TaskSpec> {
    job.spec.tasks.iter().find(|task| task.name == name)
}

/// All containers of a pod, init containers too.
fn containers(pod: &mut PodSpec) -> impl Iterator<Item = &mut Container> {
    pod.containers.iter_mut().chain(pod.init_containers.iter_mut().flatten())
}

fn variable(name: &str, value: impl Into<String>) -> EnvVar {
    EnvVar { name: name.to_owned(), value: Some(value.into()), value_from: None }
}

fn add_env(pod: &mut PodSpec, variables: &[EnvVar]) {
    for container in containers(pod) {
        container.env.get_or_insert_default().extend_from_slice(variables);
    }
}

fn add_mount(pod: &mut PodSpec, mount: &VolumeMount) {
    for container in containers(pod) {
        container.volume_mounts.get_or_insert_default().push(mount.clone());
    }
}

fn has_port_named(container: &Container, name: &str) -> bool {
    container.ports.iter().flatten().any(|port| port.name.as_deref() == Some(name))
}

/// Adds a TCP port unless its number is open already, or its name taken, which the API server would refuse.
fn open_port(container: &mut Container, name: &str, number: u16) {
    let is_tcp = |port: &ContainerPort| port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP");
    let mut ports = container.ports.iter().flatten();
    let is_open = ports.any(|port| port.container_port == i32::from(number) && is_tcp(port));
    if !is_open && !has_port_named(container, name) {
        container.ports.get_or_insert_default().push(port(name, number));
    }
}

fn port(name: &str, number: u16) -> ContainerPort {
    ContainerPort { name: Some(name.to_owned()), container_port: number.into(), ..ContainerPort::default() }
}

#[cfg(test)]
mod tests;
