//! What users get wrong: each answer is clear, the exit code is not 0, nothing is lost and the platform goes on.

use pumice_testkit::{Platform, shared_fixture};

/// What is sent, and words that the answer has to contain.
fn cases() -> Vec<(&'static str, String, &'static [&'static str])> {
    let job = |spec: &str| {
        format!("apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {{name: bad}}\nspec:\n{spec}")
    };
    let task = "  tasks:\n  - name: main\n    replicas: 2\n    template:\n      spec:\n        containers:\n        - {name: main, image: pumice.sh/host, command: [\"true\"]}\n";
    vec![
        ("malformed YAML", "kind: Job\n  metadata: [unclosed\n".into(), &["line"]),
        ("no tasks", job("  minAvailable: 1\n"), &["task"]),
        ("an empty list of tasks", job("  minAvailable: 1\n  tasks: []\n"), &["task"]),
        (
            "minAvailable over replicas",
            job(&format!("  minAvailable: 3\n{task}")),
            &["minAvailable", "greater than total replicas"],
        ),
        ("negative minAvailable", job(&format!("  minAvailable: -1\n{task}")), &["spec.minAvailable"]),
        ("an unknown queue", job(&format!("  queue: nowhere\n{task}")), &["nowhere"]),
        ("an unknown plugin", job(&format!("  plugins: {{magic: []}}\n{task}")), &["unable to find job plugin: magic"]),
        (
            "a bad task name",
            job(&task.replace("name: main\n    replicas", "name: Bad_Name\n    replicas")),
            &["spec.tasks[0].name"],
        ),
        ("a string for a number", job(&format!("  minAvailable: many\n{task}")), &["minAvailable"]),
        ("a 10 MB object", job(&format!("{task}  queue: {}\n", "x".repeat(10 << 20))), &["large", "MiB"]),
        ("deep nesting", format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)), &["dep", "nest"]),
        ("an unknown kind", "apiVersion: v9\nkind: Nothing\nmetadata: {name: x}\n".into(), &["Nothing"]),
    ]
}

#[test]
fn each_is_refused_with_a_clear_word_and_the_platform_goes_on() {
    let platform = Platform::new();
    for (what, text, words) in cases() {
        let path = platform.file("bad.yaml", &text);
        let path = path.to_str().unwrap();
        let by_jobctl = platform.jobctl(["run", "-f", path]);
        assert_ne!(by_jobctl.code, 0, "{what}: {by_jobctl:?}");
        assert!(by_jobctl.stderr.len() < 4096, "{what}: a short answer, not {} bytes", by_jobctl.stderr.len());
        let lower = by_jobctl.stderr.to_lowercase();
        assert!(words.iter().any(|word| lower.contains(&word.to_lowercase())), "{what}: {}", by_jobctl.stderr);
        if what != "deep nesting" {
            let by_kubectl = platform.kubectl(["create", "-f", path]);
            assert_ne!(by_kubectl.code, 0, "{what}: {by_kubectl:?}");
        }
        assert!(platform.list("jobs.batch.volcano.sh").is_empty(), "{what}: something was stored");
    }
    platform.jobctl(["run", "--name", "good", "--", "true"]).ok();
}

/// The flags of a job that can't be, the exit code, and words of the error and of what comes next.
const WRONG: &[(&[&str], i32, [&str; 2])] = &[
    (
        &["--queue", "nowhere", "--", "true"],
        3,
        ["there is no queue nowhere; the only one is default", "jobctl queue list"],
    ),
    (&["--cpu", "lots", "--", "true"], 2, ["--cpu \"lots\" is no number of processors", "--help"]),
    (&["--array", "0-9", "--min-success", "110%", "--", "true"], 2, ["--min-success \"110%\"", "--help"]),
    (&["--days", "2024-13-01:2024-12-31", "--", "true"], 2, ["2024-13-01:2024-12-31", "--help"]),
    (
        &["--days", "2024-01-01:2024-12-31", "--calendar", "broken.txt", "--", "true"],
        2,
        ["broken.txt:2: \"soon\" is not a day", "--help"],
    ),
    (
        &["--days", "2024-01-01:2024-12-31", "--calendar", "LSE", "--", "true"],
        2,
        ["LSE is none of weekdays, all and XNYS, and no file", "--help"],
    ),
    (&["--params", "torn.csv", "--", "true"], 2, ["torn.csv:3: fields in the row: 1, columns: 2", "correct that"]),
    (&["--params", "torn.jsonl", "--", "true"], 2, ["torn.jsonl:2: the line is not JSON", "correct that"]),
    (&["--params", "none.csv", "--", "true"], 2, ["none.csv can't be read: No such file", "--help"]),
    (&["--params", "good.csv", "--", "echo", "{rat}"], 2, ["{rat}", "the names are {index}, {key}, {rate}, {seed}"]),
    (&["--retries", "5000", "--", "true"], 2, ["--retries 5000 is not within 0 to 1000", "--help"]),
    (&["--array", "0-199999", "--", "true"], 2, ["100000", "next:"]),
];

#[test]
fn wrong_flags_have_a_clear_word_the_right_code_and_a_next_step() {
    let platform = Platform::new();
    platform.file("broken.txt", "2024-01-02\nsoon\n");
    platform.file("torn.csv", "rate,seed\n0.1,2\n0.2\n");
    platform.file("torn.jsonl", "{\"a\": 1}\n{\"a\": }\n");
    platform.file("good.csv", "rate,seed\n0.1,2\n");
    for (flags, code, words) in WRONG {
        for verb in ["run", "submit"] {
            let said = platform.jobctl([&[verb], *flags].concat());
            assert_eq!(said.code, *code, "{flags:?}: {said:?}");
            for word in words.iter().chain(&["error: ", "\nnext:  "]) {
                assert!(said.stderr.contains(word), "{flags:?}: {word:?} is not in {}", said.stderr);
            }
        }
    }
    assert!(platform.list("jobs.batch.volcano.sh").is_empty(), "something was stored");
}

#[test]
fn raw_requests_are_bounded_too() {
    let platform = Platform::new();
    let deep = format!(
        "{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"x\"}},\"data\":{}1{}}}",
        "{\"a\":".repeat(20_000),
        "}".repeat(20_000)
    );
    let path = platform.file("deep.json", deep);
    let url = "/api/v1/namespaces/default/configmaps";
    let output = platform.kubectl(["create", "--raw", url, "-f", path.to_str().unwrap()]);
    assert_ne!(output.code, 0, "{output:?}");
    let path = platform.file("big.json", format!("{{\"data\":\"{}\"}}", "x".repeat(10 << 20)));
    let output = platform.kubectl(["create", "--raw", url, "-f", path.to_str().unwrap()]);
    assert_ne!(output.code, 0, "{output:?}");
    assert!(output.stderr.to_lowercase().contains("large"), "{output:?}");
    platform.kubectl(["get", "nodes"]).ok();
}

#[test]
fn what_volcano_refuses_is_refused_here() {
    let platform = Platform::new();
    let Some(folder) = shared_fixture("volcano/examples") else { return };
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_string_lossy().starts_with("example__invalid_jobs__") {
            let output = platform.kubectl(["create", "-f", path.to_str().unwrap()]);
            assert_ne!(output.code, 0, "{}", path.display());
            seen += 1;
        }
    }
    assert_eq!(seen, 2);
}
