//! What is told of a directory: its status and Events.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use pumice_api::directory::{Directory, DirectoryStatus};
use pumice_api::tenant::Tenant;
use pumice_api::topology::Condition;
use pumice_cluster::EventRecorder;
use pumice_cluster::events::{Occurrence, Severity};
use pumice_machines::directory::{ChangeKind, DirectoryPlan, Outcome};
use serde_json::{Value, json};

use crate::write::Written;

/// The condition that says whether the directory is followed.
const READY: &str = "Ready";
/// Longest message of a status, in bytes.
const MESSAGE_BYTES_MAX: usize = 4_096;
/// A status in which nothing is new but when the directory was read is written no more often.
const READ_AT_EVERY: Duration = Duration::from_secs(30);

/// What came of a reading.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Report {
    /// Whether Tenants follow the directory as it is now.
    is_ready: bool,
    reason: &'static str,
    message: String,
    /// Entries that were read, and how many of them were refused; nothing where the reading failed.
    counts: Option<(i64, i64)>,
}

impl Report {
    /// Of a reading that failed.
    pub fn failed(message: String) -> Report {
        let message = format!("the directory can't be read, and nothing is changed: {message}");
        Report { is_ready: false, reason: "ReadFailed", message, counts: None }
    }

    /// Of a reading, and of what was written then.
    pub fn of(plan: &DirectoryPlan, written: &Written) -> Report {
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let (is_ready, reason) = match plan.outcome {
            Outcome::Empty => (false, "Empty"),
            Outcome::TooManyGone => (false, "TooManyGone"),
            Outcome::Counts if written.failed > 0 => (false, "WriteFailed"),
            Outcome::Counts => (true, "Read"),
        };
        let mut parts = written.failures.clone();
        if written.failed > written.failures.len() {
            parts.push(format!("{} more can't be written", written.failed - written.failures.len()));
        }
        parts.extend(Some(plan.message.clone()).filter(|message| !message.is_empty()));
        let mut message = parts.join("; ");
        message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
        Report { is_ready, reason, message, counts: Some((count(plan.users), count(plan.refused))) }
    }

    /// The status as a patch; nothing where it would say nothing new.
    pub fn patch(&self, directory: &Directory, now: Timestamp) -> Option<Value> {
        let before = &directory.status;
        let after = self.status(directory, now);
        let is_same = DirectoryStatus { read_at: before.read_at.clone(), ..after.clone() } == *before;
        let is_recent = match (&before.read_at, &after.read_at) {
            (Some(before), Some(after)) => after.0.duration_since(before.0).unsigned_abs() < READ_AT_EVERY,
            (before, after) => before == after,
        };
        if is_same && is_recent {
            return None;
        }
        let DirectoryStatus { read_at, users, refused, message, conditions } = after;
        // Each field, also an empty one: a patch leaves alone what it does not name.
        Some(json!({"status": {
            "readAt": read_at, "users": users, "refused": refused, "message": message, "conditions": conditions,
        }}))
    }

    fn status(&self, directory: &Directory, now: Timestamp) -> DirectoryStatus {
        let before = &directory.status;
        let status = if self.is_ready { "True" } else { "False" };
        let since = before.conditions.iter().find(|condition| condition.type_ == READY && condition.status == status);
        let since = since.and_then(|condition| condition.last_transition_time.clone());
        let sentence = if self.message.is_empty() { "Tenants follow the directory" } else { &self.message };
        let ready = Condition {
            type_: READY.to_owned(),
            status: status.to_owned(),
            observed_generation: directory.metadata.generation.unwrap_or_default(),
            last_transition_time: Some(since.unwrap_or(Time(whole_second(now)))),
            reason: self.reason.to_owned(),
            message: sentence.to_owned(),
        };
        let (users, refused) = self.counts.unwrap_or((before.users, before.refused));
        let read_at = if self.counts.is_some() { Some(Time(whole_second(now))) } else { before.read_at.clone() };
        DirectoryStatus { read_at, users, refused, message: self.message.clone(), conditions: vec![ready] }
    }

    /// Tells of the directory what was not so before.
    pub fn tell(&self, before: Option<&Report>, directory: &Directory, recorder: &EventRecorder, at: Timestamp) {
        let is_new = before.is_none_or(|before| (before.reason, &before.message) != (self.reason, &self.message));
        if !is_new || self.message.is_empty() {
            return;
        }
        let (severity, reason) = if self.is_ready && self.counts.is_none_or(|(_, refused)| refused == 0) {
            (Severity::Normal, self.reason)
        } else if self.is_ready {
            (Severity::Warning, "Refused")
        } else {
            (Severity::Warning, self.reason)
        };
        let name = directory.metadata.name.as_deref().unwrap_or_default();
        if severity == Severity::Warning {
            tracing::warn!(directory = name, reason, message = self.message, "a directory is not followed in all");
        }
        let about = about("Directory", &directory.metadata);
        recorder.record(Occurrence { about, severity, reason: reason.to_owned(), message: self.message.clone(), at });
    }
}

/// Tells of a Tenant what was changed about it.
pub(crate) fn tell_change(tenant: &Tenant, kind: ChangeKind, message: String, recorder: &EventRecorder, at: Timestamp) {
    let (severity, reason) = match kind {
        ChangeKind::Updated => (Severity::Normal, "DirectoryChanged"),
        ChangeKind::Suspended => (Severity::Warning, "DirectorySuspended"),
        ChangeKind::Resumed => (Severity::Normal, "DirectoryResumed"),
    };
    tracing::info!(tenant = tenant.metadata.name, reason, message, "a tenant follows its directory");
    let about = about("Tenant", &tenant.metadata);
    recorder.record(Occurrence { about, severity, reason: reason.to_owned(), message, at });
}

fn about(kind: &str, metadata: &ObjectMeta) -> ObjectReference {
    ObjectReference {
        api_version: Some("pumice.sh/v1alpha1".to_owned()),
        kind: Some(kind.to_owned()),
        name: metadata.name.clone(),
        uid: metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

/// Objects carry whole seconds.
fn whole_second(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn plan(message: &str) -> DirectoryPlan {
        let (outcome, message) = (Outcome::Counts, message.to_owned());
        DirectoryPlan { outcome, effects: Vec::new(), users: 7, refused: 1, message }
    }

    fn taken(directory: &mut Directory, report: &Report, second: i64) -> bool {
        let patch = report.patch(directory, at(second));
        if let Some(patch) = &patch {
            directory.status = serde_json::from_value(patch["status"].clone()).unwrap();
        }
        patch.is_some()
    }

    #[test]
    fn a_failure_leaves_what_was_read_and_says_why() {
        let mut directory = Directory::default();
        assert!(taken(&mut directory, &Report::of(&plan("x is refused"), &Written::default()), 100));
        assert!(taken(&mut directory, &Report::failed("no route".into()), 200));
        let status = &directory.status;
        assert_eq!((status.users, status.refused, status.read_at.clone()), (7, 1, Some(Time(at(100)))));
        assert!(status.message.ends_with("nothing is changed: no route"), "{}", status.message);
        let ready = &status.conditions[0];
        assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "ReadFailed"));
        assert_eq!(ready.last_transition_time, Some(Time(at(200))));
        assert!(!taken(&mut directory, &Report::failed("no route".into()), 300), "nothing new");
        assert!(taken(&mut directory, &Report::of(&plan(""), &Written::default()), 400));
        assert_eq!((directory.status.message.as_str(), directory.status.conditions[0].reason.as_str()), ("", "Read"));
    }

    #[test]
    fn the_time_of_a_reading_alone_is_written_now_and_then() {
        let (mut directory, report) = (Directory::default(), Report::of(&plan(""), &Written::default()));
        assert!(taken(&mut directory, &report, 100) && !taken(&mut directory, &report, 129));
        assert!(taken(&mut directory, &report, 130));
    }

    #[test]
    fn what_could_not_be_written_is_said_first() {
        let written =
            Written { failures: vec!["Tenant a can't be written: no".into()], failed: 3, ..Written::default() };
        let report = Report::of(&plan("b is refused"), &written);
        assert_eq!(report.message, "Tenant a can't be written: no; 2 more can't be written; b is refused");
        assert_eq!((report.reason, report.is_ready), ("WriteFailed", false));
    }
}
