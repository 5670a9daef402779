//! The flags that every verb has, and the connection that they lead to.
//!
//! *Invariant*: the runtime starts when a verb is run against the platform, and not before; nothing is sent before that.
//! *Called by*: all verbs, and by what completes names.

use std::ffi::OsStr;
use std::future::Future;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use pumice_jobs::platform::target::{Flags, Target};
use pumice_jobs::platform::{autostart, contexts, expiry};
use pumice_jobs::{Connection, Error, Exit};
use tokio::runtime::Runtime;

use super::completion;
use crate::environment::{self, Surroundings};
use crate::failure::Failure;
use crate::terminal;

/// What Kubernetes tells its pods, and nobody else has.
const CLUSTER_VARIABLE: &str = "KUBERNETES_SERVICE_HOST";

/// Which platform, which namespace.
#[derive(Debug, Args)]
#[command(next_help_heading = "Where")]
pub struct Global {
    /// Namespace of the job
    #[arg(short, long, global = true, value_name = "NAME", add = completion::namespaces())]
    pub namespace: Option<String>,
    /// Name of a context, of jobctl or in the kubeconfig, or the path of a kubeconfig [default: $PUMICE_CONTEXT, else the running pumice up, else this machine's socket]
    #[arg(long, global = true, value_name = "PATH|NAME", add = completion::contexts())]
    pub context: Option<String>,
    /// Kubeconfig to use
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Data directory of the pumice up to talk to [default: $PUMICE_DATA_DIR, else the user's]
    #[arg(long, global = true, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// No progress on standard error
    #[arg(long, global = true)]
    pub no_progress: bool,
}

impl Global {
    /// The flags that name the platform, for another command that is to talk to it.
    pub fn platform_flags(&self) -> Vec<&OsStr> {
        let flags = [
            ("--kubeconfig", self.kubeconfig.as_ref().map(|path| path.as_os_str())),
            ("--context", self.context.as_ref().map(OsStr::new)),
            ("--data-dir", self.data_dir.as_ref().map(|path| path.as_os_str())),
        ];
        let given = flags.into_iter().filter_map(|(flag, value)| Some([OsStr::new(flag), value?]));
        given.flatten().collect()
    }
}

/// What every verb gets.
pub struct Session {
    /// The flags that all verbs share.
    pub global: Global,
    pub surroundings: Surroundings,
}

impl Session {
    /// Whether the platform is one that runs on this machine.
    pub fn is_local(&self) -> bool {
        matches!(self.target(), Ok((Target::Local { .. } | Target::Socket(_), _)))
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
    pub fn target(&self) -> Result<(Target, Option<String>), Error> {
        let flags = Flags {
            kubeconfig: self.global.kubeconfig.clone(),
            context: self.global.context.clone(),
            data_dir: self.global.data_dir.clone(),
            fleet: None,
        };
        contexts::resolve(flags, &self.surroundings.target)
    }

    /// The namespace that commands work in. Nothing is sent, unless the platform is the one that users of this machine share.
    pub fn namespace(&self) -> Result<String, Failure> {
        let (target, namespace) = self.target()?;
        match self.global.namespace.clone().or(namespace) {
            Some(namespace) => Ok(namespace),
            None => Ok(runtime()?.block_on(Connection::namespace_of(&target))?),
        }
    }

    /// Brings up the platform of this machine where none was named and none runs, and says so. For what brings work.
    pub fn bring_up(&self) -> Result<(), Failure> {
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
    pub async fn of_this_pod(&self) -> Result<Connection, Error> {
        let Global { kubeconfig, context, data_dir, .. } = &self.global;
        let named = kubeconfig.is_some() || context.is_some() || data_dir.is_some();
        if !named && environment::variable(CLUSTER_VARIABLE).is_some() {
            return Ok(Connection::of_this_pod()?);
        }
        Ok(Connection::open(self.target()?.0, None).await?)
    }

    /// Runs a verb that takes Ctrl-C for a wish to stop waiting. A second one ends it at once.
    pub fn attend<F>(&self, verb: impl FnOnce(Connection) -> F) -> Result<Exit, Failure>
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
            let notice = connection.certificate_until().and_then(|until| expiry::notice(until, terminal::now()));
            if let Some(notice) = notice {
                terminal::say(&format!("jobctl: {notice}"));
            }
            verb(connection).await
        });
        // Open watches must not keep the process.
        runtime.shutdown_background();
        outcome.map_err(|failure| failure.about(&target))
    }
}

/// A runtime of one thread, for what waits.
pub fn runtime() -> Result<Runtime, Failure> {
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
