//! Where in its queue's order a group stands, and who is before it.
//!
//! Invariant: exact where few wait; where many do it is what the queue positions say, to the minute, and said to be about
//! that. Called by `why`.

use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

use super::holders::job_of;
use crate::facts::ObjectName;
use crate::ids::GroupId;
use crate::search::View;

/// Where more groups wait, they are not compared one by one.
const COMPARED_MAX: usize = 20_000;
/// Groups that are named.
const NAMED_MAX: usize = 3;

/// A group's place in its queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    pub queue: String,
    /// How many wait before it.
    pub ahead: u32,
    /// How many wait in all.
    pub waiting: u32,
    /// The numbers are rough: so many wait that they are not counted one by one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub about: bool,
    /// The first of those before it, `namespace/name`; three at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub behind: Vec<ObjectName>,
}

/// Nothing for a group that does not wait in a line. O(groups that wait), O(minutes) where they are many.
pub(super) fn line(View { tables, policy, pending_index, .. }: View<'_>, group: GroupId) -> Option<Line> {
    let waiting = &tables.groups.waiting;
    let row = tables.groups.row(group);
    let name = tables.queues.row(row.queue).name.to_string();
    if !waiting.contains(&group) || row.is_coming() {
        return None;
    }
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    if waiting.len() > COMPARED_MAX {
        let entry = pending_index.queue_positions.entry(group)?;
        let (ahead, all) =
            (pending_index.queue_positions.before(entry).groups, pending_index.queue_positions.of(entry.owner).groups);
        let number = |groups: i64| u32::try_from(groups.max(0)).unwrap_or(u32::MAX);
        return Some(Line { queue: name, ahead: number(ahead), waiting: number(all), about: true, behind: Vec::new() });
    }
    let in_line = |other: &&GroupId| {
        let other = tables.groups.row(**other);
        other.queue == row.queue && !other.is_coming()
    };
    let all: Vec<GroupId> = waiting.iter().filter(in_line).copied().collect();
    let mut ahead: Vec<GroupId> =
        all.iter().copied().filter(|other| policy.job_order(tables, *other, group).is_lt()).collect();
    let number = ahead.len();
    if number > NAMED_MAX {
        ahead.select_nth_unstable_by(NAMED_MAX, |left, right| policy.job_order(tables, *left, *right));
        ahead.truncate(NAMED_MAX);
    }
    ahead.sort_by(|left, right| policy.job_order(tables, *left, *right));
    let behind = ahead.into_iter().map(|other| job_of(tables, other)).collect();
    Some(Line { queue: name, ahead: count(number), waiting: count(all.len()), about: false, behind })
}

impl Display for Line {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let about = if self.about { "about " } else { "" };
        let place = self.ahead.saturating_add(1);
        write!(f, "{about}number {place} of {} that wait in queue {}", self.waiting, self.queue)?;
        if self.behind.is_empty() {
            return Ok(());
        }
        let more = if (self.behind.len() as u32) < self.ahead { ", ..." } else { "" };
        write!(f, ", behind {}{more}", self.behind.join(", "))
    }
}
