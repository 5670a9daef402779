//! How the plugins' answers combine over the tiers: the one place that knows. Mirrors Volcano's session functions.
//! Called by the actions, the finder and `close`.

use std::cmp::Ordering;

use crate::config::{Config, Switch, Switches};
use crate::facts::PodTemplate;
use crate::ids::{GroupId, NodeId, QueueId, TaskId};
use crate::plugins::{self, Counting, Plugin, Preference};
use crate::reasons::{Check, Reason};
use crate::world::classes::ClassRow;
use crate::world::nodes::NodeRow;
use crate::world::tables::Tables;

/// The configured plugins, tier after tier.
#[derive(Debug)]
pub(crate) struct Policy {
    plugins: Vec<(Switches, Box<dyn Plugin>)>,
    preferences: Vec<Preference>,
}

impl Policy {
    pub(crate) fn new(config: &Config) -> Self {
        let plugins: Vec<(Switches, Box<dyn Plugin>)> = config
            .tiers
            .iter()
            .flatten()
            .filter_map(|plugin| Some((plugin.switches, plugins::build(plugin)?)))
            .collect();
        let scoring = plugins.iter().filter(|(switches, _)| switches.has(Switch::NodeOrder));
        let preferences = scoring.flat_map(|(_, plugin)| plugin.preferences()).collect();
        Self { plugins, preferences }
    }

    fn with(&self, switch: Switch) -> impl Iterator<Item = &dyn Plugin> {
        self.plugins.iter().filter(move |(switches, _)| switches.has(switch)).map(|(_, plugin)| &**plugin)
    }

    /// The first plugin with an opinion decides; then creation time, then uid.
    pub(crate) fn job_order(&self, tables: &Tables, left: GroupId, right: GroupId) -> Ordering {
        let decided = self.with(Switch::JobOrder).map(|plugin| plugin.job_order(tables, left, right));
        first_decided(decided).then_with(|| {
            let (left, right) = (tables.groups.row(left), tables.groups.row(right));
            (left.created, &left.uid, &left.namespace, &left.name).cmp(&(
                right.created,
                &right.uid,
                &right.namespace,
                &right.name,
            ))
        })
    }

    /// Creation time, then uid: no plugin of this version orders queues.
    pub(crate) fn queue_order(&self, tables: &Tables, left: QueueId, right: QueueId) -> Ordering {
        let (left, right) = (tables.queues.row(left), tables.queues.row(right));
        (left.created, &left.uid, &left.name).cmp(&(right.created, &right.uid, &right.name))
    }

    /// The first plugin with an opinion decides; then the pods' index (those with one first), creation time, uid.
    pub(crate) fn task_order(&self, tables: &Tables, left: TaskId, right: TaskId) -> Ordering {
        let decided = self.with(Switch::TaskOrder).map(|plugin| plugin.task_order(tables, left, right));
        first_decided(decided).then_with(|| {
            let (left, right) = (tables.task(left), tables.task(right));
            // Volcano skips the index where one of two has none, which is no order: a sort by it may panic.
            (left.index.is_none(), left.index, left.created, &left.uid).cmp(&(
                right.index.is_none(),
                right.index,
                right.created,
                &right.uid,
            ))
        })
    }

    /// All must agree, over all tiers.
    pub(crate) fn job_ready(&self, tables: &Tables, group: GroupId, counting: Counting) -> bool {
        self.with(Switch::JobReady).all(|plugin| plugin.job_ready(tables, group, counting))
    }

    /// The first objection counts. No switch turns this off.
    pub(crate) fn job_valid(&self, tables: &Tables, group: GroupId) -> Option<Reason> {
        self.plugins.iter().find_map(|(_, plugin)| plugin.job_valid(tables, group))
    }

    /// The first check that fails on the node's facts.
    pub(crate) fn check_facts(&self, template: &PodTemplate, node: &NodeRow) -> Option<Check> {
        if !node.known {
            return Some(Check::NodeGone);
        }
        self.with(Switch::Predicate).find_map(|plugin| plugin.check_facts(template, node))
    }

    /// The first check that fails on the node's use, other than room.
    pub(crate) fn check_use(&self, template: &PodTemplate, node: &NodeRow) -> Option<Check> {
        self.with(Switch::Predicate).find_map(|plugin| plugin.check_use(template, node))
    }

    /// The sum of the scores that depend on use.
    pub(crate) fn score(&self, tables: &Tables, class: &ClassRow, node: NodeId) -> i64 {
        let scores = self.with(Switch::NodeOrder).map(|plugin| plugin.score(tables, class, node));
        scores.fold(0, i64::saturating_add)
    }

    /// The scores that are scaled over the candidates, to be added.
    pub(crate) fn preferences(&self) -> &[Preference] {
        &self.preferences
    }
}

fn first_decided(mut answers: impl Iterator<Item = Ordering>) -> Ordering {
    answers.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}
