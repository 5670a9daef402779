//! Open MPI: the master of `examples/frameworks/mpi.yaml` reaches three workers by ssh and runs one program on one, two and
//! three of them.

use std::collections::BTreeMap;
use std::process::Command;

use pumice_testkit::{Platform, Setup};
use tempfile::TempDir;

use super::{EXAMPLES, layer};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/frameworks/pi.c");

/// What the image of the example would bring: the program.
fn image() -> TempDir {
    let layer = layer();
    let home = layer.path().join("home/mpiuser");
    std::fs::create_dir_all(&home).unwrap();
    let compiled = Command::new("mpicc").args(["-O2", "-o"]).arg(home.join("pi")).arg(SOURCE).status();
    assert!(compiled.expect("run mpicc, which tests/prerequisites installs").success());
    layer
}

/// One line of the program: what it says of each thing.
fn said(line: &str) -> BTreeMap<&str, &str> {
    line.split_whitespace().filter_map(|word| word.split_once('=')).collect()
}

#[test]
fn mpirun_splits_its_work_over_workers_that_it_reaches_by_ssh() {
    let image = image();
    let map = format!("mpioperator/mpi-pi:\n  layer: {}\n", image.path().display());
    let setup = Setup { flags: ["--cpu", "8"].map(str::to_owned).to_vec() };
    let platform = Platform::start_with_image_map(setup, &map);
    platform.kubectl(["apply", "-f", &format!("{EXAMPLES}/mpi.yaml")]).ok();
    // It watches; asking again and again would take a core from what is measured.
    platform.jobctl(["wait", "pi"]).ok();
    let job = platform.wait_for_phase("pi", "Completed");
    assert_eq!(job["status"]["retryCount"].as_i64().unwrap_or(0), 0, "{}", job["status"]);

    let logs = platform.kubectl(["logs", "pi-master-0"]).ok();
    let runs: Vec<_> = logs.lines().filter(|line| line.starts_with("ranks=")).map(said).collect();
    let workers = ["pi-worker-0", "pi-worker-1", "pi-worker-2"];
    assert_eq!(runs.len(), workers.len(), "{logs}");
    let mut alone = 0.0;
    for (index, run) in runs.iter().enumerate() {
        let ranks = index + 1;
        assert_eq!(run["ranks"], ranks.to_string(), "{logs}");
        assert_eq!(run["pi"], "3.141592654", "{logs}");
        assert_eq!(run["hosts"], workers[..ranks].join(","), "every rank on a worker of its own: {logs}");
        let seconds: f64 = run["seconds"].parse().unwrap();
        if ranks == 1 {
            alone = seconds;
        }
        println!("{ranks} ranks: {seconds:.3} s, {:.2} times as fast as one", alone / seconds);
    }
}
