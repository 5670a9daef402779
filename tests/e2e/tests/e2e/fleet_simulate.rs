//! `pumice fleet simulate` as people use it: what it prints, what it refuses and why, and that the document's command works.

use std::path::Path;
use std::process::Command;

use pumice_testkit::{binary, shared_fixture};
use serde_json::Value;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const CLUSTERS: &str = "clusters:\n- name: a\n  pool: default\n  nodeTemplates:\n  - {number: 2, totalResources: {resources: \
                        {cpu: 4, memory: 8Gi}}}\n";
const WORKLOAD: &str = "queues:\n- name: q\n  weight: 1\n  jobTemplates:\n  - {number: 12, jobSet: 's,1', requirements: \
                        {resourceRequirements: {requests: {cpu: 1}}}, runtimeDistribution: {minimum: 1m, tailMean: 10s}}\n";

struct Told {
    code: i32,
    out: String,
    err: String,
}

fn simulate(folder: &Path, args: &[&str]) -> Told {
    let mut command = Command::new(binary("pumice"));
    let output = command.current_dir(folder).args(["fleet", "simulate"]).args(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Told { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

/// What a simulation says, without what differs from run to run.
fn without_times(mut reports: Value) -> Value {
    for report in reports.as_array_mut().unwrap() {
        let rounds = report["rounds"].as_object_mut().unwrap();
        assert!(rounds.remove("wallMs").unwrap().as_f64().unwrap() > 0.0);
        assert!(rounds.remove("eachMs").is_some());
    }
    reports
}

#[test]
fn workloads_run_on_clusters_and_the_same_seed_gives_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    std::fs::create_dir(folder.path().join("workloads")).unwrap();
    write("small.yaml", CLUSTERS);
    write("large.yaml", &CLUSTERS.replace("number: 2", "number: 3"));
    write("workloads/one.yaml", WORKLOAD);
    let run = |more: &[&str]| {
        let told = simulate(
            folder.path(),
            &[&["--clusters", "*ll.yaml", "large.yaml", "--workloads", "workloads"], more].concat(),
        );
        assert_eq!(told.code, 0, "{}", told.err);
        told.out
    };
    let json = |text: &str| without_times(serde_json::from_str(text).unwrap());
    let first = json(&run(&["-o", "json"]));
    assert_eq!(first.as_array().unwrap().len(), 2);
    for (report, (clusters, least)) in first.as_array().unwrap().iter().zip([("small", 120.0), ("large", 60.0)]) {
        assert_eq!((&report["workload"], &report["clusters"]), (&"one".into(), &clusters.into()));
        assert_eq!((&report["succeeded"], &report["queues"][0]["jobs"]), (&12.into(), &12.into()));
        assert!(report["makespanS"].as_f64().unwrap() >= least, "{report}");
    }
    assert_eq!(json(&run(&["-o", "json"])), first, "the same again");
    assert_ne!(json(&run(&["-o", "json", "--seed", "5"])), first, "another seed");
    let table = run(&[]);
    assert_eq!(table.matches("workload  one: 12 jobs, 1 queue, seed 1").count(), 2, "{table}");

    let args = ["--clusters", "small.yaml", "--workloads", "workloads/*.yaml", "--events", "events.csv"];
    assert_eq!(simulate(folder.path(), &args).code, 0);
    let events = std::fs::read_to_string(folder.path().join("events.csv")).unwrap();
    let of = |event: &str| events.lines().filter(|line| line.split(',').nth(1) == Some(event)).count();
    assert_eq!(["submitted", "leased", "running", "succeeded"].map(of), [12; 4], "{events}");
    assert!(events.starts_with("seconds,event,queue,job_set,job,") && events.contains(",q,\"s,1\","), "{events}");
}

#[test]
fn what_cannot_be_run_is_refused_with_its_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("clusters.yaml", CLUSTERS);
    write("workload.yaml", WORKLOAD);
    write("clusters-more.yaml", CLUSTERS);
    write("field.yaml", "clusters:\n- name: a\n  region: b\n");
    write("circle.yaml", &WORKLOAD.replace("{number: 12,", "{number: 12, id: again, dependencies: [again],"));
    write("class.yaml", &WORKLOAD.replace("{number: 12,", "{number: 12, priorityClassName: high,"));
    write("config.yaml", "scheduling: {fast: true}\n");
    std::fs::File::create(folder.path().join("huge.yaml")).unwrap().set_len(1 << 30).unwrap();
    for (clusters, workloads, more, code, message) in [
        (
            "field.yaml",
            "workload.yaml",
            vec![],
            2,
            "field.yaml is no specification of clusters: unknown field `region`",
        ),
        ("field.yaml", "workload.yaml", vec![], 2, "at line 3, column 3"),
        ("clusters.yaml", "circle.yaml", vec![], 2, "each waits for the next, in a circle: again"),
        (
            "clusters.yaml",
            "class.yaml",
            vec![],
            2,
            "queues[0].jobTemplates[0].priorityClassName: there is no priority class",
        ),
        ("clusters.yaml", "huge.yaml", vec![], 2, "huge.yaml has 1073741824 bytes: have at most 16777216"),
        ("clusters.yaml", "none.yaml", vec![], 2, "there is no file or folder none.yaml"),
        ("clusters.yaml", "none*", vec![], 2, "no file ending in .yaml or .yml is like none*"),
        (
            "clusters.yaml",
            "workload.yaml",
            vec!["--config", "config.yaml"],
            2,
            "config.yaml can't be used: unknown field `fast`",
        ),
        (
            "clusters*.yaml",
            "workload.yaml",
            vec!["--events", "e"],
            2,
            "what happened in one simulation, and there are 2",
        ),
        ("clusters.yaml", "workload.yaml", vec!["--events", "none/e"], 1, "write none/e"),
    ] {
        let told =
            simulate(folder.path(), &[&["--clusters", clusters, "--workloads", workloads], more.as_slice()].concat());
        assert_eq!(told.code, code, "{}", told.err);
        assert!(told.err.contains(message), "{message}: {}", told.err);
    }
}

#[test]
fn armadas_scheduler_configuration_is_taken_and_what_it_has_more_is_named() {
    let Some(folder) = shared_fixture("armada/internal/scheduler/simulator/testdata") else { return };
    let config = "configs/basicSchedulingConfig.yaml";
    let told = simulate(
        &folder,
        &[
            "--clusters",
            "clusters/*_1_1_100.yaml",
            "--workloads",
            "workloads/**/*.yaml",
            "--config",
            config,
            "-o",
            "json",
        ],
    );
    assert_eq!(told.code, 0, "{}", told.err);
    assert!(
        told.err.contains("mean nothing here and are ignored: ") && told.err.contains("indexedResources"),
        "{}",
        told.err
    );
    let reports: Value = serde_json::from_str(&told.out).unwrap();
    let reports = reports.as_array().unwrap();
    assert!(reports.len() >= 5);
    assert!(reports.iter().all(|report| report["succeeded"] == report["jobs"]), "{reports:#?}");
}

#[test]
fn the_command_of_the_document_can_be_followed() {
    let document = std::fs::read_to_string(format!("{ROOT}/docs/fleet.md")).unwrap();
    let command = document.lines().find_map(|line| line.strip_prefix("$ pumice fleet simulate ")).unwrap();
    let args: Vec<&str> = command.split_whitespace().collect();
    let told = simulate(Path::new(ROOT), &args);
    assert_eq!(told.code, 0, "{}", told.err);
    assert!(told.out.starts_with("workload  a day of two teams: 3616 jobs, 2 queues, seed 7\n"), "{}", told.out);
    assert!(told.out.contains("clusters  two clusters: 2 clusters, 30 nodes, 1 pool\n"), "{}", told.out);
    assert!(!told.out.contains("never started"), "{}", told.out);
}
