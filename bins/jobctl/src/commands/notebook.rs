//! `jobctl notebook`: a Jupyter server in a pod, and a port of this machine that leads to it.
//!
//! Invariant: the notebook outlives this command, whatever ends it; its token is printed on standard output and nowhere else.

use std::time::Duration;

use pumice_jobs::interactive::container_choice::{self, RunningContainer};
use pumice_jobs::interactive::notebook::{self, Address};
use pumice_jobs::interactive::port_forward::{self, ForwardEvent, LocalPort, PortForward};
use pumice_jobs::job::{JobRef, Selector};
use pumice_jobs::monitor::{RunEvent, RunMonitor};
use pumice_jobs::{Connection, Exit, error, lookup};

use super::{Session, interactive, run as runs, shell};
use crate::args::{Form, NotebookArgs};
use crate::failure::Failure;
use crate::output;
use crate::terminal;

/// How long a server may take to start.
const START_MAX: Duration = Duration::from_secs(180);
/// The same of one that should have started long ago.
const FIND_MAX: Duration = Duration::from_secs(20);
/// How long the end of a job may take to be told after that of its pod.
const END_GRACE: Duration = Duration::from_secs(5);

/// Comes back to the notebook that is named, or starts one.
pub fn run(session: &Session, args: &NotebookArgs) -> Result<Exit, Failure> {
    match &args.job {
        Some(job) => session.attend(|connection| async move { come_back(connection, job, args).await }),
        None => start(session, args),
    }
}

async fn come_back(connection: Connection, job: &Selector, args: &NotebookArgs) -> Result<Exit, Failure> {
    let local_port = port_forward::listen(args.port).await?;
    let job = lookup::find_one(&connection, job).await?;
    let running = container_choice::find(&connection, &job, &shell::wanted(&job, &args.pod)).await?;
    let found = async { Ok(notebook::find(&connection, &running, FIND_MAX).await?) };
    serve(&connection, &running, local_port, found).await
}

fn start(session: &Session, args: &NotebookArgs) -> Result<Exit, Failure> {
    let submission = interactive::submission(session, "notebook", &args.flags, notebook::start(), args.dry_run)?;
    if args.dry_run {
        return submission.print(Form::Yaml);
    }
    session.bring_up()?;
    session.attend(|connection| async move {
        // Before there is a job that nobody could reach.
        let local_port = port_forward::listen(args.port).await?;
        let job = interactive::submit(session, &connection, &submission).await?;
        let running = match interactive::running(session, &connection, &job).await? {
            Ok(running) => running,
            Err(exit) => return Ok(exit),
        };
        let found = async {
            match notebook::find(&connection, &running, START_MAX).await {
                Ok(address) => Ok(address),
                Err(error) => {
                    // If its pod has ended, what the job says of that is the better answer.
                    tokio::time::sleep(END_GRACE).await;
                    Err(error.into())
                }
            }
        };
        serve(&connection, &running, local_port, found).await
    })
}

/// Prints the URL once the server is found, and carries connections until Ctrl-C or the job's end.
async fn serve(
    connection: &Connection,
    running: &RunningContainer,
    local_port: LocalPort,
    found: impl Future<Output = Result<Address, Failure>>,
) -> Result<Exit, Failure> {
    let mut monitor = Box::new(RunMonitor::new(connection.clone(), running.job.clone(), None));
    let mut interrupt = std::pin::pin!(tokio::signal::ctrl_c());
    let mut found = std::pin::pin!(found);
    let (mut local_port, mut port_forward) = (Some(local_port), None);
    loop {
        let event = tokio::select! {
            biased;
            _ = &mut interrupt => {
                say_how_to_come_back(&running.job);
                return Ok(Exit::Interrupted);
            }
            event = monitor.next() => event?,
            address = &mut found, if port_forward.is_none() => {
                let address = address?;
                if let Some(local_port) = local_port.take() {
                    output::text(&format!("{}\n", address.url(local_port.port)))?;
                    terminal::say("Ctrl-C ends the way to the notebook and not the notebook");
                    port_forward = Some(PortForward::new(connection.clone(), running.clone(), address.port, local_port));
                }
                continue;
            }
            forwarded = next(port_forward.as_mut()) => {
                terminal::say(&match forwarded {
                    ForwardEvent::Lost(trouble) => format!("the notebook can't be reached: {}", error::sentence(&trouble)),
                    ForwardEvent::Back => "the notebook can be reached again".to_owned(),
                });
                continue;
            }
        };
        match event {
            RunEvent::Ended(ending) => return runs::conclude(connection, &running.job, &ending, true).await,
            RunEvent::Lost(detail) => terminal::say(&format!("no answer, trying again: {detail}")),
            RunEvent::Back => terminal::say("the server answers again"),
            _ => {}
        }
    }
}

/// Waits forever where there is no way yet, so that `select!` has one shape.
async fn next(port_forward: Option<&mut PortForward>) -> ForwardEvent {
    match port_forward {
        Some(port_forward) => port_forward.next().await,
        None => std::future::pending().await,
    }
}

fn say_how_to_come_back(job: &JobRef) {
    let (name, flag) = (&job.name, job.namespace_flag());
    terminal::say(&format!("notebook {name} goes on; jobctl notebook {name}{flag} comes back to it"));
    terminal::say(&format!("next:  jobctl cancel {name}{flag}, if it shall end"));
}
