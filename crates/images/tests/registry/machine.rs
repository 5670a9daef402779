//! A machine that pulls: its store, its settings, and how long it waits.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pumice_images::provide::{
    Images, Options, ProvideError, Provided, Proxies, PullPolicy, PushFailure, Pushed, Wanted,
};
use pumice_images::registry::Patience;
use pumice_images::registry::credentials::Keyring;
use pumice_images::registry::pull::Progress;
use pumice_images::registry::push::PushProgress;
use pumice_images::store::{Limits, Store};
use pumice_units::{Backoff, with_causes};
use serde_json::json;
use tempfile::TempDir;

use crate::server::Registry;

/// A wait that a registry which does answer never needs.
const LONG: Duration = Duration::from_secs(30);
/// A wait for what never comes.
const SHORT: Duration = Duration::from_millis(150);

/// The file with what is said of registries.
const SETTINGS: &str = "registries.yaml";

/// A machine with a store.
pub struct Machine {
    dir: PathBuf,
    /// Removed with this.
    _made: Option<TempDir>,
    settings: String,
    pub patience: Patience,
    pub proxy: Option<String>,
}

impl Machine {
    /// That reaches these registries without TLS.
    pub fn new(registries: &[&Registry]) -> Machine {
        // In memory, so that no test waits for the disk.
        let shm = Path::new("/dev/shm");
        let made = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() };
        let made = made.unwrap();
        let mut machine = Machine::at(made.path());
        machine._made = Some(made);
        for registry in registries {
            machine.set(&registry.host, "plainHttp: true");
        }
        machine
    }

    /// That has its store and its settings in this folder.
    pub fn at(dir: &Path) -> Machine {
        let settings = std::fs::read_to_string(dir.join(SETTINGS)).unwrap_or_default();
        Machine { dir: dir.to_owned(), _made: None, settings, patience: patience(), proxy: None }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Says something of a registry.
    pub fn set(&mut self, host: &str, settings: &str) {
        writeln!(self.settings, "'{host}': {{{settings}}}").unwrap();
    }

    /// Gives up soon.
    pub fn hurry(&mut self) {
        (self.patience.answer, self.patience.window, self.patience.tries) = (SHORT, SHORT, 2);
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub fn store_dir(&self) -> PathBuf {
        self.path("store")
    }

    /// As after a start of the agent: what failed is forgotten.
    pub fn images(&self) -> Images {
        let settings = self.path(SETTINGS);
        std::fs::write(&settings, &self.settings).unwrap();
        let limits = Limits { reserve_percent: 0, ..Limits::default() };
        let store = Arc::new(Store::open(&self.store_dir(), limits).unwrap());
        let docker_config = Some(self.path("config.json"));
        let options = Options { settings: Some(settings), docker_config, patience: self.patience.clone() };
        let proxies = self.proxy.as_deref().map_or_else(Proxies::none, Proxies::one);
        Images::new(store, options, proxies)
    }

    pub async fn pull(&self, name: &str) -> Result<Provided, ProvideError> {
        self.pull_as(name, &Keyring::default()).await
    }

    pub async fn pull_as(&self, name: &str, keyring: &Keyring) -> Result<Provided, ProvideError> {
        provide(&self.images(), name, keyring, PullPolicy::IfNotPresent).await
    }

    /// Writes this user's `config.json`, with which it pushes.
    pub fn log_in(&self, host: &str, user: &str, password: &str) {
        let config = json!({"auths": {host: {"username": user, "password": password}}});
        std::fs::write(self.path("config.json"), config.to_string()).unwrap();
    }

    pub async fn push(&self, name: &str, destination: Option<&str>) -> Result<Pushed, PushFailure> {
        self.images().push(name, destination, &PushProgress::default()).await
    }

    /// What a push fails with, its causes with it.
    pub async fn push_failure(&self, name: &str, destination: Option<&str>) -> String {
        with_causes(&self.push(name, destination).await.unwrap_err())
    }

    /// What a pull fails with, its causes with it.
    pub async fn failure(&self, name: &str) -> String {
        let error = self.pull(name).await.unwrap_err();
        assert_eq!(error.reason(), "ErrImagePull", "{error}");
        with_causes(&error)
    }

    pub async fn failure_as(&self, name: &str, keyring: &Keyring) -> String {
        with_causes(&self.pull_as(name, keyring).await.unwrap_err())
    }

    /// Whether nothing of an image is there.
    pub fn is_empty(&self) -> bool {
        let count = |folder: &str| std::fs::read_dir(self.store_dir().join(folder)).unwrap().count();
        ["images", "layers"].iter().all(|folder| count(folder) == 0)
    }
}

pub fn patience() -> Patience {
    Patience {
        answer: LONG,
        window: LONG,
        bytes: 1 << 10,
        tries: 3,
        pause: Backoff { first: Duration::from_millis(1), longest: Duration::from_millis(5) },
        longest_pause: Duration::from_millis(20),
        others: LONG,
        others_bytes: 1 << 20,
    }
}

pub async fn provide(
    images: &Images,
    name: &str,
    keyring: &Keyring,
    policy: PullPolicy,
) -> Result<Provided, ProvideError> {
    let wanted = Wanted { name: name.to_owned(), policy, keyring: keyring.clone() };
    images.provide(&wanted, &Progress::default()).await
}

/// A user's password for a registry.
pub fn password(registry: &Registry, user: &str, password: &str) -> Keyring {
    keyring(&registry.host, &json!({"username": user, "password": password}))
}

pub fn keyring(host: &str, entry: &serde_json::Value) -> Keyring {
    Keyring::read(json!({"auths": {host: entry}}).to_string().as_bytes()).unwrap()
}

/// What the file of a small image says.
pub fn content(provided: &Provided) -> String {
    let layer = provided.layers.last().unwrap();
    std::fs::read_to_string(layer.join("file")).unwrap()
}
