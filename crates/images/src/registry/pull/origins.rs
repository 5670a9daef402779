//! Who gave what the store has.
//!
//! Invariant: what is remembered here stays right whatever becomes of the store, as it is of content by its digest: who gave
//! it, and what it is when unpacked. Images' records say the same for pulls that ended well; this is for the others, too, as
//! long as the process lasts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

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

    pub(super) fn of(&self, blob: &Digest) -> BTreeSet<Origin> {
        self.known().blobs.get(blob).cloned().unwrap_or_default()
    }

    pub(super) fn is_compared(&self, blob: &Digest, diff_id: &Digest) -> bool {
        self.known().compared.contains(&(blob.clone(), diff_id.clone()))
    }

    /// Somebody gave all of a blob.
    pub(super) fn add(&self, blob: &Digest, origin: Origin) {
        self.known().blobs.entry(blob.clone()).or_default().insert(origin);
    }

    /// A blob was unpacked.
    pub(super) fn add_compared(&self, blob: &Digest, diff_id: &Digest) {
        self.known().compared.insert((blob.clone(), diff_id.clone()));
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Layers that this process unpacks, by what they are unpacked.
static UNPACKED_NOW: Mutex<BTreeSet<Digest>> = Mutex::new(BTreeSet::new());
static UNPACKED: Condvar = Condvar::new();

/// One at a time for each layer: whoever waits for another's unpacking must not take what comes of it for his own.
pub(super) struct Unpacking(Digest);

impl Unpacking {
    pub(super) fn begin(diff_id: &Digest) -> Unpacking {
        let now = UNPACKED_NOW.lock().unwrap_or_else(PoisonError::into_inner);
        let now = UNPACKED.wait_while(now, |now| now.contains(diff_id));
        now.unwrap_or_else(PoisonError::into_inner).insert(diff_id.clone());
        Unpacking(diff_id.clone())
    }
}

impl Drop for Unpacking {
    fn drop(&mut self) {
        UNPACKED_NOW.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
        UNPACKED.notify_all();
    }
}
