//! CronJobs of Kubernetes' own (`batch/v1`): defaults and rules. What a schedule means is for the controller
//! to read; here it has to look like one.

use jiff::tz::TimeZone;
use pumice_objects::field::FieldError;
use serde_json::{Value, json};

use super::Strategy;
use super::batch_job::spec_rules;
use super::pod::template_defaults;
use super::workload::{fill, not_negative, one_of, short_name, spec_mut, template_errors};
use crate::problems::Problems;

/// Longest name: a Job's is longer by eleven characters.
const NAME_MAX: usize = 52;
const FIELDS: usize = 5;
const SCHEDULE_MAX: usize = 256;

pub(crate) struct CronJob;

impl Strategy for CronJob {
    fn defaults(&self, object: &mut Value) {
        let Some(spec) = spec_mut(object) else { return };
        fill(spec, "concurrencyPolicy", json!("Allow"));
        fill(spec, "suspend", json!(false));
        fill(spec, "successfulJobsHistoryLimit", json!(3));
        fill(spec, "failedJobsHistoryLimit", json!(1));
        let template = spec.get_mut("jobTemplate").and_then(|job| job.get_mut("spec")?.get_mut("template"));
        if let Some(template) = template {
            template_defaults(template);
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let spec = &object["spec"];
        short_name(&mut problems, object, NAME_MAX);
        schedule(&mut problems, &spec["schedule"]);
        if let Some(zone) = spec["timeZone"].as_str()
            && (zone.is_empty() || zone.eq_ignore_ascii_case("local") || TimeZone::get(zone).is_err())
        {
            problems.invalid("spec.timeZone", &spec["timeZone"], &format!("unknown time zone {zone}"));
        }
        let numbers = ["startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"];
        not_negative(&mut problems, spec, "spec", &numbers);
        one_of(&mut problems, "spec.concurrencyPolicy", &spec["concurrencyPolicy"], &["Allow", "Forbid", "Replace"]);
        let job = &spec["jobTemplate"]["spec"];
        spec_rules(&mut problems, job, "spec.jobTemplate.spec");
        if job["manualSelector"] == true {
            problems.not_supported("spec.jobTemplate.spec.manualSelector", "true", &["nil", "false"]);
        }
        let mut errors = problems.into_errors();
        errors.extend(template_errors(&job["template"], "spec.jobTemplate.spec.template"));
        errors
    }
}

/// Five fields, or one of the words for them.
fn schedule(problems: &mut Problems, schedule: &Value) {
    let path = "spec.schedule";
    let text = schedule.as_str().unwrap_or_default().trim();
    let fields = text.split_whitespace().count();
    if text.is_empty() {
        problems.required(path, "");
    } else if text.contains("TZ") {
        problems.invalid(path, schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead");
    } else if text.len() > SCHEDULE_MAX {
        problems.too_long(path, SCHEDULE_MAX);
    } else if !text.starts_with('@') && fields != FIELDS {
        let detail = format!("expected exactly {FIELDS} fields, found {fields}: [{text}]");
        problems.invalid(path, schedule, &detail);
    } else if text.bytes().any(|byte| !byte.is_ascii_alphanumeric() && !b"@*/,-? #.".contains(&byte)) {
        problems.invalid(path, schedule, "may hold letters, digits and @*/,-?# only");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_and_rules() {
        let pod = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
        let mut good = json!({"metadata": {"name": "c"}, "spec": {"schedule": "* * * * *",
            "jobTemplate": {"spec": {"template": pod}}}});
        CronJob.defaults(&mut good);
        assert_eq!(
            (&good["spec"]["concurrencyPolicy"], &good["spec"]["failedJobsHistoryLimit"]),
            (&json!("Allow"), &json!(1))
        );
        assert_eq!(CronJob.validate(&good), []);
        for (pointer, value, wanted) in [
            ("/metadata/name", json!("n".repeat(53)), "metadata.name"),
            ("/spec/schedule", json!(" "), "spec.schedule"),
            ("/spec/schedule", json!("* * *"), "spec.schedule"),
            ("/spec/schedule", json!("TZ=UTC * * * *"), "spec.schedule"),
            ("/spec/concurrencyPolicy", json!("x"), "spec.concurrencyPolicy"),
            ("/spec/failedJobsHistoryLimit", json!(-1), "spec.failedJobsHistoryLimit"),
            (
                "/spec/jobTemplate/spec/template/spec/restartPolicy",
                json!("Always"),
                "spec.jobTemplate.spec.template.spec.restartPolicy",
            ),
            (
                "/spec/jobTemplate/spec/template/spec/containers",
                json!([]),
                "spec.jobTemplate.spec.template.spec.containers",
            ),
        ] {
            let mut bad = good.clone();
            *bad.pointer_mut(pointer).expect("the field") = value;
            assert_eq!(CronJob.validate(&bad)[0].path, wanted);
        }
    }
}
