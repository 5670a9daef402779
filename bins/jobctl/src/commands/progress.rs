//! `jobctl progress`: how far jobs are, once or until the end.

use std::time::Duration;

use pumice_api::batch::Job;
use pumice_jobs::job::{Counts, JobRef, state};
use pumice_jobs::monitor::{Progress, RunEvent};
use pumice_jobs::{Connection, Exit, lookup};
use serde_json::json;
use tokio::time::Instant;

use super::Session;
use super::attended::Attended;
use crate::args::{ProgressArgs, ProgressForm};
use crate::failure::Failure;
use crate::output;
use crate::terminal;

/// The shortest time between two lines.
const LINE_EVERY: Duration = Duration::from_millis(250);

/// Prints a line for each job, or the lines of one as it goes.
pub fn run(session: &Session, args: &ProgressArgs) -> Result<Exit, Failure> {
    let verb = |connection: Connection| async move {
        let jobs = lookup::find(&connection, &args.jobs.filter(), terminal::now()).await?;
        match jobs.as_slice() {
            [job] if args.follow => follow(session, args, &connection, job).await,
            [_, _, ..] if args.follow => Err(Failure::Usage {
                message: format!("--follow is for one job, and these are {}", jobs.len()),
                next: format!("jobctl progress --follow {}", jobs[0].name),
            }),
            _ => {
                for job in &jobs {
                    let typed = lookup::typed(&connection, &lookup::get(&connection, job).await?)?;
                    let mut progress = Progress::default();
                    progress.observe(Counts::of(&typed), 0);
                    print(session, args, &typed, &progress)?;
                }
                Ok(Exit::Success)
            }
        }
    };
    if args.follow { session.attend(verb) } else { session.talk(verb) }
}

/// On a terminal one line that is redrawn, elsewhere one for each change.
async fn follow(
    session: &Session,
    args: &ProgressArgs,
    connection: &Connection,
    job: &JobRef,
) -> Result<Exit, Failure> {
    let lines = args.output == ProgressForm::Json || !terminal::draws(session.global.no_progress);
    let mut attended = Attended::new(session, connection, job, None, lines)?;
    let (started, mut progress) = (Instant::now(), Progress::default());
    // A state that is not printed yet, and when it may be.
    let (mut unprinted, mut next_line): (Option<Job>, Instant) = (None, Instant::now());
    let mut printed = None;
    loop {
        let event = tokio::select! {
            biased;
            () = tokio::time::sleep_until(next_line), if unprinted.is_some() => {
                next_line = Instant::now() + LINE_EVERY;
                if let Some(state) = unprinted.take() {
                    print(session, args, &state, &progress)?;
                    printed = Some(counts_and_state(&state));
                }
                continue;
            }
            event = attended.next() => event?,
        };
        match event {
            Some(RunEvent::State(state)) => {
                progress.observe(Counts::of(&state), i64::try_from(started.elapsed().as_millis()).unwrap_or(i64::MAX));
                unprinted = lines.then_some(*state);
            }
            Some(RunEvent::Ended(ending)) => {
                // On a terminal the last line stays. Elsewhere it is there already if nothing has changed since.
                if printed.as_ref() != Some(&counts_and_state(&ending.job)) {
                    print(session, args, &ending.job, &progress)?;
                }
                return Ok(Exit::Success);
            }
            Some(_) => {}
            None => return Ok(Exit::Interrupted),
        }
    }
}

/// What a line tells of a job, apart from its pace.
fn counts_and_state(job: &Job) -> (Counts, String) {
    (Counts::of(job), state::word(job.status.state.phase.as_ref()).to_owned())
}

fn print(session: &Session, args: &ProgressArgs, job: &Job, progress: &Progress) -> Result<(), Failure> {
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let state = state::word(job.status.state.phase.as_ref());
    match args.output {
        ProgressForm::Line => {
            let width = terminal::width().saturating_sub(name.chars().count() + 1);
            let line = progress.line(width, terminal::colours(&session.surroundings));
            output::text(&format!("{name} {line}\n"))
        }
        ProgressForm::Json => {
            let mut line = json!(progress.snapshot());
            line["job"] = name.into();
            line["namespace"] = job.metadata.namespace.as_deref().unwrap_or_default().into();
            line["state"] = state.into();
            output::text(&format!("{line}\n"))
        }
    }
}
