//! Results out of a shard: each attempt appends to the shard's log what came of its records.
//!
//! Invariant: a record's success stands in the log at most once, however many attempts race and wherever they are killed.
//! An entry is created only when no other has its number; whoever loses that race reads the winner's entry, drops what is
//! done already, and takes the next number. Where the run has a key, entries without its mark do not count: what they say
//! of a record keeps nobody from doing it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::entry::{self, ENTRIES_MAX, ENTRY_BYTES_FULL, Entry, OUTCOMES_MAX, Outcome, Status};
use super::error::{BundleError, FormatError};
use super::mark::{Mark, RunKey};
use super::store::{EntryName, Made, Name, RunId, Store};
use super::tree::Value;
use super::write::Saver;

/// Which records a shard has, and in which run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    pub run: RunId,
    /// The shard's index in its task.
    pub shard: u32,
    /// The numbers of its records.
    pub records: Range<u64>,
}

/// What a flush came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flushed {
    /// Records whose outcome of this attempt stands in the log now.
    pub recorded: Vec<u64>,
    /// Records that another attempt had done before; what this one had to say of them is dropped.
    pub done_before: Vec<u64>,
}

/// Records what comes of one attempt at a shard.
#[derive(Debug)]
pub struct Recorder {
    slice: Slice,
    attempt: u32,
    /// What marks its entries.
    key: Option<RunKey>,
    saver: Saver,
    /// The number of the next entry.
    next: u32,
    /// By record, what stands in the log.
    logged: BTreeMap<u64, Outcome<()>>,
    /// What is not in the log yet.
    open: Vec<Outcome<Value>>,
    open_weight: usize,
    /// What was flushed since the caller was told.
    flushed: Flushed,
}

impl Recorder {
    /// Reads what stands in the log of this shard already. `attempt` counts from 1.
    pub async fn open(store: Arc<dyn Store>, slice: Slice, attempt: u32) -> Result<Self, BundleError> {
        Self::with_key(store, slice, attempt, None).await
    }

    /// The same for a run whose results are marked.
    pub async fn with_key(
        store: Arc<dyn Store>,
        slice: Slice,
        attempt: u32,
        key: Option<RunKey>,
    ) -> Result<Self, BundleError> {
        let mut recorder = Recorder {
            slice,
            attempt,
            key,
            saver: Saver::new(store),
            next: 0,
            logged: BTreeMap::new(),
            open: Vec::new(),
            open_weight: 0,
            flushed: Flushed::default(),
        };
        while let Some(entry) = recorder.read_next().await? {
            recorder.stand(&entry);
            recorder.next += 1;
        }
        Ok(recorder)
    }

    /// Counts the attempt on from all that the log tells of, as where a job was submitted anew and goes on with the run of the
    /// one before it: there its pods begin with attempt 1 again.
    #[must_use]
    pub fn counting_on(mut self) -> Self {
        let told = self.logged.values().map(|outcome| outcome.attempt).max();
        self.attempt = told.map_or(self.attempt, |told| self.attempt.max(told.saturating_add(1)));
        self
    }

    /// The number of this attempt.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// What stands in the log of a record: its success, else its last failure.
    pub fn logged(&self, record: u64) -> Option<&Outcome<()>> {
        self.logged.get(&record)
    }

    /// The records that nobody has done yet, in order.
    pub fn left(&self) -> impl Iterator<Item = u64> {
        self.slice.records.clone().filter(|record| self.logged(*record).is_none_or(Outcome::is_open))
    }

    /// Takes what came of a record. It is in the log after the next [`Recorder::flush`], or before where much was taken.
    /// In a folder flush after each record; in objects of the API, where every entry is one of them, when all are done or
    /// some seconds have passed. `value` has at most 64 MiB; a large one is stored here and now. After an error the result
    /// was not taken.
    pub async fn record(&mut self, record: u64, key: &str, status: Status, value: Bytes) -> Result<(), BundleError> {
        let Slice { shard, records, .. } = &self.slice;
        if !records.contains(&record) {
            let (first, last) = (records.start, records.end.saturating_sub(1));
            return Err(BundleError::NotInSlice { record, shard: *shard, first, last });
        }
        // Before, so that no entry grows over its bound while the place fails again and again.
        if self.open_weight >= ENTRY_BYTES_FULL || self.open.len() as u64 >= OUTCOMES_MAX {
            self.append().await?;
        }
        let refused = |source| BundleError::Refused { what: format!("the result of {key:.80}"), source };
        let value = self.saver.value(value).await.map_err(|error| match error {
            BundleError::Refused { source, .. } => refused(source),
            other => other,
        })?;
        let outcome = Outcome { record, key: key.to_owned(), attempt: self.attempt, status, value };
        outcome.check().map_err(refused)?;
        self.open_weight += outcome.weight();
        self.open.push(outcome);
        Ok(())
    }

    /// Brings all that was taken into the log, durably. After an error it may be called again; dropping it loses nothing
    /// that was in the log.
    pub async fn flush(&mut self) -> Result<Flushed, BundleError> {
        self.append().await?;
        Ok(std::mem::take(&mut self.flushed))
    }

    async fn append(&mut self) -> Result<(), BundleError> {
        // What an entry refers to is there before the entry is.
        self.saver.settle().await?;
        loop {
            self.drop_what_is_done();
            if self.open.is_empty() {
                return Ok(());
            }
            if self.next >= ENTRIES_MAX {
                let Slice { run, shard, .. } = &self.slice;
                return Err(BundleError::TooManyEntries { run: run.to_string(), shard: *shard, entries: self.next });
            }
            let name = self.slice.entry(self.next);
            let bytes = entry::write(&name, self.open.iter(), self.key.as_ref());
            let store = Arc::clone(self.saver.store());
            let made = store.create(Name::Entry(name), bytes).await?;
            let there = match made {
                Made::New => Entry { outcomes: std::mem::take(&mut self.open), mark: Mark::Right },
                Made::Existing => self.read_next().await?.ok_or_else(|| self.slice.vanished(self.next, &*store))?,
            };
            // One that is just ours is ours: the answer to an earlier try was lost.
            let mine = made == Made::New || (there.mark.counts() && there.outcomes == self.open);
            self.next += 1;
            self.stand(&there);
            if mine {
                self.open.clear();
                self.open_weight = 0;
                self.flushed.recorded.extend(there.outcomes.iter().map(|outcome| outcome.record));
            }
        }
    }

    /// Of what is to be appended, drops what stands already, and all but the last word on each record.
    fn drop_what_is_done(&mut self) {
        let mut last: BTreeMap<u64, Outcome<Value>> = BTreeMap::new();
        for outcome in self.open.drain(..) {
            if self.logged.get(&outcome.record).is_some_and(|logged| !logged.is_open()) {
                self.flushed.done_before.push(outcome.record);
            } else if last.get(&outcome.record).is_none_or(Outcome::is_open) {
                last.insert(outcome.record, outcome);
            }
        }
        self.open = last.into_values().collect();
        self.open_weight = self.open.iter().map(Outcome::weight).sum();
    }

    async fn read_next(&mut self) -> Result<Option<Entry>, BundleError> {
        match read_entry(&**self.saver.store(), &self.slice, self.next, self.key.as_ref()).await {
            // What nobody can read is not marked either: it counts for nothing, and is passed by.
            Err(BundleError::Damaged { .. }) if self.key.is_some() => {
                Ok(Some(Entry { outcomes: Vec::new(), mark: Mark::Wrong }))
            }
            read => read,
        }
    }

    fn stand(&mut self, entry: &Entry) {
        if !entry.mark.counts() {
            return;
        }
        for outcome in &entry.outcomes {
            if self.logged(outcome.record).is_none_or(Outcome::is_open) {
                self.logged.insert(outcome.record, outcome.clone().with(()));
            }
        }
    }
}

impl Slice {
    /// The name of an entry in the log of this shard.
    pub(super) fn entry(&self, number: u32) -> EntryName {
        EntryName { run: self.run.clone(), shard: self.shard, number }
    }

    fn vanished(&self, number: u32, store: &dyn Store) -> BundleError {
        BundleError::Missing { name: Name::Entry(self.entry(number)), store: store.to_string() }
    }
}

/// An entry; `None` where the log ends.
pub(super) async fn read_entry(
    store: &dyn Store,
    slice: &Slice,
    number: u32,
    key: Option<&RunKey>,
) -> Result<Option<Entry>, BundleError> {
    if number >= ENTRIES_MAX {
        return Ok(None);
    }
    let name = slice.entry(number);
    let Some(bytes) = store.get(Name::Entry(name.clone())).await? else { return Ok(None) };
    let entry = entry::read(&bytes, &name, key).and_then(|entry| {
        let foreign = entry.outcomes.iter().any(|outcome| !slice.records.contains(&outcome.record));
        if foreign { Err(FormatError::Sum { what: "the records of an entry and of its shard" }) } else { Ok(entry) }
    });
    entry.map(Some).map_err(|source| BundleError::unreadable(&Name::Entry(name), store, source))
}
