//! Folders of nodes that a tenant's pods may mount.
//!
//! Invariant: a pod mounts an entry of the list itself, never a path below it: the rest becomes the mounts' `subPath`, which a node looks
//! up below the entry's descriptor. So a link that a tenant makes within leads nowhere else.

use pumice_api::tenant::TenantSpec;
use serde_json::{Value, json};

use super::{is_empty, text};

/// A folder that may be mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Allowed<'a> {
    pub path: &'a str,
    pub read_only: bool,
}

/// A path without empty and `.` components; nothing where it is not absolute or goes up.
pub(super) fn normalised(path: &str) -> Option<String> {
    let mut all = String::new();
    for component in path.strip_prefix('/')?.split('/').filter(|component| !matches!(*component, "" | ".")) {
        if component == ".." || component.contains('\0') {
            return None;
        }
        all.push('/');
        all.push_str(component);
    }
    Some(if all.is_empty() { "/".to_owned() } else { all })
}

/// What of `path` lies below `folder`, which are both normalised; empty for the folder itself.
fn below<'p>(path: &'p str, folder: &str) -> Option<&'p str> {
    if folder == "/" {
        return Some(path.trim_start_matches('/'));
    }
    match path.strip_prefix(folder)? {
        "" => Some(""),
        rest => rest.strip_prefix('/'),
    }
}

/// All that the tenant may mount, with its home and its volumes.
fn list(tenant: &TenantSpec) -> impl Iterator<Item = Allowed<'_>> {
    let listed = tenant.host_paths.iter().map(|one| Allowed { path: &one.path, read_only: one.read_only });
    let volumes = tenant.home.iter().chain(&tenant.volumes).filter(|volume| !volume.host_path.is_empty());
    listed.chain(volumes.map(|volume| Allowed { path: &volume.host_path, read_only: volume.read_only }))
}

/// The longest entry that holds `path`, and what lies below it. Of two for the same folder the one that can be written counts.
pub(super) fn allowed<'t>(path: &str, tenant: &'t TenantSpec) -> Option<(Allowed<'t>, String)> {
    let path = normalised(path)?;
    let found = list(tenant).filter_map(|one| {
        let folder = normalised(one.path)?;
        Some((one, folder.len(), below(&path, &folder)?.to_owned()))
    });
    found.max_by_key(|(one, length, _)| (*length, !one.read_only)).map(|(one, _, rest)| (one, rest))
}

/// Makes volumes of folders below an entry the entry itself, and their mounts what lies below it.
pub(super) fn narrow(spec: &mut Value, tenant: &TenantSpec) {
    let Some(volumes) = spec.get_mut("volumes").and_then(Value::as_array_mut) else { return };
    let mut moved: Vec<(String, String)> = Vec::new();
    for volume in volumes {
        let Some((entry, rest)) =
            allowed(text(&volume["hostPath"]["path"]), tenant).filter(|(_, rest)| !rest.is_empty())
        else {
            continue;
        };
        if !volume["hostPath"].is_object() {
            continue;
        }
        volume["hostPath"]["path"] = json!(entry.path);
        // What it says is about the folder below, which the mount finds or doesn't. Those that would be made are refused.
        if matches!(text(&volume["hostPath"]["type"]), "Directory" | "File") {
            volume["hostPath"]["type"] = json!("");
        }
        moved.push((text(&volume["name"]).to_owned(), rest));
    }
    if moved.is_empty() {
        return;
    }
    for list in ["initContainers", "containers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        let mounts = containers.filter_map(|one| one.get_mut("volumeMounts")?.as_array_mut()).flatten();
        for mount in mounts {
            let Some((_, rest)) = moved.iter().find(|(name, _)| mount["name"] == **name) else { continue };
            if is_empty(&mount["subPathExpr"]) {
                let sub = text(&mount["subPath"]).trim_matches('/');
                mount["subPath"] = json!(if sub.is_empty() { rest.clone() } else { format!("{rest}/{sub}") });
            } else {
                // There is no variable in the part that was moved.
                let fixed = rest.replace('$', "$$");
                mount["subPathExpr"] = json!(format!("{fixed}/{}", text(&mount["subPathExpr"])));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pumice_api::tenant::AllowedHostPath;

    fn tenant(paths: &[(&str, bool)]) -> TenantSpec {
        let host_paths = paths
            .iter()
            .map(|(path, read_only)| AllowedHostPath { path: (*path).into(), read_only: *read_only })
            .collect();
        TenantSpec { host_paths, ..TenantSpec::default() }
    }

    #[test]
    fn a_path_is_allowed_by_whole_components_and_never_by_going_up() {
        let tenant = tenant(&[("/data/", true), ("/data/alice", false), ("/dev/fuse", false)]);
        for (path, expected) in [
            ("/data", Some(("/data/", ""))),
            ("//data/./x//y/", Some(("/data/", "x/y"))),
            ("/data/alice/p", Some(("/data/alice", "p"))),
            ("/dev/fuse", Some(("/dev/fuse", ""))),
            ("/data/alicex", Some(("/data/", "alicex"))),
            ("/database", None),
            ("/data/../etc", None),
            ("/data/x/../../etc", None),
            ("data", None),
            ("", None),
            ("/", None),
            ("/DATA", None),
            ("/data\0/x", None),
        ] {
            let found = allowed(path, &tenant).map(|(one, rest)| (one.path, rest));
            assert_eq!(found.as_ref().map(|(path, rest)| (*path, rest.as_str())), expected, "{path}");
        }
        assert!(allowed("/data/x", &tenant).is_some_and(|(one, _)| one.read_only));
        assert!(allowed("/data/alice/x", &tenant).is_some_and(|(one, _)| !one.read_only));
        assert_eq!(below("/a/b", "/"), Some("a/b"));
    }

    #[test]
    fn a_folder_below_an_entry_is_found_by_the_mount() {
        let tenant = tenant(&[("/data", false)]);
        let mut spec = json!({
            "volumes": [{"name": "v", "hostPath": {"path": "/data/a$b/c", "type": "Directory"}}, {"name": "w", "hostPath": {"path": "/data"}}],
            "containers": [{"volumeMounts": [
                {"name": "v", "mountPath": "/x"}, {"name": "v", "mountPath": "/y", "subPath": "d"},
                {"name": "v", "mountPath": "/z", "subPathExpr": "$(E)"}, {"name": "w", "mountPath": "/w"},
            ]}],
        });
        narrow(&mut spec, &tenant);
        assert_eq!(spec["volumes"][0]["hostPath"], json!({"path": "/data", "type": ""}));
        let mounts = &spec["containers"][0]["volumeMounts"];
        assert_eq!((&mounts[0]["subPath"], &mounts[1]["subPath"]), (&json!("a$b/c"), &json!("a$b/c/d")));
        assert_eq!((&mounts[2]["subPathExpr"], &mounts[3]["subPath"]), (&json!("a$$b/c/$(E)"), &Value::Null));
        let before = spec.clone();
        narrow(&mut spec, &tenant);
        assert_eq!(spec, before);
    }
}
