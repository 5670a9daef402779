//! The command line of `jobctl`.

mod job;
mod shard;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use pumice_jobs::select::Selector;

pub use job::{Gang, JobArgs, Work};
pub use shard::{ShardArgs, ShardCommand};

/// Submit jobs, watch them, and get their results.
#[derive(Debug, Parser)]
#[command(name = "jobctl", version, arg_required_else_help = true, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 success, 1 job failed, 2 wrong use, 3 not found, 4 denied, 5 server unreachable \
(try again), 6 conflict, 7 job cancelled, 8 timed out waiting, 9 partly succeeded, 130 interrupted; \
`run`: the job's own code, 128+signal when killed";

/// Which platform, which namespace.
#[derive(Debug, Args)]
#[command(next_help_heading = "Where")]
pub struct Global {
    /// Namespace of the job
    #[arg(short, long, global = true, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Path of a kubeconfig, or a context's name in it [default: $PUMICE_CONTEXT, else the running pumice up]
    #[arg(long, global = true, value_name = "PATH|NAME")]
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
    /// Show one job
    Get(OneJob),
    /// Say why a job waits
    Why(OneJob),
    /// Print what a job's pods wrote
    Logs(LogsArgs),
    /// Wait until a job ends
    Wait(WaitArgs),
    /// End a job
    Cancel(CancelArgs),
    /// In a pod of a job with shards: run, show or name the records of this pod
    Shard(ShardArgs),
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

/// Flags of `list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Jobs of all namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// Only jobs with these labels, such as team=a,stage!=test
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub selector: Option<String>,
    /// Form of what is printed
    #[arg(short, long, value_enum, default_value_t = Form::Table)]
    pub output: Form,
}

/// One job and a form.
#[derive(Debug, Args)]
pub struct OneJob {
    /// Name, job/NAME, or `last` for the newest
    pub job: Selector,
    /// Form of what is printed
    #[arg(short, long, value_enum, default_value_t = Form::Table)]
    pub output: Form,
}

/// Flags of `logs`.
#[derive(Debug, Args)]
pub struct LogsArgs {
    /// Name, job/NAME, or `last` for the newest
    pub job: Selector,
    /// Go on until the job ends
    #[arg(short, long)]
    pub follow: bool,
    /// Only the last lines of each pod
    #[arg(long, value_name = "LINES")]
    pub tail: Option<u32>,
    /// Only this pod
    #[arg(long)]
    pub pod: Option<String>,
    /// Only this container
    #[arg(short, long)]
    pub container: Option<String>,
    /// Begin lines with the pod's name [default: with more than one pod]
    #[arg(long)]
    pub prefix: Option<bool>,
}

/// Flags of `wait`.
#[derive(Debug, Args)]
pub struct WaitArgs {
    /// Names, job/NAME, or `last` for the newest
    #[arg(required = true)]
    pub jobs: Vec<Selector>,
    /// Give up after this long, such as 90s, 10m or 1h30m
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub timeout: Option<Duration>,
}

/// Flags of `cancel`.
#[derive(Debug, Args)]
pub struct CancelArgs {
    /// Names, job/NAME, or `last` for the newest
    #[arg(required = true)]
    pub jobs: Vec<Selector>,
    /// Return at once
    #[arg(long)]
    pub no_wait: bool,
}

/// How data is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// For people
    Table,
    /// For people with wide screens
    Wide,
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// job/NAME
    Name,
}

/// A duration as Go writes it; a bare number is seconds.
fn duration(text: &str) -> Result<Duration, String> {
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
