//! The images that this node has, on its Node: the scheduler prefers nodes that have what a pod needs.
//!
//! Invariant: the Node is written when the list has changed and not otherwise, since each write goes to all who watch nodes. The
//! largest images are named, as many as a kubelet names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerImage, Node};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use pumice_images::digest::Digest;
use pumice_images::provide::parse;
use pumice_images::store::{ImageRecord, Store};
use pumice_units::with_causes;
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};

/// How often the store is looked at, as a kubelet looks at its node.
const EVERY: Duration = Duration::from_secs(10);
/// Images and names of one that are told at most, as with a kubelet.
const IMAGES_MAX: usize = 50;
const NAMES_MAX: usize = 5;
/// What people leave out of names of Docker Hub's images, the longest first.
const DOCKER_HUB: [&str; 2] = ["docker.io/library/", "docker.io/"];

/// Writes the list again and again, where it has changed.
pub(crate) async fn report_at_times(client: Client, node_name: String, store: Arc<Store>) {
    let nodes: Api<Node> = Api::all(client);
    let mut times = interval(EVERY);
    times.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut written = None;
    loop {
        times.tick().await;
        let store = Arc::clone(&store);
        let images = match tokio::task::spawn_blocking(move || store.images()).await {
            Ok(Ok(records)) => listed(records),
            Ok(Err(error)) => {
                tracing::warn!(error = with_causes(&error), "the Node does not tell of this node's images");
                continue;
            }
            Err(error) => {
                tracing::error!(%error, "the Node does not tell of this node's images");
                continue;
            }
        };
        if written.as_ref() == Some(&images) {
            continue;
        }
        let patch = json!({"status": {"images": images}});
        match nodes.patch_status(&node_name, &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(_) => written = Some(images),
            // It may not be registered yet.
            Err(error) => tracing::debug!(error = %error, "images are not on the Node, will try again"),
        }
    }
}

/// Each image once with all of its names, the largest first.
fn listed(records: Vec<ImageRecord>) -> Vec<ContainerImage> {
    let mut by_content: BTreeMap<Digest, (u64, BTreeSet<String>)> = BTreeMap::new();
    for record in records {
        let (size_bytes, names) = by_content.entry(record.manifest.clone()).or_default();
        *size_bytes = record.size_bytes.max(*size_bytes);
        names.extend(names_of(&record));
    }
    let mut images: Vec<_> = by_content.into_values().collect();
    images.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let image = |(size_bytes, names): (u64, BTreeSet<String>)| ContainerImage {
        names: Some(names.into_iter().take(NAMES_MAX).collect()),
        size_bytes: Some(i64::try_from(size_bytes).unwrap_or(i64::MAX)),
    };
    images.into_iter().take(IMAGES_MAX).map(image).collect()
}

/// With its digest, with its tag, and as people name it: pods are compared by the names that they use.
fn names_of(record: &ImageRecord) -> Vec<String> {
    let mut names = vec![record.name.clone()];
    names.extend(DOCKER_HUB.iter().find_map(|hub| record.name.strip_prefix(hub)).map(str::to_owned));
    if !record.loaded
        && let Ok(reference) = parse(&record.name)
    {
        names.push(format!("{}/{}@{}", reference.registry(), reference.repository(), record.target));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    fn record(name: &str, digit: usize, size_bytes: u64, loaded: bool) -> ImageRecord {
        let digest = digest(digit);
        ImageRecord {
            name: name.to_owned(),
            target: digest.clone(),
            manifest: digest.clone(),
            config: digest,
            layers: Vec::new(),
            size_bytes,
            loaded,
            pulled_at: Timestamp::UNIX_EPOCH,
            used_at: Timestamp::UNIX_EPOCH,
            grants: Vec::new(),
        }
    }

    fn digest(number: usize) -> Digest {
        format!("sha256:{number:064}").parse().unwrap()
    }

    #[test]
    fn an_image_has_its_names_and_the_largest_come_first() {
        let records = vec![
            record("docker.io/library/busybox:1.36", 1, 5, false),
            record("docker.io/team/app:1", 2, 9, false),
            record("example.com/app:new", 2, 9, false),
            record("example.com/file:1", 3, 7, true),
        ];
        let found: Vec<_> =
            listed(records).into_iter().map(|image| (image.size_bytes.unwrap(), image.names.unwrap())).collect();
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let of = |repository: &str, number| format!("{repository}@{}", digest(number));
        assert_eq!(found.iter().map(|(size, _)| *size).collect::<Vec<_>>(), [9, 7, 5]);
        let app = of("docker.io/team/app", 2);
        assert_eq!(
            found[0].1,
            names(&["docker.io/team/app:1", &app, "example.com/app:new", &of("example.com/app", 2), "team/app:1"])
        );
        assert_eq!(found[1].1, names(&["example.com/file:1"]), "no registry has it");
        let busybox = of("docker.io/library/busybox", 1);
        assert_eq!(found[2].1, names(&["busybox:1.36", "docker.io/library/busybox:1.36", &busybox]));
    }

    #[test]
    fn as_many_as_with_a_kubelet_are_told() {
        let records = (0..80).map(|number| record(&format!("a.b/c:{number}"), number, number as u64, false)).collect();
        let found = listed(records);
        assert_eq!((found.len(), found[0].size_bytes), (IMAGES_MAX, Some(79)));
    }
}
