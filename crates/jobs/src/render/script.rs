//! A script that travels with its Job: the ConfigMap that holds it, and how a pod runs it.
//!
//! The interpreter of its first line is run by name, so that the file's mode and the mount's flags don't matter.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, ConfigMapVolumeSource, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::metadata::stem;
use super::volumes::Volumes;
use crate::script::Script;

/// Where a pod finds its script.
const DIRECTORY: &str = "/run/pumice/script";
/// The volume of it.
const VOLUME: &str = "script";
/// Longest start of the ConfigMap's name.
const STEM_MAX: usize = 40;

/// The ConfigMap, in the Job's namespace.
pub fn config_map(script: &Script, namespace: Option<&str>) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(config_map_name(script)),
            namespace: namespace.map(str::to_owned),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(script.file_name.clone(), script.text.clone())])),
        ..ConfigMap::default()
    }
}

fn config_map_name(script: &Script) -> String {
    format!("{}-script-{}", stem(&script.file_name, STEM_MAX), script.tag)
}

/// The words that run it with `arguments`.
pub(super) fn command(script: &Script, arguments: &[String]) -> Vec<String> {
    let path = format!("{DIRECTORY}/{}", script.file_name);
    script.interpreter.iter().cloned().chain([path]).chain(arguments.iter().cloned()).collect()
}

/// Adds its volume.
pub(super) fn mount(script: &Script, volumes: &mut Volumes) {
    let source = ConfigMapVolumeSource { name: config_map_name(script), ..ConfigMapVolumeSource::default() };
    let volume = Volume { name: VOLUME.to_owned(), config_map: Some(source), ..Volume::default() };
    volumes.add(volume, DIRECTORY.to_owned(), true);
}
