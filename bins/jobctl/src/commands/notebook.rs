//! `jobctl notebook`: a Jupyter server in a pod, and a port of this machine that leads to it.
//!
//! Invariant: the notebook outlives this command, whatever ends it; its token is printed on standard output and nowhere else.

use std::time::Duration;

use pumice_jobs::interactive::choice::{self, Seat};
use pumice_jobs::interactive::notebook::{self, Address};
use pumice_jobs::interactive::route::{self, Door, News, Route};
use pumice_jobs::job::{JobRef, Selector};
use pumice_jobs::monitor::{Attendance, Happening};
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
    let door = route::listen(args.port).await?;
    let job = lookup::pick_one(&connection, job).await?;
    let seat = choice::find(&connection, &job, &shell::wish(&job, &args.pod)).await?;
    let found = async { Ok(notebook::find(&connection, &seat, FIND_MAX).await?) };
    serve(&connection, &seat, door, found).await
}

fn start(session: &Session, args: &NotebookArgs) -> Result<Exit, Failure> {
    let submission = interactive::submission(session, "notebook", &args.flags, notebook::start(), args.dry_run)?;
    if args.dry_run {
        return submission.print(Form::Yaml);
    }
    session.bring_up()?;
    session.attend(|connection| async move {
        // Before there is a job that nobody could reach.
        let door = route::listen(args.port).await?;
        let job = interactive::submit(session, &connection, &submission).await?;
        let seat = match interactive::running(session, &connection, &job).await? {
            Ok(seat) => seat,
            Err(exit) => return Ok(exit),
        };
        let found = async {
            match notebook::find(&connection, &seat, START_MAX).await {
                Ok(address) => Ok(address),
                Err(error) => {
                    // If its pod has ended, what the job says of that is the better answer.
                    tokio::time::sleep(END_GRACE).await;
                    Err(error.into())
                }
            }
        };
        serve(&connection, &seat, door, found).await
    })
}

/// Prints the URL once the server is found, and carries connections until Ctrl-C or the job's end.
async fn serve(
    connection: &Connection,
    seat: &Seat,
    door: Door,
    found: impl Future<Output = Result<Address, Failure>>,
) -> Result<Exit, Failure> {
    let mut attendance = Box::new(Attendance::new(connection.clone(), seat.job.clone(), None));
    let mut interrupt = std::pin::pin!(tokio::signal::ctrl_c());
    let mut found = std::pin::pin!(found);
    let (mut door, mut route) = (Some(door), None);
    loop {
        let happening = tokio::select! {
            biased;
            _ = &mut interrupt => {
                say_how_to_come_back(&seat.job);
                return Ok(Exit::Interrupted);
            }
            happening = attendance.next() => happening?,
            address = &mut found, if route.is_none() => {
                let address = address?;
                if let Some(door) = door.take() {
                    output::text(&format!("{}\n", address.url(door.port)))?;
                    terminal::say("Ctrl-C ends the way to the notebook and not the notebook");
                    route = Some(Route::new(connection.clone(), seat.clone(), address.port, door));
                }
                continue;
            }
            news = next(route.as_mut()) => {
                terminal::say(&match news {
                    News::Lost(trouble) => format!("the notebook can't be reached: {}", error::sentence(&trouble)),
                    News::Back => "the notebook can be reached again".to_owned(),
                });
                continue;
            }
        };
        match happening {
            Happening::Ended(ending) => return runs::conclude(connection, &seat.job, &ending, true).await,
            Happening::Lost(detail) => terminal::say(&format!("no answer, trying again: {detail}")),
            Happening::Back => terminal::say("the server answers again"),
            _ => {}
        }
    }
}

/// Waits forever where there is no way yet, so that `select!` has one shape.
async fn next(route: Option<&mut Route>) -> News {
    match route {
        Some(route) => route.next().await,
        None => std::future::pending().await,
    }
}

fn say_how_to_come_back(job: &JobRef) {
    let (name, flag) = (&job.name, job.namespace_flag());
    terminal::say(&format!("notebook {name} goes on; jobctl notebook {name}{flag} comes back to it"));
    terminal::say(&format!("next:  jobctl cancel {name}{flag}, if it shall end"));
}
