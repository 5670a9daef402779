//! CronJobs: one case for each rule.

use super::cluster::typed;
use pumice_admission::{Findings, Rules, cron_job};
use serde_json::{Value, json};

/// A Job of one pod, with more in its spec.
fn template(more: Value) -> Value {
    let pod = json!({ "containers": [{ "name": "c", "image": "x" }] });
    let mut spec = json!({ "tasks": [{ "name": "t", "replicas": 1, "template": { "spec": pod } }] });
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    json!({ "spec": spec })
}

fn refusal(name: &str, schedule: &str, zone: Option<&str>) -> Option<String> {
    let mut findings = Findings::default();
    let spec = json!({ "schedule": schedule, "timeZone": zone, "jobTemplate": template(json!({})) });
    let cron = json!({ "metadata": { "name": name }, "spec": spec });
    cron_job::validate(&typed(&cron), None, &Rules::default(), |zone| zone == "Europe/Berlin", &mut findings);
    findings.refusal()
}

#[test]
fn schedules_and_zones_can_be_followed() {
    let long = "x".repeat(53);
    let cases = [
        ("c", "*/5 * * * *", None, None),
        ("c", "@every 10m", None, None),
        ("c", "0 6 * * MON-FRI", Some("Europe/Berlin"), None),
        (&long[..48], "@hourly", None, None),
        (&long[..52], "@hourly", None, Some("create pod with name")),
        (&long, "@hourly", None, Some("no more than 52 characters")),
        ("c", "", None, Some("schedule cannot be empty")),
        ("c", "TZ=Europe/Berlin 0 6 * * *", None, Some("use timeZone instead")),
        ("c", "CRON_TZ=Europe/Berlin 0 6 * * *", None, Some("use timeZone instead")),
        ("c", "0 25 * * *", None, Some("can't be read")),
        ("c", "0 6 * *", None, Some("can't be read")),
        ("c", "@hourly", Some(""), Some("nil or non-empty")),
        ("c", "@hourly", Some("Local"), Some("explicit time zone")),
        ("c", "@hourly", Some("Europe/../etc/passwd"), Some("unknown time zone")),
        ("c", "@hourly", Some("Moon/Crater"), Some("unknown time zone")),
        ("c", "@hourly", Some("Europe/-Berlin"), Some("unknown time zone")),
    ];
    for (name, schedule, zone, wanted) in cases {
        let found = refusal(name, schedule, zone);
        match wanted {
            Some(text) => {
                assert!(found.as_ref().is_some_and(|found| found.contains(text)), "{schedule} {zone:?}: {found:?}")
            }
            None => assert_eq!(found, None, "{schedule} {zone:?}"),
        }
    }
}

#[test]
fn its_jobs_could_be_made() {
    let judge = |new: Value, old: Option<Value>| {
        let cron = |job: Value| {
            typed(&json!({ "metadata": { "name": "c" }, "spec": { "schedule": "@hourly", "jobTemplate": job } }))
        };
        let mut findings = Findings::default();
        cron_job::validate(&cron(new), old.map(cron).as_ref(), &Rules::default(), |_| true, &mut findings);
        findings
    };
    let cases = [
        (template(json!({ "queue": "not-there-yet", "minAvailable": 1 })), None),
        (json!({}), Some("spec.jobTemplate: No task specified in job spec")),
        (template(json!({ "minAvailable": 2 })), Some("spec.jobTemplate: job 'minAvailable' should not be greater")),
        (template(json!({ "plugins": { "wings": [] } })), Some("spec.jobTemplate: unable to find job plugin: wings")),
        (template(json!({ "queue": "root" })), Some("spec.jobTemplate: can not submit job to root queue")),
        (
            template(json!({ "policies": [{ "exitCode": 0, "action": "AbortJob" }] })),
            Some("0 is not a valid error code"),
        ),
    ];
    for (job, wanted) in cases {
        let found = judge(job.clone(), None).refusal();
        assert_eq!(found.is_some(), wanted.is_some(), "{job}: {found:?}");
        assert!(wanted.is_none_or(|text| found.as_ref().unwrap().contains(text)), "{job}: {found:?}");
        assert_eq!(judge(job.clone(), Some(job)).refusal(), None, "what was stored before holds nothing up");
    }
}

#[test]
fn pods_could_be_made_of_its_jobs() {
    let cron = |user: i64, suspend: bool| {
        let pod = json!({ "containers": [{ "name": "c", "image": "x" }], "securityContext": { "runAsUser": user } });
        let job = json!({ "spec": { "tasks": [{ "name": "t", "replicas": 1, "template": { "spec": pod } }] } });
        json!({ "metadata": { "name": "c" }, "spec": { "schedule": "@hourly", "suspend": suspend, "jobTemplate": job } })
    };
    let judge = |new: &Value, old: Option<&Value>| {
        let mut findings = Findings::default();
        cron_job::validate(&typed(new), old.map(typed).as_ref(), &Rules::default(), |_| true, &mut findings);
        findings.refusal()
    };
    let fault = "spec.jobTemplate.spec.task[0].spec.securityContext.runAsUser: Invalid value: -1";
    let is_refused = |found: Option<String>| found.is_some_and(|found| found.starts_with(fault));
    assert_eq!(judge(&cron(1000, false), None), None);
    assert!(is_refused(judge(&cron(-1, false), None)));
    assert!(is_refused(judge(&cron(-1, false), Some(&cron(1000, false)))));
    assert_eq!(judge(&cron(-1, true), Some(&cron(-1, false))), None, "what was stored before can be suspended");
}
