//! Who gave what the store has.
//!
//! Invariant: what is remembered here stays right whatever becomes of the store, as it is of content by its digest: who gave
//! it, and what it is when unpacked. Images' records say the same for pulls that ended well; for the others the store has files
//! of who gave what, and this process remembers what it compared.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::digest::Digest;
use crate::store::{Origin, Store};

use super::{PullError, blocking};

/// Blobs and layers of which it is remembered; then all but those of images is forgotten.
const ENTRIES_MAX: usize = 100_000;

#[derive(Debug, Default)]
pub(crate) struct Origins {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Who gave each blob.
    blobs: BTreeMap<Digest, BTreeSet<Origin>>,
    /// Blobs, and what they were found to be when unpacked.
    compared: BTreeSet<(Digest, Digest)>,
}

impl Origins {
    /// Takes in what the records of images say.
    pub(super) async fn refresh(&self, store: &Arc<Store>) -> Result<(), PullError> {
        let records = Arc::clone(store);
        let records = blocking(move || records.images()).await?;
        let mut known = self.known();
        if known.blobs.len() + known.compared.len() > ENTRIES_MAX {
            *known = Known::default();
        }
        for layer in records.into_iter().flat_map(|record| record.layers) {
            known.blobs.entry(layer.blob.clone()).or_default().extend(layer.origins);
            known.compared.insert((layer.blob, layer.diff_id));
        }
        Ok(())
    }

    pub(super) async fn of(&self, store: &Arc<Store>, blob: &Digest) -> Result<BTreeSet<Origin>, PullError> {
        let (files, owned) = (Arc::clone(store), blob.clone());
        let mut origins = blocking(move || files.origins(&owned)).await?;
        origins.extend(self.known().blobs.get(blob).into_iter().flatten().cloned());
        Ok(origins)
    }

    pub(super) fn is_compared(&self, blob: &Digest, diff_id: &Digest) -> bool {
        self.known().compared.contains(&(blob.clone(), diff_id.clone()))
    }

    /// Somebody gave all of a blob.
    pub(super) async fn add(&self, store: &Arc<Store>, blob: &Digest, origin: Origin) -> Result<(), PullError> {
        let (files, owned) = (Arc::clone(store), blob.clone());
        blocking(move || files.add_origin(&owned, &origin)).await
    }

    /// A blob was unpacked.
    pub(super) fn add_compared(&self, blob: &Digest, diff_id: &Digest) {
        self.known().compared.insert((blob.clone(), diff_id.clone()));
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
