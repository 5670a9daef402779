//! A job whose bundle is in ConfigMaps: these are there before the job is, become the job's, and go where there is none.
//!
//! Invariant: what can be wrong with the content is known before anything is sent. When no new job came of it, nothing of
//! the bundle stays either; only a process that is killed in the middle leaves one, which has no owner. Called by `jobctl`.

use std::sync::Arc;

use crate::Error;
use crate::bundle::config_maps::BUNDLE_BYTES_MAX;
use crate::bundle::{ConfigMaps, LocationError, Memory, Store, StoreAddress, StoreError, random_name};
use crate::manifest::Object;
use crate::platform::connection::Connection;
use crate::submit::{self, Effect, Submitted};

/// A bundle that becomes ConfigMaps when its job is submitted.
#[derive(Debug, Clone)]
pub struct Prepared {
    name: String,
    content: Arc<Memory>,
}

impl Prepared {
    /// An empty one with a name that no other has.
    pub fn new() -> Result<Self, StoreError> {
        let content = Arc::new(Memory::bounded(BUNDLE_BYTES_MAX));
        Ok(Prepared { name: format!("bundle-{}", random_name()?), content })
    }

    /// Where to pack it: memory, at most [`BUNDLE_BYTES_MAX`].
    pub fn store(&self) -> Arc<dyn Store> {
        Arc::<Memory>::clone(&self.content)
    }

    /// Where pods will find it.
    pub fn address(&self, namespace: &str) -> Result<StoreAddress, LocationError> {
        StoreAddress::objects(namespace, &self.name)
    }

    async fn make(&self, connection: &Connection) -> Result<ConfigMaps, StoreError> {
        let objects = ConfigMaps::make(connection, &self.name).await?;
        let filled = async {
            // First what may be refused at once.
            objects.grant().await?;
            objects.fill(&self.content).await
        };
        match filled.await {
            Ok(()) => Ok(objects),
            Err(error) => {
                forget(&objects).await;
                Err(error)
            }
        }
    }
}

/// Submits a job with its bundle and what else it brings along; see [`submit::submit_with_belongings`].
pub async fn submit(
    connection: &Connection,
    job: &Object,
    belongings: &[Object],
    bundle: &Prepared,
    mut done: impl FnMut(&Submitted),
) -> Result<Submitted, Error> {
    let objects = bundle.make(connection).await?;
    let outcome = async {
        let submitted = submit::submit_with_belongings(connection, job, belongings, |_| {}).await?;
        if submitted.effect == Effect::Created
            && let Err(error) = objects.adopt(&submitted.object).await
        {
            submit::take_back(connection, &submitted).await;
            return Err(Error::from(error));
        }
        Ok(submitted)
    };
    let outcome = outcome.await;
    match &outcome {
        Ok(submitted) if submitted.effect == Effect::Created => {}
        // A job that was there before has a bundle of its own.
        _ => forget(&objects).await,
    }
    outcome.inspect(|submitted| done(submitted))
}

/// What led to this is what to tell of.
async fn forget(objects: &ConfigMaps) {
    let _ = objects.discard().await;
}
