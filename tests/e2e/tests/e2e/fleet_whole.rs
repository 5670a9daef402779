//! Whole Volcano Jobs through a fleet: the real programs, on clusters of simulated nodes and on a platform that runs processes.

use pumice_testkit::{Fleet, Platform, Setup, eventually};
use serde_json::Value;

/// Two tasks that find each other by name; each pod takes so many cores.
fn two_tasks(name: &str, cores: u32, workers: u32, annotations: &str, command: &str) -> String {
    let task = |task: &str, replicas: u32| {
        format!(
            r#"
  - name: {task}
    replicas: {replicas}
    template:
      metadata: {{annotations: {{{annotations}}}}}
      spec:
        restartPolicy: Never
        containers:
        - name: main
          image: busybox
          command: [sh, -c, '{command}']
          resources: {{requests: {{cpu: "{cores}", memory: 32Mi}}}}"#
        )
    };
    format!(
        r#"
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {{name: {name}}}
spec:
  plugins: {{svc: [], env: []}}
  policies: [{{event: PodFailed, action: TerminateJob}}]
  tasks:{}{}
"#,
        task("master", 1),
        task("worker", workers)
    )
}

/// What a fleet told of a job set, by the names of its events.
fn events(fleet: &Fleet, set: &str) -> Vec<String> {
    let identity = fleet.identity(&["--user", "ada"]).display().to_string();
    let url = format!("{}/v1/job-set/research/{set}", fleet.url);
    let flags = ["-sS", "--fail-with-body", "--noproxy", "*", "--cacert", &identity, "--cert", &identity];
    let body = r#"{"watch": false}"#;
    let told = fleet.run(std::path::Path::new("curl"), flags.into_iter().chain(["-d", body, &url]), None).ok();
    let lines = serde_json::Deserializer::from_str(&told).into_iter::<Value>().map(Result::unwrap);
    let name = |line: Value| {
        let message = line.pointer("/result/message").or_else(|| line.get("message")).cloned().unwrap_or_default();
        message.as_object().and_then(|kinds| kinds.keys().next().cloned()).unwrap_or_default()
    };
    lines.map(name).filter(|name| !name.is_empty()).collect()
}

#[test]
fn a_whole_job_runs_in_one_of_the_clusters_to_its_end_once() {
    let fleet = Fleet::up(&["--clusters", "2", "--nodes", "3"]);
    fleet.known().ok();
    let file = |name: &str, text: &str| fleet.file(&format!("{name}.yaml"), text).display().to_string();
    let ends = r#"pumice.sh/simulated-duration: 200ms"#;
    let job = file("train", &two_tasks("train", 1, 3, ends, "true"));
    let run = fleet.jobctl(["run", "-f", &job]);
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(events(&fleet, "train"), ["submitted", "queued", "leased", "pending", "running", "succeeded"]);

    let fails = r#"pumice.sh/simulated-duration: 200ms, pumice.sh/simulated-exit-code: "3""#;
    let job = file("fails", &two_tasks("fails", 1, 1, fails, "true"));
    let run = fleet.jobctl(["run", "-f", &job]);
    assert_eq!(run.code, 3, "{run:?}");
    let told = events(&fleet, "fails");
    assert_eq!(told.iter().filter(|name| *name == "failed").count(), 1, "{told:?}");
    let why = fleet.jobctl(["get", "fails"]);
    assert!(why.stdout.contains("Failed"), "{why:?}");

    // More than any cluster has: it waits as a whole, and says so.
    let job = file("large", &two_tasks("large", 1, 400, ends, "true"));
    fleet.jobctl(["submit", "-f", &job]).ok();
    eventually("it is told why the job waits", || {
        let why = fleet.jobctl(["why", "large"]);
        if why.stdout.contains("401") { Ok(()) } else { Err(format!("{why:?}")) }
    });
    fleet.jobctl(["cancel", "large"]).ok();
    let refused = file("bad", &two_tasks("bad", 1, 1, ends, "true").replace("env: []", "nonsense: []"));
    let refused = fleet.jobctl(["submit", "-f", &refused]);
    assert!(refused.code != 0 && refused.stderr.contains("unable to find job plugin: nonsense"), "{refused:?}");
}

#[test]
fn a_whole_job_is_one_of_its_cluster_and_goes_with_all_it_has() {
    let platform = Platform::start(Setup::default());
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().display().to_string();
    // Pods write into a folder of their node, which both have to grant.
    let access = format!("queueAccess: {{'*': {{hostFolders: [{out}]}}}}\n");
    let fleet = Fleet::server_with(&format!("submission:\n  defaultJobLimits: {{cpu: 1, memory: 1Gi}}\n  {access}"));
    fleet.known().ok();
    let _executor = fleet.executor_with("east", &platform.data_dir().join("kubeconfig"), &access);
    let file = |name: &str, text: &str| fleet.file(&format!("{name}.yaml"), text).display().to_string();
    let of_platform = |flags: &[&str]| platform.jobctl(flags).ok();
    let small =
        |text: String| text.replace("cpu: \"0\"", "cpu: 100m").replace("image: busybox", "image: pumice.sh/host");

    // The pods see each other's names.
    let command = format!("echo $VC_WORKER_HOSTS > {out}/$VC_TASK_INDEX-$HOSTNAME");
    let mounted = |text: String| {
        let volume = format!(
            "        volumes: [{{name: out, hostPath: {{path: {out}}}}}]\n        containers:\n        - name: main\n          \
             volumeMounts: [{{name: out, mountPath: {out}}}]"
        );
        text.replace("        containers:\n        - name: main", &volume)
    };
    let job = file("hosts", &mounted(small(two_tasks("hosts", 0, 2, "", &command))));
    let run = fleet.jobctl(["run", "-f", &job]);
    assert_eq!(run.code, 0, "{run:?}");
    let told: Vec<String> = std::fs::read_dir(&out)
        .unwrap()
        .filter_map(|entry| std::fs::read_to_string(entry.unwrap().path()).ok())
        .filter(|text| text.contains("worker"))
        .collect();
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told.iter().all(|hosts| hosts.contains("-worker-0.armada-") && hosts.contains("-worker-1.")), "{told:?}");
    assert_eq!(events(&fleet, "hosts").iter().filter(|name| *name == "succeeded").count(), 1);

    // One that fails says which pod it was, and how.
    let job = file("fails", &small(two_tasks("fails", 0, 1, "", "exit 7")));
    let run = fleet.jobctl(["run", "-f", &job]);
    assert!(run.code == 7 && run.stderr.contains("exit code 7"), "{run:?}");

    // One that is cancelled takes its pods with it.
    let job = file("long", &small(two_tasks("long", 0, 2, "", "sleep 1000")));
    fleet.jobctl(["submit", "-f", &job]).ok();
    eventually("the job runs", || {
        let phase = fleet.jobctl(["get", "long", "-o", "json"]).stdout;
        if phase.contains("\"phase\": \"Running\"") { Ok(()) } else { Err(phase) }
    });
    let pods = || {
        let listed: Value = serde_json::from_str(&platform.kubectl(["get", "pods", "-o", "json"]).ok()).unwrap();
        let pods = listed["items"].as_array().cloned().unwrap_or_default();
        pods.into_iter().filter(|pod| pod["status"]["phase"] == "Running").count()
    };
    assert_eq!(pods(), 3);
    assert!(of_platform(&["list"]).contains("armada-"));
    fleet.jobctl(["cancel", "long"]).ok();
    eventually("all of it is gone", || match (pods(), platform.jobctl(["list"]).stdout) {
        (0, listed) if !listed.contains("Running") => Ok(()),
        left => Err(format!("{left:?}")),
    });
    assert_eq!(events(&fleet, "long").iter().filter(|name| *name == "cancelled").count(), 1);
}
