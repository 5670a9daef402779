//! `jobctl shard`, in a pod: the records that are this pod's own, and a command for each.
//!
//! Invariant: which records are a pod's own follows from two variables alone, so it talks to nobody and starts no runtime.

mod exec;

use std::ops::Range;

use pumice_jobs::Exit;
use pumice_jobs::render::RULE_VARIABLE;
use pumice_jobs::shards::{Kind, Plan, Record};

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
    let slice = Slice::of_this_pod()?;
    match command {
        ShardCommand::Exec(args) => return exec::run(&slice, &args.argv),
        ShardCommand::Env(args) => {
            let lines = slice.variables(&slice.nth(args.place)?);
            let line = |(name, value): (String, String)| format!("export {name}={}\n", quoted(&value));
            output::text(&lines.into_iter().map(line).collect::<String>())?;
        }
        ShardCommand::Key(args) => output::text(&format!("{}\n", slice.nth(args.place)?.key))?,
        ShardCommand::List => {
            for index in slice.records.clone() {
                output::text(&format!("{}\n", slice.record(index)?.key))?;
            }
        }
    }
    Ok(Exit::Success)
}

/// The records of one pod.
struct Slice {
    plan: Plan,
    records: Range<u32>,
}

impl Slice {
    fn of_this_pod() -> Result<Slice, Failure> {
        let [rule, index] = [RULE_VARIABLE, INDEX_VARIABLE].map(|name| {
            let value = variable(name).and_then(|value| value.into_string().ok());
            value.ok_or_else(|| outside(format!("{name} is not set: this is no pod of a job with shards")))
        });
        let (rule, index) = (rule?, index?);
        let plan = Plan::parse(&rule).map_err(|error| outside(format!("{RULE_VARIABLE}: {error}")))?;
        let records = index.parse().ok().and_then(|index| plan.slice(index)).ok_or_else(|| {
            outside(format!("{INDEX_VARIABLE} {index:?} is not the index of one of {} pods", plan.pods()))
        })?;
        Ok(Slice { plan, records })
    }

    fn record(&self, index: u32) -> Result<Record, Failure> {
        let known = self.plan.shards().record(index);
        known.ok_or_else(|| outside("the records are in a bundle, which this version does not read".to_owned()))
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

/// A text that a shell reads back as it is.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

fn outside(message: String) -> Failure {
    Failure::Usage { message, next: "jobctl submit --array 0-3 -- echo {key}".to_owned() }
}
