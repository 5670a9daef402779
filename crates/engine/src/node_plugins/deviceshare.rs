//! `deviceshare`: pods that share graphics cards, each by memory (`GPUSharingEnable`), by whole cards
//! (`GPUNumberEnable`), or as virtual cards with memory and cores (`VGPUEnable`).
//!
//! Which cards are taken follows from the node's annotation and from what its pods hold: their own choice while it is
//! being bound, their annotations after. A choice counts at once, and goes to the pod with its bind.

use std::collections::BTreeMap;

use crate::cluster::classes::ClassRow;
use crate::config::{Fault, PluginConfig};
use crate::facts::PodTemplate;
use crate::ids::{GroupId, NodeId, TaskId, TimeMs};
use crate::reasons::Check;
use crate::world::tables::{Move, Tables};
use crate::world::tasks::{TaskRow, TaskState};

use super::decisions::Decisions;
use super::per_node::PerNode;
use crate::plugin::{Plugin, Region};

mod arguments;
mod cards;
mod shared;
mod virtual_cards;

use arguments::{Device, SchedulePolicy, Settings};
use cards::{Grant, Holder, Pool};

pub(crate) const ARGUMENTS: &[&str] = arguments::NAMES;
/// Annotations of pods that say where they may go.
pub(crate) const TEMPLATE_ANNOTATIONS: &[&str] = virtual_cards::WISHES;
/// Annotations of pods that say what they hold.
const POD_ANNOTATIONS: &[&str] = &[virtual_cards::IDS, shared::INDEX];

#[derive(Debug)]
pub(crate) struct DeviceShare {
    settings: Settings,
    now: TimeMs,
    nodes: PerNode<Pools>,
    decisions: Decisions<(NodeId, Grant)>,
}

/// The cards of a node.
#[derive(Debug, Default)]
struct Pools {
    /// With all that its pods hold; nothing where it has no cards.
    now: Option<Pool>,
    /// Without what is on its way out, where that is something.
    later: Option<Pool>,
}

/// When a pod is to have its cards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Now,
    /// When all that is on its way out is gone.
    Later,
}

/// Who asks, as far as sharing a card depends on it.
#[derive(Debug, Clone, Copy, Default)]
struct Asker {
    group: Option<GroupId>,
    rules: u64,
}

impl DeviceShare {
    /// # Errors
    /// Where the arguments contradict each other or `GPUExclusiveRules` is no list of label maps.
    pub(crate) fn new(config: &PluginConfig) -> Result<Self, Fault> {
        Ok(Self {
            settings: Settings::new(config)?,
            now: TimeMs::default(),
            nodes: PerNode::default(),
            decisions: Decisions::default(),
        })
    }

    /// The rules that a pod's labels match, a bit each.
    fn rules_of(&self, task: &TaskRow) -> u64 {
        let Some(labels) = task.device_labels.as_deref() else { return 0 };
        let matches = |rule: &BTreeMap<String, String>| rule.iter().all(|(key, value)| labels.get(key) == Some(value));
        let rules = self.settings.exclusive.iter().enumerate();
        rules.filter(|(_, rule)| matches(rule)).fold(0, |bits, (at, _)| bits | 1 << at)
    }

    fn asker(&self, task: &TaskRow) -> Asker {
        Asker { group: task.group, rules: self.rules_of(task) }
    }

    /// What the pod would get on the node; `Some` of nothing for a pod that asks for no device.
    fn choose(&self, template: &PodTemplate, asker: &Asker, node: NodeId, when: When) -> Option<Grant> {
        let policy = self.settings.policy;
        let pool = || {
            let pools = self.nodes.get(node)?;
            match when {
                When::Later => pools.later.as_ref().or(pools.now.as_ref()),
                When::Now => pools.now.as_ref(),
            }
        };
        match self.settings.device {
            Device::None => Some(Grant::default()),
            Device::Memory => match shared::memory_asked(template) {
                0 => Some(Grant::default()),
                asked => shared::by_memory(pool()?, asked),
            },
            Device::Number => match shared::cards_asked(template) {
                0 => Some(Grant::default()),
                asked => shared::by_number(pool()?, asked),
            },
            Device::Virtual => {
                let asked = virtual_cards::requested(template);
                if asked.is_empty() {
                    return Some(Grant::default());
                }
                virtual_cards::choose(pool()?, template, &asked, asker, policy)
            }
        }
    }

    fn asks(&self, template: &PodTemplate) -> bool {
        match self.settings.device {
            Device::None => false,
            Device::Memory => shared::memory_asked(template) > 0,
            Device::Number => shared::cards_asked(template) > 0,
            Device::Virtual => !virtual_cards::requested(template).is_empty(),
        }
    }

    fn repair(&mut self, tables: &Tables) {
        if self.settings.device == Device::None {
            return;
        }
        let mut nodes = std::mem::take(&mut self.nodes);
        nodes.repair(tables, |node, entry| {
            let leaving = |task: &TaskRow| task.state == TaskState::Releasing;
            let tasks = tables.nodes.table.get(node.index()).map_or(&[][..], |row| &row.tasks);
            let leaves = tasks.iter().any(|task| leaving(tables.task(*task)));
            entry.now = self.of_node(tables, node, |_| true);
            entry.later = if leaves { self.of_node(tables, node, |task| !leaving(task)) } else { None };
        });
        self.nodes = nodes;
    }

    /// The node's cards with what those of its pods hold that count.
    fn of_node(&self, tables: &Tables, node: NodeId, counts: impl Fn(&TaskRow) -> bool) -> Option<Pool> {
        let row = tables.nodes.table.get(node.index()).filter(|row| row.known)?;
        let offers = |name: &str| tables.dims.lookup(name).map_or(0, |dim| tables.nodes.allocatable(node, dim));
        let mut pool = match self.settings.device {
            Device::None => return None,
            Device::Memory | Device::Number => shared::pool(row, offers)?,
            Device::Virtual => virtual_cards::pool(row, offers)?,
        };
        let holding = row.tasks.iter().map(|task| tables.task(*task)).filter(|task| task.state.holds_node());
        for task in holding.filter(|task| counts(task)) {
            let template = &tables.classes.row(task.class).template;
            let holder = Holder { group: task.group, rules: self.rules_of(task) };
            match (self.decisions.get(task), task.annotations.as_deref()) {
                (Some((_, grant)), _) => pool.charge(grant, &holder),
                (None, Some(shown)) if self.settings.device == Device::Virtual => {
                    pool.charge(&virtual_cards::grant_of(shown), &holder);
                }
                (None, Some(shown)) => pool.charge(&shared::grant_of(shown, template), &holder),
                (None, None) => {}
            }
        }
        Some(pool)
    }
}

impl Plugin for DeviceShare {
    fn open(&mut self, tables: &Tables, now: TimeMs) {
        self.now = now;
        self.decisions.prune(tables, |task| {
            let shown = task.annotations.as_deref();
            shown.is_some_and(|shown| POD_ANNOTATIONS.iter().any(|annotation| shown.contains_key(*annotation)))
        });
        self.repair(tables);
    }

    fn follows_moves(&self) -> bool {
        self.settings.device != Device::None
    }

    fn moved(&mut self, tables: &Tables, change: Move) {
        let row = tables.task(change.task);
        let node = if row.state.holds_node() { row.node } else { None };
        if let Some(at) = self.decisions.take_misplaced(row, node) {
            self.nodes.renew(at);
        }
        // The books don't show a pod that has just been given room: it does not stand in its own way.
        let chosen = if row.state == TaskState::Allocated && self.decisions.get(row).is_none() { node } else { None };
        if let Some(node) = chosen {
            let template = &tables.classes.row(row.class).template;
            if let Some(grant) =
                self.choose(template, &self.asker(row), node, When::Now).filter(|grant| !grant.is_empty())
            {
                self.decisions.keep(row, (node, grant));
                self.nodes.renew(node);
            }
        }
        self.repair(tables);
    }

    fn check_use(&self, _tables: &Tables, class: &ClassRow, node: NodeId) -> Option<Check> {
        self.choose(&class.template, &Asker::default(), node, When::Now).is_none().then_some(Check::Device)
    }

    fn check_use_later(&self, _tables: &Tables, class: &ClassRow, node: NodeId) -> Option<Check> {
        self.choose(&class.template, &Asker::default(), node, When::Later).is_none().then_some(Check::Device)
    }

    fn checks_use_of(&self, class: &ClassRow) -> bool {
        self.asks(&class.template)
    }

    fn scores_nodes(&self) -> bool {
        self.settings.policy != SchedulePolicy::Index
    }

    fn bound_scores(&self, _: &Tables, class: &ClassRow, _regions: &[Region<'_>], _bounds: &mut [i64]) -> bool {
        !self.asks(&class.template)
    }

    fn is_specific(&self, tables: &Tables, task: TaskId) -> bool {
        let row = tables.task(task);
        let template = &tables.classes.row(row.class).template;
        self.settings.device == Device::Virtual
            && self.asks(template)
            && (virtual_cards::spreads(template) || self.rules_of(row) != 0)
    }

    fn check_task(&self, tables: &Tables, task: TaskId, node: NodeId) -> Option<Check> {
        let row = tables.task(task);
        let template = &tables.classes.row(row.class).template;
        self.choose(template, &self.asker(row), node, When::Now).is_none().then_some(Check::Device)
    }

    fn check_task_later(&self, tables: &Tables, task: TaskId, node: NodeId) -> Option<Check> {
        let row = tables.task(task);
        let template = &tables.classes.row(row.class).template;
        self.choose(template, &self.asker(row), node, When::Later).is_none().then_some(Check::Device)
    }

    fn score(&self, _tables: &Tables, class: &ClassRow, node: NodeId) -> i64 {
        if self.settings.policy == SchedulePolicy::Index || !self.asks(&class.template) {
            return 0;
        }
        let grant = self.choose(&class.template, &Asker::default(), node, When::Now).unwrap_or_default();
        grant.points().saturating_mul(self.settings.weight)
    }

    fn bind_annotations(&self, tables: &Tables, task: TaskId, node: NodeId) -> Vec<(String, String)> {
        let chosen = self.decisions.get(tables.task(task)).filter(|(at, _)| *at == node);
        let Some((_, grant)) = chosen else { return Vec::new() };
        match self.settings.device {
            Device::None => Vec::new(),
            Device::Memory | Device::Number => shared::annotations(grant, self.now),
            Device::Virtual => virtual_cards::annotations(grant, &tables.nodes.row(node).name, self.now),
        }
    }
}

#[cfg(test)]
mod tests;
