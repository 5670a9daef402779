//! What plugins say of nodes: checks that refuse one, and scores that prefer one.
//!
//! Invariant: `check_facts` reads facts only, `check_use` what runs on the node, and `check_task` anything: the search asks again
//! accordingly. Called by the finder and by the actions that make room.

use super::Policy;
use crate::cluster::classes::ClassRow;
use crate::config::Switch;
use crate::ids::{NodeId, TaskId};
use crate::plugin::Preference;
use crate::plugin::region::Region;
use crate::reasons::Check;
use crate::world::tables::Tables;

impl Policy {
    /// The first check that fails on the node's facts.
    pub(crate) fn check_facts(&self, tables: &Tables, class: &ClassRow, node: NodeId) -> Option<Check> {
        if !tables.nodes.row(node).known {
            return Some(Check::NodeGone);
        }
        if !tables.shard.allows(&tables.nodes.row(node).name) {
            return Some(Check::OutsideShard);
        }
        self.with(Switch::Predicate).find_map(|plugin| plugin.check_facts(tables, class, node))
    }

    /// The first check that fails on the node's use, other than room.
    pub(crate) fn check_use(&self, tables: &Tables, class: &ClassRow, node: NodeId) -> Option<Check> {
        if self.is_busy(tables, node) {
            return Some(Check::Binding);
        }
        self.with(Switch::Predicate).find_map(|plugin| plugin.check_use(tables, class, node))
    }

    /// The first check that would fail on the node's use when all that is on its way out is gone.
    pub(crate) fn check_use_later(&self, tables: &Tables, class: &ClassRow, node: NodeId) -> Option<Check> {
        self.with(Switch::Predicate).find_map(|plugin| plugin.check_use_later(tables, class, node))
    }

    /// Everything but room that keeps the pod, or any of its class, off the node, with what each check is about.
    pub(crate) fn failed(
        &self,
        tables: &Tables,
        class: &ClassRow,
        task: Option<TaskId>,
        node: NodeId,
    ) -> Vec<(Check, String)> {
        let plain = |fails: bool, check: Check| fails.then(|| (check, String::new()));
        let row = tables.nodes.row(node);
        let mut failed: Vec<(Check, String)> = Vec::new();
        failed.extend(plain(!row.known, Check::NodeGone));
        failed.extend(plain(!tables.shard.allows(&row.name), Check::OutsideShard));
        failed.extend(plain(self.is_busy(tables, node), Check::Binding));
        let window = task.and_then(|task| tables.barred_on(task, node));
        failed.extend(window.map(|window| (Check::Closed, window.name.to_string())));
        for plugin in self.with(Switch::Predicate) {
            failed.extend(plugin.failed(tables, class, task, node));
        }
        failed
    }

    /// Whether any plugin has more to say about this task than its class tells.
    pub(crate) fn is_specific(&self, tables: &Tables, task: TaskId) -> bool {
        tables.is_barred(task) || self.all().any(|plugin| plugin.is_specific(tables, task))
    }

    /// Whether any plugin's answers about this task say nothing of others of its class and queue.
    pub(crate) fn stands_alone(&self, tables: &Tables, task: TaskId) -> bool {
        self.all().any(|plugin| plugin.stands_alone(tables, task))
    }

    /// The first check that fails for this very task.
    pub(crate) fn check_task(&self, tables: &Tables, task: TaskId, node: NodeId) -> Option<Check> {
        if tables.barred_on(task, node).is_some() {
            return Some(Check::Closed);
        }
        let mut plugins = self.with(Switch::Predicate).filter(|plugin| plugin.is_specific(tables, task));
        plugins.find_map(|plugin| plugin.check_task(tables, task, node))
    }

    /// The first check that would fail for this very task when all that is on its way out is gone.
    pub(crate) fn check_task_later(&self, tables: &Tables, task: TaskId, node: NodeId) -> Option<Check> {
        if tables.barred_on(task, node).is_some() {
            return Some(Check::Closed);
        }
        let mut plugins = self.with(Switch::Predicate).filter(|plugin| plugin.is_specific(tables, task));
        plugins.find_map(|plugin| plugin.check_task_later(tables, task, node))
    }

    /// Keeps the nodes that pass `check_task`.
    pub(crate) fn keep_for_task(&self, tables: &Tables, task: TaskId, nodes: &mut Vec<NodeId>) {
        let barring = tables.barring(task);
        if !barring.is_empty() {
            nodes.retain(|node| tables.maintenance_windows.on(*node, &barring).is_none());
        }
        for plugin in self.with(Switch::Predicate).filter(|plugin| plugin.is_specific(tables, task)) {
            plugin.keep_for_task(tables, task, nodes);
        }
    }

    /// What a failed check of this very task is about.
    pub(crate) fn detail_of_task(&self, tables: &Tables, check: Check, task: TaskId, node: NodeId) -> String {
        if check == Check::Closed {
            return tables.barred_on(task, node).map_or_else(String::new, |window| window.name.to_string());
        }
        let plugins = self.with(Switch::Predicate).filter(|plugin| plugin.is_specific(tables, task));
        plugins
            .map(|plugin| plugin.detail_of_task(tables, check, task, node))
            .find(|text| !text.is_empty())
            .unwrap_or_default()
    }

    /// Whether a pod may be made to leave, whoever gains from it: all must agree.
    pub(crate) fn may_leave(&self, tables: &Tables, task: TaskId) -> bool {
        self.all().all(|plugin| plugin.may_leave(tables, task))
    }

    /// Adds what is to be said about this very task to the scores of all candidates, in the policy's unit.
    pub(crate) fn score_task(&self, tables: &Tables, task: TaskId, nodes: &[NodeId], scores: &mut [i64]) {
        for plugin in self.with(Switch::NodeOrder).filter(|plugin| plugin.is_specific(tables, task)) {
            if plugin.in_thousandths() || self.unit == 1 {
                plugin.score_task(tables, task, nodes, scores);
                continue;
            }
            let mut points = vec![0; scores.len()];
            plugin.score_task(tables, task, nodes, &mut points);
            for (score, points) in scores.iter_mut().zip(points) {
                *score = score.saturating_add(points.saturating_mul(self.unit));
            }
        }
    }

    /// As many binds are on their way to the node as may be at a time.
    pub(super) fn is_busy(&self, tables: &Tables, node: NodeId) -> bool {
        self.max_in_flight > 0 && tables.nodes.row(node).in_flight >= self.max_in_flight
    }

    /// Whether anything but room may keep the class from a node whose facts allow it.
    pub(crate) fn checks_use_of(&self, class: &ClassRow) -> bool {
        self.max_in_flight > 0 || self.with(Switch::Predicate).any(|plugin| plugin.checks_use_of(class))
    }

    /// Keeps the nodes whose use allows the class; the others are given to `out`.
    pub(crate) fn keep_by_use(
        &self,
        tables: &Tables,
        class: &ClassRow,
        nodes: &mut Vec<NodeId>,
        mut out: impl FnMut(NodeId),
    ) {
        if self.max_in_flight > 0 {
            nodes.retain(|node| {
                let stays = !self.is_busy(tables, *node);
                if !stays {
                    out(*node);
                }
                stays
            });
        }
        for plugin in self.with(Switch::Predicate).filter(|plugin| plugin.checks_use_of(class)) {
            nodes.retain(|node| {
                let stays = plugin.check_use(tables, class, *node).is_none();
                if !stays {
                    out(*node);
                }
                stays
            });
        }
    }

    /// Adds the scores that depend on use; `scores` lie beside `nodes`, come in points and go in the policy's unit.
    pub(crate) fn score_nodes(&self, tables: &Tables, class: &ClassRow, nodes: &[NodeId], scores: &mut [i64]) {
        let scoring = || self.with(Switch::NodeOrder).filter(|plugin| plugin.scores_nodes());
        for plugin in scoring().filter(|plugin| !plugin.in_thousandths()) {
            plugin.score_nodes(tables, class, nodes, scores);
        }
        if self.unit != 1 {
            scores.iter_mut().for_each(|score| *score = score.saturating_mul(self.unit));
            for plugin in scoring().filter(|plugin| plugin.in_thousandths()) {
                plugin.score_nodes(tables, class, nodes, scores);
            }
        }
        if tables.shard.is_soft() {
            for (node, score) in nodes.iter().zip(scores) {
                *score = score.saturating_add(tables.shard.bonus(&tables.nodes.row(*node).name));
            }
        }
    }

    /// What one point counts in scores: 1, or more where a plugin's scores are finer.
    pub(crate) fn unit(&self) -> i64 {
        self.unit
    }

    /// The sum of the scores that depend on use.
    #[cfg(test)]
    pub(crate) fn score(&self, tables: &Tables, class: &ClassRow, node: NodeId) -> i64 {
        let scores = self.with(Switch::NodeOrder).map(|plugin| plugin.score(tables, class, node));
        debug_assert_eq!(self.unit, 1, "the oracle knows whole points only");
        scores.fold(tables.shard.bonus(&tables.nodes.row(node).name), i64::saturating_add)
    }

    /// The scores that are scaled over the candidates, to be added.
    pub(crate) fn preferences(&self) -> &[Preference] {
        &self.preferences
    }

    /// What a failed check is about: the first plugin that has something to add.
    pub(crate) fn detail(&self, tables: &Tables, check: Check, class: &ClassRow, node: NodeId) -> String {
        self.all()
            .map(|plugin| plugin.detail(tables, check, class, node))
            .find(|text| !text.is_empty())
            .unwrap_or_default()
    }

    /// Adds the most that `score_nodes` can add for any node of each region; `bounds` lie beside `regions`, come in
    /// points and go in the policy's unit. False where some plugin can't tell.
    pub(crate) fn bound_scores(
        &self,
        tables: &Tables,
        class: &ClassRow,
        regions: &[Region<'_>],
        bounds: &mut [i64],
    ) -> bool {
        let scoring = |fine| {
            let plugins = self.with(Switch::NodeOrder).filter(|plugin| plugin.scores_nodes());
            plugins.filter(move |plugin| plugin.in_thousandths() == fine)
        };
        if tables.shard.is_soft() || !scoring(false).all(|plugin| plugin.bound_scores(tables, class, regions, bounds)) {
            return false;
        }
        if self.unit == 1 {
            return true;
        }
        bounds.iter_mut().for_each(|bound| *bound = bound.saturating_mul(self.unit));
        scoring(true).all(|plugin| plugin.bound_scores(tables, class, regions, bounds))
    }

    /// Whether the node's use allows the class, apart from room: what `keep_by_use` asks, for one.
    pub(crate) fn use_allows(&self, tables: &Tables, class: &ClassRow, node: NodeId) -> bool {
        let mut asked = self.with(Switch::Predicate).filter(|plugin| plugin.checks_use_of(class));
        !self.is_busy(tables, node) && asked.all(|plugin| plugin.check_use(tables, class, node).is_none())
    }
}
