//! What no tenant may be. The one list, for admission, the controller and directories.

use std::collections::BTreeSet;
use std::fmt;

use pumice_api::names::NAMESPACE_SYSTEM;
use pumice_api::tenant::{ACTIVE, SUSPENDED, Tenant, TenantSpec, TenantVolume};

/// Smallest uid and gid of people: below are those of the system, on every Linux.
pub const ID_MIN: i64 = 1000;
/// The user and group nobody, as whom much runs that is nobody's.
pub const NOBODY: i64 = 65534;
/// What no Kubernetes takes for a uid: it is signed there in places.
const ID_MAX: i64 = 2_147_483_647;
/// Namespaces that are the cluster's or the platform's.
const NAMESPACES: [&str; 4] = ["default", NAMESPACE_SYSTEM, "pumice-system", "volcano-monitoring"];
/// What namespaces of Kubernetes begin with.
const NAMESPACES_OF_KUBERNETES: &str = "kube-";
/// What names begin with that mean something here.
const RESERVED: [&str; 2] = ["system:", "pumice:"];

/// The role that allows everything, of the namespace itself too.
const CLUSTER_ADMIN: &str = "cluster-admin";

/// What the machine adds to the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forbidden {
    /// Uids of the platform's own processes.
    pub uids: BTreeSet<i64>,
    /// Gids that are as good as root on this machine, such as those of `docker` and `disk`, by name.
    pub gids: BTreeSet<i64>,
}

/// Names of groups whose members are as good as root, wherever they are numbered 1000 or more.
pub const POWERFUL_GROUPS: [&str; 12] =
    ["root", "docker", "podman", "disk", "lxd", "libvirt", "kvm", "sudo", "wheel", "adm", "shadow", "systemd-journal"];

/// Why nothing is made of a Tenant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Refusal {
    /// The field, from the object's root.
    pub field: String,
    pub message: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.field, self.message)
    }
}

impl Refusal {
    fn of(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }

    /// A namespace that exists and is another's.
    pub(super) fn foreign(namespace: &str, tenant: &str, owner: Option<&str>) -> Self {
        let message = match owner {
            Some(owner) => format!("the namespace {namespace} is the Tenant {owner}'s; choose another"),
            None => format!(
                "the namespace {namespace} exists, and may be somebody's; choose another, or give it away: kubectl label namespace \
                 {namespace} pumice.sh/tenant={tenant}"
            ),
        };
        Self::of("spec.namespace", message)
    }

    /// Something that another Tenant has.
    pub(super) fn taken(field: &str, value: &str, owner: &str) -> Self {
        Self::of(field, format!("{value} is the Tenant {owner}'s, which was first; choose another"))
    }
}

/// Why no Tenant may have this spec, whatever others there are.
pub fn refusal(spec: &TenantSpec, forbidden: &Forbidden) -> Option<Refusal> {
    if let Some(message) = bad_id(spec.uid) {
        return Some(Refusal::of("spec.uid", format!("{} {message}", spec.uid)));
    }
    if forbidden.uids.contains(&spec.uid) {
        return Some(Refusal::of("spec.uid", format!("{} is the platform's own user; choose another", spec.uid)));
    }
    let groups = spec.groups.iter().enumerate().map(|(index, gid)| (format!("spec.groups[{index}]"), *gid));
    for (field, gid) in std::iter::once(("spec.gid".to_owned(), spec.gid)).chain(groups) {
        if let Some(message) = bad_id(gid) {
            return Some(Refusal::of(field, format!("{gid} {message}")));
        }
        if forbidden.gids.contains(&gid) {
            let message = format!("the group {gid} gives the rights of root on this machine; leave it out");
            return Some(Refusal::of(field, message));
        }
    }
    let users = std::iter::once(("spec.user".to_owned(), &spec.user));
    let members = spec.members.iter().enumerate().map(|(index, name)| (format!("spec.members[{index}]"), name));
    let groups = spec.member_groups.iter().enumerate();
    let groups = groups.map(|(index, name)| (format!("spec.memberGroups[{index}]"), name));
    for (field, name) in users.chain(members).chain(groups) {
        if let Some(message) = bad_name(name) {
            return Some(Refusal::of(field, message));
        }
    }
    if let Some((index, role)) = spec.roles.iter().enumerate().find(|(_, role)| is_too_powerful(role)) {
        let message =
            format!("{role} is more than a tenant may have in its namespace; use edit, admin or a role of your own");
        return Some(Refusal::of(format!("spec.roles[{index}]"), message));
    }
    for (index, role) in spec.roles.iter().enumerate() {
        if role == CLUSTER_ADMIN || RESERVED.iter().any(|reserved| role.starts_with(reserved)) {
            let message = format!("{role} would let its users change what the platform says of them; use edit or view");
            return Some(Refusal::of(format!("spec.roles[{index}]"), message));
        }
    }
    let namespace = spec.namespace.as_str();
    if NAMESPACES.contains(&namespace) || namespace.starts_with(NAMESPACES_OF_KUBERNETES) {
        return Some(Refusal::of("spec.namespace", format!("{namespace} is the cluster's; choose another")));
    }
    let home = spec.home.iter().map(|home| ("spec.home".to_owned(), home));
    let volumes = spec.volumes.iter().enumerate().map(|(index, volume)| (format!("spec.volumes[{index}]"), volume));
    home.chain(volumes).find_map(|(field, volume)| bad_volume(&field, volume)).or_else(|| bad_host_path(spec))
}

/// Why a Tenant that is in use may not become this: what its files and processes are must not change under them.
pub fn change_refusal(old: &Tenant, new: &TenantSpec) -> Option<Refusal> {
    let in_use = matches!(old.status.phase.as_str(), ACTIVE | SUSPENDED);
    if in_use && old.spec.namespace != new.namespace {
        return Some(Refusal::of("spec.namespace", "the namespace of a Tenant can't be changed: make another Tenant"));
    }
    if !in_use || old.spec.suspended && new.suspended {
        return None;
    }
    let name = old.metadata.name.as_deref().unwrap_or_default();
    let ids = [("spec.uid", old.spec.uid, new.uid), ("spec.gid", old.spec.gid, new.gid)];
    let changed = ids.into_iter().find(|(_, before, after)| before != after)?;
    let message = format!("it can be changed only while the Tenant is suspended; first: pumice tenant suspend {name}");
    Some(Refusal::of(changed.0, message))
}

fn bad_id(id: i64) -> Option<&'static str> {
    match id {
        0 => Some("is root's; choose one from 1000 on"),
        ..ID_MIN => Some("is one of the system's; choose one from 1000 on"),
        NOBODY => Some("is nobody's; choose another"),
        _ if id > ID_MAX => Some("is more than Kubernetes takes, 2147483647; choose another"),
        _ => None,
    }
}

fn bad_name(name: &str) -> Option<String> {
    let folded = name.to_lowercase();
    if RESERVED.iter().any(|reserved| folded.starts_with(reserved)) || folded == "root" {
        return Some(format!("{name:?} means something to the platform; choose another name"));
    }
    if name.chars().any(|letter| letter.is_control() || letter.is_whitespace()) {
        return Some(format!("{name:?} has a space or a control character; choose another name"));
    }
    None
}

/// With all rights in its namespace a tenant would have its quota and its own bindings in its hands.
fn is_too_powerful(role: &str) -> bool {
    role == "cluster-admin" || RESERVED.iter().any(|reserved| role.starts_with(reserved))
}

/// Mount paths under which a container could no longer be what it is.
const MOUNTS_OF_CONTAINERS: [&str; 6] = ["/proc", "/sys", "/dev", "/run/secrets", "/var/run/secrets", "/etc"];

fn bad_volume(field: &str, volume: &TenantVolume) -> Option<Refusal> {
    let at = volume.mount_path.as_str();
    if !is_plain(at) || at == "/" || at.contains(':') {
        return Some(Refusal::of(format!("{field}.mountPath"), format!("{at:?} is no path such as /home/alice")));
    }
    let is_in = |folder: &str| at.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if MOUNTS_OF_CONTAINERS.into_iter().any(is_in) {
        return Some(Refusal::of(format!("{field}.mountPath"), format!("{at} is the container's own; choose another")));
    }
    let host = volume.host_path.as_str();
    if !host.is_empty() && (!is_plain(host) || host == "/") {
        let message = format!("{host:?} is no folder such as /srv/homes/alice");
        return Some(Refusal::of(format!("{field}.hostPath"), message));
    }
    None
}

fn bad_host_path(spec: &TenantSpec) -> Option<Refusal> {
    let bad = spec.host_paths.iter().enumerate().find(|(_, one)| !is_plain(&one.path) || one.path == "/")?;
    let (index, one) = bad;
    Some(Refusal::of(format!("spec.hostPaths[{index}].path"), format!("{:?} is no folder such as /data", one.path)))
}

/// Whether a path is its own shortest form, but for a slash at its end.
fn is_plain(path: &str) -> bool {
    let is_part = |part: &str| !matches!(part, "" | "." | "..") && !part.contains(char::is_control);
    path == "/"
        || path.strip_prefix('/').is_some_and(|rest| rest.strip_suffix('/').unwrap_or(rest).split('/').all(is_part))
}
