//! The svc plugin: pods of a job find each other by name.
//!
//! A headless Service `<job>`, a ConfigMap `<job>-svc` with all addresses (mounted at `/etc/volcano`, and as environment
//! variables), and a NetworkPolicy `<job>`. Invariant: the ConfigMap lists the pods of the current spec, in order.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ConfigMap, ConfigMapKeySelector, ConfigMapVolumeSource, EnvVar, EnvVarSource, PodSpec, Service, ServiceSpec,
    Volume, VolumeMount,
};
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicySpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use pumice_api::batch::Job;

use super::flags::{self, Flag, Kind};
use super::{PodPlace, add_env, add_mount, hosts};
use crate::job_object;

/// Where the ConfigMap is mounted.
pub const MOUNT_PATH: &str = "/etc/volcano";

pub(super) const FLAGS: &[Flag] = &[
    Flag { name: "publish-not-ready-addresses", kind: Kind::Bool },
    Flag { name: "disable-network-policy", kind: Kind::Bool },
    Flag { name: "inject-hosts-env", kind: Kind::Bool },
];

/// Arguments of the plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    /// Names resolve before the pods are ready.
    pub publish_not_ready_addresses: bool,
    pub disable_network_policy: bool,
    /// Set `VC_<TASK>_HOSTS` and `VC_<TASK>_NUM`.
    pub inject_hosts_env: bool,
}

impl Arguments {
    pub(super) fn parse(arguments: &[String]) -> Self {
        let values = flags::parse(arguments, FLAGS);
        Self {
            publish_not_ready_addresses: values.bool_or("publish-not-ready-addresses", false),
            disable_network_policy: values.bool_or("disable-network-policy", false),
            inject_hosts_env: values.bool_or("inject-hosts-env", true),
        }
    }
}

pub(super) fn longest_variable(arguments: &Arguments, job: &Job) -> Option<(String, usize)> {
    if !arguments.inject_hosts_env {
        return None;
    }
    let lengths = job.spec.tasks.iter().map(|task| {
        let bytes = hosts::of_task(job, task).iter().map(|host| host.host.len() + host.domain.len() + 2).sum();
        (hosts_key(&task.name), bytes)
    });
    lengths.max_by_key(|(_, bytes)| *bytes)
}

/// Name of the ConfigMap.
pub fn config_map_name(job: &str) -> String {
    format!("{job}-svc")
}

/// The ConfigMap of all addresses. Cost: `O(pods)`.
pub fn config_map(job: &Job) -> ConfigMap {
    let mut data = BTreeMap::new();
    for task in &job.spec.tasks {
        let addresses = hosts::addresses(job, task);
        let name = task.name.replace('-', "_");
        data.insert(format!("{name}.host"), addresses.join("\n"));
        data.insert(hosts_key(&task.name), addresses.join(","));
        data.insert(num_key(&task.name), addresses.len().to_string());
    }
    let metadata = job_object::metadata(job, config_map_name(job_object::name(job)));
    ConfigMap { metadata, data: Some(data), ..ConfigMap::default() }
}

/// The headless Service that gives each pod of the job its host name.
pub fn service(job: &Job, arguments: &Arguments) -> Service {
    let spec = ServiceSpec {
        cluster_ip: Some("None".to_owned()),
        selector: Some(job_object::selector(job)),
        publish_not_ready_addresses: arguments.publish_not_ready_addresses.then_some(true),
        ..ServiceSpec::default()
    };
    let metadata = job_object::metadata(job, job_object::name(job).to_owned());
    Service { metadata, spec: Some(spec), ..Service::default() }
}

/// Only pods of the job reach pods of the job.
pub fn network_policy(job: &Job) -> NetworkPolicy {
    let selector = LabelSelector { match_labels: Some(job_object::selector(job)), ..LabelSelector::default() };
    let peer = NetworkPolicyPeer { pod_selector: Some(selector.clone()), ..NetworkPolicyPeer::default() };
    let spec = NetworkPolicySpec {
        pod_selector: Some(selector),
        ingress: Some(vec![NetworkPolicyIngressRule { from: Some(vec![peer]), ports: None }]),
        policy_types: Some(vec!["Ingress".to_owned()]),
        ..NetworkPolicySpec::default()
    };
    NetworkPolicy { metadata: job_object::metadata(job, job_object::name(job).to_owned()), spec: Some(spec) }
}

pub(super) fn shape_pod(arguments: &Arguments, place: &PodPlace<'_>, pod: &mut PodSpec) {
    let job = place.job;
    let empty = |field: &Option<String>| field.as_deref().unwrap_or_default().is_empty();
    if empty(&pod.hostname) {
        pod.hostname = Some(place.pod_name.to_owned());
    }
    if empty(&pod.subdomain) {
        pod.subdomain = Some(job_object::name(job).to_owned());
    }
    let volume = config_map_name(job_object::name(job));
    if arguments.inject_hosts_env {
        let keys = job.spec.tasks.iter().flat_map(|task| [hosts_key(&task.name), num_key(&task.name)]);
        let variables: Vec<EnvVar> = keys.map(|key| from_config_map(&volume, key)).collect();
        add_env(pod, &variables);
    }
    pod.volumes.get_or_insert_default().push(Volume {
        name: volume.clone(),
        config_map: Some(ConfigMapVolumeSource { name: volume.clone(), ..ConfigMapVolumeSource::default() }),
        ..Volume::default()
    });
    add_mount(pod, &VolumeMount { name: volume, mount_path: MOUNT_PATH.to_owned(), ..VolumeMount::default() });
}

fn from_config_map(config_map: &str, key: String) -> EnvVar {
    let reference = ConfigMapKeySelector { name: config_map.to_owned(), key: key.clone(), optional: None };
    let source = EnvVarSource { config_map_key_ref: Some(reference), ..EnvVarSource::default() };
    EnvVar { name: key, value: None, value_from: Some(source) }
}

fn hosts_key(task: &str) -> String {
    format!("VC_{}_HOSTS", task.replace('-', "_").to_uppercase())
}

fn num_key(task: &str) -> String {
    format!("VC_{}_NUM", task.replace('-', "_").to_uppercase())
}
