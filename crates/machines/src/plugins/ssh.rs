//! The ssh plugin: password-less login among the pods of a job.
//!
//! A Secret `<job>-ssh` with a key pair and a config, mounted into every container. Invariant: this module makes no keys;
//! whoever carries the plan out brings them ([`SecretPlan::with_keys`]), and keeps those of a Secret that is already there.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{KeyToPath, PodSpec, Secret, SecretVolumeSource, Volume, VolumeMount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pumice_api::batch::Job;

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
const DEFAULT_PORT: i64 = 22;

const FLAGS: &[Flag] = &[
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
    pub port: i64,
    /// Keys to use instead of new ones.
    pub keys: Option<KeyPair>,
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
    /// The whole Secret.
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
        let port = values.text("ssh-port").and_then(|text| text.parse().ok());
        let keys = given("ssh-private-key").zip(given("ssh-public-key"));
        Self {
            key_file_path: given("ssh-key-file-path").unwrap_or_else(|| DEFAULT_PATH.to_owned()),
            port: port.filter(|port| (1..=65535).contains(port)).unwrap_or(DEFAULT_PORT),
            keys: keys.map(|(private_key, public_key)| KeyPair { private_key, public_key }),
        }
    }
}

/// Name of the Secret.
pub fn secret_name(job: &str) -> String {
    format!("{job}-ssh")
}

/// What the Secret must hold. Cost: `O(pods)`.
pub fn secret_plan(job: &Job, arguments: &Arguments) -> SecretPlan {
    let mut config = String::from("StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n");
    for host in job.spec.tasks.iter().flat_map(|task| hosts::of_task(job, task)) {
        config += &format!("Host {}\n  HostName {}\n  Port {}\n", host.host, host.address(), arguments.port);
    }
    SecretPlan {
        metadata: job_object::metadata(job, secret_name(job_object::name(job))),
        config,
        keys: arguments.keys.clone(),
    }
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
