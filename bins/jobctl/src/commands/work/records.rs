//! `--array`, `--days` and `--params` as the records of a job.

use std::path::Path;

use pumice_jobs::render::ShardRun;
use pumice_jobs::shards::days::DaysError;
use pumice_jobs::shards::{Array, Calendar, Days, Group, Plan, Shards, calendar};

use super::{text_of, usage};
use crate::args::JobArgs;
use crate::failure::Failure;

/// What the flags say of records.
#[derive(Default)]
pub struct Records {
    /// The records and how a pod runs them.
    pub shards: Option<ShardRun>,
    /// Pods at a time, as an array says it.
    pub max_parallel: Option<u32>,
}

/// Reads them. `here` tells that pods see this machine's files.
pub fn read(args: &JobArgs, here: bool) -> Result<Records, Failure> {
    only_with(
        args.days.is_some(),
        "--days",
        &[
            ("--calendar", args.calendar.is_some()),
            ("--days-per-task", args.days_per_task.is_some()),
            ("--group", args.group.is_some()),
        ],
    )?;
    only_with(
        args.params.is_some(),
        "--params",
        &[("--key", args.key.is_some()), ("--rows-per-task", args.rows_per_task.is_some())],
    )?;
    let given =
        [("--array", args.array.is_some()), ("--days", args.days.is_some()), ("--params", args.params.is_some())];
    let mut given = given.into_iter().filter(|(_, is)| *is).map(|(flag, _)| flag);
    if let (Some(one), Some(other)) = (given.next(), given.next()) {
        return Err(usage(format!("{one} and {other}: a job has one kind of shards; leave one out")));
    }
    let (flag, shards, chunk, max_parallel) = if let Some(text) = &args.array {
        let array = text.parse::<Array>().map_err(|error| usage(error.to_string()))?;
        if array.max_parallel.is_some() && args.max_parallel.is_some() {
            return Err(usage(format!(
                "--array {text} and --max-parallel: both say how many at a time; leave one out"
            )));
        }
        ("--array", Shards::Numbers(array.numbers), 1, array.max_parallel)
    } else if let Some(text) = &args.days {
        ("--days", Shards::Days(days(args, text)?), args.days_per_task.unwrap_or(1), None)
    } else if args.params.is_some() {
        // The rows go into a bundle that travels with the job; `ShardRun` gets its plan.
        return Err(usage("--params: tables of parameters are not in this version".to_owned()));
    } else {
        return Ok(Records::default());
    };
    let plan = Plan::new(shards, chunk).map_err(|error| usage(format!("{flag}: {error}")))?;
    Ok(Records { shards: Some(ShardRun { plan, jobctl: program(here)? }), max_parallel })
}

fn days(args: &JobArgs, text: &str) -> Result<Days, Failure> {
    let wrong = |error: DaysError| usage(error.to_string());
    let (from, to) = Days::parse_range(text).map_err(wrong)?;
    let name = args.calendar.as_deref().unwrap_or("weekdays");
    let calendar = match Calendar::named(name) {
        Some(calendar) => calendar,
        None => calendar_file(name)?,
    };
    let group = args
        .group
        .as_deref()
        .map(|name| Group::named(name).ok_or_else(|| usage(format!("--group {name} is none of week, month and year"))));
    Days::new(from, to, calendar, group.transpose()?).map_err(wrong)
}

fn calendar_file(path: &str) -> Result<Calendar, Failure> {
    let bytes = crate::files::read_bounded(Path::new(path), calendar::FILE_BYTES_MAX as u64).map_err(|error| {
        usage(format!("--calendar {path} is none of weekdays, all and XNYS, and no file that can be read: {error}"))
    })?;
    let text = String::from_utf8(bytes).map_err(|_| usage(format!("--calendar {path} is not UTF-8 text")))?;
    Calendar::from_text(path, &text).map_err(|error| usage(format!("--calendar {error}")))
}

/// The `jobctl` that runs the records: this one where pods see it, else the image's own.
fn program(here: bool) -> Result<String, Failure> {
    if !here {
        return Ok("jobctl".to_owned());
    }
    let own = std::env::current_exe()
        .map_err(|error| Failure::Machine(anyhow::Error::new(error).context("cannot tell where jobctl itself is")))?;
    text_of(&own, "the path of jobctl")
}

/// Refuses flags that mean nothing without another.
fn only_with(given: bool, needed: &str, flags: &[(&str, bool)]) -> Result<(), Failure> {
    match flags.iter().find(|(_, is)| *is && !given) {
        Some((flag, _)) => Err(usage(format!("{flag} says how {needed} is cut; say {needed}, too"))),
        None => Ok(()),
    }
}
