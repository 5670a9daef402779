//! `jobctl logs`: what a job's pods wrote.

use pumice_jobs::attend::{Attendance, Happening};
use pumice_jobs::logs::{JobLogs, LogLine, LogOptions, PODS_FOLLOWED_MAX, STREAMS_MAX, pods};
use pumice_jobs::progress::Counts;
use pumice_jobs::select::JobRef;
use pumice_jobs::{Connection, Error, Exit, pick, select};

use super::Session;
use crate::args::LogsArgs;
use crate::failure::Failure;
use crate::{output, terminal};

/// Prints the lines, with the pod's name in front where there are several pods.
pub fn run(session: &Session, args: &LogsArgs) -> Result<Exit, Failure> {
    let verb = |connection: Connection| async move {
        let job = pick::pick_one(&connection, &args.job).await?;
        let typed = select::typed(&connection, &select::get(&connection, &job).await?)?;
        let several = Counts::of(&typed).total > 1 && args.pod.is_none();
        let prefixed = args.prefix.unwrap_or(several);
        let options = LogOptions {
            follow: args.follow,
            tail_lines: args.tail,
            pod: args.pod.as_deref().map(|pod| full_name(&job, pod)),
            container: args.container.clone(),
        };
        check_pod(&connection, &job, &options).await?;
        if args.follow {
            follow(connection, job, options, prefixed).await
        } else {
            now(connection, job, options, prefixed).await
        }
    };
    if args.follow { session.attend(verb) } else { session.talk(verb) }
}

/// The front of a line of one of several pods: its name without the job's.
pub fn prefix(job: &JobRef, line: &LogLine) -> String {
    let pod = line.pod.strip_prefix(&format!("{}-", job.name)).unwrap_or(&line.pod);
    format!("[{pod}] ")
}

/// A pod by its name or by what stands after the job's in it.
pub fn full_name(job: &JobRef, pod: &str) -> String {
    if pod.starts_with(&format!("{}-", job.name)) { pod.to_owned() } else { format!("{}-{pod}", job.name) }
}

async fn check_pod(connection: &Connection, job: &JobRef, options: &LogOptions) -> Result<(), Failure> {
    let Some(pod) = &options.pod else { return Ok(()) };
    let found = pods(connection, job).await?;
    if found.iter().any(|one| one.metadata.name.as_ref() == Some(pod)) || options.follow {
        return Ok(());
    }
    Err(Error::NoPod { job: job.name.clone(), pod: pod.clone() }.into())
}

async fn now(connection: Connection, job: JobRef, options: LogOptions, prefixed: bool) -> Result<Exit, Failure> {
    let mut logs = JobLogs::new(connection, job.clone(), options);
    let mut failed = None;
    while let Some(line) = logs.next().await {
        // One pod's log may be gone; the others' are still wanted.
        let line = match line {
            Ok(line) => line,
            Err(error) => {
                failed.get_or_insert(error);
                continue;
            }
        };
        let front = if prefixed { prefix(&job, &line) } else { String::new() };
        output::line(&front, &line.text)?;
    }
    if logs.pods_seen() == 0 {
        terminal::say(&format!("no pod of job {} has started", job.name));
        terminal::say(&format!("next:  jobctl why {}{}", job.name, job.namespace_flag()));
    }
    failed.map_or(Ok(Exit::Success), |error| Err(error.into()))
}

async fn follow(connection: Connection, job: JobRef, options: LogOptions, prefixed: bool) -> Result<Exit, Failure> {
    let mut attendance = Attendance::new(connection, job.clone(), Some(options));
    let mut told_held_back = false;
    let interrupt = tokio::signal::ctrl_c();
    tokio::pin!(interrupt);
    loop {
        let happening = tokio::select! {
            biased;
            _ = &mut interrupt => return Ok(Exit::Interrupted),
            happening = attendance.next() => happening?,
        };
        match happening {
            Happening::Line(line) => {
                let front = if prefixed { prefix(&job, &line) } else { String::new() };
                output::line(&front, &line.text)?;
            }
            Happening::Ended(_) => return Ok(Exit::Success),
            Happening::LogsLost(error) => terminal::say(&format!("a log can't be read on: {error}")),
            Happening::Lost(detail) => terminal::say(&format!("no answer, trying again: {detail}")),
            Happening::Waits(why) => terminal::say(&format!("{} waits: {}", job.name, why.one_line())),
            Happening::State(_) | Happening::Back => {}
        }
        if attendance.logs_left_out() {
            let message = format!("job {} has more than {PODS_FOLLOWED_MAX} pods", job.name);
            return Err(Failure::Usage { message, next: format!("jobctl logs -f {} --pod NAME", job.name) });
        }
        if attendance.logs_held_back() > 0 && !std::mem::replace(&mut told_held_back, true) {
            terminal::say(&format!("only {STREAMS_MAX} pods at a time; --pod NAME follows one"));
        }
    }
}
