//! Which of a pod's folders have projects of the file system, and how much the kernel lets them have.
//!
//! A pod over its limit is evicted, as a kubelet does; the kernel's bound lies above the limit, so that the pod is found over it
//! before its programs meet errors that say something else, and so low that it can't fill the disk between two looks. Called where a
//! pod is started, and where what it leaves is removed.

use std::fs;
use std::io;
use std::path::Path;

use caps::Capability;
use k8s_openapi::api::core::v1::{Pod, PodSecurityContext, SecurityContext};

use super::{is_on_disk, size_limit, storage_limit, together};
use crate::confinement::seccomp::ProfileChoice;
use crate::layout::{layers_dir, volumes_dir};
use crate::project_quota::{self, Projects, QuotaError};
use pumice_linux::files::private_dir;
use pumice_shim::capability_set;

/// How far the kernel's bound lies above a limit: this part of it, but so many bytes at least.
const ABOVE_PART: u64 = 10;
const ABOVE_BYTES_MIN: u64 = 16 << 20;

/// Gives each folder that the containers of a pod write to a project. What began without one is counted file by file.
pub(crate) fn assign(projects: &Projects, dir: &Path, pod: &Pod) -> Result<(), QuotaError> {
    let Some(spec) = &pod.spec else { return Ok(()) };
    let of_pod = together(spec).map(|limit| limit.value());
    let bound = |own: Option<i64>| own.into_iter().chain(of_pod).min().map(bound);
    for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
        let folder = layers_dir(dir).join(&container.name);
        private_dir(&folder).map_err(QuotaError::Project)?;
        let own = storage_limit(container).map(|(_, limit)| limit.value());
        projects.assign(&folder, bound(own))?;
    }
    for volume in spec.volumes.iter().flatten().filter(|volume| is_on_disk(volume)) {
        let own = size_limit(volume).map(|limit| limit.value());
        projects.assign(&volumes_dir(dir).join(&volume.name), bound(own))?;
    }
    Ok(())
}

fn bound(limit: i64) -> u64 {
    let limit = u64::try_from(limit).unwrap_or(0);
    limit.saturating_add((limit / ABOVE_PART).max(ABOVE_BYTES_MIN))
}

/// Takes the bounds from what a pod has left.
pub(crate) fn release(dir: &Path) {
    let each = |dir| -> io::Result<Vec<fs::DirEntry>> { fs::read_dir(dir)?.collect() };
    let folders = [layers_dir(dir), volumes_dir(dir)].into_iter().filter_map(|dir| each(dir).ok());
    folders.flatten().for_each(|entry| project_quota::release(&entry.path()));
}

/// Whether the files of a pod stay in the projects in which they were made. The owner of a file may move it to another, unless a
/// filter refuses the call; and who is root of the machine may change every bound.
pub(crate) fn are_lasting(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let of_pod = spec.security_context.clone().unwrap_or_default();
    let mut containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    containers.all(|container| is_held(&of_pod, &container.security_context.clone().unwrap_or_default()))
}

fn is_held(of_pod: &PodSecurityContext, own: &SecurityContext) -> bool {
    let lists = own.capabilities.clone().unwrap_or_default();
    let rights = capability_set::retained(&lists.add.unwrap_or_default(), &lists.drop.unwrap_or_default());
    ProfileChoice::of(of_pod, own) == ProfileChoice::RuntimeDefault && !rights.contains(&Capability::CAP_SYS_ADMIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_bound_lies_above_the_limit() {
        for (limit, above) in [(0, 16 << 20), (100 << 20, 16 << 20), (1 << 30, (1 << 30) / 10), (-1, 16 << 20)] {
            assert_eq!(bound(limit), u64::try_from(limit).unwrap_or(0) + above, "{limit}");
        }
        assert_eq!(bound(i64::MAX), i64::MAX as u64 + i64::MAX as u64 / 10);
    }

    #[test]
    fn who_may_change_a_files_project_is_counted_file_by_file() {
        let cases = [
            (json!({}), json!({}), true),
            (json!({"seccompProfile": {"type": "Unconfined"}}), json!({}), false),
            (json!({}), json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "x"}}), false),
            (
                json!({"seccompProfile": {"type": "Unconfined"}}),
                json!({"seccompProfile": {"type": "RuntimeDefault"}}),
                true,
            ),
            (json!({}), json!({"seccompProfile": {"type": "RuntimeDefault"}}), true),
            (json!({}), json!({"privileged": true}), false),
            (json!({}), json!({"capabilities": {"add": ["SYS_ADMIN"]}}), false),
            (json!({}), json!({"capabilities": {"add": ["NET_ADMIN"]}}), true),
        ];
        for (of_pod, own, lasting) in cases {
            let containers = json!([{"name": "a", "securityContext": own}]);
            let pod = json!({"spec": {"securityContext": of_pod, "containers": containers}});
            assert_eq!(are_lasting(&serde_json::from_value(pod.clone()).unwrap()), lasting, "{pod}");
        }
    }
}
