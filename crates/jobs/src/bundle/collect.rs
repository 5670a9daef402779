//! Results of a whole run, in the order of the records.
//!
//! Invariant: each record of the slices gives exactly one row, also one that nobody recorded; the memory needed is that of
//! the results of a few shards. Reading needs no list of the place, so nobody has to be allowed one. To who reads with the
//! run's key, what others wrote never stands instead of what the run itself recorded.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::ready;
use futures::stream::{self, Stream, StreamExt, TryStreamExt};

use super::entry::{Outcome, Status};
use super::error::BundleError;
use super::mark::{Mark, RunKey};
use super::read::{Bundle, read_value};
use super::record::{Slice, read_entry};
use super::store::{RunId, Store};
use super::tree::Value;

/// Shards whose logs are read at a time.
const SHARDS_AT_ONCE: usize = 8;

/// What came of a record in the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row<V = Bytes> {
    /// The shard that has the record.
    pub shard: u32,
    pub record: u64,
    /// Its success, else its last failure, else nothing: it was never told.
    pub outcome: Option<Outcome<V>>,
    /// Where the outcome stands.
    pub origin: Option<Origin>,
}

/// The entry that an outcome was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// Its place in the log of the shard.
    pub number: u32,
    /// What its mark is worth.
    pub mark: Mark,
}

impl<V> Row<V> {
    /// How the record ended; `None` if nothing was told of it.
    pub fn status(&self) -> Option<Status> {
        self.outcome.as_ref().map(|outcome| outcome.status)
    }
}

/// The records of which nothing was told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Missing {
    /// How many there are.
    pub count: u64,
    /// The keys of the first of them, in order.
    pub keys: Vec<String>,
}

/// The rows of all records. `slices` are the shards' records, from shard 0 on, as the rule of the run gives them; it is
/// read as the stream is.
pub fn collect<I>(
    store: Arc<dyn Store>,
    run: RunId,
    slices: I,
) -> impl Stream<Item = Result<Row, BundleError>> + Send + use<I>
where
    I: IntoIterator<Item = Range<u64>>,
    I::IntoIter: Send,
{
    collect_if(store, run, slices, |_| true)
}

/// The rows of those records whose status (`None`: nothing was told) is wanted; what others gave is not read.
pub fn collect_if<I, W>(
    store: Arc<dyn Store>,
    run: RunId,
    slices: I,
    wanted: W,
) -> impl Stream<Item = Result<Row, BundleError>> + Send + use<I, W>
where
    I: IntoIterator<Item = Range<u64>>,
    I::IntoIter: Send,
    W: Fn(Option<Status>) -> bool + Send,
{
    let wanted = move |row: &Row<Value>| ready(wanted(row.status()));
    with_values(Arc::clone(&store), rows(store, run, slices).try_filter(wanted))
}

/// The rows of one shard. With a key, an outcome whose mark is not right stands only where there is no other, and its
/// [`Origin`] says so: it may be anybody's.
pub fn collect_shard(
    store: Arc<dyn Store>,
    slice: Slice,
    key: Option<RunKey>,
) -> impl Stream<Item = Result<Row, BundleError>> + Send {
    let log = Arc::clone(&store);
    let rows = stream::once(async move { shard_rows(&*log, &slice, key.as_ref()).await });
    with_values(store, rows.map_ok(|rows| stream::iter(rows.into_iter().map(Ok))).try_flatten())
}

/// Values are read in order, one at a time: a large one does not wait in memory behind others.
fn with_values<S>(store: Arc<dyn Store>, rows: S) -> impl Stream<Item = Result<Row, BundleError>> + Send + use<S>
where
    S: Stream<Item = Result<Row<Value>, BundleError>> + Send,
{
    rows.and_then(move |row| {
        let store = Arc::clone(&store);
        async move {
            let Row { shard, record, outcome, origin } = row;
            let outcome = match outcome {
                Some(outcome) => Some({
                    let value = read_value(&*store, &outcome.value).await?;
                    outcome.with(value)
                }),
                None => None,
            };
            Ok(Row { shard, record, outcome, origin })
        }
    })
}

/// The rows of all records without what they gave, of which nothing is read.
pub fn statuses<I>(
    store: Arc<dyn Store>,
    run: RunId,
    slices: I,
) -> impl Stream<Item = Result<Row<()>, BundleError>> + Send + use<I>
where
    I: IntoIterator<Item = Range<u64>>,
    I::IntoIter: Send,
{
    rows(store, run, slices).map_ok(|Row { shard, record, outcome, origin }| Row {
        shard,
        record,
        outcome: outcome.map(|outcome| outcome.with(())),
        origin,
    })
}

/// The records without an outcome, with the keys of the first `keys_max` of them. Values are not read.
pub async fn missing<I>(bundle: &Bundle, run: RunId, slices: I, keys_max: usize) -> Result<Missing, BundleError>
where
    I: IntoIterator<Item = Range<u64>>,
    I::IntoIter: Send,
{
    let mut count = 0;
    let mut first = Vec::new();
    let mut rows = std::pin::pin!(rows(Arc::clone(bundle.store()), run, slices));
    while let Some(row) = rows.try_next().await? {
        if row.outcome.is_none() {
            count += 1;
            if first.len() < keys_max {
                first.push(row.record);
            }
        }
    }
    Ok(Missing { count, keys: bundle.keys(first).await? })
}

/// All that was ever told of a shard, in the order of its log: the failures of every attempt, too. Values are not read.
pub async fn history(store: &dyn Store, slice: &Slice) -> Result<Vec<Outcome<()>>, BundleError> {
    let mut all = Vec::new();
    let mut number = 0;
    while let Some(entry) = read_entry(store, slice, number, None).await? {
        all.extend(entry.outcomes.into_iter().map(|outcome| outcome.with(())));
        number += 1;
    }
    Ok(all)
}

fn rows<I>(
    store: Arc<dyn Store>,
    run: RunId,
    slices: I,
) -> impl Stream<Item = Result<Row<Value>, BundleError>> + Send + use<I>
where
    I: IntoIterator<Item = Range<u64>>,
    I::IntoIter: Send,
{
    let shards = (0_u32..).zip(slices).map(move |(shard, records)| {
        let (store, slice) = (Arc::clone(&store), Slice { run: run.clone(), shard, records });
        async move { shard_rows(&*store, &slice, None).await }
    });
    stream::iter(shards).buffered(SHARDS_AT_ONCE).map_ok(|rows| stream::iter(rows.into_iter().map(Ok))).try_flatten()
}

async fn shard_rows(store: &dyn Store, slice: &Slice, key: Option<&RunKey>) -> Result<Vec<Row<Value>>, BundleError> {
    let mut standing: BTreeMap<u64, (Outcome<Value>, Origin)> = BTreeMap::new();
    let mut left = slice.records.end.saturating_sub(slice.records.start);
    let mut number = 0;
    let mut damaged = None;
    // Once all are done nothing later counts, so the end of the log need not be looked for.
    while left > 0 {
        let read = match read_entry(store, slice, number, key).await {
            // Others may have written that. It matters only if something is missing.
            Err(error @ BundleError::Damaged { .. }) if key.is_some() => {
                damaged.get_or_insert(error);
                number += 1;
                continue;
            }
            read => read?,
        };
        let Some(entry) = read else { break };
        let origin = Origin { number, mark: entry.mark };
        number += 1;
        for outcome in entry.outcomes {
            let replaced = standing.get(&outcome.record).is_none_or(|(before, found)| {
                if found.mark.counts() == origin.mark.counts() { before.is_open() } else { origin.mark.counts() }
            });
            if replaced {
                left -= u64::from(origin.mark.counts() && !outcome.is_open());
                standing.insert(outcome.record, (outcome, origin));
            }
        }
    }
    if let Some(error) = damaged
        && slice.records.clone().any(|record| !standing.contains_key(&record))
    {
        return Err(error);
    }
    let shard = slice.shard;
    let row = |record| {
        let (outcome, origin) = standing.remove(&record).unzip();
        Row { shard, record, outcome, origin }
    };
    Ok(slice.records.clone().map(row).collect())
}
