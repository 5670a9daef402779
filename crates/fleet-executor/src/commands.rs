//! Errands: what the server wants done at once for somebody who waits, beside the runs.
//!
//! Invariant: an errand changes no run and holds none up: each has a task of its own, a limit of time and one answer, and only so
//! many are under way. A pod is read only where it is of the run that was named.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use pumice_cluster::words;
use pumice_wire::executor::errand::Errand as Kind;
use pumice_wire::executor::errand_answer::Answer;
use pumice_wire::executor::{CordonNode, Errand, ErrandAnswer, ErrandProblem, ErrandRefusal, NodeCordoned};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::server_stream::Answers;

mod lines;
mod log;

/// Errands that are done at once; more wait.
const AT_ONCE_MAX: usize = 16;
/// Errands that are done or wait: those of a server, and of one before it. Nobody waits for more of them.
const HELD_MAX: usize = 128;
/// The longest that one may take, whatever the server says.
const LIMIT_MAX: Duration = Duration::from_secs(60);

/// Errands that the server gave and that are not answered yet.
pub(super) struct Commands {
    client: Client,
    /// Of the session that is open, or was last.
    answers: Option<Answers>,
    turns: Arc<Semaphore>,
    running: JoinSet<()>,
}

impl Commands {
    pub(super) fn new(client: Client) -> Self {
        Self { client, answers: None, turns: Arc::new(Semaphore::new(AT_ONCE_MAX)), running: JoinSet::new() }
    }

    /// From now on answers go there.
    pub(super) fn answer_to(&mut self, answers: Answers) {
        self.answers = Some(answers);
    }

    /// Begins one, and does not wait for it.
    pub(super) fn run(&mut self, errand: Errand) {
        while self.running.try_join_next().is_some() {}
        let Some(answers) = self.answers.clone() else { return };
        if self.running.len() >= HELD_MAX {
            return tracing::warn!(HELD_MAX, "an errand of the server is left out: too many are under way");
        }
        self.running.spawn(done(self.client.clone(), Arc::clone(&self.turns), errand, answers));
    }
}

async fn done(client: Client, turns: Arc<Semaphore>, errand: Errand, answers: Answers) {
    let Errand { errand_id, limit_ms, errand } = errand;
    let limit = Duration::from_millis(limit_ms).min(LIMIT_MAX);
    let work = async {
        let _turn = turns.acquire().await;
        match errand {
            Some(Kind::ReadLog(read)) => log::read(&client, read).await.map(Answer::Log),
            Some(Kind::CordonNode(cordon)) => cordoned(&client, cordon).await.map(Answer::Cordoned),
            None => Err(Refused::new(ErrandProblem::Invalid, "this executor is too old for what was asked")),
        }
    };
    let late = || Refused::new(ErrandProblem::Failed, format!("its API server took longer than {} s", limit.as_secs()));
    let answer = timeout(limit, work).await.unwrap_or_else(|_| Err(late()));
    let answer = answer.unwrap_or_else(|refused| Answer::Refused(refused.0));
    let answer = ErrandAnswer { errand_id, answer: Some(answer) };
    match timeout(limit, answers.give(answer)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "the answer to an errand was not taken"),
        Err(_) => tracing::debug!("the answer to an errand was not taken in time"),
    }
}

/// Why an errand is not done.
#[derive(Debug, PartialEq)]
struct Refused(ErrandRefusal);

impl Refused {
    fn new(problem: ErrandProblem, message: impl Into<String>) -> Self {
        Self(ErrandRefusal { problem: problem.into(), message: message.into() })
    }

    /// What the cluster has said to `doing`, of `what`.
    fn of(error: &kube::Error, doing: &str, what: &str) -> Self {
        let code = if let kube::Error::Api(status) = error { status.code } else { 0 };
        match code {
            401 | 403 => {
                let remedy = "run `pumice roles executor | kubectl apply -f -` there";
                Self::new(ErrandProblem::Denied, format!("its executor may not {doing}: {remedy}"))
            }
            404 => Self::new(ErrandProblem::NotFound, format!("there is no {what}")),
            400 => Self::new(ErrandProblem::Invalid, words(error)),
            _ => Self::new(ErrandProblem::Failed, format!("cannot {doing}: {}", words(error))),
        }
    }
}

async fn cordoned(client: &Client, cordon: CordonNode) -> Result<NodeCordoned, Refused> {
    let CordonNode { node, labels } = cordon;
    let patch = Patch::Merge(json!({ "metadata": { "labels": labels }, "spec": { "unschedulable": true } }));
    let nodes: Api<Node> = Api::all(client.clone());
    let patched = nodes.patch(&node, &PatchParams::default(), &patch).await;
    patched.map_err(|error| Refused::of(&error, "cordon nodes", &format!("node {node}")))?;
    Ok(NodeCordoned {})
}

#[cfg(test)]
mod tests;
