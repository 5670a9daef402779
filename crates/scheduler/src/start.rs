//! What must be there before anything is scheduled: the queues `root` and the default one.

use std::time::Duration;

use kube::api::PostParams;
use kube::{Api, Client};
use pumice_api::names;
use pumice_api::scheduling::{Queue, QueueSpec};
use pumice_cluster::{Failure, failure};
use pumice_units::Backoff;

const RETRY: Backoff = Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(5) };

/// Makes the queues that are missing, however long the API server takes to be there. As in Volcano, `root` gives
/// nothing back and both weigh 1.
pub(crate) async fn queues(client: Client) {
    for (name, reclaimable) in [(names::ROOT_QUEUE, false), (names::DEFAULT_QUEUE, true)] {
        let mut queue = Queue {
            spec: QueueSpec { weight: 1, reclaimable: Some(reclaimable), ..Default::default() },
            ..Default::default()
        };
        queue.metadata.name = Some(name.to_owned());
        create(&client, &queue, name).await;
    }
}

async fn create(client: &Client, queue: &Queue, name: &str) {
    let queues: Api<Queue> = Api::all(client.clone());
    let mut failures = 0;
    loop {
        match queues.create(&PostParams::default(), queue).await {
            Ok(_) => return tracing::info!(queue = name, "queue created"),
            Err(error) => match failure(&error) {
                Failure::AlreadyExists | Failure::Conflict => return,
                Failure::Invalid => return tracing::warn!(queue = name, %error, "queue not created"),
                _ => tracing::debug!(queue = name, %error, "queue not created yet"),
            },
        }
        tokio::time::sleep(RETRY.pause(failures)).await;
        failures += 1;
    }
}
