//! Nodes that an administrator keeps: what may start before, who may start meanwhile, and what leaves. On simulated nodes.

use pumice_testkit::{Output, Platform, Setup, binary, eventually};
use serde_json::Value;

fn simulated(nodes: u32) -> Platform {
    let nodes = format!("--simulated-nodes={nodes}");
    let flags = ["--local-node=false", &nodes, "--simulated-node-shape=cpu=4,memory=16Gi"];
    Platform::start(Setup { flags: flags.map(str::to_owned).to_vec() })
}

/// A job of one pod that runs until it is deleted, or ends by its limit.
fn submit(platform: &Platform, name: &str, queue: &str, limit: Option<u32>) {
    let limit = limit.map_or_else(String::new, |seconds| format!("activeDeadlineSeconds: {seconds}, "));
    let manifest = format!(
        "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {{name: {name}}}\nspec:\n  minAvailable: 1\n  \
         queue: {queue}\n  tasks:\n  - name: t\n    replicas: 1\n    template:\n      spec: {{{limit}restartPolicy: Never, \
         containers: [{{name: main, image: any, resources: {{requests: {{cpu: 3, memory: 1Gi}}}}}}]}}\n"
    );
    platform.jobctl_with_input(["submit", "-f", "-"], &manifest).ok();
}

fn pumice(platform: &Platform, args: &[&str]) -> Output {
    platform.run(&binary("pumice"), args, None)
}

/// Where the pod of a job runs.
fn node_of(platform: &Platform, job: &str) -> Option<String> {
    let pods = platform.list("pods");
    let of_job = |pod: &&Value| pod["metadata"]["labels"]["volcano.sh/job-name"] == job;
    let pod = pods.iter().filter(of_job).find(|pod| pod["status"]["phase"] == "Running")?;
    pod["spec"]["nodeName"].as_str().map(str::to_owned)
}

fn runs(platform: &Platform, job: &str) -> String {
    eventually(&format!("{job} runs"), || node_of(platform, job).ok_or_else(|| why(platform, job)))
}

fn why(platform: &Platform, job: &str) -> String {
    platform.jobctl(["why", job]).stdout
}

fn nodes(platform: &Platform) -> Vec<String> {
    let name = |node: &Value| node["metadata"]["name"].as_str().unwrap().to_owned();
    platform.list("nodes").iter().map(name).collect()
}

#[test]
fn a_reserved_node_takes_what_ends_before_and_then_whom_it_is_for() {
    let platform = simulated(1);
    let node = nodes(&platform).remove(0);
    let made =
        pumice(&platform, &["reserve", "upgrade", "--nodes", &format!("{node},gone"), "--from", "+1h", "--for", "30m"]);
    assert!(made.stderr.contains("not there, kept as soon as they join: gone"), "{made:?}");
    made.ok();
    let listed = pumice(&platform, &["reserve", "list"]).ok();
    assert!(listed.contains("upgrade") && listed.contains("nobody"), "{listed}");
    submit(&platform, "endless", "default", None);
    eventually("it is told why it waits", || {
        let told = why(&platform, "endless");
        let wanted = "reservation upgrade closes it in ";
        if told.contains(wanted) && told.contains("with a time limit below") { Ok(()) } else { Err(told) }
    });
    submit(&platform, "short", "default", Some(600));
    assert_eq!(runs(&platform, "short"), node);
    let told = pumice(&platform, &["node", "why", &node]).ok();
    assert!(told.contains("reservation upgrade, in "), "{told}");
    pumice(&platform, &["reserve", "delete", "upgrade"]).ok();
    platform.jobctl(["cancel", "short"]).ok();
    runs(&platform, "endless");
    // For a queue, at once: what runs there leaves, and what is of the queue has its place.
    let queue = "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: course}\nspec: {weight: 1}\n";
    platform.kubectl_with_input(["create", "-f", "-"], queue).ok();
    pumice(&platform, &["reserve", "lesson", "--nodes", &node, "--queue", "course"]).ok();
    submit(&platform, "pupil", "course", None);
    assert_eq!(runs(&platform, "pupil"), node);
    let receipt = eventually("an event tells why it left", || {
        let events = platform.list("events");
        let messages: Vec<String> = events.iter().map(|event| event["message"].to_string()).collect();
        let about = |message: &&String| message.contains("is kept by reservation lesson for queue course");
        messages.iter().find(about).cloned().ok_or_else(|| messages.join("\n"))
    });
    assert!(receipt.contains("core-hours"), "{receipt}");
}

#[test]
fn a_drained_node_is_empty_in_time_and_stays_so_over_a_restart() {
    let mut platform = simulated(2);
    submit(&platform, "service", "default", None);
    let node = runs(&platform, "service");
    pumice(&platform, &["node", "drain", &node, "--at", "+3s", "--reason", "a new disk"]).ok();
    let other = eventually("it runs elsewhere", || match node_of(&platform, "service") {
        Some(other) if other != node => Ok(other),
        found => Err(format!("{found:?}")),
    });
    assert_ne!(other, node);
    platform.crash();
    platform.up();
    submit(&platform, "waits", "default", None);
    eventually("it waits for the drained node", || {
        let told = why(&platform, "waits");
        if told.contains(&format!("closed by reservation drain-{node}")) { Ok(()) } else { Err(told) }
    });
    let again = pumice(&platform, &["node", "drain", &node]);
    assert_ne!(again.code, 0, "{again:?}");
    pumice(&platform, &["node", "undrain", &node]).ok();
    assert_eq!(runs(&platform, "waits"), node);
}

#[test]
fn what_keeps_nothing_or_ends_before_it_begins_is_refused() {
    let platform = simulated(1);
    for (args, said) in [
        (&["reserve", "x"][..], "say which nodes"),
        (&["reserve", "x", "--nodes", "a", "--from", "+2h", "--to", "+1h"], "before it begins"),
        (&["reserve", "x", "--nodes", "a", "--from", "tomorrow"], "is no time"),
        (&["reserve", "show", "x"], "not found"),
        (&["node", "undrain", "x"], "not found"),
    ] {
        let output = pumice(&platform, args);
        assert!(output.code != 0 && output.stderr.contains(said), "{args:?}: {output:?}");
    }
    // The server refuses the same, whoever asks.
    let manifest = |spec: &str| {
        format!("apiVersion: pumice.sh/v1alpha1\nkind: Reservation\nmetadata: {{name: x}}\nspec: {spec}\n")
    };
    for (spec, said) in [
        ("{from: '2026-01-01T00:00:00Z'}", "name nodes, or labels of nodes"),
        ("{nodes: [a], from: '2026-01-02T00:00:00Z', to: '2026-01-01T00:00:00Z'}", "from must be before to"),
        ("{nodes: [a]}", "spec.from"),
        ("{nodes: [a], from: soon}", "spec.from"),
    ] {
        let output = platform.kubectl_with_input(["create", "-f", "-"], &manifest(spec));
        assert!(output.code != 0 && output.stderr.contains(said), "{spec}: {output:?}");
    }
}
