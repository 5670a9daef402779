//! A script that travels with its Job: the ConfigMap or the annotation that holds it, and how a pod runs it.
//!
//! A pod sees it as a file at the same path either way, so that nothing is asked of its image.
//! The interpreter of its first line is run by name, so that the file's mode and the mount's flags don't matter.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ConfigMap, ConfigMapVolumeSource, DownwardAPIVolumeFile, DownwardAPIVolumeSource, ObjectFieldSelector, Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::metadata::stem;
use super::volumes::Volumes;
use crate::job::SCRIPT;
use crate::script::{Carrier, Script};

/// Where a pod finds its script.
const DIRECTORY: &str = "/run/pumice/script";
/// The volume of it.
const VOLUME: &str = "script";
/// Longest start of the ConfigMap's name.
const STEM_MAX: usize = 40;

/// The ConfigMap, in the Job's namespace; none where the Job itself has the script.
pub fn config_map(script: &Script, namespace: Option<&str>) -> Option<ConfigMap> {
    if script.carrier != Carrier::ConfigMap {
        return None;
    }
    Some(ConfigMap {
        metadata: ObjectMeta {
            name: Some(config_map_name(script)),
            namespace: namespace.map(str::to_owned),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(script.file_name.clone(), script.text.clone())])),
        ..ConfigMap::default()
    })
}

/// The annotation's text, where pods have it in one.
pub(super) fn annotation(script: &Script) -> Option<String> {
    (script.carrier == Carrier::Annotation).then(|| script.text.clone())
}

fn config_map_name(script: &Script) -> String {
    format!("{}-script-{}", stem(&script.file_name, STEM_MAX), script.tag)
}

/// The words that run it with `arguments`.
pub(super) fn command(script: &Script, arguments: &[String]) -> Vec<String> {
    let path = format!("{DIRECTORY}/{}", script.file_name);
    script.interpreter.iter().cloned().chain([path]).chain(arguments.iter().cloned()).collect()
}

/// Shows the pod the script as a file of `DIRECTORY`.
pub(super) fn mount(script: &Script, volumes: &mut Volumes) {
    let mut volume = Volume { name: VOLUME.to_owned(), ..Volume::default() };
    match script.carrier {
        Carrier::ConfigMap => {
            let name = config_map_name(script);
            volume.config_map = Some(ConfigMapVolumeSource { name, ..ConfigMapVolumeSource::default() });
        }
        Carrier::Annotation => {
            let field_path = format!("metadata.annotations['{SCRIPT}']");
            let file = DownwardAPIVolumeFile {
                path: script.file_name.clone(),
                field_ref: Some(ObjectFieldSelector { field_path, ..ObjectFieldSelector::default() }),
                ..DownwardAPIVolumeFile::default()
            };
            volume.downward_api =
                Some(DownwardAPIVolumeSource { items: Some(vec![file]), ..DownwardAPIVolumeSource::default() });
        }
    }
    volumes.add(volume, DIRECTORY.to_owned(), true);
}
