//! Asks a platform how it does.
//!
//! Invariant: pods are read in pages, and only they and the accelerators that they hold are counted. What a component of a
//! process of its own does is known by its Lease: one that is not renewed in time has nobody who works.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use jiff::Timestamp;
use pumice_api::names::NAMESPACE_SYSTEM;
use pumice_clock::now;
use pumice_cluster::Client;
use pumice_jobs::platform::target::{RunFile, read_run_file};
use pumice_store::DiskSpace;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;

use super::accelerators::Accelerators;
use super::report::{Component, Disk, Nodes, Queue, Report};
use crate::args::StatusArgs;
use crate::certificates::service::AUTHORITIES;
use crate::data_dir::DataDir;

/// Objects read at a time.
const PAGE: usize = 1000;
/// Nodes that are named, of those that aren't ready.
const NAMED_MAX: usize = 10;
/// Components that hold a Lease where they run by themselves, and its name.
const LEASES: [(&str, &str); 2] = [("scheduler", "volcano"), ("controllers", "vc-controller-manager")];
/// How long after its end a Lease may still be renewed: it is written a while before it is seen.
const GRACE_SECONDS: i64 = 5;
/// How long before its end it is said of a certificate.
const SAID_BEFORE_SECONDS: i64 = 30 * 86_400;

#[derive(Deserialize)]
struct List<T> {
    #[serde(default)]
    metadata: ListMetadata,
    items: Vec<T>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListMetadata {
    #[serde(rename = "continue")]
    next: String,
    resource_version: String,
}

#[derive(Deserialize)]
struct Object<S, P = IgnoredAny> {
    metadata: Metadata,
    #[serde(default = "none")]
    spec: Option<P>,
    #[serde(default = "none")]
    status: Option<S>,
}

fn none<S>() -> Option<S> {
    None
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpec {
    #[serde(default)]
    node_name: String,
    #[serde(default)]
    containers: Vec<Container>,
}

#[derive(Deserialize)]
struct Container {
    #[serde(default)]
    resources: Resources,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Resources {
    requests: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct PodStatus {
    #[serde(default)]
    phase: String,
}

#[derive(Deserialize)]
struct NodeSpec {
    #[serde(default)]
    unschedulable: bool,
}

#[derive(Deserialize)]
struct NodeStatus {
    #[serde(default)]
    allocatable: BTreeMap<String, Value>,
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    #[serde(default)]
    message: String,
}

#[derive(Default, Deserialize)]
struct QueueStatus {
    #[serde(default)]
    pending: u64,
    #[serde(default)]
    inqueue: u64,
}

#[derive(Deserialize)]
struct Lease {
    metadata: Metadata,
    spec: LeaseSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LeaseSpec {
    #[serde(default)]
    holder_identity: Option<String>,
    #[serde(default)]
    lease_duration_seconds: i64,
    #[serde(default)]
    renew_time: Option<Timestamp>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    git_version: String,
}

/// Asks the API server for all that `pumice status` shows.
pub async fn gather(client: &Client, server: String, data: &DataDir, args: &StatusArgs) -> Result<Report> {
    let version: Version = get(client, "/version").await?;
    // Not all that is told there has to be well for work to go on: the code says.
    let (code, told) = page(client, "/readyz?verbose").await?;
    let mut components = checks(&told);
    let apart = leaders(client, &components).await?;
    let well = code.is_success() && apart.iter().all(|component| component.healthy);
    components.extend(apart);
    let mut accelerators = Accelerators::default();
    let nodes = nodes(client, &mut accelerators).await?;
    let mut pods = BTreeMap::new();
    let revision = each::<Object<PodStatus, PodSpec>>(client, "/api/v1/pods", |pod| {
        let phase = pod.status.map(|status| status.phase).filter(|phase| !phase.is_empty());
        let phase = phase.unwrap_or_else(|| "Pending".to_owned());
        if let Some(spec) = pod.spec
            && !matches!(&*phase, "Succeeded" | "Failed")
        {
            let asked = spec.containers.iter().map(|container| &container.resources.requests);
            asked.for_each(|requests| accelerators.container(&spec.node_name, requests));
        }
        *pods.entry(phase).or_default() += 1;
    })
    .await?;
    let mut queues = Vec::new();
    each::<Object<QueueStatus>>(client, "/apis/scheduling.volcano.sh/v1beta1/queues", |queue| {
        let QueueStatus { pending, inqueue } = queue.status.unwrap_or_default();
        if pending + inqueue > 0 {
            queues.push(Queue { name: queue.metadata.name, pending, inqueue });
        }
    })
    .await?;
    let ready = well && nodes.ready > 0;
    // A cluster with an authority of its own tells nothing.
    let certificates = get::<Value>(client, AUTHORITIES).await.map_or_else(|_| Vec::new(), |told| to_do(&told, now()));
    let disk = if args.kubeconfig.is_none() { disk(data) } else { None };
    let note =
        if args.kubeconfig.is_none() { read_run_file(data.path())?.unwrap_or_default() } else { RunFile::default() };
    let authority = match args.kubeconfig {
        None => data.authority().as_deref().and_then(pumice_auth::fingerprint),
        Some(_) => None,
    };
    let (version, scattered) = (version.git_version, accelerators.scattered());
    let RunFile { socket, listen, .. } = note;
    Ok(Report {
        ready,
        server,
        version,
        revision,
        components,
        nodes,
        pods,
        queues,
        scattered,
        certificates,
        socket,
        listen,
        authority,
        disk,
    })
}

/// What is to be done about certificates: those that end within a month, and a rotation that waits for its end.
fn to_do(told: &Value, now: Timestamp) -> Vec<String> {
    let time = |value: &Value| value.as_str().and_then(|text| text.parse::<Timestamp>().ok());
    let soon = now.as_second() + SAID_BEFORE_SECONDS;
    let ends = [("authority", "pumice ca rotate"), ("administrator", "start the platform anew")];
    let ends = ends.into_iter().filter_map(|(what, remedy)| {
        let until = time(&told[what]["until"]).filter(|until| until.as_second() < soon)?;
        Some(format!("the certificate of the {what} ends at {until}: {remedy}"))
    });
    let mut all: Vec<String> = ends.collect();
    if let (true, Some(started)) = (told["nextAuthority"].is_object(), time(&told["rotation"]["started"])) {
        all.push(format!("two authorities are trusted since {started}: pumice ca rotate --finish"));
    }
    all
}

/// The lines of a health page.
fn checks(page: &str) -> Vec<Component> {
    let line = |line: &str| {
        let (sign, rest) = line.split_at_checked(3)?;
        let healthy = sign == "[+]";
        if !healthy && sign != "[-]" {
            return None;
        }
        let (name, said) = rest.split_once(' ')?;
        let reason = said.strip_prefix("failed: ").unwrap_or(said);
        Some(Component { name: name.to_owned(), healthy, reason: (!healthy).then(|| reason.to_owned()) })
    };
    page.lines().filter_map(line).filter(|component| component.name != "ping").collect()
}

/// Components that are not in the API server's process, by their Leases.
async fn leaders(client: &Client, known: &[Component]) -> Result<Vec<Component>> {
    let apart: Vec<_> = LEASES.into_iter().filter(|(name, _)| known.iter().all(|one| one.name != *name)).collect();
    if apart.is_empty() {
        return Ok(Vec::new());
    }
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE_SYSTEM}/leases");
    let leases: List<Lease> = get(client, &path).await?;
    let now = now();
    let component = |(name, lease): (&str, &str)| {
        let found = leases.items.iter().find(|one| one.metadata.name == lease);
        let reason = not_led(found.map(|lease| &lease.spec), lease, now);
        Component { name: name.to_owned(), healthy: reason.is_none(), reason }
    };
    Ok(apart.into_iter().map(component).collect())
}

/// Why nobody does the work of a Lease.
fn not_led(spec: Option<&LeaseSpec>, name: &str, now: Timestamp) -> Option<String> {
    let held = spec.filter(|spec| spec.holder_identity.as_ref().is_some_and(|holder| !holder.is_empty()));
    let Some(spec) = held else { return Some(format!("nobody holds the Lease {NAMESPACE_SYSTEM}/{name}")) };
    let age = now.as_second() - spec.renew_time?.as_second();
    (age > spec.lease_duration_seconds + GRACE_SECONDS)
        .then(|| format!("who holds the Lease {NAMESPACE_SYSTEM}/{name} was last heard of {age} s ago"))
}

/// How many nodes take pods, and what accelerators these have.
async fn nodes(client: &Client, accelerators: &mut Accelerators) -> Result<Nodes> {
    let mut heard = BTreeMap::new();
    each::<Lease>(client, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", |lease| {
        heard.insert(lease.metadata.name, lease.spec);
    })
    .await?;
    let mut nodes = Nodes::default();
    let now = now();
    each::<Object<NodeStatus, NodeSpec>>(client, "/api/v1/nodes", |node| {
        nodes.total += 1;
        match not_ready(node.status.as_ref(), heard.get(&node.metadata.name), now) {
            None => {
                nodes.ready += 1;
                let closed = node.spec.is_some_and(|spec| spec.unschedulable);
                if let Some(status) = node.status
                    && !closed
                {
                    accelerators.node(&node.metadata.name, &status.allocatable);
                }
            }
            Some(why) if nodes.not_ready.len() < NAMED_MAX => {
                nodes.not_ready.insert(node.metadata.name, why);
            }
            Some(_) => {}
        }
    })
    .await?;
    Ok(nodes)
}

/// Why a node takes no pods. One without a Lease is believed: simulated nodes need none.
fn not_ready(status: Option<&NodeStatus>, lease: Option<&LeaseSpec>, now: Timestamp) -> Option<String> {
    let ready = status.and_then(|status| status.conditions.iter().find(|condition| condition.kind == "Ready"));
    match ready {
        None => return Some("it has not said that it is ready".to_owned()),
        Some(condition) if condition.status != "True" => return Some(condition.message.clone()),
        Some(_) => {}
    }
    let renewed = lease.and_then(|lease| Some((lease.renew_time?, lease.lease_duration_seconds)))?;
    let age = now.as_second() - renewed.0.as_second();
    (age > renewed.1 + GRACE_SECONDS).then(|| format!("its agent was last heard of {age} s ago"))
}

fn disk(data: &DataDir) -> Option<Disk> {
    let DiskSpace { free_bytes, total_bytes } = DiskSpace::of(data.path())?;
    Some(Disk {
        path: data.path().display().to_string(),
        free_bytes,
        total_bytes,
        store_bytes: std::fs::metadata(data.store()).map_or(0, |metadata| metadata.len()),
    })
}

/// Does `work` with each object of a list, page by page; answers the list's revision.
async fn each<T: DeserializeOwned>(client: &Client, path: &str, mut work: impl FnMut(T)) -> Result<u64> {
    let mut next = String::new();
    loop {
        let List { metadata, items } = get::<List<T>>(client, &format!("{path}?limit={PAGE}{next}")).await?;
        items.into_iter().for_each(&mut work);
        if metadata.next.is_empty() {
            return Ok(metadata.resource_version.parse().unwrap_or(0));
        }
        next = format!("&continue={}", metadata.next);
    }
}

async fn get<T: DeserializeOwned>(client: &Client, path: &str) -> Result<T> {
    let request = http::Request::get(path).body(Vec::new()).with_context(|| format!("ask for {path}"))?;
    client.request(request).await.with_context(|| format!("ask for {path}"))
}

/// A page of text and its code, whatever that is.
async fn page(client: &Client, path: &str) -> Result<(http::StatusCode, String)> {
    use http_body_util::BodyExt as _;
    let request = http::Request::get(path).body(Vec::<u8>::new().into()).with_context(|| format!("ask for {path}"))?;
    let response = client.send(request).await.with_context(|| format!("ask for {path}"))?;
    let code = response.status();
    let body = http_body_util::Limited::new(response.into_body(), 1 << 20).collect().await;
    let body = body.map_err(|error| anyhow::anyhow!("read {path}: {error}"))?;
    Ok((code, String::from_utf8_lossy(&body.to_bytes()).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_health_page_is_read_line_by_line() {
        let page = "[+]ping ok\n[+]store ok\n[-]scheduler failed: it does not run\n[-]x failed: reason withheld\nreadyz check failed\n";
        let found: Vec<_> = checks(page).into_iter().map(|one| (one.name, one.reason)).collect();
        let said = |text: &str| Some(text.to_owned());
        assert_eq!(
            found,
            [
                ("store".to_owned(), None),
                ("scheduler".to_owned(), said("it does not run")),
                ("x".to_owned(), said("reason withheld"))
            ]
        );
    }

    #[test]
    fn what_ends_soon_is_said() {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let told = |authority: &str, next: bool| {
            serde_json::json!({
                "authority": {"until": authority}, "administrator": {"until": "2027-01-01T00:00:00Z"},
                "nextAuthority": next.then(|| serde_json::json!({"until": "2036-01-01T00:00:00Z"})),
                "rotation": {"started": "2026-01-01T00:00:00Z"},
            })
        };
        assert_eq!(to_do(&told("2036-01-01T00:00:00Z", false), now), [] as [&str; 0]);
        let all = to_do(&told("2026-02-01T00:00:00Z", true), now);
        assert_eq!(all.len(), 2, "{all:?}");
        assert!(all[0].contains("the authority ends at 2026-02-01") && all[1].contains("--finish"), "{all:?}");
    }

    #[test]
    fn a_lease_must_be_held_and_fresh() {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let spec = |holder: &str, renewed: &str| LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: 15,
            renew_time: Some(renewed.parse().unwrap()),
        };
        assert_eq!(not_led(Some(&spec("a", "2026-01-02T03:03:55Z")), "volcano", now), None);
        assert!(not_led(Some(&spec("a", "2026-01-02T03:03:05Z")), "volcano", now).unwrap().contains("60 s ago"));
        for none in [None, Some(&spec("", "2026-01-02T03:03:55Z"))] {
            assert!(not_led(none, "volcano", now).unwrap().contains("nobody holds"));
        }
    }
}
