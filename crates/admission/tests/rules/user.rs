//! The user of a job: written by the platform, kept for ever.

use pumice_admission::{Findings, Rules, user};
use serde_json::{Value, json};

const KEY: &str = "pumice.sh/user";

fn annotated(user: Option<&str>) -> Value {
    match user {
        Some(user) => json!({ "metadata": { "name": "j", "annotations": { KEY: user, "other": "x" } } }),
        None => json!({ "metadata": { "name": "j" } }),
    }
}

fn stamp(new: Option<&str>, old: Option<Option<&str>>, by: &str) -> (Option<String>, Findings) {
    let mut job = annotated(new);
    let old = old.map(annotated);
    let mut findings = Findings::default();
    user::stamp(&mut job, old.as_ref(), by, &Rules::default(), &mut findings);
    (job.pointer("/metadata/annotations").and_then(|all| all[KEY].as_str()).map(str::to_owned), findings)
}

#[test]
fn a_new_job_carries_its_creator() {
    assert_eq!(stamp(None, None, "ann").0.as_deref(), Some("ann"));
    assert_eq!(stamp(Some("ann"), None, "ann").1, Findings::default());
    let (written, findings) = stamp(Some("boss"), None, "ann");
    assert_eq!(written.as_deref(), Some("ann"));
    assert_eq!(findings.warnings, ["annotation pumice.sh/user is written by the platform: set to ann"]);
    let (written, findings) = stamp(Some("ann"), None, "system:pumice:controllers");
    assert_eq!((written.as_deref(), findings), (Some("ann"), Findings::default()), "controllers pass the user on");
}

#[test]
fn a_changed_job_keeps_it() {
    assert_eq!(stamp(Some("ann"), Some(Some("ann")), "bob"), (Some("ann".into()), Findings::default()));
    assert_eq!(
        stamp(None, Some(Some("ann")), "bob").0.as_deref(),
        Some("ann"),
        "a manifest without it removes nothing"
    );
    for (new, old) in [(Some("bob"), Some("ann")), (Some("bob"), None)] {
        let (_, findings) = stamp(new, Some(old), "bob");
        assert_eq!(
            findings.refusals,
            [
                "metadata.annotations[pumice.sh/user]: Forbidden: is written by the platform; remove it from the manifest"
            ]
        );
    }
    assert_eq!(stamp(None, Some(None), "bob").0, None, "a job from before has no user");
}

#[test]
fn nonsense_is_left_for_the_schema() {
    for mut nonsense in [json!(null), json!([]), json!({ "metadata": 1 }), json!({ "metadata": { "annotations": [] } })]
    {
        let before = nonsense.clone();
        user::stamp(&mut nonsense, None, "ann", &Rules::default(), &mut Findings::default());
        assert_eq!(nonsense, before);
    }
}

#[test]
fn who_may_speak_for_others_is_a_matter_of_configuration() {
    let rules =
        Rules { controller_users: vec!["system:serviceaccount:volcano-system:controllers".into()], ..Rules::default() };
    for (by, written) in [("system:serviceaccount:volcano-system:controllers", "ann"), ("bob", "bob")] {
        let mut job = annotated(Some("ann"));
        user::stamp(&mut job, None, by, &rules, &mut Findings::default());
        assert_eq!(job["metadata"]["annotations"][KEY], written);
    }
}
