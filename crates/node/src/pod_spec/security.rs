//! What of a pod's security this node can't give, and must not pass over.
//!
//! A pod that asks for a user namespace, for a profile of AppArmor or for parameters of the kernel relies on getting them, so
//! it is not started where it would go without. What a kubelet passes over on a node without SELinux or Windows is passed over
//! here, too, and the API server warns of it. Invariant: pure. Called when a pod is resolved.

use k8s_openapi::api::core::v1::{AppArmorProfile, Container, Pod, PodSecurityContext, PodSpec, SecurityContext};
use pumice_objects::pod_security::is_safe_sysctl;

use crate::pod_spec::names::{FQDN_BYTES_MAX, full_name};
use crate::subordinate_ids::POD_IDS;
use pumice_shim::spec::{Processes, Sysctl};

/// Before the name of a container: its AppArmor profile, as it was asked for before there was a field.
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const UNCONFINED: &str = "Unconfined";

/// What this node has of what pods may ask for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeSupport {
    /// Own processes, mounts and System V objects for pods.
    pub namespaces: bool,
    /// Own networks for pods.
    pub networks: bool,
    pub control_groups: bool,
    /// Whether a control group limits what pods read and write.
    pub disk_limits: bool,
    /// Whether the machine runs AppArmor, of whose profiles a pod may name a loaded one.
    pub app_armor: bool,
    /// Whether the machine runs SELinux, whose labels this node does not set.
    pub selinux: bool,
    /// The one user that pods can have, as they see it.
    pub only_uid: Option<u32>,
    pub users: UserSupport,
}

/// Whether pods can have users and groups of their own, in user namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UserSupport {
    None,
    /// Those that ask for them.
    Some,
    /// All are in one, since the platform is not root's, with that one user.
    One,
    /// The same, with those that the machine gives to the platform's user.
    Subordinate,
}

/// Whose users a pod has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PodUsers {
    /// The machine's, or the only one that there is.
    Machines,
    Own,
    /// The platform's user, and those that the machine gives to that one for all its pods.
    Subordinate,
}

impl PodUsers {
    /// As the namespace says, or else the pod: one that enforces `restricted` has pods with users of their own, unless this node has
    /// none for them and the pod says that it does without. In a user namespace of an ordinary user there are no others.
    pub(crate) fn of(pod: &Pod, enforces_restricted: bool, node: &NodeSupport) -> Result<PodUsers, Refusal> {
        const PATH: &str = "spec.hostUsers";
        let named = pod.spec.as_ref().and_then(|spec| spec.host_users);
        match (named.unwrap_or(!enforces_restricted), node.users) {
            (_, UserSupport::Subordinate) => Ok(PodUsers::Subordinate),
            (true, UserSupport::Some) if enforces_restricted => refuse(
                PATH,
                "its namespace enforces restricted, whose pods have users of their own; leave the field out",
            ),
            (true, _) | (false, UserSupport::One) => Ok(PodUsers::Machines),
            (false, UserSupport::Some) => Ok(PodUsers::Own),
            (false, UserSupport::None) => {
                let why =
                    if named.is_some() { "this node" } else { "its namespace enforces restricted, and this node" };
                let detail = format!(
                    "{why} has no user namespaces for its pods (see its annotation \
                    pumice.sh/node-capabilities); say true to have the machine's users"
                );
                refuse(PATH, detail)
            }
        }
    }
}

/// A field that this node does not do what it says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {detail}")]
pub(crate) struct Refusal {
    path: String,
    detail: String,
}

type Checked = Result<(), Refusal>;

pub(crate) fn refuse<T>(path: impl Into<String>, detail: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal { path: path.into(), detail: detail.into() })
}

/// The user that a container's image names, if it names one.
pub(crate) type ImageUid<'a> = &'a dyn Fn(&Container) -> Option<u32>;

/// Refuses a pod for the first field that it relies on in vain.
pub(crate) fn check(pod: &Pod, users: PodUsers, node: &NodeSupport, image_uid: ImageUid<'_>) -> Checked {
    let Some(spec) = &pod.spec else { return Ok(()) };
    let none = PodSecurityContext::default();
    let of_pod = spec.security_context.as_ref().unwrap_or(&none);
    whole(pod, spec, node)?;
    match users {
        PodUsers::Machines => {}
        PodUsers::Own => {
            nothing_of_machine(spec)?;
            ids(spec, of_pod, "a pod with users of its own (hostUsers: false)")?;
        }
        PodUsers::Subordinate => ids(spec, of_pod, "a pod of a user without root")?,
    }
    check_sysctls(spec, of_pod, node)?;
    app_armor(pod, of_pod, node)?;
    if node.selinux && of_pod.se_linux_options.is_some() {
        return refuse("spec.securityContext.seLinuxOptions", SELINUX);
    }
    let lists = [("initContainers", spec.init_containers.as_deref()), ("containers", Some(&*spec.containers))];
    for (list, containers) in lists {
        for (index, container) in containers.unwrap_or_default().iter().enumerate() {
            of_container(&format!("spec.{list}[{index}]"), container, spec, of_pod, node, image_uid)?;
        }
    }
    Ok(())
}

const SELINUX: &str = "this node sets no labels of SELinux, which this machine runs";
const NO_APP_ARMOR: &str = "this node does not run AppArmor; leave it out, or say Unconfined";
const NO_DEFAULT: &str =
    "this node has no default profile of AppArmor; name a loaded one by Localhost, or say Unconfined";
const BY_FIELD: &str = "name it by securityContext.appArmorProfile";
const NO_NAMESPACES: &str = "this node can't separate its pods from the machine's processes; run it as root";
const NO_GROUPS: &str = "this node has no control groups, by which it would end what a container leaves behind";

fn whole(pod: &Pod, spec: &PodSpec, node: &NodeSupport) -> Checked {
    if let Some(name) = spec.os.as_ref().map(|os| &os.name).filter(|name| *name != "linux") {
        return refuse("spec.os.name", format!("this node runs pods of linux, not of {name:?}"));
    }
    let shared = [("spec.hostPID", spec.host_pid), ("spec.shareProcessNamespace", spec.share_process_namespace)];
    for (path, _) in shared.into_iter().filter(|(_, wanted)| *wanted == Some(true)) {
        // Without namespaces everybody has the host's processes, and process 1 of a container ends what is left.
        if node.namespaces && !node.control_groups {
            return refuse(path, NO_GROUPS);
        }
    }
    if spec.share_process_namespace == Some(true) {
        if !node.namespaces {
            return refuse("spec.shareProcessNamespace", NO_NAMESPACES);
        }
        if spec.host_pid == Some(true) {
            return refuse("spec.shareProcessNamespace", "it can't be had together with hostPID");
        }
    }
    match full_name(pod) {
        Some(name) if name.len() > FQDN_BYTES_MAX => refuse(
            "spec.setHostnameAsFQDN",
            format!("{name:?} has {} characters, and a host name has {FQDN_BYTES_MAX} at most", name.len()),
        ),
        _ => Ok(()),
    }
}

/// Refuses what is the machine's to a pod with users of its own.
fn nothing_of_machine(spec: &PodSpec) -> Checked {
    let shared = [("hostPID", spec.host_pid), ("hostIPC", spec.host_ipc), ("hostNetwork", spec.host_network)];
    match shared.into_iter().find(|(_, wanted)| *wanted == Some(true)) {
        Some((field, _)) => {
            refuse(format!("spec.{field}"), "it can't be had by a pod with users of its own (hostUsers: false)")
        }
        None => Ok(()),
    }
}

/// Refuses users and groups beyond those that `pods` have.
fn ids(spec: &PodSpec, of_pod: &PodSecurityContext, pods: &str) -> Checked {
    let mut named = vec![
        ("spec.securityContext.runAsUser".to_owned(), of_pod.run_as_user),
        ("spec.securityContext.runAsGroup".to_owned(), of_pod.run_as_group),
        ("spec.securityContext.fsGroup".to_owned(), of_pod.fs_group),
    ];
    for (index, group) in of_pod.supplemental_groups.iter().flatten().enumerate() {
        named.push((format!("spec.securityContext.supplementalGroups[{index}]"), Some(*group)));
    }
    let lists = [("initContainers", spec.init_containers.as_deref()), ("containers", Some(&*spec.containers))];
    for (list, containers) in lists {
        for (index, container) in containers.unwrap_or_default().iter().enumerate() {
            let Some(own) = &container.security_context else { continue };
            let field = |name: &str| format!("spec.{list}[{index}].securityContext.{name}");
            named.push((field("runAsUser"), own.run_as_user));
            named.push((field("runAsGroup"), own.run_as_group));
        }
    }
    match named.into_iter().find(|(_, id)| id.is_some_and(|id| id >= i64::from(POD_IDS))) {
        Some((path, id)) => refuse(path, format!("{} is none of the {POD_IDS} ids of {pods}", id.unwrap_or_default())),
        None => Ok(()),
    }
}

fn check_sysctls(spec: &PodSpec, of_pod: &PodSecurityContext, node: &NodeSupport) -> Checked {
    for (index, sysctl) in of_pod.sysctls.iter().flatten().enumerate() {
        let name = &sysctl.name;
        let refuse =
            |why: &str| refuse(format!("spec.securityContext.sysctls[{index}].name"), format!("{name:?} {why}"));
        if !is_safe_sysctl(name) {
            return refuse("is not a sysctl that a pod may set for itself");
        }
        let is_network = name.starts_with("net.");
        if is_network && spec.host_network == Some(true) {
            return refuse("can't be set with hostNetwork: true");
        }
        if is_network && !node.networks {
            return refuse("is the machine's: this node has no networks for its pods");
        }
        if !is_network && spec.host_ipc == Some(true) {
            return refuse("can't be set with hostIPC: true");
        }
        if !is_network && !node.namespaces {
            return refuse("is the machine's: this node can't separate its pods from it");
        }
    }
    Ok(())
}

/// A kubelet refuses a pod with a profile where it finds no AppArmor, whether its containers say something else or not.
fn app_armor(pod: &Pod, of_pod: &PodSecurityContext, node: &NodeSupport) -> Checked {
    if let Some(detail) = refused_profile(of_pod.app_armor_profile.as_ref(), node) {
        return refuse("spec.securityContext.appArmorProfile.type", detail);
    }
    let mut annotations = pod.metadata.annotations.iter().flatten();
    let found = annotations.find(|(key, profile)| {
        key.starts_with(APP_ARMOR) && (*profile == "runtime/default" || profile.starts_with("localhost/"))
    });
    match found {
        Some((key, _)) => {
            refuse(format!("metadata.annotations[{key}]"), if node.app_armor { BY_FIELD } else { NO_APP_ARMOR })
        }
        None => Ok(()),
    }
}

/// Why a profile can't be had here.
fn refused_profile(profile: Option<&AppArmorProfile>, node: &NodeSupport) -> Option<&'static str> {
    match (profile?.type_.as_str(), node.app_armor) {
        (UNCONFINED, _) | ("Localhost", true) => None,
        (_, true) => Some(NO_DEFAULT),
        (_, false) => Some(NO_APP_ARMOR),
    }
}

fn of_container(
    path: &str,
    container: &Container,
    spec: &PodSpec,
    of_pod: &PodSecurityContext,
    node: &NodeSupport,
    image_uid: ImageUid<'_>,
) -> Checked {
    let none = SecurityContext::default();
    let own = container.security_context.as_ref().unwrap_or(&none);
    let field = |name: &str| format!("{path}.securityContext.{name}");
    if let Some(detail) = refused_profile(own.app_armor_profile.as_ref(), node) {
        return refuse(field("appArmorProfile.type"), detail);
    }
    if own.proc_mount.as_deref() == Some("Unmasked") && spec.host_users != Some(false) {
        return refuse(field("procMount"), "Unmasked needs a user namespace; say hostUsers: false");
    }
    if node.selinux && own.se_linux_options.is_some() {
        return refuse(field("seLinuxOptions"), SELINUX);
    }
    if own.read_only_root_filesystem == Some(true) && !node.namespaces {
        return refuse(field("readOnlyRootFilesystem"), "this node has no right to mount; run it as root");
    }
    non_root(path, own, of_pod, node, image_uid(container))?;
    only_user(path, own, of_pod, node)?;
    for (index, port) in container.ports.iter().flatten().enumerate() {
        let wanted = port.host_port.unwrap_or(0);
        let is_the_hosts = spec.host_network == Some(true) || !node.networks;
        if wanted != 0 && !(is_the_hosts && wanted == port.container_port) {
            let detail = "this node forwards no ports of the machine to its pods; say hostNetwork: true";
            return refuse(format!("{path}.ports[{index}].hostPort"), detail);
        }
    }
    Ok(())
}

/// As a kubelet judges it: by the number, which is the image's where the pod names none, and here root's or that of the one user
/// that there is.
fn non_root(
    path: &str,
    own: &SecurityContext,
    of_pod: &PodSecurityContext,
    node: &NodeSupport,
    image_uid: Option<u32>,
) -> Checked {
    if own.run_as_non_root.or(of_pod.run_as_non_root) != Some(true) {
        return Ok(());
    }
    let place = |of_container: bool, field: &str| match of_container {
        true => format!("{path}.securityContext.{field}"),
        false => format!("spec.securityContext.{field}"),
    };
    let named = own.run_as_user.or(of_pod.run_as_user);
    if named == Some(0) {
        let detail = "container's runAsUser breaks non-root policy: it is 0, with runAsNonRoot: true";
        return refuse(place(own.run_as_user.is_some(), "runAsUser"), detail);
    }
    let path = place(own.run_as_non_root.is_some(), "runAsNonRoot");
    match (named, node.only_uid) {
        (_, Some(0)) => {
            refuse(path, "container would run as root: without root of the machine, pods are root in a user namespace")
        }
        (None, None) if image_uid.unwrap_or(0) == 0 => {
            refuse(path, "container has runAsNonRoot and would run as root; set runAsUser")
        }
        _ => Ok(()),
    }
}

/// Refuses another user than the one that there is without root of the machine.
fn only_user(path: &str, own: &SecurityContext, of_pod: &PodSecurityContext, node: &NodeSupport) -> Checked {
    let Some(only) = node.only_uid else { return Ok(()) };
    match own.run_as_user.or(of_pod.run_as_user) {
        Some(named) if named != i64::from(only) => {
            let place = if own.run_as_user.is_some() { path } else { "spec" };
            let detail = format!(
                "{named} can't be had: pods of this node have one user, {only}; leave it out, or see the annotation \
                 pumice.sh/node-capabilities of the Node for what gives it others"
            );
            refuse(format!("{place}.securityContext.runAsUser"), detail)
        }
        _ => Ok(()),
    }
}

/// What a pod shares of the processes of its host or among its containers.
pub(crate) fn processes(pod: &Pod) -> Processes {
    match pod.spec.as_ref() {
        Some(spec) if spec.host_pid == Some(true) => Processes::Host,
        Some(spec) if spec.share_process_namespace == Some(true) => Processes::Pod,
        _ => Processes::Container,
    }
}

/// The parameters of the kernel that a pod sets for itself.
pub(crate) fn sysctls(pod: &Pod) -> Vec<Sysctl> {
    let context = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let named = context.into_iter().flat_map(|context| context.sysctls.iter().flatten());
    named.map(|sysctl| Sysctl { name: sysctl.name.clone(), value: sysctl.value.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const ALL: NodeSupport = NodeSupport {
        namespaces: true,
        networks: true,
        control_groups: true,
        disk_limits: true,
        app_armor: false,
        selinux: false,
        only_uid: None,
        users: UserSupport::Some,
    };
    const ROOTLESS: NodeSupport =
        NodeSupport { networks: false, control_groups: false, only_uid: Some(0), users: UserSupport::One, ..ALL };
    const SUBORDINATE: NodeSupport = NodeSupport { only_uid: None, users: UserSupport::Subordinate, ..ROOTLESS };
    const BARE: NodeSupport =
        NodeSupport { namespaces: false, only_uid: Some(1000), users: UserSupport::None, ..ROOTLESS };
    const SELINUX: NodeSupport = NodeSupport { selinux: true, ..ALL };
    const APP_ARMOR_RUNS: NodeSupport = NodeSupport { app_armor: true, ..ALL };

    fn pod(spec: Value) -> Pod {
        let mut whole = json!({"containers": [{"name": "c"}]});
        whole.as_object_mut().expect("fields").extend(spec.as_object().cloned().expect("fields"));
        serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n"}, "spec": whole })).expect("a pod")
    }

    fn container(container: Value) -> Value {
        let mut whole = json!({"name": "c"});
        whole.as_object_mut().expect("fields").extend(container.as_object().cloned().expect("fields"));
        json!({ "containers": [whole] })
    }

    fn context(context: Value) -> Value {
        container(json!({ "securityContext": context }))
    }

    fn sysctls(names: &[&str]) -> Value {
        json!({ "sysctls": names.iter().map(|name| json!({"name": name, "value": "1"})).collect::<Vec<_>>() })
    }

    fn no_user(_: &Container) -> Option<u32> {
        None
    }

    #[test]
    fn what_a_pod_relies_on_is_refused_with_its_path() {
        let local = json!({"type": "Localhost", "localhostProfile": "p"});
        let default = json!({"type": "RuntimeDefault"});
        let ports = json!([{"containerPort": 80}, {"containerPort": 80, "hostPort": 8080}]);
        let root = json!({"runAsNonRoot": true, "runAsUser": 0});
        for (node, spec, path) in [
            (ALL, json!({"os": {"name": "windows"}}), "spec.os.name: "),
            (ALL, json!({"hostPID": true, "shareProcessNamespace": true}), "spec.shareProcessNamespace: "),
            (ROOTLESS, json!({"hostPID": true}), "spec.hostPID: "),
            (ROOTLESS, json!({"shareProcessNamespace": true}), "spec.shareProcessNamespace: "),
            (BARE, json!({"shareProcessNamespace": true}), "spec.shareProcessNamespace: "),
            (
                ALL,
                json!({"setHostnameAsFQDN": true, "subdomain": "s", "hostname": "h".repeat(45)}),
                "spec.setHostnameAsFQDN: ",
            ),
            (
                ALL,
                json!({"securityContext": sysctls(&["net.ipv4.tcp_syncookies", "kernel.msgmax"])}),
                "spec.securityContext.sysctls[1].name: \"kernel.msgmax\" is not a sysctl that a pod may set for itself",
            ),
            (
                ALL,
                json!({"hostNetwork": true, "securityContext": sysctls(&["net.ipv4.tcp_syncookies"])}),
                "spec.securityContext.sysctls[0].name: ",
            ),
            (
                ROOTLESS,
                json!({"securityContext": sysctls(&["net.ipv4.tcp_syncookies"])}),
                "spec.securityContext.sysctls[0].name: ",
            ),
            (
                ALL,
                json!({"hostIPC": true, "securityContext": sysctls(&["kernel.shm_rmid_forced"])}),
                "spec.securityContext.sysctls[0].name: ",
            ),
            (
                BARE,
                json!({"securityContext": sysctls(&["kernel.shm_rmid_forced"])}),
                "spec.securityContext.sysctls[0].name: ",
            ),
            (
                ALL,
                json!({"securityContext": {"appArmorProfile": local}}),
                "spec.securityContext.appArmorProfile.type: ",
            ),
            (
                ALL,
                json!({"securityContext": {"appArmorProfile": default}}),
                "spec.securityContext.appArmorProfile.type: ",
            ),
            (
                ALL,
                context(json!({"appArmorProfile": default})),
                "spec.containers[0].securityContext.appArmorProfile.type: ",
            ),
            (
                APP_ARMOR_RUNS,
                context(json!({"appArmorProfile": default})),
                "spec.containers[0].securityContext.appArmorProfile.type: ",
            ),
            (ALL, context(json!({"procMount": "Unmasked"})), "spec.containers[0].securityContext.procMount: "),
            (
                ALL,
                json!({"initContainers": [{"name": "i"}, {"name": "j", "securityContext": {"procMount": "Unmasked"}}]}),
                "spec.initContainers[1].securityContext.procMount: ",
            ),
            (SELINUX, json!({"securityContext": {"seLinuxOptions": {}}}), "spec.securityContext.seLinuxOptions: "),
            (SELINUX, context(json!({"seLinuxOptions": {}})), "spec.containers[0].securityContext.seLinuxOptions: "),
            (
                BARE,
                context(json!({"readOnlyRootFilesystem": true})),
                "spec.containers[0].securityContext.readOnlyRootFilesystem: ",
            ),
            (ALL, json!({"securityContext": root}), "spec.securityContext.runAsUser: "),
            (BARE, context(root), "spec.containers[0].securityContext.runAsUser: "),
            (ALL, json!({"securityContext": {"runAsNonRoot": true}}), "spec.securityContext.runAsNonRoot: "),
            (
                ROOTLESS,
                context(json!({"runAsNonRoot": true, "runAsUser": 7})),
                "spec.containers[0].securityContext.runAsNonRoot: ",
            ),
            (
                ROOTLESS,
                context(json!({"runAsUser": 7})),
                "spec.containers[0].securityContext.runAsUser: 7 can't be had",
            ),
            (BARE, json!({"securityContext": {"runAsUser": 7}}), "spec.securityContext.runAsUser: 7 can't be had"),
            (ALL, container(json!({"ports": ports})), "spec.containers[0].ports[1].hostPort: "),
            (ROOTLESS, container(json!({"ports": ports})), "spec.containers[0].ports[1].hostPort: "),
        ] {
            let refused = check(&pod(spec.clone()), PodUsers::Machines, &node, &no_user)
                .expect_err(&format!("{spec} was not refused"));
            assert!(refused.to_string().starts_with(path), "{spec}: {refused}");
        }
        for profile in ["runtime/default", "localhost/p"] {
            let mut annotated = pod(json!({}));
            annotated.metadata.annotations = Some([(format!("{APP_ARMOR}c"), profile.to_owned())].into());
            let refused = check(&annotated, PodUsers::Machines, &ALL, &no_user).expect_err("refused").to_string();
            assert!(refused.starts_with(&format!("metadata.annotations[{APP_ARMOR}c]: ")), "{refused}");
        }
    }

    #[test]
    fn what_the_node_does_and_what_a_kubelet_passes_over_is_let_through() {
        let unconfined = json!({"type": "Unconfined"});
        let local = json!({"type": "Localhost", "localhostProfile": "p"});
        let ports = json!([{"containerPort": 80, "hostPort": 80}]);
        let mut on_the_host = container(json!({"ports": ports}));
        on_the_host["hostNetwork"] = json!(true);
        for (node, spec) in [
            (ALL, json!({})),
            (APP_ARMOR_RUNS, json!({"securityContext": {"appArmorProfile": local}})),
            (APP_ARMOR_RUNS, context(json!({"appArmorProfile": local}))),
            (
                ALL,
                json!({"hostUsers": true, "securityContext": {"appArmorProfile": unconfined, "seccompProfile": local}}),
            ),
            (ALL, json!({"os": {"name": "linux"}, "hostPID": true, "hostIPC": true, "hostNetwork": true})),
            (ALL, json!({"shareProcessNamespace": true, "ephemeralContainers": [{"name": "e"}]})),
            (ALL, json!({"setHostnameAsFQDN": true, "subdomain": "s"})),
            // Without a subdomain there is no longer name.
            (ALL, json!({"setHostnameAsFQDN": true, "hostname": "h".repeat(63)})),
            (BARE, json!({"hostPID": true, "hostIPC": true, "shareProcessNamespace": false})),
            (ALL, json!({"securityContext": sysctls(&["net.ipv4.tcp_syncookies", "kernel.shm_rmid_forced"])})),
            (ALL, json!({"hostNetwork": true, "securityContext": sysctls(&["kernel.shm_rmid_forced"])})),
            (ALL, json!({"securityContext": {"seLinuxOptions": {}, "windowsOptions": {}}})),
            (ALL, context(json!({"procMount": "Default", "readOnlyRootFilesystem": true, "windowsOptions": {}}))),
            (ALL, context(json!({"runAsNonRoot": true, "runAsUser": 7}))),
            (BARE, context(json!({"runAsNonRoot": true}))),
            (BARE, context(json!({"runAsUser": 1000}))),
            (ROOTLESS, context(json!({"runAsUser": 0}))),
            (ALL, json!({"securityContext": {"runAsNonRoot": true, "runAsUser": 7}})),
            (ALL, on_the_host),
            (ROOTLESS, container(json!({"ports": ports}))),
            (
                ALL,
                json!({"securityContext": {"runAsNonRoot": true},
                       "containers": [{"name": "c", "securityContext": {"runAsNonRoot": false}}]}),
            ),
        ] {
            assert_eq!(check(&pod(spec.clone()), PodUsers::Machines, &node, &no_user), Ok(()), "{spec}");
        }
        assert_eq!(check(&Pod::default(), PodUsers::Machines, &ALL, &no_user), Ok(()));
        let mut annotated = pod(json!({}));
        annotated.metadata.annotations = Some([(format!("{APP_ARMOR}c"), "unconfined".to_owned())].into());
        assert_eq!(check(&annotated, PodUsers::Machines, &ALL, &no_user), Ok(()));
    }

    #[test]
    fn users_are_the_pods_own_where_it_or_its_namespace_says_so() {
        for (host_users, restricted, node, expected) in [
            (None, false, ALL, Ok(PodUsers::Machines)),
            (None, true, ALL, Ok(PodUsers::Own)),
            (Some(true), true, ALL, Err("spec.hostUsers: its namespace enforces restricted, whose pods have users")),
            (Some(true), true, BARE, Ok(PodUsers::Machines)),
            (Some(false), false, ALL, Ok(PodUsers::Own)),
            (Some(false), false, ROOTLESS, Ok(PodUsers::Machines)),
            (None, true, ROOTLESS, Ok(PodUsers::Machines)),
            (None, false, SUBORDINATE, Ok(PodUsers::Subordinate)),
            (Some(false), true, SUBORDINATE, Ok(PodUsers::Subordinate)),
            (None, false, BARE, Ok(PodUsers::Machines)),
            (Some(false), false, BARE, Err("spec.hostUsers: this node has no user namespaces")),
            (None, true, BARE, Err("spec.hostUsers: its namespace enforces restricted, and this node has no")),
        ] {
            let found = PodUsers::of(&pod(json!({ "hostUsers": host_users })), restricted, &node);
            match (found, expected) {
                (Err(refused), Err(start)) => assert!(refused.to_string().starts_with(start), "{refused}"),
                (found, expected) => {
                    assert_eq!(found.map_err(|error| error.to_string()), expected.map_err(str::to_owned))
                }
            }
        }
    }

    #[test]
    fn a_pod_with_users_of_its_own_has_as_many_as_there_are_numbers_of_16_bits() {
        let of_pod = |context: Value| json!({ "securityContext": context });
        for (spec, path) in [
            (of_pod(json!({"runAsUser": 65536})), Some("spec.securityContext.runAsUser: 65536 is none of")),
            (of_pod(json!({"runAsGroup": 70000})), Some("spec.securityContext.runAsGroup: ")),
            (of_pod(json!({"fsGroup": 70000})), Some("spec.securityContext.fsGroup: ")),
            (of_pod(json!({"supplementalGroups": [1, 70000]})), Some("spec.securityContext.supplementalGroups[1]: ")),
            (context(json!({"runAsUser": 70000})), Some("spec.containers[0].securityContext.runAsUser: ")),
            (context(json!({"runAsGroup": 70000})), Some("spec.containers[0].securityContext.runAsGroup: ")),
            (json!({"hostNetwork": true}), Some("spec.hostNetwork: ")),
            (json!({"hostIPC": true}), Some("spec.hostIPC: ")),
            (of_pod(json!({"runAsUser": 65535, "fsGroup": 65535, "supplementalGroups": [0]})), None),
        ] {
            let found = check(&pod(spec.clone()), PodUsers::Own, &ALL, &no_user).map_err(|refused| refused.to_string());
            let is_as_expected = match (&found, path) {
                (Ok(()), None) => true,
                (Err(text), Some(path)) => text.starts_with(path),
                _ => false,
            };
            assert!(is_as_expected, "{spec}: {found:?}");
            assert_eq!(check(&pod(spec), PodUsers::Machines, &ALL, &no_user), Ok(()));
        }
    }
}
