//! Removing what is over for long enough, in small steps.
//!
//! Invariant: only the leader removes, under the head's lock and in its own epoch. A job set goes as a whole: its rows first
//! and its entries last, so that a leader which ends in the middle finds it again. Nothing goes that was written to, or that
//! has a job without an end, since the time that is asked for.

use pumice_ledger::{JobId, TimeMs};

use super::append::lock;
use super::cells::{Cell, Cells, Columns, Kind, Transaction};
use super::{Database, Epoch, Error, Seq, query};

/// A job set by its queue and name, in the order of both.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SetName {
    pub queue: String,
    /// The name, which is the set's alone within its queue.
    pub job_set: String,
}

/// A client id, which is one within its queue. The walk through them takes them in the order of both.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientIdKey {
    pub queue: String,
    /// The id, as the client chose it.
    pub client_id: String,
}

/// Where a walk through the log stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stale {
    /// Job sets with an entry that is old; they may have newer ones.
    pub sets: Vec<SetName>,
    /// Where to go on; none where what follows is newer.
    pub next: Option<Seq>,
}

/// What a step removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    pub jobs: usize,
    /// Entries of the log.
    pub entries: usize,
    /// Nothing more is to be done.
    pub done: bool,
}

/// Where a walk through client ids stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// How many were removed.
    pub removed: usize,
    /// The one to go on after; none at the end.
    pub next: Option<ClientIdKey>,
}

const PLACE: &Columns = &[("seq", Kind::Int), ("at", Kind::Int), ("queue", Kind::Text), ("job_set", Kind::Text)];
const LAST: &Columns = &[("seq", Kind::Int), ("at", Kind::Int)];
const ENDED: &Columns = &[("id", Kind::Bytes), ("ended", Kind::Int)];
const ID: &Columns = &[("id", Kind::Bytes)];
const SEQ: &Columns = &[("seq", Kind::Int)];
const DEDUP: &Columns = &[("queue", Kind::Text), ("client_id", Kind::Text), ("job", Kind::Bytes), ("at", Kind::Int)];

pub(super) async fn stale(database: &Database, after: Seq, before: TimeMs, limit: u32) -> Result<Stale, Error> {
    let transaction = &mut database.begin_read().await?;
    let (_, folded) = query::places(transaction).await?;
    let sql = "SELECT seq, at, queue, job_set FROM log WHERE seq > $1 AND seq <= $2 ORDER BY seq LIMIT $3".to_owned();
    let (mut stale, mut rows, mut is_newer) = (Stale::default(), 0, false);
    let read = |mut cells: Cells| {
        let (seq, at) = (Seq(cells.int()?), cells.int()?);
        let set = SetName { queue: cells.text()?, job_set: cells.text()? };
        rows += 1;
        is_newer |= at >= before.0;
        if !is_newer {
            stale.next = Some(seq);
            // Entries about a queue itself are of no set.
            if !set.job_set.is_empty() {
                stale.sets.push(set);
            }
        }
        Ok(())
    };
    let arguments = vec![Cell::int(after.0), Cell::int(folded.0), Cell::int(limit)];
    transaction.each("log", PLACE, sql, arguments, read).await?;
    if is_newer || rows < limit {
        stale.next = None;
    }
    stale.sets.sort_unstable();
    stale.sets.dedup();
    Ok(stale)
}

/// A transaction that only the leader of this epoch gets; and up to where it has decided.
pub(super) async fn leading(database: &Database, epoch: Epoch) -> Result<(Transaction, Seq), Error> {
    let mut transaction = database.begin_write().await?;
    let head = lock(&mut transaction).await?;
    if head.epoch != epoch.0 {
        return Err(Error::Deposed);
    }
    Ok((transaction, head.folded))
}

pub(super) async fn prune(
    database: &Database,
    epoch: Epoch,
    set: &SetName,
    before: TimeMs,
    limit: u32,
) -> Result<Pruned, Error> {
    let names = || vec![Cell::text(&set.queue), Cell::text(&set.job_set)];
    let done = Pruned { done: true, ..Pruned::default() };
    let (mut transaction, folded) = leading(database, epoch).await?;
    let mut last = None;
    let sql = "SELECT seq, at FROM log WHERE queue = $1 AND job_set = $2 ORDER BY seq DESC LIMIT 1".to_owned();
    let read = |mut cells: Cells| {
        last = Some((Seq(cells.int()?), cells.int()?));
        Ok(())
    };
    transaction.each("log", LAST, sql, names(), read).await?;
    if last.is_none_or(|(seq, at)| at >= before.0 || seq > folded) {
        return Ok(done);
    }
    let (mut jobs, mut active) = (Vec::new(), false);
    let sql = format!("SELECT id, ended FROM jobs WHERE queue = $1 AND job_set = $2 ORDER BY id LIMIT {limit}");
    let read = |mut cells: Cells| {
        jobs.push(vec![Cell::id(cells.id()?)]);
        active |= cells.int_if()?.is_none_or(|ended| ended >= before.0);
        Ok(())
    };
    transaction.each("jobs", ENDED, sql, names(), read).await?;
    if active {
        return Ok(done);
    }
    if !jobs.is_empty() {
        let count = jobs.len();
        transaction.with(ID, jobs.clone(), "DELETE FROM runs WHERE job IN (SELECT id FROM v)").await?;
        transaction.with(ID, jobs, "DELETE FROM jobs WHERE id IN (SELECT id FROM v)").await?;
        transaction.commit().await?;
        return Ok(Pruned { jobs: count, ..Pruned::default() });
    }
    let mut entries = Vec::new();
    let sql = format!("SELECT seq FROM log WHERE queue = $1 AND job_set = $2 ORDER BY seq LIMIT {limit}");
    let read = |mut cells: Cells| {
        entries.push(vec![Cell::int(cells.int()?)]);
        Ok(())
    };
    transaction.each("log", SEQ, sql, names(), read).await?;
    let count = entries.len();
    transaction.with(SEQ, entries, "DELETE FROM log WHERE seq IN (SELECT seq FROM v)").await?;
    transaction.commit().await?;
    Ok(Pruned { entries: count, done: u32::try_from(count).is_ok_and(|count| count < limit), ..Pruned::default() })
}

pub(super) async fn forget(
    database: &Database,
    epoch: Epoch,
    after: &ClientIdKey,
    before: TimeMs,
    limit: u32,
    keeps: impl Fn(JobId) -> bool + Send + Sync,
) -> Result<Forgotten, Error> {
    let sql = format!(
        "SELECT queue, client_id, job, at FROM dedup WHERE (queue, client_id) > ($1, $2)
         ORDER BY queue, client_id LIMIT {limit}"
    );
    let (mut stale, mut rows, mut last) = (Vec::new(), 0, None);
    let read = |mut cells: Cells| {
        let (queue, client_id, job, at) = (cells.text()?, cells.text()?, JobId(cells.id()?), cells.int()?);
        rows += 1;
        if at < before.0 && !keeps(job) {
            stale.push(vec![Cell::text(&queue), Cell::text(&client_id)]);
        }
        last = Some(ClientIdKey { queue, client_id });
        Ok(())
    };
    let arguments = vec![Cell::text(&after.queue), Cell::text(&after.client_id)];
    database.begin_read().await?.each("dedup", DEDUP, sql, arguments, read).await?;
    let removed = stale.len();
    if removed > 0 {
        let (mut transaction, _) = leading(database, epoch).await?;
        let sql = "DELETE FROM dedup WHERE EXISTS
            (SELECT 1 FROM v WHERE v.queue = dedup.queue AND v.client_id = dedup.client_id)";
        transaction.with(&DEDUP[..2], stale, sql).await?;
        transaction.commit().await?;
    }
    Ok(Forgotten { removed, next: if rows == limit { last } else { None } })
}

pub(super) async fn sweep(database: &Database, epoch: Epoch, before: TimeMs, limit: u32) -> Result<usize, Error> {
    // Nobody waits for this: it is read beside everything else.
    let sql = format!("SELECT digest FROM specs WHERE used_at < $1 EXCEPT SELECT spec FROM jobs LIMIT {limit}");
    let mut unused = Vec::new();
    let read = |mut cells: Cells| {
        unused.push(vec![Cell::id(cells.id()?), Cell::int(before.0)]);
        Ok(())
    };
    database
        .begin_read()
        .await?
        .each("specs", &[("digest", Kind::Bytes)], sql, vec![Cell::int(before.0)], read)
        .await?;
    let count = unused.len();
    if count > 0 {
        let (mut transaction, _) = leading(database, epoch).await?;
        // What was used again meanwhile says so, and stays.
        let sql = "DELETE FROM specs WHERE EXISTS
            (SELECT 1 FROM v WHERE v.digest = specs.digest AND specs.used_at < v.before)";
        transaction.with(&[("digest", Kind::Bytes), ("before", Kind::Int)], unused, sql).await?;
        transaction.commit().await?;
    }
    Ok(count)
}
