//! Removes folders of claims that nobody needs any more.
//!
//! Invariant: a folder that can't be removed keeps its volume.

use std::path::PathBuf;
use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::Api;
use kube::api::{DeleteParams, Preconditions};
use pumice_cluster::{Change, Failure, WatchScope, failure, watch_optional};

use super::leftovers::{Folders, Owner};
use super::start::NodeContext;
use crate::layout::claims_dir;
use crate::pod_spec::claims::ended;

/// Removes what has ended. Never ends by itself.
pub(crate) async fn reclaim(context: Arc<NodeContext>) {
    let volumes: Api<PersistentVolume> = Api::all(context.client.clone());
    // The API server labels folders; others are not this node's to see. Without a value one is a folder of each node.
    let own = WatchScope::labels(format!("pumice.sh/node in ({},)", context.node_name));
    let mut changes = watch_optional(volumes.clone(), own).boxed();
    while let Some(change) = changes.next().await {
        let (all, is_gone) = match change {
            Change::Replace(all) => (all, false),
            Change::Applied(volume) => (vec![volume], false),
            Change::Deleted(volume) => (vec![volume], true),
        };
        for volume in all {
            let Some(folder) = ended(&volume, &context.node_name) else { continue };
            if !remove(&context, folder).await {
                continue;
            }
            if !is_gone {
                delete(&volumes, &volume).await;
            }
        }
    }
}

/// Removes the folder of a claim; whether it is gone from where it was. One that stays keeps its volume, for another claim of
/// that name must not find what is in it.
async fn remove(context: &NodeContext, folder: PathBuf) -> bool {
    let mut names = folder.iter().map(|name| name.to_string_lossy());
    let owner = Owner::claim(&names.next().unwrap_or_default(), &names.next().unwrap_or_default());
    let (data_dir, path) = (context.data_dir.clone(), claims_dir(&context.data_dir).join(folder));
    let ids = context.ids.clone();
    let removed = tokio::task::spawn_blocking(move || {
        // A program may have given the folder to a user of its pod's.
        if let Some(Err(error)) = ids.map(|ids| ids.take(&path)) {
            tracing::warn!(path = %path.display(), %error, "a claim's folder stays another user's");
        }
        let leftover = Folders::of(&data_dir).remove(&path, || owner);
        (leftover, !path.exists())
    });
    match removed.await {
        Ok((leftover, is_gone)) => {
            context.on_leftover(&leftover);
            is_gone
        }
        Err(error) => {
            tracing::error!(%error, "the removal of a claim's folder failed");
            false
        }
    }
}

async fn delete(volumes: &Api<PersistentVolume>, volume: &PersistentVolume) {
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let preconditions = Some(Preconditions { uid: volume.metadata.uid.clone(), resource_version: None });
    let params = DeleteParams { preconditions, ..DeleteParams::default() };
    match volumes.delete(name, &params).await {
        Ok(_) => {}
        Err(error) if matches!(failure(&error), Failure::NotFound | Failure::Conflict) => {}
        Err(error) => tracing::warn!(volume = name, %error, "a volume without its folder stays for now"),
    }
}
