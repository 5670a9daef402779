//! Appending requests: one transaction for all that wait.
//!
//! Invariant: whoever appends holds the head's lock, so what it reads of client ids, queues and jobs is as of its place in the
//! log, and nobody with another place in the log sees it otherwise.

use std::collections::{BTreeMap, btree_map};

use pumice_ledger::{Digest, Entry, Event, JobId, Shape, TimeMs};
use serde::Serialize;

use super::cells::{Cell, Cells, Columns, Kind, Transaction, names, stored_bytes};
use super::open::{CHANNEL, Parts};
use super::rows::{JOB_NEW, JOB_NEW_ALSO, JobRow};
use super::{Answer, Error, Expect, JOB_SET_BYTES_MAX, NAME_BYTES_MAX, Seq, Submission, body, partitions, query};

/// A use of a specification is written again when the last one is so long ago.
const USED_MS: i64 = 24 * 3_600 * 1_000;

/// A submission as it is stored. What takes long is done before others wait for it.
pub(super) struct Prepared {
    submission: Submission,
    /// Its entry if all of its jobs are new.
    body: Vec<u8>,
    specs: BTreeMap<Digest, Vec<u8>>,
    bytes: usize,
}

/// What the writer appends to the log: jobs of several requests at once, or one entry of another request.
pub(super) enum Request {
    Submit(Vec<Prepared>),
    Other(Entry, Expect),
}

/// What became of it.
pub(super) enum Appended {
    Submitted(Vec<Answer>),
    Other(Seq),
}

fn name(what: &'static str, text: &str) -> Result<(), Error> {
    fits(what, text, NAME_BYTES_MAX)
}

/// The names of a queue and a job set.
fn names_of_set(queue: &str, job_set: &str) -> Result<(), Error> {
    name("queue", queue)?;
    fits("job set", job_set, JOB_SET_BYTES_MAX)
}

fn fits(what: &'static str, text: &str, max: usize) -> Result<(), Error> {
    // One that is stored as it is has these bytes; of others some letters are longer there.
    let bytes = stored_bytes(text);
    if bytes > max { Err(Error::TooLong { what, bytes, max }) } else { Ok(()) }
}

impl Prepared {
    pub(super) fn new(mut submission: Submission) -> Result<Prepared, Error> {
        names_of_set(&submission.queue, &submission.job_set)?;
        for job in &submission.jobs {
            name("client id", job.client_id.as_deref().unwrap_or_default())?;
            name("external URI", job.external_uri.as_deref().unwrap_or_default())?;
        }
        let body = body::write(&submission.entry(|_| true))?;
        let specs = std::mem::take(&mut submission.specs);
        let specs: BTreeMap<_, _> = specs.into_iter().map(|(digest, spec)| (digest, body::pack(&spec))).collect();
        let bytes = body.len() + specs.values().map(Vec::len).sum::<usize>();
        Ok(Prepared { submission, body, specs, bytes })
    }

    pub(super) fn jobs(&self) -> usize {
        self.submission.jobs.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Request {
    /// Whether something about that job set, or about the queue where it is empty, has to stay behind this.
    pub(super) fn holds_back(&self, queue: &str, job_set: &str) -> bool {
        let meets = |of_queue: &str, of_set: &str| {
            of_queue == queue && (of_set == job_set || of_set.is_empty() || job_set.is_empty())
        };
        match self {
            Request::Submit(prepared) => {
                prepared.iter().any(|Prepared { submission, .. }| meets(&submission.queue, &submission.job_set))
            }
            Request::Other(entry, _) => meets(&entry.queue, &entry.job_set),
        }
    }
}

/// An entry that people may ask for, other than submissions.
pub(super) fn check(entry: &Entry) -> Result<(), Error> {
    names_of_set(&entry.queue, &entry.job_set)?;
    for event in &entry.events {
        if let Event::ExecutorSet { executor, .. }
        | Event::ExecutorUnset { executor }
        | Event::ExecutorForgotten { executor } = event
        {
            name("executor", executor)?;
        }
        match event {
            Event::RetryPolicySet(policy) => name("retry policy", &policy.name)?,
            Event::RetryPolicyRemoved { policy } => name("retry policy", policy)?,
            _ => {}
        }
    }
    let wrong = |event: &Event| event.is_decision() || matches!(event, Event::Submitted(_));
    if entry.events.iter().any(wrong) { Err(Error::NoRequest) } else { Ok(()) }
}

/// Appends requests in their order. Some may be refused; where this fails nothing is written.
pub(super) async fn append(database: &Parts, requests: &[Request]) -> Result<Vec<Result<Appended, Error>>, Error> {
    let mut transaction = database.begin_write().await?;
    let seq = lock(&mut transaction).await?.seq;
    let jobs = known(&mut transaction, requests).await?;
    let mut batch = Batch { transaction, seq, jobs, rows: Rows::default() };
    let mut appended = Vec::with_capacity(requests.len());
    for request in requests {
        appended.push(match request {
            Request::Submit(prepared) => {
                let answers = prepared.iter().map(|prepared| batch.submit(prepared));
                Ok(Appended::Submitted(answers.collect::<Result<_, _>>()?))
            }
            Request::Other(entry, expect) => match batch.request(entry, expect).await {
                Ok(seq) => Ok(Appended::Other(seq)),
                Err(refused) if refused.is_refusal() => Err(refused),
                Err(error) => return Err(error),
            },
        });
    }
    batch.flush().await?;
    let Batch { mut transaction, seq: head, .. } = batch;
    if head > seq {
        transaction.execute("UPDATE head SET seq = $1 WHERE one = 1", vec![Cell::int(head.0)]).await?;
        notify(&mut transaction, head).await?;
        transaction.commit().await?;
        database.publish(head);
    }
    Ok(appended)
}

/// The row of the head.
pub(super) struct Head {
    pub seq: Seq,
    pub folded: Seq,
    pub epoch: i64,
}

/// Locks the head until the transaction ends.
pub(super) async fn lock(transaction: &mut Transaction) -> Result<Head, Error> {
    // SQLite's transaction has the lock from its beginning.
    let lock = if transaction.is_postgres() { " FOR UPDATE" } else { "" };
    let columns: &Columns = &[("seq", Kind::Int), ("folded", Kind::Int), ("epoch", Kind::Int)];
    let sql = format!("SELECT {} FROM head WHERE one = 1{lock}", names(columns, ""));
    let mut head = None;
    let read = |mut cells: Cells| {
        head = Some(Head { seq: Seq(cells.int()?), folded: Seq(cells.int()?), epoch: cells.int()? });
        Ok(())
    };
    transaction.each("head", columns, sql, vec![], read).await?;
    head.ok_or(Error::Unreadable { table: "head" })
}

/// Tells other servers once the transaction is committed.
pub(super) async fn notify(transaction: &mut Transaction, head: Seq) -> Result<(), Error> {
    if transaction.is_postgres() {
        let arguments = vec![Cell::text(CHANNEL), Cell::text(&head.to_string())];
        transaction.execute("SELECT pg_notify($1, $2)", arguments).await?;
    }
    Ok(())
}

const LOG: &Columns =
    &[("seq", Kind::Int), ("at", Kind::Int), ("queue", Kind::Text), ("job_set", Kind::Text), ("body", Kind::Bytes)];

fn log_cells(seq: Seq, at: TimeMs, queue: &str, job_set: &str, body: Vec<u8>) -> Vec<Cell> {
    vec![Cell::int(seq.0), Cell::int(at.0), Cell::text(queue), Cell::text(job_set), Cell::Bytes(Some(body))]
}

/// Writes entries of the log after `seq`; gives the last one's place.
pub(super) async fn write_log(transaction: &mut Transaction, mut seq: Seq, entries: &[Entry]) -> Result<Seq, Error> {
    let mut rows = Vec::with_capacity(entries.len());
    for entry in entries {
        seq.0 += 1;
        rows.push(log_cells(seq, entry.at, &entry.queue, &entry.job_set, body::write(entry)?));
    }
    insert_log(transaction, rows).await?;
    Ok(seq)
}

/// Writes rows of the log, in order.
async fn insert_log(transaction: &mut Transaction, rows: Vec<Vec<Cell>>) -> Result<(), Error> {
    let ends = [rows.first(), rows.last()].map(|row| row.and_then(|row| partitions::seq_of_row(row)));
    if let [Some(first), Some(last)] = ends {
        partitions::cover(transaction, first, last).await?;
    }
    insert(transaction, "log", LOG, rows, "").await
}

/// Writes shapes that are not there.
pub(super) async fn write_shapes(
    transaction: &mut Transaction,
    shapes: impl IntoIterator<Item = (&Digest, &Shape)>,
) -> Result<(), Error> {
    let columns: &Columns = &[("digest", Kind::Bytes), ("body", Kind::Bytes)];
    let mut rows = BTreeMap::new();
    for (digest, shape) in shapes {
        rows.insert(*digest, vec![Cell::id(digest.0), Cell::Bytes(Some(body::write(shape)?))]);
    }
    insert(transaction, "shapes", columns, rows.into_values().collect(), "ON CONFLICT (digest) DO NOTHING").await
}

async fn insert(
    transaction: &mut Transaction,
    table: &str,
    columns: &Columns,
    rows: Vec<Vec<Cell>>,
    conflict: &str,
) -> Result<(), Error> {
    let sql = format!("INSERT INTO {table} ({}) SELECT * FROM v WHERE true {conflict}", names(columns, ""));
    transaction.with(columns, rows, &sql).await.map(drop)
}

const DEDUP: &Columns = &[("queue", Kind::Text), ("client_id", Kind::Text), ("job", Kind::Bytes), ("at", Kind::Int)];

/// Jobs by queue and client id, of those that the requests name.
type Known = BTreeMap<(String, String), JobId>;

async fn known(transaction: &mut Transaction, requests: &[Request]) -> Result<Known, Error> {
    let mut asked: Vec<(&str, &str)> = Vec::new();
    for request in requests {
        let Request::Submit(prepared) = request else { continue };
        for Prepared { submission, .. } in prepared {
            let ids = submission.jobs.iter().filter_map(|job| job.client_id.as_deref());
            asked.extend(ids.map(|id| (submission.queue.as_str(), id)));
        }
    }
    asked.sort_unstable();
    asked.dedup();
    let rows = asked.into_iter().map(|(queue, id)| vec![Cell::text(queue), Cell::text(id)]).collect();
    let sql =
        "SELECT d.queue, d.client_id, d.job FROM v JOIN dedup d ON d.queue = v.queue AND d.client_id = v.client_id";
    let mut known = Known::new();
    let read = |mut cells: Cells| {
        known.insert((cells.text()?, cells.text()?), JobId(cells.id()?));
        Ok(())
    };
    transaction.each_with(&DEDUP[..2], rows, sql, "dedup", &DEDUP[..3], read).await?;
    Ok(known)
}

/// Rows that are to be written.
#[derive(Default)]
struct Rows {
    log: Vec<Vec<Cell>>,
    jobs: Vec<Vec<Cell>>,
    dedup: Vec<Vec<Cell>>,
    shapes: BTreeMap<Digest, Shape>,
    /// Bodies, and when they were used last.
    specs: BTreeMap<Digest, (Vec<u8>, i64)>,
}

struct Batch {
    transaction: Transaction,
    seq: Seq,
    jobs: Known,
    rows: Rows,
}

impl Batch {
    fn submit(&mut self, prepared: &Prepared) -> Result<Answer, Error> {
        let Prepared { submission, body, specs, .. } = prepared;
        let seq = Seq(self.seq.0 + 1);
        let mut ids = Vec::with_capacity(submission.jobs.len());
        let mut new = Vec::with_capacity(submission.jobs.len());
        for job in &submission.jobs {
            let id = job.submitted.job;
            if let Some(client_id) = &job.client_id {
                // As it is stored.
                let key = (submission.queue.replace('\0', "\u{fffd}"), client_id.replace('\0', "\u{fffd}"));
                if let Some(first) = self.jobs.get(&key) {
                    ids.push(*first);
                    continue;
                }
                let cells = [Cell::text(&key.0), Cell::text(&key.1), Cell::id(id.0), Cell::int(submission.at.0)];
                self.rows.dedup.push(cells.into());
                self.jobs.insert(key, id);
            }
            ids.push(id);
            new.push(id);
            self.rows.jobs.push(JobRow::new_cells(seq, submission, job)?);
            match self.rows.specs.entry(job.submitted.spec) {
                btree_map::Entry::Occupied(mut spec) => spec.get_mut().1 = submission.at.0.max(spec.get().1),
                btree_map::Entry::Vacant(vacant) => {
                    let spec = specs.get(vacant.key()).ok_or(Error::Unwritable)?;
                    vacant.insert((spec.clone(), submission.at.0));
                }
            }
        }
        if new.is_empty() {
            return Ok(Answer { seq: None, jobs: ids });
        }
        let body = if new.len() == submission.jobs.len() {
            body.clone()
        } else {
            body::write(&submission.entry(|job| new.contains(&job.submitted.job)))?
        };
        self.rows.shapes.extend(submission.shapes.iter().map(|(digest, shape)| (*digest, shape.clone())));
        self.rows.log.push(log_cells(seq, submission.at, &submission.queue, &submission.job_set, body));
        self.seq = seq;
        Ok(Answer { seq: Some(seq), jobs: ids })
    }

    async fn request(&mut self, entry: &Entry, expect: &Expect) -> Result<Seq, Error> {
        let defines = |event: &Event| {
            use Event::{ExecutorSet, ExecutorUnset, QueueRemoved, QueueSet, RetryPolicyRemoved, RetryPolicySet};
            matches!(event, QueueSet(_) | QueueRemoved | ExecutorSet { .. } | ExecutorUnset { .. })
                || matches!(event, RetryPolicySet(_) | RetryPolicyRemoved { .. })
        };
        if *expect == Expect::Any && !entry.events.iter().any(defines) {
            self.seq.0 += 1;
            let body = body::write(entry)?;
            self.rows.log.push(log_cells(self.seq, entry.at, &entry.queue, &entry.job_set, body));
            return Ok(self.seq);
        }
        // What is asked below is asked of everything before.
        self.flush().await?;
        self.expected(entry, expect).await?;
        let removes = entry.events.iter().any(|event| matches!(event, Event::QueueRemoved));
        let active = "SELECT 1 FROM jobs WHERE queue = $1 AND ended IS NULL LIMIT 1";
        if removes && self.exists(active, &entry.queue).await? {
            return Err(Error::QueueInUse(entry.queue.clone()));
        }
        for event in &entry.events {
            match event {
                Event::QueueSet(queue) => self.define("queues", &entry.queue, queue).await?,
                Event::QueueRemoved => self.delete("queues", &entry.queue).await?,
                Event::ExecutorSet { executor, .. } => {
                    if let Some(settings) = event.settings(entry) {
                        self.define("executors", executor, &settings).await?;
                    }
                }
                Event::ExecutorUnset { executor } => self.delete("executors", executor).await?,
                Event::RetryPolicySet(policy) => self.define("retry_policies", &policy.name, policy).await?,
                Event::RetryPolicyRemoved { policy } => {
                    self.not_named(policy).await?;
                    self.delete("retry_policies", policy).await?;
                }
                _ => {}
            }
        }
        self.seq = write_log(&mut self.transaction, self.seq, std::slice::from_ref(entry)).await?;
        Ok(self.seq)
    }

    /// Refuses a request where what it expects is not so.
    async fn expected(&mut self, entry: &Entry, expect: &Expect) -> Result<(), Error> {
        const QUEUE: &str = "SELECT 1 FROM queues WHERE name = $1";
        const POLICY: &str = "SELECT 1 FROM retry_policies WHERE name = $1";
        let policies = match expect {
            Expect::Any => return Ok(()),
            Expect::PolicyAbsent(policy) if self.exists(POLICY, policy).await? => {
                return Err(Error::PolicyExists(policy.clone()));
            }
            Expect::PolicyAbsent(_) => return Ok(()),
            Expect::QueueAbsent { policies } => {
                if self.exists(QUEUE, &entry.queue).await? {
                    return Err(Error::QueueExists(entry.queue.clone()));
                }
                policies.as_slice()
            }
            Expect::QueuePresent { policies } => {
                if !self.exists(QUEUE, &entry.queue).await? {
                    return Err(Error::NoQueue(entry.queue.clone()));
                }
                policies.as_slice()
            }
            Expect::PolicyPresent(policy) => std::slice::from_ref(policy),
        };
        for policy in policies {
            if !self.exists(POLICY, policy).await? {
                return Err(Error::NoPolicy(policy.clone()));
            }
        }
        Ok(())
    }

    /// Refuses to take away a policy that a queue names. O(queues).
    async fn not_named(&mut self, policy: &str) -> Result<(), Error> {
        let queues = query::queues(&mut self.transaction).await?;
        match queues.into_iter().find(|(_, queue)| queue.retry_policies.iter().any(|name| name == policy)) {
            Some((queue, _)) => Err(Error::PolicyInUse { policy: policy.to_owned(), queue }),
            None => Ok(()),
        }
    }

    /// What a request defines takes effect with it.
    async fn define(&mut self, table: &'static str, name: &str, definition: &impl Serialize) -> Result<(), Error> {
        let sql = format!(
            "INSERT INTO {table} (name, body) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET body = excluded.body"
        );
        let arguments = vec![Cell::text(name), Cell::Bytes(Some(body::write(definition)?))];
        self.transaction.execute(&sql, arguments).await.map(drop)
    }

    async fn delete(&mut self, table: &'static str, name: &str) -> Result<(), Error> {
        let sql = format!("DELETE FROM {table} WHERE name = $1");
        self.transaction.execute(&sql, vec![Cell::text(name)]).await.map(drop)
    }

    async fn exists(&mut self, sql: &str, name: &str) -> Result<bool, Error> {
        let mut there = false;
        let read = |_| {
            there = true;
            Ok(())
        };
        self.transaction.each("queues", &[], sql.to_owned(), vec![Cell::text(name)], read).await?;
        Ok(there)
    }

    async fn flush(&mut self) -> Result<(), Error> {
        let Rows { log, jobs, dedup, shapes, specs } = std::mem::take(&mut self.rows);
        let transaction = &mut self.transaction;
        insert_log(transaction, log).await?;
        let (also, is) = JOB_NEW_ALSO;
        let columns = names(JOB_NEW, "");
        let sql = format!("INSERT INTO jobs ({columns}, {also}) SELECT {columns}, {is} FROM v");
        transaction.with(JOB_NEW, jobs, &sql).await?;
        insert(transaction, "dedup", DEDUP, dedup, "").await?;
        write_shapes(transaction, &shapes).await?;
        let columns: &Columns = &[("digest", Kind::Bytes), ("body", Kind::Bytes), ("used_at", Kind::Int)];
        let rows = specs
            .into_iter()
            .map(|(digest, (body, used))| vec![Cell::id(digest.0), Cell::Bytes(Some(body)), Cell::int(used)]);
        let conflict = format!(
            "ON CONFLICT (digest) DO UPDATE SET used_at = excluded.used_at WHERE specs.used_at < excluded.used_at - {USED_MS}"
        );
        insert(transaction, "specs", columns, rows.collect(), &conflict).await
    }
}
