//! What an attempt knows of the machine: where to look for what it must not reach.
//!
//! A tenant would have to guess it; to know it makes an attempt no more than honest.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Facts {
    /// Begins every file, key and segment that must not be read.
    pub secret: String,
    /// The platform's data directory, with a file `secret`.
    pub data_dir: PathBuf,
    /// The host's folder that the volumes are of, at its own path.
    pub folder: PathBuf,
    /// The same folder as the container's volume; in the host's own root there are no volumes, and it is that path.
    pub volume: PathBuf,
    /// The name in it of an empty folder for everybody in this pod.
    pub scratch: String,
    /// The secret's file in the data directory, as `name_to_handle_at` names it.
    pub handle: Handle,
    /// A key in the user keyring of the host's root.
    pub key: i32,
    /// A port of the host's loopback, and an abstract socket of the host.
    pub port: u16,
    pub socket: String,
    /// A port of the host at the pods' gateway.
    pub gateway: String,
    /// The host's link that pods are connected to.
    pub bridge: String,
    /// A System V segment, a message queue and a file of shared memory of the host.
    pub segment: i32,
    pub queue: String,
    pub shared_memory: PathBuf,
    /// A terminal of the host.
    pub terminal: PathBuf,
    /// A block device that the host may open.
    pub disk: u64,
    /// A process of another pod and its shim, by the host's numbers; where its program is in memory; a file in its volume.
    pub neighbor: i32,
    pub neighbor_shim: i32,
    pub neighbor_address: usize,
    pub neighbor_file: PathBuf,
    /// Where it listens.
    pub neighbor_service: String,
}

impl Facts {
    /// The empty folder, as the container's volume.
    pub fn scratch(&self) -> PathBuf {
        self.volume.join(&self.scratch)
    }
}

/// The kernel's `struct file_handle`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Handle {
    pub kind: i32,
    pub bytes: Vec<u8>,
}
