//! The objects that plugins ask for.
//!
//! Invariant: which objects a plugin has made follows from `controlledResources` alone, so they can be removed by a
//! controller that did not make them. Called by `sync` and `cleanup`.

use pumice_api::batch::Job;

use crate::job::plan::{Effect, Ensured, ObjectId, ObjectKind};
use crate::job_object;
use crate::plugins::{Plugin, ray, ssh, svc};

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
    if made("ray") {
        ids.push(ObjectId { kind: ObjectKind::Service, name: ray::service_name(job_name) });
    }
    ids
}

/// What to tell of plugins that the job has not used yet.
pub(super) fn first_doubts(job: &Job, plugins: &[Plugin]) -> Vec<Effect> {
    let told = |plugin: &&Plugin| job.status.controlled_resources.contains_key(&format!("{PREFIX}{}", plugin.name()));
    let fresh = plugins.iter().filter(|plugin| plugin.is_recorded() && !told(plugin));
    fresh.flat_map(|plugin| plugin.doubts(job)).map(|text| Effect::warning("PluginError", text)).collect()
}

/// The `controlledResources` entries of plugins.
pub(super) fn recorded(plugins: &[Plugin]) -> impl Iterator<Item = (String, String)> {
    let names = plugins.iter().filter(|plugin| plugin.is_recorded()).map(Plugin::name);
    names.map(|name| (format!("{PREFIX}{name}"), name.to_owned()))
}

/// The objects a plugin needs.
pub(super) fn wanted(plugin: &Plugin, job: &Job, network_policies: bool) -> Vec<(ObjectId, Ensured)> {
    let job_name = job_object::name(job);
    let id = |kind, name: String| ObjectId { kind, name };
    match plugin {
        Plugin::Env | Plugin::Tensorflow(_) | Plugin::Pytorch(_) | Plugin::Mpi(_) | Plugin::Hcclrank(_) => Vec::new(),
        Plugin::Ray(arguments) => {
            let service = ray::service(job, arguments);
            vec![(id(ObjectKind::Service, ray::service_name(job_name)), Ensured::Service(Box::new(service)))]
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::{KNOWN, of_job};
    use serde_json::json;

    fn job() -> Job {
        let plugins: serde_json::Map<_, _> = KNOWN.iter().map(|name| ((*name).to_owned(), json!(["x"]))).collect();
        let tasks = ["head", "worker"].map(|name| json!({"name": name, "replicas": 1, "template": {}}));
        let spec = json!({"plugins": plugins, "tasks": tasks});
        serde_json::from_value(json!({"metadata": {"name": "j", "namespace": "ns", "uid": "u"}, "spec": spec})).unwrap()
    }

    #[test]
    fn what_was_made_is_found_again_by_the_status_alone() {
        let mut job = job();
        let plugins = of_job(&job).unwrap();
        let mut made: Vec<ObjectId> =
            plugins.iter().flat_map(|plugin| wanted(plugin, &job, true)).map(|(id, _)| id).collect();
        assert_eq!(all(&job), [], "nothing is made yet");
        job.status.controlled_resources = recorded(&plugins).collect();
        job.spec.plugins.clear();
        let mut found = all(&job);
        made.sort();
        found.sort();
        assert_eq!(found, made);
        let services = found.iter().filter(|id| id.kind == ObjectKind::Service).map(|id| id.name.as_str());
        assert_eq!(services.collect::<Vec<_>>(), ["j", "j-head-svc"]);
    }

    #[test]
    fn all_plugins_but_hcclrank_are_recorded() {
        let names: Vec<(String, String)> = recorded(&of_job(&job()).unwrap()).collect();
        let expected = KNOWN.iter().filter(|name| **name != "hcclrank");
        assert_eq!(names, expected.map(|name| (format!("plugin-{name}"), (*name).to_owned())).collect::<Vec<_>>());
    }

    #[test]
    fn doubts_are_told_once() {
        let mut job = job();
        let plugins = of_job(&job).unwrap();
        let doubts = first_doubts(&job, &plugins);
        assert!(doubts.len() >= KNOWN.len() - 1, "an argument of each is not understood: {doubts:?}");
        job.status.controlled_resources = recorded(&plugins).collect();
        assert_eq!(first_doubts(&job, &plugins), []);
    }
}
