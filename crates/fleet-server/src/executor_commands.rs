//! What executors are asked to do at once: errands that are under way, and who waits for their answers.
//!
//! Invariant: an answer goes to whoever sent the errand, and only from the cluster that it was sent to; a cluster has a bounded
//! number of them at a time. Nothing of it is kept: with the server all of them end. The leader only carries an errand to a
//! session; answers come beside it, so that they hold nothing up.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pumice_wire::executor as wire;
use pumice_wire::executor::errand_answer::Answer;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tonic::Status;

use crate::leader::Input;
use crate::sessions::Unreached;

/// Errands that a cluster has at a time.
pub const UNDER_WAY_MAX: usize = 64;
/// For an errand, from its sending to its answer.
const LIMIT: Duration = Duration::from_secs(15);
/// An executor gives up somewhat earlier, so that it can still say so.
const EXECUTOR_LIMIT: Duration = Duration::from_secs(12);

/// Errands by id, and what takes their answers.
#[derive(Debug)]
struct UnderWay<W> {
    errands: BTreeMap<u64, (String, W)>,
    /// How many each cluster has; never 0.
    counts: BTreeMap<String, usize>,
}

/// Why an errand is not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NotBegun {
    /// The cluster has as many as it may.
    Full,
    /// Another errand has this id.
    Taken,
}

impl<W> Default for UnderWay<W> {
    fn default() -> Self {
        Self { errands: BTreeMap::new(), counts: BTreeMap::new() }
    }
}

impl<W> UnderWay<W> {
    fn begin(&mut self, cluster: &str, id: u64, waiter: W) -> Result<(), NotBegun> {
        if self.errands.contains_key(&id) {
            return Err(NotBegun::Taken);
        }
        if self.counts.get(cluster).is_some_and(|count| *count >= UNDER_WAY_MAX) {
            return Err(NotBegun::Full);
        }
        *self.counts.entry(cluster.to_owned()).or_default() += 1;
        self.errands.insert(id, (cluster.to_owned(), waiter));
        Ok(())
    }

    /// Who waits for the answer of this cluster; nobody for that of another.
    fn answered(&mut self, cluster: &str, id: u64) -> Option<W> {
        if self.errands.get(&id)?.0 != cluster {
            return None;
        }
        self.end(id)
    }

    fn end(&mut self, id: u64) -> Option<W> {
        let (cluster, waiter) = self.errands.remove(&id)?;
        if let Some(count) = self.counts.get_mut(&cluster) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&cluster);
            }
        }
        Some(waiter)
    }
}

type Shared = Arc<Mutex<UnderWay<oneshot::Sender<Answer>>>>;

/// Sends errands and takes their answers; cheap to clone, all clones share what is under way.
#[derive(Debug, Clone)]
pub struct ExecutorCommands {
    inputs: mpsc::Sender<Input>,
    under_way: Shared,
}

/// An errand that somebody waits for. Dropping it gives it up.
struct Waiting {
    under_way: Shared,
    id: u64,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        locked(&self.under_way).end(self.id);
    }
}

fn locked<W>(under_way: &Mutex<UnderWay<W>>) -> MutexGuard<'_, UnderWay<W>> {
    // Each change is made as a whole.
    under_way.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ExecutorCommands {
    /// Errands of a leader, by way of its inputs.
    pub fn new(inputs: mpsc::Sender<Input>) -> Self {
        Self { inputs, under_way: Arc::default() }
    }

    /// Sends an errand to the executor of a cluster and waits for its answer, but not for ever.
    ///
    /// # Errors
    /// Where it can't be sent, where no answer comes, and what the executor refuses.
    pub async fn run(&self, cluster: &str, errand: wire::errand::Errand) -> Result<Answer, Status> {
        self.run_within(LIMIT, cluster, errand).await
    }

    async fn run_within(&self, limit: Duration, cluster: &str, errand: wire::errand::Errand) -> Result<Answer, Status> {
        let running = timeout(limit, self.send(cluster, errand)).await;
        let answer = running.unwrap_or_else(|_| {
            let seconds = limit.as_secs();
            let message = format!("the executor of cluster {cluster} has not answered within {seconds} s: try again");
            Err(Status::deadline_exceeded(message))
        })?;
        match answer {
            Answer::Refused(refusal) => Err(refused(cluster, refusal)),
            answer => Ok(answer),
        }
    }

    /// Clusters that have a node of this name.
    ///
    /// # Errors
    /// Where this server does not lead.
    pub async fn homes(&self, node: &str) -> Result<Vec<String>, Status> {
        let (answer, told) = oneshot::channel();
        let asked = Input::Homes { node: node.to_owned(), answer };
        let answered = async {
            self.inputs.send(asked).await.map_err(|_| not_leading())?;
            told.await.map_err(|_| not_leading())
        };
        timeout(LIMIT, answered).await.unwrap_or_else(|_| Err(not_leading()))
    }

    /// Executors that the leader knows of, and whether each is gone: nothing was heard of it lately. None where this server does
    /// not lead.
    pub async fn executors(&self) -> Option<BTreeMap<String, bool>> {
        let (answer, told) = oneshot::channel();
        let answered = async {
            self.inputs.send(Input::Executors { answer }).await.ok()?;
            told.await.ok()
        };
        timeout(LIMIT, answered).await.ok().flatten()
    }

    /// Takes an answer of the executor of a cluster. Whoever waited may be gone.
    pub fn answered(&self, cluster: &str, answer: wire::ErrandAnswer) {
        let waiter = locked(&self.under_way).answered(cluster, answer.errand_id);
        if let (Some(waiter), Some(answer)) = (waiter, answer.answer) {
            let _ = waiter.send(answer);
        }
    }

    async fn send(&self, cluster: &str, errand: wire::errand::Errand) -> Result<Answer, Status> {
        // Drawn, so that a late answer to what an earlier server asked is never taken for one to this.
        let id = rand::random();
        let (waiter, answer) = oneshot::channel();
        locked(&self.under_way).begin(cluster, id, waiter).map_err(|_| busy(cluster))?;
        let _waiting = Waiting { under_way: Arc::clone(&self.under_way), id };
        let limit_ms = u64::try_from(EXECUTOR_LIMIT.as_millis()).unwrap_or(u64::MAX);
        let errand = wire::Errand { errand_id: id, limit_ms, errand: Some(errand) };
        let (sent, told) = oneshot::channel();
        let input = Input::Errand { cluster: cluster.to_owned(), errand, sent };
        self.inputs.send(input).await.map_err(|_| not_leading())?;
        told.await.map_err(|_| not_leading())?.map_err(|unreached| status(cluster, &unreached))?;
        let nothing = || Status::unavailable(format!("the executor of cluster {cluster} answered with nothing"));
        answer.await.map_err(|_| nothing())
    }
}

fn not_leading() -> Status {
    Status::unavailable("this server does not lead; try again, or another one")
}

fn busy(cluster: &str) -> Status {
    Status::resource_exhausted(format!(
        "cluster {cluster} has {UNDER_WAY_MAX} such requests under way already: try again in a moment"
    ))
}

fn status(cluster: &str, unreached: &Unreached) -> Status {
    let message = format!("cluster {cluster}: {unreached}");
    match unreached {
        Unreached::Old(_) => Status::unimplemented(message),
        Unreached::Away => Status::unavailable(message),
        Unreached::Slow => Status::resource_exhausted(message),
    }
}

fn refused(cluster: &str, refusal: wire::ErrandRefusal) -> Status {
    use wire::ErrandProblem as Problem;
    let message = format!("cluster {cluster}: {}", refusal.message);
    match Problem::try_from(refusal.problem).unwrap_or(Problem::Unspecified) {
        Problem::NotFound => Status::not_found(message),
        Problem::NotStarted => Status::failed_precondition(message),
        Problem::Invalid => Status::invalid_argument(message),
        Problem::Denied => Status::permission_denied(message),
        Problem::Failed | Problem::Unspecified => Status::unavailable(message),
    }
}

#[cfg(test)]
mod tests;
