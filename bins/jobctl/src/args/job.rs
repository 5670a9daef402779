//! What is to be done: a manifest, a command, or a script, and the flags that make a job of it.
//!
//! The same flags stand in the first lines of scripts; there each line is read by itself and [`JobArgs::over`] puts what is
//! nearer to the user on top.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, ValueHint};

use super::completion;

/// A job, by manifest, by flags and a command, or by a script.
#[derive(Debug, Args)]
pub struct Work {
    /// Manifest, YAML or JSON; `-` is standard input
    #[arg(short, long = "file", value_name = "FILE", conflicts_with_all = ["JobArgs", "argv", "script"])]
    pub files: Vec<PathBuf>,
    /// Print what would be submitted, and submit nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Script and its arguments; its first lines may have flags, as `#PUMICE --cpu 2` or `#SBATCH -c 2`
    #[arg(value_name = "SCRIPT", value_hint = ValueHint::AnyPath, allow_hyphen_values = true, conflicts_with = "argv")]
    pub script: Vec<String>,
    /// Program and arguments of each pod
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::AnyPath)]
    pub argv: Vec<String>,
    #[command(flatten)]
    pub flags: JobArgs,
}

/// A line of a script that has nothing but flags.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
pub struct ScriptLine {
    #[command(flatten)]
    flags: JobArgs,
}

/// A job by flags.
#[derive(Debug, Default, Clone, PartialEq, Args)]
#[group(id = "JobArgs", multiple = true)]
#[command(next_help_heading = "Job")]
pub struct JobArgs {
    /// Name [default: made of the program's]
    #[arg(long)]
    pub name: Option<String>,
    /// What the name begins with, the rest is made up
    #[arg(long, value_name = "STEM", conflicts_with = "name")]
    pub name_stem: Option<String>,
    /// Label of the job and its pods
    #[arg(long, value_name = "KEY=VALUE")]
    pub label: Vec<String>,
    /// Submitting the same again with this key gives the same job
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
    /// Queue [default: default]
    #[arg(long, add = completion::queues())]
    pub queue: Option<String>,
    /// Zone whose nodes may run it
    #[arg(long, add = completion::zones())]
    pub zone: Option<String>,
    /// Priority class
    #[arg(long, value_name = "NAME", alias = "priority-class", add = completion::priorities())]
    pub priority: Option<String>,
    /// When it is to have ended: it goes before others of yours, and you are warned when it will be late
    #[arg(long, value_name = "TIME")]
    pub deadline: Option<String>,
    /// Start after another job: ok:JOB, any:JOB or failed:JOB, several with commas
    #[arg(long, value_name = "WHEN:JOB")]
    pub after: Vec<String>,

    /// A pod for each number, such as 0-99, 0-99:5, 1,4,7-9; %10 at the end runs ten at a time
    #[arg(long, value_name = "A-B[:STEP][%N]", help_heading = "Shards")]
    pub array: Option<String>,
    /// A pod for each day from A to B, such as 2024-01-01:2024-12-31
    #[arg(long, value_name = "A:B", help_heading = "Shards")]
    pub days: Option<String>,
    /// Which days there are: weekdays, all, XNYS (the exchange), or a file of days [default: weekdays]
    #[arg(long, value_name = "NAME|FILE", value_hint = ValueHint::AnyPath, help_heading = "Shards")]
    pub calendar: Option<String>,
    /// Days of one pod, which runs them in turn [default: 1]
    #[arg(long, value_name = "N", help_heading = "Shards")]
    pub days_per_task: Option<u32>,
    /// One run for each week, month or year instead of each day
    #[arg(long, value_name = "week|month|year", help_heading = "Shards")]
    pub group: Option<String>,
    /// A pod for each row of a table, CSV with a header or JSON lines
    #[arg(long, value_name = "FILE", help_heading = "Shards")]
    pub params: Option<PathBuf>,
    /// Column of the table that names its rows [default: their content]
    #[arg(long, value_name = "COLUMN", help_heading = "Shards")]
    pub key: Option<String>,
    /// Rows of one pod, which runs them in turn [default: 1]
    #[arg(long, value_name = "N", help_heading = "Shards")]
    pub rows_per_task: Option<u32>,
    /// Folder that the pods see too, at the same path, for rows of a table and for results [default: on this machine one in the user's cache, else ConfigMaps]
    #[arg(long, value_name = "FOLDER", help_heading = "Shards")]
    pub bundle_dir: Option<PathBuf>,
    /// Don't record what comes of each run
    #[arg(long, help_heading = "Shards")]
    pub no_results: bool,

    /// Number of pods [default: 1]
    #[arg(long, value_name = "N", help_heading = "Pods")]
    pub replicas: Option<u32>,
    /// Pods that must be able to run together, all without a number [default: all; with shards or --max-parallel: 1]
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "all", value_parser = gang, help_heading = "Pods")]
    pub gang: Option<Gang>,
    /// The same as --gang N
    #[arg(long, value_name = "N", conflicts_with = "gang", help_heading = "Pods")]
    pub min_available: Option<u32>,
    /// The most pods at a time
    #[arg(long, value_name = "N", help_heading = "Pods")]
    pub max_parallel: Option<u32>,
    /// Successes that complete the job, such as 950 or 99%
    #[arg(long, value_name = "N|P%", help_heading = "Pods")]
    pub min_success: Option<String>,
    /// Run a failed pod again, at most N times; the others run on
    #[arg(long, value_name = "N", help_heading = "Pods")]
    pub retries: Option<u32>,
    /// Run the whole job again when a pod fails, at most N times in all
    #[arg(long, value_name = "N", help_heading = "Pods")]
    pub max_retry: Option<u32>,
    /// More memory for a pod that ran out of it: factor=1.5,max=64Gi,tries=3, or off
    #[arg(long, value_name = "RULE", help_heading = "Pods")]
    pub on_oom: Option<String>,
    /// End a pod that runs longer, such as 90s, 10m or 1h30m
    #[arg(long, value_name = "DURATION", value_parser = super::duration, help_heading = "Pods")]
    pub timeout: Option<Duration>,
    /// Signal before a pod is ended, and the seconds it has then [default: TERM@30]
    #[arg(long, value_name = "TERM@SECONDS", help_heading = "Pods")]
    pub signal: Option<String>,
    /// An evicted pod is made again, which is so anyway
    #[arg(long, help_heading = "Pods")]
    pub requeue: bool,

    /// CPU of each pod, such as 500m or 2
    #[arg(long, value_name = "QUANTITY", allow_hyphen_values = true, help_heading = "Pods")]
    pub cpu: Option<String>,
    /// Memory of each pod, such as 512Mi; more than that and it is killed
    #[arg(long, value_name = "QUANTITY", allow_hyphen_values = true, help_heading = "Pods")]
    pub memory: Option<String>,
    /// The same as Slurm writes it: 4000 are MiB, 4G are GiB
    #[arg(long, value_name = "AMOUNT", value_parser = slurm_memory, conflicts_with = "memory", help_heading = "Pods")]
    pub mem: Option<String>,
    /// GPUs of each pod
    #[arg(long, value_name = "N", help_heading = "Pods")]
    pub gpu: Option<u32>,
    /// Image [default: the host's own programs]
    #[arg(long, help_heading = "Pods")]
    pub image: Option<String>,
    /// Variable of the environment; `NAME` alone takes its value from here
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Pods")]
    pub env: Vec<String>,
    /// Directory or file of the node, or a claim, in the pod
    #[arg(long, value_name = "HOST:POD[:ro]|claim:NAME:POD[:ro]", help_heading = "Pods")]
    pub volume: Vec<String>,
    /// Working directory
    #[arg(long, value_name = "DIR", help_heading = "Pods")]
    pub workdir: Option<PathBuf>,
}

/// Slurm's memory as a quantity.
fn slurm_memory(text: &str) -> Result<String, String> {
    let mebibytes = pumice_jobs::script::amounts::mebibytes(text).map_err(|problem| format!("it {problem}"))?;
    Ok(format!("{mebibytes}Mi"))
}

/// How many pods must be able to run together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gang {
    /// All of the job.
    All,
    Of(u32),
}

fn gang(text: &str) -> Result<Gang, String> {
    match text {
        "all" => Ok(Gang::All),
        number => number.parse().map(Gang::Of).map_err(|_| {
            "not a number of pods; for all of them write --gang before another flag or before --".to_owned()
        }),
    }
}

impl JobArgs {
    /// Reads the flags of one line of a script; the error is one sentence.
    pub fn of_line(words: &[String]) -> Result<JobArgs, String> {
        ScriptLine::try_parse_from(words).map(|line| line.flags).map_err(|error| {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            first.strip_prefix("error: ").unwrap_or(first).to_owned()
        })
    }

    /// These flags, and where they say nothing those of `under`. Lists are joined; what tells the pods of a job apart, and
    /// its name, are taken whole from one of the two.
    #[must_use]
    pub fn over(self, under: JobArgs) -> JobArgs {
        let sharded = self.array.is_some() || self.days.is_some() || self.params.is_some() || self.replicas.is_some();
        let named = self.name.is_some() || self.name_stem.is_some() || self.idempotency_key.is_some();
        let sized = self.memory.is_some() || self.mem.is_some();
        let ganged = self.gang.is_some() || self.min_available.is_some();
        JobArgs {
            name: self.name.or(only_if(!named, under.name)),
            name_stem: self.name_stem.or(only_if(!named, under.name_stem)),
            label: joined(under.label, self.label),
            idempotency_key: self.idempotency_key.or(only_if(!named, under.idempotency_key)),
            queue: self.queue.or(under.queue),
            zone: self.zone.or(under.zone),
            priority: self.priority.or(under.priority),
            deadline: self.deadline.or(under.deadline),
            after: joined(under.after, self.after),
            array: self.array.or(only_if(!sharded, under.array)),
            days: self.days.or(only_if(!sharded, under.days)),
            calendar: self.calendar.or(only_if(!sharded, under.calendar)),
            days_per_task: self.days_per_task.or(only_if(!sharded, under.days_per_task)),
            group: self.group.or(only_if(!sharded, under.group)),
            params: self.params.or(only_if(!sharded, under.params)),
            key: self.key.or(only_if(!sharded, under.key)),
            rows_per_task: self.rows_per_task.or(only_if(!sharded, under.rows_per_task)),
            bundle_dir: self.bundle_dir.or(under.bundle_dir),
            no_results: self.no_results || under.no_results,
            replicas: self.replicas.or(only_if(!sharded, under.replicas)),
            gang: self.gang.or(only_if(!ganged, under.gang)),
            min_available: self.min_available.or(only_if(!ganged, under.min_available)),
            max_parallel: self.max_parallel.or(under.max_parallel),
            min_success: self.min_success.or(under.min_success),
            retries: self.retries.or(only_if(self.max_retry.is_none(), under.retries)),
            max_retry: self.max_retry.or(only_if(self.retries.is_none(), under.max_retry)),
            on_oom: self.on_oom.or(under.on_oom),
            timeout: self.timeout.or(under.timeout),
            signal: self.signal.or(under.signal),
            requeue: self.requeue || under.requeue,
            cpu: self.cpu.or(under.cpu),
            memory: self.memory.or(only_if(!sized, under.memory)),
            mem: self.mem.or(only_if(!sized, under.mem)),
            gpu: self.gpu.or(under.gpu),
            image: self.image.or(under.image),
            env: joined(under.env, self.env),
            volume: joined(under.volume, self.volume),
            workdir: self.workdir.or(under.workdir),
        }
    }
}

/// The later wins where two say different things of one name.
fn joined(mut first: Vec<String>, then: Vec<String>) -> Vec<String> {
    first.extend(then);
    first
}

/// The value, where that is so.
fn only_if<T>(applies: bool, value: Option<T>) -> Option<T> {
    if applies { value } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> JobArgs {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        JobArgs::of_line(&words).unwrap()
    }

    #[test]
    fn what_is_nearer_to_the_user_wins() {
        for (near, far, wanted) in [
            ("--cpu 2", "--cpu 1 --memory 1Gi", "--cpu 2 --memory 1Gi"),
            ("", "--array 0-9%2 --requeue", "--array 0-9%2 --requeue"),
            ("--days 2024-01-01:2024-01-31", "--array 0-9", "--days 2024-01-01:2024-01-31"),
            ("--replicas 3", "--days 2024-01-01:2024-01-31 --group month", "--replicas 3"),
            ("--env A=2", "--env A=1 --env B=1", "--env A=1 --env B=1 --env A=2"),
            ("--name x", "--name-stem y", "--name x"),
            ("--name x", "--idempotency-key y", "--name x"),
            ("--min-available 2", "--gang", "--min-available 2"),
            ("--retries 2", "--max-retry 3", "--retries 2"),
            ("--timeout 1h", "--timeout 60", "--timeout 1h0m"),
            ("--mem 4000", "--memory 1Gi", "--mem 4000M"),
            ("--memory 1Gi", "--mem 4000", "--memory 1Gi"),
        ] {
            assert_eq!(line(near).over(line(far)), line(wanted), "{near} over {far}");
        }
    }

    #[test]
    fn a_line_that_is_wrong_says_so_in_a_sentence() {
        for (words, told) in [
            (["--frobnicate", "x"], "unexpected argument '--frobnicate' found"),
            (
                ["--mem", "1.5G"],
                "invalid value '1.5G' for '--mem <AMOUNT>': it is no amount of memory such as 4000 (MiB) or 4G",
            ),
            (["--replicas", "many"], "invalid value 'many' for '--replicas <N>': invalid digit found in string"),
            (
                ["--gang", "x.sh"],
                "invalid value 'x.sh' for '--gang [<N>]': not a number of pods; for all of them write --gang before another flag or before --",
            ),
        ] {
            assert_eq!(JobArgs::of_line(&words.map(str::to_owned)).unwrap_err(), told);
        }
    }
}
