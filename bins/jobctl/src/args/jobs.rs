//! How jobs are named on the command line.

use clap::Args;
use pumice_jobs::job::Selector;
use pumice_jobs::job::state::State;
use pumice_jobs::lookup::JobFilter;

use super::Form;
use super::completion;

/// Several jobs.
#[derive(Debug, Args)]
#[command(next_help_heading = "Which jobs")]
pub struct JobsArgs {
    /// Names, job/NAME, patterns such as 'sweep-*', or `last` for the newest
    #[arg(value_name = "JOB", required_unless_present_any = ["all", "selector", "state", "of_queue"], add = completion::jobs())]
    pub jobs: Vec<Selector>,
    /// All of the namespace
    #[arg(long, conflicts_with = "jobs")]
    pub all: bool,
    /// Only those with these labels, such as team=a,stage!=test
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub selector: Option<String>,
    /// Only those in these states, such as running or failed,terminated; also active and ended
    #[arg(long, value_name = "STATE", value_delimiter = ',')]
    pub state: Vec<State>,
    /// Only those of this queue
    #[arg(long = "queue", id = "of_queue", value_name = "NAME", add = completion::queues())]
    pub queue: Option<String>,
}

impl JobsArgs {
    /// The same as a filter.
    pub fn filter(&self) -> JobFilter {
        JobFilter {
            selectors: self.jobs.clone(),
            states: self.state.clone(),
            queue: self.queue.clone(),
            labels: self.selector.clone(),
            user: None,
            since_s: None,
        }
    }
}

/// Several jobs and a form.
#[derive(Debug, Args)]
pub struct SeveralJobs {
    #[command(flatten)]
    pub jobs: JobsArgs,
    /// Form of what is printed
    #[arg(short, long, value_enum, default_value_t = Form::Table)]
    pub output: Form,
}

/// One job and a form.
#[derive(Debug, Args)]
pub struct OneJob {
    /// Name, job/NAME, a pattern that hits one, or `last` for the newest
    #[arg(add = completion::jobs())]
    pub job: Selector,
    /// Form of what is printed
    #[arg(short, long, value_enum, default_value_t = Form::Table)]
    pub output: Form,
}
