//! The rules of CronJobs: a schedule and a time zone that can be followed, a name that leaves room for the time, Jobs that
//! could be made.

use pumice_api::batch::CronJob;
use pumice_machines::cron::{Schedule, zone_name};

use crate::job::later;
use crate::{Findings, Rules};

/// Longest name: a Job's is longer by eleven characters.
const NAME_MAX: usize = 52;
/// What the name of a Job has after its CronJob's: a time.
const TIME: &str = "-0123456789";
/// Longest part of a time zone's name.
const ZONE_PART_MAX: usize = 14;

/// Judges a CronJob as it would be stored, over `old` if it is an update. `knows_zone` says whether there is a time zone of that
/// name.
///
/// A Job that can't be made would be refused each time, so its CronJob is. What was stored with such a Job before doesn't hold
/// up other changes.
pub fn validate(
    cron: &CronJob,
    old: Option<&CronJob>,
    rules: &Rules,
    knows_zone: impl Fn(&str) -> bool,
    findings: &mut Findings,
) {
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
    if old.is_none_or(|old| old.spec.job_template != spec.job_template) {
        let found = later::judge(&format!("{name}{TIME}"), &spec.job_template, rules);
        let path =
            |fragment: &str| if fragment.starts_with("spec.") { "spec.jobTemplate." } else { "spec.jobTemplate: " };
        found.refusals.iter().for_each(|text| findings.refuse(format!("{}{text}", path(text))));
        found.warnings.iter().for_each(|text| findings.warn(format!("{}{text}", path(text))));
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
