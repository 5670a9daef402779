//! The loop that owns what is known of directories and Tenants.
//!
//! Invariant: one plan is carried out at a time, of whatever directory, so that two of them never give one uid to two Tenants. A
//! plan follows from a reading that is the newest try: while a directory can't be read, nothing of an older one is used.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::{BoxStream, SelectAll};
use kube::{Api, Client};
use pumice_api::directory::Directory;
use pumice_api::tenant::Tenant;
use pumice_clock as clock;
use pumice_cluster::{Burst, Change, EventRecorder, Timers, WatchScope, paced, until, watch_optional, write};
use pumice_machines::directory::{DirectoryPlan, DirectoryView, Reading, reconcile};
use pumice_machines::tenant::Forbidden;
use pumice_units::with_causes;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;

use crate::ldap::Look;
use crate::reading::{ReadError, Reader};
use crate::report::{Report, tell_change};
use crate::tenants::Tenants;
use crate::write::{Written, carry_out};
use crate::{Error, Options, refusals};

/// Seconds between two readings, where a directory says nothing.
const INTERVAL_SECONDS: i32 = 30;
/// A directory is read whole after so long, whatever its server says of changes: rights to see entries may have changed.
const WHOLE_EVERY: Duration = Duration::from_secs(600);
/// Pause before what could not be written is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(2);
/// Most changes taken in before looking at what to do.
const BURST_MAX: usize = 4_096;

enum Input {
    Directory(Change<Directory>),
    Tenant(Change<Tenant>),
}

/// What a task brings back.
enum Done {
    Read { name: String, epoch: u64, result: Result<Look, ReadError> },
    Written { name: String, epoch: u64, plan: Box<DirectoryPlan>, written: Box<Written> },
    Status,
}

/// What is to be done about a directory at some time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Due {
    Read(String),
    Plan(String),
}

struct Known {
    directory: Directory,
    /// Counts its specs: what was read for another one is not used.
    epoch: u64,
    is_reading: bool,
    last: Option<Last>,
    report: Option<Report>,
}

/// What was read last.
struct Last {
    reading: Arc<Reading>,
    stamp: Option<String>,
    whole_at: Instant,
    /// Whether the newest try went well.
    is_current: bool,
}

pub(crate) struct Loop {
    client: Client,
    reader: Reader,
    recorder: EventRecorder,
    forbidden: Forbidden,
    directories: BTreeMap<String, Known>,
    tenants: Tenants,
    /// Whether Tenants are watched: from the first Directory on.
    watches_tenants: bool,
    tasks: JoinSet<Done>,
    timers: Timers<Due>,
    /// Directories whose Tenants have to be looked at.
    dirty: BTreeSet<String>,
    /// The task that writes.
    writing: Option<Id>,
    epochs: u64,
}

impl Loop {
    pub fn new(options: Options, recorder: EventRecorder) -> Loop {
        let Options { client, namespace, reads_machine, forbidden } = options;
        let (client, _) = paced(client);
        Loop {
            reader: Reader { client: client.clone(), namespace, reads_machine },
            client,
            recorder,
            forbidden,
            directories: BTreeMap::new(),
            tenants: Tenants::default(),
            watches_tenants: false,
            tasks: JoinSet::new(),
            timers: Timers::default(),
            dirty: BTreeSet::new(),
            writing: None,
            epochs: 0,
        }
    }

    pub async fn run(mut self) -> Result<(), Error> {
        let mut feed: SelectAll<BoxStream<'static, Input>> = SelectAll::new();
        let directories = watch_optional(Api::all(self.client.clone()), WatchScope::default());
        feed.push(directories.map(Input::Directory).boxed());
        loop {
            let wake = until(self.timers.next());
            tokio::select! {
                input = feed.next() => {
                    let mut burst = Burst::new(input.ok_or(Error::WatchEnded)?, BURST_MAX);
                    while let Some(input) = burst.next(&mut feed) {
                        self.take(input);
                    }
                }
                Some(done) = self.tasks.join_next() => self.done(done),
                () = wake => {}
            }
            if !self.watches_tenants && !self.directories.is_empty() {
                self.watches_tenants = true;
                let tenants = watch_optional(Api::all(self.client.clone()), WatchScope::default());
                feed.push(tenants.map(Input::Tenant).boxed());
            }
            while let Some(due) = self.timers.pop(Instant::now()) {
                match due {
                    Due::Read(name) => self.read(&name),
                    Due::Plan(name) => {
                        self.dirty.insert(name);
                    }
                }
            }
            self.plan();
        }
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Tenant(change) => self.tenants.take(change, &mut self.dirty),
            Input::Directory(Change::Replace(all)) => {
                let names: BTreeSet<String> = all.iter().filter_map(|one| one.metadata.name.clone()).collect();
                self.directories.retain(|name, _| names.contains(name));
                all.into_iter().for_each(|directory| self.directory(directory));
            }
            Input::Directory(Change::Applied(directory)) => self.directory(directory),
            Input::Directory(Change::Deleted(directory)) => {
                self.directories.remove(directory.metadata.name.as_deref().unwrap_or_default());
            }
        }
    }

    fn directory(&mut self, directory: Directory) {
        let name = directory.metadata.name.clone().unwrap_or_default();
        if let Some(known) = self.directories.get_mut(&name) {
            let is_same =
                known.directory.spec == directory.spec && known.directory.metadata.uid == directory.metadata.uid;
            known.directory = directory;
            if is_same {
                return;
            }
            self.epochs += 1;
            known.epoch = self.epochs;
            (known.is_reading, known.last) = (false, None);
        } else {
            self.epochs += 1;
            let known = Known { directory, epoch: self.epochs, is_reading: false, last: None, report: None };
            self.directories.insert(name.clone(), known);
        }
        self.timers.at(&Due::Read(name), Instant::now());
    }

    fn read(&mut self, name: &str) {
        let Some(known) = self.directories.get_mut(name) else { return };
        if known.is_reading {
            return;
        }
        known.is_reading = true;
        let is_recent = |last: &&Last| last.is_current && last.whole_at.elapsed() < WHOLE_EVERY;
        let stamp = known.last.as_ref().filter(is_recent).and_then(|last| last.stamp.clone());
        let (spec, reader) = (known.directory.spec.clone(), self.reader.clone());
        let (name, epoch) = (name.to_owned(), known.epoch);
        self.tasks.spawn(async move {
            // By itself, so that a panic of a library is an answer.
            let mut reading = JoinSet::new();
            reading.spawn(reader.read(spec, stamp));
            let result = match reading.join_next().await {
                Some(Ok(result)) => result,
                Some(Err(_)) | None => Err(ReadError::Crashed),
            };
            Done::Read { name, epoch, result }
        });
    }

    fn done(&mut self, done: Result<Done, JoinError>) {
        match done {
            Ok(Done::Read { name, epoch, result }) => self.was_read(name, epoch, result),
            Ok(Done::Written { name, epoch, plan, written }) => self.was_written(&name, epoch, &plan, *written),
            Ok(Done::Status) => {}
            Err(error) => {
                self.writing.take_if(|writing| *writing == error.id());
                tracing::error!(%error, "a task of a directory crashed; its next reading goes on");
            }
        }
    }

    fn was_read(&mut self, name: String, epoch: u64, result: Result<Look, ReadError>) {
        let Some(known) = self.directories.get_mut(&name).filter(|known| known.epoch == epoch) else { return };
        known.is_reading = false;
        let seconds = match known.directory.spec.interval_seconds {
            seconds @ 1.. => seconds,
            _ => INTERVAL_SECONDS,
        };
        let interval = Duration::from_secs(u64::from(seconds.unsigned_abs()));
        self.timers.at(&Due::Read(name.clone()), Instant::now() + interval);
        match result {
            Ok(Look::Whole { reading, stamp }) => {
                let (reading, whole_at) = (Arc::new(reading), Instant::now());
                known.last = Some(Last { reading, stamp, whole_at, is_current: true });
            }
            Ok(Look::Unchanged) => known.last.iter_mut().for_each(|last| last.is_current = true),
            Err(error) => {
                known.last.iter_mut().for_each(|last| last.is_current = false);
                let report = Report::failed(with_causes(&error));
                self.report(&name, report);
                return;
            }
        }
        self.dirty.insert(name);
    }

    /// Decides what to write for the next directory that something happened to.
    fn plan(&mut self) {
        while self.writing.is_none() && self.tenants.is_listed {
            let Some(name) = self.dirty.pop_first() else { return };
            let Some(known) = self.directories.get(&name) else { continue };
            let Some(last) = known.last.as_ref().filter(|last| last.is_current) else { continue };
            let mut plan = reconcile(&DirectoryView {
                name: &name,
                spec: &known.directory.spec,
                reading: &last.reading,
                tenants: &self.tenants.by_name,
                refusal: &|spec| refusals::of_spec(spec, &self.forbidden),
                refuses_group: &|group| refusals::of_group(group, &self.forbidden),
            });
            let effects = std::mem::take(&mut plan.effects);
            if effects.is_empty() {
                self.report(&name, Report::of(&plan, &Written::default()));
                continue;
            }
            let (client, epoch, plan) = (self.client.clone(), known.epoch, Box::new(plan));
            let task = self.tasks.spawn(async move {
                let written = Box::new(carry_out(client, effects).await);
                Done::Written { name, epoch, plan, written }
            });
            self.writing = Some(task.id());
        }
    }

    fn was_written(&mut self, name: &str, epoch: u64, plan: &DirectoryPlan, mut written: Written) {
        self.writing = None;
        let mut touched = BTreeSet::new();
        for tenant in std::mem::take(&mut written.tenants) {
            self.tenants.take(Change::Applied(tenant), &mut touched);
        }
        for (tenant, kind, message) in std::mem::take(&mut written.changed) {
            tell_change(&tenant, kind, message, &self.recorder, clock::now());
        }
        // Others may have waited for what this one gave up.
        touched.remove(name);
        self.dirty.append(&mut touched);
        if written.is_again {
            self.timers.at(&Due::Plan(name.to_owned()), Instant::now() + AGAIN_AFTER);
        }
        if self.directories.get(name).is_some_and(|known| known.epoch == epoch) {
            self.report(name, Report::of(plan, &written));
        }
    }

    /// Tells people what came of a reading.
    fn report(&mut self, name: &str, report: Report) {
        let Some(known) = self.directories.get_mut(name) else { return };
        let now = clock::now();
        report.tell(known.report.as_ref(), &known.directory, &self.recorder, now);
        if let Some(patch) = report.patch(&known.directory, now) {
            let (api, name) = (Api::<Directory>::all(self.client.clone()), name.to_owned());
            self.tasks.spawn(async move {
                if let Err(error) = write::merge_status(&api, &name, &patch).await {
                    tracing::debug!(directory = name, %error, "the status of a directory is not written");
                }
                Done::Status
            });
        }
        known.report = Some(report);
    }
}
