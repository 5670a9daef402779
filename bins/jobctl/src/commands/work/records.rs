//! `--array`, `--days` and `--params` as the records of a job.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use pumice_jobs::bundle::parameters;
use pumice_jobs::render::ShardRun;
use pumice_jobs::shards::days::DaysError;
use pumice_jobs::shards::{Array, Calendar, Days, Format, Group, KeyBy, Params, Plan, Shards, calendar};
use pumice_jobs::submit::bundled::Prepared;

use super::store::BundleStore;
use super::{Site, read_bounded, text_of, usage};
use crate::args::JobArgs;
use crate::commands::{Session, runtime};
use crate::failure::Failure;

/// What the flags say of records.
#[derive(Default)]
pub struct Records {
    /// The records and how a pod runs them.
    pub shards: Option<ShardRun>,
    /// Pods at a time, as an array says it.
    pub max_parallel: Option<u32>,
    /// What is to be in ConfigMaps before the job is.
    pub bundle: Option<Prepared>,
}

/// Reads the records that flags or a file say; packs those that pods can't compute. No flag of records gives none.
pub fn read(session: &Session, args: &JobArgs, site: Site) -> Result<Records, Failure> {
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
    if [args.array.is_some(), args.days.is_some(), args.params.is_some()] == [false; 3] {
        return Ok(Records::default());
    }
    let mut store = BundleStore::choose(session, args, site)?;
    let mut root = None;
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
    } else if let Some(path) = &args.params {
        let rows = rows(path, args.key.clone())?;
        let (shards, packed) = runtime()?.block_on(parameters::pack_rows(store.needed()?, rows))?;
        root = Some(packed);
        ("--params", shards, args.rows_per_task.unwrap_or(1), None)
    } else {
        return Ok(Records::default());
    };
    let mut plan = Plan::new(shards, chunk).map_err(|error| usage(format!("{flag}: {error}")))?;
    if plan.rule().is_err() {
        root = Some(runtime()?.block_on(parameters::pack(store.needed()?, plan.shards()))?);
        plan = plan.bundled();
    }
    let bundle = store.location(root, plan.pods(), !args.no_results)?;
    let prepared = if bundle.is_some() { store.prepared() } else { None };
    Ok(Records { shards: Some(ShardRun { plan, jobctl: program(site.here)?, bundle }), max_parallel, bundle: prepared })
}

fn rows(path: &Path, key: Option<String>) -> Result<Params<BufReader<File>>, Failure> {
    let origin = text_of(path, "--params")?;
    let format = Format::of_path(&origin)
        .ok_or_else(|| usage(format!("--params {origin} is neither .csv nor .jsonl; rename it by what it is")))?;
    let file = File::open(path).map_err(|error| usage(format!("--params {origin} can't be read: {error}")))?;
    let key = key.map_or(KeyBy::Content, KeyBy::Column);
    Ok(Params::open(&origin, format, key, BufReader::new(file))?)
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
    let bytes = read_bounded(Path::new(path), calendar::FILE_BYTES_MAX as u64).map_err(|error| {
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
