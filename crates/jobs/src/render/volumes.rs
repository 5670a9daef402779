//! `--volume HOST:POD[:ro]` and `--volume claim:NAME:POD[:ro]`, the working directory and the script, as volumes of a pod.

use k8s_openapi::api::core::v1::{HostPathVolumeSource, PersistentVolumeClaimVolumeSource, Volume, VolumeMount};

use super::RenderError;
use crate::names;
use crate::render::links::Link;

/// Most `--volume` flags of a job.
const VOLUMES_MAX: usize = 50;

/// Volumes of a pod and where its container sees them, in the same order.
#[derive(Debug, Default)]
pub(super) struct Volumes {
    pub volumes: Vec<Volume>,
    pub mounts: Vec<VolumeMount>,
}

impl Volumes {
    /// Adds a volume that is seen at `path`.
    pub fn add(&mut self, volume: Volume, path: String, read_only: bool) {
        self.mounts.push(VolumeMount {
            name: volume.name.clone(),
            mount_path: path,
            read_only: read_only.then_some(true),
            ..VolumeMount::default()
        });
        self.volumes.push(volume);
    }

    /// Adds where a link of the working directory leads, unless a volume is seen there.
    pub fn add_target(&mut self, name: &str, link: &Link) -> Result<(), RenderError> {
        let path = link.target.to_str().ok_or_else(|| RenderError::LinkTarget { path: link.target.clone() })?;
        if !self.has(path) {
            self.add_existing(name, path, if link.is_folder { "Directory" } else { "File" });
        }
        Ok(())
    }

    /// Adds a directory of the node that must exist.
    pub fn add_directory(&mut self, name: &str, path: &str) {
        self.add_existing(name, path, "Directory");
    }

    fn add_existing(&mut self, name: &str, path: &str, kind: &str) {
        let source = HostPathVolumeSource { path: path.to_owned(), type_: Some(kind.to_owned()) };
        let volume = Volume { name: name.to_owned(), host_path: Some(source), ..Volume::default() };
        self.add(volume, path.to_owned(), false);
    }

    /// Whether a volume is seen at just this path.
    pub fn has(&self, path: &str) -> bool {
        self.mounts.iter().any(|mount| mount.mount_path == path)
    }

    /// Adds what `--volume` says.
    pub fn add_flag(&mut self, text: &str) -> Result<(), RenderError> {
        let bad = |problem: &str| RenderError::text("--volume", text, problem);
        let (rest, read_only) = match text.rsplit_once(':') {
            Some((rest, "ro")) => (rest, true),
            Some((rest, "rw")) => (rest, false),
            _ => (text, false),
        };
        let shape = || bad("is neither HOST:POD[:ro] nor claim:NAME:POD[:ro]");
        let (source, path) = rest.rsplit_once(':').ok_or_else(shape)?;
        if path.trim_matches('/').is_empty() || !path.starts_with('/') {
            return Err(bad("needs an absolute path in the pod, other than /"));
        }
        if self.has(path) {
            return Err(bad("puts a second volume at the same path of the pod"));
        }
        if self.volumes.len() >= VOLUMES_MAX {
            return Err(bad("is one volume too many"));
        }
        let name = format!("volume-{}", self.volumes.len());
        let volume = match source.strip_prefix("claim:") {
            Some(claim) => {
                names::check("--volume claim", claim, 253)?;
                let source = PersistentVolumeClaimVolumeSource {
                    claim_name: claim.to_owned(),
                    read_only: read_only.then_some(true),
                };
                Volume { name, persistent_volume_claim: Some(source), ..Volume::default() }
            }
            None if source.starts_with('/') && !source.contains(':') => {
                let source = HostPathVolumeSource { path: source.to_owned(), type_: None };
                Volume { name, host_path: Some(source), ..Volume::default() }
            }
            None => return Err(shape()),
        };
        self.add(volume, path.to_owned(), read_only);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_what_becomes_of_them() {
        let mut table = String::new();
        for text in [
            "/data:/data",
            "/data:/in:ro",
            "/data:/out:rw",
            "claim:scratch:/scratch",
            "claim:scratch:/scratch:ro",
            "data:/data",
            "/data",
            "",
            "/data:data",
            "/data:/",
            "claim:Scratch:/scratch",
            "claim::/x",
            "/a:b:/c",
        ] {
            let mut volumes = Volumes::default();
            let told = match volumes.add_flag(text) {
                Ok(()) => serde_json::json!([volumes.volumes, volumes.mounts]).to_string(),
                Err(error) => format!("error: {error}"),
            };
            table.push_str(&format!("{text:?} -> {told}\n"));
        }
        insta::assert_snapshot!(table);
        let mut volumes = Volumes::default();
        volumes.add_flag("/a:/x").unwrap();
        assert!(volumes.add_flag("/b:/x").unwrap_err().to_string().contains("second volume"));
    }
}
