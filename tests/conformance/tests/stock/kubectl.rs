//! Stock kubectl, as people type it.
//!
//! `$KUBECTL` names another one than that on the path.

use std::process::{Output, Stdio};
use std::time::Duration;

use pumice_testkit::words;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::cluster::{Cluster, PATIENCE};
use crate::wire::{JOBS, PODS, QUEUES, job, map, node, pod, queue};

mod changes;
mod deletes;
mod fixtures;
mod limits;
mod looks;
mod refusals;
mod rules;

/// kubectl with the administrator's credentials and a home of its own.
struct Kubectl<'a>(&'a Cluster);

/// What a command wrote.
struct Said {
    code: i32,
    out: String,
    err: String,
}

impl Kubectl<'_> {
    async fn run(&self, line: &str) -> Said {
        self.fed(line, "").await
    }

    /// Runs with `input` on standard input. Words in single quotes may hold spaces.
    async fn fed(&self, line: &str, input: &str) -> Said {
        let mut command = self.command(line);
        let mut child = command.stdin(Stdio::piped()).spawn().expect("kubectl starts: install it, or set $KUBECTL");
        let mut stdin = child.stdin.take().expect("piped");
        // A command that reads nothing may be gone already.
        let _ = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
        let ended = tokio::time::timeout(PATIENCE, child.wait_with_output()).await;
        Said::from(ended.unwrap_or_else(|_| panic!("kubectl {line} does not end")).expect("kubectl ends"))
    }

    fn command(&self, line: &str) -> Command {
        #[allow(clippy::disallowed_methods)] // which kubectl to try is the caller's choice
        let program = std::env::var("KUBECTL").unwrap_or_else(|_| "kubectl".to_owned());
        let mut command = Command::new(program);
        command
            .args(words(line))
            .env("KUBECONFIG", &self.0.kubeconfig)
            .env("HOME", self.0.directory.path())
            .current_dir(self.0.directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Output of a command that must succeed.
    async fn ok(&self, line: &str) -> String {
        self.run(line).await.ok(line)
    }

    async fn apply(&self, object: &Value) -> String {
        self.fed("apply -f -", &object.to_string()).await.ok("apply")
    }
}

impl Said {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }

    #[track_caller]
    fn ok(self, line: &str) -> String {
        assert_eq!(self.code, 0, "kubectl {line}: {}{}", self.out, self.err);
        self.out
    }

    /// Standard error of a command that must fail.
    #[track_caller]
    fn fails(self, line: &str) -> String {
        assert_ne!(self.code, 0, "kubectl {line}: {}{}", self.out, self.err);
        self.err
    }
}

/// A cluster with a queue, a job, a running pod on a node, and a config map.
async fn furnished() -> Cluster {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    wire.post(QUEUES, &queue("default")).await.is(201);
    wire.post("/api/v1/nodes", &node("n")).await.is(201);
    wire.post(JOBS, &job("j")).await.is(201);
    let mut running = pod("p");
    running["spec"]["nodeName"] = json!("n");
    running["metadata"]["labels"] = json!({"tier": "x"});
    wire.post(PODS, &running).await.is(201);
    let status = json!({"status": {
        "phase": "Running", "podIP": "10.9.8.7", "podIPs": [{"ip": "10.9.8.7"}], "startTime": "2026-01-01T00:00:00Z",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "main", "ready": true, "restartCount": 2, "image": "busybox", "imageID": "",
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}],
    }});
    wire.merge(&format!("{PODS}/p/status"), &status).await.is(200);
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "p.1", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p", "apiVersion": "v1",
            "uid": wire.get(&format!("{PODS}/p")).await.body["metadata"]["uid"]},
        "reason": "Scheduled", "message": "Successfully assigned default/p to n", "type": "Normal", "count": 1,
        "source": {"component": "volcano"},
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z",
    });
    wire.post("/api/v1/namespaces/default/events", &event).await.is(201);
    wire.post(crate::wire::MAPS, &map("a")).await.is(201);
    cluster
}
