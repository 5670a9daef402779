//! An image's configuration: what runs in it unless the container says otherwise.

use oci_spec::image::ImageConfiguration;

use crate::digest::{Digest, DigestError};
use crate::manifest::{LAYERS_MAX, machine, text};

/// Largest configuration that is read, in bytes.
pub const CONFIG_BYTES_MAX: u64 = 4 << 20;

/// Most folders that an image may declare as volumes.
const VOLUMES_MAX: usize = 128;

/// Why a configuration can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Not JSON of the right form.
    #[error("the image's configuration is not one")]
    Form(#[source] oci_spec::OciSpecError),
    /// Its programs can't run here.
    #[error("the image is for {found}, and this machine is {wanted}: take another tag, or build it for {wanted}")]
    Platform { found: String, wanted: String },
    #[error("rootfs.diff_ids[{index}] of the image's configuration is of no use")]
    Digest {
        index: usize,
        #[source]
        source: DigestError,
    },
    /// The manifest and the configuration disagree.
    #[error("the image's manifest has {layers} layers, its configuration {diff_ids}")]
    Layers { layers: usize, diff_ids: usize },
    #[error("{field} of the image's configuration {problem}")]
    Field { field: String, problem: &'static str },
}

/// What an image says of the containers that are made from it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageConfig {
    pub entrypoint: Vec<String>,
    pub cmd: Vec<String>,
    /// Names and values in the image's order.
    pub env: Vec<(String, String)>,
    pub working_dir: Option<String>,
    /// A user, or a user and a group, by name or number: `app`, `1000:1000`.
    pub user: Option<String>,
    /// A name such as `SIGTERM`, or a number.
    pub stop_signal: Option<String>,
    /// Folders that the image would have as volumes, absolute.
    pub volumes: Vec<String>,
    /// What each layer is when unpacked, the lowest first.
    pub diff_ids: Vec<Digest>,
}

impl ImageConfig {
    /// Reads the configuration of an image with this many layers.
    pub fn read(bytes: &[u8], layers: usize) -> Result<ImageConfig, ConfigError> {
        let found = ImageConfiguration::from_reader(bytes).map_err(ConfigError::Form)?;
        let here = machine();
        if found.os() != here.os() || found.architecture() != here.architecture() {
            let found = format!("{}/{}", found.os(), found.architecture());
            return Err(ConfigError::Platform { found, wanted: text(&here) });
        }
        let diff_ids: Vec<Digest> = (found.rootfs().diff_ids().iter().enumerate().take(LAYERS_MAX + 1))
            .map(|(index, text)| text.parse().map_err(|source| ConfigError::Digest { index, source }))
            .collect::<Result<_, _>>()?;
        if diff_ids.len() != layers {
            return Err(ConfigError::Layers { layers, diff_ids: found.rootfs().diff_ids().len() });
        }
        let Some(config) = found.config() else { return Ok(ImageConfig { diff_ids, ..ImageConfig::default() }) };
        let set = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let mut volumes = config.volumes().clone().unwrap_or_default();
        volumes.sort();
        let read = ImageConfig {
            entrypoint: config.entrypoint().clone().unwrap_or_default(),
            cmd: config.cmd().clone().unwrap_or_default(),
            env: config.env().iter().flatten().map(|entry| variable(entry)).collect::<Result<_, _>>()?,
            working_dir: set(config.working_dir()),
            user: set(config.user()),
            stop_signal: set(config.stop_signal()),
            volumes,
            diff_ids,
        };
        read.check()?;
        Ok(read)
    }

    /// What reaches the kernel has no NUL, and folders are absolute.
    fn check(&self) -> Result<(), ConfigError> {
        let refused = |field: String, problem| Err(ConfigError::Field { field, problem });
        let lists = [("config.Entrypoint", &self.entrypoint), ("config.Cmd", &self.cmd)];
        for (field, list) in lists {
            if let Some(at) = list.iter().position(|text| text.contains('\0')) {
                return refused(format!("{field}[{at}]"), "has a NUL");
            }
        }
        for (field, text) in
            [("WorkingDir", &self.working_dir), ("User", &self.user), ("StopSignal", &self.stop_signal)]
        {
            if text.as_ref().is_some_and(|text| text.contains('\0')) {
                return refused(format!("config.{field}"), "has a NUL");
            }
        }
        if self.working_dir.as_ref().is_some_and(|dir| !dir.starts_with('/')) {
            return refused("config.WorkingDir".to_owned(), "is not absolute");
        }
        if self.volumes.len() > VOLUMES_MAX {
            return refused("config.Volumes".to_owned(), "has more than 128 folders");
        }
        match self.volumes.iter().find(|path| !path.starts_with('/') || path.contains('\0')) {
            Some(path) => refused(format!("config.Volumes[{path:?}]"), "is not an absolute path"),
            None => Ok(()),
        }
    }
}

fn variable(entry: &str) -> Result<(String, String), ConfigError> {
    let (name, value) = entry.split_once('=').unwrap_or((entry, ""));
    if name.is_empty() || entry.contains('\0') {
        let field = format!("config.Env {:?}", entry.chars().take(40).collect::<String>());
        return Err(ConfigError::Field { field, problem: "is not NAME=value" });
    }
    Ok((name.to_owned(), value.to_owned()))
}
