//! Gangs, and what they are promised.

use pumice_testkit::{Clients, eventually};

use super::{create, status, wait_for_running};

/// A manifest of a job of two tasks, of which the first depends on the second. Each pod runs so long.
fn dependent(name: &str, spec: &str, seconds: u32) -> String {
    let task = |task: &str, more: &str| {
        format!(
            r#"
  - name: {task}
    replicas: 2
    {more}
    template:
      metadata: {{annotations: {{pumice.sh/simulated-duration: {seconds}s}}}}
      spec: {{restartPolicy: Never, containers: [{{name: main, image: none, command: [none]}}]}}"#
        )
    };
    let tasks = [task("master", "dependsOn: {name: [work]}"), task("work", "")].concat();
    format!(
        "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {{name: {name}}}\nspec:\n  schedulerName: volcano\n  \
         {spec}\n  tasks:{tasks}\n"
    )
}

/// However its minimum is written: nothing of it can count pods that are made only when others run.
pub fn tasks_that_depend_on_others_start_after_them(clients: &Clients) {
    for (name, spec) in
        [("says-nothing", "maxRetry: 3"), ("says-all", "minAvailable: 4"), ("says-two", "minAvailable: 2")]
    {
        create(clients, &dependent(name, spec, 3));
    }
    for name in ["says-nothing", "says-all", "says-two"] {
        let job = clients.wait_for_phase(name, "Completed");
        assert_eq!(status(&job, "succeeded"), 4, "{name}: {}", job["status"]);
    }
}

fn queue(name: &str, cpu: u32) -> String {
    format!(
        "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {{name: {name}}}\nspec: {{weight: 1, capability: {{cpu: {cpu}}}}}\n"
    )
}

fn group(name: &str, queue: &str, cpu: u32) -> String {
    format!(
        "apiVersion: scheduling.volcano.sh/v1beta1\nkind: PodGroup\nmetadata: {{name: {name}}}\nspec: {{minMember: 1, queue: {queue}, \
         minResources: {{cpu: \"{cpu}\"}}}}\n"
    )
}

fn pod(name: &str, group: &str, cpu: u32, annotations: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, annotations: {{scheduling.k8s.io/group-name: {group}{annotations}}}}}\n\
         spec: {{schedulerName: volcano, restartPolicy: Never, containers: [{{name: main, image: none, command: [none], resources: \
         {{requests: {{cpu: \"{cpu}\"}}}}}}]}}\n"
    )
}

fn phase_of(clients: &Clients, kind: &str, name: &str) -> String {
    let object = clients.get(kind, name);
    object.and_then(|object| Some(object["status"]["phase"].as_str()?.to_owned())).unwrap_or_default()
}

fn wait_for(clients: &Clients, kind: &str, name: &str, phase: &str) {
    eventually(&format!("{kind} {name} becomes {phase}"), || match phase_of(clients, kind, name) {
        now if now == phase => Ok(()),
        now => Err(now),
    });
}

const GROUPS: &str = "podgroups.scheduling.volcano.sh";

/// As the Spark operator makes them: a driver of one core, whose executor of two comes when it runs, and room for one application.
pub fn a_driver_gets_the_room_of_its_executors(clients: &Clients) {
    create(clients, &queue("three-cores", 3));
    for app in ["spark-one", "spark-two"] {
        create(clients, &group(app, "three-cores", 3));
        create(clients, &pod(&format!("{app}-driver"), app, 1, ""));
    }
    wait_for(clients, GROUPS, "spark-one", "Running");
    wait_for(clients, GROUPS, "spark-two", "Pending");
    create(clients, &pod("spark-one-exec", "spark-one", 2, ""));
    wait_for(clients, "pod", "spark-one-exec", "Running");
    // Room may be reserved for the next one from now on, as the first has had all that it declares.
    assert_eq!(phase_of(clients, "pod", "spark-two-driver"), "Pending");
    clients.kubectl(["delete", "pod", "spark-one-driver", "spark-one-exec"]).ok();
    create(clients, &pod("spark-two-exec", "spark-two", 2, ""));
    wait_for(clients, "pod", "spark-two-driver", "Running");
    wait_for(clients, "pod", "spark-two-exec", "Running");
}

/// What its pods were removed of holds no room.
pub fn a_group_that_has_ended_stays_so_without_its_pods(clients: &Clients) {
    create(clients, &queue("four-cores", 4));
    create(clients, &group("cleaned", "four-cores", 4));
    create(clients, &pod("cleaned-0", "cleaned", 4, ", pumice.sh/simulated-duration: 1s"));
    wait_for(clients, GROUPS, "cleaned", "Completed");
    clients.kubectl(["delete", "pod", "cleaned-0"]).ok();
    create(clients, &group("next", "four-cores", 4));
    create(clients, &pod("next-0", "next", 4, ""));
    wait_for(clients, "pod", "next-0", "Running");
    assert_eq!(phase_of(clients, GROUPS, "cleaned"), "Completed");
    // One more pod of the one that had ended waits for room like any other.
    create(clients, &pod("cleaned-1", "cleaned", 4, ""));
    wait_for(clients, GROUPS, "cleaned", "Inqueue");
    clients.kubectl(["delete", "pod", "next-0"]).ok();
    wait_for(clients, "pod", "cleaned-1", "Running");
}

/// Admitted before, placed after: both want the same node.
pub fn a_queue_that_closes_ends_what_it_has_admitted(clients: &Clients) {
    create(clients, &queue("closes", 40));
    for (name, phase) in [("closes-a", "Running"), ("closes-b", "Inqueue")] {
        let pinned = pod(&format!("{name}-0"), name, 20, ", pumice.sh/simulated-duration: 5s");
        let pinned = pinned.replace("spec: {", "spec: {nodeSelector: {kubernetes.io/hostname: sim-00008}, ");
        create(clients, &group(name, "closes", 20));
        create(clients, &pinned);
        wait_for(clients, GROUPS, name, phase);
    }
    let close = r#"
apiVersion: bus.volcano.sh/v1alpha1
kind: Command
metadata: {generateName: closes-}
action: CloseQueue
target: {apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, name: closes, uid: ""}
"#;
    create(clients, close);
    eventually("the queue is closed, once what it had admitted has ended", || {
        let queue = clients.get("queues", "closes").ok_or("no queue")?;
        if queue["status"]["state"] == "Closed" { Ok(()) } else { Err(queue["status"].to_string()) }
    });
    for name in ["closes-a-0", "closes-b-0"] {
        assert_eq!(phase_of(clients, "pod", name), "Succeeded", "{name}");
    }
}

/// Its new ReplicaSet has one pod, then two, and so on.
pub fn a_deployment_whose_pods_are_a_gang_is_rolled_out(clients: &Clients) {
    let deployment = |image: &str| {
        format!(
            r#"
apiVersion: apps/v1
kind: Deployment
metadata: {{name: servers, annotations: {{scheduling.volcano.sh/group-min-member: "3"}}}}
spec:
  replicas: 3
  selector: {{matchLabels: {{app: servers}}}}
  template:
    metadata: {{labels: {{app: servers}}}}
    spec: {{schedulerName: volcano, containers: [{{name: main, image: {image}, command: [none]}}]}}
"#
        )
    };
    let apply = |image: &str| clients.kubectl_with_input(["apply", "-f", "-"], &deployment(image)).ok();
    apply("none");
    wait_for_running(clients, 3);
    apply("newer");
    eventually("all pods are of the new template", || {
        let pods = clients.list("pods");
        let new = pods.iter().filter(|pod| pod["spec"]["containers"][0]["image"] == "newer");
        let running = new.filter(|pod| pod["status"]["phase"] == "Running").count();
        if running == 3 && pods.len() == 3 { Ok(()) } else { Err(format!("{running} of {}", pods.len())) }
    });
}
