//! When what waits is expected to start, and how sure that is.
//!
//! A guess from sums, cheap enough for each of a million groups: what stands before a group in its line, what others of the
//! same standing have served meanwhile, what runs and when it is expected to end. Guesses are compared with what came, and
//! what is told is an interval in which as many of those like it lay. Invariant: nothing here changes a decision. Brought
//! up to date by `cycle_end`; read by `World::reasons`.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::ids::{GroupId, QueueNamespace, TimeMs};
use crate::policy::Policy;
use crate::reasons::Reason;
use crate::search::View;
use crate::search::pending::queue_positions::{Entry, Waiting};
use crate::search::pending::{PendingIndex, SIZE_MAX, SIZE_WHOLE as WHOLE};
use crate::search::reservation_forecast;
use crate::share;
use crate::world::end_times::Confidence;
use crate::world::minimum::awaited;
use crate::world::tables::Tables;
use crate::world::tasks::TaskState;

/// Where more runs, nodes are not looked at one by one.
const PODS_LOOKED_AT_MAX: usize = 100_000;
/// Where more groups wait, they are not looked at one by one to find a group's place: each cycle does so for many.
const COMPARED_MAX: usize = 500;
/// Groups whose start is guessed to be compared with what comes.
const WATCHED_MAX: usize = 4_096;
/// Of these, in one cycle.
const WATCHED_A_CYCLE: usize = 16;
/// Tried for that: where nothing can be told of many, the rest is not asked for.
const TRIED_A_CYCLE: usize = 256;
/// Guesses remembered of each length.
const REMEMBERED: usize = 128;
/// Guesses of about a length of which it must be known what came before the next one is corrected by them.
const ENOUGH: usize = 12;
/// Lengths told apart: each twice the one before, from a second on.
const LENGTHS: usize = 24;

/// How closely it is looked before a start is guessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// At sums: good for all groups, many times.
    Sums,
    /// At the nodes, too, where sums say that a group would have started: for one that somebody asks for.
    Nodes,
}

/// An expected start, in milliseconds from now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Guess {
    /// Half of those like it came earlier.
    pub(crate) lead_ms: i64,
    /// One of ten came before this.
    pub(crate) early_ms: i64,
    /// One of fifty came before this.
    pub(crate) earliest_ms: i64,
    /// One of ten came after this.
    pub(crate) late_ms: i64,
}

/// What runs: what will come free, and when.
#[derive(Debug, Default)]
struct Releases {
    at: TimeMs,
    /// Free now, in parts of the cluster.
    free: i64,
    /// Held by what has no known end.
    endless: i64,
    /// What is left of the rest, in parts times seconds.
    work: i64,
    /// When how much comes free, in order.
    ends: Vec<(TimeMs, i64)>,
    /// The same at the soonest; empty where no deadline asks for it.
    soonest: Vec<(TimeMs, i64)>,
}

/// A wait as long as was guessed.
const WHOLE_RATIO: i64 = 1_000;

/// Parts in a thousand: how the waits were, beside what was guessed.
type Ratios = SmallVec<[u32; 8]>;

#[derive(Debug, Default)]
pub(crate) struct StartEstimates {
    releases: Option<Releases>,
    watched: FxHashMap<GroupId, WatchedGuess>,
    watched_now: usize,
    tried_now: usize,
    /// By length of the guess, the oldest replaced first.
    came: Vec<(Ratios, usize)>,
}

/// A guess that is compared with what comes of it.
#[derive(Debug, Clone, Copy)]
struct WatchedGuess {
    /// When the group was made: ids are given out again.
    group_created: TimeMs,
    made: TimeMs,
    lead_ms: i64,
}

impl StartEstimates {
    /// A cycle ends: what runs is looked at, if it is time to. True if it was.
    pub(crate) fn refresh(&mut self, tables: &Tables, pending_index: &PendingIndex, now: TimeMs) -> bool {
        (self.watched_now, self.tried_now) = (0, 0);
        let every = reservation_forecast::renewal_ms(tables);
        let is_fresh = self.releases.as_ref().is_some_and(|old| now < old.at.plus_ms(every));
        let is_due =
            !is_fresh && (pending_index.queue_positions.all().next().is_some() || !tables.groups.deadlines.is_empty());
        if is_due {
            self.releases = Some(Releases::look(tables, now));
        }
        is_due
    }

    /// Watches what becomes of a group that waits.
    pub(crate) fn watch(&mut self, view: View<'_>, group: GroupId) {
        let row = view.tables.groups.row(group);
        let created = row.created;
        if !row.reasons.as_ref().is_some_and(|kept| is_foreseeable(&kept.failure.reasons)) {
            return;
        }
        let known = self.watched.get(&group).is_some_and(|guess| guess.group_created == created);
        let enough = self.watched_now >= WATCHED_A_CYCLE || self.tried_now >= TRIED_A_CYCLE;
        if known || enough || self.watched.len() >= WATCHED_MAX {
            return;
        }
        self.tried_now += 1;
        if let Some(lead_ms) = self.lead_ms(view, group, Look::Sums) {
            self.watched_now += 1;
            self.watched.insert(group, WatchedGuess { group_created: created, made: view.now, lead_ms });
        }
    }

    /// A group has started, or is gone: what was guessed of it is compared with what came.
    pub(crate) fn ended(&mut self, group: GroupId, started: Option<TimeMs>, now: TimeMs) {
        let Some(WatchedGuess { group_created, made, lead_ms }) = self.watched.remove(&group) else { return };
        if started != Some(group_created) {
            return;
        }
        let waited = now.0.saturating_sub(made.0).max(1_000);
        let ratio = waited.saturating_mul(1_000) / lead_ms.max(1_000);
        self.came.resize_with(LENGTHS, Default::default);
        let (ratios, next) = &mut self.came[length_of(lead_ms)];
        let ratio = u32::try_from(ratio).unwrap_or(u32::MAX);
        if ratios.len() < REMEMBERED {
            ratios.push(ratio);
        } else {
            ratios[*next] = ratio;
            *next = (*next + 1) % REMEMBERED;
        }
    }

    /// When the group is expected to start, as those like it did.
    pub(crate) fn guess(&self, view: View<'_>, group: GroupId, look: Look) -> Option<Guess> {
        let lead_ms = self.lead_ms(view, group, look)?;
        let mut ratios = self.ratios(lead_ms);
        if view.tables.reservations.of(group).is_some() {
            // It has a time of its own, which is told in its place.
            let [earliest, early, middle, late] = &mut ratios;
            *middle = WHOLE_RATIO;
            [earliest, early].into_iter().for_each(|ratio| *ratio = (*ratio).min(WHOLE_RATIO));
            *late = (*late).max(WHOLE_RATIO);
        }
        let [earliest, early, middle, late] = ratios;
        let by = |ratio: i64| lead_ms.max(1_000).saturating_mul(ratio) / 1_000;
        let least = self.least_lead_ms(view.pending_index, group, view.now);
        let [earliest_ms, early_ms] = [earliest, early].map(|ratio| by(ratio).max(least).min(by(middle)));
        Some(Guess { lead_ms: by(middle), early_ms, earliest_ms, late_ms: by(late) })
    }

    /// The group can't start before so much has come free as it needs, if all that runs ends at the soonest.
    fn least_lead_ms(&self, pending_index: &PendingIndex, group: GroupId, now: TimeMs) -> i64 {
        let releases = self.releases.as_ref().filter(|releases| !releases.soonest.is_empty());
        let size = pending_index.queue_positions.entry(group).map(|entry| entry.waiting().size);
        let least = releases.zip(size).and_then(|(releases, size)| releases.soonest(size - releases.free));
        least.map_or(0, |at| at.0.saturating_sub(now.0).max(0))
    }

    /// The fiftieth, the tenth, the half and nine tenths of what came of guesses of that length, or of the next ones to it.
    fn ratios(&self, lead_ms: i64) -> [i64; 4] {
        let length = length_of(lead_ms);
        let mut near: Vec<u32> = Vec::new();
        for apart in 0..LENGTHS {
            let shorter = length.checked_sub(apart);
            let longer = if apart == 0 { None } else { length.checked_add(apart) };
            let around = shorter.into_iter().chain(longer).filter_map(|at| self.came.get(at));
            near.extend(around.flat_map(|(ratios, _)| ratios));
            if near.len() >= ENOUGH {
                break;
            }
        }
        if near.len() < ENOUGH {
            return [100, 300, WHOLE_RATIO, 3_000];
        }
        near.sort_unstable();
        [20, 100, 500, 900].map(|part| i64::from(near[(near.len() * part / 1_000).min(near.len() - 1)]))
    }

    /// In how many milliseconds the group would start if all sums were as they seem.
    fn lead_ms(
        &self,
        View { tables, policy, pending_index, now }: View<'_>,
        group: GroupId,
        look: Look,
    ) -> Option<i64> {
        if let Some(reservation) = tables.reservations.of(group) {
            return reservation.forecast.as_ref().map(|forecast| forecast.at.0.saturating_sub(now.0).max(0));
        }
        let releases = self.releases.as_ref()?;
        let entry = pending_index.queue_positions.entry(group)?;
        tables.queues.table.get(entry.owner.0.index())?;
        let own = before_in_line(tables, policy, pending_index, group, entry);
        let before = before(tables, policy, pending_index, entry.owner, own);
        let known = before.groups.saturating_sub(before.unknown);
        if known == 0 && before.unknown > 0 {
            return None;
        }
        // Those of which nothing is known run as long as the others.
        let work = i128::from(before.work) * i128::from(before.groups.max(1)) / i128::from(known.max(1));
        let work = i64::try_from(work).unwrap_or(i64::MAX);
        let lacking = before.size.saturating_add(entry.waiting().size).saturating_sub(releases.free);
        let by_ends = releases.when(lacking);
        let passed = now.0.saturating_sub(releases.at.0);
        let capacity = WHOLE.saturating_sub(releases.endless);
        let work = releases.work.saturating_add(work);
        let by_work = if capacity > 0 && work > 0 {
            i64::try_from(i128::from(work) * 1_000 / i128::from(capacity)).ok()
        } else {
            None
        };
        let by_nodes = || reservation_forecast::forecast(tables, policy, group, Confidence::Expected, now);
        let is_cheap = look == Look::Nodes && tables.tasks.span() <= PODS_LOOKED_AT_MAX;
        if lacking <= 0 {
            // By sums it would have started: what is free lies where it can't be used.
            if !is_cheap {
                return None;
            }
            let forecast = by_nodes().filter(|forecast| forecast.at > now)?;
            return Some(forecast.at.0.saturating_sub(now.0));
        }
        if !is_placeable(tables, policy, group) {
            return None;
        }
        let lead_ms =
            [by_ends.map(|end| end.0.saturating_sub(now.0)), by_work.map(|lead_ms| lead_ms.saturating_sub(passed))];
        let lead_ms = lead_ms.into_iter().flatten().min().map(|lead_ms| lead_ms.max(0))?;
        // Sums know nothing of nodes that are closed to it.
        if tables.maintenance_windows.all.is_empty() || !is_cheap {
            return Some(lead_ms);
        }
        Some(by_nodes().map_or(lead_ms, |forecast| lead_ms.max(forecast.at.0.saturating_sub(now.0))))
    }
}

/// Whether it waits for what time brings by itself: room that comes free, its share, its turn.
pub(crate) fn is_foreseeable(reasons: &[Reason]) -> bool {
    let comes = |reason: &Reason| match reason {
        Reason::QueueLimit { never, of_cluster, .. } => !never && *of_cluster,
        Reason::NodesUnfit(_) | Reason::QueueShare { .. } | Reason::Overcommitted { .. } => true,
        Reason::StrictOrder { .. } | Reason::WaitsBehind { .. } | Reason::RoomIsFreed { .. } => true,
        _ => false,
    };
    !reasons.is_empty() && reasons.iter().all(comes)
}

/// Whether there are nodes that could take each of the pods that the group needs, if they were empty.
fn is_placeable(tables: &Tables, policy: &Policy, group: GroupId) -> bool {
    let parts = awaited(tables, group).parts;
    parts.iter().all(|part| {
        let class = tables.classes.row(part.class);
        let offers = |node| class.demand.iter().all(|(dim, amount)| amount <= tables.nodes.allocatable(node, dim));
        tables.nodes.ids().any(|node| offers(node) && policy.check_facts(tables, class, node).is_none())
    })
}

fn length_of(lead_ms: i64) -> usize {
    let seconds = u64::try_from(lead_ms / 1_000).unwrap_or(0);
    usize::try_from(64 - seconds.leading_zeros()).unwrap_or(0).min(LENGTHS - 1)
}

/// What stands before a group in its own line: one by one where few wait, as those who came within a minute share a place.
fn before_in_line(
    tables: &Tables,
    policy: &Policy,
    pending_index: &PendingIndex,
    group: GroupId,
    entry: &Entry,
) -> Waiting {
    let waiting = &tables.groups.waiting;
    if waiting.len() > COMPARED_MAX {
        return pending_index.queue_positions.before(entry);
    }
    let mut before = Waiting::default();
    for other in waiting.iter().filter(|other| **other != group) {
        let Some(its) = pending_index.queue_positions.entry(*other).filter(|its| its.owner == entry.owner) else {
            continue;
        };
        let goes_first = its.rank_order(entry).then_with(|| policy.job_order(tables, *other, group));
        if goes_first.is_lt() {
            before.add(its.waiting(), 1);
        }
    }
    before
}

/// What is served before a group comes to its turn: what stands before it in its line, and meanwhile of others as much for
/// their weight, and until they hold as much.
fn before(
    tables: &Tables,
    policy: &Policy,
    pending_index: &PendingIndex,
    owner: QueueNamespace,
    own: Waiting,
) -> Waiting {
    let mut before = own;
    let standing = |(queue, namespace): QueueNamespace| {
        let row = tables.queues.row(queue);
        let (held, weight) = match policy.shares_among_namespaces(tables, queue) {
            true => tables.namespace_shares.usage_and_weight(&tables.nodes.total, queue, namespace),
            false => (share::dominant(&row.tree.allocated, &tables.nodes.total), 1),
        };
        let weight = weight.saturating_mul(i64::from(row.weight.max(1))).max(1);
        (held / (share::WHOLE / WHOLE), weight)
    };
    let (held, weight) = standing(owner);
    // A queue that has just gone has its line until the next cycle.
    let is_there = |(queue, _): QueueNamespace| tables.queues.table.get(queue.index()).is_some();
    for (other, waiting) in pending_index.queue_positions.all().filter(|(other, _)| *other != owner && is_there(*other))
    {
        let (others_hold, others_weight) = standing(other);
        let level = i128::from(held.saturating_add(own.size)) * i128::from(others_weight) / i128::from(weight);
        let level = i64::try_from(level).unwrap_or(i64::MAX);
        let served = level.saturating_sub(others_hold).clamp(0, waiting.size);
        if waiting.size > 0 && served > 0 {
            let part = |amount: i64| {
                let part = i128::from(amount) * i128::from(served) / i128::from(waiting.size);
                i64::try_from(part).unwrap_or(i64::MAX)
            };
            let (groups, unknown) = (part(waiting.groups), part(waiting.unknown));
            before.add(Waiting { groups, unknown, size: served, work: part(waiting.work) }, 1);
        }
    }
    before
}

crate::save::saved! {
    StartEstimates as "Outlook" { releases, watched, watched_now, tried_now, came };
    Releases { at, free, endless, work, ends, soonest };
}

crate::save::saved_unmarked!(WatchedGuess { group_created, made, lead_ms });

impl Releases {
    /// O(pods), and a sort of their ends.
    fn look(tables: &Tables, now: TimeMs) -> Self {
        let mut releases = Self { at: now, free: WHOLE, ..Self::default() };
        for (task, row) in tables.tasks.iter() {
            if !row.state.holds_node() && row.state != TaskState::Pipelined || row.node.is_none() {
                continue;
            }
            let size = tables.size(row.class).min(SIZE_MAX);
            releases.free = releases.free.saturating_sub(size);
            if !tables.groups.deadlines.is_empty() {
                releases.soonest.push((tables.soonest_end_of(task, now).unwrap_or(now), size));
            }
            match tables.end_of(task, Confidence::Expected, now) {
                Some(end) => {
                    let seconds = end.0.saturating_sub(now.0) / 1_000;
                    releases.work = releases.work.saturating_add(size.saturating_mul(seconds));
                    releases.ends.push((end, size));
                }
                None => releases.endless = releases.endless.saturating_add(size),
            }
        }
        releases.free = releases.free.max(0);
        releases.ends.sort_unstable();
        releases.soonest.sort_unstable();
        releases
    }

    /// When so much more will be free than is now.
    fn when(&self, lacking: i64) -> Option<TimeMs> {
        if lacking <= 0 {
            return Some(self.at);
        }
        first_with(&self.ends, lacking)
    }

    /// The same if all that runs ends at the soonest.
    fn soonest(&self, lacking: i64) -> Option<TimeMs> {
        if lacking <= 0 { None } else { first_with(&self.soonest, lacking) }
    }
}

/// The first of these ends by which so much has come free.
fn first_with(ends: &[(TimeMs, i64)], lacking: i64) -> Option<TimeMs> {
    let mut freed = 0_i64;
    ends.iter().find_map(|(end, size)| {
        freed = freed.saturating_add(*size);
        (freed >= lacking).then_some(*end)
    })
}
