//! `pdb`: no more victims than every PodDisruptionBudget that selects them still allows.
//!
//! What is on its way out by a decision of ours counts against the budget at once: its status lags behind.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::cluster::classes::ClassRow;
use crate::cluster::node_matching::selected;
use crate::facts::Requirement;
use crate::ids::{TaskId, TimeMs};
use crate::plugin::{GangEviction, Plugin};
use crate::world::tables::{Move, Tables};
use crate::world::tasks::{TaskRow, TaskState};

#[derive(Debug)]
struct Budget {
    selector: Vec<Requirement>,
    allowed: u32,
    /// Pods that it selects and that we are evicting.
    leaving: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Pdb {
    /// By namespace.
    budgets: FxHashMap<String, Vec<Budget>>,
    version: Option<u64>,
    /// Counted in `leaving`.
    leaving: FxHashSet<TaskId>,
}

impl Plugin for Pdb {
    fn scores_nodes(&self) -> bool {
        false
    }

    fn open(&mut self, tables: &Tables, _now: TimeMs) {
        let known = &tables.objects.budgets;
        if self.version != Some(known.version) {
            self.version = Some(known.version);
            self.budgets.clear();
            for facts in known.all.values() {
                let Some(selector) = facts.selector.clone() else { continue };
                let budget = Budget { selector, allowed: facts.allowed, leaving: 0 };
                self.budgets.entry(facts.namespace.clone()).or_default().push(budget);
            }
        }
        self.budgets.values_mut().flatten().for_each(|budget| budget.leaving = 0);
        self.leaving.clear();
        for task in &tables.evicting {
            self.count(tables, *task);
        }
    }

    fn follows_moves(&self) -> bool {
        true
    }

    fn moved(&mut self, tables: &Tables, change: Move) {
        let leaves = tables.task(change.task).state == TaskState::Releasing;
        if leaves && change.state.is_allocated() {
            self.count(tables, change.task);
        } else if !leaves && self.leaving.remove(&change.task) {
            let row = tables.task(change.task);
            for budget in selecting(&mut self.budgets, tables, row) {
                budget.leaving = budget.leaving.saturating_sub(1);
            }
        }
    }

    fn preemptable(&self, tables: &Tables, _preemptor: TaskId, candidates: &[TaskId]) -> Option<Vec<TaskId>> {
        Some(self.within_budgets(tables, candidates))
    }

    fn reclaimable(&self, tables: &Tables, _preemptor: TaskId, candidates: &[TaskId]) -> Option<Vec<TaskId>> {
        Some(self.within_budgets(tables, candidates))
    }

    fn may_leave(&self, tables: &Tables, task: TaskId) -> bool {
        !self.within_budgets(tables, &[task]).is_empty()
    }

    fn unified_evictable(&self, tables: &Tables, _want: &GangEviction, candidates: &[TaskId]) -> Option<Vec<TaskId>> {
        Some(self.within_budgets(tables, candidates))
    }

    fn checks_use_of(&self, _class: &ClassRow) -> bool {
        false
    }
}

impl Pdb {
    fn count(&mut self, tables: &Tables, task: TaskId) {
        if !self.leaving.insert(task) {
            return;
        }
        for budget in selecting(&mut self.budgets, tables, tables.task(task)) {
            budget.leaving += 1;
        }
    }

    fn within_budgets(&self, tables: &Tables, candidates: &[TaskId]) -> Vec<TaskId> {
        // What the candidates before took, by namespace and budget.
        let mut taken: FxHashMap<(&str, usize), u32> = FxHashMap::default();
        let mut fits = |task: &TaskId| {
            let row = tables.task(*task);
            let namespace = &*row.namespace;
            let budgets = self.budgets.get(namespace).map_or(&[][..], Vec::as_slice);
            let selected = budgets.iter().enumerate().filter(|(_, budget)| selects(tables, &budget.selector, row));
            let selected: Vec<(usize, &Budget)> = selected.collect();
            let allowed = selected.iter().all(|(index, budget)| {
                let before = taken.get(&(namespace, *index)).copied().unwrap_or(0);
                budget.leaving.saturating_add(before) < budget.allowed
            });
            if allowed {
                selected.iter().for_each(|(index, _)| *taken.entry((namespace, *index)).or_default() += 1);
            }
            allowed
        };
        candidates.iter().copied().filter(|task| fits(task)).collect()
    }
}

fn selecting<'b>(
    budgets: &'b mut FxHashMap<String, Vec<Budget>>,
    tables: &'b Tables,
    row: &'b TaskRow,
) -> impl Iterator<Item = &'b mut Budget> {
    budgets.get_mut(&*row.namespace).into_iter().flatten().filter(move |budget| selects(tables, &budget.selector, row))
}

/// A pod without labels is selected by what asks for none. (Volcano never makes such a pod a victim.)
fn selects(tables: &Tables, selector: &[Requirement], row: &TaskRow) -> bool {
    let value = |key: &str| tables.inter_pod.label(&row.labels, key);
    selector.iter().all(|requirement| selected(requirement, value(&requirement.key)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{BudgetFacts, Delta};
    use crate::plugin::tests::victim_bench::Bench;

    fn budget(name: &str, label: Option<&str>, allowed: u32) -> Delta {
        let requirement = |value: &str| Requirement {
            key: "app".to_owned(),
            operator: crate::facts::Operator::In,
            values: vec![value.to_owned()],
        };
        Delta::BudgetUpsert(BudgetFacts {
            namespace: "ns".to_owned(),
            name: name.to_owned(),
            selector: Some(label.map(requirement).into_iter().collect()),
            allowed,
        })
    }

    struct Victims {
        bench: Bench,
        /// Three pods of app `a`, one of `b`, one without labels.
        tasks: Vec<TaskId>,
        preemptor: TaskId,
    }

    fn victims(budgets: Vec<Delta>) -> Victims {
        let mut bench = Bench::new();
        budgets.into_iter().for_each(|delta| bench.apply(delta));
        let labels = [Some("a"), Some("a"), Some("a"), Some("b"), None];
        let tasks = labels.into_iter().enumerate().map(|(index, label)| {
            bench.running("victims", index as u32, |pod| {
                pod.labels.extend(label.map(|label| ("app".to_owned(), label.to_owned())));
            })
        });
        let tasks = tasks.collect();
        let preemptor = bench.pending("wants", 0, |_| {});
        Victims { bench, tasks, preemptor }
    }

    #[test]
    fn victims_stay_within_every_budget() {
        for (budgets, expected) in [
            (vec![], vec![0, 1, 2, 3, 4]),
            (vec![budget("a", Some("a"), 2)], vec![0, 1, 3, 4]),
            (vec![budget("a", Some("a"), 0)], vec![3, 4]),
            (vec![budget("all", None, 1)], vec![0]),
            (vec![budget("all", None, 3), budget("a", Some("a"), 1)], vec![0, 3, 4]),
        ] {
            let Victims { bench, tasks, preemptor } = victims(budgets.clone());
            let mut plugin = Pdb::default();
            plugin.open(&bench.tables, TimeMs(0));
            let victims = plugin.preemptable(&bench.tables, preemptor, &tasks).unwrap();
            let victims: Vec<usize> =
                victims.iter().map(|task| tasks.iter().position(|other| other == task).unwrap()).collect();
            assert_eq!(victims, expected, "{budgets:?}");
        }
    }

    #[test]
    fn what_was_evicted_in_this_cycle_counts_until_it_is_taken_back() {
        let Victims { mut bench, tasks, preemptor } = victims(vec![budget("a", Some("a"), 2)]);
        let mut plugin = Pdb::default();
        plugin.open(&bench.tables, TimeMs(0));
        bench.tables.begin();
        bench.tables.follow_moves = true;
        let savepoint = bench.tables.savepoint();
        let tell = |bench: &mut Bench, plugin: &mut Pdb| {
            for change in std::mem::take(&mut bench.tables.moves) {
                plugin.moved(&bench.tables, change);
            }
        };
        bench.tables.evict(tasks[0]);
        tell(&mut bench, &mut plugin);
        assert_eq!(plugin.reclaimable(&bench.tables, preemptor, &tasks[1..3]), Some(vec![tasks[1]]));
        bench.tables.rollback(savepoint);
        tell(&mut bench, &mut plugin);
        assert_eq!(plugin.reclaimable(&bench.tables, preemptor, &tasks[1..3]), Some(vec![tasks[1], tasks[2]]));
    }
}
