//! Jobs that are made later, or elsewhere: they are judged as new ones, but for their queue, which is taken to be there and open.

use pumice_api::batch::{Job, JobTemplateSpec};
use pumice_api::scheduling::Queue;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{mutate, validate_create};
use crate::view::View;
use crate::{Findings, Rules};

/// Judges a Job of that name as if it was made now, but for its queue, which may come or open until then. What it finds names
/// fields of the Job.
pub(crate) fn judge(name: &str, template: &JobTemplateSpec, rules: &Rules) -> Findings {
    let metadata =
        json!({"name": name, "annotations": template.metadata.annotations, "labels": template.metadata.labels});
    let mut object = json!({"metadata": metadata, "spec": template.spec});
    fill_and_judge(&mut object, rules).unwrap_or_else(|error| {
        let mut findings = Findings::default();
        findings.refuse(format!("the Job cannot be read: {error}"));
        findings
    })
}

/// Fills a Job in and judges it.
///
/// # Errors
/// Where it can't be read.
pub(super) fn fill_and_judge(job: &mut Value, rules: &Rules) -> Result<Findings, serde_json::Error> {
    mutate(job, rules);
    let mut findings = Findings::default();
    validate_create(&Job::deserialize(&*job)?, &Anywhere, rules, &mut findings);
    Ok(findings)
}

/// A cluster of which only is known that the Job's queue takes it.
struct Anywhere;

impl View for Anywhere {
    fn queue(&self, _name: &str) -> Option<Queue> {
        Some(Queue::default())
    }

    fn queues(&self) -> Vec<Queue> {
        Vec::new()
    }

    fn namespace_annotation(&self, _namespace: &str, _key: &str) -> Option<String> {
        None
    }
}
