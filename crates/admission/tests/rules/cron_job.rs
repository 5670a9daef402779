//! CronJobs: one case for each rule.

use super::cluster::typed;
use pumice_admission::{Findings, cron_job};
use serde_json::json;

fn refusal(name: &str, schedule: &str, zone: Option<&str>) -> Option<String> {
    let mut findings = Findings::default();
    let cron = json!({ "metadata": { "name": name }, "spec": { "schedule": schedule, "timeZone": zone } });
    cron_job::validate(&typed(&cron), |zone| zone == "Europe/Berlin", &mut findings);
    findings.refusal()
}

#[test]
fn schedules_and_zones_can_be_followed() {
    let long = "x".repeat(53);
    let cases = [
        ("c", "*/5 * * * *", None, None),
        ("c", "@every 10m", None, None),
        ("c", "0 6 * * MON-FRI", Some("Europe/Berlin"), None),
        (&long[..52], "@hourly", None, None),
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
