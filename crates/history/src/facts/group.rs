//! PodGroups of Jobs: when the class of the reason to wait changed.

use pumice_api::scheduling::{PodGroup, PodGroupConditionType};

use super::{Facts, Fate, Seen, job_of, millis, text, versioned};
use crate::rows::{Row, Table};

/// Class of the row that ends a wait.
pub const PLACED: &str = "Scheduled";

impl Facts for PodGroup {
    fn rows(&self, _fate: Fate, seen: Seen, rows: &mut Vec<Row>) {
        let Some(job) = job_of(&self.metadata) else { return };
        for condition in self.status.conditions.iter().filter(|condition| condition.status == "True") {
            let Some(since) = millis(condition.last_transition_time.as_ref()) else { continue };
            let class = match &condition.type_ {
                Some(PodGroupConditionType::Unschedulable) => condition.reason.as_str(),
                Some(PodGroupConditionType::Scheduled) => PLACED,
                _ => continue,
            };
            rows.push(
                versioned(Table::Waits, &self.metadata, seen)
                    .text("group_uid", text(self.metadata.uid.as_ref()))
                    .int("since", since)
                    .text("class", class)
                    .text("job_uid", &job.uid)
                    .text("summary", &condition.message),
            );
        }
    }
}
