//! Where things lie in the node's folder and in that of a pod.

use std::path::{Path, PathBuf};

/// What a shim says of itself, in its pod's directory.
pub(crate) const SHIM_LOG: &str = "shim.log";

/// Where the volumes are that a pod alone has.
pub(crate) fn volumes_dir(pod_dir: &Path) -> PathBuf {
    pod_dir.join("volumes")
}

/// Where everything of the node's agent is.
pub(crate) fn node_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("node")
}

/// Where the directories of pods are.
pub(crate) fn pods_dir(node_dir: &Path) -> PathBuf {
    node_dir.join("pods")
}

/// Where the layers of a pod's containers are.
pub(crate) fn layers_dir(pod_dir: &Path) -> PathBuf {
    pod_dir.join("c")
}

/// Where profiles of system calls lie that pods name (`Localhost`).
pub(crate) fn seccomp_profiles_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("seccomp")
}

/// Where the filters are that were made of profiles.
pub(crate) fn seccomp_filters_dir(node_dir: &Path) -> PathBuf {
    node_dir.join("seccomp")
}

/// Where the store of images is.
pub fn images_dir(data_dir: &Path) -> PathBuf {
    node_dir(data_dir).join("images")
}

/// Where the folders of claims are.
pub(crate) fn claims_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("volumes")
}
