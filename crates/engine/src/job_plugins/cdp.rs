//! `cdp`: a pod is no victim until its cool-down time (label, else annotation `volcano.sh/cooldown-time`) since it was
//! scheduled is over.

use pumice_units::GoDuration;

use crate::cluster::classes::ClassRow;
use crate::ids::{TaskId, TimeMs};
use crate::plugin::{GangEviction, Plugin};
use crate::world::tables::Tables;
use crate::world::tasks::TaskState;

const COOLDOWN: &str = "volcano.sh/cooldown-time";

#[derive(Debug, Default)]
pub(crate) struct Cdp {
    now: TimeMs,
}

impl Plugin for Cdp {
    fn scores_nodes(&self) -> bool {
        false
    }

    fn open(&mut self, _tables: &Tables, now: TimeMs) {
        self.now = now;
    }

    fn preemptable(&self, tables: &Tables, _preemptor: TaskId, candidates: &[TaskId]) -> Option<Vec<TaskId>> {
        Some(self.cooled_down(tables, candidates))
    }

    fn reclaimable(&self, tables: &Tables, _preemptor: TaskId, candidates: &[TaskId]) -> Option<Vec<TaskId>> {
        Some(self.cooled_down(tables, candidates))
    }

    fn keeps(&self, tables: &Tables, victim: TaskId) -> bool {
        self.is_protected(tables, victim)
    }

    fn unified_evictable(&self, tables: &Tables, _want: &GangEviction, candidates: &[TaskId]) -> Option<Vec<TaskId>> {
        Some(self.cooled_down(tables, candidates))
    }

    fn checks_use_of(&self, _class: &ClassRow) -> bool {
        false
    }
}

impl Cdp {
    fn cooled_down(&self, tables: &Tables, candidates: &[TaskId]) -> Vec<TaskId> {
        candidates.iter().copied().filter(|task| !self.is_protected(tables, *task)).collect()
    }

    fn is_protected(&self, tables: &Tables, task: TaskId) -> bool {
        let row = tables.task(task);
        if row.state != TaskState::Running {
            return false;
        }
        let annotation = || row.annotations.as_ref()?.get(COOLDOWN).map(String::as_str);
        let text = tables.inter_pod.label(&row.labels, COOLDOWN).or_else(annotation);
        let cooldown_ms = text.and_then(|text| text.parse::<GoDuration>().ok()).map(|duration| duration.as_millis());
        match (row.scheduled, cooldown_ms) {
            (Some(since), Some(cooldown_ms)) => since.plus_ms(cooldown_ms) > self.now,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::tests::victim_bench::Bench;

    #[test]
    fn a_pod_is_safe_until_it_has_cooled_down() {
        for (label, annotation, scheduled, leaves) in [
            (None, None, Some(990), true),
            (Some("20ms"), None, Some(990), false),
            (Some("20ms"), None, Some(980), true),
            (None, Some("20ms"), Some(990), false),
            (Some("5ms"), Some("20ms"), Some(990), true),
            (Some("soon"), None, Some(990), true),
            (Some("20ms"), None, None, true),
        ] {
            let mut bench = Bench::new();
            let task = bench.running("victims", 0, |pod| {
                let entry = |text: Option<&str>| text.map(|text| (COOLDOWN.to_owned(), text.to_owned()));
                pod.labels.extend(entry(label));
                pod.annotations.extend(entry(annotation));
                pod.scheduled = scheduled.map(TimeMs);
            });
            let preemptor = bench.pending("wants", 0, |_| {});
            let mut plugin = Cdp::default();
            plugin.open(&bench.tables, TimeMs(1_000));
            let expected = if leaves { vec![task] } else { Vec::new() };
            let what = (label, annotation, scheduled);
            assert_eq!(plugin.preemptable(&bench.tables, preemptor, &[task]), Some(expected.clone()), "{what:?}");
            assert_eq!(plugin.reclaimable(&bench.tables, preemptor, &[task]), Some(expected), "{what:?}");
        }
    }
}
