//! What a job's plugins need to work: that they exist, find their tasks, can list the pods, and make things of valid names.
//!
//! The job controller reads plugins by the same code, so nothing is admitted here that it would not begin with.

use pumice_api::batch::Job;
use pumice_api::names;
use pumice_machines::plugins::{self, hosts, ray, ssh, svc};
use pumice_objects::names::{NameError, check_dns1035_label, check_dns1123_label};

use super::name_of;
use crate::Findings;

/// Judges the plugins of a job that is new, or that has grown.
pub(super) fn validate(job: &Job, findings: &mut Findings) {
    let unknown: Vec<&String> =
        job.spec.plugins.keys().filter(|name| !plugins::KNOWN.contains(&name.as_str())).collect();
    for name in &unknown {
        findings.refuse(format!("unable to find job plugin: {name};"));
    }
    if unknown.is_empty()
        && let Err(error) = plugins::of_job(job)
    {
        findings.refuse(format!("{error};"));
    }
    let refused = made(job).into_iter().find_map(|(plugin, thing, name, check)| {
        let error = check(&name).err()?;
        Some(format!("plugin {plugin} makes a {thing} {name}: {error};"))
    });
    match refused {
        // Another name of the job mends all the others, too.
        Some(reason) => findings.refuse(reason),
        None => hostnames(job, findings),
    }
}

/// Tells what is probably not meant.
pub(super) fn doubt(job: &Job, findings: &mut Findings) {
    for plugin in plugins::of_job(job).into_iter().flatten() {
        plugin.doubts(job).into_iter().for_each(|doubt| findings.warn(doubt));
    }
}

type Made = (&'static str, &'static str, String, fn(&str) -> Result<(), NameError>);

/// What plugins make whose name follows from the job's and has stricter rules.
fn made(job: &Job) -> Vec<Made> {
    let name = name_of(job);
    let all: [Made; 4] = [
        ("svc", "Service", name.to_owned(), check_dns1035_label),
        ("svc", "volume", svc::config_map_name(name), check_dns1123_label),
        ("ssh", "volume", ssh::secret_name(name), check_dns1123_label),
        ("ray", "Service", ray::service_name(name), check_dns1035_label),
    ];
    all.into_iter().filter(|(plugin, ..)| job.spec.plugins.contains_key(*plugin)).collect()
}

/// Plugin svc makes pods' names their hostnames. The last pod of a task has the longest.
fn hostnames(job: &Job, findings: &mut Findings) {
    if !job.spec.plugins.contains_key("svc") {
        return;
    }
    for task in job.spec.tasks.iter().filter(|task| hosts::fixed(task).is_none()) {
        let last = names::pod_name(name_of(job), &task.name, task.replicas.saturating_sub(1).max(0));
        if let Err(error) = check_dns1123_label(&last) {
            findings.refuse(format!(
                "plugin svc makes pods' names their hostnames, {last} of task {}: {error};",
                task.name
            ));
        }
    }
}
