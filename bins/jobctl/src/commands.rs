//! From a parsed command line to its verb.

mod cancel;
mod get;
mod list;
mod logs;
mod run;
mod shard;
mod submit;
mod wait;
mod why;
mod work;

use std::future::Future;

use anyhow::Context;
use pumice_jobs::target::{self, Flags, Target, TargetError};
use pumice_jobs::{Connection, Exit};
use tokio::runtime::Runtime;

use crate::args::{Cli, Command, Global};
use crate::environment::{self, Surroundings};
use crate::failure::Failure;

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
        matches!(self.target(), Ok(Target::Local { .. }))
    }

    fn target(&self) -> Result<Target, TargetError> {
        let flags = Flags {
            kubeconfig: self.global.kubeconfig.clone(),
            context: self.global.context.clone(),
            data_dir: self.global.data_dir.clone(),
        };
        target::choose(&flags, &self.surroundings.target)
    }

    /// Runs a verb against the platform. The runtime starts here and not before.
    fn talk<F>(&self, verb: impl FnOnce(Connection) -> F) -> Result<Exit, Failure>
    where
        F: Future<Output = Result<Exit, Failure>>,
    {
        let target = self.target()?;
        let runtime = runtime()?;
        let outcome = runtime.block_on(async {
            let connection = Connection::open(target.clone(), self.global.namespace.as_deref()).await?;
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

/// Does what the command line says.
pub fn run(cli: Cli) -> Result<Exit, Failure> {
    let session = Session { global: cli.global, surroundings: environment::read() };
    match cli.command {
        Command::Run(args) => run::run(&session, &args),
        Command::Submit(args) => submit::run(&session, &args),
        Command::List(args) => list::run(&session, &args),
        Command::Get(args) => get::run(&session, &args),
        Command::Why(args) => why::run(&session, &args),
        Command::Logs(args) => logs::run(&session, &args),
        Command::Wait(args) => wait::run(&session, &args),
        Command::Cancel(args) => cancel::run(&session, &args),
        Command::Shard(args) => shard::run(&args.command),
    }
}
