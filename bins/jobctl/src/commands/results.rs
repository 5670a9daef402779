//! `jobctl results`: what came of each record of a job.

mod save;
mod sheet;

use std::pin::pin;

use futures::StreamExt;
use pumice_api::batch::Job;
use pumice_jobs::error::sentence;
use pumice_jobs::job::{Counts, end_of};
use pumice_jobs::results::Results;
use pumice_jobs::{Connection, Exit, lookup};

use self::sheet::Sheet;
use super::Session;
use crate::args::{ResultsArgs, ResultsForm};
use crate::failure::Failure;
use crate::terminal;

/// Prints a row for each record that is meant, or saves its result. How many fell short is said on standard error.
pub fn run(session: &Session, args: &ResultsArgs) -> Result<Exit, Failure> {
    session.talk(|connection| async move {
        let job = lookup::find_one(&connection, &args.job).await?;
        let job = lookup::typed(&connection, &lookup::get(&connection, &job).await?)?;
        let results = Results::open(&connection, &job).await?;
        let mut rows = pin!(results.rows(args.wanted()));
        if let Some(folder) = &args.save {
            let mut saved = save::Folder::make(folder)?;
            while let Some(row) = rows.next().await {
                saved.save(&row?, args.failed)?;
            }
            terminal::say(&saved.summary());
            return Ok(Exit::Success);
        }
        let mut sheet = Sheet::new(args.output, terminal::colours(&session.surroundings));
        while let Some(row) = rows.next().await {
            sheet.push(&row?)?;
        }
        sheet.end()?;
        if args.output == ResultsForm::Table {
            let counts = results.counts().await?;
            if !counts.is_whole() {
                terminal::say(&counts.to_string());
            }
        }
        Ok(Exit::Success)
    })
}

/// Of a job that ended with fewer successes than it has pods, which records did not succeed; `None` if that is not recorded.
pub async fn shortfall(connection: &Connection, job: &Job) -> Option<String> {
    let counts = Counts::of(job);
    if end_of(job).is_none() || counts.succeeded >= counts.total || !Results::are_of(job) {
        return None;
    }
    let recorded = async { Results::open(connection, job).await?.counts().await };
    match recorded.await {
        // Pods that are simulated succeed without a word.
        Ok(recorded) if recorded.is_whole() || (recorded.is_blank() && counts.succeeded > 0) => None,
        Ok(recorded) => Some(recorded.to_string()),
        Err(error) => Some(format!("which records are missing can't be told here: {}", sentence(&error))),
    }
}
