//! Jobs that are made later, of what another object describes: whoever writes it hears now what each of them would be
//! refused for.

use pumice_api::batch::{Job, JobTemplateSpec};
use pumice_api::scheduling::Queue;
use serde::Deserialize;
use serde_json::json;

use super::{mutate, validate_create};
use crate::view::View;
use crate::{Findings, Rules};

/// Judges a Job of that name as if it was made now, but for its queue, which may come or open until then. What it finds names
/// fields of the Job.
pub(crate) fn judge(name: &str, template: &JobTemplateSpec, rules: &Rules) -> Findings {
    let mut findings = Findings::default();
    let metadata =
        json!({"name": name, "annotations": template.metadata.annotations, "labels": template.metadata.labels});
    let mut object = json!({"metadata": metadata, "spec": template.spec});
    mutate(&mut object, rules);
    match Job::deserialize(&object) {
        Ok(job) => validate_create(&job, &AnyQueue, &mut findings),
        Err(error) => findings.refuse(format!("the Job cannot be read: {error}")),
    }
    findings
}

/// Every queue is there, and open.
struct AnyQueue;

impl View for AnyQueue {
    fn queue(&self, name: &str) -> Option<Queue> {
        let mut queue = Queue::default();
        queue.metadata.name = Some(name.to_owned());
        Some(queue)
    }

    fn queues(&self) -> Vec<Queue> {
        Vec::new()
    }

    fn namespace_annotation(&self, _namespace: &str, _key: &str) -> Option<String> {
        None
    }
}
