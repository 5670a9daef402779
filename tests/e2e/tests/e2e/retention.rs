//! Finished work leaves: the oldest first, by time, as namespaces say; and a log that lost its beginning says so.

use std::time::{Duration, Instant};

use pumice_testkit::{Platform, Setup, eventually};

use crate::procfs::memory_kib;

/// Time for as many jobs as one step of the test of very many makes, on a busy machine.
const STEP_MAX: Duration = Duration::from_secs(1_800);
const JOBS: &str = "jobs.batch.volcano.sh";

fn platform(flags: &[&str]) -> Platform {
    Platform::start(Setup { flags: flags.iter().map(|flag| (*flag).to_owned()).collect() })
}

/// A platform whose nodes only pretend.
fn simulated(flags: &[&str]) -> Platform {
    platform(&[&["--simulated-nodes", "2", "--local-node=false"], flags].concat())
}

/// A job of one pod that lasts a moment on a simulated node.
fn brief(name: &str, namespace: &str, annotations: &str, spec: &str) -> String {
    format!(
        r#"
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {{name: {name}, namespace: {namespace}, annotations: {{{annotations}}}}}
spec:
  minAvailable: 1
{spec}
  tasks:
  - name: w
    replicas: 1
    template:
      metadata: {{annotations: {{pumice.sh/simulated-duration: 10ms}}}}
      spec: {{restartPolicy: Never, containers: [{{name: c, image: none}}]}}
"#
    )
}

/// A pod that runs this, or lasts a moment on a simulated node.
fn pod(name: &str, script: &str) -> String {
    format!(
        r#"
apiVersion: v1
kind: Pod
metadata: {{name: {name}, annotations: {{pumice.sh/simulated-duration: 10ms}}}}
spec: {{restartPolicy: Never, containers: [{{name: c, image: none, command: [sh, -c, "{script}"]}}]}}
"#
    )
}

/// Waits until something holds.
fn holds(what: &str, look: impl Fn() -> bool) {
    eventually(what, || if look() { Ok(()) } else { Err("not yet".to_owned()) });
}

fn apply(platform: &Platform, yaml: &str) {
    let applied = platform.kubectl_with_input(["apply", "-f", "-"], yaml);
    assert_eq!(applied.code, 0, "{applied:?}");
}

/// Names of the jobs of a namespace.
fn jobs(platform: &Platform, namespace: &str) -> Vec<String> {
    let listed = platform.kubectl(["get", JOBS, "-n", namespace, "-o", "jsonpath={.items[*].metadata.name}"]);
    assert_eq!(listed.code, 0, "{listed:?}");
    listed.stdout.split_whitespace().map(str::to_owned).collect()
}

/// Makes a job and waits until it has ended, so that those after it end later.
fn completed(platform: &Platform, name: &str, namespace: &str) {
    apply(platform, &brief(name, namespace, "", ""));
    let ended = || {
        let phase = ["get", JOBS, name, "-n", namespace, "--ignore-not-found", "-o", "jsonpath={.status.state.phase}"];
        matches!(platform.kubectl(phase).stdout.as_str(), "" | "Completed")
    };
    holds("the job ends", ended);
}

#[test]
fn jobs_leave_oldest_first_and_the_history_tells_of_them() {
    let platform = simulated(&["--finished-jobs-max", "2"]);
    apply(&platform, &brief("own-time", "default", "", "  ttlSecondsAfterFinished: 86400"));
    apply(&platform, &brief("short", "default", "", "  ttlSecondsAfterFinished: 0"));
    for name in ["a", "b", "c", "d"] {
        completed(&platform, name, "default");
    }
    holds("two jobs are left, and one that has its own time", || jobs(&platform, "default") == ["c", "d", "own-time"]);
    let gone = platform.jobctl(["get", "a"]);
    assert_eq!(gone.code, 3, "{gone:?}");
    assert!(
        gone.stderr.contains("job a in namespace default ended on ") && gone.stderr.contains("has been removed"),
        "{gone:?}"
    );
    assert!(gone.stderr.contains("next:  jobctl history a"), "{gone:?}");
    let never = platform.jobctl(["get", "never"]);
    assert!(never.stderr.contains("no job never in namespace default"), "{never:?}");
    let history = platform.jobctl(["history", "a"]);
    assert!(history.code == 0 && history.stdout.contains("Completed"), "{history:?}");
    let counted = platform.kubectl(["get", "--raw", "/metrics"]).stdout;
    assert!(counted.contains("apiserver_storage_objects"), "{counted}");
}

#[test]
fn what_others_wait_for_stays_and_namespaces_say_their_own() {
    let mut platform = simulated(&["--finished-ttl", "0s"]);
    assert_eq!(platform.kubectl(["create", "namespace", "team"]).code, 0);
    let annotated = platform.kubectl([
        "annotate",
        "namespace",
        "team",
        "pumice.sh/finished-ttl=off",
        "pumice.sh/finished-jobs-max=1",
    ]);
    assert_eq!(annotated.code, 0, "{annotated:?}");
    let refused = platform.kubectl(["annotate", "--overwrite", "namespace", "team", "pumice.sh/finished-ttl=soon"]);
    assert!(refused.code != 0 && refused.stderr.contains("is no time; try 7d, 12h or off"), "{refused:?}");

    apply(&platform, &brief("next", "default", "pumice.sh/after: 'ok:first,ok:never'", ""));
    apply(&platform, &brief("first", "default", "", ""));
    apply(&platform, &brief("other", "default", "", ""));
    holds("what nobody waits for leaves", || jobs(&platform, "default") == ["first", "next"]);
    for name in ["a", "b", "c"] {
        completed(&platform, name, "team");
    }
    holds("the namespace keeps one", || jobs(&platform, "team") == ["c"]);
    // A restart changes nothing of it.
    assert_eq!(platform.stop(), 0);
    platform.up();
    assert_eq!(
        (jobs(&platform, "default"), jobs(&platform, "team")),
        (vec!["first".to_owned(), "next".to_owned()], vec!["c".to_owned()])
    );
    assert_eq!(platform.kubectl(["delete", JOBS, "next"]).code, 0);
    holds("nobody waits any more", || jobs(&platform, "default").is_empty());
}

#[test]
fn pods_and_events_leave() {
    let platform = simulated(&["--finished-pods-max", "2", "--event-ttl", "1s", "--events-max", "100"]);
    for name in ["p0", "p1", "p2", "p3"] {
        apply(&platform, &pod(name, "true"));
    }
    let count = |kind: &str| platform.kubectl(["get", kind, "-o", "name"]).stdout.lines().count();
    holds("two pods are left", || count("pods") == 2);
    holds("no event is left", || count("events") == 0);
}

#[test]
fn a_log_that_lost_its_beginning_says_so() {
    let platform = platform(&["--container-log-max-size", "64Ki"]);
    apply(&platform, &pod("much", "seq 1 200000"));
    let phase = ["get", "pod", "much", "-o", "jsonpath={.status.phase}"];
    holds("the pod ends", || platform.kubectl(phase).stdout == "Succeeded");
    let log = platform.kubectl(["logs", "much"]).stdout;
    let mut lines = log.lines();
    let said = lines.next().unwrap_or_default();
    let gone: usize = said
        .strip_prefix("[pumice: the first ")
        .and_then(|rest| rest.split(' ').next()?.parse().ok())
        .unwrap_or_else(|| panic!("it begins with {said:?}"));
    let left: Vec<&str> = lines.collect();
    let first: usize = left[0].parse().unwrap();
    assert_eq!(left.last(), Some(&"200000"));
    assert_eq!(left.len(), 200_000 - first + 1, "nothing is missing after it");
    let before: usize = (1..first).map(|number| number.to_string().len() + 1).sum();
    assert_eq!(gone, before);
    assert_eq!(platform.kubectl(["logs", "much", "--tail", "1"]).stdout, "200000\n");
    // A pod that leaves takes what it has on the node along.
    let none = platform.kubectl(["annotate", "namespace", "default", "pumice.sh/finished-pods-max=0"]);
    assert_eq!(none.code, 0, "{none:?}");
    let folders = platform.data_dir().join("node/pods");
    holds("the pod and its folder are gone", || {
        let is_gone = platform.kubectl(["get", "pods", "-o", "name"]).stdout.is_empty();
        is_gone && std::fs::read_dir(&folders).is_ok_and(|mut found| found.next().is_none())
    });
}

/// Very many finished jobs: `PUMICE_RETENTION_JOBS=50000 cargo test --workspace --test e2e retention:: -- --nocapture`.
#[test]
fn memory_and_store_stay_flat_beyond_the_bound() {
    let Some(total) = std::env::var("PUMICE_RETENTION_JOBS").ok().and_then(|text| text.parse::<usize>().ok()) else {
        eprintln!("skipped: set PUMICE_RETENTION_JOBS to a number of jobs, such as 50000");
        return;
    };
    let bound = total / 10;
    let number = bound.to_string();
    let platform = simulated(&[
        "--finished-jobs-max",
        &number,
        "--events-max",
        &number,
        "--simulated-node-shape",
        "cpu=64,memory=256Gi,pods=2000",
    ]);
    let (mut made, mut sizes) = (0, Vec::new());
    while made < total {
        let upto = (made + bound).min(total);
        let yaml: Vec<String> = (made..upto).map(|number| brief(&format!("j{number}"), "default", "", "")).collect();
        for batch in yaml.chunks(500) {
            let created = platform.kubectl_with_input(["create", "-f", "-"], &batch.join("---"));
            assert_eq!(created.code, 0, "{}", created.stderr);
        }
        made = upto;
        let began = Instant::now();
        let pods = ["get", "pods", "--field-selector", "status.phase!=Succeeded", "-o", "name"];
        let is_settled = || {
            platform.kubectl(["get", "podgroups.scheduling.volcano.sh", "-o", "name"]).stdout.is_empty()
                && platform.kubectl(pods).stdout.is_empty()
                && jobs(&platform, "default").len() <= bound
        };
        while !is_settled() {
            assert!(began.elapsed() < STEP_MAX, "not all have ended and left");
            std::thread::sleep(Duration::from_secs(1));
        }
        let memory = memory_kib(platform.pid().expect("it runs"), "VmRSS") >> 10;
        let store = std::fs::metadata(platform.data_dir().join("store.redb")).expect("the store").len() >> 20;
        println!("{made} jobs: {memory} MB resident, store {store} MB, after {:?}", began.elapsed());
        sizes.push((memory, store));
    }
    let ((early_memory, early_store), (memory, store)) = (sizes[sizes.len() / 2], sizes[sizes.len() - 1]);
    assert!(memory < early_memory + early_memory / 4, "memory grew: {sizes:?} MB");
    assert!(store < early_store + early_store / 4 + 16, "the store grew: {sizes:?} MB");
}
