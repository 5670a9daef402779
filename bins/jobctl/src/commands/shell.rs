//! `jobctl shell`: a terminal in a new job, or in a running pod of one.

use pumice_jobs::interactive::container_choice::{self, ContainerChoice, RunningContainer};
use pumice_jobs::interactive::{InteractiveError, program};
use pumice_jobs::job::{JobRef, Selector};
use pumice_jobs::lifecycle::{DesiredState, set_desired_state};
use pumice_jobs::{Connection, Exit, lookup};

use super::session::{self, Program};
use super::{Session, act, interactive, logs};
use crate::args::{Form, ShellArgs, WhichPod};
use crate::failure::Failure;
use crate::terminal;

/// Goes into the job that is named, or into a new one that ends with the shell.
pub fn run(session: &Session, args: &ShellArgs) -> Result<Exit, Failure> {
    match &args.job {
        Some(job) => session.attend(|connection| async move { go_into(&connection, job, args).await }),
        None => start(session, args),
    }
}

async fn go_into(connection: &Connection, job: &Selector, args: &ShellArgs) -> Result<Exit, Failure> {
    let job = lookup::find_one(connection, job).await?;
    let running = container_choice::find(connection, &job, &wanted(&job, &args.pod)).await?;
    if running.others > 0 {
        terminal::say(&format!("in pod {}; {} more run, --index or --pod names another", running.pod, running.others));
    }
    open(connection, &running, args).await
}

/// What was said of the pod; it may be named by what stands after the job's name.
pub fn wanted(job: &JobRef, which: &WhichPod) -> ContainerChoice {
    ContainerChoice {
        task: which.task.clone(),
        index: which.index,
        pod: which.pod.as_deref().map(|pod| logs::full_name(job, pod)),
        container: which.container.clone(),
    }
}

async fn open(connection: &Connection, running: &RunningContainer, args: &ShellArgs) -> Result<Exit, Failure> {
    let back = format!("jobctl shell {}{}", running.job.name, running.job.namespace_flag());
    session::run(connection, running, &Program { argv: &args.argv, back: &back }).await
}

fn start(session: &Session, args: &ShellArgs) -> Result<Exit, Failure> {
    let submission = interactive::submission(session, "shell", &args.flags, program::holder(), args.dry_run)?;
    if args.dry_run {
        return submission.print(Form::Yaml);
    }
    session.bring_up()?;
    session.attend(|connection| async move {
        let job = interactive::submit(session, &connection, &submission).await?;
        let running = match interactive::running(session, &connection, &job).await? {
            Ok(running) => running,
            Err(exit) => return Ok(exit),
        };
        let ended = open(&connection, &running, args).await;
        match &ended {
            // Who comes back finds what was left there.
            Err(failure) if is_lost(failure) => {}
            _ if args.keep => {
                let (name, flag) = (&job.name, job.namespace_flag());
                terminal::say(&format!("job {name} goes on; jobctl shell {name}{flag} goes into it again"));
                terminal::say(&format!("next:  jobctl cancel {name}{flag}, if it shall end"));
            }
            _ => {
                let change = set_desired_state(&connection, &job, DesiredState::Cancel, true).await?;
                terminal::say(&act::sentence(&job, DesiredState::Cancel, change));
            }
        }
        ended
    })
}

/// Whether the program may still run.
fn is_lost(failure: &Failure) -> bool {
    let Failure::Jobs { error, .. } = failure else { return false };
    matches!(error.downcast_ref(), Some(InteractiveError::Lost { .. }))
}
