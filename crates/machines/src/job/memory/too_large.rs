//! Pods that were given more memory than any node has: they would wait for ever, and their job says so at once.
//!
//! Invariant: said of pods that wait and were raised, or start with what was learned; never while no node is known. Looked for
//! at each step, so what is said goes away with its cause.

use std::collections::{BTreeMap, BTreeSet};

use pumice_units::Quantity;

use crate::job::StepContext;
use crate::job::facts::PodPhase;
use crate::job::memory::sizes::{Level, Sizes};
use crate::range_encoding::RangeEncoding;
use crate::usage;

impl StepContext<'_> {
    /// What to say of pods for which no node is large enough; one sentence for each task and amount.
    pub(in crate::job) fn too_large(&self) -> Vec<String> {
        let (Some(largest), job) = (self.view.largest_node, self.view.job) else { return Vec::new() };
        let sizes = Sizes::read(job);
        let mut all = Vec::new();
        for task in &self.pod_counts.tasks {
            let name = &task.spec.name;
            let starts = sizes.start.has(name);
            let raised: BTreeSet<i32> =
                sizes.raises.of_task(name).flat_map(|(_, runs)| runs.iter().map(|(index, _)| index)).collect();
            let replicas = task.spec.replicas.max(0);
            let waits = |index: &i32| {
                let of_pod = task.slots.get(index).map(|pod| pod.phase);
                !task.ended.contains_key(index) && of_pod.is_none_or(|phase| phase == PodPhase::Pending)
            };
            let given: Box<dyn Iterator<Item = i32>> = if starts {
                Box::new(0..replicas)
            } else {
                Box::new(raised.iter().copied().filter(|index| *index < replicas))
            };
            let mut needs: BTreeMap<Level, i64> = BTreeMap::new();
            let mut told: BTreeMap<(i64, bool), BTreeMap<i32, i64>> = BTreeMap::new();
            for index in given.filter(waits) {
                let level = sizes.level(name, index);
                let was_killed = !level.is_empty();
                let need = *needs.entry(level).or_insert_with_key(|level| {
                    let template = sizes.template(job, task.spec, level);
                    usage::quota_usage(template.spec.as_ref()).get("memory").map_or(0, |amount| amount.value())
                });
                if need > largest {
                    told.entry((need, was_killed)).or_default().insert(index, 1);
                }
            }
            all.extend(told.iter().map(|((need, was_killed), indices)| {
                let (pods, verb) = if indices.len() == 1 { ("pod", "needs") } else { ("pods", "need") };
                let (runs, need, largest) =
                    (RangeEncoding::from(indices).write(), Quantity::from_bytes(*need), Quantity::from_bytes(largest));
                let why = if *was_killed { "after being killed for memory" } else { "as learned from earlier runs" };
                format!("task {name}, {pods} {runs} {verb} {need} of memory {why}, and the largest node has {largest}: add a larger node, or lower the ceiling of the rule")
            }));
        }
        all
    }
}
