//! What makes a job that failed wait, and what ends the wait.

use super::*;
use pumice_api::scheduling::Queue;
use pumice_cluster::{Change, Failure};
use pumice_machines::job::{PodFacts, PodPhase};
use serde_json::json;

fn job(generation: i64) -> Job {
    serde_json::from_value(json!({
        "metadata": {"name": "j", "namespace": "ns", "uid": "u", "generation": generation,
            "resourceVersion": (10 + generation).to_string()},
        "spec": {"minAvailable": 1, "tasks": [{"name": "w", "replicas": 1}]},
    }))
    .unwrap()
}

fn key() -> Key {
    ("ns".to_owned(), "j".to_owned())
}

/// A job whose first plan was refused, and what a look at it then says.
struct Refused {
    jobs: JobWork,
    index: Index,
    recorder: EventRecorder,
}

impl Refused {
    fn new() -> Self {
        let nowhere = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Ok::<_, std::convert::Infallible>(http::Response::new(kube::client::Body::empty()))
        });
        let (recorder, _) = EventRecorder::new(kube::Client::new(nowhere, "ns"), "test");
        let mut refused = Self { jobs: JobWork::default(), index: Index::default(), recorder };
        let mut touched = Vec::new();
        let mut queue = Queue::default();
        queue.metadata.name = Some("default".to_owned());
        refused.index.queue_changed(Change::Applied(queue), &mut touched);
        refused.index.job_changed(Change::Applied(job(1)), &mut touched);
        let Begin::Carry(plan) = refused.begin() else { panic!("a new job has a plan") };
        let JobPlan { key, job, wish, evicted, .. } = *plan;
        let result = Err(Trouble { failure: Failure::Invalid, event: None });
        let answer = Answer { key, job, observed: Vec::new(), result, wish, evicted };
        refused.jobs.answered(answer, &mut refused.index, &refused.recorder, &mut touched);
        assert!(matches!(refused.begin(), Begin::Wait(_)), "a refusal is not repeated at once");
        refused
    }

    fn begin(&mut self) -> Begin {
        let surroundings = Surroundings {
            queued: 0,
            index: &self.index,
            network_policies: false,
            recorder: &self.recorder,
            now: Timestamp::UNIX_EPOCH,
        };
        self.jobs.begin(&key(), &surroundings)
    }

    fn goes_on(mut self) -> bool {
        matches!(self.begin(), Begin::Carry(_))
    }
}

#[tokio::test]
async fn a_job_that_cannot_start_can_be_ended_at_once() {
    let mut refused = Refused::new();
    let wish = Wish { action: pumice_api::bus::Action::TerminateJob, ticket: Ticket::default() };
    assert!(refused.jobs.wish(&key(), &refused.index, wish).is_none());
    assert!(refused.goes_on());
}

#[tokio::test]
async fn a_corrected_job_is_tried_at_once() {
    let mut refused = Refused::new();
    refused.index.job_changed(Change::Applied(job(2)), &mut Vec::new());
    assert!(refused.goes_on());
}

#[tokio::test]
async fn a_job_goes_on_once_its_predecessors_pods_are_gone() {
    let mut refused = Refused::new();
    let facts = PodFacts {
        disrupted: false,
        killed: Vec::new(),
        raised: Vec::new(),
        retried: 0,
        name: "j-w-0".into(),
        uid: "p".into(),
        task: "w".into(),
        index: 0,
        version: 0,
        phase: PodPhase::Running,
        terminating_since: None,
        mark: None,
        refused: None,
        exit_codes: Vec::new(),
        restarts: 0,
        ready: true,
        created_at: None,
        ended_at: None,
        restarted_at: None,
        evicted_at: None,
    };
    refused.jobs.gone(vec![Gone { job: key(), job_uid: "earlier".into(), facts }], Timestamp::UNIX_EPOCH);
    assert!(refused.goes_on());
}
