//! Profiles of AppArmor, which the machine's administrator loads and pods name (`Localhost`).
//!
//! Invariant: a profile that a pod names is one that the kernel has when the pod is started; the shim has the kernel confine the
//! program by it from its first instruction on, or does not start it.

use std::fs;
use std::io;

use k8s_openapi::api::core::v1::{PodSecurityContext, SecurityContext};

/// Whether this kernel has AppArmor, and runs it.
const ENABLED: &str = "/sys/module/apparmor/parameters/enabled";
/// What is loaded, each line with a name and a mode. Only root reads it.
const LOADED: &str = "/sys/kernel/security/apparmor/profiles";

/// Why a container can't have the profile that it names.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AppArmorError {
    #[error("can't read which profiles of AppArmor are loaded, in {LOADED}")]
    Read(#[source] io::Error),
    #[error("localhostProfile {name:?} is not loaded on this node; load it with apparmor_parser")]
    NotLoaded { name: String },
}

/// Whether this machine runs AppArmor.
pub(crate) fn is_enabled() -> bool {
    fs::read_to_string(ENABLED).is_ok_and(|text| text.starts_with('Y'))
}

/// The loaded profile that a container names; none where it names none.
pub(crate) fn profile(of_pod: &PodSecurityContext, own: &SecurityContext) -> Result<Option<String>, AppArmorError> {
    let Some(name) = named(of_pod, own) else { return Ok(None) };
    let loaded = fs::read_to_string(LOADED).map_err(AppArmorError::Read)?;
    if is_loaded(&loaded, name) {
        Ok(Some(name.to_owned()))
    } else {
        Err(AppArmorError::NotLoaded { name: name.to_owned() })
    }
}

fn named<'p>(of_pod: &'p PodSecurityContext, own: &'p SecurityContext) -> Option<&'p str> {
    let profile = own.app_armor_profile.as_ref().or(of_pod.app_armor_profile.as_ref())?;
    if profile.type_ == "Localhost" { Some(profile.localhost_profile.as_deref().unwrap_or_default()) } else { None }
}

/// A line is `NAME (MODE)`, and a name may have spaces.
fn is_loaded(loaded: &str, name: &str) -> bool {
    loaded.lines().filter_map(|line| line.rsplit_once(" (")).any(|(found, _)| found == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_containers_own_profile_goes_before_the_pods() {
        let local = |name: &str| json!({"appArmorProfile": {"type": "Localhost", "localhostProfile": name}});
        let unconfined = json!({"appArmorProfile": {"type": "Unconfined"}});
        let cases = [
            (json!({}), json!({}), None),
            (local("a"), json!({}), Some("a")),
            (local("a"), local("b"), Some("b")),
            (local("a"), unconfined.clone(), None),
            (unconfined, local("b"), Some("b")),
        ];
        let read = |value: &Value| serde_json::from_value(value.clone()).unwrap();
        for (of_pod, own, expected) in cases {
            let (of_pod, own) = (read(&of_pod), serde_json::from_value(own).unwrap());
            assert_eq!(named(&of_pod, &own), expected);
        }
    }

    #[test]
    fn a_profile_is_loaded_by_its_whole_name() {
        let loaded = "/usr/bin/man (enforce)\nmy (odd) one (complain)\nlsb_release (enforce)\n";
        for (name, expected) in [("lsb_release", true), ("my (odd) one", true), ("lsb", false), ("", false)] {
            assert_eq!(is_loaded(loaded, name), expected, "{name:?}");
        }
    }
}
