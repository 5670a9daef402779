//! Places for a gang's pods in one domain with given victims gone, tried on the tables and taken back.

use std::cmp::Reverse;

use super::Want;
use super::bundles::Bundle;
use crate::actions::allocate::parts::Part;
use crate::ids::{ClassId, GroupId, HyperId, NodeId, TaskId};
use crate::plugin::HyperSearch;
use crate::queue_limit;
use crate::session::Session;
use crate::world::tasks::TaskState;

/// Who leaves, and where the gang's pods go.
#[derive(Debug)]
pub(super) struct Nomination {
    pub(super) victims: Vec<TaskId>,
    pub(super) places: Vec<(TaskId, NodeId)>,
}

/// A pod that is gone for the trial.
#[derive(Debug, Clone, Copy)]
struct Gone {
    task: TaskId,
    state: TaskState,
    node: NodeId,
}

struct Trial<'w> {
    want: &'w Want,
    /// By bundle.
    gone: Vec<(bool, Vec<Gone>)>,
    places: Vec<(TaskId, NodeId)>,
}

/// Places for all pods that are wanted; none where they don't fit, or the gang could not start with them.
pub(super) fn find(session: &mut Session<'_>, want: &Want, domain: HyperId, bundles: &[Bundle]) -> Option<Nomination> {
    let savepoint = session.tables.savepoint();
    let mut trial = Trial { want, gone: Vec::new(), places: Vec::new() };
    for bundle in bundles {
        let mut gone = Vec::new();
        for task in bundle.tasks.iter().copied() {
            let row = session.tables.task(task);
            let Some(node) = row.node else { continue };
            gone.push(Gone { task, state: row.state, node });
            session.vacate(task);
        }
        trial.gone.push((bundle.whole, gone));
    }
    let placed = want.parts.iter().all(|part| trial.place_part(session, part, domain));
    let found = placed && session.policy.job_pipelined(session.tables, want.group);
    if found {
        trial.give_back(session);
    }
    session.rollback(savepoint);
    let victims = trial.gone.iter().flat_map(|(_, gone)| gone).map(|gone| gone.task).collect();
    found.then_some(Nomination { victims, places: trial.places })
}

impl Trial<'_> {
    /// A place for every pod of a part, in the first HyperNode of its own where all fit.
    fn place_part(&mut self, session: &mut Session<'_>, part: &Part, domain: HyperId) -> bool {
        let (group, need) = (self.want.group, &self.want.need);
        // What is summed up at the start of the cycle says nothing of victims: the part's own need is no filter here.
        let need = if part.sub_job.is_some() { &[][..] } else { need };
        let search = HyperSearch { group, sub_job: part.sub_job, within: domain, need, evict: true };
        let tried: Vec<HyperId> =
            session.policy.hyper_gradients(session.tables, &search).into_iter().flatten().collect();
        tried.into_iter().any(|hyper| self.place_in(session, part, hyper))
    }

    fn place_in(&mut self, session: &mut Session<'_>, part: &Part, hyper: HyperId) -> bool {
        let savepoint = session.tables.savepoint();
        let before = self.places.len();
        let mut offers: Option<Offers> = None;
        for task in part.tasks.iter().copied() {
            let class = session.tables.task(task).class;
            let known = offers.take().filter(|offers| offers.class == class);
            let mut known = known.unwrap_or_else(|| Offers::of(session, class, hyper));
            let allowed = queue_allows(session, self.want.group, task);
            let Some(node) = (if allowed { known.best(session, task) } else { None }) else {
                session.rollback(savepoint);
                self.places.truncate(before);
                return false;
            };
            session.pipeline(task, node);
            self.places.push((task, node));
            known.changed(session, node);
            offers = Some(known);
        }
        let pipelined = session.policy.sub_job_pipelined(session.tables, self.want.group, part.id);
        // Other parts may have to come before a group as a whole is content.
        if part.sub_job.is_some() && !pipelined {
            session.rollback(savepoint);
            self.places.truncate(before);
            return false;
        }
        true
    }

    /// Lets victims stay that nobody needs gone: pods of safe bundles one by one, whole bundles as one.
    fn give_back(&mut self, session: &mut Session<'_>) {
        for at in (0..self.gone.len()).rev() {
            let (whole, gone) = std::mem::take(&mut self.gone[at]);
            let pieces: Vec<Vec<Gone>> =
                if whole { vec![gone] } else { gone.into_iter().map(|one| vec![one]).collect() };
            let mut kept = Vec::new();
            for piece in pieces.into_iter().rev() {
                let savepoint = session.tables.savepoint();
                piece.iter().for_each(|gone| session.restore(gone.task, gone.state, gone.node));
                if !piece.iter().all(|gone| self.stands_on(session, gone.node)) || !self.queue_agrees(session) {
                    session.rollback(savepoint);
                    kept.splice(0..0, piece);
                }
            }
            self.gone[at] = (whole, kept);
        }
    }

    /// What is promised on the node still holds.
    fn stands_on(&self, session: &Session<'_>, node: NodeId) -> bool {
        let tables = &*session.tables;
        self.places.iter().filter(|(_, place)| *place == node).all(|(task, _)| {
            let class = tables.classes.row(tables.task(*task).class);
            class.demand.iter().all(|(dim, _)| tables.nodes.future_idle(node, dim) >= 0)
                && session.policy.check_use(tables, class, node).is_none()
                && (!session.policy.is_specific(tables, *task)
                    || session.policy.check_task_later(tables, *task, node).is_none())
        })
    }

    /// The queue would still take the last pod.
    fn queue_agrees(&self, session: &mut Session<'_>) -> bool {
        let Some((task, node)) = self.places.last().copied() else { return true };
        session.unpipeline(task);
        let agrees = queue_allows(session, self.want.group, task);
        session.pipeline(task, node);
        agrees
    }
}

fn queue_allows(session: &Session<'_>, group: GroupId, task: TaskId) -> bool {
    let demand = &session.tables.classes.row(session.tables.task(task).class).demand;
    let queue = session.tables.groups.row(group).queue;
    queue_limit::exceeded_in_future(session.tables, queue, demand).is_none()
        && session.policy.allocatable(session.tables, queue, task).is_none()
}

/// The nodes of a HyperNode that will have room for a class, with their scores.
#[derive(Debug)]
struct Offers {
    class: ClassId,
    nodes: Vec<NodeId>,
    scores: Vec<Option<i64>>,
}

impl Offers {
    fn of(session: &Session<'_>, class: ClassId, hyper: HyperId) -> Self {
        let tables = &*session.tables;
        let row = tables.classes.row(class);
        let nodes = tables.hyper_nodes.row(hyper).nodes.ones().map(NodeId::from);
        let nodes: Vec<NodeId> =
            nodes.filter(|node| session.policy.check_facts(tables, row, *node).is_none()).collect();
        let mut scores = vec![0; nodes.len()];
        session.policy.score_nodes(tables, row, &nodes, &mut scores);
        let scores =
            nodes.iter().zip(scores).map(|(node, score)| fits(session, class, *node).then_some(score)).collect();
        Self { class, nodes, scores }
    }

    fn best(&self, session: &Session<'_>, task: TaskId) -> Option<NodeId> {
        let specific = session.policy.is_specific(session.tables, task);
        let allowed = |node: NodeId| !specific || session.policy.check_task_later(session.tables, task, node).is_none();
        let fitting = self.nodes.iter().zip(&self.scores).filter_map(|(node, score)| Some((*score.as_ref()?, *node)));
        fitting
            .filter(|(_, node)| allowed(*node))
            .max_by_key(|(score, node)| (*score, Reverse(*node)))
            .map(|best| best.1)
    }

    fn changed(&mut self, session: &Session<'_>, node: NodeId) {
        let Ok(at) = self.nodes.binary_search(&node) else { return };
        if !fits(session, self.class, node) {
            self.scores[at] = None;
            return;
        }
        let mut score = [0];
        session.policy.score_nodes(session.tables, session.tables.classes.row(self.class), &[node], &mut score);
        self.scores[at] = Some(score[0]);
    }
}

/// Will there be room once all that leaves is gone?
fn fits(session: &Session<'_>, class: ClassId, node: NodeId) -> bool {
    let tables = &*session.tables;
    let row = tables.classes.row(class);
    row.demand.iter().all(|(dim, amount)| amount <= tables.nodes.future_room(node, dim))
        && session.policy.check_use(tables, row, node).is_none()
}
