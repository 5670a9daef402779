//! What the API serves.

use std::time::Duration;

use kube::Client;
use pumice_cluster::{Failure, failure};

use crate::backoff;

const TRIES_MAX: u32 = 8;

/// Whether NetworkPolicy is served. Waits for a server that is not there yet; one that never answers counts as no.
pub(crate) async fn network_policies(client: Client) -> bool {
    for tries in 1..=TRIES_MAX {
        match client.list_api_group_resources("networking.k8s.io/v1").await {
            Ok(list) => return list.resources.iter().any(|resource| resource.name == "networkpolicies"),
            Err(error) if failure(&error) == Failure::Unavailable => {
                tokio::time::sleep(backoff::wait(Failure::Unavailable, tries).min(Duration::from_secs(5))).await;
            }
            Err(_) => return false,
        }
    }
    tracing::warn!("discovery does not answer; jobs get no NetworkPolicy");
    false
}
