//! What a tenant's namespace says of it, as annotations: all that policies of a cluster see of its Tenant.
//!
//! Invariant: equal specs give equal annotations, and every key is given, so that one which is no more true is overwritten. A path
//! that can't be written in its form is left out: then it may not be used. Read by `admission/src/policies/tenant_pods.rs`, as CEL.

use std::collections::BTreeMap;

use pumice_api::names::{DEFAULT_QUEUE, TENANT_GID, TENANT_GROUPS, TENANT_UID};
use pumice_api::tenant::{TenantSpec, TenantVolume};

/// Why no new pods may be made in the namespace, for people; empty where they may.
pub const TENANT_CLOSED: &str = "pumice.sh/tenant-closed";
/// Queues that it may use, between commas.
pub const TENANT_QUEUES: &str = "pumice.sh/tenant-queues";
/// Resources of devices that its pods may ask for, between commas; `*` is all.
pub const TENANT_DEVICES: &str = "pumice.sh/tenant-devices";
/// Folders of nodes that its pods may mount: `rw:/path` or `ro:/path`, one a line.
pub const TENANT_HOST_PATHS: &str = "pumice.sh/tenant-host-paths";
/// Its home, as a line of [`TENANT_VOLUMES`]; empty where it has none.
pub const TENANT_HOME: &str = "pumice.sh/tenant-home";
/// Volumes that each of its containers has: `rw:/mounted/at:hostPath:/path` or `ro:/mounted/at:claim:name`, one a line. A line that is
/// empty is a volume that can't be written this way.
pub const TENANT_VOLUMES: &str = "pumice.sh/tenant-volumes";
/// Who makes what controllers of the cluster make in the namespace: its user; empty where it is a team.
pub const TENANT_USER: &str = "pumice.sh/tenant-user";

/// The annotations of the namespace of a Tenant. `closed` is why it takes no new pods, if it does not; `claim` names the claim of a volume
/// that is a PersistentVolume.
pub fn annotations(
    spec: &TenantSpec,
    closed: Option<&str>,
    claim: impl Fn(&TenantVolume) -> String,
) -> BTreeMap<&'static str, String> {
    let groups: Vec<String> = spec.groups.iter().map(i64::to_string).collect();
    let folders = spec.host_paths.iter().filter_map(|folder| {
        let path = plain(&folder.path)?;
        Some(format!("{}:{path}", mode(folder.read_only)))
    });
    let volume = |one: &TenantVolume| line(one, &claim);
    let queues = if spec.queues.is_empty() { DEFAULT_QUEUE.to_owned() } else { spec.queues.join(",") };
    BTreeMap::from([
        (TENANT_USER, spec.user.clone()),
        (TENANT_UID, spec.uid.to_string()),
        (TENANT_GID, spec.gid.to_string()),
        (TENANT_GROUPS, groups.join(",")),
        (TENANT_CLOSED, closed.unwrap_or_default().to_owned()),
        (TENANT_QUEUES, queues),
        (TENANT_DEVICES, spec.devices.join(",")),
        (TENANT_HOST_PATHS, lines(folders)),
        (TENANT_HOME, spec.home.as_ref().map(&volume).unwrap_or_default()),
        (TENANT_VOLUMES, lines(spec.volumes.iter().map(volume))),
    ])
}

/// A volume as a line; empty where it can't be one.
fn line(volume: &TenantVolume, claim: impl Fn(&TenantVolume) -> String) -> String {
    // Kubernetes refuses colons in it, which are between the parts here.
    let at = plain(&volume.mount_path).filter(|at| !at.contains(':'));
    let source = match volume.host_path.as_str() {
        "" => Some(format!("claim:{}", claim(volume))),
        path => plain(path).map(|path| format!("hostPath:{path}")),
    };
    let parts = at.zip(source).map(|(at, source)| format!("{}:{at}:{source}", mode(volume.read_only)));
    parts.unwrap_or_default()
}

fn mode(read_only: bool) -> &'static str {
    if read_only { "ro" } else { "rw" }
}

/// A path that is its own shortest form, but for a slash at its end; nothing for another.
fn plain(path: &str) -> Option<&str> {
    if path == "/" {
        return Some(path);
    }
    let path = path.strip_suffix('/').unwrap_or(path);
    let is_plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains(char::is_control);
    path.strip_prefix('/')?.split('/').all(is_plain).then_some(path)
}

fn lines(all: impl Iterator<Item = String>) -> String {
    all.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use pumice_api::tenant::AllowedHostPath;

    use super::*;

    fn spec() -> TenantSpec {
        let volume = |at: &str, host_path: &str, read_only| TenantVolume {
            mount_path: at.into(),
            host_path: host_path.into(),
            persistent_volume: if host_path.is_empty() { "pv".into() } else { String::new() },
            read_only,
        };
        let folder = |path: &str, read_only| AllowedHostPath { path: path.into(), read_only };
        TenantSpec {
            uid: 4001,
            gid: 4002,
            groups: vec![5000, 5001],
            home: Some(volume("/home/alice/", "", false)),
            volumes: vec![
                volume("/team", "/srv/team", true),
                volume("/a:b", "/srv/x", false),
                volume("/last", "", false),
            ],
            host_paths: vec![
                folder("/data/alice/", false),
                folder("/data/shared", true),
                folder("/data/../etc", false),
            ],
            devices: vec!["nvidia.com/gpu".into(), "*".into()],
            ..TenantSpec::default()
        }
    }

    #[test]
    fn a_namespace_says_all_of_its_tenant() {
        let told = annotations(&spec(), None, |volume| volume.persistent_volume.clone());
        let told: BTreeMap<&str, &str> = told.iter().map(|(key, value)| (*key, value.as_str())).collect();
        assert_eq!((told[TENANT_UID], told[TENANT_GID], told[TENANT_GROUPS]), ("4001", "4002", "5000,5001"));
        assert_eq!(
            (told[TENANT_CLOSED], told[TENANT_QUEUES], told[TENANT_DEVICES]),
            ("", "default", "nvidia.com/gpu,*")
        );
        assert_eq!((told[TENANT_USER], told[TENANT_HOST_PATHS]), ("", "rw:/data/alice\nro:/data/shared"));
        // Volumes keep their numbers.
        let volumes = "ro:/team:hostPath:/srv/team\n\nrw:/last:claim:pv";
        assert_eq!((told[TENANT_HOME], told[TENANT_VOLUMES]), ("rw:/home/alice:claim:pv", volumes));
    }

    #[test]
    fn nothing_that_is_said_is_said_of_another() {
        for path in ["relative", "//", "/a//b", "/a/./b", "/a/..", "/a\nrw:/", "", "/a\0"] {
            assert_eq!(plain(path), None, "{path:?}");
        }
        assert_eq!((plain("/"), plain("/a/b/"), plain("/a:b c")), (Some("/"), Some("/a/b"), Some("/a:b c")));
        let closed =
            annotations(&TenantSpec { user: "alice".into(), ..spec() }, Some("it is suspended"), |_| String::new());
        assert_eq!((&*closed[TENANT_CLOSED], &*closed[TENANT_USER]), ("it is suspended", "alice"));
    }
}
