//! The hcclrank plugin: annotation `hccl/rankIndex`, by which Ascend's device plugin ranks the devices of a job.
//!
//! Invariant: a rank that the template or plugin pytorch has set is taken over; else masters come first, then workers.

use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pumice_api::batch::Job;

use super::flags::{self, Flag, Kind};
use super::{PodPlace, pytorch, task};

const RANK_INDEX: &str = "hccl/rankIndex";

pub(super) const FLAGS: &[Flag] =
    &[Flag { name: "master", kind: Kind::Text }, Flag { name: "worker", kind: Kind::Text }];

/// Arguments of the plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    /// Task of the first ranks.
    pub master: String,
    /// Task of the ranks after them.
    pub worker: String,
}

impl Arguments {
    pub(super) fn parse(arguments: &[String]) -> Self {
        let values = flags::parse(arguments, FLAGS);
        Self { master: values.text_or("master", "master"), worker: values.text_or("worker", "worker") }
    }

    fn rank(&self, place: &PodPlace<'_>) -> Option<String> {
        let name = &place.task.name;
        let before = if *name == self.master {
            0
        } else if *name == self.worker {
            task(place.job, &self.master).map_or(0, |masters| masters.replicas.max(0))
        } else {
            return None;
        };
        Some(before.saturating_add(place.index).to_string())
    }
}

pub(super) fn doubt(job: &Job, arguments: &Arguments) -> Option<String> {
    let Arguments { master, worker } = arguments;
    let text =
        format!("job plugin hcclrank finds neither task {master:?} nor {worker:?}; name them by --master and --worker");
    (task(job, master).is_none() && task(job, worker).is_none()).then_some(text)
}

pub(super) fn shape_pod(arguments: &Arguments, place: &PodPlace<'_>, metadata: &mut ObjectMeta, pod: &PodSpec) {
    let annotations = metadata.annotations.get_or_insert_default();
    if annotations.contains_key(RANK_INDEX) {
        return;
    }
    let mut variables = pod.containers.iter().flat_map(|container| container.env.iter().flatten());
    let given = variables.find_map(|variable| match &variable.value {
        Some(value) if variable.name == pytorch::RANK && !value.is_empty() => Some(value),
        _ => None,
    });
    if let Some(rank) = given.cloned().or_else(|| arguments.rank(place)) {
        annotations.insert(RANK_INDEX.to_owned(), rank);
    }
}

#[cfg(test)]
mod tests {
    use crate::plugins::of_job;
    use crate::plugins::tests::{job, shape_all, shaped};

    const TASKS: &str = r#"[{"name": "master", "replicas": 2}, {"name": "worker", "replicas": 2}, {"name": "x", "replicas": 1},
        {"name": "ranked", "template": {"spec": {"containers": [{"name": "a"}, {"name": "b", "env": [{"name": "RANK", "value": "r"}]}]}}},
        {"name": "noted", "template": {"metadata": {"annotations": {"hccl/rankIndex": "n"}}, "spec": {"containers":
            [{"name": "b", "env": [{"name": "RANK", "value": "r"}]}]}}}]"#;

    #[test]
    fn pods_are_ranked() {
        let cases: &[(&[&str], &str, i32, Option<&str>)] = &[
            (&[], "master", 1, Some("1")),
            (&[], "worker", 0, Some("2")),
            (&[], "worker", 1, Some("3")),
            (&[], "x", 0, None),
            (&[], "ranked", 0, Some("r")),
            (&[], "noted", 0, Some("n")),
            (&["--master=x", "--worker", "master"], "master", 1, Some("2")),
            (&["--master=nobody"], "worker", 1, Some("1")),
        ];
        for (arguments, task, index, rank) in cases {
            let (metadata, _) = shaped(&job(&format!(r#"{{"tasks": {TASKS}}}"#)), "hcclrank", arguments, task, *index);
            let found = metadata.annotations.as_ref().and_then(|all| all.get("hccl/rankIndex"));
            assert_eq!(found.map(String::as_str), *rank, "{arguments:?} {task} {index}");
        }
    }

    #[test]
    fn ranks_of_pytorch_are_taken_over() {
        let plugins = r#"{"hcclrank": ["--master=x"], "pytorch": []}"#;
        let job = job(&format!(r#"{{"tasks": {TASKS}, "plugins": {plugins}}}"#));
        let (metadata, _) = shape_all(&job, &of_job(&job).unwrap(), "worker", 1);
        assert_eq!(metadata.annotations.unwrap()["hccl/rankIndex"], "3", "pytorch counts two masters, hcclrank one");
    }
}
