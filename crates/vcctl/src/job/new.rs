//! From the flags of `job run` and `vsub` to a Job, purely.
//!
//! Invariant: the Job is the one that Volcano's program makes of the same flags. What is wrong with it beyond its flags is
//! for the API server to say.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pumice_api::batch::{Job, JobSpec, TaskSpec};

use crate::error::Error;
use crate::words;

/// Label of the pods of a Job made of flags, with its name.
const LABEL: &str = "job.volcano.sh";

/// A Job by flags.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewJob {
    pub name: String,
    /// Image of its pods.
    pub image: String,
    /// Pods that must run together.
    pub min: i32,
    pub replicas: i32,
    /// What each pod asks for, such as `cpu=1000m,memory=100Mi`.
    pub requests: String,
    /// What each pod may use at most.
    pub limits: String,
    pub scheduler: String,
    /// What the pods run, as typed into a shell; the image's own command if empty.
    pub command: String,
}

/// Makes the Job of the flags, with one task of one container.
pub fn render(new: &NewJob) -> Result<Job, Error> {
    if new.name.is_empty() {
        return Err(Error::usage("job name cannot be left blank"));
    }
    let command = words::split(&new.command)
        .ok_or_else(|| Error::usage(format!("--command {:?} has an open quote", new.command)))?;
    let container = Container {
        name: new.name.clone(),
        image: Some(new.image.clone()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        command: Some(command).filter(|words| !words.is_empty()),
        resources: Some(ResourceRequirements {
            requests: Some(resources("--requests", &new.requests)?),
            limits: Some(resources("--limits", &new.limits)?),
            ..ResourceRequirements::default()
        }),
        ..Container::default()
    };
    let template = PodTemplateSpec {
        metadata: Some(ObjectMeta {
            name: Some(new.name.clone()),
            labels: Some(BTreeMap::from([(LABEL.to_owned(), new.name.clone())])),
            ..ObjectMeta::default()
        }),
        spec: Some(PodSpec {
            containers: vec![container],
            restart_policy: Some("Never".to_owned()),
            ..PodSpec::default()
        }),
    };
    Ok(Job {
        metadata: ObjectMeta { name: Some(new.name.clone()), ..ObjectMeta::default() },
        spec: JobSpec {
            min_available: new.min,
            scheduler_name: new.scheduler.clone(),
            tasks: vec![TaskSpec { replicas: new.replicas, template, ..TaskSpec::default() }],
            ..JobSpec::default()
        },
        ..Job::default()
    })
}

/// Amounts by name, as in `cpu=1000m,memory=100Mi`.
fn resources(flag: &'static str, text: &str) -> Result<BTreeMap<String, Quantity>, Error> {
    let wrong = |part: &str, why: &str| Error::usage(format!("{flag}: {part:?} {why}; try cpu=1000m,memory=100Mi"));
    let mut amounts = BTreeMap::new();
    if text.is_empty() {
        return Ok(amounts);
    }
    for part in text.split(',') {
        let (name, amount) = part.split_once('=').ok_or_else(|| wrong(part, "is no resource with its amount"))?;
        let parsed = amount.parse::<pumice_units::Quantity>();
        if name.is_empty() || !parsed.is_ok_and(|amount| !amount.is_negative()) {
            return Err(wrong(part, "is no amount of a resource"));
        }
        amounts.insert(name.to_owned(), Quantity(amount.to_owned()));
    }
    Ok(amounts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags() -> NewJob {
        NewJob {
            name: "train".into(),
            image: "busybox".into(),
            min: 1,
            replicas: 2,
            requests: "cpu=1000m,memory=100Mi".into(),
            limits: "cpu=1,nvidia.com/gpu=2".into(),
            scheduler: "volcano".into(),
            command: "sh -c 'echo hi'".into(),
        }
    }

    #[test]
    fn the_job_is_the_one_volcano_makes() {
        insta::assert_json_snapshot!(render(&flags()).unwrap());
        let plain = NewJob { command: String::new(), requests: String::new(), ..flags() };
        let job = serde_json::to_value(render(&plain).unwrap()).unwrap();
        let container = &job["spec"]["tasks"][0]["template"]["spec"]["containers"][0];
        assert!(container.get("command").is_none(), "{container}");
        assert_eq!(container["resources"]["requests"], serde_json::json!({}));
    }

    #[test]
    fn flags_that_make_no_job_are_named() {
        let refused = |change: fn(&mut NewJob)| {
            let mut flags = flags();
            change(&mut flags);
            render(&flags).unwrap_err().sentence()
        };
        assert!(refused(|flags| flags.name.clear()).contains("job name cannot be left blank"));
        assert!(refused(|flags| flags.command = "echo 'a".into()).contains("open quote"));
        for bad in ["cpu", "cpu=", "=1", "cpu=x", "cpu=-1", "cpu=1,", "cpu=1,,memory=1"] {
            let mut flags = flags();
            flags.limits = bad.into();
            assert!(render(&flags).unwrap_err().sentence().contains("--limits"), "{bad}");
        }
    }
}
