//! Images that a job's pods wait for in vain.
//!
//! Invariant: what may still come by itself in a moment is waited for: a registry that is busy, or starts again.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStateWaiting, Pod};
use tokio::time::{Instant, sleep};

use crate::job::JobRef;
use crate::lookup::pods;
use crate::platform::connection::Connection;

/// How often the pods are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How long a pull may fail: it is tried again after 10 s.
const FAILS_FOR: Duration = Duration::from_secs(14);
/// What waiting containers say that time does not change.
const FINAL: [&str; 2] = ["InvalidImageName", "ErrImageNeverPull"];
/// What they say while a pull fails.
const FAILING: [&str; 2] = ["ErrImagePull", "ImagePullBackOff"];

/// A pod that has no image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoImage {
    pub pod: String,
    /// As the node says it.
    pub reason: String,
    pub message: String,
}

/// Returns once a pod of the job has been without an image for so long that nobody should wait for it. Cancel safe.
pub async fn without_image(connection: &Connection, job: &JobRef) -> NoImage {
    let mut since = None;
    loop {
        sleep(LOOK_EVERY).await;
        // A failed question is no news: the job's own watch tells of outages.
        let Ok(pods) = pods::pods(connection, job).await else { continue };
        let Some(found) = pods.iter().find_map(no_image) else {
            since = None;
            continue;
        };
        let first = *since.get_or_insert_with(Instant::now);
        if FINAL.contains(&found.reason.as_str()) || first.elapsed() >= FAILS_FOR {
            return found;
        }
    }
}

fn no_image(pod: &Pod) -> Option<NoImage> {
    let status = pod.status.as_ref()?;
    let lists = [&status.init_container_statuses, &status.container_statuses];
    let states = lists.into_iter().flatten().flatten().filter_map(|container| container.state.as_ref());
    let mut waiting = states.filter_map(|state| state.waiting.as_ref());
    let is_for_an_image = |waiting: &&ContainerStateWaiting| {
        waiting.reason.as_deref().is_some_and(|reason| FINAL.contains(&reason) || FAILING.contains(&reason))
    };
    let waiting = waiting.find(is_for_an_image)?;
    Some(NoImage {
        pod: pod.metadata.name.clone().unwrap_or_default(),
        reason: waiting.reason.clone().unwrap_or_default(),
        message: waiting.message.clone().unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_images_that_do_not_come_count() {
        let pod = |state: serde_json::Value| -> Pod {
            let status = json!({"containerStatuses": [
                {"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state}]});
            serde_json::from_value(json!({"metadata": {"name": "p"}, "status": status})).unwrap()
        };
        let waiting = |reason: &str| pod(json!({"waiting": {"reason": reason, "message": "m"}}));
        for (reason, expected) in [
            ("ErrImagePull", true),
            ("ImagePullBackOff", true),
            ("InvalidImageName", true),
            ("ErrImageNeverPull", true),
            ("ContainerCreating", false),
            ("CreateContainerConfigError", false),
        ] {
            let found = no_image(&waiting(reason));
            assert_eq!(found.is_some(), expected, "{reason}");
            assert!(found.is_none_or(|found| (found.pod.as_str(), found.message.as_str()) == ("p", "m")));
        }
        assert_eq!(no_image(&pod(json!({"running": {}}))), None);
    }
}
