//! What `pumice up` records, what `pumice scheduler replay` says of it, and what is cut out of it.

use pumice_testkit::{Platform, binary};
use serde_json::Value;

// INV-24
#[test]
fn what_a_platform_decided_is_replayed_bit_for_bit() {
    let mut platform = Platform::new();
    let folder = platform.data_dir().join("recording").to_str().unwrap().to_owned();
    let replay = |platform: &Platform, more: &[&str]| {
        platform.run(&binary("pumice"), [&["scheduler", "replay", &folder], more].concat(), None)
    };
    platform.jobctl(["run", "--name", "one", "--", "true"]).ok();
    assert_eq!(platform.stop(), 0);
    platform.up();
    platform.jobctl(["run", "--name", "two", "--", "true"]).ok();
    platform.crash();

    let told: Value = serde_json::from_str(&replay(&platform, &["-o", "json"]).ok()).unwrap();
    assert_eq!((&told["same"], told["breaks"].as_array().unwrap().len()), (&true.into(), 1), "{told:#}");
    assert!(told["binds"].as_u64().unwrap() >= 1 && told["cycles"].as_u64().unwrap() >= 3, "{told:#}");
    let text = replay(&platform, &[]).ok();
    assert!(text.ends_with("bit for bit the same\n"), "{text}");
    let nothing = replay(&platform, &["--from", "2999-01-01T00:00:00Z"]).ok();
    assert!(nothing.ends_with("no cycle was compared\n"), "{nothing}");

    cut_and_checked(&platform, &folder);
    asked_what_if(&platform, &folder);

    let elsewhere = platform.run(&binary("pumice"), ["scheduler", "replay", "/nonexistent"], None);
    assert_eq!(elsewhere.code, 2, "{elsewhere:?}");
    assert!(elsewhere.stderr.contains("/nonexistent could not be read"), "{elsewhere:?}");
}

/// A job of the recording becomes a case that `check` runs, and names nobody if it is not to.
fn cut_and_checked(platform: &Platform, folder: &str) {
    let pumice = |words: &[&str]| platform.run(&binary("pumice"), [&["scheduler"], words].concat(), None);
    let file = platform.data_dir().join("one.case");
    let file = file.to_str().unwrap();
    let cut = |more: &[&str]| pumice(&[&["record", "cut", folder, "--job", "default/one", "-o", file], more].concat());
    for more in [&[][..], &["--redact"]] {
        let told = cut(more).ok();
        assert!(told.contains("one.case: ") && told.contains(" cycles from "), "{told}");
        let checked = pumice(&["check", file]).ok();
        assert!(checked.ends_with("1 pass, 0 differ on purpose, 0 fail\n"), "{checked}");
    }
    let none = pumice(&["record", "cut", folder, "--job", "default/none", "-o", file]);
    assert_eq!(none.code, 2, "{none:?}");
    assert!(none.stderr.contains("the recording has no job default/none in that time"), "{none:?}");
    std::fs::write(file, &std::fs::read(file).unwrap()[..100]).unwrap();
    let half = pumice(&["check", file]);
    assert_eq!(half.code, 2, "{half:?}");
    assert!(half.stderr.contains("it is cut off"), "{half:?}");
}

/// What another configuration would have done with the recorded jobs.
fn asked_what_if(platform: &Platform, folder: &str) {
    let conf = platform.data_dir().join("other.yaml");
    let text =
        "actions: enqueue, allocate\ntiers:\n- plugins:\n  - name: gang\n  - name: predicates\n  - name: nodeorder\n";
    std::fs::write(&conf, text).unwrap();
    let conf = conf.to_str().unwrap();
    let replay = |more: &[&str]| {
        let words = [&["scheduler", "replay", folder, "--conf", conf], more].concat();
        platform.run(&binary("pumice"), words, None)
    };
    let told: Value = serde_json::from_str(&replay(&["-o", "json"]).ok()).unwrap();
    let policies: Vec<&str> =
        told["report"]["runs"].as_array().unwrap().iter().filter_map(|run| run["policy"].as_str()).collect();
    assert_eq!(policies, ["recorded", "same conf", "other"], "{told:#}");
    let text = replay(&[]).ok();
    assert!(text.contains("jobs from same conf to other: "), "{text}");
    let weigh = |queue: &str| platform.run(&binary("pumice"), ["scheduler", "replay", folder, "--weight", queue], None);
    let text = weigh("default=3").ok();
    assert!(text.contains("jobs from same conf to default=3: "), "{text}");
    let unknown = weigh("nobody=3");
    assert_eq!(unknown.code, 2, "{unknown:?}");
    assert!(unknown.stderr.contains("the recording has no queue nobody; it has "), "{unknown:?}");
    std::fs::write(conf, "actions: fly\n").unwrap();
    let refused = replay(&[]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("other.yaml refused"), "{refused:?}");
}
