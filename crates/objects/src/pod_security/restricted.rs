//! The controls that `restricted` adds: a pod has to say that it needs no rights.

use serde_json::Value;

use super::Violation;
use super::baseline::{self, added, added_capabilities, unconfined, unmasked};
use super::finding::{Finding, Pod, Subject, containers, items, names, setters, uses, values};

/// Sources of volumes that are the pod's own, or that somebody with more rights has chosen.
const VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];
/// Where a container drops its capabilities.
const DROP: &str = "securityContext.capabilities.drop";
const NON_ROOT: &str = "securityContext.runAsNonRoot";

pub(super) fn escalation<'a>(pod: &Pod<'a>, found: &mut Vec<Finding<'a>>) {
    if pod.is_windows() {
        return;
    }
    let contexts = pod.container_contexts().filter(|(_, context)| context["allowPrivilegeEscalation"] != false);
    let field = "securityContext.allowPrivilegeEscalation";
    found.extend(contexts.map(|(subject, _)| Finding::missing(subject, field)));
}

pub(super) fn tell_escalation(found: &[&Finding<'_>]) -> Violation {
    let detail = format!("{} must set securityContext.allowPrivilegeEscalation=false", containers(found));
    Violation { reason: "allowPrivilegeEscalation != false", detail }
}

pub(super) fn capabilities<'a>(pod: &Pod<'a>, found: &mut Vec<Finding<'a>>) {
    if pod.is_windows() {
        return;
    }
    let drops_all = |context: &Value| items(&context["capabilities"]["drop"]).any(|name| name == "ALL");
    let undropped = pod.container_contexts().filter(|(_, context)| !drops_all(context));
    found.extend(undropped.map(|(subject, _)| Finding::missing(subject, DROP)));
    found.extend(added_capabilities(pod, |name| name == "NET_BIND_SERVICE"));
}

pub(super) fn tell_capabilities(found: &[&Finding<'_>]) -> Violation {
    let (adding, undropped): (Vec<&Finding<'_>>, Vec<&Finding<'_>>) =
        found.iter().copied().partition(|finding| finding.is_explicit());
    let mut problems = Vec::new();
    if !undropped.is_empty() {
        problems.push(format!("{} must set {DROP}=[\"ALL\"]", containers(&undropped)));
    }
    if !adding.is_empty() {
        problems.push(added(&adding));
    }
    Violation { reason: "unrestricted capabilities", detail: problems.join("; ") }
}

pub(super) fn proc_mount<'a>(pod: &Pod<'a>, found: &mut Vec<Finding<'a>>) {
    found.extend(unmasked(pod));
}

pub(super) fn volumes<'a>(pod: &Pod<'a>, found: &mut Vec<Finding<'a>>) {
    for (subject, volume) in pod.volumes() {
        let sources = volume.as_object().into_iter().flatten();
        let sources = sources.filter(|(field, source)| *field != "name" && !source.is_null());
        // Without any it is an emptyDir.
        let forbidden = sources.filter(|(source, _)| !VOLUMES.contains(&source.as_str()));
        found.extend(forbidden.map(|(source, _)| Finding::new(subject, source.clone(), source.as_str())));
    }
}

pub(super) fn tell_volumes(found: &[&Finding<'_>]) -> Violation {
    let types = ["restricted volume type", "restricted volume types"];
    let detail = uses(&names(found), ["volume", "volumes"], &values(found), types);
    Violation { reason: "restricted volume types", detail }
}

pub(super) fn non_root<'a>(pod: &Pod<'a>, found: &mut Vec<Finding<'a>>) {
    if pod.has_own_users {
        return;
    }
    let of_pod = pod.spec["securityContext"]["runAsNonRoot"].as_bool();
    if of_pod == Some(false) {
        found.push(Finding::new(Subject::Pod, NON_ROOT, "false"));
    }
    for (subject, context) in pod.container_contexts() {
        match context["runAsNonRoot"].as_bool() {
            Some(false) => found.push(Finding::new(subject, NON_ROOT, "false")),
            None if of_pod != Some(true) => found.push(Finding::missing(subject, NON_ROOT)),
            Some(true) | None => {}
        }
    }
}

pub(super) fn tell_non_root(found: &[&Finding<'_>]) -> Violation {
    let explicit: Vec<&Finding<'_>> = found.iter().copied().filter(|finding| finding.is_explicit()).collect();
    let detail = if explicit.is_empty() {
        format!("pod or {} must set {NON_ROOT}=true", containers(found))
    } else {
        format!("{} must not set {NON_ROOT}=false", setters(&explicit))
    };
    Violation { reason: "runAsNonRoot != true", detail }
}

pub(super) fn user<'a>(pod: &Pod<'a>, found: &mut Vec<Finding<'a>>) {
    if pod.has_own_users {
        return;
    }
    // As a float: `-0` is read as one.
    let contexts = pod.contexts().filter(|(_, context)| context["runAsUser"].as_f64() == Some(0.0));
    found.extend(contexts.map(|(subject, _)| Finding::new(subject, "securityContext.runAsUser", "0")));
}

pub(super) fn tell_user(found: &[&Finding<'_>]) -> Violation {
    Violation { reason: "runAsUser=0", detail: format!("{} must not set runAsUser=0", setters(found)) }
}

pub(super) fn seccomp<'a>(pod: &Pod<'a>, found: &mut Vec<Finding<'a>>) {
    if pod.is_windows() {
        return;
    }
    let of_pod = &pod.spec["securityContext"];
    let unconfined_pod = unconfined(Subject::Pod, of_pod, "seccompProfile");
    let is_confined = of_pod["seccompProfile"].is_object() && unconfined_pod.is_none();
    found.extend(unconfined_pod);
    for (subject, context) in pod.container_contexts() {
        if context["seccompProfile"].is_object() {
            found.extend(unconfined(subject, context, "seccompProfile"));
        } else if !is_confined {
            found.push(Finding::missing(subject, "securityContext.seccompProfile.type"));
        }
    }
}

pub(super) fn tell_seccomp(found: &[&Finding<'_>]) -> Violation {
    let explicit: Vec<&Finding<'_>> = found.iter().copied().filter(|finding| finding.is_explicit()).collect();
    if !explicit.is_empty() {
        return baseline::tell_seccomp(&explicit);
    }
    let detail = format!(
        "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
        containers(found)
    );
    Violation { reason: "seccompProfile", detail }
}
