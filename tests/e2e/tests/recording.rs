//! What `pumice up` records, and `pumice scheduler replay` says of it.
#![allow(clippy::unwrap_used)] // a test may panic

use pumice_testkit::{Platform, binary};
use serde_json::Value;

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

    let elsewhere = platform.run(&binary("pumice"), ["scheduler", "replay", "/nonexistent"], None);
    assert_eq!(elsewhere.code, 2, "{elsewhere:?}");
    assert!(elsewhere.stderr.contains("/nonexistent could not be read"), "{elsewhere:?}");
}
