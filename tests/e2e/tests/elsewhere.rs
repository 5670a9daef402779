//! Jobs whose bundle is in ConfigMaps, through the real programs. A platform that is named by its kubeconfig counts as another
//! cluster. Its pods have no token and it has no roles, so that here the `jobctl` of the pods is one that uses the kubeconfig,
//! and roles are kinds that are defined and mean nothing. What a token may do is for the tests on a real Kubernetes.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // a test may panic, and has a clock of its own

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use pumice_testkit::{Output, Platform, binary, eventually};
use serde_json::{Value, json};

/// A platform as somebody else's cluster.
struct Elsewhere {
    platform: Platform,
    kubeconfig: PathBuf,
}

impl Elsewhere {
    fn new() -> Elsewhere {
        let platform = Platform::new();
        // Pods don't see the data of their platform.
        let kubeconfig = platform.scratch().join("kubeconfig");
        std::fs::copy(platform.data_dir().join("kubeconfig"), &kubeconfig).unwrap();
        std::fs::create_dir(platform.scratch().join("shared")).unwrap();
        let programs = platform.scratch().join("bin");
        std::fs::create_dir(&programs).unwrap();
        let program = programs.join("jobctl");
        let (real, named) = (binary("jobctl"), kubeconfig.display());
        std::fs::write(&program, format!("#!/bin/sh\nexec {} --kubeconfig {named} \"$@\"\n", real.display())).unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        Elsewhere { platform, kubeconfig }
    }

    /// Lets it have roles.
    fn with_roles(self) -> Elsewhere {
        for (plural, kind) in [("roles", "Role"), ("rolebindings", "RoleBinding")] {
            let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
            let definition = json!({
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": format!("{plural}.rbac.authorization.k8s.io")},
                "spec": {
                    "group": "rbac.authorization.k8s.io",
                    "scope": "Namespaced",
                    "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind},
                    "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
                },
            });
            self.platform.kubectl_with_input(["create", "-f", "-"], &definition.to_string()).ok();
        }
        self
    }

    /// Runs `jobctl` as who has the kubeconfig.
    fn jobctl(&self, args: &[&str]) -> Output {
        let flags = ["--kubeconfig", self.kubeconfig.to_str().unwrap()];
        self.platform.jobctl([&flags, args].concat())
    }

    /// Submits or runs a shell's script; its pods find programs as they do in an image, and work in a folder that stays.
    fn shell(&self, verb: &[&str], script: &str) -> Output {
        let path = format!("PATH={}:/usr/bin:/bin", self.platform.scratch().join("bin").display());
        let shared = ["--volume", "./shared:/mnt", "--workdir", "/mnt"];
        self.jobctl(&[verb, &["--env", &path], &shared, &["--", "sh", "-c", script, "sh", "{key}"]].concat())
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
    let there = Elsewhere::new().with_roles();
    let rows: String = (0..10).map(|row| format!("run-{row},{row}\n")).collect();
    let table = there.platform.file("grid.csv", format!("name,x\n{rows}"));
    let script = "test -z \"$PUMICE_CHECKPOINT\" || exit 9; echo $1 >> ran; \
        case $1 in run-3|run-8) test -e again || exit 7;; esac; \
        echo $((PUMICE_PARAM_X * PUMICE_PARAM_X)) > $PUMICE_RESULT";
    let grid = ["--params", table.to_str().unwrap(), "--key", "name", "--rows-per-task", "4"];
    let output = there.shell(&[&["run", "--no-logs", "--name", "grid"], &grid[..]].concat(), script);
    assert_eq!(output.code, 7, "{output:?}");
    assert!(output.stderr.contains("job grid: 8 of 10 records succeeded; failed: run-3, run-8\n"), "{output:?}");
    let keys = there.jobctl(&["results", "grid", "--failed", "-o", "keys"]).ok();
    assert_eq!(keys, "run-3\nrun-8\n");
    let job = there.platform.get("jobs.batch.volcano.sh", "grid").unwrap();
    let account = job["spec"]["tasks"][0]["template"]["spec"]["serviceAccountName"].as_str().unwrap();
    for (kind, wanted) in [("configmaps", 5), ("serviceaccounts", 1), ("roles", 1), ("rolebindings", 1)] {
        let found = there.bundled(kind);
        let of_job = |object: &Value| object["metadata"]["labels"]["pumice.sh/bundle"] == account;
        // The anchor, the leaf, the root; and one object for each shard, however many records it has.
        let wanted = if kind == "configmaps" { wanted + 1 } else { wanted };
        assert!(found.iter().all(of_job) && found.len() == wanted, "{kind}: {} of {wanted}", found.len());
    }

    there.platform.file("shared/again", "");
    assert_eq!(there.jobctl(&["retry", "grid"]).ok(), "job/grid-r2\n");
    there.jobctl(&["wait", "grid-r2", "--timeout", "120s"]).ok();
    let ran = std::fs::read_to_string(there.platform.scratch().join("shared/ran")).unwrap();
    assert_eq!(ran.lines().count(), 12, "only what failed ran again: {ran}");
    // The bundle belongs to both jobs.
    there.platform.kubectl(["delete", "jobs.batch.volcano.sh", "grid"]).ok();
    let csv = there.jobctl(&["results", "grid-r2", "-o", "json"]).ok();
    let squares = csv.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["result"].clone());
    assert!(squares.eq((0..10).map(|row| json!((row * row).to_string()))), "{csv}");
    there.platform.kubectl(["delete", "jobs.batch.volcano.sh", "grid-r2"]).ok();
    there.all_gone();
}

#[test]
fn a_key_leaves_one_bundle_and_a_failed_submission_none() {
    let there = Elsewhere::new().with_roles();
    let nightly = ["submit", "--idempotency-key", "nightly", "--array", "0-1"];
    let name = there.shell(&nightly, "true").ok();
    assert_eq!(there.shell(&nightly, "true").ok(), name, "the same again is the job that is there");
    let other = there.shell(&nightly, "false");
    assert_eq!(other.code, 6, "{other:?}");
    let refused = there.shell(&["submit", "--queue", "nowhere", "--array", "0-1"], "true");
    assert_eq!(refused.code, 3, "{refused:?}");
    eventually("one bundle is left", || match there.bundled("roles").len() {
        1 => Ok(()),
        some => Err(format!("{some} are left")),
    });
    there.jobctl(&["wait", name.trim(), "--timeout", "60s"]).ok();
    assert_eq!(there.jobctl(&["results", name.trim(), "-o", "keys"]).ok(), "0\n1\n");
    there.platform.kubectl(["delete", "jobs.batch.volcano.sh", "--all"]).ok();
    there.all_gone();
}

#[test]
fn where_pods_can_get_no_rights_the_way_out_is_named() {
    let there = Elsewhere::new();
    let output = there.shell(&["submit", "--array", "0-1"], "true");
    assert_ne!(output.code, 0, "{output:?}");
    assert!(output.stderr.contains("pods can't be let read and record ConfigMaps in namespace default"), "{output:?}");
    assert!(output.stderr.contains("next:  jobctl run --bundle-dir FOLDER ...\n"), "{output:?}");
    assert!(there.platform.list("jobs.batch.volcano.sh").is_empty(), "nothing was submitted");
    eventually("nothing of it is left", || match there.bundled("configmaps").len() {
        0 => Ok(()),
        some => Err(format!("{some} are left")),
    });
    let output = there.shell(&["run", "--no-results", "--array", "0-1"], "true");
    assert_eq!(output.code, 0, "{output:?}");
}
