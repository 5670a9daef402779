//! Jobs whose bundle is in ConfigMaps, through the real programs. A platform that is named by its kubeconfig counts as another
//! cluster. Its pods are simulated, and the test runs their commands, with the kubeconfig in the place of a token. What a token may
//! do is for the tests on a real Kubernetes.

use std::path::PathBuf;

use pumice_testkit::{Output, Platform, Setup, eventually};
use serde_json::{Value, json};

/// A platform as somebody else's cluster.
struct Elsewhere {
    platform: Platform,
    kubeconfig: PathBuf,
}

impl Elsewhere {
    fn new() -> Elsewhere {
        let flags = ["--local-node", "false", "--simulated-nodes", "1"].map(str::to_owned).to_vec();
        let platform = Platform::start(Setup { flags });
        let kubeconfig = platform.data_dir().join("kubeconfig");
        Elsewhere { platform, kubeconfig }
    }

    /// Goes on as somebody who may submit jobs, but give nobody rights.
    fn become_who_makes_no_roles(&mut self) {
        let kubectl = |args: &[&str]| self.platform.kubectl(args).ok();
        kubectl(&["create", "serviceaccount", "ann"]);
        let all = "--verb=get,list,watch,create,update,patch,delete";
        kubectl(&["create", "role", "ann", all, "--resource=jobs.batch.volcano.sh,configmaps,pods"]);
        kubectl(&["create", "rolebinding", "ann", "--role=ann", "--serviceaccount=default:ann"]);
        let token = kubectl(&["create", "token", "ann"]);
        let own = self.platform.scratch().join("ann.kubeconfig");
        std::fs::copy(&self.kubeconfig, &own).unwrap();
        let file = format!("--kubeconfig={}", own.display());
        kubectl(&["config", &file, "set-credentials", "ann", &format!("--token={}", token.trim())]);
        kubectl(&["config", &file, "set-context", "--current", "--user=ann"]);
        self.kubeconfig = own;
    }

    /// Runs `jobctl` as who has the kubeconfig.
    fn jobctl(&self, args: &[&str]) -> Output {
        let flags = ["--kubeconfig", self.kubeconfig.to_str().unwrap()];
        self.platform.jobctl([&flags, args].concat())
    }

    /// Runs the command of each of a job's pods, and gives their exit codes.
    fn run_pods(&self, job: &str, pods: u32) -> Vec<i32> {
        let job = self.platform.get("jobs.batch.volcano.sh", job).unwrap();
        (0..pods).map(|index| self.platform.run_shard(&job, index, &self.kubeconfig).code).collect()
    }

    /// Waits until nothing of any bundle is left.
    fn all_gone(&self) {
        for kind in ["configmaps", "serviceaccounts", "roles", "rolebindings"] {
            eventually(&format!("{kind} of bundles are gone"), || match self.bundled(kind).len() {
                0 => Ok(()),
                some => Err(format!("{some} are left")),
            });
        }
    }

    fn bundled(&self, kind: &str) -> Vec<Value> {
        let mut objects = self.platform.list(kind);
        objects.retain(|object| object["metadata"]["labels"]["pumice.sh/bundle"].is_string());
        objects
    }
}

#[test]
fn rows_reach_pods_and_results_come_back_by_config_maps() {
    let there = Elsewhere::new();
    let rows: String = (0..10).map(|row| format!("run-{row},{row}\n")).collect();
    let table = there.platform.file("grid.csv", format!("name,x\n{rows}"));
    let script = "test -z \"$PUMICE_CHECKPOINT\" || exit 9; echo $1 >> ran; \
        case $1 in run-3|run-8) test $PUMICE_ATTEMPT -gt 1 || exit 7;; esac; \
        echo $((PUMICE_PARAM_X * PUMICE_PARAM_X)) > $PUMICE_RESULT";
    let table = ["--params", table.to_str().unwrap(), "--key", "name", "--rows-per-task", "4"];
    let command = ["--", "sh", "-c", script, "sh", "{key}"];
    there.jobctl(&[&["submit", "--name", "grid"], &table[..], &command].concat()).ok();
    assert_eq!(there.run_pods("grid", 3), [7, 0, 7]);
    let account = there.platform.get("jobs.batch.volcano.sh", "grid").unwrap();
    let account = account["spec"]["tasks"][0]["template"]["spec"]["serviceAccountName"].as_str().unwrap().to_owned();
    // The anchor, the leaf, the root; and one entry for each pod, however many records it has.
    for (kind, wanted) in [("configmaps", 6), ("serviceaccounts", 1), ("roles", 1), ("rolebindings", 1)] {
        let found = there.bundled(kind);
        assert!(found.iter().all(|object| object["metadata"]["labels"]["pumice.sh/bundle"] == account.as_str()));
        assert_eq!(found.len(), wanted, "{kind}");
    }
    assert_eq!(there.jobctl(&["results", "grid", "--failed", "-o", "keys"]).ok(), "run-3\nrun-8\n");
    there.jobctl(&["cancel", "grid"]).ok();
    let told = there.jobctl(&["get", "grid"]).ok();
    assert!(told.contains("job grid: 8 of 10 records succeeded; failed: run-3, run-8\n"), "{told}");

    assert_eq!(there.jobctl(&["retry", "grid"]).ok(), "job/grid-r2\n");
    assert_eq!(there.run_pods("grid-r2", 3), [0, 0, 0]);
    let ran = std::fs::read_to_string(there.platform.scratch().join("ran")).unwrap();
    assert_eq!(ran.lines().count(), 12, "only what failed ran again: {ran}");
    // The bundle belongs to both jobs.
    there.platform.kubectl(["delete", "jobs.batch.volcano.sh", "grid"]).ok();
    let json = there.jobctl(&["results", "grid-r2", "-o", "json"]).ok();
    let squares = json.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["result"].clone());
    assert!(squares.eq((0..10).map(|row| json!((row * row).to_string()))), "{json}");
    there.platform.kubectl(["delete", "jobs.batch.volcano.sh", "grid-r2"]).ok();
    there.all_gone();
}

#[test]
fn a_key_leaves_one_bundle_and_a_failed_submission_none() {
    let there = Elsewhere::new();
    let submit = |flags: &[&str], program: &str| {
        there.jobctl(&[&["submit", "--array", "0-1"], flags, &["--", program]].concat())
    };
    let nightly = ["--idempotency-key", "nightly"];
    let name = submit(&nightly, "true").ok();
    assert_eq!(submit(&nightly, "true").ok(), name, "the same again is the job that is there");
    for (flags, program, code) in [(&nightly[..], "false", 6), (&["--queue", "nowhere"], "true", 3)] {
        let refused = submit(flags, program);
        assert_eq!(refused.code, code, "{refused:?}");
    }
    eventually("one bundle is left", || match there.bundled("rolebindings").len() {
        1 => Ok(()),
        some => Err(format!("{some} are left")),
    });
    let name = name.trim().trim_start_matches("job/");
    assert_eq!(there.run_pods(name, 2), [0, 0]);
    assert_eq!(there.jobctl(&["results", name, "-o", "keys"]).ok(), "0\n1\n");
    assert_eq!(there.jobctl(&["results", name, "--missing", "-o", "keys"]).ok(), "");
    there.platform.kubectl(["delete", "jobs.batch.volcano.sh", "--all"]).ok();
    there.all_gone();
}

#[test]
fn where_pods_can_get_no_rights_the_way_out_is_named() {
    let mut there = Elsewhere::new();
    there.become_who_makes_no_roles();
    let array = |flag: &[&str]| there.jobctl(&[&["submit", "--array", "0-1"], flag, &["--", "true"]].concat());
    let output = array(&[]);
    assert_eq!(output.code, 4, "{output:?}");
    assert!(output.stderr.contains("pods can't be let read and record ConfigMaps in namespace default"), "{output:?}");
    assert!(output.stderr.contains("next:  jobctl run --bundle-dir FOLDER ...\n"), "{output:?}");
    assert!(there.platform.list("jobs.batch.volcano.sh").is_empty(), "nothing was submitted");
    eventually("nothing of it is left", || match there.bundled("configmaps").len() {
        0 => Ok(()),
        some => Err(format!("{some} are left")),
    });
    array(&["--no-results"]).ok();
}
