//! This machine as a Node object.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use pumice_cluster::{Failure, failure};
use serde_json::{Value, json};

use crate::capabilities::Capabilities;
use crate::disk_condition;
use pumice_linux::procfs;

/// How often the Lease is renewed.
pub(crate) const RENEW_EVERY: Duration = Duration::from_secs(10);
/// Annotation with what the host lets this node do.
const CAPABILITIES_ANNOTATION: &str = "pumice.sh/node-capabilities";

/// What this machine has, after the options' say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Capacity {
    /// Thousandths of a core.
    pub cpu_milli: i64,
    /// Bytes.
    pub memory_bytes: i64,
    pub pods: u32,
    /// Bytes on the data directory's disk.
    pub disk_bytes: i64,
    /// Amounts by their resources, such as `nvidia.com/gpu`.
    pub accelerators: BTreeMap<&'static str, u32>,
    /// Where the agent answers, if the API server is in another process.
    pub kubelet_port: Option<u16>,
}

/// Total memory of this machine in bytes.
pub(crate) fn machine_memory() -> i64 {
    procfs::machine_memory_total_bytes().and_then(|bytes| i64::try_from(bytes).ok()).unwrap_or(0)
}

/// The address by which this machine reaches others; nothing is sent.
pub fn host_ip() -> Ipv4Addr {
    let local = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("198.51.100.1:9")?;
        socket.local_addr()
    });
    match local.map(|address| address.ip()) {
        Ok(std::net::IpAddr::V4(address)) if !address.is_unspecified() => address,
        _ => Ipv4Addr::LOCALHOST,
    }
}

/// The id of this boot: what ran under another one is gone.
pub(crate) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Creates or refreshes the Node.
pub(crate) async fn register(
    client: &Client,
    name: &str,
    capacity: &Capacity,
    capabilities: &Capabilities,
    host_ip: Ipv4Addr,
    now: Timestamp,
) -> Result<(), kube::Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let metadata = metadata(name, capabilities);
    let node: Node = serde_json::from_value(json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata}))
        .map_err(kube::Error::SerdeError)?;
    match nodes.create(&PostParams::default(), &node).await {
        Ok(_) => {}
        Err(error) if failure(&error) == Failure::AlreadyExists => {
            let patch = json!({"metadata": {"labels": metadata["labels"], "annotations": metadata["annotations"]}});
            let node = nodes.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
            // An agent before this one may have ended during a pressure.
            disk_condition::set_taint(&nodes, name, node, false).await?;
        }
        Err(error) => return Err(error),
    }
    let patch = json!({"status": status(name, capacity, host_ip, now)});
    nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(&patch)).await.map(drop)
}

fn metadata(name: &str, capabilities: &Capabilities) -> Value {
    json!({
        "name": name,
        "labels": {
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": architecture(),
        },
        "annotations": {CAPABILITIES_ANNOTATION: capabilities.summary()},
    })
}

fn status(name: &str, capacity: &Capacity, host_ip: Ipv4Addr, now: Timestamp) -> Value {
    let disk_condition = disk_condition::condition(false, now);
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let mut resources = json!({
        "cpu": cpu(capacity.cpu_milli),
        "memory": format!("{}Ki", capacity.memory_bytes / 1024),
        "pods": capacity.pods.to_string(),
        "ephemeral-storage": format!("{}Ki", capacity.disk_bytes / 1024),
    });
    // What others have written for a device of their own stays.
    for (name, amount) in &capacity.accelerators {
        resources[name] = amount.to_string().into();
    }
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({"type": kind, "status": status, "reason": reason, "message": message,
               "lastHeartbeatTime": now, "lastTransitionTime": now})
    };
    let release = os_release();
    let system = nix::sys::utsname::uname().ok();
    let kernel = system.as_ref().map(|uts| uts.release().to_string_lossy().into_owned()).unwrap_or_default();
    let endpoint = capacity.kubelet_port.map(|port| json!({"kubeletEndpoint": {"Port": port}}));
    json!({
        // A null takes away what an agent before this one has written.
        "daemonEndpoints": endpoint,
        "capacity": resources,
        "allocatable": resources,
        "conditions": [
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "the node has memory"),
            disk_condition,
            condition("PIDPressure", "False", "KubeletHasSufficientPID", "the node has process ids"),
            condition("Ready", "True", "KubeletReady", "the node agent runs pods as processes"),
        ],
        "addresses": [
            {"type": "InternalIP", "address": host_ip.to_string()},
            {"type": "Hostname", "address": name},
        ],
        "nodeInfo": {
            "architecture": architecture(),
            "bootID": boot_id(),
            "containerRuntimeVersion": concat!("pumice://", env!("CARGO_PKG_VERSION")),
            "kernelVersion": kernel,
            "kubeProxyVersion": "",
            "kubeletVersion": concat!("v", env!("CARGO_PKG_VERSION")),
            "machineID": fs::read_to_string("/etc/machine-id").unwrap_or_default().trim(),
            "operatingSystem": "linux",
            "osImage": release.get("PRETTY_NAME").cloned().unwrap_or_else(|| "linux".into()),
            "systemUUID": "",
        },
    })
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn cpu(milli: i64) -> String {
    if milli % 1000 == 0 { (milli / 1000).to_string() } else { format!("{milli}m") }
}

fn os_release() -> BTreeMap<String, String> {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.trim_matches('"').to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_a_node_status() {
        let capacity = Capacity {
            cpu_milli: 1500,
            memory_bytes: 1 << 30,
            pods: 10,
            disk_bytes: 1 << 40,
            accelerators: [("nvidia.com/gpu", 3)].into(),
            kubelet_port: Some(10250),
        };
        let value = status("n", &capacity, Ipv4Addr::LOCALHOST, Timestamp::UNIX_EPOCH);
        let parsed: k8s_openapi::api::core::v1::NodeStatus = serde_json::from_value(value).unwrap();
        assert_eq!(parsed.daemon_endpoints.unwrap().kubelet_endpoint.unwrap().port, 10250);
        let allocatable = parsed.allocatable.unwrap();
        assert_eq!(allocatable["memory"].0, "1048576Ki");
        assert_eq!(allocatable["nvidia.com/gpu"].0, "3");
        assert_eq!(parsed.capacity.unwrap()["cpu"].0, "1500m");
    }
}
