//! What `pumice status` tells, and how it looks.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use super::accelerators::Scattered;

/// How a platform does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Whether every component is well and a node is ready.
    pub ready: bool,
    pub server: String,
    /// The version of Kubernetes' API that it serves.
    pub version: String,
    /// The revision of its last change.
    pub revision: u64,
    pub components: Vec<Component>,
    pub nodes: Nodes,
    /// How many pods are in each phase.
    pub pods: BTreeMap<String, u64>,
    /// Queues in which something waits.
    pub queues: Vec<Queue>,
    /// Accelerators that are free, where no node has all of its own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scattered: Vec<Scattered>,
    /// What is to be done about certificates.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<String>,
    /// Where users of this machine reach it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
    /// Where other machines reach it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub listen: Vec<String>,
    /// What people compare of its authority's certificate before they trust it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authority: Option<String>,
    /// Where it keeps its data, if that is this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<Disk>,
}

/// A part of the platform.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Component {
    pub name: String,
    pub healthy: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How many nodes there are, and how many are ready.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Nodes {
    pub total: u64,
    pub ready: u64,
    /// Those that aren't, and why; the first few.
    pub not_ready: BTreeMap<String, String>,
}

/// A queue in which PodGroups wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Queue {
    pub name: String,
    /// Not admitted yet.
    pub pending: u64,
    /// Admitted, not placed yet.
    pub inqueue: u64,
}

/// Room on the disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Disk {
    pub path: String,
    pub free_bytes: u64,
    pub total_bytes: u64,
    pub store_bytes: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ready = if self.ready { "ready" } else { "not ready" };
        writeln!(f, "{ready} at {} ({}, revision {})", self.server, self.version, self.revision)?;
        if let Some(socket) = &self.socket {
            writeln!(f, "socket  {}", socket.display())?;
        }
        for url in &self.listen {
            writeln!(f, "listens {url}")?;
        }
        if let Some(authority) = &self.authority {
            writeln!(f, "trust   {authority}")?;
        }
        for Component { name, healthy, reason } in &self.components {
            let state = if *healthy { "ok" } else { reason.as_deref().unwrap_or("not well") };
            writeln!(f, "  {name:<16} {state}")?;
        }
        let Nodes { total, ready, not_ready } = &self.nodes;
        writeln!(f, "nodes   {ready} of {total} ready")?;
        for (name, why) in not_ready {
            writeln!(f, "  {name:<16} {why}")?;
        }
        let pods: Vec<String> = self.pods.iter().map(|(phase, count)| format!("{count} {phase}")).collect();
        writeln!(f, "pods    {}", if pods.is_empty() { "none".to_owned() } else { pods.join(", ") })?;
        for Queue { name, pending, inqueue } in &self.queues {
            writeln!(f, "queue   {name}: {pending} wait, {inqueue} are about to be placed")?;
        }
        for scattered in &self.scattered {
            writeln!(f, "look    {scattered}")?;
        }
        for said in &self.certificates {
            writeln!(f, "look    {said}")?;
        }
        if let Some(Disk { path, free_bytes, total_bytes, store_bytes }) = &self.disk {
            let free = gigabytes(*free_bytes);
            writeln!(
                f,
                "disk    {free} of {} free in {path}; store {} MB",
                gigabytes(*total_bytes),
                store_bytes >> 20
            )?;
        }
        Ok(())
    }
}

fn gigabytes(bytes: u64) -> String {
    format!("{:.1} GB", bytes as f64 / f64::from(1 << 30))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_in_few_lines() {
        let component = |name: &str, reason: Option<&str>| Component {
            name: name.to_owned(),
            healthy: reason.is_none(),
            reason: reason.map(str::to_owned),
        };
        let report = Report {
            ready: false,
            server: "https://127.0.0.1:6440".into(),
            version: "v1.36.0+pumice".into(),
            revision: 17,
            components: vec![component("store", None), component("scheduler", Some("it does not run"))],
            nodes: Nodes { total: 2, ready: 1, not_ready: [("b".to_owned(), "unheard of for 50 s".to_owned())].into() },
            pods: [("Running".to_owned(), 3), ("Pending".to_owned(), 1)].into(),
            queues: vec![Queue { name: "default".into(), pending: 2, inqueue: 1 }],
            scattered: vec![Scattered { resource: "nvidia.com/gpu".into(), free: 24, nodes: 4, most: 6, whole: 8 }],
            certificates: vec!["the authority ends".into()],
            socket: Some("/run/pumice/api.sock".into()),
            listen: vec!["https://192.0.2.7:6440".into()],
            authority: Some("SHA256:abc".into()),
            disk: Some(Disk { path: "/d".into(), free_bytes: 3 << 30, total_bytes: 8 << 30, store_bytes: 5 << 20 }),
        };
        let wanted = "not ready at https://127.0.0.1:6440 (v1.36.0+pumice, revision 17)\n\
            socket  /run/pumice/api.sock\nlistens https://192.0.2.7:6440\ntrust   SHA256:abc\n  store            ok\n  \
            scheduler        it does not run\nnodes   1 of 2 ready\n  b                unheard of for 50 s\n\
            pods    1 Pending, 3 Running\nqueue   default: 2 wait, 1 are about to be placed\n\
            look    24 nvidia.com/gpu are free on 4 nodes, at most 6 on one: a pod that asks for 8 waits; the scheduler's plugin \
            binpack fills one node after the other\n\
            look    the authority ends\n\
            disk    3.0 GB of 8.0 GB free in /d; store 5 MB\n";
        assert_eq!(report.to_string(), wanted);
    }
}
