//! Images of this machine into registries.
//!
//! Invariant: whose an image is does not matter here: whoever has the data directory has its content in any case.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::task::spawn_blocking;

use super::{Images, ProvideError, Way, parse, ways};
use crate::Reference;
use crate::digest::Digest;
use crate::registry::RegistryError;
use crate::registry::credentials::Credential;
use crate::registry::push::{self, Push, PushError, PushProgress};
use crate::registry::session::{Right, Session};
use crate::store::{ImageRecord, StoreError};

/// Other repositories of the registry from which it may take blobs; each costs a token.
const OTHERS_MAX: usize = 8;

/// Why an image did not get to a registry.
#[derive(Debug, thiserror::Error)]
pub enum PushFailure {
    /// What is needed before the first question can't be had.
    #[error(transparent)]
    Before(#[from] ProvideError),
    #[error("the image {name} is not on this machine; see pumice image ls")]
    Unknown { name: String },
    #[error("can't read the images of this machine")]
    Store(#[from] StoreError),
    /// The registry would have another image by this digest.
    #[error("{destination} names another digest than that of {name}, which is {digest}; name a tag to push it to")]
    OtherDigest { destination: String, name: String, digest: Digest },
    /// The index is not here.
    #[error(
        "{destination} names images for several machines, of which only the one for this machine is here ({digest}); name a tag to \
         push it to"
    )]
    Index { destination: String, digest: Digest },
    #[error("can't push the image {name} to {destination}")]
    Push {
        name: String,
        destination: String,
        #[source]
        source: Box<PushError>,
    },
    #[error("the images of this machine were not read")]
    Task(#[from] tokio::task::JoinError),
}

/// An image that a registry has now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    /// Registry, repository and digest.
    pub id: String,
    /// What the image's name stands for where it came from, if that is an index, which is not pushed.
    pub index: Option<Digest>,
}

impl Images {
    /// Brings an image of the store to a registry, by its own name or another one.
    pub async fn push(
        &self,
        name: &str,
        destination: Option<&str>,
        progress: &PushProgress,
    ) -> Result<Pushed, PushFailure> {
        let name = parse(name)?.whole();
        let to = parse(destination.unwrap_or(&name))?;
        let store = Arc::clone(&self.store);
        let images = spawn_blocking(move || store.images()).await??;
        let image = images.iter().find(|image| image.name == name);
        let image = image.ok_or_else(|| PushFailure::Unknown { name: name.clone() })?;
        let version = version(&to, image)?;
        let ring = self.own_keyring().await?;
        let settings = self.settings().await?;
        // Mirrors take nothing, and come before it.
        let way = ways(&settings, &to, &ring).await.pop();
        let failed =
            |source| PushFailure::Push { name: name.clone(), destination: to.whole(), source: Box::new(source) };
        let missing = || RegistryError::NotFound { host: to.registry().to_owned(), what: to.whole() };
        let way = way.ok_or_else(|| failed(missing().into()))?;
        self.push_by(&way, &to, &images, image, &version, progress).await.map_err(failed)?;
        let id = format!("{}/{}@{}", to.registry(), to.repository(), image.manifest);
        Ok(Pushed { id, index: Some(image.target.clone()).filter(|target| *target != image.manifest) })
    }

    async fn push_by(
        &self,
        way: &Way,
        to: &Reference,
        images: &[ImageRecord],
        image: &ImageRecord,
        version: &str,
        progress: &PushProgress,
    ) -> Result<(), PushError> {
        let sources = sources(to, images, image);
        let mut last = None;
        for credential in way.tries() {
            let session = |right| self.session(way, to, credential.clone(), right);
            let mut others = BTreeMap::new();
            for from in sources.values() {
                if others.len() < OTHERS_MAX && !others.contains_key(from) {
                    others.insert(from.clone(), session(Right::Push { from: Some(from.clone()) }));
                }
            }
            let session = session(Right::Push { from: None });
            let store = &self.store;
            let push = Push { session: &session, store, image, others: &others, sources: &sources, progress };
            match push::push(push, version).await {
                Err(error) if error.is_of_rights() => last = Some(error),
                done => return done,
            }
        }
        // It may be for want of what the helper did not give.
        let unknown = || RegistryError::NotFound { host: to.registry().to_owned(), what: to.whole() };
        match &way.problem {
            Some(RegistryError::Helper { helper, host, problem }) => {
                let (helper, host, problem) = (helper.clone(), host.clone(), problem.clone());
                Err(RegistryError::Helper { helper, host, problem }.into())
            }
            _ => Err(last.unwrap_or_else(|| unknown().into())),
        }
    }

    fn session(&self, way: &Way, to: &Reference, credential: Option<Credential>, right: Right) -> Session {
        let (transport, endpoint) = (Arc::clone(&self.transport), way.endpoint.clone());
        let repository = to.repository().to_owned();
        Session::new(transport, endpoint, repository, credential, self.options.patience.clone()).with_right(right)
    }
}

/// The tag or digest by which the registry is to have the image.
fn version(to: &Reference, image: &ImageRecord) -> Result<String, PushFailure> {
    let Some(digest) = to.digest() else { return Ok(to.tag().unwrap_or("latest").to_owned()) };
    if digest == image.manifest.to_string() {
        return Ok(digest.to_owned());
    }
    let (destination, name, found) = (to.whole(), image.name.clone(), image.manifest.clone());
    if digest == image.target.to_string() {
        return Err(PushFailure::Index { destination, digest: found });
    }
    Err(PushFailure::OtherDigest { destination, name, digest: found })
}

/// Which other repositories of the same registry have blobs of an image, as far as this machine's images say.
fn sources(to: &Reference, images: &[ImageRecord], image: &ImageRecord) -> BTreeMap<Digest, String> {
    let mut sources = BTreeMap::new();
    for other in images.iter().filter(|other| !other.loaded) {
        let Ok(name) = parse(&other.name) else { continue };
        if name.registry() != to.registry() || name.repository() == to.repository() {
            continue;
        }
        let blobs = other.layers.iter().map(|layer| &layer.blob).chain([&other.config]);
        for blob in blobs {
            if *blob == image.config || image.layers.iter().any(|layer| layer.blob == *blob) {
                sources.entry(blob.clone()).or_insert_with(|| name.repository().to_owned());
            }
        }
    }
    sources
}
