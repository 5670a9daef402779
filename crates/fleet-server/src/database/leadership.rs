//! Leading, by the database's clock, and the leader's commits.
//!
//! Invariant: whoever takes the lead holds the head's lock meanwhile, as commits do. So a commit of an earlier epoch is over
//! by then, or finds that its epoch is.

use pumice_ledger::Entry;

use super::append::{lock, notify, write_log};
use super::cells::{Cell, Transaction};
use super::{Changed, Committed, Database, Epoch, Error, LEASE, Seq, changes, query};

/// The database's clock in milliseconds since 1970.
pub(super) fn clock(transaction: &Transaction) -> &'static str {
    if transaction.is_postgres() {
        "(EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::BIGINT"
    } else {
        "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
    }
}

fn lease() -> u128 {
    LEASE.as_millis()
}

pub(super) async fn lead(database: &Database, holder: &str) -> Result<Option<Epoch>, Error> {
    let mut transaction = database.begin_write().await?;
    let epoch = lock(&mut transaction).await?.epoch + 1;
    let now = clock(&transaction);
    let sql = format!(
        "UPDATE head SET epoch = $1, holder = $2, until = {now} + {} WHERE one = 1 AND until <= {now}",
        lease()
    );
    let taken = transaction.execute(&sql, vec![Cell::int(epoch), Cell::text(holder)]).await?;
    if taken == 0 {
        return Ok(None);
    }
    transaction.commit().await?;
    Ok(Some(Epoch(epoch)))
}

pub(super) async fn renew(database: &Database, epoch: Epoch) -> Result<(), Error> {
    let mut transaction = database.begin_write().await?;
    if lock(&mut transaction).await?.epoch != epoch.0 {
        return Err(Error::Deposed);
    }
    let sql = format!("UPDATE head SET until = {} + {} WHERE one = 1", clock(&transaction), lease());
    transaction.execute(&sql, vec![]).await?;
    transaction.commit().await
}

pub(super) async fn resign(database: &Database, epoch: Epoch) -> Result<(), Error> {
    let mut transaction = database.begin_write().await?;
    transaction.execute("UPDATE head SET until = 0 WHERE one = 1 AND epoch = $1", vec![Cell::int(epoch.0)]).await?;
    transaction.commit().await
}

pub(super) async fn commit<F>(database: &Database, epoch: Epoch, after: Seq, decide: F) -> Result<Committed, Error>
where
    F: FnOnce(Vec<(Seq, Entry)>) -> Changed + Send,
{
    let mut transaction = database.begin_write().await?;
    let head = lock(&mut transaction).await?;
    if head.epoch != epoch.0 {
        return Err(Error::Deposed);
    }
    if after < head.folded {
        return Err(Error::Behind { after, folded: head.folded });
    }
    let rows = if after < head.seq { query::tail(&mut transaction, after, None).await? } else { Vec::new() };
    let changed = decide(rows);
    let seq = write_log(&mut transaction, head.seq, &changed.entries).await?;
    changes::write(&mut transaction, &changed).await?;
    let sql =
        format!("UPDATE head SET seq = $1, folded = $1, until = {} + {} WHERE one = 1", clock(&transaction), lease());
    transaction.execute(&sql, vec![Cell::int(seq.0)]).await?;
    if seq > head.seq {
        notify(&mut transaction, seq).await?;
    }
    transaction.commit().await?;
    database.publish(seq);
    Ok(Committed { head: seq })
}
