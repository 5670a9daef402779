//! The one task of a process that appends requests.
//!
//! Invariant: requests are appended in the order in which they came. While a transaction is under way others gather, and the
//! next one takes them all; one that can't be written does not take the others with it.

use std::time::Duration;

use pumice_ledger::Entry;
use tokio::sync::{mpsc, oneshot};

use super::append::{Appended, Prepared, Request, append, check};
use super::open::Parts;
use super::{Answer, Error, Expect, Seq, Submission};

/// Requests that wait.
const WAITING_MAX: usize = 1_024;
/// Jobs of one transaction, unless a single request has more.
const JOBS_MAX: usize = 10_000;
/// How long a transaction waits for others where several came at once.
const GATHER: Duration = Duration::from_millis(1);

type Reply = oneshot::Sender<Result<Appended, Error>>;

/// Where requests are given to the task.
#[derive(Debug, Clone)]
pub(super) struct Writer(mpsc::Sender<(Request, Reply)>);

/// The task.
pub(super) struct Work(mpsc::Receiver<(Request, Reply)>);

impl Writer {
    pub(super) fn new() -> (Writer, Work) {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        (Writer(sender), Work(receiver))
    }

    pub(super) async fn submit(&self, batch: Vec<Submission>) -> Result<Vec<Answer>, Error> {
        let prepared = batch.into_iter().map(Prepared::new).collect::<Result<_, _>>()?;
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

fn jobs(request: &Request) -> usize {
    match request {
        Request::Submit(prepared) => prepared.iter().map(Prepared::jobs).sum(),
        Request::Other(..) => 1,
    }
}

impl Work {
    /// Runs until the database is closed; what waits by then is appended.
    pub(super) async fn run(mut self, database: Parts) {
        loop {
            let first = tokio::select! {
                first = self.0.recv() => first,
                () = database.closing.cancelled(), if !self.0.is_closed() => {
                    self.0.close();
                    continue;
                }
            };
            let Some((request, reply)) = first else { return };
            let mut size = jobs(&request);
            let (mut requests, mut replies) = (vec![request], vec![reply]);
            if !self.0.is_empty() {
                // They came together; some of their kind may be a moment behind.
                tokio::time::sleep(GATHER).await;
            }
            while size < JOBS_MAX
                && let Ok((request, reply)) = self.0.try_recv()
            {
                size += jobs(&request);
                requests.push(request);
                replies.push(reply);
            }
            write(&database, requests, replies).await;
        }
    }
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
