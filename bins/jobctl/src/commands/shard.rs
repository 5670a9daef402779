//! `jobctl shard`, in a pod: the records that are this pod's own, and a command for each.
//!
//! Invariant: which records are a pod's own follows from two variables alone, so it talks to nobody; a runtime is started only to read
//! records from a bundle and to record results beside it.

mod exec;

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use pumice_jobs::bundle::{Bundle, Folder, Location, Spot, location};
use pumice_jobs::render::RULE_VARIABLE;
use pumice_jobs::shards::{Kind, Plan, Record};
use pumice_jobs::{Exit, records};
use tokio::runtime::Runtime;

use super::runtime;
use crate::args::ShardCommand;
use crate::environment::variable;
use crate::failure::Failure;
use crate::output;

/// The variable with a pod's index.
const INDEX_VARIABLE: &str = "VC_TASK_INDEX";
/// What Slurm calls the number of an array task; scripts that were written for it read this.
const SLURM_NUMBER: &str = "SLURM_ARRAY_TASK_ID";

/// Runs, prints or names the records of this pod.
pub fn run(command: &ShardCommand) -> Result<Exit, Failure> {
    match command {
        ShardCommand::Exec(args) => return exec::run(&args.argv),
        ShardCommand::Env(args) => {
            let slice = Slice::of_this_pod()?;
            let lines = slice.variables(&slice.nth(args.place)?);
            let line = |(name, value): (String, String)| format!("export {name}={}\n", quoted(&value));
            output::text(&lines.into_iter().map(line).collect::<String>())?;
        }
        ShardCommand::Key(args) => output::text(&format!("{}\n", Slice::of_this_pod()?.nth(args.place)?.key))?,
        ShardCommand::List => {
            let slice = Slice::of_this_pod()?;
            for index in slice.records.clone() {
                output::text(&format!("{}\n", slice.record(index)?.key))?;
            }
        }
    }
    Ok(Exit::Success)
}

/// Records of a bundle that are read at once; each has at most 64 KiB.
const WINDOW: u32 = 64;

/// The records of one pod.
struct Slice {
    plan: Plan,
    /// The pod's index.
    index: u32,
    records: Range<u32>,
    /// Where those are that can't be computed.
    bundled: Option<Bundled>,
}

impl Slice {
    fn of_this_pod() -> Result<Slice, Failure> {
        let [rule, index] = [RULE_VARIABLE, INDEX_VARIABLE].map(|name| {
            text_of(name).ok_or_else(|| outside(format!("{name} is not set: this is no pod of a job with shards")))
        });
        let (rule, index) = (rule?, index?);
        let plan = Plan::parse(&rule).map_err(|error| outside(format!("{RULE_VARIABLE}: {error}")))?;
        let slice = index.parse().ok().and_then(|index| Some((index, plan.slice(index)?)));
        let (index, records) = slice.ok_or_else(|| {
            outside(format!("{INDEX_VARIABLE} {index:?} is not the index of one of {} pods", plan.pods()))
        })?;
        let bundled = plan.bundle().map(|_| Bundled::open()).transpose()?;
        Ok(Slice { plan, index, records, bundled })
    }

    fn record(&self, index: u32) -> Result<Record, Failure> {
        let record = match &self.bundled {
            Some(bundled) => bundled.record(index, self.records.end)?,
            None => self.plan.shards().record(index),
        };
        record.ok_or_else(|| outside(format!("there is no record {index}: {RULE_VARIABLE} counts more than there are")))
    }

    /// The record at a place of this pod, from 0.
    fn nth(&self, place: u32) -> Result<Record, Failure> {
        let index = self.records.start.checked_add(place).filter(|index| self.records.contains(index));
        self.record(index.ok_or_else(|| {
            outside(format!("there is no place {place} in this pod: it has {} records, from 0", self.records.len()))
        })?)
    }

    /// The variables of a record.
    fn variables(&self, record: &Record) -> Vec<(String, String)> {
        let shards = self.plan.shards();
        let mut variables = shards.env(record);
        if shards.kind() == Kind::Array {
            variables.push((SLURM_NUMBER.to_owned(), record.key.clone()));
        }
        variables
    }
}

/// The bundle that this pod was told of; `None` if of none.
fn told() -> Result<Option<Location>, Failure> {
    Ok(text_of(location::VARIABLE).map(|text| text.parse()).transpose()?)
}

/// The folder of a bundle, and what waits for it.
fn open(location: &Location) -> Result<(Folder, Runtime), Failure> {
    match &location.spot {
        Spot::Folder(folder) => Ok((Folder::open(folder)?, runtime()?)),
        Spot::Objects { .. } => Err(outside(format!("{location} is no folder, and jobctl shard works with folders"))),
    }
}

/// Records of a bundle, read some at a time: they are taken in order, and lie side by side.
struct Bundled {
    bundle: Bundle,
    runtime: Runtime,
    /// Those that were read last.
    window: RefCell<Vec<Record>>,
}

impl Bundled {
    fn open() -> Result<Bundled, Failure> {
        let location =
            told()?.ok_or_else(|| outside(format!("{} is not set, and has the records", location::VARIABLE)))?;
        let (folder, runtime) = open(&location)?;
        let bundle = runtime.block_on(Bundle::open(Arc::new(folder), location.root))?;
        Ok(Bundled { bundle, runtime, window: RefCell::default() })
    }

    /// A record, and in the same go those after it, but not beyond `end`.
    fn record(&self, index: u32, end: u32) -> Result<Option<Record>, Failure> {
        let mut window = self.window.borrow_mut();
        if !window.iter().any(|record| record.index == index) {
            let numbers = index..index.saturating_add(WINDOW).min(end);
            *window = self.runtime.block_on(records::read(&self.bundle, numbers))?;
        }
        Ok(window.iter().find(|record| record.index == index).cloned())
    }
}

/// A variable of this pod.
fn text_of(name: &str) -> Option<String> {
    variable(name).and_then(|value| value.into_string().ok())
}

/// A text that a shell reads back as it is.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

fn outside(message: String) -> Failure {
    Failure::Usage { message, next: "jobctl submit --array 0-3 -- echo {key}".to_owned() }
}
