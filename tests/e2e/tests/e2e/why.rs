//! Why a job waits, asked of a platform that is full: who holds what it lacks, and what would help really does.

use pumice_testkit::{Platform, Setup, binary, eventually};
use serde_json::Value;

fn why(platform: &Platform, job: &str) -> Value {
    serde_json::from_str(&platform.jobctl(["why", job, "-o", "json"]).ok()).unwrap()
}

#[test]
fn what_is_said_to_help_starts_the_job() {
    let flags = ["--cpu", "4", "--memory", "512Mi"].map(str::to_owned).to_vec();
    let platform = Platform::start(Setup { flags });
    platform.jobctl(["submit", "--name", "hog", "--cpu", "1", "--memory", "300Mi", "--", "sleep", "1000"]).ok();
    platform.wait_for_phase("hog", "Running");
    platform
        .jobctl(["submit", "--name", "large", "--cpu", "1", "--memory", "400Mi", "--", "echo", "there was room"])
        .ok();
    let told = eventually("it is told what would help", || {
        let output = platform.jobctl(["why", "large", "-o", "json"]);
        let told: Value = serde_json::from_str(&output.stdout).unwrap_or_default();
        if told["could"].as_array().is_some_and(|could| !could.is_empty()) {
            Ok(told)
        } else {
            Err(format!("{output:?}"))
        }
    });
    let holder = &told["held"][0];
    assert_eq!((&holder["resource"], &holder["by"][0]["job"]), (&"memory".into(), &"default/hog".into()), "{told}");
    assert_eq!(holder["by"][0]["amount"], 300 << 20, "{told}");
    assert_eq!((&told["line"]["ahead"], &told["fitsEmpty"]), (&0.into(), &true.into()), "{told}");
    let could = &told["could"][0];
    assert_eq!((&could["change"], &could["resource"]), (&"request".into(), &"memory".into()), "{told}");
    let amount = could["amount"].as_i64().unwrap();
    assert!((100 << 20..=212 << 20).contains(&amount), "{told}");
    let text = platform.jobctl(["why", "large"]).ok();
    assert!(
        text.contains("held by default/hog (300Mi of ") && text.contains("could start now with memory ≤ "),
        "{text}"
    );
    let node = platform.list("nodes")[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let node = platform.run(&binary("pumice"), ["node", "why", &node], None).ok();
    assert!(node.contains("held by default/hog") && node.contains("one more pod can have at most"), "{node}");
    // Another asks for that much, behind it in the line, and runs past it.
    let memory = format!("{}Mi", amount >> 20);
    platform.jobctl(["run", "--name", "smaller", "--cpu", "1", "--memory", &memory, "--", "true"]).ok();
    eventually("the room is free again", || {
        let told = why(&platform, "large");
        if told["could"][0]["amount"] == amount { Ok(()) } else { Err(told.to_string()) }
    });
    platform.jobctl(["cancel", "hog"]).ok();
    platform.jobctl(["wait", "large", "--timeout", "60s"]).ok();
    assert_eq!(platform.jobctl(["why", "large"]).ok(), "the job completed\n");
}
