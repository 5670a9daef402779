//! `jobctl logs`: what a job's pods wrote.

use pumice_api::batch::Job;
use pumice_jobs::job::{Counts, JobError, JobRef};
use pumice_jobs::logs::{Attempt, JobLogs, LogOptions, PODS_FOLLOWED_MAX, STREAMS_MAX, absence, may_have_written};
use pumice_jobs::monitor::{RunEvent, RunMonitor};
use pumice_jobs::{Connection, Exit, lookup};

use super::Session;
use crate::args::LogsArgs;
use crate::failure::Failure;
use crate::log_printer::LogPrinter;
use crate::output;
use crate::terminal;

/// Pods that are gone and are named.
const GONE_SHOWN: usize = 5;

/// A job, what is wanted of its logs, and how they are printed.
struct LogRequest {
    connection: Connection,
    job: JobRef,
    state: Job,
    options: LogOptions,
    printer: LogPrinter,
}

/// Prints what was written, with the pod's name in front where there are several pods.
pub fn run(session: &Session, args: &LogsArgs) -> Result<Exit, Failure> {
    let verb = |connection: Connection| async move {
        let job = lookup::find_one(&connection, &args.job).await?;
        let state = lookup::typed(&connection, &lookup::get(&connection, &job).await?)?;
        let total = Counts::of(&state).total;
        let several = total > 1 && args.pod.is_none();
        let printer = LogPrinter::new(&job, several, args.prefix.unwrap_or(several));
        let options = LogOptions {
            follow: args.follow,
            tail_lines: args.tail,
            pod: args.pod.as_deref().map(|pod| full_name(&job, pod)),
            container: args.container.clone(),
            stream: args.stream(),
            pieces: Some(printer.pieces()),
            attempt: args.attempt(),
            // Before anything ran there is nothing that could be gone.
            pods_total: if may_have_written(&state) { total } else { 0 },
        };
        let request = LogRequest { connection, job, state, options, printer };
        if args.follow { follow(request).await } else { now(request).await }
    };
    if args.follow { session.attend(verb) } else { session.talk(verb) }
}

/// A pod by its name or by what stands after the job's in it.
pub fn full_name(job: &JobRef, pod: &str) -> String {
    if pod.starts_with(&format!("{}-", job.name)) { pod.to_owned() } else { format!("{}-{pod}", job.name) }
}

async fn now(request: LogRequest) -> Result<Exit, Failure> {
    let LogRequest { connection, job, state, options, mut printer } = request;
    let mut logs = JobLogs::new(connection, job.clone(), options.clone());
    let mut failed = None;
    let mut told_gone = false;
    while let Some(piece) = logs.next().await {
        if !std::mem::replace(&mut told_gone, true) {
            say_gone(&logs);
        }
        // One pod's log may be gone; the others' are still wanted.
        match piece {
            Ok(piece) => output::bytes(&printer.text(&piece))?,
            Err(error) => drop(failed.get_or_insert(error)),
        }
    }
    if let Some(error) = failed {
        return Err(error.into());
    }
    if logs.pods_seen() == 0 {
        if let Some(pod) = options.pod.as_ref().filter(|pod| !logs.pods_there().contains(pod))
            && options.attempt == Attempt::Latest
        {
            return Err(JobError::NoPod { job: job.name.clone(), pod: pod.clone() }.into());
        }
        let absence = absence(&job, &state, &options, &logs);
        terminal::say(&absence.sentence);
        terminal::say(&format!("next:  {}", absence.next));
    }
    Ok(Exit::Success)
}

/// Says which of the pods whose logs come are gone.
fn say_gone(logs: &JobLogs) {
    let gone = logs.gone_seen();
    for pod in gone.iter().take(GONE_SHOWN) {
        let since = pod.removed_at.strftime("%Y-%m-%d %H:%M UTC");
        terminal::say(&format!("pod {} is gone since {since}; node {} has its log", pod.pod, pod.node));
    }
    if gone.len() > GONE_SHOWN {
        terminal::say(&format!("and {} more pods are gone", gone.len() - GONE_SHOWN));
    }
}

async fn follow(mut request: LogRequest) -> Result<Exit, Failure> {
    let (job, options) = (request.job.clone(), request.options.clone());
    let mut monitor = RunMonitor::new(request.connection.clone(), job.clone(), Some(options));
    let (mut told_held_back, mut printed) = (false, false);
    let interrupt = tokio::signal::ctrl_c();
    tokio::pin!(interrupt);
    loop {
        let event = tokio::select! {
            biased;
            _ = &mut interrupt => return Ok(Exit::Interrupted),
            event = monitor.next() => event?,
        };
        match event {
            RunEvent::Log(piece) => {
                printed = true;
                output::bytes(&request.printer.text(&piece))?;
            }
            RunEvent::Ended(ending) if !printed => {
                // Its pods may have gone before they could be read.
                request.state = ending.job;
                request.options.follow = false;
                request.options.pods_total = Counts::of(&request.state).total;
                return now(request).await;
            }
            RunEvent::Ended(_) => return Ok(Exit::Success),
            RunEvent::LogsLost(error) => terminal::say(&format!("a log can't be read on: {error}")),
            RunEvent::Lost(detail) => terminal::say(&format!("no answer, trying again: {detail}")),
            RunEvent::Waits(why) => terminal::say(&format!("{} waits: {}", job.name, why.one_line())),
            RunEvent::State(_) | RunEvent::Back => {}
        }
        if monitor.logs_left_out() {
            let message = format!("job {} has more than {PODS_FOLLOWED_MAX} pods", job.name);
            return Err(Failure::Usage { message, next: format!("jobctl logs -f {} --pod NAME", job.name) });
        }
        if monitor.logs_held_back() > 0 && !std::mem::replace(&mut told_held_back, true) {
            terminal::say(&format!("only {STREAMS_MAX} pods at a time; --pod NAME follows one"));
        }
    }
}
