//! Ray: plugin `ray` starts a head and a worker, and a third pod has something computed on both by Ray's own client.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use pumice_testkit::{Platform, Setup};
use serde_json::{Value, json};

const PROGRAM: &str = include_str!("ray.py");
/// Some twenty Python processes are started, each of which loads for seconds; the machine may be busy besides.
const TIMEOUT: &str = "10m";

/// The programs of Ray where tests/prerequisites puts them; `None` where it could not.
fn programs() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| std::env::home_dir().map(|home| home.join(".cache")))?;
    let programs = cache.join("pumice/ray/bin");
    if programs.join("ray").is_file() {
        return Some(programs);
    }
    assert!(std::env::var_os("CI").is_none(), "{} is missing although CI is set", programs.display());
    eprintln!("left out: no Ray in {}, where tests/prerequisites puts it", programs.display());
    None
}

fn manifest() -> String {
    let task = |name: &str, more: Value| {
        let mut container = json!({"name": name, "image": "rayproject/ray:latest"});
        container.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let spec = json!({"restartPolicy": "OnFailure", "containers": [container]});
        json!({"name": name, "replicas": 1, "template": {"spec": spec}})
    };
    let program = ["python", "-c", PROGRAM, "ray-head-0.ray", "10001", "2"];
    let mut driver = task("driver", json!({"command": program}));
    driver["policies"] = json!([{"event": "TaskCompleted", "action": "CompleteJob"}]);
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "ray"},
        "spec": {"plugins": {"ray": []}, "tasks": [task("head", json!({})), task("worker", json!({})), driver]},
    })
    .to_string()
}

#[test]
fn a_ray_cluster_comes_up_and_computes_on_each_of_its_nodes() {
    let Some(programs) = programs() else { return };
    let path = format!("{}:/usr/bin:/bin", programs.display());
    let map = format!("rayproject/ray:\n  env: {{PATH: {path:?}, RAY_USAGE_STATS_ENABLED: \"0\"}}\n");
    let setup = Setup { flags: ["--cpu", "8"].map(str::to_owned).to_vec() };
    let platform = Platform::start_with_image_map(setup, &map);
    let file = platform.file("ray.json", manifest());
    platform.kubectl(["apply", "-f", file.to_str().unwrap()]).ok();
    let waited = platform.jobctl(["wait", "ray", "--timeout", TIMEOUT]);
    let logs = platform.jobctl(["logs", "ray"]).stdout;
    assert_eq!(waited.code, 0, "{waited:?}\n{logs}");

    let said = platform.kubectl(["logs", "ray-driver-0"]).ok();
    let squares = said.lines().filter(|line| line.starts_with("pod="));
    let squares: Vec<BTreeMap<_, _>> =
        squares.map(|line| line.split(' ').filter_map(|word| word.split_once('=')).collect()).collect();
    let each = |name: &str| squares.iter().map(|square| square[name]).collect::<BTreeSet<_>>();
    assert_eq!(each("pod"), BTreeSet::from(["ray-head-0", "ray-worker-0"]), "{logs}");
    assert_eq!(each("node").len(), 2, "{logs}");
    let job = platform.wait_for_phase("ray", "Completed");
    assert_eq!(job["status"]["retryCount"].as_i64().unwrap_or(0), 0, "{}", job["status"]);
}
