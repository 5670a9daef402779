//! Images that no pod uses go when the disk gets full, or when somebody asks.
//!
//! Invariant: what a pod of this node was made of stays as long as the pod's directory does.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pumice_clock as clock;
use pumice_units::with_causes;
use tokio::time::{MissedTickBehavior, interval};

use crate::layout::{node_dir, pods_dir};
use pumice_images::digest::Digest;
use pumice_images::store::{Extent, Pruned, Store, StoreError};
use pumice_shim::ephemeral;
use pumice_shim::spec::ShimSpec;

/// How often the disk is looked at, as a kubelet does.
const EVERY: Duration = Duration::from_secs(300);

/// Removes images until the disk is no fuller than it should be, again and again.
pub(crate) async fn prune_at_times(store: Arc<Store>, pods_dir: PathBuf) {
    let mut times = interval(EVERY);
    times.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        times.tick().await;
        let (store, pods_dir) = (Arc::clone(&store), pods_dir.clone());
        let pruned = tokio::task::spawn_blocking(move || prune(&store, &pods_dir, Extent::Marks)).await;
        match pruned {
            Ok(Ok(pruned)) if pruned == Pruned::default() => {}
            Ok(Ok(Pruned { images, blobs, layers, bytes, .. })) => {
                tracing::info!(?images, blobs, layers, bytes, "images were removed");
            }
            Ok(Err(error)) => tracing::warn!(error = with_causes(&error), "images were not removed"),
            Err(error) => tracing::error!(%error, "images were not removed"),
        }
    }
}

/// Removes what no image has, and of images those that `extent` says, but for what the pods of this data directory use.
pub fn prune_images(store: &Store, data_dir: &Path, extent: Extent) -> Result<Pruned, StoreError> {
    prune(store, &pods_dir(&node_dir(data_dir)), extent)
}

fn prune(store: &Store, pods_dir: &Path, extent: Extent) -> Result<Pruned, StoreError> {
    let used = used_layers(pods_dir).map_err(|source| StoreError::Io {
        action: "reading",
        path: pods_dir.to_owned(),
        source,
    })?;
    let mut in_use: BTreeSet<Digest> = used.iter().flatten().cloned().collect();
    // An image is in use with the layers that it has, whatever else has some of them.
    for image in store.images()? {
        let layers: Vec<_> = image.layers.iter().map(|layer| layer.diff_id.clone()).collect();
        if used.contains(&layers) {
            in_use.extend([image.manifest, image.config]);
        }
    }
    store.prune(extent, &|digest| in_use.contains(digest), clock::now())
}

/// The layers of each container that runs an image, and of each volume that is one.
fn used_layers(pods_dir: &Path) -> io::Result<BTreeSet<Vec<Digest>>> {
    let entries = match fs::read_dir(pods_dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        entries => entries?,
    };
    let mut used = BTreeSet::new();
    for entry in entries {
        // A directory without a spec is of a pod that has not started, or is on its way out.
        let dir = entry?.path();
        let Ok(spec) = ShimSpec::read(&dir) else { continue };
        let added = ephemeral::names(&dir).into_iter().filter_map(|name| ephemeral::read(&dir, &name).ok());
        let added: Vec<_> = added.map(|added| added.container).collect();
        let containers = spec.init_containers.iter().chain(&spec.containers).chain(&added);
        let run = containers.filter_map(|container| container.image_layers.as_ref());
        for layers in run.chain(spec.image_volumes.iter().map(|volume| &volume.layers)) {
            used.insert(layers.iter().filter_map(|layer| digest_of(layer)).collect());
        }
    }
    Ok(used)
}

/// The store names a layer's folder by its digest.
fn digest_of(layer: &Path) -> Option<Digest> {
    format!("sha256:{}", layer.file_name()?.to_str()?).parse().ok()
}
