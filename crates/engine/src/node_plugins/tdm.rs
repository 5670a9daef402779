//! `tdm`: nodes that batch work may use only at certain times of the day ("revocable zones").
//!
//! Where Volcano knows only today's window, one that passes midnight holds after it, too; and a group below its own
//! `jdb-min-available` gives nothing away. Times are UTC.

use std::collections::{BTreeMap, BTreeSet};

use pumice_units::GoDuration;
use rustc_hash::FxHashMap;

use crate::cluster::classes::ClassRow;
use crate::config::{Argument, PluginConfig};
use crate::facts::PodTemplate;
use crate::ids::{GroupId, NodeId, TaskId, TimeMs};
use crate::plugin::{Plugin, Region, Vote};
use crate::reasons::Check;
use crate::save::Save;
use crate::world::groups::GroupRow;
use crate::world::tables::Tables;
use crate::world::tasks::TaskState;

pub(crate) const ARGUMENTS: &[&str] = &["tdm.revocable-zone.*", "tdm.evict.period"];
/// What of a pod's annotations its template needs.
pub(crate) const TEMPLATE_ANNOTATIONS: &[&str] = &[ZONE, PREEMPTABLE];

const ZONE: &str = "volcano.sh/revocable-zone";
const PREEMPTABLE: &str = "volcano.sh/preemptable";
const MIN_AVAILABLE: &str = "volcano.sh/jdb-min-available";
const MAX_UNAVAILABLE: &str = "volcano.sh/jdb-max-unavailable";
const ZONE_ARGUMENT: &str = "tdm.revocable-zone.";
const PERIOD_MS: i64 = 60_000;
const DAY_MINUTES: i64 = 1_440;
const SCORE: i64 = 100;

/// From a minute of the day until before another; past midnight where the end is not after the start.
#[derive(Debug, Clone, Copy)]
struct Window {
    start: i64,
    end: i64,
}

#[derive(Debug, Default)]
pub(crate) struct Tdm {
    windows: BTreeMap<String, Window>,
    period_ms: i64,
    /// Zones that may be used now.
    open: BTreeSet<String>,
    epoch: u64,
    last_eviction: Option<TimeMs>,
    due: bool,
}

impl Tdm {
    /// A zone whose time can't be read is never open.
    pub(crate) fn new(config: &PluginConfig) -> Self {
        let zones = config.arguments.iter().filter_map(|(name, value)| {
            let zone = name.strip_prefix(ZONE_ARGUMENT)?;
            let Argument::Text(text) = value else { return None };
            Some((zone.to_owned(), window(text)?))
        });
        let period = config.text("tdm.evict.period").and_then(|text| text.parse::<GoDuration>().ok());
        let period_ms = period.map_or(PERIOD_MS, |period| period.as_millis().max(0));
        Self { windows: zones.collect(), period_ms, ..Self::default() }
    }

    /// At most as many of each group as its budget allows.
    fn within_budgets(&self, tables: &Tables, candidates: impl Iterator<Item = TaskId>) -> Vec<TaskId> {
        let mut left: FxHashMap<GroupId, u32> = FxHashMap::default();
        let mut allowed = |task: &TaskId| {
            let Some(group) = tables.task(*task).group else { return false };
            let left = left.entry(group).or_insert_with(|| budget(tables.groups.row(group)));
            let allowed = *left > 0;
            *left = left.saturating_sub(1);
            allowed
        };
        candidates.filter(|task| allowed(task)).collect()
    }
}

fn window(text: &str) -> Option<Window> {
    let minute = |text: &str| {
        let (hours, minutes) = text.trim().split_once(':')?;
        let (hours, minutes) = (hours.parse::<i64>().ok()?, minutes.parse::<i64>().ok()?);
        ((0..24).contains(&hours) && (0..60).contains(&minutes)).then_some(hours * 60 + minutes)
    };
    let (start, end) = text.split_once('-')?;
    Some(Window { start: minute(start)?, end: minute(end)? })
}

impl Window {
    fn holds(self, now: TimeMs) -> bool {
        let minute = now.0.div_euclid(60_000).rem_euclid(DAY_MINUTES);
        if self.start < self.end {
            (self.start..self.end).contains(&minute)
        } else {
            minute >= self.start || minute < self.end
        }
    }
}

/// How many running pods the group can do without. Volcano's rules, but never below its own minimum.
fn budget(row: &GroupRow) -> u32 {
    let count = |state| row.counts.get(state);
    let (all, running) = (row.counts.all(), count(TaskState::Running));
    let ended = count(TaskState::Succeeded) + count(TaskState::Failed);
    let amount = |key: &str| row.annotations.get(key).map(|text| share(text, all));
    match (amount(MAX_UNAVAILABLE), amount(MIN_AVAILABLE)) {
        (Some(max), _) => max.saturating_sub(all.saturating_sub(ended).saturating_sub(running)),
        (None, Some(min)) => running.saturating_sub(min),
        (None, None) => 1,
    }
}

/// A number, or a percentage of `all`, rounded up. What can't be read is 0.
fn share(text: &str, all: u32) -> u32 {
    match text.trim().strip_suffix('%') {
        Some(percent) => {
            let percent = percent.parse::<u64>().unwrap_or(0);
            u32::try_from(u64::from(all).saturating_mul(percent).div_ceil(100)).unwrap_or(u32::MAX)
        }
        None => text.trim().parse().unwrap_or(0),
    }
}

fn zone_of(tables: &Tables, node: NodeId) -> Option<&str> {
    tables.nodes.row(node).labels.get(ZONE).map(String::as_str).filter(|zone| !zone.is_empty())
}

/// Whether pods made so may run in revocable zones at all.
fn may_use_zones(template: &PodTemplate) -> bool {
    match template.annotations.get(ZONE) {
        Some(zone) => zone == "*",
        None => template.annotations.get(PREEMPTABLE).is_some_and(|text| text == "true"),
    }
}

impl Plugin for Tdm {
    fn open(&mut self, _tables: &Tables, now: TimeMs) {
        let open = self.windows.iter().filter(|(_, window)| window.holds(now)).map(|(zone, _)| zone.clone()).collect();
        if self.open != open {
            self.open = open;
            self.epoch += 1;
        }
        self.due = self.last_eviction.is_none_or(|last| last.plus_ms(self.period_ms) <= now);
        if self.due {
            self.last_eviction = Some(now);
        }
    }

    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn memory(&self) -> Vec<u8> {
        let mut memory = Vec::new();
        self.open.save(&mut memory);
        self.epoch.save(&mut memory);
        self.last_eviction.save(&mut memory);
        memory
    }

    fn remember(&mut self, memory: &[u8]) {
        if let Ok((open, epoch, last_eviction)) = Save::load(&mut memory.into()) {
            (self.open, self.epoch, self.last_eviction) = (open, epoch, last_eviction);
        }
    }

    fn check_facts(&self, tables: &Tables, class: &ClassRow, node: NodeId) -> Option<Check> {
        let zone = zone_of(tables, node)?;
        (!self.open.contains(zone) || !may_use_zones(&class.template)).then_some(Check::RevocableZone)
    }

    fn scores_nodes(&self) -> bool {
        true
    }

    fn score(&self, tables: &Tables, class: &ClassRow, node: NodeId) -> i64 {
        if zone_of(tables, node).is_some() && may_use_zones(&class.template) { SCORE } else { 0 }
    }

    fn bound_scores(&self, _: &Tables, class: &ClassRow, _regions: &[Region<'_>], _bounds: &mut [i64]) -> bool {
        !may_use_zones(&class.template)
    }

    /// Groups whose pods may not be victims go first.
    fn job_order(&self, tables: &Tables, left: GroupId, right: GroupId) -> std::cmp::Ordering {
        let preemptable = |group| tables.groups.row(group).preemptable.unwrap_or(false);
        preemptable(left).cmp(&preemptable(right))
    }

    fn job_pipelined(&self, tables: &Tables, group: GroupId) -> Vote {
        let row = tables.groups.row(group);
        let coming = row.counts.ready() + row.counts.pipelined() + row.pending_best_effort;
        if coming >= row.min_member { Vote::Permit } else { Vote::Reject }
    }

    fn job_starving(&self, tables: &Tables, group: GroupId) -> Option<bool> {
        let row = tables.groups.row(group);
        Some(!row.preemptable.unwrap_or(false) && row.pending() > 0)
    }

    /// Work that may not be a victim takes back ordinary nodes from work that may.
    fn preemptable(&self, tables: &Tables, preemptor: TaskId, candidates: &[TaskId]) -> Option<Vec<TaskId>> {
        let wants = tables.task(preemptor);
        if wants.preemptable || may_use_zones(&tables.classes.row(wants.class).template) {
            return Some(Vec::new());
        }
        let leaves = |task: &TaskId| {
            let row = tables.task(*task);
            let ordinary = row.node.is_some_and(|node| zone_of(tables, node).is_none());
            row.state == TaskState::Running && row.preemptable && ordinary
        };
        Some(self.within_budgets(tables, candidates.iter().copied().filter(leaves)))
    }

    fn victim_key(&self, tables: &Tables, preemptor: TaskId) -> Option<u64> {
        let row = tables.task(preemptor);
        Some(u64::from(row.preemptable) | u64::from(may_use_zones(&tables.classes.row(row.class).template)) << 1)
    }

    /// Once a period, those who are still where the time is over.
    fn victim_tasks(&self, tables: &Tables) -> Vec<TaskId> {
        if !self.due {
            return Vec::new();
        }
        let closed = |node: &NodeId| zone_of(tables, *node).is_some_and(|zone| !self.open.contains(zone));
        let mut tasks: Vec<TaskId> =
            tables.nodes.ids().filter(closed).flat_map(|node| tables.nodes.row(node).tasks.iter().copied()).collect();
        tasks.sort_unstable();
        let leaves = |task: &TaskId| {
            let row = tables.task(*task);
            row.state == TaskState::Running && row.preemptable
        };
        self.within_budgets(tables, tasks.into_iter().filter(leaves))
    }

    fn checks_use_of(&self, _class: &ClassRow) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;
