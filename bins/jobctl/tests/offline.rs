//! What `jobctl` says and answers where no platform runs: wrong input is found before anything is sent.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

struct Output {
    code: i32,
    stdout: String,
    stderr: String,
}

fn jobctl(home: &Path, args: &[&str], input: &str) -> Output {
    jobctl_with(home, args, input, &[])
}

fn jobctl_with(home: &Path, args: &[&str], input: &str, variables: &[(&str, &str)]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_jobctl"))
        .args(args)
        .current_dir(home)
        .env_clear()
        .env("HOME", home)
        .env("PUMICE_AUTOSTART", "0")
        // A cluster that must never be touched.
        .env("KUBECONFIG", home.join("production"))
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may end before it reads its input.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let home = home.to_str().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().replace(home, "HOME");
    Output { code: output.status.code().unwrap(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

#[test]
fn every_failure_says_what_where_and_what_next() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    std::fs::write(home.join("broken.yaml"), "apiVersion: v1\nkind: Job\n\tx: 1\n").unwrap();
    std::fs::write(home.join("kubeconfig"), "clusters: 3\n").unwrap();
    std::fs::create_dir_all(home.join("odd")).unwrap();
    std::fs::write(home.join("odd/up.json"), "[]").unwrap();
    let gone = serde_json::json!({"pid": 2147483647, "url": "https://127.0.0.1:1", "kubeconfig": "kubeconfig", "started": "2026-01-01T00:00:00Z"});
    std::fs::create_dir_all(home.join("gone")).unwrap();
    std::fs::write(home.join("gone/up.json"), gone.to_string()).unwrap();
    let unreachable = "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
        clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n\
        users: [{name: u, user: {}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n";
    std::fs::write(home.join("gone/kubeconfig"), unreachable).unwrap();
    let no_tasks = "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: x}\nspec: {tasks: []}\n";
    let elsewhere = "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: x, namespace: a}\nspec: {tasks: [{replicas: 1}]}\n";
    let mut text = String::new();
    for (args, input, code) in [
        (&["list"][..], "", 5),
        (&["list", "--data-dir", "other"], "", 5),
        (&["list", "--data-dir", "odd"], "", 2),
        (&["list", "--data-dir", "gone"], "", 5),
        (&["list", "--kubeconfig", "kubeconfig"], "", 2),
        (&["list", "--kubeconfig", "missing"], "", 2),
        (&["run", "-f", "broken.yaml"], "", 2),
        (&["run", "-f", "missing.yaml"], "", 2),
        (&["submit", "-f", "-"], no_tasks, 2),
        (&["submit", "-n", "b", "-f", "-"], elsewhere, 2),
        (&["submit", "-f", "-"], "", 2),
        (&["run"], "", 2),
        (&["run", "--replicas", "0", "--", "true"], "", 2),
        (&["run", "--memory", "-1", "--", "true"], "", 2),
        (&["run", "--env", "NOT_SET_HERE", "--", "true"], "", 2),
        (&["run", "--", "true"], "", 5),
        (&["get", "last"], "", 5),
        (&["cancel", "sweep-*"], "", 5),
        (&["watch"], "", 2),
        (&["context", "use", "east"], "", 3),
        (&["context", "add", "east"], "", 2),
    ] {
        let output = jobctl(home, args, input);
        assert_eq!(output.code, code, "{args:?}: {}", output.stderr);
        assert_eq!(output.stdout, "", "{args:?}: only data goes to standard output");
        text.push_str(&format!("$ jobctl {}\n{}\n", args.join(" "), output.stderr));
    }
    insta::assert_snapshot!(text);
}

#[test]
fn what_needs_no_platform_works_without_one() {
    let home = tempfile::tempdir().unwrap();
    for (shell, word) in
        [("bash", "complete"), ("zsh", "#compdef"), ("fish", "--command jobctl"), ("powershell", "Register")]
    {
        let output = jobctl(home.path(), &["completion", shell], "");
        assert_eq!(output.code, 0, "{}", output.stderr);
        assert!(
            output.stdout.contains(word) && output.stdout.contains("_JOBCTL_COMPLETE"),
            "{shell}: {}",
            output.stdout
        );
    }
    let version = jobctl(home.path(), &["version", "--client"], "");
    assert_eq!((version.code, version.stderr.as_str()), (0, ""));
    assert_eq!(version.stdout, format!("jobctl {}\n", env!("CARGO_PKG_VERSION")));
    let add = jobctl(home.path(), &["context", "add", "east", "--kubeconfig", "east.yaml", "-n", "team"], "");
    assert_eq!(add.code, 0, "{}", add.stderr);
    jobctl(home.path(), &["context", "use", "east"], "");
    let list = jobctl(home.path(), &["context", "list"], "");
    // How wide the columns are depends on where this home is.
    let words: Vec<&str> = list.stdout.split_whitespace().collect();
    assert_eq!(words.join(" "), "CURRENT NAME WHERE NAMESPACE * east HOME/east.yaml team");
    let gone = jobctl(home.path(), &["list"], "");
    assert!(gone.stderr.contains("HOME/east.yaml"), "the context in use is used: {}", gone.stderr);
    std::fs::write(home.path().join(".config/pumice/contexts.yaml"), "colour: red\n").unwrap();
    let broken = jobctl(home.path(), &["list"], "");
    assert_eq!(broken.code, 2, "{}", broken.stderr);
    assert!(broken.stderr.contains("no list of contexts"), "{}", broken.stderr);
}

#[test]
fn a_shell_that_asks_gets_verbs_and_no_complaint() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    jobctl(home, &["context", "add", "east", "--kubeconfig", "east.yaml"], "");
    std::fs::create_dir_all(home.join("odd")).unwrap();
    std::fs::write(home.join("odd/up.json"), "[]").unwrap();
    std::fs::write(home.join("step.sh"), "").unwrap();
    for (line, wanted) in [
        (&["jobctl", "sus"][..], "suspend"),
        (&["jobctl", "completion", "f"], "fish"),
        (&["jobctl", "context", "use", "e"], "east"),
        (&["jobctl", "list", "--context", "ea"], "east"),
        (&["jobctl", "run", "--kubeconfig", "./ste"], "./step.sh"),
        (&["jobctl", "run", "--", "./ste"], "./step.sh"),
        // Names that only a platform would know.
        (&["jobctl", "get", "sweep-"], ""),
        (&["jobctl", "list", "--queue", ""], ""),
        (&["jobctl", "run", "--context", "east", "--zone", ""], ""),
        (&["jobctl", "run", "--data-dir", "odd", "--priority", ""], ""),
        (&["jobctl", "-n", "A_B", "queue", "get", "d"], ""),
        (&["jobctl", "frobnicate", "--whatever", "x"], ""),
    ] {
        let args = [&["--"], line].concat();
        let index = (line.len() - 1).to_string();
        for (shell, index) in [("bash", index.as_str()), ("zsh", &index), ("fish", "")] {
            let variables = [("_JOBCTL_COMPLETE", shell), ("_CLAP_COMPLETE_INDEX", index)];
            let output = jobctl_with(home, &args, "", &variables);
            assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{shell} {line:?}");
            let first: String = output.stdout.split([':', '\t', '\n']).take(1).collect();
            assert_eq!(first, wanted, "{shell} {line:?}");
        }
    }
    let unknown = jobctl_with(home, &["--", "jobctl", "sus"], "", &[("_JOBCTL_COMPLETE", "csh")]);
    assert_eq!((unknown.code, unknown.stdout.as_str(), unknown.stderr.as_str()), (0, "", ""));
    assert!(!home.join(".local/share/pumice").exists(), "no platform was started");
}

#[test]
fn a_ten_megabyte_or_deep_manifest_gets_a_short_answer() {
    let home = tempfile::tempdir().unwrap();
    let big =
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: x}}\ndata: {{a: {}}}\n", "x".repeat(10 << 20));
    let deep = "[".repeat(100_000);
    for (input, word) in [(&big, "too large"), (&deep, "nested too deeply")] {
        let output = jobctl(home.path(), &["run", "-f", "-"], input);
        assert_eq!(output.code, 2, "{}", output.stderr);
        assert!(output.stderr.contains(word) && output.stderr.len() < 1000, "{}", output.stderr);
    }
}
