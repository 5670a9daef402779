//! The kinds this command line knows, and where the API has them.
//!
//! Invariant: a name or namespace that went into a path was checked before; nothing needs escaping. Called by every verb.

use pumice_api::CustomResource;
use pumice_api::batch::{CronJob, Job};
use pumice_api::bus::Command;
use pumice_api::flow::{JobFlow, JobTemplate};
use pumice_api::reservation::Reservation;
use pumice_api::scheduling::{PodGroup, Queue};
use pumice_api::tenant::Tenant;
use pumice_jobs::names::{self, NameError};

/// A kind of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// As in manifests: `JobFlow`.
    pub title: &'static str,
    /// As people type it: `jobflow`.
    pub word: &'static str,
    /// As in paths: `jobflows`.
    pub plural: &'static str,
    group: &'static str,
    version: &'static str,
    namespaced: bool,
}

/// Job of `batch.volcano.sh`, which is not that of Kubernetes.
pub const JOB: Kind = Kind::of::<Job>();
/// CronJob of `batch.volcano.sh`, which makes Jobs of Volcano.
pub const CRON_JOB: Kind = Kind::of::<CronJob>();
/// JobFlow of `flow.volcano.sh`: Jobs that wait for each other.
pub const JOB_FLOW: Kind = Kind::of::<JobFlow>();
/// JobTemplate of `flow.volcano.sh`, which JobFlows make Jobs from.
pub const JOB_TEMPLATE: Kind = Kind::of::<JobTemplate>();
/// Queue; without a namespace.
pub const QUEUE: Kind = Kind::of::<Queue>();
/// PodGroup of `scheduling.volcano.sh`: pods that start together.
pub const POD_GROUP: Kind = Kind::of::<PodGroup>();
/// Command of `bus.volcano.sh`, by which an action on a Job is asked for.
pub const COMMAND: Kind = Kind::of::<Command>();
/// Pod of the core group.
pub const POD: Kind = Kind::core("Pod", "pod", "pods");
/// Reservation; without a namespace.
pub const RESERVATION: Kind = Kind::of::<Reservation>();
/// Tenant; without a namespace.
pub const TENANT: Kind = Kind::of::<Tenant>();
/// Node; without a namespace.
pub const NODE: Kind = Kind { namespaced: false, ..Kind::core("Node", "node", "nodes") };
/// Event of the core group, in which Kubernetes says what happened to an object.
pub const EVENT: Kind = Kind::core("Event", "event", "events");

/// How a queue stands, as the scheduler tells it; without a namespace.
pub const QUEUE_WHY: Kind = Kind::why("QueueWhy", "queue", "queues");
/// How a node stands, as the scheduler tells it; without a namespace.
pub const NODE_WHY: Kind = Kind::why("NodeWhy", "node", "nodes");

impl Kind {
    const fn why(title: &'static str, word: &'static str, plural: &'static str) -> Kind {
        Kind { title, word, plural, group: "why.pumice.sh", version: "v1alpha1", namespaced: false }
    }

    const fn of<K: CustomResource>() -> Kind {
        Kind {
            title: K::KIND,
            word: K::SINGULAR,
            plural: K::URL_PATH_SEGMENT,
            group: K::GROUP,
            version: K::VERSION,
            namespaced: !K::CLUSTER_SCOPED,
        }
    }

    const fn core(title: &'static str, word: &'static str, plural: &'static str) -> Kind {
        Kind { title, word, plural, group: "", version: "v1", namespaced: true }
    }

    /// `batch.volcano.sh/v1alpha1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The name by which Kubernetes knows the resource: `jobs.batch.volcano.sh`, or `pods` in the core group.
    pub fn resource(&self) -> String {
        with_group(self.plural, self.group)
    }

    /// `job.batch.volcano.sh/NAME`, which kubectl takes.
    pub fn reference(&self, name: &str) -> String {
        format!("{}/{name}", with_group(self.word, self.group))
    }

    /// The path of all objects, or of those of a namespace.
    pub fn collection(&self, namespace: Option<&str>) -> Result<String, NameError> {
        let root = if self.group.is_empty() { "/api" } else { "/apis" };
        let root = format!("{root}/{}", self.api_version());
        match namespace {
            Some(namespace) if self.namespaced => {
                names::check("namespace", namespace, 63)?;
                Ok(format!("{root}/namespaces/{namespace}/{}", self.plural))
            }
            _ => Ok(format!("{root}/{}", self.plural)),
        }
    }

    /// The path of one object.
    pub fn object(&self, namespace: &str, name: &str) -> Result<String, NameError> {
        names::check("name", name, 253)?;
        Ok(format!("{}/{name}", self.collection(Some(namespace))?))
    }

    /// `ns/name`, or the name alone where the kind has no namespace.
    pub fn full_name(&self, namespace: &str, name: &str) -> String {
        if self.namespaced { format!("{namespace}/{name}") } else { name.to_owned() }
    }
}

fn with_group(word: &str, group: &str) -> String {
    if group.is_empty() { word.to_owned() } else { format!("{word}.{group}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_where_the_api_has_them() {
        let path = |kind: Kind| kind.object("team", "x").unwrap();
        assert_eq!(path(JOB), "/apis/batch.volcano.sh/v1alpha1/namespaces/team/jobs/x");
        assert_eq!(path(QUEUE), "/apis/scheduling.volcano.sh/v1beta1/queues/x");
        assert_eq!(path(POD), "/api/v1/namespaces/team/pods/x");
        assert_eq!(POD_GROUP.collection(None).unwrap(), "/apis/scheduling.volcano.sh/v1beta1/podgroups");
        assert_eq!(JOB_FLOW.reference("x"), "jobflow.flow.volcano.sh/x");
        assert_eq!((POD.reference("x"), JOB.resource()), ("pod/x".to_owned(), "jobs.batch.volcano.sh".to_owned()));
        assert_eq!((QUEUE.full_name("team", "x"), JOB.full_name("team", "x")), ("x".to_owned(), "team/x".to_owned()));
    }

    #[test]
    fn nothing_else_gets_into_a_path() {
        for name in ["", "a/b", "..", "a?b", "A", "a%2fb"] {
            assert!(JOB.object("team", name).is_err(), "{name}");
            assert!(JOB.object(name, "x").is_err(), "{name}");
        }
    }
}
