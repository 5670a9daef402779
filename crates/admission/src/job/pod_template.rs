//! Whether pods could be made from a task's template.
//!
//! The API server judges each pod again when it is made, by the same rules; here the user hears of it while the job is in
//! hand. Template volumes only: what plugins and the job's own volumes add comes later and is always whole.

use k8s_openapi::api::core::v1::{Container, PodSpec};
use pumice_api::batch::{NumaPolicy, TaskSpec};
use pumice_apiserver::validate_pod_template;
use pumice_objects::field::FieldError;
use pumice_units::Quantity;

use crate::Findings;

/// Judges the template of the task at `index`.
pub(super) fn validate(task: &TaskSpec, index: usize, findings: &mut Findings) {
    if let Some(fault) = fault(task, index) {
        findings.refuse(format!("spec.{fault}"));
    }
    if matches!(&task.topology_policy, Some(policy) if *policy != NumaPolicy::None) {
        whole_cpus(task, index, findings);
    }
}

/// Why no pods could be made of a task, with its path in the Job's spec.
fn fault(task: &TaskSpec, index: usize) -> Option<String> {
    let errors = match serde_json::to_value(&task.template) {
        Ok(template) => validate_pod_template(&template).iter().map(FieldError::to_string).collect(),
        Err(error) => vec![format!("template can't be written as JSON: {error}")],
    };
    (!errors.is_empty()).then(|| format!("task[{index}].{}.", errors.join(". ")))
}

/// Init containers, then containers.
fn containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.init_containers.iter().flatten().chain(&spec.containers)
}

/// Containers that are to be aligned with NUMA nodes ask for whole, positive numbers of cores; without any request, limits
/// count.
fn whole_cpus(task: &TaskSpec, index: usize, findings: &mut Findings) {
    for (position, container) in task.template.spec.iter().flat_map(containers).enumerate() {
        let resources = container.resources.as_ref();
        let requests =
            resources.and_then(|resources| resources.requests.as_ref()).filter(|requests| !requests.is_empty());
        let counted = requests.or_else(|| resources.and_then(|resources| resources.limits.as_ref()));
        let cpu = counted.and_then(|amounts| amounts.get("cpu")).and_then(|cpu| cpu.0.parse::<Quantity>().ok());
        if !cpu.is_some_and(|cpu| cpu.is_whole() && cpu > Quantity::ZERO) {
            findings.refuse(format!("the cpu request isn't an integer in spec.task[{index}] container[{position}]."));
        }
    }
}
