//! Job plugins: what `spec.plugins` adds to a job's pods and beside them.
//!
//! Invariant: plugins don't depend on one another; a plugin name we can't honour is an error and never ignored. Called by
//! the Job machine; admission refuses what is not here.

pub mod env;
pub mod flags;
pub mod hosts;
pub mod ssh;
pub mod svc;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EnvVar, PodSpec, VolumeMount};
use pumice_api::batch::Job;

/// Names that `spec.plugins` may have.
pub const KNOWN: &[&str] = &["env", "ssh", "svc"];

/// A plugin with its arguments read.
#[derive(Clone, Debug, PartialEq)]
pub enum Plugin {
    /// The index of the pod in the environment.
    Env,
    /// Names and addresses of all pods, and a Service to resolve them.
    Svc(svc::Arguments),
    /// Keys to log in from pod to pod.
    Ssh(ssh::Arguments),
}

/// A plugin nobody knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("job plugin {name:?} is unknown; known are {}", KNOWN.join(", "))]
pub struct UnknownPlugin {
    /// The name in `spec.plugins`.
    pub name: String,
}

/// The pod a plugin is asked about.
pub struct PodPlace<'a> {
    /// Its job.
    pub job: &'a Job,
    /// Its name.
    pub pod_name: &'a str,
    /// Its index in its task.
    pub index: i32,
}

/// Reads `spec.plugins`, in order of names.
pub fn parse(plugins: &BTreeMap<String, Vec<String>>) -> Result<Vec<Plugin>, UnknownPlugin> {
    let parse_one = |(name, arguments): (&String, &Vec<String>)| match name.as_str() {
        "env" => Ok(Plugin::Env),
        "svc" => Ok(Plugin::Svc(svc::Arguments::parse(arguments))),
        "ssh" => Ok(Plugin::Ssh(ssh::Arguments::parse(arguments))),
        _ => Err(UnknownPlugin { name: name.clone() }),
    };
    plugins.iter().map(parse_one).collect()
}

impl Plugin {
    /// The name in `spec.plugins`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Env => "env",
            Self::Svc(_) => "svc",
            Self::Ssh(_) => "ssh",
        }
    }

    /// Changes a pod that is about to be made.
    pub fn shape_pod(&self, place: &PodPlace<'_>, pod: &mut PodSpec) {
        match self {
            Self::Env => env::shape_pod(place, pod),
            Self::Svc(arguments) => svc::shape_pod(arguments, place, pod),
            Self::Ssh(arguments) => ssh::shape_pod(arguments, place, pod),
        }
    }
}

/// All containers of a pod, init containers too.
fn containers(pod: &mut PodSpec) -> impl Iterator<Item = &mut Container> {
    pod.containers.iter_mut().chain(pod.init_containers.iter_mut().flatten())
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
