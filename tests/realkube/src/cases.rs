//! The cases, one function each, and the list of them.

mod gangs;
mod job_watch;
mod live;
mod owners;
mod parts;
mod patches;
mod phases;
mod sequences;

pub use gangs::{
    a_deployment_whose_pods_are_a_gang_is_rolled_out, a_driver_gets_the_room_of_its_executors,
    a_group_that_has_ended_stays_so_without_its_pods, a_queue_that_closes_ends_what_it_has_admitted,
    tasks_that_depend_on_others_start_after_them,
};
pub use live::{
    a_flow_makes_a_job_again_that_has_failed, a_job_fails_when_its_time_is_over, a_job_is_suspended_by_its_spec,
    a_live_job_changes_what_needs_no_other_pods, a_new_job_says_soon_that_it_waits,
    a_queue_runs_so_many_jobs_at_a_time, pods_that_wait_leave_first_if_a_job_says_so,
};
pub use owners::{
    custom_resources_are_applied_too, items_of_lists_have_owners_of_their_own, managers_own_what_they_apply,
};
pub use parts::{kinds_that_schedulers_list_are_served, objects_have_the_parts_that_go_writes};
pub use patches::{patches_of_built_in_kinds_merge_lists_by_key, patches_that_make_no_sense_are_refused};
pub use phases::each_phase_is_told_with_its_counts;
use pumice_testkit::{Clients, eventually};
pub use sequences::each_phase_is_told_whatever_happens_in_a_row;
use serde_json::Value;

/// Makes a test of each case. `$start` is a function from the case's name to something that gives [`Clients`] by reference.
#[macro_export]
macro_rules! on_each_case {
    ($start:expr) => {
        $crate::on_each_case! { $start;
            a_job_runs_and_completes
            a_job_that_says_little_runs_too
            plugins_make_their_objects_and_deletion_takes_them
            suspend_and_resume
            a_job_is_suspended_by_its_spec
            a_job_fails_when_its_time_is_over
            a_queue_runs_so_many_jobs_at_a_time
            a_live_job_changes_what_needs_no_other_pods
            a_new_job_says_soon_that_it_waits
            a_flow_makes_a_job_again_that_has_failed
            pods_that_wait_leave_first_if_a_job_says_so
            each_phase_is_told_with_its_counts
            each_phase_is_told_whatever_happens_in_a_row
            tasks_that_depend_on_others_start_after_them
            a_driver_gets_the_room_of_its_executors
            a_group_that_has_ended_stays_so_without_its_pods
            a_queue_that_closes_ends_what_it_has_admitted
            a_deployment_whose_pods_are_a_gang_is_rolled_out
            a_failed_pod_starts_the_job_again_until_its_tries_are_used_up
            a_pod_killed_for_memory_fails_its_job
            a_pod_killed_for_memory_gets_more_until_its_tries_are_used_up
            a_deleted_pod_is_replaced
            an_evicted_pod_starts_the_job_again_if_the_policy_says_so
            a_running_job_grows_and_shrinks
            a_job_that_no_queue_holds_waits_and_says_why
            a_job_of_higher_priority_takes_the_room_of_another
            a_finished_job_goes_after_its_time
            what_a_job_leaves_out_is_filled_in
            a_job_that_makes_no_sense_is_refused_in_volcanos_words
            a_queue_that_makes_no_sense_is_refused
            a_job_sent_right_after_its_queue_finds_it
            a_manifest_applied_again_changes_nothing
            pods_alone_get_their_groups_after_they_were_placed
            a_pod_is_told_that_its_group_does_not_exist
            patches_of_built_in_kinds_merge_lists_by_key
            patches_that_make_no_sense_are_refused
            managers_own_what_they_apply
            items_of_lists_have_owners_of_their_own
            custom_resources_are_applied_too
            objects_have_the_parts_that_go_writes
            kinds_that_schedulers_list_are_served
        }
    };
    ($start:expr; $($case:ident)+) => {
        $(
            #[test]
            fn $case() {
                $crate::cases::$case(&$start(stringify!($case)));
            }
        )+
    };
}

/// A complete manifest of a job. `task` is what its one task `w` has beside its template, `pod` its pod's annotations.
fn job(name: &str, spec: &str, task: &str, pod: &str) -> String {
    with_pod(name, spec, task, pod, "restartPolicy: Never", "1")
}

fn with_pod(name: &str, spec: &str, task: &str, annotations: &str, pod: &str, cpu: &str) -> String {
    format!(
        r#"
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {{name: {name}}}
spec:
  schedulerName: volcano
  {spec}
  tasks:
  - name: w
    {task}
    template:
      metadata: {{annotations: {{{annotations}}}}}
      spec:
        {pod}
        containers: [{{name: main, image: none, command: [none], resources: {{requests: {{cpu: "{cpu}"}}}}}}]
"#
    )
}

fn create(clients: &Clients, manifest: &str) {
    clients.kubectl_with_input(["create", "-f", "-"], manifest).ok();
}

fn command(clients: &Clients, job: &str, action: &str) {
    create(clients, &command_of(job, action));
}

/// A manifest of a Command, one of several in a file.
fn command_of(job: &str, action: &str) -> String {
    format!(
        r#"---
apiVersion: bus.volcano.sh/v1alpha1
kind: Command
metadata: {{generateName: "{job}-"}}
action: {action}
target: {{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, name: {job}, uid: ""}}
"#
    )
}

fn pods_in(clients: &Clients, phase: &str) -> usize {
    let pods = clients.list("pods");
    pods.iter().filter(|pod| pod["status"]["phase"] == phase && !is_leaving(pod)).count()
}

fn is_leaving(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

fn wait_for_running(clients: &Clients, wanted: usize) {
    eventually(&format!("{wanted} pods run"), || match pods_in(clients, "Running") {
        found if found == wanted => Ok(()),
        found => Err(format!("{found} run")),
    });
}

fn status(job: &Value, name: &str) -> i64 {
    job["status"][name].as_i64().unwrap_or(0)
}

/// What the conditions of all pod groups say.
fn group_conditions(clients: &Clients) -> String {
    clients
        .list("podgroups.scheduling.volcano.sh")
        .iter()
        .map(|group| group["status"]["conditions"].to_string())
        .collect()
}

/// One-pod tasks, bound to nodes by our scheduler.
pub fn a_job_runs_and_completes(clients: &Clients) {
    let task = |name: &str| {
        format!(
            r#"
  - name: {name}
    replicas: 1
    minAvailable: 1
    template:
      metadata: {{annotations: {{pumice.sh/simulated-duration: 2s}}}}
      spec: {{restartPolicy: Never, containers: [{{name: main, image: none, command: [none]}}]}}"#
        )
    };
    let tasks = ["a", "b", "c"].map(task).concat();
    let job = format!(
        "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {{name: three}}\nspec:\n  schedulerName: volcano\n  \
         queue: default\n  minAvailable: 3\n  maxRetry: 3\n  tasks:{tasks}\n"
    );
    create(clients, &job);
    clients.wait_for_phase("three", "Running");
    for pod in clients.list("pods") {
        assert!(pod["spec"]["nodeName"].as_str().is_some_and(|node| node.starts_with("sim-")), "{pod}");
    }
    let job = clients.wait_for_phase("three", "Completed");
    assert_eq!((status(&job, "succeeded"), status(&job, "retryCount")), (3, 0), "{}", job["status"]);
}

/// Two tasks, nothing else.
pub fn a_job_that_says_little_runs_too(clients: &Clients) {
    let task = "{replicas: 1, template: {metadata: {annotations: {pumice.sh/simulated-duration: 1s}}, spec: {restartPolicy: \
                Never, containers: [{name: main, image: none, command: [none]}]}}}";
    create(
        clients,
        &format!(
            "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {{name: little}}\nspec: {{tasks: [{task}, {task}]}}\n"
        ),
    );
    let job = clients.wait_for_phase("little", "Completed");
    assert_eq!(status(&job, "succeeded"), 2, "{}", job["status"]);
    for name in ["little-default0-0", "little-default1-0"] {
        assert!(clients.get("pod", name).is_some(), "{name} of {:?}", clients.list("pods"));
    }
}

/// `env`, `svc`, `ssh`; everything of a job carries it as its owner.
pub fn plugins_make_their_objects_and_deletion_takes_them(clients: &Clients) {
    let spec = "minAvailable: 2\n  plugins: {env: [], svc: [], ssh: []}";
    create(clients, &job("gang", spec, "replicas: 2", ""));
    clients.wait_for_phase("gang", "Running");
    let pod = clients.get("pod", "gang-w-1").expect("the second pod");
    assert_eq!(pod["spec"]["hostname"], "gang-w-1");
    assert_eq!(pod["spec"]["subdomain"], "gang");
    let variables = pod["spec"]["containers"][0]["env"].to_string();
    assert!(variables.contains("VC_TASK_INDEX") && variables.contains("VC_W_HOSTS"), "{variables}");
    let service = clients.get("service", "gang").expect("the service of plugin svc");
    assert_eq!(service["spec"]["clusterIP"], "None");
    let hosts = clients.get("configmap", "gang-svc").expect("the hosts of plugin svc");
    assert_eq!(hosts["data"]["w.host"], "gang-w-0.gang\ngang-w-1.gang", "{hosts}");
    assert!(clients.get("secret", "gang-ssh").is_some(), "the keys of plugin ssh");

    clients.kubectl(["delete", "jobs.batch.volcano.sh", "gang"]).ok();
    for kind in ["pods", "podgroups.scheduling.volcano.sh", "secrets", "services", "configmaps"] {
        eventually(&format!("no {kind} of the job are left"), || {
            let left: Vec<_> =
                clients.list(kind).into_iter().map(|object| object["metadata"]["name"].clone()).collect();
            let ours = |name: &Value| name.as_str().is_some_and(|name| name.starts_with("gang"));
            if left.iter().any(ours) { Err(format!("{left:?}")) } else { Ok(()) }
        });
    }
}

/// By Volcano's Commands.
pub fn suspend_and_resume(clients: &Clients) {
    create(clients, &job("pause", "minAvailable: 2", "replicas: 2", ""));
    clients.wait_for_phase("pause", "Running");
    command(clients, "pause", "AbortJob");
    clients.wait_for_phase("pause", "Aborted");
    eventually("its pods are gone", || match clients.list("pods").len() {
        0 => Ok(()),
        n => Err(format!("{n} pods")),
    });
    assert!(clients.list("commands").is_empty(), "a Command is taken off the bus");
    command(clients, "pause", "ResumeJob");
    clients.wait_for_phase("pause", "Running");
    wait_for_running(clients, 2);
}

/// The policy `RestartJob`, up to `maxRetry`.
pub fn a_failed_pod_starts_the_job_again_until_its_tries_are_used_up(clients: &Clients) {
    let spec = "minAvailable: 1\n  maxRetry: 2\n  policies: [{event: PodFailed, action: RestartJob}]";
    let pod = r#"pumice.sh/simulated-duration: 1s, pumice.sh/simulated-exit-code: "3""#;
    create(clients, &job("again", spec, "replicas: 1", pod));
    let job = clients.wait_for_phase("again", "Failed");
    assert_eq!(status(&job, "retryCount"), 2, "{}", job["status"]);
    assert!(status(&job, "version") >= 1, "{}", job["status"]);
}

/// As a kubelet tells it: OOMKilled and 137.
pub fn a_pod_killed_for_memory_fails_its_job(clients: &Clients) {
    let pod = r#"pumice.sh/simulated-duration: 1s, pumice.sh/simulated-oom: "true""#;
    create(clients, &job("greedy", "minAvailable: 1", "replicas: 1", pod));
    clients.wait_for_phase("greedy", "Failed");
    let pod = clients.get("pod", "greedy-w-0").expect("a failed pod stays");
    let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((ended["reason"].as_str(), ended["exitCode"].as_i64()), (Some("OOMKilled"), Some(137)), "{pod}");
}

/// ScaleUpMemory, by the annotation that any definition of Jobs keeps.
pub fn a_pod_killed_for_memory_gets_more_until_its_tries_are_used_up(clients: &Clients) {
    let manifest = r#"
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: hungry, annotations: {pumice.sh/on-oom: "step=64Mi,tries=2"}}
spec:
  schedulerName: volcano
  minAvailable: 1
  tasks:
  - name: w
    replicas: 1
    template:
      metadata: {annotations: {pumice.sh/simulated-duration: 1s, pumice.sh/simulated-oom: "true"}}
      spec:
        restartPolicy: Never
        containers: [{name: main, image: none, command: [none], resources: {limits: {cpu: "1", memory: 64Mi}}}]
"#;
    create(clients, manifest);
    let job = clients.wait_for_phase("hungry", "Failed");
    assert_eq!((status(&job, "retryCount"), status(&job, "version")), (0, 0), "{}", job["status"]);
    let pod = clients.get("pod", "hungry-w-0").expect("the last one stays");
    assert_eq!(pod["spec"]["containers"][0]["resources"]["limits"]["memory"], "192Mi", "{pod}");
    eventually("it is told why there is no more", || {
        let told = clients.list("events").into_iter().filter(|event| event["reason"] == "MemoryNotRaised");
        let texts: Vec<String> = told.map(|event| event["message"].to_string()).collect();
        if texts.iter().any(|text| text.contains("raised 2 times")) { Ok(()) } else { Err(format!("{texts:?}")) }
    });
}

/// No policy: another pod of that name.
pub fn a_deleted_pod_is_replaced(clients: &Clients) {
    create(clients, &job("whole", "minAvailable: 2", "replicas: 2", ""));
    clients.wait_for_phase("whole", "Running");
    let uid = |clients: &Clients| clients.get("pod", "whole-w-0").map(|pod| pod["metadata"]["uid"].clone());
    let first = uid(clients).expect("the first pod");
    clients.kubectl(["delete", "pod", "whole-w-0", "--wait=false"]).ok();
    eventually("another pod of that name", || match uid(clients) {
        Some(now) if now != first => Ok(()),
        now => Err(format!("{now:?}")),
    });
    wait_for_running(clients, 2);
    let job = clients.wait_for_phase("whole", "Running");
    assert_eq!((status(&job, "retryCount"), status(&job, "version")), (0, 0), "{}", job["status"]);
}

/// RestartJob on PodEvicted: all pods are made anew.
pub fn an_evicted_pod_starts_the_job_again_if_the_policy_says_so(clients: &Clients) {
    let spec = "minAvailable: 2\n  policies: [{event: PodEvicted, action: RestartJob}]";
    create(clients, &job("moved", spec, "replicas: 2", ""));
    clients.wait_for_phase("moved", "Running");
    let stays = clients.get("pod", "moved-w-1").expect("the second pod")["metadata"]["uid"].clone();
    clients.kubectl(["delete", "pod", "moved-w-0", "--wait=false"]).ok();
    eventually("the other pod is made anew, too", || match clients.get("pod", "moved-w-1") {
        Some(pod) if pod["metadata"]["uid"] != stays => Ok(()),
        other => Err(format!("{}", other.is_some())),
    });
    wait_for_running(clients, 2);
    let job = clients.wait_for_phase("moved", "Running");
    assert_eq!(status(&job, "version"), 1, "{}", job["status"]);
}

/// The hosts file of the plugin `svc` follows the number of pods.
pub fn a_running_job_grows_and_shrinks(clients: &Clients) {
    let spec = "minAvailable: 1\n  plugins: {svc: []}";
    create(clients, &job("elastic", spec, "replicas: 2\n    minAvailable: 1", ""));
    clients.wait_for_phase("elastic", "Running");
    wait_for_running(clients, 2);
    for (replicas, hosts) in [(4, 4), (1, 1)] {
        let patch = format!(r#"[{{"op": "replace", "path": "/spec/tasks/0/replicas", "value": {replicas}}}]"#);
        clients.kubectl(["patch", "jobs.batch.volcano.sh", "elastic", "--type=json", "-p", &patch]).ok();
        wait_for_running(clients, replicas);
        eventually("the hosts follow", || {
            let map = clients.get("configmap", "elastic-svc").ok_or("no hosts")?;
            let lines = map["data"]["w.host"].as_str().unwrap_or_default().lines().count();
            if lines == hosts { Ok(()) } else { Err(format!("{lines} hosts")) }
        });
    }
}

/// The reason stands on the pod group; a larger queue lets the job start.
pub fn a_job_that_no_queue_holds_waits_and_says_why(clients: &Clients) {
    create(
        clients,
        "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: narrow}\nspec: {weight: 1, capability: {cpu: 1}}\n",
    );
    create(clients, &job("wide", "queue: narrow\n  minAvailable: 2", "replicas: 2", ""));
    eventually("the group says why it waits", || match group_conditions(clients) {
        told if told.contains("narrow") && told.contains("cpu") => Ok(()),
        told => Err(told),
    });
    assert_eq!(clients.list("pods").len(), 0, "a job that waits has no pods");
    let patch = r#"{"spec": {"capability": {"cpu": 4}}}"#;
    clients.kubectl(["patch", "queues", "narrow", "--type=merge", "-p", patch]).ok();
    clients.wait_for_phase("wide", "Running");
}

/// On one node, so that nobody else's pods are in it.
pub fn a_job_of_higher_priority_takes_the_room_of_another(clients: &Clients) {
    create(clients, "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: urgent}\nvalue: 1000\n");
    let pod = |class: &str| {
        format!("restartPolicy: Never\n        nodeSelector: {{kubernetes.io/hostname: sim-00009}}{class}")
    };
    let annotations = r#"volcano.sh/preemptable: "true""#;
    create(clients, &with_pod("patient", "minAvailable: 1", "replicas: 1", annotations, &pod(""), "20"));
    clients.wait_for_phase("patient", "Running");
    let urgent = pod("\n        priorityClassName: urgent");
    let spec = "minAvailable: 1\n  priorityClassName: urgent";
    create(clients, &with_pod("hasty", spec, "replicas: 1", "", &urgent, "20"));
    clients.wait_for_phase("hasty", "Running");
    eventually("the other one waits again", || match pods_in(clients, "Pending") {
        1 => Ok(()),
        n => Err(format!("{n} pods wait")),
    });
    clients.kubectl(["delete", "jobs.batch.volcano.sh", "hasty"]).ok();
    wait_for_running(clients, 1);
}

/// `ttlSecondsAfterFinished`.
pub fn a_finished_job_goes_after_its_time(clients: &Clients) {
    let spec = "minAvailable: 1\n  ttlSecondsAfterFinished: 1";
    create(clients, &job("brief", spec, "replicas: 1", "pumice.sh/simulated-duration: 1s"));
    eventually("the job was there and is gone", || match clients.get("jobs.batch.volcano.sh", "brief") {
        None => Ok(()),
        Some(job) => Err(job["status"]["state"].to_string()),
    });
    eventually("so are its pods", || match clients.list("pods").len() {
        0 => Ok(()),
        n => Err(format!("{n} pods")),
    });
}

const LITTLE: &str = r#"
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: little}
spec:
  plugins: {pytorch: []}
  tasks:
  - {replicas: 2, template: {spec: {hostNetwork: true, containers: [{name: main, image: none}]}}}
  - {replicas: 1, minAvailable: 0, template: {spec: {containers: [{name: main, image: none}]}}}
"#;

/// By admission, before anybody sees it.
pub fn what_a_job_leaves_out_is_filled_in(clients: &Clients) {
    let text = clients.kubectl_with_input(["create", "--dry-run=server", "-o", "json", "-f", "-"], LITTLE).ok();
    let job: Value = serde_json::from_str(&text).expect("JSON");
    let spec = &job["spec"];
    assert_eq!((&spec["queue"], &spec["schedulerName"]), (&"default".into(), &"volcano".into()), "{job}");
    assert_eq!((&spec["minAvailable"], &spec["maxRetry"]), (&2.into(), &3.into()), "{job}");
    assert!(spec["plugins"].get("svc").is_some(), "pytorch implies svc: {job}");
    let [first, second] = &spec["tasks"].as_array().expect("tasks")[..] else { panic!("{job}") };
    assert_eq!((&first["name"], &second["name"]), (&"default0".into(), &"default1".into()), "{job}");
    assert_eq!((&first["minAvailable"], &second["minAvailable"]), (&2.into(), &0.into()), "{job}");
    assert_eq!(first["template"]["spec"]["dnsPolicy"], "ClusterFirstWithHostNet", "{job}");
    assert_eq!(job["metadata"]["annotations"]["pumice.sh/user"], "pumice:administrator", "{job}");
}

fn refused(clients: &Clients, manifest: &str) -> String {
    let output = clients.kubectl_with_input(["create", "-f", "-"], manifest);
    assert_eq!(output.code, 1, "{output:?}");
    output.stderr
}

/// All reasons at once.
pub fn a_job_that_makes_no_sense_is_refused_in_volcanos_words(clients: &Clients) {
    let told = refused(clients, &job("senseless", "minAvailable: 7\n  queue: nowhere", "replicas: 2", ""));
    for words in [
        "admission webhook \"validatejob.volcano.sh\" denied the request: ",
        "job 'minAvailable' should not be greater than total replicas in tasks;",
        "unable to find job queue: queue.scheduling.volcano.sh \"nowhere\" not found;",
    ] {
        assert_eq!(told.matches(words).count(), 1, "{words}: {told}");
    }
    let policies =
        "minAvailable: 1\n  policies: [{event: PodFailed, action: RestartJob}, {event: PodFailed, action: AbortJob}]";
    let told = refused(clients, &job("senseless", policies, "replicas: 2", ""));
    assert!(told.contains("duplicate event PodFailed  across different policy"), "{told}");
    assert!(clients.get("jobs.batch.volcano.sh", "senseless").is_none());

    // A job that is there can grow, but not become another one.
    create(clients, &job("fixed", "minAvailable: 1", "replicas: 1", ""));
    let change =
        |patch: &str| clients.kubectl(["patch", "jobs.batch.volcano.sh", "fixed", "--type=merge", "-p", patch]);
    let output = change(r#"{"spec": {"plugins": {"svc": []}}}"#);
    assert!(output.stderr.contains("job updates may not change fields other than `minAvailable`"), "{output:?}");
    let output = change(r#"{"metadata": {"annotations": {"pumice.sh/user": "bob"}}}"#);
    assert!(output.stderr.contains("is written by the platform"), "{output:?}");
    change(r#"{"metadata": {"labels": {"any": "thing"}}}"#).ok();
}

/// Alone, and beside others.
pub fn a_queue_that_makes_no_sense_is_refused(clients: &Clients) {
    let queue = |name: &str, spec: &str| {
        format!("apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {{name: {name}}}\nspec: {spec}\n")
    };
    let told = refused(clients, &queue("greedy", "{guarantee: {resource: {cpu: 3}}, deserved: {cpu: 2}}"));
    assert!(told.contains("\"validatequeue.volcano.sh\" denied the request") && told.contains("guarantee"), "{told}");
    create(clients, &queue("parent-of-some", "{capability: {cpu: 4}}"));
    let told = refused(clients, &queue("child-of-some", "{parent: parent-of-some, capability: {cpu: 8}}"));
    assert!(told.contains("exceeds its ancestor's capability"), "{told}");
    create(clients, &queue("child-of-some", "{parent: parent-of-some, capability: {cpu: 2}}"));
    let found = clients.get("queue", "child-of-some").expect("the queue");
    assert_eq!((&found["spec"]["weight"], &found["spec"]["reclaimable"]), (&1.into(), &true.into()), "{found}");
    for (name, words) in [("parent-of-some", "has 1 child queues"), ("root", "can not be deleted")] {
        let output = clients.kubectl(["delete", "queue", name, "--wait=false"]);
        assert!(output.stderr.contains(words), "{name}: {output:?}");
    }
    let told = refused(clients, &job("high-up", "queue: parent-of-some\n  minAvailable: 1", "replicas: 1", ""));
    assert!(told.contains("can only submit job to leaf queue"), "{told}");
    clients.kubectl(["delete", "queue", "child-of-some"]).ok();
}

/// However fast; watches may lag behind.
pub fn a_job_sent_right_after_its_queue_finds_it(clients: &Clients) {
    let both: Vec<String> = (0..20)
        .map(|round| {
            let queue = format!(
                "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {{name: new-{round}}}\nspec: {{weight: 1}}\n"
            );
            let job = job(&format!("quick-{round}"), &format!("queue: new-{round}\n  minAvailable: 1"), "replicas: 1", "");
            format!("{queue}---{job}")
        })
        .collect();
    create(clients, &both.join("---\n"));
}

/// What was filled in is not in the manifest, and is no change.
pub fn a_manifest_applied_again_changes_nothing(clients: &Clients) {
    let manifest = LITTLE.replace("little", "applied");
    let apply = |manifest: &str| clients.kubectl_with_input(["apply", "-f", "-"], manifest).ok();
    assert!(apply(&manifest).contains("created"));
    let generation =
        || clients.get("jobs.batch.volcano.sh", "applied").expect("the job")["metadata"]["generation"].clone();
    let first = generation();
    apply(&manifest);
    assert_eq!(generation(), first);
    apply(&manifest.replace("replicas: 2", "replicas: 3"));
    assert_ne!(generation(), first);
}

/// Each a group of one, which goes with it.
pub fn pods_alone_get_their_groups_after_they_were_placed(clients: &Clients) {
    let pod = |name: &str| {
        format!(
            r#"
---
apiVersion: v1
kind: Pod
metadata: {{name: {name}, annotations: {{scheduling.volcano.sh/queue-name: default}}}}
spec: {{schedulerName: volcano, restartPolicy: Never, containers: [{{name: main, image: none, resources: {{requests: {{cpu: 1}}}}}}]}}"#
        )
    };
    create(clients, &["one", "two", "three"].map(pod).concat());
    wait_for_running(clients, 3);
    eventually("each pod has a running group of its own", || {
        for pod in clients.list("pods") {
            let group = format!("podgroup-{}", pod["metadata"]["uid"].as_str().unwrap_or_default());
            let told = &pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"];
            let made = clients.get("podgroups.scheduling.volcano.sh", &group).ok_or(format!("no {group}"))?;
            if *told != group || made["status"]["phase"] != "Running" {
                return Err(format!("{told} {}", made["status"]));
            }
        }
        Ok(())
    });
    clients.kubectl(["delete", "pod", "one", "--wait=false"]).ok();
    eventually("its group goes with it", || match clients.list("podgroups.scheduling.volcano.sh").len() {
        2 => Ok(()),
        n => Err(format!("{n} groups")),
    });
}

/// And is placed when it does.
pub fn a_pod_is_told_that_its_group_does_not_exist(clients: &Clients) {
    let pod = r#"
apiVersion: v1
kind: Pod
metadata: {name: early, annotations: {scheduling.k8s.io/group-name: late}}
spec: {schedulerName: volcano, restartPolicy: Never, containers: [{name: main, image: none, resources: {requests: {cpu: 1}}}]}"#;
    create(clients, pod);
    eventually("the pod says what it waits for", || {
        let pod = clients.get("pods", "early").ok_or("no pod")?;
        match pod["status"]["conditions"].to_string() {
            text if text.contains("late does not exist: create it") => Ok(()),
            text => Err(text),
        }
    });
    let group = r#"
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {name: late}
spec: {minMember: 1}"#;
    create(clients, group);
    wait_for_running(clients, 1);
}
