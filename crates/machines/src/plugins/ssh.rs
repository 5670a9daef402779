//! The ssh plugin: password-less login among the pods of a job.
//!
//! A Secret `<job>-ssh` with a key pair and a config, mounted into every container. Invariant: this module makes no keys;
//! whoever carries the plan out brings them ([`SecretPlan::with_keys`]), and keeps those of a Secret that is already there.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{KeyToPath, PodSpec, Secret, SecretVolumeSource, Volume, VolumeMount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pumice_api::batch::{Job, TaskSpec};

use super::flags::{self, Flag, Kind};
use super::{PodPlace, add_mount, hosts};
use crate::job_object;

const PRIVATE_KEY: &str = "id_rsa";
const PUBLIC_KEY: &str = "id_rsa.pub";
const AUTHORIZED_KEYS: &str = "authorized_keys";
/// Entry of the Secret that follows the job's spec.
pub const CONFIG: &str = "config";

const DEFAULT_PATH: &str = "/root/.ssh";
const SUB_PATH: &str = ".ssh";
const DEFAULT_PORT: u16 = 22;
/// Most pods with an entry of their own in the config; more are described by a pattern for each task.
const ENTRIES_MAX: usize = 256;

pub(super) const FLAGS: &[Flag] = &[
    Flag { name: "ssh-key-file-path", kind: Kind::Text },
    Flag { name: "ssh-private-key", kind: Kind::Text },
    Flag { name: "ssh-public-key", kind: Kind::Text },
    Flag { name: "ssh-port", kind: Kind::Int },
];

/// Arguments of the plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    /// Where the keys are mounted.
    pub key_file_path: String,
    /// Port in the config.
    pub port: u16,
    /// Keys to use instead of new ones.
    pub keys: Option<KeyPair>,
    /// Half a pair was given, so that it is not used.
    pub half_a_pair: bool,
}

/// A key pair in the formats of OpenSSH.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyPair {
    /// PKCS#1 in PEM.
    pub private_key: String,
    /// One line of `authorized_keys`.
    pub public_key: String,
}

impl std::fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyPair").field("public_key", &self.public_key).finish_non_exhaustive()
    }
}

/// The Secret, but for the keys.
#[derive(Clone, Debug, PartialEq)]
pub struct SecretPlan {
    /// Name, labels and owner.
    pub metadata: ObjectMeta,
    /// The client's configuration: one block for each pod.
    pub config: String,
    /// Keys from the plugin's arguments; `None` = generate an RSA key of 2048 bits.
    pub keys: Option<KeyPair>,
}

impl SecretPlan {
    /// The Secret as it is created, with the keys, the authorised key and the configuration.
    pub fn with_keys(&self, keys: &KeyPair) -> Secret {
        let data = [
            (PRIVATE_KEY, &keys.private_key),
            (PUBLIC_KEY, &keys.public_key),
            (AUTHORIZED_KEYS, &keys.public_key),
            (CONFIG, &self.config),
        ];
        let data = data.map(|(key, text)| (key.to_owned(), ByteString(text.clone().into_bytes())));
        Secret { metadata: self.metadata.clone(), data: Some(BTreeMap::from(data)), ..Secret::default() }
    }
}

impl Arguments {
    pub(super) fn parse(arguments: &[String]) -> Self {
        let values = flags::parse(arguments, FLAGS);
        let given = |name| values.text(name).filter(|text| !text.is_empty()).map(str::to_owned);
        let (private_key, public_key) = (given("ssh-private-key"), given("ssh-public-key"));
        Self {
            key_file_path: given("ssh-key-file-path").unwrap_or_else(|| DEFAULT_PATH.to_owned()),
            port: values.port_or("ssh-port", DEFAULT_PORT),
            half_a_pair: private_key.is_some() != public_key.is_some(),
            keys: private_key.zip(public_key).map(|(private_key, public_key)| KeyPair { private_key, public_key }),
        }
    }
}

/// Name of the Secret.
pub fn secret_name(job: &str) -> String {
    format!("{job}-ssh")
}

pub(super) fn doubt(arguments: &Arguments) -> Option<String> {
    let text = "job plugin ssh needs both --ssh-private-key and --ssh-public-key to use them; it makes new keys";
    arguments.half_a_pair.then(|| text.to_owned())
}

/// What the Secret must hold. Cost: `O(pods)` up to a bound, `O(tasks)` beyond.
pub fn secret_plan(job: &Job, arguments: &Arguments) -> SecretPlan {
    SecretPlan {
        metadata: job_object::metadata(job, secret_name(job_object::name(job))),
        config: config(job, arguments.port),
        keys: arguments.keys.clone(),
    }
}

fn config(job: &Job, port: u16) -> String {
    let mut config = String::from("StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n");
    let mut entry = |pattern: &str, name: &str| {
        config += &format!("Host {pattern}\n  HostName {name}\n  Port {port}\n");
    };
    let pods: i64 = job.spec.tasks.iter().map(|task| i64::from(task.replicas.max(0))).sum();
    if usize::try_from(pods).is_ok_and(|pods| pods <= ENTRIES_MAX) {
        for host in job.spec.tasks.iter().flat_map(|task| hosts::of_task(job, task)) {
            entry(&host.host, &host.address());
        }
    } else {
        // The first entry that matches counts: that of task `a-b` comes before that of `a`.
        let mut tasks: Vec<&TaskSpec> = job.spec.tasks.iter().collect();
        tasks.sort_by_key(|task| (hosts::fixed(task).is_none(), Reverse(task.name.len())));
        for task in tasks {
            let domain = hosts::domain(job, task);
            match hosts::fixed(task) {
                Some(host) => entry(host, &format!("{host}.{domain}")),
                None => {
                    let pods = format!("{}-{}-* !*.*", job_object::name(job), task.name);
                    entry(&pods, &format!("%h.{domain}"));
                }
            }
        }
    }
    if port != DEFAULT_PORT {
        // Host files list whole addresses, which no entry above matches.
        let domains: BTreeSet<&str> = job.spec.tasks.iter().map(|task| hosts::domain(job, task)).collect();
        for domain in domains {
            config += &format!("Host *.{domain}\n  Port {port}\n");
        }
    }
    config
}

pub(super) fn shape_pod(arguments: &Arguments, place: &PodPlace<'_>, pod: &mut PodSpec) {
    let name = secret_name(job_object::name(place.job));
    // sshd refuses keys that others can read; a path of the user's own is for another user than root.
    let mode = if arguments.key_file_path == DEFAULT_PATH { 0o600 } else { 0o644 };
    let items = [PRIVATE_KEY, PUBLIC_KEY, AUTHORIZED_KEYS, CONFIG].map(|key| KeyToPath {
        key: key.to_owned(),
        path: format!("{SUB_PATH}/{key}"),
        mode: None,
    });
    pod.volumes.get_or_insert_default().push(Volume {
        name: name.clone(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(name.clone()),
            items: Some(items.into()),
            default_mode: Some(mode),
            optional: None,
        }),
        ..Volume::default()
    });
    let mount = VolumeMount {
        name,
        mount_path: arguments.key_file_path.clone(),
        sub_path: Some(SUB_PATH.to_owned()),
        ..VolumeMount::default()
    };
    add_mount(pod, &mount);
}
