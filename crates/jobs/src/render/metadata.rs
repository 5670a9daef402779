//! Names, labels and annotations of a rendered Job and of its pods.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pumice_api::names::{AFTER, DEADLINE, MAX_PARALLEL, ON_OOM, RETRIES, RETRIES_MAX};
use pumice_objects::names as wire;

use super::counts::Counts;
use super::{JobFlags, NAME_MAX, RenderError, checked, rules, script};
use crate::job::{ON_OOM_OFF, SCRIPT, idempotency};
use crate::names;

/// The metadata of the Job itself. Without a name it gets a stem, made of `program`, which the server completes.
pub(super) fn of_job(flags: &JobFlags, program: &str) -> Result<ObjectMeta, RenderError> {
    let mut metadata = ObjectMeta {
        name: flags.name.clone(),
        namespace: checked("--namespace", flags.namespace.as_deref(), 63)?,
        labels: labels(flags)?,
        ..ObjectMeta::default()
    };
    if let Some(name) = &metadata.name {
        names::check_job_name(name, NAME_MAX)?;
    }
    let mut annotations = BTreeMap::new();
    annotations.extend(rules::after(&flags.after)?.map(|rule| (AFTER.to_owned(), rule)));
    if let Some(key) = &flags.idempotency_key {
        if metadata.name.is_some() {
            let problem = "the key names the job, so that a second one of it can't be; leave one out";
            return Err(RenderError::Together { flags: "--name and --idempotency-key", problem });
        }
        idempotency::check(key).map_err(|problem| RenderError::text("--idempotency-key", key, problem))?;
        annotations.insert(idempotency::KEY.to_owned(), key.clone());
    }
    if let Some(deadline) = &flags.deadline {
        annotations.insert(DEADLINE.to_owned(), rules::deadline(deadline)?);
    }
    metadata.annotations = (!annotations.is_empty()).then_some(annotations);
    if metadata.name.is_none() {
        // Six characters are left for the server's suffix.
        let front = flags.name_stem.as_deref().unwrap_or(program);
        metadata.generate_name = Some(format!("{}-", stem(front, NAME_MAX - 6)));
    }
    Ok(metadata)
}

/// The pods' own; `None` without any.
pub(super) fn of_pods(flags: &JobFlags, counts: &Counts) -> Result<Option<ObjectMeta>, RenderError> {
    let mut annotations = BTreeMap::new();
    let mut add = |key: &str, value: Option<String>| annotations.extend(value.map(|value| (key.to_owned(), value)));
    if let Some(rule) = &flags.on_oom {
        let rule = rules::on_oom(rule)?;
        if rule != ON_OOM_OFF && flags.memory.is_none() {
            let problem = "there is nothing to raise without the other; say both";
            return Err(RenderError::Together { flags: "--on-oom and --memory", problem });
        }
        add(ON_OOM, Some(rule));
    }
    add(MAX_PARALLEL, counts.max_parallel.map(|count| count.to_string()));
    let retries = flags
        .retries
        .map(|count| super::counts::in_range("--retries", count, 0, RETRIES_MAX.unsigned_abs()))
        .transpose()?;
    add(RETRIES, retries.map(|count| count.to_string()));
    add(SCRIPT, flags.script.as_ref().and_then(script::annotation));
    let labels = labels(flags)?;
    if annotations.is_empty() && labels.is_none() {
        return Ok(None);
    }
    Ok(Some(ObjectMeta {
        annotations: (!annotations.is_empty()).then_some(annotations),
        labels,
        ..ObjectMeta::default()
    }))
}

/// The start of a name, made of a program's.
pub(super) fn stem(program: &str, max: usize) -> String {
    let file_name = program.rsplit('/').next().unwrap_or(program);
    names::job_name(file_name, max)
}

fn labels(flags: &JobFlags) -> Result<Option<BTreeMap<String, String>>, RenderError> {
    let mut labels = BTreeMap::new();
    for (key, value) in &flags.labels {
        wire::check_qualified_name(key)
            .map_err(|error| RenderError::text("--label", key, format!("is no key: {error}")))?;
        wire::check_label_value(value).map_err(|error| {
            RenderError::text("--label", &format!("{key}={value}"), format!("has a wrong value: {error}"))
        })?;
        labels.insert(key.clone(), value.clone());
    }
    Ok((!labels.is_empty()).then_some(labels))
}
