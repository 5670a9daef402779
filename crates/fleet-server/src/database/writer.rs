//! The one task of a process that appends requests.
//!
//! Invariant: requests are appended in the order in which they came, but for those that have nothing to do with the
//! submissions before them: these do not wait for more than one transaction. While one is under way others gather, and the next
//! one takes them, as far as it is not too large; one that can't be written does not take the others with it.

use std::collections::VecDeque;

use pumice_ledger::Entry;
use tokio::sync::{mpsc, oneshot};

use super::append::{Appended, Prepared, Request, append, check};
use super::open::Parts;
use super::write_batches::{AT_ONCE_MAX, BYTES_MAX, GATHER, JOBS_MAX, WAITING_MAX};
use super::{Answer, Error, Expect, Seq, Submission};

type Reply = oneshot::Sender<Result<Appended, Error>>;

/// Requests that wait, and where their answers go.
type Waiting = VecDeque<(Request, Reply)>;

/// Where requests are given to the task.
#[derive(Debug, Clone)]
pub(super) struct Writer(mpsc::Sender<(Request, Reply)>);

/// The receiving end of a [`Writer`], for the one task that writes.
pub(super) struct Work(mpsc::Receiver<(Request, Reply)>);

impl Writer {
    pub(super) fn new() -> (Writer, Work) {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        (Writer(sender), Work(receiver))
    }

    pub(super) async fn submit(&self, batch: Vec<Submission>) -> Result<Vec<Answer>, Error> {
        let jobs: usize = batch.iter().map(|submission| submission.jobs.len()).sum();
        let prepare = move || batch.into_iter().map(Prepared::new).collect::<Result<_, _>>();
        let prepared = if jobs <= AT_ONCE_MAX {
            prepare()?
        } else {
            // Thousands of jobs take longer than a task may hold its thread.
            tokio::task::spawn_blocking(prepare).await.map_err(|_| Error::Closed)??
        };
        match self.give(Request::Submit(prepared)).await? {
            Appended::Submitted(answers) => Ok(answers),
            Appended::Other(_) => Err(Error::Closed),
        }
    }

    pub(super) async fn request(&self, entry: Entry, expect: Expect) -> Result<Seq, Error> {
        check(&entry)?;
        match self.give(Request::Other(entry, expect)).await? {
            Appended::Other(seq) => Ok(seq),
            Appended::Submitted(_) => Err(Error::Closed),
        }
    }

    async fn give(&self, request: Request) -> Result<Appended, Error> {
        let (reply, answer) = oneshot::channel();
        self.0.send((request, reply)).await.map_err(|_| Error::Closed)?;
        answer.await.map_err(|_| Error::Closed)?
    }
}

impl Work {
    /// Runs until the database is closed; what waits by then is appended.
    pub(super) async fn run(mut self, database: Parts) {
        let mut waiting = Waiting::new();
        loop {
            if waiting.is_empty() {
                let first = tokio::select! {
                    first = self.0.recv() => first,
                    () = database.closing.cancelled(), if !self.0.is_closed() => {
                        self.0.close();
                        continue;
                    }
                };
                waiting.extend(first);
                if waiting.is_empty() {
                    return;
                }
                if !self.0.is_empty() {
                    // They came together; some of their kind may be a moment behind.
                    tokio::time::sleep(GATHER).await;
                }
            }
            while waiting.len() < WAITING_MAX
                && let Ok(one) = self.0.try_recv()
            {
                waiting.push_back(one);
            }
            let (requests, replies) = next(&mut waiting).into_iter().unzip();
            write(&database, requests, replies).await;
        }
    }
}

/// Takes out what the next transaction writes, in order: submissions until it is full, and of what comes then all that is not
/// about those that are left.
fn next(waiting: &mut Waiting) -> Vec<(Request, Reply)> {
    let (mut jobs, mut bytes) = (0, 0);
    let mut taken = Vec::new();
    let mut left = Waiting::new();
    for (request, reply) in waiting.drain(..) {
        let takes = match &request {
            Request::Submit(prepared) => {
                let full = jobs >= JOBS_MAX || bytes >= BYTES_MAX;
                jobs += prepared.iter().map(Prepared::jobs).sum::<usize>();
                bytes += prepared.iter().map(Prepared::bytes).sum::<usize>();
                !full
            }
            Request::Other(entry, _) => !left.iter().any(|(before, _)| before.holds_back(&entry.queue, &entry.job_set)),
        };
        if takes { taken.push((request, reply)) } else { left.push_back((request, reply)) }
    }
    *waiting = left;
    taken
}

async fn write(database: &Parts, requests: Vec<Request>, replies: Vec<Reply>) {
    let error = match append(database, &requests).await {
        Ok(appended) => {
            for (reply, appended) in replies.into_iter().zip(appended) {
                // Whoever asked may be gone.
                let _ = reply.send(appended);
            }
            return;
        }
        Err(error) => error,
    };
    let alone = requests.len() > 1 && is_of_rows(&error);
    for (request, reply) in requests.into_iter().zip(replies) {
        let appended = if alone {
            let appended = append(database, std::slice::from_ref(&request)).await;
            appended.and_then(|mut appended| appended.pop().unwrap_or(Err(Error::Closed)))
        } else {
            Err(error.clone())
        };
        let _ = reply.send(appended);
    }
}

/// The database is there, and did not take what it was given.
fn is_of_rows(error: &Error) -> bool {
    match error {
        Error::Failed(source) => source.as_database_error().is_some(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{job, submission};
    use super::*;
    use pumice_ledger::TimeMs;
    use rand::rngs::StdRng;
    use rand::{RngCore as _, SeedableRng as _};

    /// What a transaction takes of requests, and what is left, by their places.
    fn taken(requests: Vec<Request>) -> (Vec<usize>, Vec<usize>) {
        let mut receivers = Vec::new();
        let mut waiting = Waiting::new();
        for request in requests {
            let (reply, receiver) = oneshot::channel();
            receivers.push(receiver);
            waiting.push_back((request, reply));
        }
        let taken = next(&mut waiting);
        drop(taken);
        let is_taken = |receiver: &mut oneshot::Receiver<_>| {
            matches!(receiver.try_recv(), Err(oneshot::error::TryRecvError::Closed))
        };
        (0..receivers.len()).partition(|place| is_taken(&mut receivers[*place]))
    }

    fn submit(job_set: &str, jobs: usize) -> Request {
        let jobs = (0..jobs as u128).map(|id| job(id, None)).collect();
        Request::Submit(vec![Prepared::new(submission(job_set, jobs)).unwrap()])
    }

    fn other(queue: &str, job_set: &str) -> Request {
        Request::Other(Entry::new(TimeMs(0), queue, job_set), Expect::Any)
    }

    #[test]
    fn a_transaction_is_bounded_and_nobody_waits_for_what_is_of_others() {
        for (requests, wanted) in [
            (vec![submit("a", 3), other("q", "a"), submit("a", 1)], (vec![0, 1, 2], vec![])),
            // One request may be larger than a transaction is to be.
            (vec![submit("a", JOBS_MAX + 1), submit("a", 1)], (vec![0], vec![1])),
            (vec![submit("a", JOBS_MAX), submit("b", 1), submit("a", 1)], (vec![0], vec![1, 2])),
            (vec![submit("a", JOBS_MAX), submit("b", 1), other("q", "a"), other("q", "c")], (vec![0, 2, 3], vec![1])),
            // What is about a set stays behind what came before, and so does what is about its queue.
            (
                vec![
                    submit("a", JOBS_MAX),
                    submit("b", 1),
                    other("q", "b"),
                    other("q", ""),
                    other("r", ""),
                    other("q", "c"),
                ],
                (vec![0, 4], vec![1, 2, 3, 5]),
            ),
        ] {
            assert_eq!(taken(requests), wanted);
        }
        let large = || {
            let mut large = submission("a", vec![job(1, None)]);
            // What can't be made smaller.
            let mut text = vec![0; BYTES_MAX];
            StdRng::seed_from_u64(1).fill_bytes(&mut text);
            large.specs.values_mut().for_each(|spec| spec.clone_from(&text));
            Request::Submit(vec![Prepared::new(large).unwrap()])
        };
        assert_eq!(taken(vec![large(), large(), submit("b", 1)]), (vec![0], vec![1, 2]));
    }
}
