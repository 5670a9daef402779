//! What the controllers count, under Volcano's metric names where it measures the same thing, under ours elsewhere.
//!
//! Invariant: labels are controllers, queues, phases and namespaces, never jobs or pods, so there are never many lines.
//! Volcano's label `job_name` is left out for that reason. Counted by the loops and their plans, read by handles.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use pumice_api::batch::{Job, JobPhase};
use pumice_api::flow::FlowPhase;
use pumice_clock as clock;
use pumice_cluster::metrics::{Cell, Counts, Histogram, LINES_MAX, Page};
use pumice_cluster::{Pace, Vitals};
use pumice_machines::job::Effect;
use pumice_machines::queue::GroupCounts;
use pumice_machines::retention::{Kind, Reason};
use tokio::time::Instant;

use crate::index::job_queue;
use crate::job::{Answer, JobPlan};

/// Milliseconds up to which carrying a plan out falls into each class.
const BOUNDS_MS: &[f64] =
    &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 2_000.0, 5_000.0, 10_000.0, 60_000.0];
/// Volcano's classes of the time to a job's pods, in milliseconds: so many from the first to the last, each the same multiple
/// of the one before.
const CREATION_CLASSES: i32 = 30;
const CREATION_FIRST_MS: f64 = 50.0;
const CREATION_LAST_MS: f64 = 60_000.0;

/// The counters of the controllers; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Metrics(Arc<Cells>);

#[derive(Debug)]
struct Cells {
    loops: Mutex<Vec<(&'static str, Arc<Rounds>)>>,
    creations: Histogram,
    job_ends: Counts<2>,
    flow_ends: Counts<2>,
    removals: Counts<2>,
    queues: Mutex<BTreeMap<String, GroupCounts>>,
    leads: Cell,
}

/// What one controller does.
#[derive(Debug)]
pub(crate) struct Rounds {
    waiting: Cell,
    under_way: Cell,
    failed: Cell,
    crashed: Cell,
    times: Histogram,
}

impl Rounds {
    /// So many objects wait to be looked at, and plans for so many are being carried out.
    pub fn stand(&self, waiting: usize, under_way: usize) {
        self.waiting.set(waiting);
        self.under_way.set(under_way);
    }

    /// A plan was carried out; one that failed is made anew.
    pub fn ended(&self, took: Duration, well: bool) {
        self.times.observe(took);
        if !well {
            self.failed.add(1);
        }
    }

    /// Counts a plan that panicked; its object waits for its next change.
    pub fn crashed(&self) {
        self.crashed.add(1);
    }

    /// The same call, counted when it has ended.
    pub fn watched<I: Send + 'static>(
        self: &Arc<Self>,
        call: BoxFuture<'static, crate::answer::Answer<I>>,
    ) -> impl Future<Output = crate::answer::Answer<I>> + Send + use<I> {
        let (rounds, begun) = (Arc::clone(self), Instant::now());
        async move {
            let answer = call.await;
            rounds.ended(begun.elapsed(), answer.failure.is_none());
            answer
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let step = (CREATION_LAST_MS / CREATION_FIRST_MS).powf(1.0 / f64::from(CREATION_CLASSES - 1));
        let creation = (0..CREATION_CLASSES).map(|class| (CREATION_FIRST_MS * step.powi(class)).round());
        let creation: Vec<f64> = creation.collect();
        Self(Arc::new(Cells {
            loops: Mutex::default(),
            creations: Histogram::new(&creation),
            job_ends: Counts::new(["queue_name", "phase"]),
            flow_ends: Counts::new(["jobflow_namespace", "phase"]),
            removals: Counts::new(["kind", "reason"]),
            queues: Mutex::default(),
            leads: Cell::default(),
        }))
    }
}

impl Metrics {
    /// The counters of a controller.
    pub fn of(&self, controller: &'static str) -> Arc<Rounds> {
        let mut loops = whole(&self.0.loops);
        if let Some((_, rounds)) = loops.iter().find(|(name, _)| *name == controller) {
            return Arc::clone(rounds);
        }
        let rounds = Arc::new(Rounds {
            waiting: Cell::default(),
            under_way: Cell::default(),
            failed: Cell::default(),
            crashed: Cell::default(),
            times: Histogram::new(BOUNDS_MS),
        });
        loops.push((controller, Arc::clone(&rounds)));
        rounds
    }

    /// The groups of a queue; nothing once the queue is gone.
    pub fn queue(&self, name: &str, groups: Option<GroupCounts>) {
        let mut queues = whole(&self.0.queues);
        match groups {
            None => drop(queues.remove(name)),
            Some(groups) => {
                if queues.len() < LINES_MAX || queues.contains_key(name) {
                    queues.insert(name.to_owned(), groups);
                }
            }
        }
    }

    /// A flow was written.
    pub fn flow_ended(&self, namespace: &str, phase: Option<&FlowPhase>) {
        if let Some(phase @ (FlowPhase::Succeed | FlowPhase::Failed)) = phase {
            self.0.flow_ends.add([namespace, phase.as_str()]);
        }
    }

    /// Finished work has left.
    pub fn removed(&self, kind: Kind, reason: Reason) {
        self.0.removals.add([kind.word(), reason.word()]);
    }

    /// A plan for a job begins.
    pub fn job_begins(&self, plan: &JobPlan) -> JobWatch {
        let status = &plan.job.status;
        let counted = [status.pending, status.running, status.succeeded, status.failed, status.terminating];
        let is_first = status.version == 0 && counted.iter().all(|count| *count == 0);
        let creates = || plan.stages.iter().flatten().any(|effect| matches!(effect, Effect::CreatePod(_)));
        JobWatch {
            metrics: self.clone(),
            rounds: self.of("job"),
            begun: Instant::now(),
            before: status.state.phase.clone(),
            makes_first_pods: is_first && creates(),
        }
    }

    fn render(&self, pace: &Pace) -> String {
        let cells = &*self.0;
        let mut page = Page::default();
        for (name, label, counts, phase) in [
            ("volcano_job_completed_phase_count", "queue_name", &cells.job_ends, "Completed"),
            ("volcano_job_failed_phase_count", "queue_name", &cells.job_ends, "Failed"),
            ("volcano_jobflow_succeed_phase_count", "jobflow_namespace", &cells.flow_ends, "Succeed"),
            ("volcano_jobflow_failed_phase_count", "jobflow_namespace", &cells.flow_ends, "Failed"),
        ] {
            page.head(name, "counter", "How many came to this phase");
            counts.each(|[whose, of], count| {
                if of == phase {
                    page.line(name, &[(label, whose)], count);
                }
            });
        }
        let name = "volcano_controller_job_to_pod_creation_latency_milliseconds";
        page.histogram(name, "From the making of a job to its first pods, in milliseconds", &[], &cells.creations);
        self.render_queues(&mut page);
        self.render_ours(&mut page);
        pace.write(&mut page, "pumice_controllers");
        page.into_text()
    }

    fn render_queues(&self, page: &mut Page) {
        type Of = fn(&GroupCounts) -> i32;
        let phases: [(&str, Of); 5] = [
            ("inqueue", |groups| groups.inqueue),
            ("pending", |groups| groups.pending),
            ("running", |groups| groups.running),
            ("unknown", |groups| groups.unknown),
            ("completed", |groups| groups.completed),
        ];
        let queues = whole(&self.0.queues);
        for (phase, of) in phases {
            let name = format!("volcano_queue_pod_group_{phase}_count");
            page.head(&name, "gauge", "PodGroups in this phase, by queue");
            for (queue, groups) in &*queues {
                page.line(&name, &[("queue_name", queue)], of(groups));
            }
        }
    }

    fn render_ours(&self, page: &mut Page) {
        let cells = &*self.0;
        page.counts(
            "pumice_controllers_job_ends_total",
            "Jobs that came to an end, by queue and phase",
            &cells.job_ends,
        );
        let help =
            "Finished work that was removed, by kind and whether for its age or because there was more than is kept";
        page.counts("pumice_controllers_removed_total", help, &cells.removals);
        let loops = whole(&cells.loops);
        type Of = fn(&Rounds) -> &Cell;
        let numbers: [(&str, &str, &str, Of); 4] = [
            ("pumice_controllers_waiting", "gauge", "Objects that wait to be looked at", |rounds| &rounds.waiting),
            ("pumice_controllers_plans", "gauge", "Plans being carried out", |rounds| &rounds.under_way),
            ("pumice_controllers_retries_total", "counter", "Plans that failed, and are made anew", |rounds| {
                &rounds.failed
            }),
            ("pumice_controllers_crashes_total", "counter", "Plans that panicked", |rounds| &rounds.crashed),
        ];
        for (name, kind, help, of) in numbers {
            page.head(name, kind, help);
            for (controller, rounds) in &*loops {
                page.line(name, &[("controller", controller)], of(rounds).get());
            }
        }
        let name = "pumice_controllers_plan_milliseconds";
        page.head(name, "histogram", "From a decision to the last answer of its calls, in milliseconds");
        for (controller, rounds) in &*loops {
            page.classes(name, &[("controller", controller)], &rounds.times);
        }
        page.gauge("pumice_controllers_leads", "1 if this instance works", cells.leads.get());
    }
}

/// A plan for a job that is being carried out.
pub(crate) struct JobWatch {
    metrics: Metrics,
    rounds: Arc<Rounds>,
    begun: Instant,
    before: Option<JobPhase>,
    makes_first_pods: bool,
}

impl JobWatch {
    /// It was carried out.
    pub fn ended(self, answer: &Answer) {
        let well = answer.result.is_ok();
        self.rounds.ended(self.begun.elapsed(), well);
        if self.makes_first_pods && well {
            self.metrics.0.creations.observe(age(&answer.job));
        }
        // What the last write has brought.
        let phase = answer.job.status.state.phase.as_ref();
        if let Some(phase) = phase.filter(|phase| phase.is_finished() && Some(*phase) != self.before.as_ref()) {
            self.metrics.0.job_ends.add([job_queue(&answer.job), phase.as_str()]);
        }
    }
}

fn age(job: &Job) -> Duration {
    let made = job.metadata.creation_timestamp.as_ref();
    made.map(|made| Duration::try_from(clock::now().duration_since(made.0)).unwrap_or_default()).unwrap_or_default()
}

fn whole<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind it is whole at every moment.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks the controllers what they have counted; cheap to clone.
#[derive(Debug, Clone)]
pub struct Handle {
    metrics: Metrics,
    pace: Pace,
}

impl Handle {
    pub(crate) fn new(metrics: Metrics, pace: Pace) -> Self {
        Self { metrics, pace }
    }

    /// This instance works, or stands by.
    pub fn leads(&self, leads: bool) {
        self.metrics.0.leads.set(usize::from(leads));
    }
}

impl Vitals for Handle {
    /// Its cost grows with the number of queues.
    fn metrics(&self) -> String {
        self.metrics.render(&self.pace)
    }
}

#[cfg(test)]
mod tests {
    use kube::client::Body;

    use super::*;

    fn pace() -> Pace {
        let nobody = tower::service_fn(async |_: http::Request<Body>| {
            Ok::<_, std::io::Error>(http::Response::new(Body::empty()))
        });
        pumice_cluster::paced(pumice_cluster::client_over(nobody)).1
    }

    #[tokio::test]
    async fn the_page_has_volcanos_names_and_ours() {
        let metrics = Metrics::default();
        metrics.queue("a", Some(GroupCounts { pending: 1, inqueue: 2, running: 3, unknown: 4, completed: 5 }));
        metrics.queue("a", Some(GroupCounts { pending: 9, inqueue: 2, running: 3, unknown: 4, completed: 5 }));
        metrics.queue("b", Some(GroupCounts::default()));
        metrics.queue("b", None);
        metrics.flow_ended("team", Some(&FlowPhase::Succeed));
        metrics.flow_ended("team", Some(&FlowPhase::Running));
        metrics.0.job_ends.add(["a", "Completed"]);
        metrics.0.job_ends.add(["a", "Terminated"]);
        metrics.removed(Kind::JobFlow, Reason::Number);
        metrics.of("cronjob").stand(3, 2);
        metrics.of("cronjob").ended(Duration::from_millis(3), false);
        metrics.of("cronjob").crashed();
        let page = metrics.render(&pace());
        for line in [
            "volcano_queue_pod_group_pending_count{queue_name=\"a\"} 9\n",
            "volcano_queue_pod_group_completed_count{queue_name=\"a\"} 5\n",
            "volcano_jobflow_succeed_phase_count{jobflow_namespace=\"team\"} 1\n",
            "volcano_job_completed_phase_count{queue_name=\"a\"} 1\n",
            "pumice_controllers_job_ends_total{queue_name=\"a\",phase=\"Terminated\"} 1\n",
            "pumice_controllers_removed_total{kind=\"JobFlow\",reason=\"number\"} 1\n",
            "pumice_controllers_waiting{controller=\"cronjob\"} 3\n",
            "pumice_controllers_plans{controller=\"cronjob\"} 2\n",
            "pumice_controllers_retries_total{controller=\"cronjob\"} 1\n",
            "pumice_controllers_crashes_total{controller=\"cronjob\"} 1\n",
            "pumice_controllers_plan_milliseconds_bucket{controller=\"cronjob\",le=\"5\"} 1\n",
            "volcano_controller_job_to_pod_creation_latency_milliseconds_bucket{le=\"50\"} 0\n",
            "volcano_controller_job_to_pod_creation_latency_milliseconds_bucket{le=\"60000\"} 0\n",
            "pumice_controllers_leads 0\n",
            "pumice_controllers_calls_limit 32\n",
        ] {
            assert!(page.contains(line), "{line}{page}");
        }
        assert!(!page.contains("\"b\"") && !page.contains("volcano_job_failed_phase_count{"), "{page}");
        let heads = page.lines().filter(|line| line.starts_with("# TYPE ")).collect::<Vec<_>>();
        let names: std::collections::BTreeSet<_> = heads.iter().collect();
        assert_eq!(heads.len(), names.len(), "each name once: {page}");
    }

    #[test]
    fn no_more_queues_than_there_is_room_for() {
        let metrics = Metrics::default();
        (0..=LINES_MAX).for_each(|number| metrics.queue(&number.to_string(), Some(GroupCounts::default())));
        assert_eq!(whole(&metrics.0.queues).len(), LINES_MAX);
    }
}
