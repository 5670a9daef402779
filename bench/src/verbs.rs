//! What single calls cost a server: the same pods are made, bound, told to run, read and deleted, on any API server.

use std::time::Duration;

use serde_json::json;

use crate::cluster::Cluster;
use crate::figures::Figures;
use crate::load::{self, Call};
use crate::objects::{NOBODY, PODS, binding, pod};

/// Calls in flight, as in the public figures of kube-apiserver.
const IN_FLIGHT: usize = 64;
/// How long a server may take to come to rest.
const REST: Duration = Duration::from_secs(20);

/// Measures each verb on `pods` pods and `nodes` nodes, which need not exist. `cpu` is what the server has used so far, all of its
/// processes.
///
/// # Errors
/// With the first call that failed.
pub async fn measure(
    figures: &mut Figures,
    prefix: &str,
    cluster: &Cluster,
    [pods, nodes]: [usize; 2],
    cpu: impl Fn() -> Duration,
) -> anyhow::Result<()> {
    let name = |index: usize| format!("p-{index}");
    let path = |index: usize| format!("{PODS}/{}", name(index));
    let status = |index: usize| {
        let container = json!({"name": "main", "ready": true, "restartCount": 0, "image": "none", "imageID": "",
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}});
        let address = format!("10.{}.{}.{}", index >> 16 & 255, index >> 8 & 255, index & 255);
        json!({"status": {"phase": "Running", "podIP": address, "startTime": "2026-01-01T00:00:00Z",
            "conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": [container]}})
    };
    let verbs: [(&str, Vec<Call>); 5] = [
        ("create", (0..pods).map(|index| Call::create(PODS, &pod(&name(index), NOBODY, None))).collect()),
        ("bind", {
            let bind = |index| Call::create(format!("{}/binding", path(index)), &binding(&name(index), index % nodes));
            (0..pods).map(bind).collect()
        }),
        ("status_patch", {
            (0..pods).map(|index| Call::patch(format!("{}/status", path(index)), &status(index))).collect()
        }),
        ("get", (0..pods).map(|index| Call::get(path(index))).collect()),
        ("delete", (0..pods).map(|index| Call::delete(&path(index))).collect()),
    ];
    for (verb, calls) in verbs {
        cluster.quiet(REST).await?;
        let before = cpu();
        let outcome = load::run(&cluster.client, IN_FLIGHT, calls).await?;
        // Work that follows an answer is the call's, too.
        cluster.quiet(REST).await?;
        let count = outcome.times.len();
        let used = cpu().saturating_sub(before).as_secs_f64() * 1e3;
        #[allow(clippy::cast_precision_loss)] // a count becomes a figure
        figures.add(&format!("{prefix}/{verb}/cpu"), used / count as f64, "ms", count);
        figures.add(&format!("{prefix}/{verb}/rate"), outcome.rate(), "per s", count);
        figures.times(&format!("{prefix}/{verb}/time"), &outcome.times);
    }
    Ok(())
}
