//! `jobctl run`: submit, attend, end with the job's own code.

use std::io::Seek;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use pumice_api::batch::Job;
use pumice_jobs::explain::images::{NoImage, without_image};
use pumice_jobs::explain::job_end::{self, EndReport};
use pumice_jobs::job::{Counts, JobEnd, JobRef, exit_of_run};
use pumice_jobs::lifecycle::{DesiredState, set_desired_state};
use pumice_jobs::logs::{JobLogs, LogOptions, PODS_FOLLOWED_MAX, STREAMS_MAX};
use pumice_jobs::lookup::pods;
use pumice_jobs::monitor::{RunEnd, RunEvent};
use pumice_jobs::submit::Submitted;
use pumice_jobs::{Connection, Exit};

use super::attended::Attended;
use super::work::Submission;
use super::{Session, results};
use crate::args::{RunArgs, Work};
use crate::failure::Failure;
use crate::log_printer::LogPrinter;
use crate::terminal;

/// Lines shown of the pod that failed.
const LAST_LINES: u32 = 10;
/// Failed and evicted pods named.
const FAILURES_SHOWN: usize = 5;

/// Submits, then attends one job after the other; the first code that isn't 0 wins.
pub fn run(session: &Session, args: &RunArgs) -> Result<Exit, Failure> {
    let submission = Submission::read(session, &args.work)?;
    if args.work.dry_run {
        return submission.print(args.output);
    }
    session.bring_up()?;
    // With flags there is one job, and its name matters only if it was made up.
    let known = matches!(submission, Submission::Job { named: true, .. });
    session.attend(|connection| async move {
        let say = |one: &Submitted| {
            if !session.global.no_progress && !known {
                terminal::say(&format!("{} {}", one.reference(), one.effect.word()));
            }
        };
        let submitted = submission.send(&connection, say).await?;
        say_if_input_is_unread(&args.work, connection.is_fleet());
        let mut exit = Exit::Success;
        for job in submitted.iter().filter_map(Submitted::job) {
            let own = attend(session, args, &connection, &job).await?;
            if own == Exit::Interrupted {
                return Ok(own);
            }
            if exit == Exit::Success {
                exit = own;
            }
        }
        Ok(exit)
    })
}

async fn attend(session: &Session, args: &RunArgs, connection: &Connection, job: &JobRef) -> Result<Exit, Failure> {
    let options = (!args.no_logs).then(|| LogOptions { follow: true, ..LogOptions::default() });
    let mut attended = Attended::new(session, connection, job, options, false)?;
    let (mut several, mut told_part, mut printer) = (false, false, None);
    let mut may_lack_images = false;
    let mut no_image = Box::pin(without_image(connection, job));
    loop {
        let event = tokio::select! {
            event = attended.next() => event?,
            found = &mut no_image, if may_lack_images => {
                attended.terminal.finish();
                return give_up(connection, job, &found).await;
            }
        };
        let Some(event) = event else { break };
        match event {
            RunEvent::State(state) => {
                let counts = Counts::of(&state);
                several = counts.total > 1;
                let is_idle = counts.running + counts.succeeded + counts.failed == 0;
                may_lack_images = is_idle && counts.total <= PODS_FOLLOWED_MAX && !connection.is_fleet();
            }
            RunEvent::Log(piece) => {
                let printer = printer.get_or_insert_with(|| LogPrinter::new(job, several, several));
                attended.terminal.data(&printer.text(&piece))?;
            }
            RunEvent::Ended(ending) => return conclude(connection, job, &ending, args.no_logs || several).await,
            _ => {}
        }
        let left_out = attended.monitor.logs_left_out();
        let part = left_out || attended.monitor.logs_held_back() > 0;
        if part && !std::mem::replace(&mut told_part, true) {
            let (shown, name) = (if left_out { 0 } else { STREAMS_MAX }, &job.name);
            let note = format!("showing the output of {shown} pods; jobctl logs -f {name} --pod NAME shows one");
            attended.terminal.note(&note);
        }
    }
    Ok(Exit::Interrupted)
}

/// Ends a job whose pods have no image: it would start whenever the image comes, and nobody would expect it any more.
async fn give_up(connection: &Connection, job: &JobRef, found: &NoImage) -> Result<Exit, Failure> {
    set_desired_state(connection, job, DesiredState::Cancel, false).await?;
    terminal::say(&format!("job {} is cancelled: pod {} has no image: {}", job.name, found.pod, found.message));
    terminal::say(&format!("next:  jobctl get {}{}", job.name, job.namespace_flag()));
    Ok(Exit::JobFailed)
}

/// Says what went wrong, and gives the code.
pub async fn conclude(connection: &Connection, job: &JobRef, ending: &RunEnd, show_log: bool) -> Result<Exit, Failure> {
    let RunEnd { job: state, end, failures } = ending;
    let exit = exit_of_run(state, *end, failures);
    let whole = *end == JobEnd::Completed && state.status.failed == 0;
    if !whole {
        terminal::say(&format!("job {} {}: {}", job.name, end.word(), counts(state)));
    }
    if let Some(told) = results::shortfall(connection, state).await {
        terminal::say(&format!("job {}: {told}", job.name));
    }
    if Counts::of(state).total <= PODS_FOLLOWED_MAX && !connection.is_fleet() {
        // Whoever may not read pods, or a server that is gone by now, is no reason to fail.
        for lost in pods::discarded_files(connection, job).await.unwrap_or_default() {
            terminal::say(&lost);
        }
    }
    if *end == JobEnd::Completed {
        return Ok(exit);
    }
    let report = EndReport {
        because: job_end::because(state),
        failures: job_end::failures(state, failures.clone()),
        evictions: job_end::evictions(connection, job, state).await,
    };
    for line in report.lines(&job.name, FAILURES_SHOWN) {
        terminal::say(&line);
    }
    if let Some(first) = failures.first()
        && show_log
    {
        let options = LogOptions {
            tail_lines: Some(LAST_LINES),
            pod: Some(first.pod.clone()),
            container: Some(first.container.clone()).filter(|name| !name.is_empty()),
            ..LogOptions::default()
        };
        let mut lines = JobLogs::new(connection.clone(), job.clone(), options);
        let mut begun = false;
        // The log may be gone with its pod; the verdict stands without it.
        while let Some(Ok(line)) = lines.next().await {
            if !std::mem::replace(&mut begun, true) {
                terminal::say(&format!("last lines of {}:", first.pod));
            }
            terminal::say(&format!("  {}", String::from_utf8_lossy(&line.text)));
        }
    }
    let flag = job.namespace_flag();
    match (*end, failures.first()) {
        (JobEnd::Failed | JobEnd::Terminated, Some(first)) if first.has_log() => {
            terminal::say(&format!("next:  jobctl logs {}{flag} --pod {}", job.name, first.pod));
        }
        (JobEnd::Deleted, _) => terminal::say(&format!("next:  jobctl list{flag}")),
        _ => terminal::say(&format!("next:  jobctl get {}{flag}", job.name)),
    }
    Ok(exit)
}

fn counts(job: &Job) -> String {
    let Counts { total, succeeded, failed, .. } = Counts::of(job);
    format!("{succeeded} of {total} pods succeeded, {failed} failed")
}

/// Says that nobody reads this program's standard input, if there is something to read: it does not reach the pods of a job.
/// Nothing is read here. Many programs start others with an open pipe that nobody writes to, which is nothing to read.
fn say_if_input_is_unread(work: &Work, fleet: bool) {
    let is_manifest = work.files.iter().any(|file| file == Path::new("-"));
    if is_manifest || !input_has_data() {
        return;
    }
    let instead = if fleet { "" } else { "`jobctl shell -- COMMAND` passes it on, or " };
    terminal::say(&format!("standard input does not reach the pods: {instead}let the command read a file"));
}

fn input_has_data() -> bool {
    let stdin = std::io::stdin();
    let Ok(owned) = stdin.as_fd().try_clone_to_owned() else { return false };
    let mut file = std::fs::File::from(owned);
    let Ok(metadata) = file.metadata() else { return false };
    if metadata.file_type().is_fifo() {
        let mut ready = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
        let count = poll(&mut ready, PollTimeout::ZERO).unwrap_or(0);
        return count > 0 && ready[0].revents().is_some_and(|events| events.contains(PollFlags::POLLIN));
    }
    metadata.is_file() && file.stream_position().is_ok_and(|at| at < metadata.len())
}
