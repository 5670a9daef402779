//! The platform dies at any moment; no job, pod or line of work is lost or done twice.
//!
//! `PUMICE_CRASH_SEEDS` says how many moments are tried (`make crash` tries 20).

use std::collections::BTreeMap;
use std::time::Duration;

use pumice_testkit::{Platform, Setup, eventually};

const PODS: usize = 200;

// INV-48
#[test]
fn two_hundred_pods_survive_kill_nine() {
    let seeds: u64 = std::env::var_os("PUMICE_CRASH_SEEDS")
        .map_or(2, |text| text.to_str().and_then(|text| text.parse().ok()).expect("PUMICE_CRASH_SEEDS is a number"));
    for seed in 0..seeds {
        crash_once(seed);
    }
}

fn crash_once(seed: u64) {
    let mut platform = Platform::start(Setup { flags: vec!["--cpu".into(), "16".into()] });
    let lines = platform.file("lines", "");
    let manifest = manifest(platform.scratch().to_str().unwrap());
    platform.kubectl_with_input(["apply", "-f", "-"], &manifest).ok();

    // The moment: when a share of the pods, drawn from the seed, has written its line.
    let share = mix(seed) as usize % (PODS - 40) + 1;
    eventually("some pods ran before the crash", || {
        let written = count(&lines);
        if written >= share { Ok(()) } else { Err(format!("{written} of {share} lines")) }
    });
    platform.crash();
    let at_crash = count(&lines);
    let across = platform.marks().look().processes.len();
    assert!(across > 0, "seed {seed}: some pods run on without the platform");
    std::thread::sleep(Duration::from_millis(mix(seed ^ 0x5eed) % 400)); // how long it stays down is part of the seed
    let down = count(&lines);
    platform.up();

    let job = platform.wait_for_phase("many", "Completed");
    assert_eq!(job["status"]["succeeded"], PODS, "seed {seed}");
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    for line in std::fs::read_to_string(&lines).unwrap().lines() {
        *times.entry(line.to_owned()).or_default() += 1;
    }
    let expected: BTreeMap<String, usize> = (0..PODS).map(|index| (format!("many-one-{index}"), 1)).collect();
    assert_eq!(times, expected, "seed {seed}: every pod wrote its line once");
    let pods = platform.list("pods");
    let accounted = pods.iter().filter(|pod| pod["status"]["phase"] == "Succeeded").count();
    assert_eq!((pods.len(), accounted), (PODS, PODS), "seed {seed}: every pod is accounted for");
    println!(
        "seed {seed}: killed at {at_crash} lines, {across} processes ran on, {} lines while it was down, {PODS} in the end",
        down - at_crash
    );
    let remains = platform.tear_down();
    assert!(remains.is_empty(), "seed {seed}: {remains:#?}");
}

fn count(path: &std::path::Path) -> usize {
    std::fs::read_to_string(path).unwrap().lines().count()
}

/// A fixed mixing of the seed (the finaliser of SplitMix64), so that seeds differ in every bit.
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn manifest(path: &str) -> String {
    format!(
        r#"
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {{name: many}}
spec:
  minAvailable: {PODS}
  plugins: {{env: []}}
  tasks:
  - name: one
    replicas: {PODS}
    template:
      spec:
        restartPolicy: Never
        volumes: [{{name: host, hostPath: {{path: "{path}"}}}}]
        containers:
        - name: main
          image: pumice.sh/host
          command: [sh, -c, 'sleep 0.$((VC_TASK_INDEX % 10)); echo many-one-$VC_TASK_INDEX >> {path}/lines; sleep 0.3']
          volumeMounts: [{{name: host, mountPath: "{path}"}}]
          resources: {{requests: {{cpu: 10m, memory: 4Mi}}}}
"#
    )
}
