//! What an executor says of itself: Armada's names where it has some.
//!
//! Invariant: a page costs nothing of the executor; what is on it is as of its last tick.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pumice_cluster::{Pace, Vitals};
use pumice_metrics::{Cell, Page};
use pumice_wire::executor::RunPhase;

/// An executor's runs at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunCounts {
    /// By queue and phase.
    pub phases: BTreeMap<(String, &'static str), u64>,
    /// Leased, and their pods not begun: so many are being made already.
    pub waiting: u64,
    /// Ends that the server has not acknowledged.
    pub unacknowledged: u64,
}

/// What is seen of an executor; cheap to clone.
#[derive(Debug, Clone)]
pub struct Handle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    pace: Pace,
    runs: Mutex<RunCounts>,
    nodes: Cell,
    synced: AtomicBool,
    session: AtomicBool,
    sessions: AtomicU64,
    refused: AtomicU64,
}

impl Handle {
    pub(super) fn new(pace: Pace) -> Self {
        Self(Arc::new(Shared {
            pace,
            runs: Mutex::default(),
            nodes: Cell::default(),
            synced: AtomicBool::new(false),
            session: AtomicBool::new(false),
            sessions: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }))
    }

    /// Runs and nodes, as they are.
    pub(super) fn tick(&self, runs: RunCounts, nodes: usize, synced: bool) {
        *self.0.runs.lock().unwrap_or_else(PoisonError::into_inner) = runs;
        self.0.nodes.set(nodes);
        self.0.synced.store(synced, Ordering::Relaxed);
    }

    pub(super) fn opened(&self) {
        self.0.session.store(true, Ordering::Relaxed);
        self.0.sessions.fetch_add(1, Ordering::Relaxed);
    }

    /// It is over, or there was none.
    pub(super) fn closed(&self, is_refused: bool) {
        self.0.session.store(false, Ordering::Relaxed);
        self.0.refused.fetch_add(u64::from(is_refused), Ordering::Relaxed);
    }
}

/// As Armada has a pod's phase.
pub(super) fn word(phase: RunPhase) -> &'static str {
    match phase {
        RunPhase::Unspecified => "Unknown",
        RunPhase::Leased => "Leased",
        RunPhase::Pending => "Pending",
        RunPhase::Running => "Running",
        RunPhase::Succeeded => "Succeeded",
        RunPhase::Failed => "Failed",
        RunPhase::Returned => "Returned",
        RunPhase::Gone => "Gone",
    }
}

impl Vitals for Handle {
    fn metrics(&self) -> String {
        let Shared { pace, runs, nodes, session, sessions, refused, .. } = &*self.0;
        let runs = runs.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut page = Page::default();
        let name = "armada_executor_job_pod";
        page.head(name, "gauge", "Pods in different phases by queue");
        for ((queue, phase), count) in &runs.phases {
            page.line(name, &[("queue", queue), ("phase", phase)], count);
        }
        page.gauge("armada_executor_available_node_count", "Number of nodes", nodes.get());
        let ours = |name: &str| format!("pumice_fleet_executor_{name}");
        page.gauge(&ours("runs_waiting"), "Runs that are leased and whose pods are not begun", runs.waiting);
        let help = "Ends of runs that the server has not acknowledged";
        page.gauge(&ours("reports_unacknowledged"), help, runs.unacknowledged);
        let help = "Whether there is a session with the server";
        page.gauge(&ours("session"), help, u64::from(session.load(Ordering::Relaxed)));
        page.counter(&ours("sessions_total"), "Sessions with the server", sessions.load(Ordering::Relaxed));
        let help = "Sessions that ended with an error, and tries that failed";
        page.counter(&ours("session_failures_total"), help, refused.load(Ordering::Relaxed));
        pace.write(&mut page, "pumice_fleet_executor");
        page.into_text()
    }

    fn is_well(&self) -> bool {
        self.0.synced.load(Ordering::Relaxed)
    }
}
