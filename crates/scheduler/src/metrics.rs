//! What the scheduler counts, under Volcano's metric names where it measures the same thing, under ours elsewhere.
//!
//! Invariant: counting takes no lock but for names that are seen the first time; labels are queues, actions, stages and
//! kinds of results, never pods or jobs, so there are never many lines. Counted by the loop, read by handles.

use std::sync::Arc;
use std::time::Duration;

use pumice_cluster::metrics::{Cell, Counts, Histogram, Page};
use pumice_engine::QueueView;

mod queues;

/// Most queues that have lines of their own.
const QUEUES_MAX: usize = 10_000;

/// Milliseconds up to which one cycle, or one call, falls into each class.
const BOUNDS_MS: &[f64] =
    &[0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 2_000.0, 5_000.0, 10_000.0, 60_000.0];

/// The counters of one scheduler; cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Metrics(Arc<Cells>);

#[derive(Debug)]
struct Cells {
    cycles: Histogram,
    group_waits: Histogram,
    bind_calls: Histogram,
    task_waits: Histogram,
    scheduled: Cell,
    unschedulable: Cell,
    errors: Cell,
    victims: Cell,
    unscheduled_groups: Cell,
    changes: Cell,
    in_flight: Cell,
    window: Cell,
    panics: Cell,
    quarantined: Cell,
    leads: Cell,
    recorded: Cell,
    record_bytes: Cell,
    record_holes: Cell,
    record_deviations: Cell,
    refusals: Counts<1>,
    evictions: Counts<1>,
    rooms: Counts<2>,
}

impl Default for Cells {
    fn default() -> Self {
        let milliseconds = || Histogram::new(BOUNDS_MS);
        Self {
            cycles: milliseconds(),
            group_waits: milliseconds(),
            bind_calls: milliseconds(),
            task_waits: milliseconds(),
            scheduled: Cell::default(),
            unschedulable: Cell::default(),
            errors: Cell::default(),
            victims: Cell::default(),
            unscheduled_groups: Cell::default(),
            changes: Cell::default(),
            in_flight: Cell::default(),
            window: Cell::default(),
            panics: Cell::default(),
            quarantined: Cell::default(),
            leads: Cell::default(),
            recorded: Cell::default(),
            record_bytes: Cell::default(),
            record_holes: Cell::default(),
            record_deviations: Cell::default(),
            refusals: Counts::new(["reason"]),
            evictions: Counts::new(["action"]),
            rooms: Counts::new(["action", "room"]),
        }
    }
}

impl Metrics {
    /// A cycle ran. `unschedulable` are the pods it told so, `victims` those it evicts.
    pub(crate) fn cycle(&self, took: Duration, unschedulable: usize, victims: usize) {
        self.0.cycles.observe(took);
        self.0.unschedulable.add(unschedulable as u64);
        if victims > 0 {
            self.0.victims.set(victims);
        }
    }

    /// Changes of objects were taken in.
    pub(crate) fn changes(&self, count: usize) {
        self.0.changes.add(count as u64);
    }

    /// A bind was answered after `took`.
    pub(crate) fn bound(&self, took: Duration, well: bool) {
        self.0.bind_calls.observe(took);
        if well { self.0.scheduled.add(1) } else { self.0.errors.add(1) }
    }

    /// A pod was bound so long after it was first seen.
    pub(crate) fn task_waited(&self, waited: Duration) {
        self.0.task_waits.observe(waited);
    }

    /// A group's minimum was placed so long after the group was made.
    pub(crate) fn group_waited(&self, waited: Duration) {
        self.0.group_waits.observe(waited);
    }

    pub(crate) fn unscheduled_groups(&self, count: usize) {
        self.0.unscheduled_groups.set(count);
    }

    /// Calls under way, and how many there may be.
    pub(crate) fn in_flight(&self, calls: usize, limit: usize) {
        self.0.in_flight.set(calls);
        self.0.window.set(limit);
    }

    /// A pod is being evicted by an action.
    pub(crate) fn evicting(&self, action: &str) {
        self.0.evictions.add([action]);
    }

    /// It shows what became of the room that so many evictions by an action have freed.
    pub(crate) fn settled(&self, action: &str, room: &str, evictions: u32) {
        (0..evictions).for_each(|_| self.0.rooms.add([action, room]));
    }

    /// A kubelet refused a pod that was bound to it.
    pub(crate) fn refused(&self, reason: &str) {
        self.0.refusals.add([reason]);
    }

    /// The engine panicked; so many objects are in quarantine.
    pub(crate) fn panicked(&self) {
        self.0.panics.add(1);
    }

    /// So many objects are in quarantine.
    pub(crate) fn quarantined(&self, count: usize) {
        self.0.quarantined.set(count);
    }

    /// Entries were written to the recording.
    pub(crate) fn recorded(&self, entries: u64) {
        self.0.recorded.add(entries);
    }

    /// So many bytes more.
    pub(crate) fn record_bytes(&self, bytes: u64) {
        self.0.record_bytes.add(bytes);
    }

    /// The recording lacks something.
    pub(crate) fn record_hole(&self) {
        self.0.record_holes.add(1);
    }

    /// A recorded plan came out otherwise when it was played again.
    pub(crate) fn record_deviation(&self) {
        self.0.record_deviations.add(1);
    }

    pub(crate) fn leads(&self, leads: bool) {
        self.0.leads.set(usize::from(leads));
    }

    /// All of it, in the text format of Prometheus.
    pub(crate) fn render(&self, queues: &[QueueView]) -> String {
        let cells = &*self.0;
        let mut page = Page::default();
        let milliseconds = "latency in milliseconds";
        page.histogram("volcano_e2e_scheduling_latency_milliseconds", "A scheduling cycle,", &[], &cells.cycles);
        let help = "From the making of a group to the placing of its minimum, latency in milliseconds";
        page.histogram("volcano_e2e_job_scheduling_latency_milliseconds", help, &[], &cells.group_waits);
        let name = "volcano_task_scheduling_latency_milliseconds";
        page.histogram(name, milliseconds, &[("stage", "Bound")], &cells.task_waits);
        let name = "volcano_scheduling_stage_duration_milliseconds";
        page.histogram(name, milliseconds, &[("stage", "Bind")], &cells.bind_calls);

        page.head("volcano_schedule_attempts_total", "counter", "Attempts to place pods, by result");
        for (result, cell) in
            [("scheduled", &cells.scheduled), ("unschedulable", &cells.unschedulable), ("error", &cells.errors)]
        {
            page.line("volcano_schedule_attempts_total", &[("result", result)], cell.get());
        }
        page.gauge("volcano_pod_preemption_victims", "Victims of the last cycle that had any", cells.victims.get());
        page.counter("volcano_total_preemption_attempts", "Evictions in all", cells.evictions.sum());
        page.counts("volcano_eviction_transactions_total", "Evictions, by action", &cells.evictions);
        page.gauge("volcano_unschedule_job_count", "Groups that wait", cells.unscheduled_groups.get());
        queues::write(&mut page, &queues[..queues.len().min(QUEUES_MAX)]);
        self.render_ours(&mut page);
        page.into_text()
    }

    fn render_ours(&self, page: &mut Page) {
        let cells = &*self.0;
        page.counter("pumice_scheduler_changes_total", "Changes of objects taken in", cells.changes.get());
        page.gauge("pumice_scheduler_calls", "Calls of the API server under way", cells.in_flight.get());
        page.gauge("pumice_scheduler_calls_limit", "Most calls that may be under way at once", cells.window.get());
        page.counter("pumice_scheduler_panics_total", "Panics of the engine that were survived", cells.panics.get());
        page.gauge("pumice_scheduler_quarantined", "Objects put aside after a panic", cells.quarantined.get());
        page.gauge("pumice_scheduler_leads", "1 if this instance schedules", cells.leads.get());
        page.counter("pumice_scheduler_recorded_total", "Entries written to the recording", cells.recorded.get());
        let help = "Bytes written to the recording";
        page.counter("pumice_scheduler_recorded_bytes_total", help, cells.record_bytes.get());
        let help = "Holes in the recording: what came too fast, or could not be written";
        page.counter("pumice_scheduler_record_holes_total", help, cells.record_holes.get());
        let help =
            "Recorded plans that came out otherwise when they were played again: none, if the engine keeps its word";
        page.counter("pumice_scheduler_record_deviations_total", help, cells.record_deviations.get());
        let name = "pumice_scheduler_freed_rooms_total";
        let help =
            "Evictions for another group, by what became of the room: used, or why that group did not start there";
        page.counts(name, help, &cells.rooms);
        let name = "pumice_scheduler_kubelet_refusals_total";
        page.counts(name, "Pods that a node refused after they were bound to it, by reason", &cells.refusals);
    }
}

#[cfg(test)]
mod tests {
    use pumice_engine::Resources;

    use super::*;

    #[test]
    fn the_page_has_volcanos_names_and_ours() {
        let metrics = Metrics::default();
        metrics.cycle(Duration::from_micros(1_500), 3, 2);
        metrics.bound(Duration::from_millis(4), true);
        metrics.bound(Duration::from_millis(70), false);
        metrics.task_waited(Duration::from_millis(30));
        metrics.group_waited(Duration::from_secs(90));
        metrics.evicting("preempt");
        metrics.evicting("preempt");
        metrics.settled("preempt", "used", 2);
        metrics.refused("OutOfcpu");
        metrics.in_flight(3, 32);
        let amounts = |list: &[(&str, i64)]| {
            list.iter().map(|(name, amount)| ((*name).to_owned(), *amount)).collect::<Resources>()
        };
        let queue = QueueView {
            name: "a\"b".into(),
            weight: 2,
            allocated: amounts(&[("cpu", 1500), ("nvidia.com/gpu", 2)]),
            requested: amounts(&[("cpu", 2500)]),
            inqueue: amounts(&[("memory", 1 << 30)]),
            capability: amounts(&[("cpu", 4000)]),
            real_capability: amounts(&[("cpu", 3000)]),
            deserved: Some(amounts(&[("cpu", 2000)])),
            share: 750_000_000,
            overused: true,
        };
        insta::assert_snapshot!(metrics.render(&[queue]));
        assert!(!metrics.render(&[]).contains("queue_name"));
    }
}
