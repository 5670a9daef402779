//! `pumice scheduler simulate` as people use it: what it prints, what it says of traces with holes, and that it refuses
//! what it can't read with a reason.

use std::path::Path;
use std::process::Command;

use pumice_testkit::{binary, shared_fixture};
use serde_json::Value;

/// Ten jobs on four cores; and lines with holes, negative times, and one that was cut off.
const LOG: &str = "; MaxProcs: 4\n\
    1 0 -1 3600 3 -1 -1 3 7200 -1 1 1 -1 -1 -1 -1 -1 -1\n\
    2 10 -1 600 4 -1 -1 4 900 -1 1 2 -1 -1 -1 -1 -1 -1\n\
    3 20 -1 60 1 -1 -1 1 120 -1 1 3 -1 -1 -1 -1 -1 -1\n\
    4 -5 -1 60 1 -1 -1 1 120 -1 1 3 -1 -1 -1 -1 -1 -1\n\
    5 30 -1 -1 1 -1 -1 1 120 -1 1 3 -1 -1 -1 -1 -1 -1\n\
    6 40 -1 60 -1 -1 -1 -1 120 -1 1 3 -1 -1 -1 -1 -1 -1\n\
    7 50 -1 60 9 -1 -1 9 120 -1 1 3 -1 -1 -1 -1 -1 -1\n\
    8 45 -1 600 1 -1 -1 1 60 -1 1 3 -1 -1 -1 -1 -1 -1\n\
    9 60 -1 7";

struct Told {
    code: i32,
    out: String,
    err: String,
}

fn simulate(folder: &Path, args: &[&str]) -> Told {
    let mut command = Command::new(binary("pumice"));
    command.current_dir(folder).args(["scheduler", "simulate"]).args(args);
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Told { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

#[test]
fn a_log_with_holes_is_run_and_what_was_mended_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("log.swf"), LOG).unwrap();
    let told = simulate(folder.path(), &["--trace", "log.swf", "--against", "volcano,fifo", "--forecasts"]);
    assert_eq!(told.code, 0, "{}", told.err);
    insta::assert_snapshot!(told.out);
    let json = simulate(folder.path(), &["--trace", "log.swf", "-o", "json", "--predictors"]);
    let report: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((&report["jobs"], report["runs"].as_array().unwrap().len()), (&4.into(), 1));
    assert_eq!(report["runs"][0]["predictions"]["engine"]["jobs"], 4);
    let again = simulate(folder.path(), &["--trace", "log.swf", "-o", "json", "--predictors"]);
    assert_eq!(again.out, json.out, "equal words give equal answers");
}

#[test]
fn the_picture_of_two_configurations_is_one_document() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("log.swf"), LOG).unwrap();
    let conf = "actions: \"enqueue, allocate\"\ntiers:\n- plugins:\n  - name: gang\n  - name: predicates\n";
    std::fs::write(folder.path().join("plain.yaml"), conf).unwrap();
    let args = ["--trace", "log.swf", "--compare", "plain.yaml", "--against", "easy", "-o", "svg"];
    let told = simulate(folder.path(), &args);
    assert_eq!(told.code, 0, "{}", told.err);
    insta::assert_snapshot!(told.out);
    assert!(told.out.starts_with("<svg ") && told.out.ends_with("</svg>\n"));
    for policy in ["engine", "plain", "easy"] {
        assert!(told.out.contains(&format!(">{policy}</text>")), "{policy}");
    }
}

#[test]
fn what_cannot_be_run_is_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("log.swf", LOG);
    write("bare.swf", "1 2 3 4 5\n");
    write("empty.swf", "; MaxProcs: 4\n");
    write("wrong.jsonl", "{\"submit\":0,\"requests\":{\"cpu\":\"1\"},\"run\":1}\n{\"submit\":");
    write("other.yaml", "kind: Node\n");
    write("conf.yaml", "actions: fly\n");
    // Nobody has the room for such a file, and nothing of it is read.
    std::fs::File::create(folder.path().join("huge.swf")).unwrap().set_len(4 << 30).unwrap();
    for (args, message) in [
        (vec!["--trace", "log.txt"], "log.txt is no trace"),
        (vec!["--trace", "gone.swf"], "gone.swf could not be read"),
        (vec!["--trace", "huge.swf"], "huge.swf has 4294967296 bytes, more than"),
        (vec!["--trace", "bare.swf"], "say --nodes"),
        (vec!["--trace", "empty.swf"], "no job that these nodes could ever run"),
        (vec!["--trace", "wrong.jsonl", "--nodes", "1x1cpu"], "line 2: "),
        (vec!["--trace", "log.swf", "--nodes", "many"], "is no group of nodes"),
        (vec!["--trace", "log.swf", "--nodes", "other.yaml"], "Node 1 has no metadata.name"),
        (vec!["--trace", "log.swf", "--conf", "conf.yaml"], "configuration conf.yaml refused"),
        (vec!["--trace", "log.swf", "--against", "magic"], "there is no baseline \"magic\""),
        (vec!["--trace", "lublin:jobs=ten"], "jobs=\"ten\""),
        (
            vec!["--trace", "other.yaml", "--nodes", "1x1cpu"],
            "no spec of Armada's simulator that can be run: unknown field `kind`",
        ),
        (vec!["--trace", "log.swf", "--skip", "9000"], "no job that these nodes could ever run"),
    ] {
        let told = simulate(folder.path(), &args);
        assert_eq!((told.code, told.out.as_str()), (2, ""), "{args:?}: {}", told.err);
        assert!(told.err.starts_with("pumice: ") && told.err.contains(message), "{args:?}: {}", told.err);
    }
}

#[test]
fn the_specs_of_armadas_simulator_are_run() {
    let Some(specs) = shared_fixture("armada/internal/scheduler/simulator/testdata") else { return };
    let file = |path: &str| specs.join(path).to_str().unwrap().to_owned();
    let clusters = ["clusters/cpu_1_1_100.yaml", "clusters/cpu_1_3_100.yaml"];
    let workloads = [
        ("workloads/basicWorkload.yaml", 10),
        ("workloads/small-short_big-long/only-big.yaml", 2),
        ("workloads/small-short_big-long/preemptible.yaml", 642),
        ("workloads/small-long_big-long/only-big.yaml", 2),
        ("workloads/small-long_big-long/preemptible.yaml", 66),
    ];
    for (workload, jobs) in workloads {
        for cluster in clusters {
            let args = ["--trace", &file(workload), "--nodes", &file(cluster), "-o", "json"];
            let told = simulate(&specs, &args);
            assert_eq!(told.code, 0, "{workload} on {cluster}: {}", told.err);
            let report: Value = serde_json::from_str(&told.out).unwrap();
            assert_eq!(report["jobs"], jobs, "{workload} on {cluster}");
            assert_eq!(report["runs"][0]["figures"]["all"]["neverStarted"], 0, "{workload} on {cluster}");
            assert_eq!(report["notes"], serde_json::json!({}), "all of {workload} and {cluster} is followed");
        }
    }
}
