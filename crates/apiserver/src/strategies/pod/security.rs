//! Rules of a pod's security fields that Kubernetes has in its API: what they may say, and which of them exclude each other.
//!
//! Messages and paths are upstream's. Invariant: a pod that says nothing of its security costs some look-ups. Called when a pod or
//! a template of pods is judged.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{ALL_LISTS, containers_in};
use crate::problems::Problems;

const PROC_MOUNTS: [&str; 2] = ["Default", "Unmasked"];
const GROUP_POLICIES: [&str; 2] = ["Merge", "Strict"];
const SYSCTL_BYTES_MAX: usize = 253;
const SYSCTL_NAME: &str = "must have at most 253 characters and match regex \
                           ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
/// Before the names of parameters that belong to the namespace of System V objects and message queues.
const OF_IPC: [&str; 4] = ["kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue."];

pub(super) fn validate(spec: &Value, problems: &mut Problems) {
    let of_pod = &spec["securityContext"];
    let is_linux = spec["os"]["name"] == "linux";
    if spec["hostPID"] == true && spec["shareProcessNamespace"] == true {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        problems.invalid("spec.securityContext.shareProcessNamespace", &true.into(), detail);
    }
    if spec["hostUsers"] == false {
        for field in ["hostNetwork", "hostPID", "hostIPC"].into_iter().filter(|field| spec[*field] == true) {
            problems.forbidden(&format!("spec.{field}"), "when `hostUsers` is false");
        }
    }
    if let Some(policy) = of_pod["supplementalGroupsPolicy"].as_str().filter(|policy| !GROUP_POLICIES.contains(policy))
    {
        problems.not_supported("spec.securityContext.supplementalGroupsPolicy", policy, &GROUP_POLICIES);
    }
    if is_linux && of_pod["windowsOptions"].is_object() {
        problems.forbidden("spec.securityContext.windowsOptions", LINUX);
    }
    sysctls(spec, problems);
    for (path, container) in containers_in(spec, &ALL_LISTS) {
        let own = container.get("securityContext").unwrap_or(&Value::Null);
        if is_linux && own["windowsOptions"].is_object() {
            problems.forbidden(&format!("{path}.securityContext.windowsOptions"), LINUX);
        }
        proc_mount(&format!("{path}.securityContext.procMount"), &own["procMount"], spec, problems);
    }
}

const LINUX: &str = "windows options cannot be set for a linux pod";

fn proc_mount(path: &str, kind: &Value, spec: &Value, problems: &mut Problems) {
    let Some(name) = kind.as_str() else { return };
    if !PROC_MOUNTS.contains(&name) {
        problems.not_supported(path, name, &PROC_MOUNTS);
    } else if name == "Unmasked" && spec["hostUsers"] != false {
        problems.invalid(path, kind, "`hostUsers` must be false to use `Unmasked`");
    }
}

fn sysctls(spec: &Value, problems: &mut Problems) {
    let mut seen = BTreeSet::new();
    for (index, sysctl) in spec["securityContext"]["sysctls"].as_array().into_iter().flatten().enumerate() {
        let path = format!("spec.securityContext.sysctls[{index}].name");
        let name = sysctl["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            problems.required(&path, "");
        } else if !is_sysctl_name(name) {
            problems.invalid(&path, &name.into(), SYSCTL_NAME);
        } else if !seen.insert(name) {
            problems.duplicate(&path, name);
        }
        let dotted = name.replace('/', ".");
        if spec["hostNetwork"] == true && dotted.starts_with("net.") {
            problems.invalid(&path, &name.into(), "may not be specified when 'hostNetwork' is true");
        }
        if spec["hostIPC"] == true && OF_IPC.iter().any(|start| dotted.starts_with(start)) {
            problems.invalid(&path, &name.into(), "may not be specified when 'hostIPC' is true");
        }
    }
}

/// Parts of lower-case letters, digits and, within, dashes and underscores.
fn is_sysctl_name(name: &str) -> bool {
    let ends = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let part = |part: &str| {
        let bytes = part.as_bytes();
        let within = bytes.iter().all(|byte| ends(byte) || matches!(byte, b'-' | b'_'));
        within && bytes.first().is_some_and(ends) && bytes.last().is_some_and(ends)
    };
    name.len() <= SYSCTL_BYTES_MAX && name.split(['.', '/']).all(part)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problems(spec: &Value) -> Vec<String> {
        let mut problems = Problems::default();
        validate(spec, &mut problems);
        problems.into_errors().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_rule_names_its_field() {
        let sysctls =
            |names: &[&str]| json!({ "sysctls": names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>() });
        let context =
            |context: Value| json!({ "containers": [{"name": "a"}, {"name": "b", "securityContext": context}] });
        let windows = json!({"os": {"name": "linux"}, "securityContext": {"windowsOptions": {}}});
        for (spec, wanted) in [
            (
                json!({"hostPID": true, "shareProcessNamespace": true}),
                "spec.securityContext.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled",
            ),
            (json!({"hostUsers": false, "hostIPC": true}), "spec.hostIPC: Forbidden: when `hostUsers` is false"),
            (
                json!({"ephemeralContainers": [{"securityContext": {"procMount": "None"}}]}),
                "spec.ephemeralContainers[0].securityContext.procMount: Unsupported value: \"None\": supported values: \"Default\", \"Unmasked\"",
            ),
            (
                json!({"securityContext": {"supplementalGroupsPolicy": "None"}}),
                "spec.securityContext.supplementalGroupsPolicy: Unsupported value: \"None\": supported values: \"Merge\", \"Strict\"",
            ),
            (windows, "spec.securityContext.windowsOptions: Forbidden: windows options cannot be set for a linux pod"),
            (json!({"securityContext": sysctls(&[""])}), "spec.securityContext.sysctls[0].name: Required value"),
            (
                json!({"securityContext": sysctls(&["a.b", "a.b"])}),
                "spec.securityContext.sysctls[1].name: Duplicate value: \"a.b\"",
            ),
            (
                json!({"hostNetwork": true, "securityContext": sysctls(&["net/ipv4.ip_forward"])}),
                "spec.securityContext.sysctls[0].name: Invalid value: \"net/ipv4.ip_forward\": may not be specified when 'hostNetwork' is true",
            ),
            (
                json!({"hostIPC": true, "securityContext": sysctls(&["kernel.msgmax"])}),
                "spec.securityContext.sysctls[0].name: Invalid value: \"kernel.msgmax\": may not be specified when 'hostIPC' is true",
            ),
            (
                context(json!({"procMount": "Unmasked"})),
                "spec.containers[1].securityContext.procMount: Invalid value: \"Unmasked\": `hostUsers` must be false to use `Unmasked`",
            ),
            (
                context(json!({"procMount": "None"})),
                "spec.containers[1].securityContext.procMount: Unsupported value: \"None\": supported values: \"Default\", \"Unmasked\"",
            ),
        ] {
            assert_eq!(problems(&spec), [wanted], "{spec}");
        }
        for name in ["A.b", "a..b", "a.", "-a", "a_", "a b", "../a", &"a".repeat(254)] {
            let found = problems(&json!({"securityContext": sysctls(&[name])}));
            assert!(found.len() == 1 && found[0].contains("match regex"), "{name}: {found:?}");
        }
    }

    #[test]
    fn what_may_be_said_together_is_let_through() {
        let sysctls = json!([{"name": "net.ipv4.tcp_syncookies"}, {"name": "net/ipv4/conf/eth0.1/mtu_x-y"}]);
        for spec in [
            json!({}),
            json!({"hostUsers": false, "containers": [{"securityContext": {"procMount": "Unmasked"}}]}),
            json!({"hostPID": true, "hostIPC": true, "shareProcessNamespace": false, "ephemeralContainers": []}),
            json!({"hostIPC": true, "securityContext": {"sysctls": sysctls, "supplementalGroupsPolicy": "Strict"}}),
            json!({"os": {"name": "windows"}, "securityContext": {"windowsOptions": {}}}),
            json!({"hostNetwork": true, "securityContext": {"sysctls": [{"name": "kernel.shm_rmid_forced"}], "windowsOptions": {}}}),
        ] {
            assert_eq!(problems(&spec), [""; 0], "{spec}");
        }
    }
}
