//! Room that is made: by priority within a queue, and back to a queue that holds less than its share. On simulated nodes.

use pumice_testkit::{Platform, Setup, eventually};
use serde_json::Value;

fn two_nodes_of_four_cpus() -> Platform {
    let flags = ["--local-node=false", "--simulated-nodes=2", "--simulated-node-shape=cpu=4,memory=16Gi"];
    Platform::start(Setup { flags: flags.map(str::to_owned).to_vec() })
}

/// A job of pods of one cpu that run until they are deleted.
fn submit(platform: &Platform, name: &str, pods: u32, queue: &str, priority_class: Option<&str>) {
    let priority = priority_class.map_or_else(String::new, |class| format!("\n  priorityClassName: {class}"));
    let manifest = format!(
        "apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {{name: {name}}}
spec:
  minAvailable: 1
  queue: {queue}{priority}
  tasks:
  - name: w
    replicas: {pods}
    template:
      spec:
        containers:
        - {{name: c, image: any, command: [any], resources: {{requests: {{cpu: 1, memory: 100Mi}}}}}}
"
    );
    let file = platform.file(&format!("{name}.yaml"), manifest);
    platform.jobctl(["submit", "-f", &file.display().to_string()]).ok();
}

fn running(platform: &Platform, job: &str) -> usize {
    let pods = platform.list("pods");
    let of_job = |pod: &&Value| pod["metadata"]["labels"]["volcano.sh/job-name"] == job;
    pods.iter().filter(of_job).filter(|pod| pod["status"]["phase"] == "Running").count()
}

fn wait_for_running(platform: &Platform, job: &str, wanted: usize) {
    eventually(&format!("{wanted} pods of {job} run"), || match running(platform, job) {
        found if found == wanted => Ok(()),
        found => Err(format!("{found} run")),
    });
}

#[test]
fn a_job_of_higher_priority_gets_room_and_the_victims_say_for_whom() {
    let platform = two_nodes_of_four_cpus();
    let class = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: high}\nvalue: 1000\n";
    let class = platform.file("high.yaml", class);
    platform.kubectl(["create", "-f", &class.display().to_string()]).ok();
    submit(&platform, "low", 8, "default", None);
    wait_for_running(&platform, "low", 8);
    submit(&platform, "urgent", 2, "default", Some("high"));
    wait_for_running(&platform, "urgent", 2);
    wait_for_running(&platform, "low", 6);
    let receipt = eventually("an event tells who was evicted for whom", || {
        let events = platform.list("events");
        let message = |event: &Value| event["message"].as_str().unwrap_or_default().to_owned();
        let evictions = events.iter().filter(|event| event["reason"] == "Evict").map(message);
        evictions
            .into_iter()
            .find(|message| message.contains("urgent"))
            .ok_or_else(|| format!("{} events", events.len()))
    });
    assert!(receipt.contains("preempt") && receipt.contains("core-hours"), "{receipt}");
    // Both sides say so when they are asked, with what became of the room.
    for (job, said) in [("low", " for default/urgent"), ("urgent", " of default/low")] {
        eventually(&format!("{job} tells of the eviction"), || {
            let why = platform.jobctl(["why", job]);
            let told = why.stdout.lines().any(|line| {
                line.contains("was evicted from") && line.contains(said) && line.ends_with("the room was used")
            });
            if told { Ok(()) } else { Err(format!("{why:?}")) }
        });
    }
    // And when the job is looked at, while it runs and after its end.
    let told = |text: &str| {
        text.lines()
            .any(|line| line.starts_with("pod low-w-") && line.contains(" was evicted: preempt for default/urgent"))
    };
    let running = platform.jobctl(["get", "low"]).ok();
    assert!(told(&running), "{running}");
    eventually("an event tells that the room was used", || {
        let events = platform.list("events");
        let told = events.iter().any(|event| event["reason"] == "RoomFreed" && event["type"] == "Normal");
        if told { Ok(()) } else { Err(format!("{} events", events.len())) }
    });
    platform.jobctl(["cancel", "low"]).ok();
    let why = platform.jobctl(["why", "low"]).ok();
    assert!(why.starts_with("the job terminated: it was cancelled\n") && told(&why), "{why}");
}

#[test]
fn a_queue_gets_its_share_back_from_one_that_holds_more() {
    let platform = two_nodes_of_four_cpus();
    for queue in ["one", "other"] {
        let manifest = format!(
            "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {{name: {queue}}}\nspec: {{weight: 1, reclaimable: true}}\n"
        );
        let file = platform.file(&format!("{queue}.yaml"), manifest);
        platform.kubectl(["create", "-f", &file.display().to_string()]).ok();
    }
    submit(&platform, "greedy", 8, "one", None);
    wait_for_running(&platform, "greedy", 8);
    submit(&platform, "modest", 8, "other", None);
    wait_for_running(&platform, "modest", 4);
    wait_for_running(&platform, "greedy", 4);
}
