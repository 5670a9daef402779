//! An image for a container: from the store where its user may have it from there, else from a registry.
//!
//! Invariant: an image that was pulled with a credential is given to those alone whose own credentials the registry takes for it,
//! by whatever name they ask for it.

mod failures;
mod helper;
mod push;
mod turns;

use std::path::PathBuf;
use std::sync::Arc;

use hyper_util::client::proxy::matcher::Matcher;
use tokio::sync::Semaphore;
use tokio::task::{JoinError, spawn_blocking};

use pumice_clock as clock;
use pumice_linux::files::read_bounded;
use pumice_units::with_causes;

use crate::config::{ConfigError, ImageConfig};
use crate::digest::Digest;
use crate::registry::RegistryError;
use crate::registry::credentials::{self, Credential, Keyring};
use crate::registry::pull::{self, Origins, Progress, Pull, PullError};
use crate::registry::session::{Patience, Session};
use crate::registry::settings::{Endpoint, Settings, SettingsError};
use crate::registry::transport::Transport;
use crate::store::{ImageRecord, Store, StoreError};
use crate::{NameError, Reference};
use failures::Failures;
pub use push::{PushFailure, Pushed};
use turns::Turns;

/// How exactly it is remembered when an image was used last.
const USED_EVERY_SECONDS: i64 = 60;
/// Looks into the store at a time: when many pods of an image begin at once, a thread for each costs more than its look.
const LOOKS_AT_ONCE: usize = 4;
/// Longest name of an image, in bytes.
const NAME_BYTES_MAX: usize = 1024;

/// When a registry is asked (`imagePullPolicy`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullPolicy {
    /// Each time, for what the name stands for now.
    Always,
    /// Where the store has no such image, or not for this user.
    IfNotPresent,
    Never,
}

/// An image that a container names.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub name: String,
    pub policy: PullPolicy,
    /// The credentials of the container's user.
    pub keyring: Keyring,
}

/// An image that a container can be made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provided {
    /// Registry, repository and digest: `docker.io/library/busybox@sha256:…`; of a loaded image its digest alone.
    pub id: String,
    pub config: ImageConfig,
    /// Unpacked, the lowest first.
    pub layers: Vec<PathBuf>,
    /// Bytes that came from a registry, where one was asked for its content.
    pub pulled_bytes: Option<u64>,
    /// What its layers take as the registry has them.
    pub size_bytes: u64,
}

/// Why a container has no image.
#[derive(Debug, thiserror::Error)]
pub enum ProvideError {
    #[error("{name:?} is not the name of an image")]
    Name {
        name: String,
        #[source]
        source: NameError,
    },
    #[error("the image {name} is not on this machine, and imagePullPolicy is Never")]
    Never { name: String },
    /// It is there, but for others.
    #[error(
        "the image {name} is on this machine for others alone, and imagePullPolicy is Never: none of the pod's credentials opened it"
    )]
    NotGranted { name: String },
    #[error("can't pull the image {name}")]
    Pull {
        name: String,
        #[source]
        source: Box<PullError>,
    },
    /// It failed a while ago.
    #[error("back-off pulling image {name}; the last time: {message}")]
    BackOff { name: String, message: String },
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error("can't read {}", path.display())]
    DockerConfig {
        path: PathBuf,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("the image {name} can't be read")]
    Store {
        name: String,
        #[source]
        source: StoreError,
    },
    #[error("the image {name} can't be used")]
    Config {
        name: String,
        #[source]
        source: ConfigError,
    },
    #[error("the image was not read")]
    Task(#[from] JoinError),
}

impl ProvideError {
    /// As a kubelet names it.
    pub fn reason(&self) -> &'static str {
        match self {
            ProvideError::Name { .. } => "InvalidImageName",
            ProvideError::Never { .. } | ProvideError::NotGranted { .. } => "ErrImageNeverPull",
            ProvideError::BackOff { .. } => "ImagePullBackOff",
            ProvideError::Pull { .. } | ProvideError::Settings(_) | ProvideError::DockerConfig { .. } => "ErrImagePull",
            ProvideError::Store { .. } | ProvideError::Config { .. } | ProvideError::Task(_) => "ImageInspectError",
        }
    }
}

/// How images come to this machine.
#[derive(Debug, Clone)]
pub struct Options {
    /// A file with [`Settings`].
    pub settings: Option<PathBuf>,
    /// Docker's `config.json` with this machine's own credentials; it may be missing.
    pub docker_config: Option<PathBuf>,
    pub patience: Patience,
}

/// Which proxies there are.
pub struct Proxies(Matcher);

impl Proxies {
    /// As the variables `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` say, in capitals or not.
    pub fn of_environment() -> Proxies {
        Proxies(Matcher::from_env())
    }

    /// Every registry is reached directly.
    pub fn none() -> Proxies {
        Proxies(Matcher::builder().build())
    }

    /// One for everything: `http://USER:PASSWORD@HOST:PORT`.
    pub fn one(address: &str) -> Proxies {
        Proxies(Matcher::builder().all(address).build())
    }
}

/// Gives containers their images.
pub struct Images {
    store: Arc<Store>,
    options: Options,
    transport: Arc<Transport>,
    turns: Turns,
    failures: Failures,
    origins: Origins,
    looks: Semaphore,
}

impl Images {
    /// Asks no registry before the first image is wanted.
    pub fn new(store: Arc<Store>, options: Options, proxies: Proxies) -> Images {
        let transport = Arc::new(Transport::new(proxies.0));
        Images {
            store,
            options,
            transport,
            turns: Turns::default(),
            failures: Failures::default(),
            origins: Origins::default(),
            looks: Semaphore::new(LOOKS_AT_ONCE),
        }
    }

    /// Where the images are.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// An image that is in the store for everybody, without a question to anybody.
    pub async fn find_open(&self, name: &str) -> Result<Option<Provided>, ProvideError> {
        let reference = parse(name)?;
        let record = self.record(&reference.whole()).await?;
        let open = record.filter(|record| is_open(record) && self.is_whole(record));
        match open {
            Some(record) => self.provided(&reference, record, None).await.map(Some),
            None => Ok(None),
        }
    }

    /// The image, pulled where it must be. `progress` says how far a pull is.
    pub async fn provide(&self, wanted: &Wanted, progress: &Progress) -> Result<Provided, ProvideError> {
        let reference = parse(&wanted.name)?;
        let name = reference.whole();
        let mut ring = self.own_keyring().await?;
        ring.add(wanted.keyring.clone());
        let settings = self.settings().await?;
        let ways = ways(&settings, &reference, &ring).await;
        // Where it is there already, nobody waits for another's pull.
        if let Some(found) = self.stored(&reference, wanted.policy, &ways).await? {
            return Ok(found);
        }
        // Whoever else wants it waits, and then finds it.
        let _turn = self.turns.take(&name).await;
        if let Some(found) = self.stored(&reference, wanted.policy, &ways).await? {
            return Ok(found);
        }
        let record = self.record(&name).await?;
        let key = failure_key(&name, &ways);
        if let Some(message) = self.failures.wait(&key, clock::monotonic()) {
            return Err(ProvideError::BackOff { name, message });
        }
        match self.ask(&reference, record, ways, progress).await {
            Ok((record, pulled)) => {
                self.failures.forget(&key);
                self.provided(&reference, record, pulled).await
            }
            Err(source) => {
                let error = ProvideError::Pull { name, source: Box::new(source) };
                self.failures.add(key, with_causes(&error), clock::monotonic());
                Err(error)
            }
        }
    }

    /// What the store has for whoever has these credentials, where the policy is to use that.
    async fn stored(
        &self,
        reference: &Reference,
        policy: PullPolicy,
        ways: &[Way],
    ) -> Result<Option<Provided>, ProvideError> {
        if policy == PullPolicy::Always {
            return Ok(None);
        }
        let name = reference.whole();
        match self.record(&name).await? {
            Some(record) if is_granted(&record, ways) && (policy == PullPolicy::Never || self.is_whole(&record)) => {
                self.provided(reference, record, None).await.map(Some)
            }
            Some(_) if policy == PullPolicy::Never => Err(ProvideError::NotGranted { name }),
            None if policy == PullPolicy::Never => Err(ProvideError::Never { name }),
            _ => Ok(None),
        }
    }

    /// Asks each registry with each credential, until one gives the image.
    async fn ask(
        &self,
        reference: &Reference,
        record: Option<ImageRecord>,
        ways: Vec<Way>,
        progress: &Progress,
    ) -> Result<(ImageRecord, Option<u64>), PullError> {
        let mut last = None;
        for way in ways {
            let host = way.endpoint.host.clone();
            for credential in way.tries() {
                let session = Session::new(
                    Arc::clone(&self.transport),
                    way.endpoint.clone(),
                    reference.repository().to_owned(),
                    credential,
                    self.options.patience.clone(),
                );
                match self.ask_one(&session, reference, record.as_ref(), progress).await {
                    Ok(found) => return Ok(found),
                    Err(error) => {
                        tracing::debug!(host, error = with_causes(&error), "no image from this registry");
                        if error.is_for_want_of_room() {
                            return Err(error);
                        }
                        let is_of_rights = error.is_of_rights();
                        last = Some(error);
                        if !is_of_rights {
                            break;
                        }
                    }
                }
            }
            // It may be for want of what the helper did not give.
            if let (Some(problem), Some(true)) = (way.problem, last.as_ref().map(PullError::is_of_rights)) {
                last = Some(problem.into());
            }
        }
        Err(last
            .unwrap_or_else(|| RegistryError::NotFound { host: reference.registry().into(), what: "it".into() }.into()))
    }

    async fn ask_one(
        &self,
        session: &Session,
        reference: &Reference,
        record: Option<&ImageRecord>,
        progress: &Progress,
    ) -> Result<(ImageRecord, Option<u64>), PullError> {
        let version = reference.digest().or(reference.tag()).unwrap_or("latest");
        let has_blobs = |record: &ImageRecord| record.layers.iter().all(|layer| self.store.has_blob(&layer.blob));
        if let Some(record) = record.filter(|record| !record.loaded && self.is_whole(record) && has_blobs(record))
            && pull::target(session, version).await? == Some(record.target.clone())
        {
            let mut record = record.clone();
            record.grant(pull::grant(session));
            return Ok((self.put(record).await?, None));
        }
        progress.start();
        let resolved = pull::resolve(session, version).await?;
        let pull = Pull { session, store: &self.store, origins: &self.origins, progress };
        let fetched = pull::fetch(pull, &reference.whole(), resolved).await?;
        let mut found = fetched.record.clone();
        // Of the same image: a registry that can't be asked what a tag stands for gives it to each of its users in turn.
        for grant in record.filter(|record| record.target == found.target).into_iter().flat_map(|record| &record.grants)
        {
            found.grant(grant.clone());
        }
        Ok((self.put(found).await?, Some(progress.received())))
    }

    fn is_whole(&self, record: &ImageRecord) -> bool {
        self.store.has_blob(&record.config) && record.layers.iter().all(|layer| self.store.has_layer(&layer.diff_id))
    }

    async fn put(&self, record: ImageRecord) -> Result<ImageRecord, PullError> {
        let store = Arc::clone(&self.store);
        let put = spawn_blocking(move || store.put_image(&record).map(|()| record)).await;
        let record = put.map_err(PullError::Task)?.map_err(PullError::Store)?;
        // The container does not wait for the disk.
        let store = Arc::clone(&self.store);
        let _detached = spawn_blocking(move || {
            if let Err(error) = store.settle() {
                tracing::warn!(error = with_causes(&error), "layers are not on the disk yet");
            }
        });
        Ok(record)
    }

    async fn record(&self, name: &str) -> Result<Option<ImageRecord>, ProvideError> {
        let (store, owned) = (Arc::clone(&self.store), name.to_owned());
        match self.look(move || store.image(&owned)).await? {
            // The next pull writes another.
            Err(StoreError::Record { path, source }) => {
                tracing::warn!(path = %path.display(), %source, "passing over a damaged record of an image");
                Ok(None)
            }
            found => found.map_err(|source| ProvideError::Store { name: name.to_owned(), source }),
        }
    }

    async fn provided(
        &self,
        reference: &Reference,
        record: ImageRecord,
        pulled_bytes: Option<u64>,
    ) -> Result<Provided, ProvideError> {
        let store = Arc::clone(&self.store);
        let name = record.name.clone();
        let id = if record.loaded {
            record.target.to_string()
        } else {
            format!("{}/{}@{}", reference.registry(), reference.repository(), record.target)
        };
        self.look(move || {
            let failed = |source| ProvideError::Store { name: name.clone(), source };
            let layers: Vec<PathBuf> = record.layers.iter().map(|layer| store.layer_dir(&layer.diff_id)).collect();
            let missing = |digest: &Digest| failed(StoreError::Missing { digest: digest.clone() });
            if let Some(layer) = record.layers.iter().find(|layer| !store.has_layer(&layer.diff_id)) {
                return Err(missing(&layer.diff_id));
            }
            let bytes = store.manifest(&record.config).map_err(failed)?.ok_or_else(|| missing(&record.config))?;
            let config = ImageConfig::read(&bytes, layers.len());
            let config = config.map_err(|source| ProvideError::Config { name: name.clone(), source })?;
            let now = clock::now();
            if now.duration_since(record.used_at).as_secs() >= USED_EVERY_SECONDS
                && let Err(error) = store.mark_used(&record.name, now)
            {
                // As on a full disk, where the image is as good as ever.
                tracing::warn!(error = with_causes(&error), "it is not remembered that an image is used");
            }
            Ok(Provided { id, config, layers, pulled_bytes, size_bytes: record.size_bytes })
        })
        .await?
    }

    /// Looks into the store when it is its turn.
    async fn look<T: Send + 'static>(&self, look: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
        // Nothing closes it.
        let _turn = self.looks.acquire().await;
        spawn_blocking(look).await
    }

    async fn settings(&self) -> Result<Settings, ProvideError> {
        let Some(path) = self.options.settings.clone() else { return Ok(Settings::default()) };
        Ok(spawn_blocking(move || Settings::read(&path)).await??)
    }

    /// This machine's own credentials, as they are now.
    async fn own_keyring(&self) -> Result<Keyring, ProvideError> {
        let Some(path) = self.options.docker_config.clone() else { return Ok(Keyring::default()) };
        spawn_blocking(move || match read_bounded(&path, credentials::CONFIG_BYTES_MAX) {
            Ok(text) => {
                Keyring::read_own(&text).map_err(|source| ProvideError::DockerConfig { path, source: Box::new(source) })
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Keyring::default()),
            Err(source) => Err(ProvideError::DockerConfig { path, source: Box::new(source) }),
        })
        .await?
    }
}

/// The whole name: `busybox` is `docker.io/library/busybox:latest`. With a digest, the tag says nothing.
pub fn parse(name: &str) -> Result<Reference, ProvideError> {
    let failed = |source| ProvideError::Name { name: name.chars().take(200).collect(), source };
    if name.len() > NAME_BYTES_MAX {
        return Err(failed(NameError::NameTooLong));
    }
    let reference: Reference = name.parse().map_err(failed)?;
    if reference.repository().bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Err(failed(NameError::NameContainsUppercase));
    }
    match reference.digest() {
        Some(digest) if digest.parse::<Digest>().is_err() => Err(failed(NameError::DigestUnsupported)),
        Some(digest) => Ok(reference.clone_with_digest(digest.to_owned())),
        None => Ok(reference),
    }
}

/// A registry to ask, with what opens it.
struct Way {
    endpoint: Endpoint,
    credentials: Vec<Credential>,
    /// A helper that had none.
    problem: Option<RegistryError>,
}

impl Way {
    /// Without a credential only where there is none.
    fn tries(&self) -> Vec<Option<Credential>> {
        let found: Vec<_> = self.credentials.iter().cloned().map(Some).collect();
        if found.is_empty() { vec![None] } else { found }
    }
}

async fn ways(settings: &Settings, reference: &Reference, ring: &Keyring) -> Vec<Way> {
    let mut ways = Vec::new();
    for endpoint in settings.endpoints(reference.registry()) {
        let mut credentials = ring.find(&endpoint.host, reference.repository());
        let mut problem = None;
        if credentials.is_empty()
            && let Some((helper, known_as)) = ring.helper(&endpoint.host)
        {
            match helper::credential(helper, &known_as).await {
                Ok(found) => credentials.extend(found),
                Err(error) => problem = Some(error),
            }
        }
        ways.push(Way { endpoint, credentials, problem });
    }
    ways
}

/// Whether the store's image is for everybody.
fn is_open(record: &ImageRecord) -> bool {
    record.loaded || record.grants.iter().any(|grant| grant.credential.is_none())
}

/// Whether the store's image is for whoever has these credentials.
fn is_granted(record: &ImageRecord, ways: &[Way]) -> bool {
    is_open(record)
        || ways.iter().any(|way| {
            let host = &way.endpoint.host;
            let marks: Vec<_> = way.credentials.iter().map(|credential| credential.mark(host)).collect();
            record.grants.iter().any(|grant| {
                grant.registry == *host && grant.credential.as_ref().is_some_and(|mark| marks.contains(mark))
            })
        })
}

/// Those who fail with other credentials have failures of their own.
fn failure_key(name: &str, ways: &[Way]) -> String {
    let marks =
        ways.iter().flat_map(|way| way.credentials.iter().map(|credential| credential.mark(&way.endpoint.host)));
    std::iter::once(name.to_owned()).chain(marks).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_whole_and_a_digest_counts_more_than_a_tag() {
        let digest = Digest::of(b"x");
        let cases = [
            ("busybox", "docker.io/library/busybox:latest".to_owned()),
            ("ada/x:1", "docker.io/ada/x:1".to_owned()),
            ("localhost:5000/x", "localhost:5000/x:latest".to_owned()),
            (&format!("h.example/x:1@{digest}"), format!("h.example/x@{digest}")),
        ];
        for (name, expected) in cases {
            assert_eq!(parse(name).unwrap().whole(), expected, "{name}");
        }
        for name in ["", "A/b", "a b", "a/../b", "h/x@sha512:00", "/etc", "x:", &"a".repeat(2000)] {
            assert_eq!(parse(name).unwrap_err().reason(), "InvalidImageName", "{name}");
        }
        assert_eq!(credentials::DOCKER_HUB, parse("x").unwrap().registry());
    }
}
