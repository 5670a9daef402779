//! The objects that plugins ask for.
//!
//! Invariant: which objects a plugin has made follows from `controlledResources` alone, so they can be removed by a
//! controller that did not make them. Called by `sync` and `cleanup`.

use pumice_api::batch::Job;

use super::plan::{Ensured, ObjectId, ObjectKind};
use crate::job_object;
use crate::plugins::{Plugin, ssh, svc};

/// Prefix of `controlledResources` entries of plugins.
pub(super) const PREFIX: &str = "plugin-";

/// Every object that plugins may have made for the job.
pub(super) fn all(job: &Job) -> Vec<ObjectId> {
    let job_name = job_object::name(job);
    let made = |key: &str| job.status.controlled_resources.contains_key(&format!("{PREFIX}{key}"));
    let mut ids = Vec::new();
    if made("svc") {
        ids.push(ObjectId { kind: ObjectKind::ConfigMap, name: svc::config_map_name(job_name) });
        ids.push(ObjectId { kind: ObjectKind::Service, name: job_name.to_owned() });
        ids.push(ObjectId { kind: ObjectKind::NetworkPolicy, name: job_name.to_owned() });
    }
    if made("ssh") {
        ids.push(ObjectId { kind: ObjectKind::Secret, name: ssh::secret_name(job_name) });
    }
    ids
}

/// The objects a plugin needs.
pub(super) fn wanted(plugin: &Plugin, job: &Job, network_policies: bool) -> Vec<(ObjectId, Ensured)> {
    let job_name = job_object::name(job);
    let id = |kind, name: String| ObjectId { kind, name };
    match plugin {
        Plugin::Env => Vec::new(),
        Plugin::Svc(arguments) => {
            let mut objects = vec![
                (
                    id(ObjectKind::ConfigMap, svc::config_map_name(job_name)),
                    Ensured::ConfigMap(Box::new(svc::config_map(job))),
                ),
                (
                    id(ObjectKind::Service, job_name.to_owned()),
                    Ensured::Service(Box::new(svc::service(job, arguments))),
                ),
            ];
            if network_policies && !arguments.disable_network_policy {
                objects.push((
                    id(ObjectKind::NetworkPolicy, job_name.to_owned()),
                    Ensured::NetworkPolicy(Box::new(svc::network_policy(job))),
                ));
            }
            objects
        }
        Plugin::Ssh(arguments) => {
            let plan = ssh::secret_plan(job, arguments);
            vec![(id(ObjectKind::Secret, ssh::secret_name(job_name)), Ensured::SshSecret(Box::new(plan)))]
        }
    }
}
