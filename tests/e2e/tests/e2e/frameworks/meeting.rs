//! A parameter server and its workers meet by `TF_CONFIG`, ranks by `MASTER_ADDR` and `RANK`.

use pumice_testkit::Platform;
use serde_json::{Value, json};

use super::run;

/// Connects to a peer that may start a moment later.
const CALL: &str = r#"
import json, os, socket, time

def call(host, port):
    for attempt in range(400):
        try:
            return socket.create_connection((host, int(port)), timeout=20).makefile("rw")
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"could not reach {host}:{port}")

def listen(host, port):
    return socket.create_server((socket.gethostbyname(host), int(port)), backlog=16)

def accept(server, count):
    return [server.accept()[0].makefile("rw") for caller in range(count)]

def say(peer, number):
    peer.write(f"{number}\n")
    peer.flush()
"#;

/// Workers push a number to every parameter server, and pull the sum of all of them.
const PARAMETER_SERVERS: &str = r#"
config = json.loads(os.environ["TF_CONFIG"])
cluster, role, index = config["cluster"], config["task"]["type"], config["task"]["index"]
pushers = len(cluster["worker"]) + len(cluster["chief"])
if role == "ps":
    host, port = cluster[role][index].rsplit(":", 1)
    peers = accept(listen(host, port), pushers)
    total = sum(int(peer.readline()) for peer in peers)
    for peer in peers:
        say(peer, total)
else:
    totals = []
    for server in cluster["ps"]:
        peer = call(*server.rsplit(":", 1))
        say(peer, 100 if role == "chief" else index + 1)
        totals.append(int(peer.readline()))
    print(role, index, "pulled", totals, flush=True)
"#;

/// Every rank tells the first its number and gets the sum, as a collective reduces over its ranks.
const RENDEZVOUS: &str = r#"
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
host, port = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
if rank == 0:
    peers = accept(listen(host, port), world - 1)
    ranks = sorted(int(peer.readline()) for peer in peers)
    assert ranks == list(range(1, world)), ranks
    total = sum(ranks)
    for peer in peers:
        say(peer, total)
else:
    peer = call(host, port)
    say(peer, rank)
    total = int(peer.readline())
print("rank", rank, "of", world, "reduced to", total, flush=True)
"#;

/// A job of one container a pod that runs a program on the machine as it is.
fn job(name: &str, program: &str, plugins: &Value, tasks: &[(&str, u32)]) -> String {
    let program = format!("{CALL}{program}");
    let task = |(task, replicas): &(&str, u32)| {
        let main = json!({"name": "main", "image": "pumice.sh/host", "command": ["python3", "-c", program]});
        json!({"name": task, "replicas": replicas, "template": {"spec": {"restartPolicy": "Never", "containers": [main]}}})
    };
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": name},
        "spec": {"plugins": plugins, "tasks": tasks.iter().map(task).collect::<Vec<_>>()},
    })
    .to_string()
}

#[test]
fn parameter_servers_and_workers_meet_by_tf_config() {
    let platform = Platform::new();
    let tasks = [("ps", 2), ("worker", 3), ("boss", 1)];
    let plugins = json!({"tensorflow": ["--chief=boss", "--port=2223"]});
    let logs = run(&platform, "tf", &job("tf", PARAMETER_SERVERS, &plugins, &tasks));
    for who in ["chief 0", "worker 0", "worker 1", "worker 2"] {
        assert!(logs.contains(&format!("{who} pulled [106, 106]")), "{who}: {logs}");
    }
}

#[test]
fn ranks_of_masters_and_workers_meet_at_the_first_master() {
    let platform = Platform::new();
    let tasks = [("master", 2), ("worker", 2)];
    let logs = run(&platform, "torch", &job("torch", RENDEZVOUS, &json!({"pytorch": []}), &tasks));
    for rank in 0..4 {
        assert!(logs.contains(&format!("rank {rank} of 4 reduced to 6")), "{rank}: {logs}");
    }
}
