//! The command line of `jobctl`.

use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use pumice_jobs::exit_code;

mod change;
pub mod completion;
mod debug;
mod history;
mod job;
mod jobs;
mod list;
mod login;
mod logs;
mod platform;
mod results;
mod session;
mod shard;
mod shell;
mod wait;

pub use crate::output::Form;
pub use change::{ActArgs, Careful, DeleteArgs, RetryArgs};
pub use debug::DebugArgs;
pub use history::{HistoryArgs, HistoryForm};
pub use job::{Gang, JobArgs, Work};
pub use jobs::{JobsArgs, OneJob, SeveralJobs};
pub use list::{ListArgs, ListForm};
pub use login::{LoginArgs, LogoutArgs};
pub use logs::LogsArgs;
pub use platform::{
    CheckArgs, ContextAddArgs, ContextCommand, ListOutput, NodeCommand, QueueCommand, TopArgs, UsageArgs, UsageBy,
    VersionArgs, WhoamiArgs,
};
pub use results::{ResultsArgs, ResultsForm};
pub use session::{Global, Session, runtime};
pub use shard::{ShardArgs, ShardCommand};
pub use shell::{NotebookArgs, ShellArgs, WhichPod};
pub use wait::{ProgressArgs, ProgressForm, WaitArgs, WatchArgs};

/// Submit jobs, watch them, and get their results.
#[derive(Debug, Parser)]
#[command(name = "jobctl", version, arg_required_else_help = true, after_help = exit_code::SUMMARY)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Submit, show output and progress, end with the job's exit code
    Run(RunArgs),
    /// Submit and return at once; prints job/NAME
    Submit(SubmitArgs),
    /// List jobs
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Show jobs
    Get(SeveralJobs),
    /// Show what became of jobs, also of those that are gone
    History(HistoryArgs),
    /// Say why a job waits
    Why(OneJob),
    /// Print what a job's pods wrote
    Logs(LogsArgs),
    /// Show what came of each record of a job
    Results(ResultsArgs),
    /// Wait until jobs end
    Wait(WaitArgs),
    /// Show how far jobs are
    Progress(ProgressArgs),
    /// End jobs for good
    Cancel(ActArgs),
    /// End the pods of jobs until they are resumed
    Suspend(ActArgs),
    /// Let suspended jobs go on
    Resume(ActArgs),
    /// Remove jobs that have ended, with their pods and logs
    Delete(DeleteArgs),
    /// Submit ended jobs anew, under new names; prints job/NAME
    Retry(RetryArgs),
    /// Show what failed in a pod, or run its command here
    Debug(DebugArgs),
    /// Open a terminal in a new job, or in a running pod of one
    Shell(ShellArgs),
    /// Work in a Jupyter notebook in a new job, or come back to one
    Notebook(NotebookArgs),
    /// Show all jobs live
    #[command(visible_alias = "ui")]
    Watch(WatchArgs),
    /// Show what running pods ask for and use
    Top(TopArgs),
    /// Show what running pods hold, by queue, namespace or job
    Usage(UsageArgs),
    /// List queues, show one, ask whether it would take a job
    #[command(subcommand)]
    Queue(QueueCommand),
    /// List nodes, show one, let it take pods or not
    #[command(subcommand)]
    Node(NodeCommand),
    /// Name platforms and choose among them
    #[command(subcommand)]
    Context(ContextCommand),
    /// Log in to a platform by its address, and use it from now on
    Login(LoginArgs),
    /// End a login, here and where it was made
    Logout(LogoutArgs),
    /// Print the token of a login; called by kubectl
    #[command(hide = true)]
    Credential {
        /// The login's file
        session: std::path::PathBuf,
    },
    /// Say who you are to the platform, and what your pods are
    Whoami(WhoamiArgs),
    /// Print the completion script of a shell
    Completion {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the versions of this program and of the platform
    Version(VersionArgs),
    /// In a pod of a job with shards: run, show or name the records of this pod
    Shard(ShardArgs),
}

impl Command {
    /// The verb whose help tells of the flags of a job.
    pub fn taking_flags(&self) -> &'static str {
        match self {
            Command::Submit(_) => "submit",
            Command::Shell(_) => "shell",
            Command::Notebook(_) => "notebook",
            _ => "run",
        }
    }
}

/// Flags of `run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Don't print what the pods write
    #[arg(long)]
    pub no_logs: bool,
    /// Form of what --dry-run prints
    #[arg(short, long, value_enum, default_value_t = Form::Yaml, requires = "dry_run")]
    pub output: Form,
    #[command(flatten)]
    pub work: Work,
}

/// Flags of `submit`.
#[derive(Debug, Args)]
pub struct SubmitArgs {
    #[command(flatten)]
    pub work: Work,
    /// Form of what is printed
    #[arg(short, long, value_enum, default_value_t = Form::Name)]
    pub output: Form,
}

/// A duration as Go writes it; a bare number is seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let text = if text.bytes().all(|b| b.is_ascii_digit()) { format!("{text}s") } else { text.to_owned() };
    let parsed: pumice_units::GoDuration = text.parse().map_err(|error| format!("{error}"))?;
    let millis = u64::try_from(parsed.as_millis()).map_err(|_| "it is negative".to_owned())?;
    Ok(Duration::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    fn parse(args: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from([&["jobctl"], args].concat())
    }

    #[test]
    fn everyday_command_lines() {
        for args in [
            &["run", "--", "true"][..],
            &["run", "-f", "job.yaml"],
            &["run", "-f", "-", "-n", "team"],
            &["run", "--name", "x", "--replicas", "3", "--cpu", "500m", "--env", "A=1", "--", "sh", "-c", "exit 7"],
            &["submit", "--name", "long", "-o", "name", "--", "sleep", "1000"],
            &["list", "-A", "-o", "wide"],
            &["get", "last", "-o", "yaml"],
            &["why", "job/x", "-o", "json"],
            &["logs", "-f", "last"],
            &["wait", "a", "b", "--timeout", "1h30m"],
            &["cancel", "a", "--no-wait"],
            &["submit", "train.sh", "--epochs", "3", "--", "x"],
            &["submit", "--array", "0-9%2", "--gang", "--", "true"],
            &["run", "--gang", "2", "--dry-run", "-o", "json", "--", "true"],
            &["shard", "exec", "--", "echo", "{key}"],
            &["shard", "list"],
            &["cancel", "sweep-*", "--dry-run"],
            &["suspend", "--all", "--yes"],
            &["resume", "-l", "team=a", "--state", "suspended"],
            &["list", "sweep-*", "--queue", "q", "--state", "running,failed", "--since", "2h", "--sort", "name"],
            &["list", "--me", "--limit", "10", "--columns", "name,ok,fail", "-o", "csv"],
            &["get", "a", "b"],
            &["history"],
            &["history", "last", "-o", "yaml"],
            &["history", "train", "--uid", "u-1"],
            &[
                "history",
                "sweep-*",
                "-A",
                "--state",
                "failed,deleted",
                "--since",
                "7d",
                "--until",
                "2026-01-31",
                "-o",
                "csv",
            ],
            &["history", "--me", "--group-by", "day", "-o", "parquet", "--file", "days.parquet"],
            &["progress", "last", "--follow", "-o", "json"],
            &["retry", "sweep-*", "--failed", "--dry-run"],
            &["debug", "last", "--shard", "3", "--run"],
            &["shell", "--cpu", "2", "--image", "python:3.13", "--", "python"],
            &["shell", "--keep", "--timeout", "1h"],
            &["shell", "job/x", "--task", "main", "--index", "3", "-c", "main", "--", "ls", "-l"],
            &["shell", "last", "--pod", "x-main-0"],
            &["notebook", "--memory", "4Gi", "--port", "9000"],
            &["notebook", "last", "--port", "0"],
            &["watch", "-A"],
            &["ui"],
            &["results", "last", "--failed", "--missing", "-o", "keys"],
            &["results", "job/x", "--save", "results"],
            &["top"],
            &["top", "node", "-o", "json"],
            &["usage", "--by", "job"],
            &["queue", "check", "q", "--cpu", "500m", "--memory", "4Gi", "--pods", "100"],
            &["node", "cordon", "n"],
            &["context", "add", "east", "--kubeconfig", "/k", "-n", "team"],
            &["context", "add", "grid", "--fleet", "https://h:1", "--identity", "ada.pem", "--queue", "research"],
            &["context", "use"],
            &["completion", "zsh"],
            &["login", "https://farm:6440", "--fingerprint", "SHA256:x", "--device", "-n", "ann"],
            &["login", "farm:6440", "--ca", "ca.pem", "--no-browser", "--name", "farm"],
            &["login", "farm:6440", "--user", "ann"],
            &["logout"],
            &["version", "--client", "-o", "json"],
            &["whoami"],
            &["whoami", "-o", "json"],
        ] {
            parse(args).unwrap_or_else(|error| panic!("{args:?}: {error}"));
        }
    }

    #[test]
    fn wrong_command_lines_are_refused() {
        for args in [
            &["run", "-f", "job.yaml", "--", "true"][..],
            &["run", "-f", "job.yaml", "--name", "x"],
            &["get"],
            &["get", "A_B"],
            &["wait", "a", "--timeout", "soon"],
            &["list", "-o", "xml"],
            &["list", "--columns", "name,shoe-size"],
            &["list", "--state", "frozen"],
            &["list", "--me", "--user", "ada"],
            &["history", "-o", "parquet"],
            &["history", "--since", "yesterday"],
            &["history", "--group-by", "colour"],
            &["history", "--uid", "u"],
            &["cancel"],
            &["cancel", "a", "--all"],
            &["why", "a", "b"],
            &["queue", "check", "q", "--cpu", "lots"],
            &["queue", "check", "q", "--memory", "4000"],
            &["run", "--mem", "4000", "--memory", "1Gi", "--", "true"],
            &["completion", "tcsh"],
            &["debug", "last", "--run", "-o", "json"],
            &["results", "a", "--save", "x", "-o", "csv"],
            &["shell", "x", "--cpu", "2"],
            &["shell", "x", "--keep"],
            &["notebook", "x", "--cpu", "2"],
            &["notebook", "--port", "70000"],
            &["context", "add", "grid", "--fleet", "https://h:1"],
            &["context", "add", "grid", "--fleet", "https://h:1", "--identity", "ada.pem", "--kubeconfig", "/k"],
            &["shell", "--index", "3"],
            &["shell", "x", "--pod", "x-main-0", "--index", "3"],
            &["login"],
            &["login", "https://farm:6440", "--fingerprint", "SHA256:x", "--ca", "ca.pem"],
            &["login", "https://farm:6440", "--device", "--no-browser"],
            &["login", "https://farm:6440", "--device", "--user", "ann"],
            &["frobnicate"],
        ] {
            let error = parse(args).err().unwrap_or_else(|| panic!("{args:?} was accepted"));
            assert_eq!(error.exit_code(), 2, "{args:?}");
        }
    }

    #[test]
    fn durations() {
        for (text, millis) in [("90", 90_000), ("90s", 90_000), ("1h30m", 5_400_000), ("250ms", 250)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for bad in ["", "x", "-1s", "1"] {
            assert_eq!(duration(bad).is_ok(), bad == "1", "{bad}");
        }
    }
}
