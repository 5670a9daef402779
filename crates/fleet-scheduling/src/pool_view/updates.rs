//! What a view tells a pool. What the engine wants to know of a pod is long, and there may be hundreds of thousands of them:
//! so runs are told in few words, and their pods' facts are made one by one where they are taken in.

use std::sync::Arc;

use pumice_engine::{
    Delta, NodeName, NodeTerm, Operator, PodFacts, PodPhase, PodTemplate, PodUid, Requirement, Shared, TimeMs,
};
use pumice_fleet_model::names::CLUSTER_LABEL;
use pumice_ledger::{Away, Job, Ledger, NodeRef, Run, RunId, RunPhase};

use super::exposed::{Claim, ExposedRun, GangKey, ParsedShape};
use crate::away;
use crate::names::{self, node_name};
use crate::volcano_jobs::{Member, Members};

/// The field by which nodes are told apart in affinities.
const NODE_NAME: &str = "metadata.name";

/// One thing that a pool is told.
#[derive(Debug, Clone)]
pub enum PoolUpdate {
    /// A run as it is now, with all of its pods.
    Run(RunUpdate),
    Delta(Box<Delta>),
}

/// A run that holds room, or waits for it.
#[derive(Debug, Clone)]
pub struct RunUpdate {
    run: RunId,
    priority: u32,
    members: Option<Arc<Members>>,
    claim: Claim,
    /// Its job, while that has not ended; else it only holds its room until it is gone.
    job: Option<JobFacts>,
    /// Its room, if it holds any.
    room: Option<Box<Room>>,
}

#[derive(Debug, Clone)]
struct JobFacts {
    gang: Option<Arc<GangKey>>,
    submitted: TimeMs,
    preemptible: bool,
    /// Nodes it is kept off.
    avoid: Box<[NodeRef]>,
}

#[derive(Debug, Clone)]
struct Room {
    node: NodeName,
    phase: RunPhase,
    leased: TimeMs,
    running: Option<TimeMs>,
    away: Option<Away>,
}

impl From<Delta> for PoolUpdate {
    fn from(delta: Delta) -> Self {
        Self::Delta(Box::new(delta))
    }
}

impl RunUpdate {
    pub(crate) fn new(ledger: &Ledger, shown: &ExposedRun, claim: Claim, job: Option<&Job>) -> Self {
        let of_job = |job: &Job| JobFacts {
            gang: shown.gang.clone(),
            submitted: TimeMs(job.submitted.0),
            preemptible: ledger.class(job).preemptible,
            avoid: job.avoid.as_slice().into(),
        };
        let room = |run: &Run| Room {
            node: node_name(&run.at.cluster, &run.at.node),
            phase: run.phase,
            leased: TimeMs(run.leased.0),
            running: run.running.map(|at| TimeMs(at.0)),
            away: run.away.as_deref().cloned(),
        };
        let holds = shown.holds.as_ref().and_then(|_| ledger.run(shown.run));
        Self {
            run: shown.run,
            priority: shown.priority,
            members: shown.members.clone(),
            claim,
            job: job.map(of_job),
            room: holds.map(|run| Box::new(room(run))),
        }
    }

    /// The facts of all of its pods.
    pub(crate) fn pods(&self) -> impl Iterator<Item = PodFacts> {
        let single = if self.members.is_none() {
            let uid = names::uid(self.priority, self.run);
            let name = names::name_in(&uid).to_owned();
            Some(self.pod(uid, name, &self.claim.shape.template, None))
        } else {
            None
        };
        let members = self.members.iter().flat_map(|members| &members.pods);
        single.into_iter().chain(members.map(|member| self.member(member)))
    }

    fn member(&self, member: &Member) -> PodFacts {
        let ParsedShape { parts, template, .. } = &*self.claim.shape;
        let (uid, name) = (names::pod_uid(self.priority, self.run, member.pod), format!("{}-{}", self.run, member.pod));
        self.pod(uid, name, parts.get(member.part).unwrap_or(template), member.node.clone())
    }

    fn pod(&self, uid: PodUid, name: String, template: &Shared<PodTemplate>, node: Option<NodeName>) -> PodFacts {
        let queue = self.claim.queue.to_string();
        let mut facts = PodFacts {
            uid,
            // Users of a queue share it by their turns alone: the queue is their one namespace.
            namespace: queue.clone(),
            name,
            mine: true,
            queue: Some(queue),
            priority_class: self.claim.shape.class.to_string(),
            template: template.clone(),
            node,
            ..PodFacts::default()
        };
        if let Some(job) = &self.job {
            facts.group = self.group(job);
            facts.created = job.submitted;
            facts.preemptable = Some(job.preemptible);
            if !job.avoid.is_empty() {
                avoid(&mut facts.template, &job.avoid);
            }
        }
        if let Some(room) = &self.room {
            if let Some(away) = &room.away {
                away::put(&mut facts, away);
            }
            facts.node.get_or_insert_with(|| room.node.clone());
            facts.phase = if room.running.is_some() { PodPhase::Running } else { PodPhase::Pending };
            facts.terminating = room.phase == RunPhase::Stopping;
            facts.scheduled = Some(room.leased);
            facts.started = room.running;
        }
        facts
    }

    /// The name of its group, where it is not one that the engine makes.
    fn group(&self, job: &JobFacts) -> Option<String> {
        match &job.gang {
            Some(gang) => Some(gang.name.clone()),
            None if self.members.is_some() => Some(names::single_name(self.priority, self.run)),
            None => None,
        }
    }
}

/// Keeps a template off nodes, and off all nodes of clusters that gave Volcano jobs back.
fn avoid(template: &mut PodTemplate, nodes: &[NodeRef]) {
    let (clusters, nodes): (Vec<&NodeRef>, Vec<&NodeRef>) = nodes.iter().partition(|at| at.node.is_empty());
    let not = |key: &str, values: Vec<String>| {
        let none = values.is_empty();
        let requirement = Requirement { key: key.to_owned(), operator: Operator::NotIn, values };
        (!none).then_some(requirement)
    };
    let fields = not(NODE_NAME, nodes.iter().map(|at| node_name(&at.cluster, &at.node).into()).collect());
    let expressions = not(CLUSTER_LABEL, clusters.iter().map(|at| at.cluster.clone()).collect());
    let terms =
        template.required_terms.get_or_insert_with(|| vec![NodeTerm { expressions: Vec::new(), fields: Vec::new() }]);
    for term in terms {
        term.fields.extend(fields.clone());
        term.expressions.extend(expressions.clone());
    }
}
