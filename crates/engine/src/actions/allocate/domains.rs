//! Groups whose pods must lie together in the network, or that fall into parts: the HyperNodes that the policy names
//! are tried on the tables and taken back, the closest first, and the best of the first that do is kept.
//!
//! Border: `allocate` hands over a group's turn and its worksheet; what comes back is placed and not yet decided, or
//! nothing is placed and there are reasons. Mirrors Volcano's allocateForJob and allocateForSubJob.

use rustc_hash::FxHashSet;

use super::parts::{Part, parts};
use super::{REASONS_MAX, Wanted, needed, objection};
use crate::ids::{ClassId, DimId, GroupId, HyperId, TaskId};
use crate::plugin::HyperSearch;
use crate::reasons::{NoDomain, Reason};
use crate::search::finder::{PodsWanted, Search};
use crate::session::Session;
use crate::world::sub_jobs::Reach;
use crate::world::tables::Tables;
use crate::world::tasks::Counting;
use crate::world::tasks::TaskState;

/// What HyperNodes must have room for to be tried at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    /// All pending pods of a part: so that those beyond its minimum lie close, too.
    All,
    /// The pods of its minimum.
    Minimum,
}

/// What a group whose pods must lie close together has found in its turn so far.
struct Turn {
    group: GroupId,
    counting: Counting,
    parts: Vec<Part>,
    room: Room,
    placed: Vec<TaskId>,
    /// Where nothing is placed, these have no room for the only part. Good until something else is placed.
    failed: FxHashSet<HyperId>,
    reasons: Vec<Reason>,
}

/// Places what the group needs to start, or one pod more of a part. The placed pods, or why there are none.
pub(crate) fn place_in_domains(
    session: &mut Session<'_>,
    group: GroupId,
    wanted: &Wanted,
    counting: Counting,
) -> Result<Vec<TaskId>, Vec<Reason>> {
    let parts = parts(session, group, wanted.tasks.iter().chain(&wanted.reserve));
    if let Some(reason) = unknown_tier(session.tables, group, &parts) {
        return Err(vec![reason]);
    }
    let elastic = parts.iter().any(|part| part.tasks.len() > part.needed);
    let (room, placed, failed, reasons) = (Room::All, Vec::new(), FxHashSet::default(), Vec::new());
    let mut turn = Turn { group, counting, parts, room, placed, failed, reasons };
    if turn.place_group(session) {
        return Ok(turn.placed);
    }
    if elastic {
        turn.room = Room::Minimum;
        turn.failed.clear();
        if turn.place_group(session) {
            return Ok(turn.placed);
        }
    }
    turn.explain(session);
    Err(turn.reasons)
}

fn unknown_tier(tables: &Tables, group: GroupId, parts: &[Part]) -> Option<Reason> {
    let row = tables.groups.row(group);
    let reaches = parts.iter().map(|part| row.reach_of(part.id, &tables.hyper_nodes));
    std::iter::once(row.reach(&tables.hyper_nodes)).chain(reaches).find_map(|reach| match reach {
        Reach::UnknownTier(name) => Some(Reason::UnknownTier { name }),
        _ => None,
    })
}

impl Turn {
    /// Tries the group in one HyperNode after the other; the best of the first gradient that has any is kept.
    fn place_group(&mut self, session: &mut Session<'_>) -> bool {
        let minimum = session.tables.groups.row(self.group).min_resources.as_deref().cloned().unwrap_or_default();
        let need: Vec<(DimId, i64)> = minimum.iter().collect();
        let root = session.tables.hyper_nodes.root();
        let search = HyperSearch { group: self.group, sub_job: None, within: root, need: &need, evict: false };
        for gradient in session.policy.hyper_gradients(session.tables, &search) {
            let best = if self.parts.len() == 1 {
                let bounds = self.bounds(session, &gradient);
                self.best_for_one(session, bounds)
            } else {
                self.best_for_many(session, &gradient)
            };
            if let Some(hyper) = best {
                return self.place_in(session, hyper).is_some();
            }
        }
        false
    }

    /// No score that the only part can get in a HyperNode is above this.
    fn bounds(&self, session: &Session<'_>, gradient: &[HyperId]) -> Vec<(HyperId, i64)> {
        let need = self.need(session.tables, &self.parts[0]);
        let mut bounds: Vec<(HyperId, i64)> = Vec::with_capacity(gradient.len());
        for hyper in gradient {
            let search = self.search(&self.parts[0], *hyper, &need);
            let tried: Vec<HyperId> =
                session.policy.hyper_gradients(session.tables, &search).into_iter().flatten().collect();
            let ranked = session.policy.rank_hyper_nodes(session.tables, &search, &tried);
            bounds.extend(ranked.first().map(|(_, score)| (*hyper, *score)));
        }
        bounds.sort_by_key(|(hyper, score)| (std::cmp::Reverse(*score), *hyper));
        bounds
    }

    /// The HyperNode with the highest score: those that can't come up to it any more are not tried.
    fn best_for_one(&mut self, session: &mut Session<'_>, bounds: Vec<(HyperId, i64)>) -> Option<HyperId> {
        let mut best: Option<(i64, HyperId)> = None;
        for (hyper, bound) in bounds {
            if best.is_some_and(|(score, _)| score >= bound) {
                break;
            }
            let score = self.try_in(session, hyper);
            if let Some(score) = score.filter(|score| best.is_none_or(|(before, _)| *score > before)) {
                best = Some((score, hyper));
            }
        }
        best.map(|(_, hyper)| hyper)
    }

    fn best_for_many(&mut self, session: &mut Session<'_>, gradient: &[HyperId]) -> Option<HyperId> {
        let mut best: Option<(i64, HyperId)> = None;
        for hyper in gradient {
            let score = self.try_in(session, *hyper);
            if let Some(score) = score.filter(|score| best.is_none_or(|(before, _)| *score > before)) {
                best = Some((score, *hyper));
            }
        }
        best.map(|(_, hyper)| hyper)
    }

    /// Places the group in a HyperNode and takes it back: the score, if it fits.
    fn try_in(&mut self, session: &mut Session<'_>, hyper: HyperId) -> Option<i64> {
        let savepoint = session.tables.savepoint();
        let score = self.place_in(session, hyper);
        session.rollback(savepoint);
        self.placed.clear();
        score
    }

    /// Places one part after the other, and then more of each, until the group is ready: the sum of the scores, if it
    /// becomes so.
    fn place_in(&mut self, session: &mut Session<'_>, hyper: HyperId) -> Option<i64> {
        let savepoint = session.tables.savepoint();
        let mut total = 0_i64;
        loop {
            let before = self.placed.len();
            for part in 0..self.parts.len() {
                let Some(score) = self.place_part(session, part, hyper) else { continue };
                total = total.saturating_add(score);
                if session.policy.job_ready(session.tables, self.group, self.counting) {
                    return Some(total);
                }
            }
            if self.placed.len() == before {
                break;
            }
        }
        session.rollback(savepoint);
        self.placed.clear();
        None
    }

    /// Places one part in the best HyperNode at or below `within`: its score there.
    fn place_part(&mut self, session: &mut Session<'_>, part: usize, within: HyperId) -> Option<i64> {
        let need = self.need(session.tables, &self.parts[part]);
        let search = self.search(&self.parts[part], within, &need);
        for gradient in session.policy.hyper_gradients(session.tables, &search) {
            for (hyper, score) in session.policy.rank_hyper_nodes(session.tables, &search, &gradient) {
                if self.failed.contains(&hyper) {
                    continue;
                }
                if self.place_tasks(session, part, hyper) {
                    return Some(score);
                }
                if self.parts.len() == 1 && self.placed.is_empty() {
                    self.failed.insert(hyper);
                }
            }
        }
        None
    }

    /// Places pods of one part on the nodes of a HyperNode until the part is ready; nothing if it does not get so.
    fn place_tasks(&mut self, session: &mut Session<'_>, part: usize, hyper: HyperId) -> bool {
        let Part { id, mut needed, uniform, .. } = self.parts[part];
        if session.policy.sub_job_ready(session.tables, self.group, id, self.counting) {
            needed = 1;
        }
        if let Some(class) = uniform
            && room_for(session.tables, hyper, class, needed) < needed
        {
            return false;
        }
        let savepoint = session.tables.savepoint();
        let before = self.placed.len();
        let tasks = self.parts[part].tasks.clone();
        if self.fill(session, id, hyper, &tasks) {
            return true;
        }
        session.rollback(savepoint);
        self.placed.truncate(before);
        if uniform.is_some() || needed < 2 {
            return false;
        }
        // Small pods may have taken the room that only a large one needs.
        let mut tasks = tasks;
        let minimum = needed.min(tasks.len());
        tasks[..minimum].sort_by_key(|task| std::cmp::Reverse(session.tables.size(session.tables.task(*task).class)));
        let ready = self.fill(session, id, hyper, &tasks);
        if !ready {
            session.rollback(savepoint);
            self.placed.truncate(before);
        }
        ready
    }

    fn fill(&mut self, session: &mut Session<'_>, part: u32, hyper: HyperId, tasks: &[TaskId]) -> bool {
        let mut failed: FxHashSet<ClassId> = FxHashSet::default();
        for task in tasks.iter().copied() {
            let row = session.tables.task(task);
            let class = row.class;
            if row.state != TaskState::Pending || failed.contains(&class) && !session.tables.is_tied(task) {
                continue;
            }
            let queue = session.tables.groups.row(self.group).queue;
            if let Some(reason) = objection(session, queue, task) {
                failed.insert(class);
                self.note(reason);
                continue;
            }
            let nodes = &session.tables.hyper_nodes.row(hyper).nodes;
            let search = Search::of_task(session.tables, task).within(nodes);
            let Some(node) = session.finder.best(session.tables, session.policy, search) else {
                failed.insert(class);
                continue;
            };
            session.assign(task, node);
            self.placed.push(task);
            if session.policy.sub_job_ready(session.tables, self.group, part, self.counting) {
                return true;
            }
        }
        false
    }

    fn note(&mut self, reason: Reason) {
        if self.reasons.len() < REASONS_MAX && !self.reasons.contains(&reason) {
            self.reasons.push(reason);
        }
    }

    fn search<'a>(&self, part: &Part, within: HyperId, need: &'a [(DimId, i64)]) -> HyperSearch<'a> {
        HyperSearch { group: self.group, sub_job: part.sub_job, within, need, evict: false }
    }

    /// What a HyperNode must have in all to be tried for a part.
    fn need(&self, tables: &Tables, part: &Part) -> Vec<(DimId, i64)> {
        let waits = |task: &TaskId| tables.task(*task).state == TaskState::Pending;
        let tasks: Vec<TaskId> = part.tasks.iter().copied().filter(waits).collect();
        let count = if self.room == Room::All { tasks.len() } else { part.needed.min(tasks.len()) };
        if count == tasks.len() || part.uniform.is_some() {
            return sum(tables, &tasks[..count]);
        }
        // Which pods make up the minimum is open: no more is sure than what the least of each resource comes to.
        let mut least = sum(tables, &tasks);
        for (dim, amount) in &mut least {
            let mut asked: Vec<i64> =
                tasks.iter().map(|task| tables.classes.row(tables.task(*task).class).demand.get(*dim)).collect();
            asked.sort_unstable();
            *amount = asked.iter().take(count).fold(0, |sum, asked| sum.saturating_add(*asked));
        }
        least
    }

    /// What the HyperNodes say to the first part that did not get what it needs.
    fn explain(&mut self, session: &mut Session<'_>) {
        if !self.reasons.is_empty() {
            return;
        }
        let ready = |part: &Part| session.policy.sub_job_ready(session.tables, self.group, part.id, self.counting);
        let part = self.parts.iter().find(|part| !ready(part)).or(self.parts.first());
        let Some((part, task)) = part.and_then(|part| Some((part, *part.tasks.first()?))) else { return };
        let tables = &*session.tables;
        let (hyper, row) = (&tables.hyper_nodes, tables.groups.row(self.group));
        let class = tables.task(task).class;
        let group_needed = needed(session, self.group) as usize;
        let wanted = if part.sub_job.is_some() { part.needed } else { group_needed.min(part.tasks.len()) };
        let mut nearest = hyper.root();
        if let Reach::Tier(tier_max) = row.reach_of(part.id, hyper) {
            let lies_in = hyper.lowest_with(tables.nodes_of(self.group, part.sub_job));
            let root = lies_in.map_or(Some(hyper.root()), |lies_in| hyper.highest_within(lies_in, tier_max));
            let allowed: Vec<HyperId> =
                root.map(|root| hyper.below(root, tier_max)).into_iter().flatten().flat_map(|(_, all)| all).collect();
            let rooms = allowed.iter().map(|id| (room_for(tables, *id, class, wanted), std::cmp::Reverse(*id)));
            let best = rooms.max();
            let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
            let name = |id: HyperId| hyper.row(id).name.to_string();
            nearest = best.map_or(nearest, |(_, id)| id.0);
            let domain = NoDomain {
                part: row.sub_jobs.rows().get(part.id as usize).map_or_else(String::new, |part| part.name.to_string()),
                tier_max,
                needed: count(wanted),
                hyper_nodes: count(allowed.len()),
                nearest: best.map_or_else(String::new, |(_, id)| name(id.0)),
                room_for: count(best.map_or(0, |(room, _)| room)),
                inside: lies_in.map_or_else(String::new, |id| name(root.unwrap_or(id))),
            };
            let some_room = (1..domain.needed).contains(&domain.room_for);
            self.reasons.push(Reason::NoDomain(domain));
            if some_room {
                return;
            }
        }
        let nodes = &session.tables.hyper_nodes.row(nearest).nodes;
        let search = Search::of_task(session.tables, task).within(nodes);
        let pods = PodsWanted { needed: u32::try_from(wanted).unwrap_or(u32::MAX), found_room: 0 };
        let mut unfit = session.finder.diagnose(session.tables, session.policy, search, pods);
        let row = session.tables.groups.row(self.group);
        unfit.role = row.roles[session.tables.task(task).role as usize].name.to_string();
        self.reasons.push(Reason::NodesUnfit(unfit));
    }
}

fn sum(tables: &Tables, tasks: &[TaskId]) -> Vec<(DimId, i64)> {
    let mut amounts = Vec::new();
    for task in tasks {
        tables.classes.row(tables.task(*task).class).demand.add_to(&mut amounts, 1);
    }
    let amounts = amounts.into_iter().enumerate().filter(|(_, amount)| *amount > 0);
    amounts.map(|(dim, amount)| (dim.into(), amount)).collect()
}

/// Pods of a class that have room in a HyperNode, by resources alone, counted up to `enough`.
fn room_for(tables: &Tables, hyper: HyperId, class: ClassId, enough: usize) -> usize {
    let demand = &tables.classes.row(class).demand;
    let mut room = 0_usize;
    for node in tables.hyper_nodes.row(hyper).nodes.ones() {
        let fits = demand.iter().map(|(dim, amount)| tables.nodes.room(node.into(), dim).max(0) / amount.max(1)).min();
        room = room.saturating_add(usize::try_from(fits.unwrap_or(0)).unwrap_or(usize::MAX));
        if room >= enough {
            return enough;
        }
    }
    room
}
