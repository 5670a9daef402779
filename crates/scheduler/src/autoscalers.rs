//! Whether an autoscaler is there, by what the API server serves: Karpenter's node pools, or the ProvisioningRequests of
//! cluster-autoscaler. So it is known before any node says so, as where a pool begins with no node.
//!
//! Invariant: it is asked beside the loop, which never waits for the answer; news goes to the World as a delta like any
//! other, so that a recording has it. Run by the loop.

use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt as _};
use kube::Client;
use pumice_engine::Delta;

/// API groups that only an autoscaler brings.
const GROUPS: [&str; 2] = ["karpenter.sh", "autoscaling.x-k8s.io"];
/// How often it is asked.
const EVERY: Duration = Duration::from_secs(60);

/// News of it, as long as it is asked for.
pub(crate) fn watch(client: &Client) -> BoxStream<'static, Vec<Delta>> {
    let looks = stream::unfold((client.clone(), tokio::time::interval(EVERY)), |(client, mut looks)| async move {
        looks.tick().await;
        Some((is_served(&client).await, (client, looks)))
    });
    let news = looks.scan(false, |seen, served| {
        // Where there is no answer it is as before.
        let served = served.unwrap_or(*seen);
        let is_news = std::mem::replace(seen, served) != served;
        let delta = if is_news { Some(vec![Delta::AutoscalerSeen(served)]) } else { None };
        std::future::ready(Some(delta))
    });
    news.filter_map(std::future::ready).boxed()
}

async fn is_served(client: &Client) -> Option<bool> {
    let served = client.list_api_groups().await.ok()?;
    Some(served.groups.iter().any(|group| GROUPS.contains(&group.name.as_str())))
}
