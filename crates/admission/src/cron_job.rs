//! The rules of CronJobs: a schedule and a time zone that can be followed, a name that leaves room for the time.

use pumice_api::batch::CronJob;
use pumice_machines::cron::{Schedule, zone_name};

use crate::Findings;

/// Longest name: a Job's is longer by eleven characters.
const NAME_MAX: usize = 52;
/// Longest part of a time zone's name.
const ZONE_PART_MAX: usize = 14;

/// Judges a CronJob as it would be stored. `knows_zone` says whether there is a time zone of that name.
pub fn validate(cron: &CronJob, knows_zone: impl Fn(&str) -> bool, findings: &mut Findings) {
    let name = cron.metadata.name.as_deref().unwrap_or_default();
    if name.len() > NAME_MAX {
        findings.refuse(format!("metadata.name: must be no more than {NAME_MAX} characters"));
    }
    let spec = &cron.spec;
    if spec.schedule.trim().is_empty() {
        findings.refuse("spec.schedule: schedule cannot be empty");
    } else if zone_name(&spec.schedule, None).is_some() || spec.schedule.contains("TZ") {
        findings.refuse("spec.schedule: cannot use TZ or CRON_TZ in schedule, use timeZone instead");
    } else if let Err(error) = Schedule::read(&spec.schedule, jiff::tz::TimeZone::UTC) {
        findings.refuse(format!("spec.schedule: {error}"));
    }
    let Some(zone) = &spec.time_zone else { return };
    let is_part = |part: &str| {
        (1..=ZONE_PART_MAX).contains(&part.len())
            && !part.starts_with('-')
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._+-".contains(&byte))
    };
    if zone.is_empty() {
        findings.refuse("spec.timeZone: timeZone must be nil or non-empty string");
    } else if zone.eq_ignore_ascii_case("local") {
        findings.refuse("spec.timeZone: timeZone must be an explicit time zone as defined in the IANA database");
    } else if !zone.split('/').all(is_part) || !knows_zone(zone) {
        findings.refuse(format!("spec.timeZone: unknown time zone {zone}"));
    }
}
