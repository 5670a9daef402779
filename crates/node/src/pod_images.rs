//! The images of a pod's containers: which must be had, and with whose credentials.
//!
//! Invariant: what a container runs follows from one rule. `pumice.sh/host`, or no image, is a program of this machine. An entry of
//! the image map that fits comes next. Everything else is the image itself, or the pod says why it can't be had.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Container, ImageVolumeSource, Pod, Secret};
use kube::Client;
use pumice_api::names::HOST_IMAGE;
use pumice_clock as clock;
use pumice_cluster::EventRecorder;

use crate::images::{ImageContent, ImageEntry, ImageMap, ImageMapError};
use crate::pod_events::{self, ImageEvent};
use crate::pod_spec::sources::fetch_all;
use crate::probes;
use pumice_images::provide::{Images, ProvideError, PullPolicy, Wanted, parse};
use pumice_images::registry::credentials::Keyring;
use pumice_images::registry::pull::Progress;

/// The image id of containers that run programs of this machine.
const HOST_ID: &str = "host-program";
/// The image id of containers that run what the image map says.
const MAP_ID: &str = "image-map";

/// The images that a pod's containers run.
#[derive(Debug, Default)]
pub(crate) struct PodImages {
    /// By their names in the pod, of those that are neither this machine's programs nor in the map.
    pub entries: BTreeMap<String, ImageEntry>,
    /// What each container runs, by the container's name.
    pub ids: BTreeMap<String, String>,
    /// The unpacked layers of volumes that are images, by the volume's name.
    pub volumes: BTreeMap<String, Vec<PathBuf>>,
}

/// Why the images of a pod can't be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImagesError {
    #[error(transparent)]
    Map(#[from] ImageMapError),
    #[error("can't get the credentials for the pod's images")]
    Fetch(#[source] Box<kube::Error>),
    #[error(transparent)]
    Provide(#[from] ProvideError),
    #[error("{HOST_IMAGE} stands for the programs of this machine and is no image; name another one")]
    HostPrograms,
    #[error("volume {volume:?} can't have its image")]
    Volume {
        volume: String,
        #[source]
        source: Box<ImagesError>,
    },
}

impl ImagesError {
    /// The reason that a waiting container shows.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            ImagesError::Map(_) => "CreateContainerConfigError",
            ImagesError::Fetch(_) => "ContainerCreating",
            ImagesError::Provide(error) => error.reason(),
            ImagesError::HostPrograms => "InvalidImageName",
            ImagesError::Volume { source, .. } => source.reason(),
        }
    }

    /// Whether an Event told of it when it happened.
    pub(crate) fn has_event(&self) -> bool {
        match self {
            ImagesError::Provide(_) => true,
            ImagesError::Volume { source, .. } => source.has_event(),
            ImagesError::Map(_) | ImagesError::Fetch(_) | ImagesError::HostPrograms => false,
        }
    }
}

/// Whether a pod has a container whose image is not this machine's programs by its name, or a volume that is an image.
pub(crate) fn names_images(pod: &Pod) -> bool {
    probes::containers(pod).any(|container| container.image.as_deref().is_some_and(is_image))
        || image_volumes(pod).next().is_some()
}

/// The volumes of a pod that are images, by their names.
fn image_volumes(pod: &Pod) -> impl Iterator<Item = (&str, &ImageVolumeSource)> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| Some((volume.name.as_str(), volume.image.as_ref()?)))
}

fn is_image(name: &str) -> bool {
    !name.is_empty() && name != HOST_IMAGE
}

/// The image id of a container that runs programs of this machine by its image's name.
pub(crate) fn id_by_name(container: &Container) -> Option<&'static str> {
    let name = container.image.as_deref().unwrap_or_default();
    if is_image(name) { None } else { Some(HOST_ID) }
}

/// How far the images of a pod are, for those who wait for them.
#[derive(Debug, Default)]
pub(crate) struct Pulling {
    now: std::sync::Mutex<Option<(String, Arc<Progress>)>>,
}

impl Pulling {
    fn begin(&self, image: &str) -> Arc<Progress> {
        let progress = Arc::new(Progress::default());
        let mut now = self.now.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *now = Some((image.to_owned(), Arc::clone(&progress)));
        progress
    }

    /// A sentence about what is being pulled.
    pub(crate) fn message(&self) -> Option<String> {
        let now = self.now.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (image, progress) = now.as_ref()?;
        let (done, total) = progress.bytes();
        Some(if total == 0 {
            format!("pulling image {image:?}")
        } else {
            format!("pulling image {image:?}: {} of {} MB", megabytes(done), megabytes(total))
        })
    }
}

/// In millions, with one digit after the point.
fn megabytes(bytes: u64) -> String {
    format!("{}.{}", bytes / 1_000_000, bytes / 100_000 % 10)
}

/// What the images of pods are got with.
pub(crate) struct Provider<'a> {
    pub client: &'a Client,
    pub images: &'a Images,
    pub map: Option<&'a Path>,
    pub events: &'a EventRecorder,
    /// The pod that Events are about, whose container or volume it is.
    pub about: &'a Pod,
}

impl Provider<'_> {
    /// Gets all images of `pod`.
    pub(crate) async fn provide(&self, pod: &Pod, pulling: &Pulling) -> Result<PodImages, ImagesError> {
        let map = self.map.map(ImageMap::read).transpose()?.unwrap_or_default();
        let mut source = Source { provider: self, pod, pulling, keyring: None, entries: BTreeMap::new() };
        let mut found = PodImages::default();
        for (volume, image) in image_volumes(pod) {
            let name = image.reference.as_deref().unwrap_or_default();
            let needed = Needed { name, policy: image.pull_policy.as_deref(), container: None };
            let failed = |error| ImagesError::Volume { volume: volume.to_owned(), source: Box::new(error) };
            found.volumes.insert(volume.to_owned(), source.volume(needed).await.map_err(failed)?.layers);
        }
        for container in probes::containers(pod) {
            let name = container.image.as_deref().unwrap_or_default();
            let policy = container.image_pull_policy.as_deref();
            let id = match id_by_name(container) {
                Some(id) => id.to_owned(),
                None if map.get(name).is_some() => MAP_ID.to_owned(),
                None => source.get(Needed { name, policy, container: Some(&container.name) }).await?.id,
            };
            found.ids.insert(container.name.clone(), id);
        }
        found.entries = source.entries;
        Ok(found)
    }
}

/// An image that a pod names.
#[derive(Clone, Copy)]
struct Needed<'a> {
    name: &'a str,
    policy: Option<&'a str>,
    /// None where it is a volume.
    container: Option<&'a str>,
}

/// Where the images of a pod come from.
struct Source<'a> {
    provider: &'a Provider<'a>,
    pod: &'a Pod,
    pulling: &'a Pulling,
    /// The pod's credentials, once an image was not to be had without.
    keyring: Option<Keyring>,
    /// What was found so far, by the names in the pod.
    entries: BTreeMap<String, ImageEntry>,
}

impl Source<'_> {
    /// What a volume shows. The map says what runs, so it has no say in this.
    async fn volume(&mut self, needed: Needed<'_>) -> Result<ImageContent, ImagesError> {
        if needed.name == HOST_IMAGE {
            return Err(ImagesError::HostPrograms);
        }
        self.get(needed).await
    }

    /// An image by its name, asked for again where the policy is to do so each time.
    async fn get(&mut self, needed: Needed<'_>) -> Result<ImageContent, ImagesError> {
        let found = self.find(needed).await;
        if let Err(ImagesError::Provide(error)) = &found {
            self.record(needed, &ImageEvent::Failed { image: needed.name, error });
        }
        let entry = found?;
        let content = entry.content.clone().unwrap_or_default();
        self.entries.insert(needed.name.to_owned(), entry);
        Ok(content)
    }

    async fn find(&mut self, needed: Needed<'_>) -> Result<ImageEntry, ImagesError> {
        let policy = policy(needed.policy, needed.name)?;
        if policy != PullPolicy::Always {
            if let Some(known) = self.entries.get(needed.name) {
                return Ok(known.clone());
            }
            if let Some(open) = self.provider.images.find_open(needed.name).await? {
                return Ok(open.into());
            }
        }
        let keyring = match &self.keyring {
            Some(keyring) => keyring.clone(),
            None => self.keyring.insert(credentials(self.provider.client, self.pod).await?).clone(),
        };
        self.pull(needed, Wanted { name: needed.name.to_owned(), policy, keyring }).await
    }

    /// From a registry, where one has to be asked; Events tell of it then.
    async fn pull(&self, needed: Needed<'_>, wanted: Wanted) -> Result<ImageEntry, ImagesError> {
        let image = needed.name;
        let (progress, asked_at) = (self.pulling.begin(image), clock::monotonic());
        let mut pull = pin!(self.provider.images.provide(&wanted, &progress));
        let mut started_at = None;
        let provided = loop {
            tokio::select! {
                biased;
                () = progress.started(), if started_at.is_none() => {
                    started_at = Some(clock::monotonic());
                    self.record(needed, &ImageEvent::Pulling { image });
                }
                provided = &mut pull => break provided?,
            }
        };
        if provided.pulled_bytes.is_some() {
            let now = clock::monotonic();
            let took = now.saturating_duration_since(started_at.unwrap_or(asked_at));
            let waited = now.saturating_duration_since(asked_at);
            self.record(needed, &ImageEvent::Pulled { image, took, waited, size_bytes: provided.size_bytes });
        }
        Ok(provided.into())
    }

    fn record(&self, needed: Needed<'_>, event: &ImageEvent<'_>) {
        self.provider.events.record(event.occurrence(pod_events::about(self.provider.about, needed.container)));
    }
}

/// As the API server sets it where a container says nothing.
fn policy(named: Option<&str>, image: &str) -> Result<PullPolicy, ProvideError> {
    Ok(match named {
        Some("Always") => PullPolicy::Always,
        Some("Never") => PullPolicy::Never,
        Some("IfNotPresent") => PullPolicy::IfNotPresent,
        _ if parse(image)?.tag() == Some("latest") => PullPolicy::Always,
        _ => PullPolicy::IfNotPresent,
    })
}

/// The credentials of the pod's secrets, those of its account among them. One that is missing or can't be read opens nothing.
async fn credentials(client: &Client, pod: &Pod) -> Result<Keyring, ImagesError> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let named = pod.spec.iter().flat_map(|spec| spec.image_pull_secrets.iter().flatten());
    let named = named.map(|reference| reference.name.clone()).filter(|name| !name.is_empty()).collect();
    let secrets = fetch_all::<Secret>(client, namespace, named).await;
    let mut keyring = Keyring::default();
    for (name, secret) in secrets.map_err(|error| ImagesError::Fetch(Box::new(error)))? {
        let Some(secret) = secret else {
            tracing::warn!(namespace, secret = name, "a pod's secret for its images does not exist");
            continue;
        };
        match read_secret(&secret) {
            Ok(found) => keyring.add(found),
            Err(problem) => tracing::warn!(namespace, secret = name, problem, "a pod's secret opens no registry"),
        }
    }
    Ok(keyring)
}

fn read_secret(secret: &Secret) -> Result<Keyring, String> {
    let data = |key: &str| secret.data.as_ref().and_then(|data| data.get(key));
    let read = match (data(".dockerconfigjson"), data(".dockercfg")) {
        (Some(ByteString(text)), _) => Keyring::read(text),
        (None, Some(ByteString(text))) => Keyring::read_old(text),
        (None, None) => return Err("it has neither .dockerconfigjson nor .dockercfg".to_owned()),
    };
    read.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_is_asked_for_where_the_name_says_latest() {
        let cases = [
            (None, "busybox", PullPolicy::Always),
            (None, "busybox:latest", PullPolicy::Always),
            (None, "busybox:1", PullPolicy::IfNotPresent),
            (Some("Never"), "busybox", PullPolicy::Never),
            (Some("IfNotPresent"), "busybox", PullPolicy::IfNotPresent),
            (Some("Always"), "busybox:1", PullPolicy::Always),
        ];
        for (named, image, expected) in cases {
            assert_eq!(policy(named, image).unwrap(), expected, "{named:?} {image}");
        }
        let digest = format!("busybox@sha256:{}", "0".repeat(64));
        assert_eq!(policy(None, &digest).unwrap(), PullPolicy::IfNotPresent);
    }

    #[test]
    fn progress_is_a_sentence() {
        let pulling = Pulling::default();
        assert_eq!(pulling.message(), None);
        pulling.begin("a:1");
        assert_eq!(pulling.message().unwrap(), "pulling image \"a:1\"");
        assert_eq!(megabytes(12_345_678), "12.3");
    }
}
