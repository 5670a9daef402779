//! What a case does to its jobs.

use std::collections::BTreeSet;

use super::failure::Failure;
use super::server::{Server, answer};
use super::spec::Action;

/// Whom it is done to.
#[derive(Debug)]
pub(super) struct Target<'a> {
    pub queue: &'a str,
    pub job_set: &'a str,
    pub ids: Vec<String>,
    /// Executors and nodes of the jobs, for what is done on nodes.
    pub places: BTreeSet<(String, String)>,
}

/// Whether it has to be known where jobs are.
pub(super) fn needs_places(action: &Action) -> bool {
    matches!(action, Action::CancelOnNode(_) | Action::PreemptOnNode(_))
}

/// Does it.
///
/// # Errors
/// What the server does not do.
pub(super) async fn act(server: &Server, action: &Action, target: Target<'_>) -> Result<(), Failure> {
    let Target { queue, job_set, ids, places } = target;
    let (queue, job_set_id) = (queue.to_owned(), job_set.to_owned());
    match action.clone() {
        Action::Cancel(mut request) => {
            (request.queue, request.job_set_id, request.job_ids) = (queue, job_set_id, ids);
            answer("CancelJobs", server.submit().cancel_jobs(request)).await?;
        }
        Action::CancelJobSet(mut request) => {
            (request.queue, request.job_set_id) = (queue, job_set_id);
            answer("CancelJobSet", server.submit().cancel_job_set(request)).await?;
        }
        Action::Preempt(mut request) => {
            (request.queue, request.job_set_id, request.job_ids) = (queue, job_set_id, ids);
            let answered = answer("PreemptJobs", server.submit().preempt_jobs(request)).await?;
            without_errors("PreemptJobs", answered.preemption_results)?;
        }
        Action::Reprioritize { mut request, by_job_set } => {
            (request.queue, request.job_set_id) = (queue, job_set_id);
            request.job_ids = if by_job_set { Vec::new() } else { ids };
            let answered = answer("ReprioritizeJobs", server.submit().reprioritize_jobs(request)).await?;
            without_errors("ReprioritizeJobs", answered.reprioritization_results)?;
        }
        Action::CancelOnNode(request) => {
            for (executor, name) in places {
                let mut request = request.clone();
                request.name = name;
                fill(&mut request.executor, executor);
                answer("CancelOnNode", server.nodes().cancel_on_node(request)).await?;
            }
        }
        Action::PreemptOnNode(request) => {
            for (executor, name) in places {
                let mut request = request.clone();
                request.name = name;
                fill(&mut request.executor, executor);
                answer("PreemptOnNode", server.nodes().preempt_on_node(request)).await?;
            }
        }
    }
    Ok(())
}

/// The executor of the specification is the one, if it names one.
fn fill(executor: &mut String, of_jobs: String) {
    if executor.is_empty() {
        *executor = of_jobs;
    }
}

/// Results by job, which are empty where it was done.
fn without_errors(call: &'static str, results: impl IntoIterator<Item = (String, String)>) -> Result<(), Failure> {
    match results.into_iter().find(|(_, error)| !error.is_empty()) {
        None => Ok(()),
        Some((job, message)) => Err(Failure::Item { call, item: format!("job {job}"), message }),
    }
}
