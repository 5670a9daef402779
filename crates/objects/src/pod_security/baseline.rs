//! The controls of `baseline`: what lets a pod out of its container. None of it is needed to compute something.

use serde_json::Value;

use super::Violation;
use super::finding::{
    Finding, Pod, Subject, containers, items, names, plural, quoted, setters, text, unique, uses, values,
};
use crate::quote::Quoted;

/// Capabilities that may be added.
const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
/// Sysctls that a pod has for itself, and the minor version from which on they count as such.
const SYSCTLS: [(&str, u32); 12] = [
    ("kernel.shm_rmid_forced", 0),
    ("net.ipv4.ip_local_port_range", 0),
    ("net.ipv4.ip_local_reserved_ports", 27),
    ("net.ipv4.ip_unprivileged_port_start", 0),
    ("net.ipv4.ping_group_range", 0),
    ("net.ipv4.tcp_fin_timeout", 29),
    ("net.ipv4.tcp_keepalive_intvl", 29),
    ("net.ipv4.tcp_keepalive_probes", 29),
    ("net.ipv4.tcp_keepalive_time", 29),
    ("net.ipv4.tcp_rmem", 32),
    ("net.ipv4.tcp_syncookies", 0),
    ("net.ipv4.tcp_wmem", 32),
];
/// Types of SELinux that confine, and since when.
const SELINUX_TYPES: [(&str, u32); 5] =
    [("", 0), ("container_t", 0), ("container_init_t", 0), ("container_kvm_t", 0), ("container_engine_t", 31)];
/// Namespaces of the host, and how messages name them.
const HOST_NAMESPACES: [(&str, &str); 3] =
    [("hostNetwork", "hostNetwork=true"), ("hostPID", "hostPID=true"), ("hostIPC", "hostIPC=true")];
/// Before the name of a container: the profile that it asked for before there was a field.
const APP_ARMOR_ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";
/// Fields of a container that may hold an action, and those below them.
const HANDLERS: [(&str, &[&str]); 4] =
    [("livenessProbe", &[]), ("readinessProbe", &[]), ("startupProbe", &[]), ("lifecycle", &["postStart", "preStop"])];

pub(super) fn host_namespaces<'a>(pod: &Pod<'a>, found: &mut Vec<Finding<'a>>) {
    let namespaces = HOST_NAMESPACES.into_iter().filter(|(field, _)| pod.spec[*field] == true);
    found.extend(namespaces.map(|(field, text)| Finding::new(Subject::Pod, field, text)));
}

pub(super) fn tell_host_namespaces(found: &[&Finding<'_>]) -> Violation {
    let named = values(found);
    let texts = HOST_NAMESPACES.into_iter().map(|(_, text)| text).filter(|text| named.contains(text));
    Violation { reason: "host namespaces", detail: texts.collect::<Vec<_>>().join(", ") }
}

pub(super) fn host_folders<'a>(pod: &Pod<'a>, found: &mut Vec<Finding<'a>>) {
    let volumes = pod.volumes().filter(|(_, volume)| !volume["hostPath"].is_null());
    found.extend(volumes.map(|(subject, volume)| Finding::new(subject, "hostPath", text(&volume["hostPath"]["path"]))));
}

pub(super) fn tell_host_folders(found: &[&Finding<'_>]) -> Violation {
    let names = names(found);
    let detail = format!("{} {}", plural(names.len(), "volume", "volumes"), quoted(names));
    Violation { reason: "hostPath volumes", detail }
}

pub(super) fn privileged<'a>(pod: &Pod<'a>, found: &mut Vec<Finding<'a>>) {
    let contexts = pod.container_contexts().filter(|(_, context)| context["privileged"] == true);
    found.extend(contexts.map(|(subject, _)| Finding::new(subject, "securityContext.privileged", "true")));
}

pub(super) fn tell_privileged(found: &[&Finding<'_>]) -> Violation {
    let detail = format!("{} must not set securityContext.privileged=true", containers(found));
    Violation { reason: "privileged", detail }
}

pub(super) fn capabilities<'a>(pod: &Pod<'a>, found: &mut Vec<Finding<'a>>) {
    found.extend(added_capabilities(pod, |name| CAPABILITIES.contains(&name)));
}

/// Capabilities that containers add though they may not.
pub(super) fn added_capabilities<'a>(
    pod: &Pod<'a>,
    may_add: impl Fn(&str) -> bool,
) -> impl Iterator<Item = Finding<'a>> {
    pod.container_contexts().flat_map(move |(subject, context)| {
        let added = items(&context["capabilities"]["add"]).filter_map(Value::as_str);
        let forbidden: Vec<&str> = added.filter(|name| !may_add(name)).collect();
        forbidden.into_iter().map(move |name| Finding::new(subject, "securityContext.capabilities.add", name))
    })
}

pub(super) fn tell_capabilities(found: &[&Finding<'_>]) -> Violation {
    Violation { reason: "non-default capabilities", detail: added(found) }
}

/// Who may not add what.
pub(super) fn added(found: &[&Finding<'_>]) -> String {
    format!("{} must not include {} in securityContext.capabilities.add", containers(found), quoted(values(found)))
}

pub(super) fn proc_mount<'a>(pod: &Pod<'a>, found: &mut Vec<Finding<'a>>) {
    if !pod.has_own_users {
        found.extend(unmasked(pod));
    }
}

/// Containers that see more of `/proc` than others.
pub(super) fn unmasked<'a>(pod: &Pod<'a>) -> impl Iterator<Item = Finding<'a>> {
    pod.container_contexts().filter_map(|(subject, context)| {
        let kind = context["procMount"].as_str().filter(|kind| *kind != "Default")?;
        Some(Finding::new(subject, "securityContext.procMount", kind))
    })
}

pub(super) fn tell_proc_mount(found: &[&Finding<'_>]) -> Violation {
    let detail = format!("{} must not set securityContext.procMount to {}", containers(found), quoted(values(found)));
    Violation { reason: "procMount", detail }
}

pub(super) fn host_process<'a>(pod: &Pod<'a>, found: &mut Vec<Finding<'a>>) {
    let contexts = pod.contexts().filter(|(_, context)| context["windowsOptions"]["hostProcess"] == true);
    let field = "securityContext.windowsOptions.hostProcess";
    found.extend(contexts.map(|(subject, _)| Finding::new(subject, field, "true")));
}

pub(super) fn tell_host_process(found: &[&Finding<'_>]) -> Violation {
    let detail = format!("{} must not set securityContext.windowsOptions.hostProcess=true", setters(found));
    Violation { reason: "hostProcess", detail }
}

pub(super) fn seccomp<'a>(pod: &Pod<'a>, found: &mut Vec<Finding<'a>>) {
    found.extend(pod.contexts().filter_map(|(subject, context)| unconfined(subject, context, "seccompProfile")));
}

/// A profile that confines nothing.
pub(super) fn unconfined<'a>(subject: Subject<'a>, context: &'a Value, field: &'static str) -> Option<Finding<'a>> {
    let profile = &context[field];
    let kind = text(&profile["type"]);
    let confines = !profile.is_object() || ["RuntimeDefault", "Localhost"].contains(&kind);
    (!confines).then(|| Finding::new(subject, format!("securityContext.{field}.type"), kind))
}

pub(super) fn tell_seccomp(found: &[&Finding<'_>]) -> Violation {
    let kinds = quoted(values(found));
    let detail = format!("{} must not set securityContext.seccompProfile.type to {kinds}", setters(found));
    Violation { reason: "seccompProfile", detail }
}

pub(super) fn app_armor<'a>(pod: &Pod<'a>, found: &mut Vec<Finding<'a>>) {
    found.extend(pod.contexts().filter_map(|(subject, context)| unconfined(subject, context, "appArmorProfile")));
    for (key, profile) in pod.annotations.as_object().into_iter().flatten() {
        let profile = text(profile);
        let confines = profile.is_empty() || profile == "runtime/default" || profile.starts_with("localhost/");
        if key.starts_with(APP_ARMOR_ANNOTATION) && !confines {
            found.push(Finding::new(Subject::Annotation, "", format!("{key}={}", Quoted(profile))));
        }
    }
}

pub(super) fn tell_app_armor(found: &[&Finding<'_>]) -> Violation {
    let (annotations, fields): (Vec<&Finding<'_>>, Vec<&Finding<'_>>) =
        found.iter().copied().partition(|finding| matches!(finding.subject, Subject::Annotation));
    let values: Vec<&str> = values(&fields).into_iter().chain(values(&annotations)).collect();
    let reason = plural(values.len(), "forbidden AppArmor profile", "forbidden AppArmor profiles");
    let detail = format!("{} must not set AppArmor profile type to {}", setters(found), quoted(values));
    Violation { reason, detail }
}

pub(super) fn se_linux<'a>(pod: &Pod<'a>, found: &mut Vec<Finding<'a>>) {
    for (subject, context) in pod.contexts() {
        let options = &context["seLinuxOptions"];
        let kind = text(&options["type"]);
        if !SELINUX_TYPES.iter().any(|(name, since)| *name == kind && pod.minor >= *since) {
            found.push(Finding::new(subject, "securityContext.seLinuxOptions.type", kind));
        }
        for (field, path) in
            [("user", "securityContext.seLinuxOptions.user"), ("role", "securityContext.seLinuxOptions.role")]
        {
            if !text(&options[field]).is_empty() {
                found.push(Finding::new(subject, path, text(&options[field])));
            }
        }
    }
}

pub(super) fn tell_se_linux(found: &[&Finding<'_>]) -> Violation {
    let of_field = |field: &str| -> Vec<&Finding<'_>> {
        found.iter().copied().filter(|finding| finding.field.ends_with(field)).collect()
    };
    let types = values(&of_field(".type"));
    let mut problems = Vec::new();
    if !types.is_empty() {
        problems.push(format!("{} {}", plural(types.len(), "type", "types"), quoted(types)));
    }
    for (field, problem) in [(".user", "user may not be set"), (".role", "role may not be set")] {
        if !of_field(field).is_empty() {
            problems.push(problem.to_owned());
        }
    }
    let detail = format!("{} set forbidden securityContext.seLinuxOptions: {}", setters(found), problems.join("; "));
    Violation { reason: "seLinuxOptions", detail }
}

pub(super) fn sysctls<'a>(pod: &Pod<'a>, found: &mut Vec<Finding<'a>>) {
    for (index, sysctl) in items(&pod.spec["securityContext"]["sysctls"]).enumerate() {
        let Some(name) = sysctl["name"].as_str() else { continue };
        if !SYSCTLS.iter().any(|(known, since)| *known == name && pod.minor >= *since) {
            found.push(Finding::new(Subject::Pod, format!("securityContext.sysctls[{index}].name"), name));
        }
    }
}

/// Whether a pod may set this parameter of the kernel, which it has for itself, in every profile.
pub fn is_safe_sysctl(name: &str) -> bool {
    SYSCTLS.iter().any(|(known, _)| *known == name)
}

pub(super) fn tell_sysctls(found: &[&Finding<'_>]) -> Violation {
    let names = unique(found.iter().filter_map(|finding| finding.value.as_deref()));
    Violation { reason: "forbidden sysctls", detail: names.join(", ") }
}

pub(super) fn host_ports<'a>(pod: &Pod<'a>, found: &mut Vec<Finding<'a>>) {
    for (subject, container) in pod.containers() {
        for (index, port) in items(&container["ports"]).enumerate() {
            if port["hostPort"].as_f64().is_some_and(|number| number != 0.0) {
                let number = port["hostPort"].to_string();
                found.push(Finding::new(subject, format!("ports[{index}].hostPort"), number));
            }
        }
    }
}

pub(super) fn tell_host_ports(found: &[&Finding<'_>]) -> Violation {
    let ports: Vec<&str> = values(found).into_iter().collect();
    let uses = plural(names(found).len(), "uses", "use");
    let what = plural(ports.len(), "hostPort", "hostPorts");
    Violation { reason: "hostPort", detail: format!("{} {uses} {what} {}", containers(found), ports.join(", ")) }
}

pub(super) fn probe_hosts<'a>(pod: &Pod<'a>, found: &mut Vec<Finding<'a>>) {
    for (subject, container) in pod.containers() {
        let handlers = HANDLERS.into_iter().flat_map(|(field, below)| match below {
            [] => vec![&container[field]],
            below => below.iter().map(|hook| &container[field][hook]).collect(),
        });
        let actions = handlers.flat_map(|handler| [&handler["httpGet"], &handler["tcpSocket"]]);
        let hosts = actions.map(|action| text(&action["host"])).filter(|host| !host.is_empty());
        found.extend(hosts.map(|host| Finding::new(subject, "", host)));
    }
}

pub(super) fn tell_probe_hosts(found: &[&Finding<'_>]) -> Violation {
    let mut names = names(found);
    // Unlike other lists of containers.
    names.sort_unstable();
    let hosts = ["probe or lifecycle host", "probe or lifecycle hosts"];
    let detail = uses(&names, ["container", "containers"], &values(found), hosts);
    Violation { reason: "probe or lifecycle host", detail }
}
