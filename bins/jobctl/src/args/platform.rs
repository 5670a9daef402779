//! Flags of the verbs about the platform: `top`, `usage`, `queue`, `node`, `context`, `completion`, `version`, `whoami`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use pumice_units::Quantity;

use super::Form;
use super::completion;

/// Flags of `top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// A job (its pods), `queue`, `node`, or nothing for the jobs of the namespace; job/queue is a job called queue
    #[arg(value_name = "JOB|queue|node", add = completion::jobs())]
    pub of: Option<String>,
    /// Rows at most
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub limit: usize,
    /// Form of what is printed
    #[arg(short, long, value_enum, default_value_t = Form::Table)]
    pub output: Form,
}

/// Flags of `usage`.
#[derive(Debug, Args)]
pub struct UsageArgs {
    /// What to sum up by
    #[arg(long, value_enum, default_value_t = UsageBy::Queue)]
    pub by: UsageBy,
    /// Form of what is printed
    #[arg(short, long, value_enum, default_value_t = Form::Table)]
    pub output: Form,
}

/// What usage is summed up by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum UsageBy {
    /// Queues, of all namespaces
    Queue,
    /// Namespaces
    Namespace,
    /// Jobs of the namespace
    Job,
}

/// What to do about queues.
#[derive(Debug, Subcommand)]
pub enum QueueCommand {
    /// List queues
    List(ListOutput),
    /// Show one queue
    Get(ShowOutput),
    /// Say whether a queue would take a job of this size
    Check(CheckArgs),
}

/// A form.
#[derive(Debug, Args)]
pub struct ListOutput {
    /// Form of what is printed
    #[arg(short, long, value_enum, default_value_t = Form::Table)]
    pub output: Form,
}

/// A name and a form.
#[derive(Debug, Args)]
pub struct ShowOutput {
    /// Name
    #[arg(add = completion::of_verb())]
    pub name: String,
    /// Form of what is printed
    #[arg(short, long, value_enum, default_value_t = Form::Table)]
    pub output: Form,
}

fn memory(text: &str) -> Result<Quantity, String> {
    pumice_jobs::render::parse_memory(text).map_err(|problem| format!("it {problem}"))
}

/// Flags of `queue check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The queue
    #[arg(add = completion::queues())]
    pub name: String,
    /// CPU of each pod
    #[arg(long, value_name = "QUANTITY")]
    pub cpu: Option<Quantity>,
    /// Memory of each pod
    #[arg(long, value_name = "QUANTITY", value_parser = memory)]
    pub memory: Option<Quantity>,
    /// Pods
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub pods: u32,
    /// Form of what is printed
    #[arg(short, long, value_enum, default_value_t = Form::Table)]
    pub output: Form,
}

/// What to do about nodes.
#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// List nodes
    List(ListOutput),
    /// Show one node
    Get(ShowOutput),
    /// Let no more pods onto a node; those there stay
    Cordon {
        /// Name
        #[arg(add = completion::of_verb())]
        name: String,
    },
    /// Let pods onto it again
    Uncordon {
        /// Name
        #[arg(add = completion::of_verb())]
        name: String,
    },
}

/// A platform and its name.
#[derive(Debug, Args)]
pub struct ContextAddArgs {
    /// Its name
    pub name: String,
    /// A context in the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME", conflicts_with = "fleet")]
    pub kube_context: Option<String>,
    /// Address of a fleet's server, such as https://fleet.example.com:50051
    #[arg(long, value_name = "URL", requires = "identity", conflicts_with_all = ["kubeconfig", "data_dir"])]
    pub fleet: Option<String>,
    /// Who you are to the fleet: a file that its administrator made by pumice fleet identity
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "fleet")]
    pub identity: Option<PathBuf>,
    /// Queue of the fleet for jobs that name none [default: default]
    #[arg(long, value_name = "NAME", requires = "fleet")]
    pub queue: Option<String>,
}

/// What to do about contexts.
#[derive(Debug, Subcommand)]
pub enum ContextCommand {
    /// List the platforms that have a name
    List(ListOutput),
    /// Use a context from now on; without a name, none: the pumice up of this machine
    Use {
        /// Its name
        #[arg(add = completion::contexts())]
        name: Option<String>,
    },
    /// Show a context, by default the one in use
    Show {
        /// Its name
        #[arg(add = completion::contexts())]
        name: Option<String>,
    },
    /// Name a platform: what --kubeconfig, --data-dir, --namespace say, under this name; or a fleet
    Add(ContextAddArgs),
    /// Forget a context
    Remove {
        /// Its name
        #[arg(add = completion::contexts())]
        name: String,
    },
}

/// Flags of `version`.
#[derive(Debug, Args)]
pub struct VersionArgs {
    /// Don't ask the platform
    #[arg(long)]
    pub client: bool,
    /// Form of what is printed
    #[arg(short, long, value_enum, default_value_t = Form::Table)]
    pub output: Form,
}

/// Flags of `whoami`.
#[derive(Debug, Args)]
pub struct WhoamiArgs {
    /// Form of what is printed
    #[arg(short, long, value_enum, default_value_t = Form::Table)]
    pub output: Form,
}
