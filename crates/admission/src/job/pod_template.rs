//! Whether pods could be made from a task's template.
//!
//! The API server judges each pod again when it is made; here the user hears of it while the job is in hand. Template
//! volumes only: what plugins and the job's own volumes add comes later and is always whole.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, PodSpec, Volume};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use pumice_api::batch::{NumaPolicy, TaskSpec};
use pumice_objects::field::FieldError;
use pumice_objects::names::{check_dns1123_label, check_label_value, check_qualified_name};
use pumice_units::Quantity;

use crate::Findings;

const RESTART_POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];

/// Judges the template of the task at `index`.
pub(super) fn validate(task: &TaskSpec, index: usize, findings: &mut Findings) {
    let errors = errors(task);
    if !errors.is_empty() {
        let errors: Vec<String> = errors.iter().map(FieldError::to_string).collect();
        findings.refuse(format!("spec.task[{index}].{}.", errors.join(". ")));
    }
    if matches!(&task.topology_policy, Some(policy) if *policy != NumaPolicy::None) {
        whole_cpus(task, index, findings);
    }
}

fn errors(task: &TaskSpec) -> Vec<FieldError> {
    let mut errors = Vec::new();
    metadata(task, &mut errors);
    let Some(spec) = &task.template.spec else {
        errors.push(FieldError::required("spec.containers", ""));
        return errors;
    };
    if spec.containers.is_empty() {
        errors.push(FieldError::required("spec.containers", ""));
    }
    if let Some(policy) = spec.restart_policy.as_deref().filter(|policy| !RESTART_POLICIES.contains(policy)) {
        errors.push(FieldError::not_supported("spec.restartPolicy", policy, RESTART_POLICIES));
    }
    let volumes = volumes(spec.volumes.as_deref().unwrap_or_default(), &mut errors);
    let mut names = BTreeSet::new();
    for (path, container) in containers(spec) {
        label(format!("{path}.name"), &container.name, &mut errors);
        if !names.insert(&container.name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), container.name.as_str()));
        }
        self::container(&path, container, &volumes, &mut errors);
    }
    errors
}

/// Init containers, then containers, each with its path.
fn containers(spec: &PodSpec) -> impl Iterator<Item = (String, &Container)> {
    let lists =
        [("initContainers", spec.init_containers.as_deref().unwrap_or_default()), ("containers", &spec.containers)];
    lists.into_iter().flat_map(|(name, list)| {
        list.iter().enumerate().map(move |(index, container)| (format!("spec.{name}[{index}]"), container))
    })
}

fn metadata(task: &TaskSpec, errors: &mut Vec<FieldError>) {
    let Some(metadata) = &task.template.metadata else { return };
    for (key, value) in metadata.labels.iter().flatten() {
        if let Err(error) = check_qualified_name(key) {
            errors.push(FieldError::invalid("metadata.labels", key.as_str(), error.to_string()));
        }
        if let Err(error) = check_label_value(value) {
            errors.push(FieldError::invalid("metadata.labels", value.as_str(), error.to_string()));
        }
    }
    for key in metadata.annotations.iter().flatten().map(|(key, _)| key) {
        if let Err(error) = check_qualified_name(&key.to_lowercase()) {
            errors.push(FieldError::invalid("metadata.annotations", key.as_str(), error.to_string()));
        }
    }
}

fn volumes<'a>(volumes: &'a [Volume], errors: &mut Vec<FieldError>) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::new();
    for (index, volume) in volumes.iter().enumerate() {
        let path = format!("spec.volumes[{index}].name");
        label(path.clone(), &volume.name, errors);
        if !names.insert(volume.name.as_str()) {
            errors.push(FieldError::duplicate(path, volume.name.as_str()));
        }
    }
    names
}

fn container(path: &str, container: &Container, volumes: &BTreeSet<&str>, errors: &mut Vec<FieldError>) {
    if container.image.as_deref().unwrap_or_default().trim().is_empty() {
        errors.push(FieldError::required(format!("{path}.image"), ""));
    }
    for (index, variable) in container.env.iter().flatten().enumerate() {
        if variable.name.is_empty() {
            errors.push(FieldError::required(format!("{path}.env[{index}].name"), ""));
        }
    }
    for (index, port) in container.ports.iter().flatten().enumerate() {
        if !(1..=65_535).contains(&port.container_port) {
            let path = format!("{path}.ports[{index}].containerPort");
            errors.push(FieldError::invalid(path, port.container_port, "must be between 1 and 65535, inclusive"));
        }
    }
    let mut places = BTreeSet::new();
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let path = format!("{path}.volumeMounts[{index}]");
        if !volumes.contains(mount.name.as_str()) {
            errors.push(FieldError::not_found(format!("{path}.name"), mount.name.as_str()));
        }
        if mount.mount_path.is_empty() {
            errors.push(FieldError::required(format!("{path}.mountPath"), ""));
        } else if !places.insert(mount.mount_path.as_str()) {
            errors.push(FieldError::invalid(format!("{path}.mountPath"), mount.mount_path.as_str(), "must be unique"));
        }
    }
    resources(path, container, errors);
}

fn resources(path: &str, container: &Container, errors: &mut Vec<FieldError>) {
    let Some(resources) = &container.resources else { return };
    let limits = amounts(format!("{path}.resources.limits"), resources.limits.as_ref(), errors);
    let requests = amounts(format!("{path}.resources.requests"), resources.requests.as_ref(), errors);
    for (name, request) in requests {
        if let Some(limit) = limits.get(name).filter(|limit| request > **limit) {
            let detail = format!("must be less than or equal to {name} limit of {limit}");
            errors.push(FieldError::invalid(format!("{path}.resources.requests"), request.to_string(), detail));
        }
    }
}

fn amounts<'a>(
    path: String,
    list: Option<&'a BTreeMap<String, WireQuantity>>,
    errors: &mut Vec<FieldError>,
) -> BTreeMap<&'a str, Quantity> {
    let mut amounts = BTreeMap::new();
    for (name, quantity) in list.into_iter().flatten() {
        match quantity.0.parse::<Quantity>() {
            Err(error) => {
                errors.push(FieldError::invalid(format!("{path}[{name}]"), quantity.0.as_str(), error.to_string()))
            }
            Ok(amount) if amount.is_negative() => {
                let detail = "must be greater than or equal to 0";
                errors.push(FieldError::invalid(format!("{path}[{name}]"), quantity.0.as_str(), detail));
            }
            Ok(amount) => drop(amounts.insert(name.as_str(), amount)),
        }
    }
    amounts
}

fn label(path: String, name: &str, errors: &mut Vec<FieldError>) {
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if let Err(error) = check_dns1123_label(name) {
        errors.push(FieldError::invalid(path, name, error.to_string()));
    }
}

/// Containers that are to be aligned with NUMA nodes ask for whole, positive numbers of cores; without any request, limits
/// count.
fn whole_cpus(task: &TaskSpec, index: usize, findings: &mut Findings) {
    for (position, (_, container)) in task.template.spec.iter().flat_map(containers).enumerate() {
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
