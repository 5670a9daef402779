//! Volumes of claims: what of this machine each is, and which folders nobody needs any more.
//!
//! Invariant: a folder goes only with a volume that was released, whose policy says Delete, and that this node holds; its
//! path is made of two plain names. Called by `volumes`, and by the agent, which removes them.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::PersistentVolume;

use crate::pod_spec::resolve::ResolveError;
use crate::pod_spec::volumes::{Content, PlannedVolume};
use pumice_linux::paths::is_plain_relative;

/// Who makes folders of nodes for claims, as volumes name it.
const DRIVER: &str = "pumice.sh/folder";
const HOST_NAME: &str = "kubernetes.io/hostname";

/// What a claim's volume is here. A claim without one is waited for.
pub(crate) fn planned(
    claim: &str,
    volume: Option<&PersistentVolume>,
    folders: &Path,
) -> Result<PlannedVolume, ResolveError> {
    let Some(volume) = volume else { return Err(ResolveError::Unbound { claim: claim.to_owned() }) };
    let spec = volume.spec.clone().unwrap_or_default();
    if let Some(folder) = folder(volume) {
        return Ok(PlannedVolume { path: folders.join(folder), content: Content::Claim });
    }
    if let Some(path) = spec.host_path {
        return Ok(PlannedVolume { path: path.path.into(), content: Content::Host(path.type_.unwrap_or_default()) });
    }
    if let Some(path) = spec.local
        && spec.volume_mode.as_deref() != Some("Block")
    {
        return Ok(PlannedVolume { path: path.path.into(), content: Content::Host("Directory".to_owned()) });
    }
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    Err(ResolveError::Unsupported { what: format!("the kind of the persistent volume {name:?}") })
}

/// The folder that a volume of ours is, below that of all claims.
fn folder(volume: &PersistentVolume) -> Option<PathBuf> {
    let source = volume.spec.as_ref()?.csi.as_ref().filter(|source| source.driver == DRIVER)?;
    let (namespace, name) = source.volume_handle.split_once('/')?;
    let plain = |part: &str| !part.is_empty() && part != "." && !part.contains('/') && is_plain_relative(part);
    (plain(namespace) && plain(name)).then(|| Path::new(namespace).join(name))
}

/// Whether a volume is on this node, or on each.
fn is_here(volume: &PersistentVolume, node: &str) -> bool {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    let Some(required) = affinity.and_then(|affinity| affinity.required.as_ref()) else { return true };
    required.node_selector_terms.iter().any(|term| {
        term.match_expressions.iter().flatten().any(|expression| {
            expression.key == HOST_NAME && expression.values.iter().flatten().any(|value| value == node)
        })
    })
}

/// The folder to remove, where this volume has ended.
pub(crate) fn ended(volume: &PersistentVolume, node: &str) -> Option<PathBuf> {
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    let over = phase == Some("Released") && policy == Some("Delete") && is_here(volume, node);
    if over { folder(volume) } else { None }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn volume(spec: Value, phase: &str) -> PersistentVolume {
        serde_json::from_value(json!({"metadata": {"name": "v"}, "spec": spec, "status": {"phase": phase}})).unwrap()
    }

    fn ours(handle: &str, policy: &str) -> Value {
        json!({"csi": {"driver": DRIVER, "volumeHandle": handle}, "persistentVolumeReclaimPolicy": policy})
    }

    #[test]
    fn volumes_are_paths_of_this_machine() {
        let path =
            |spec: Value| planned("c", Some(&volume(spec, "Bound")), Path::new("/d")).map(|planned| planned.path);
        assert_eq!(path(ours("ns/c", "Delete")).unwrap(), Path::new("/d/ns/c"));
        assert_eq!(path(json!({"hostPath": {"path": "/h"}})).unwrap(), Path::new("/h"));
        assert_eq!(path(json!({"local": {"path": "/l"}})).unwrap(), Path::new("/l"));
        assert!(matches!(path(json!({"nfs": {"server": "s", "path": "/"}})), Err(ResolveError::Unsupported { .. })));
        for handle in ["c", "../c", "ns/..", "ns/a/b", "/c", "ns/"] {
            assert!(path(ours(handle, "Delete")).is_err(), "{handle}");
        }
        assert!(matches!(planned("c", None, Path::new("/d")), Err(ResolveError::Unbound { .. })));
    }

    #[test]
    fn only_released_volumes_of_this_node_that_are_to_be_deleted_end() {
        let gone = |spec: Value, phase: &str| ended(&volume(spec, phase), "here").is_some();
        assert!(gone(ours("ns/c", "Delete"), "Released"));
        assert!(!gone(ours("ns/c", "Delete"), "Bound"));
        assert!(!gone(ours("ns/c", "Retain"), "Released"));
        assert!(!gone(json!({"hostPath": {"path": "/h"}, "persistentVolumeReclaimPolicy": "Delete"}), "Released"));
        for (node, wanted) in [("here", true), ("there", false)] {
            let mut spec = ours("ns/c", "Delete");
            let term = json!({"matchExpressions": [{"key": HOST_NAME, "operator": "In", "values": [node]}]});
            spec["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [term]}});
            assert_eq!(gone(spec, "Released"), wanted, "{node}");
        }
    }
}
