//! Which tasks may leave for others: the intersection of what the plugins of the first tier with an opinion allow.
//!
//! Volcano starts afresh in the next tier after a veto, and even within a tier, so that a later plugin brings back
//! what an earlier one protects. Here a veto is final: what any plugin of the deciding tier protects stays.

use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;

use super::{Policy, Slot};
use crate::config::{Switch, Switches};
use crate::ids::{DimId, QueueId, TaskId};
use crate::plugin::{GangEviction, Plugin};
use crate::world::tables::Tables;

/// The victims that plugins allow.
#[derive(Debug, Default)]
pub(crate) struct Allowed {
    pub(crate) tasks: Vec<TaskId>,
    /// Which tier said so, if any plugin had an opinion.
    pub(crate) tier: Option<usize>,
}

impl Policy {
    /// For a task of the same queue.
    pub(crate) fn preemptable(&self, tables: &Tables, preemptor: TaskId, candidates: &[TaskId]) -> Allowed {
        self.victims(Some(Switch::Preemptable), |plugin| plugin.preemptable(tables, preemptor, candidates))
    }

    /// Whether `preemptable` gives nobody but what is of lower priority (see the plugins): the first tier that is asked decides
    /// where one of its plugins always has an opinion, and what that one protects stays.
    pub(crate) fn preempts_only_lower(&self) -> bool {
        let mut asked = self.plugins.iter().filter(|slot| slot.switches.has(Switch::Preemptable)).peekable();
        let first = asked.peek().map(|slot| slot.tier);
        asked.take_while(|slot| Some(slot.tier) == first).any(|slot| slot.plugin.preempts_only_lower())
    }

    /// For a task of another queue.
    pub(crate) fn reclaimable(&self, tables: &Tables, preemptor: TaskId, candidates: &[TaskId]) -> Allowed {
        self.victims(Some(Switch::Reclaimable), |plugin| plugin.reclaimable(tables, preemptor, candidates))
    }

    /// Which tier decides who leaves for tasks of other queues, if any plugin has an opinion.
    pub(crate) fn reclaim_tier(&self, tables: &Tables, preemptor: TaskId) -> Option<usize> {
        self.reclaimable(tables, preemptor, &[]).tier
    }

    /// Whether the task leaves for nobody of another queue, where `tier` decides. `false` where that is not known.
    pub(crate) fn keeps(&self, tables: &Tables, tier: usize, victim: TaskId) -> bool {
        self.deciding_on_reclaim(tier).any(|plugin| plugin.keeps(tables, victim))
    }

    /// Whether nothing of the queue leaves for any other, where `tier` decides. `false` where that is not known.
    pub(crate) fn keeps_all_of(&self, tables: &Tables, tier: usize, queue: QueueId) -> bool {
        self.deciding_on_reclaim(tier).any(|plugin| plugin.keeps_all_of(tables, queue))
    }

    fn deciding_on_reclaim(&self, tier: usize) -> impl Iterator<Item = &dyn Plugin> {
        let decides = move |slot: &&Slot| slot.tier == tier && slot.switches.has(Switch::Reclaimable);
        self.plugins.iter().filter(decides).map(|slot| &*slot.plugin)
    }

    /// For a gang. No switch turns this off.
    pub(crate) fn unified_evictable(&self, tables: &Tables, want: &GangEviction, candidates: &[TaskId]) -> Vec<TaskId> {
        self.victims(None, |plugin| plugin.unified_evictable(tables, want, candidates)).tasks
    }

    /// Without any opinion nobody leaves. In the order of the first plugin's list.
    fn victims(&self, switch: Option<Switch>, ask: impl Fn(&dyn Plugin) -> Option<Vec<TaskId>>) -> Allowed {
        let mut deciding: Option<(usize, Vec<TaskId>)> = None;
        let on = |switches: Switches| switch.is_none_or(|switch| switches.has(switch));
        for slot in self.plugins.iter().filter(|slot| on(slot.switches)) {
            if deciding.as_ref().is_some_and(|(tier, _)| *tier != slot.tier) {
                break;
            }
            let Some(allowed) = ask(&*slot.plugin) else { continue };
            deciding = Some(match deciding {
                None => (slot.tier, allowed),
                Some((tier, mut victims)) => {
                    victims.retain(|task| allowed.contains(task));
                    (tier, victims)
                }
            });
        }
        deciding.map_or_else(Allowed::default, |(tier, tasks)| Allowed { tasks, tier: Some(tier) })
    }

    /// All that answers about victims read of the preemptor; preemptors with the same key are alike.
    pub(crate) fn victim_key(&self, tables: &Tables, switch: Switch, preemptor: TaskId) -> Option<u64> {
        let mut hasher = FxHasher::default();
        for plugin in self.with(switch) {
            plugin.victim_key(tables, preemptor)?.hash(&mut hasher);
        }
        Some(hasher.finish())
    }

    /// What the queue is entitled to: the first plugin that divides the cluster for reclaim decides.
    pub(crate) fn shares(&self, tables: &Tables, queue: QueueId) -> Option<Vec<(DimId, i64)>> {
        self.with(Switch::Reclaimable).find_map(|plugin| plugin.shares(tables, queue))
    }

    /// Tasks that should move: all that the first tier with any names.
    pub(crate) fn victim_tasks(&self, tables: &Tables) -> Vec<TaskId> {
        let mut found: Option<(usize, Vec<TaskId>)> = None;
        for slot in self.plugins.iter().filter(|slot| slot.switches.has(Switch::Victim)) {
            if found.as_ref().is_some_and(|(tier, _)| *tier != slot.tier) {
                break;
            }
            let tasks = slot.plugin.victim_tasks(tables);
            if !tasks.is_empty() {
                found.get_or_insert((slot.tier, Vec::new())).1.extend(tasks);
            }
        }
        let mut tasks = found.map_or_else(Vec::new, |(_, tasks)| tasks);
        tasks.sort_unstable();
        tasks.dedup();
        tasks
    }
}
