//! Profile `baseline` of the Pod Security Standards: what lets a pod out of its container.
//!
//! Every control of the profile, as <https://kubernetes.io/docs/concepts/security/pod-security-standards/> has it: fields of a pod
//! spec in Kubernetes' JSON, none of which is needed to compute something. Fields of a type that Kubernetes refuses count as absent.

use serde_json::Value;

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
/// Sysctls that a pod has for itself.
const SYSCTLS: [&str; 10] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_syncookies",
];
/// Types of SELinux that confine.
const SELINUX_TYPES: [&str; 5] = ["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];
/// Namespaces of the host.
const HOST_NAMESPACES: [&str; 3] = ["hostNetwork", "hostPID", "hostIPC"];
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// The first thing that the profile forbids, as the path of its field within the spec; nothing where the pod is within it. Folders
/// of the host that `may_mount` are no such thing, though the profile forbids all of them.
pub fn violation(spec: &Value, may_mount: impl Fn(&str) -> bool) -> Option<String> {
    of_host(spec, may_mount)
        .or_else(|| security(&spec["securityContext"]).map(|field| format!("securityContext.{field}")))
        .or_else(|| {
            CONTAINERS.into_iter().find_map(|list| {
                let mut containers = items(&spec[list]).enumerate();
                containers.find_map(|(index, container)| {
                    of_container(container).map(|field| format!("{list}[{index}].{field}"))
                })
            })
        })
}

fn of_host(spec: &Value, may_mount: impl Fn(&str) -> bool) -> Option<String> {
    let namespace = HOST_NAMESPACES.into_iter().find(|field| spec[*field] == true).map(str::to_owned);
    namespace.or_else(|| {
        let mut volumes = items(&spec["volumes"]).enumerate();
        volumes.find_map(|(index, volume)| {
            let folder = &volume["hostPath"];
            let is_forbidden = !folder.is_null() && !folder["path"].as_str().is_some_and(&may_mount);
            is_forbidden.then(|| format!("volumes[{index}].hostPath"))
        })
    })
}

fn of_container(container: &Value) -> Option<String> {
    let context = &container["securityContext"];
    let own = |field: &str| Some(format!("securityContext.{field}"));
    if context["privileged"] == true {
        return own("privileged");
    }
    let forbidden = |capability: &Value| capability.as_str().is_some_and(|name| !CAPABILITIES.contains(&name));
    if items(&context["capabilities"]["add"]).any(forbidden) {
        return own("capabilities.add");
    }
    if context["procMount"].as_str().is_some_and(|kind| kind != "Default") {
        return own("procMount");
    }
    if let Some(field) = security(context) {
        return own(&field);
    }
    let mut ports = items(&container["ports"]).enumerate();
    ports.find_map(|(index, port)| {
        let is_taken = port["hostPort"].as_i64().is_some_and(|port| port != 0);
        is_taken.then(|| format!("ports[{index}].hostPort"))
    })
}

/// What a pod's context and a container's have alike.
fn security(context: &Value) -> Option<String> {
    let text = |path: &str| context.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let fails = [
        ("windowsOptions.hostProcess", context["windowsOptions"]["hostProcess"] == true),
        ("seccompProfile.type", text("/seccompProfile/type") == "Unconfined"),
        ("appArmorProfile.type", text("/appArmorProfile/type") == "Unconfined"),
        ("seLinuxOptions.type", !SELINUX_TYPES.contains(&text("/seLinuxOptions/type"))),
        ("seLinuxOptions.user", !text("/seLinuxOptions/user").is_empty()),
        ("seLinuxOptions.role", !text("/seLinuxOptions/role").is_empty()),
    ];
    if let Some((field, _)) = fails.into_iter().find(|(_, fails)| *fails) {
        return Some(field.to_owned());
    }
    let mut sysctls = items(&context["sysctls"]).enumerate();
    sysctls.find_map(|(index, sysctl)| {
        let is_forbidden = sysctl["name"].as_str().is_some_and(|name| !SYSCTLS.contains(&name));
        is_forbidden.then(|| format!("sysctls[{index}].name"))
    })
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_control_is_checked() {
        let container = |fields: Value| json!({"initContainers": [{}], "containers": [{}, fields]});
        let context = |fields: Value| container(json!({ "securityContext": fields }));
        for (spec, field) in [
            (json!({"hostNetwork": true}), "hostNetwork"),
            (json!({"hostPID": true}), "hostPID"),
            (json!({"hostIPC": true}), "hostIPC"),
            (json!({"volumes": [{"emptyDir": {}}, {"hostPath": {"path": "/"}}]}), "volumes[1].hostPath"),
            (
                json!({"securityContext": {"windowsOptions": {"hostProcess": true}}}),
                "securityContext.windowsOptions.hostProcess",
            ),
            (json!({"securityContext": {"sysctls": [{"name": "kernel.msgmax"}]}}), "securityContext.sysctls[0].name"),
            (
                json!({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}),
                "securityContext.seccompProfile.type",
            ),
            (json!({"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}), "securityContext.seLinuxOptions.type"),
            (context(json!({"privileged": true})), "containers[1].securityContext.privileged"),
            (
                context(json!({"capabilities": {"add": ["KILL", "SYS_ADMIN"]}})),
                "containers[1].securityContext.capabilities.add",
            ),
            (context(json!({"capabilities": {"add": ["ALL"]}})), "containers[1].securityContext.capabilities.add"),
            (context(json!({"procMount": "Unmasked"})), "containers[1].securityContext.procMount"),
            (context(json!({"seLinuxOptions": {"user": "u"}})), "containers[1].securityContext.seLinuxOptions.user"),
            (context(json!({"seLinuxOptions": {"role": "r"}})), "containers[1].securityContext.seLinuxOptions.role"),
            (
                context(json!({"appArmorProfile": {"type": "Unconfined"}})),
                "containers[1].securityContext.appArmorProfile.type",
            ),
            (container(json!({"ports": [{"hostPort": 0}, {"hostPort": 80}]})), "containers[1].ports[1].hostPort"),
            (
                json!({"initContainers": [{"securityContext": {"privileged": true}}]}),
                "initContainers[0].securityContext.privileged",
            ),
        ] {
            assert_eq!(violation(&spec, |_| false).as_deref(), Some(field), "{spec}");
        }
        let mounts = |paths: &[&str]| {
            let volumes = paths.iter().map(|path| json!({"hostPath": {"path": path}})).collect::<Vec<_>>();
            violation(&json!({ "volumes": volumes }), |path| path == "/shared")
        };
        assert_eq!((mounts(&["/shared"]), mounts(&["/shared", "/"])), (None, Some("volumes[1].hostPath".to_owned())));
        for spec in [
            json!({}),
            json!({"hostNetwork": false, "volumes": [{"configMap": {"name": "a"}}, 7], "containers": [7, {"ports": [{"containerPort": 80}]}]}),
            json!({"securityContext": {"runAsUser": 0, "sysctls": [{"name": "net.ipv4.tcp_syncookies"}]}}),
            context(
                json!({"privileged": false, "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]}, "procMount": "Default",
                "seccompProfile": {"type": "RuntimeDefault"}, "seLinuxOptions": {"type": "container_t", "level": "s0"}}),
            ),
        ] {
            assert_eq!(violation(&spec, |_| false), None, "{spec}");
        }
    }
}
