//! From a parsed command line to its verb.

mod act;
mod attended;
mod careful;
mod context;
mod debug;
mod delete;
mod get;
mod history;
mod interactive;
mod list;
mod logs;
mod node;
mod notebook;
mod progress;
mod queue;
mod results;
mod retry;
mod run;
mod session;
mod shard;
mod shell;
mod stdin;
mod submit;
mod top;
mod version;
mod wait;
mod watch;
mod why;
mod work;

use std::future::Future;
use std::path::Path;

use anyhow::Context;
use pumice_jobs::lifecycle::DesiredState;
use pumice_jobs::platform::target::{Flags, Target};
use pumice_jobs::platform::{autostart, contexts};
use pumice_jobs::{Connection, Error, Exit};
use tokio::runtime::Runtime;

use crate::args::{Cli, Command, Global};
use crate::environment::{self, Surroundings};
use crate::failure::Failure;
use crate::terminal;

/// What Kubernetes tells its pods, and nobody else has.
const CLUSTER_VARIABLE: &str = "KUBERNETES_SERVICE_HOST";

/// What every verb gets.
pub struct Session {
    /// The flags that all verbs share.
    pub global: Global,
    /// The environment.
    pub surroundings: Surroundings,
}

impl Session {
    /// Whether the platform is the one that runs on this machine.
    pub fn is_local(&self) -> bool {
        matches!(self.target(), Ok((Target::Local { .. }, _)))
    }

    /// Whether a platform was named that is not the one of this machine.
    pub fn is_elsewhere(&self) -> bool {
        matches!(self.target(), Ok((Target::Kubeconfig { .. }, _)))
    }

    /// Whether a fleet was named.
    pub fn is_of_a_fleet(&self) -> bool {
        matches!(self.target(), Ok((Target::Fleet(_), _)))
    }

    /// The platform, and the namespace of commands that name none.
    fn target(&self) -> Result<(Target, Option<String>), Error> {
        let flags = Flags {
            kubeconfig: self.global.kubeconfig.clone(),
            context: self.global.context.clone(),
            data_dir: self.global.data_dir.clone(),
            fleet: None,
        };
        contexts::resolve(flags, &self.surroundings.target)
    }

    /// The namespace that commands work in. Nothing is sent.
    fn namespace(&self) -> Result<String, Failure> {
        let (target, namespace) = self.target()?;
        match self.global.namespace.clone().or(namespace) {
            Some(namespace) => Ok(namespace),
            None => Ok(runtime()?.block_on(Connection::namespace_of(&target))?),
        }
    }

    /// Brings up the platform of this machine where none was named and none runs, and says so. For what brings work.
    fn bring_up(&self) -> Result<(), Failure> {
        let (target, _) = self.target()?;
        let program = std::env::current_exe().ok();
        let beside = program.as_deref().and_then(Path::parent);
        if let Some(started) = autostart::ensure(&target, &self.surroundings.target, beside)? {
            terminal::say(&started);
        }
        Ok(())
    }

    /// A way to the platform that this process is a pod of: by its token, if no flag names another way. Who tries a pod's command
    /// by hand is no pod of a cluster, and gets what every verb gets.
    async fn of_this_pod(&self) -> Result<Connection, Error> {
        let Global { kubeconfig, context, data_dir, .. } = &self.global;
        let named = kubeconfig.is_some() || context.is_some() || data_dir.is_some();
        if !named && environment::variable(CLUSTER_VARIABLE).is_some() {
            return Ok(Connection::of_this_pod()?);
        }
        Ok(Connection::open(self.target()?.0, None).await?)
    }

    /// Runs a verb that takes Ctrl-C for a wish to stop waiting. A second one ends it at once.
    fn attend<F>(&self, verb: impl FnOnce(Connection) -> F) -> Result<Exit, Failure>
    where
        F: Future<Output = Result<Exit, Failure>>,
    {
        self.talk(|connection| async move {
            tokio::select! {
                biased;
                outcome = verb(connection) => outcome,
                () = interrupted_twice() => Ok(Exit::Interrupted),
            }
        })
    }

    /// Runs a verb against the platform. The runtime starts here and not before.
    pub fn talk<F>(&self, verb: impl FnOnce(Connection) -> F) -> Result<Exit, Failure>
    where
        F: Future<Output = Result<Exit, Failure>>,
    {
        let (target, namespace) = self.target()?;
        let namespace = self.global.namespace.clone().or(namespace);
        let runtime = runtime()?;
        let outcome = runtime.block_on(async {
            let connection = Connection::open(target.clone(), namespace.as_deref()).await?;
            verb(connection).await
        });
        // Open watches must not keep the process.
        runtime.shutdown_background();
        outcome.map_err(|failure| failure.about(&target))
    }
}

/// A runtime of one thread, for what waits.
fn runtime() -> Result<Runtime, Failure> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.context("cannot start the runtime").map_err(Failure::Machine)
}

async fn interrupted_twice() {
    for _ in 0..2 {
        if tokio::signal::ctrl_c().await.is_err() {
            // No handler could be set: the system ends the process at the first one.
            std::future::pending::<()>().await;
        }
    }
}

/// Why a verb can't be used with a fleet, and what to type instead. Known before anything is sent: some would submit a job first.
fn not_of_a_fleet(command: &Command) -> Option<(&'static str, &'static str)> {
    match command {
        Command::Shell(_) => Some(("a fleet opens no terminals in pods", "jobctl run --help")),
        Command::Notebook(_) => Some(("a fleet opens no notebooks in pods", "jobctl context use")),
        Command::Debug(_) => {
            Some(("the pods of a fleet are in clusters that are not reached from here", "jobctl get JOB"))
        }
        Command::Watch(_) => Some(("a fleet tells of one job at a time", "jobctl progress --follow JOB")),
        Command::Top(_) | Command::Usage(_) => Some(("a fleet does not measure what pods use", "jobctl list")),
        Command::Node(_) => Some(("the nodes of a fleet are its clusters' own", "jobctl context use")),
        Command::History(_) => Some(("a fleet keeps no history apart from its jobs", "jobctl list")),
        Command::Logs(args) if args.stream.is_some() => {
            Some(("a fleet does not tell a pod's standard error from its output", "jobctl logs JOB"))
        }
        Command::Logs(args) if args.previous || args.attempt.is_some() => {
            Some(("a fleet has the log of a pod's last try alone", "jobctl logs JOB"))
        }
        Command::Delete(_) => Some(("a fleet forgets ended jobs by itself, and deletes none", "jobctl cancel JOB")),
        Command::Suspend(_) | Command::Resume(_) => Some(("a fleet suspends no jobs", "jobctl cancel JOB")),
        _ => None,
    }
}

/// Does what the command line says.
pub fn run(cli: Cli) -> Result<Exit, Failure> {
    let session = Session { global: cli.global, surroundings: environment::read() };
    if let Some((message, next)) = not_of_a_fleet(&cli.command)
        && session.is_of_a_fleet()
    {
        return Err(Failure::Usage { message: message.to_owned(), next: next.to_owned() });
    }
    match cli.command {
        Command::Run(args) => run::run(&session, &args),
        Command::Submit(args) => submit::run(&session, &args),
        Command::List(args) => list::run(&session, &args),
        Command::Get(args) => get::run(&session, &args),
        Command::History(args) => history::run(&session, &args),
        Command::Why(args) => why::run(&session, &args),
        Command::Logs(args) => logs::run(&session, &args),
        Command::Results(args) => results::run(&session, &args),
        Command::Wait(args) => wait::run(&session, &args),
        Command::Shard(args) => shard::run(&session, &args.command),
        Command::Cancel(args) => act::run(&session, &args, DesiredState::Cancel),
        Command::Delete(args) => delete::run(&session, &args),
        Command::Progress(args) => progress::run(&session, &args),
        Command::Retry(args) => retry::run(&session, &args),
        Command::Debug(args) => debug::run(&session, &args),
        Command::Shell(args) => shell::run(&session, &args),
        Command::Notebook(args) => notebook::run(&session, &args),
        Command::Watch(args) => watch::run(&session, &args),
        Command::Top(args) => top::top(&session, &args),
        Command::Usage(args) => top::usage(&session, &args),
        Command::Queue(command) => queue::run(&session, &command),
        Command::Node(command) => node::run(&session, &command),
        Command::Context(command) => context::run(&session, &command),
        Command::Completion { shell } => version::completion(shell),
        Command::Version(args) => version::version(&session, &args),
        Command::Suspend(args) => act::run(&session, &args, DesiredState::Suspend),
        Command::Resume(args) => act::run(&session, &args, DesiredState::Resume),
    }
}
