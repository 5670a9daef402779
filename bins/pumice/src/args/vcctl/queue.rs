//! Flags of `queue`. Here `-n` is the name: queues have no namespace.

use clap::{Args, Subcommand, ValueEnum};

use super::{NameAndOutput, Output};

/// The verbs of `queue`.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Make a queue
    Create(CreateArgs),
    /// List queues
    List {
        #[command(flatten)]
        output: Output,
    },
    /// Show one queue
    Get(QueueShown),
    /// Open or close a queue, or change its weight
    Operate(OperateArgs),
    /// Tell why its work waits, and who is next
    Why(NameAndOutput),
    /// Delete a queue
    Delete(QueueShown),
}

/// A queue.
#[derive(Debug, Args)]
pub struct QueueNamed {
    /// Name of the queue
    #[arg(short = 'n', long, default_value = "", hide_default_value = true)]
    pub name: String,
}

/// A queue and a form.
#[derive(Debug, Args)]
pub struct QueueShown {
    #[command(flatten)]
    pub queue: QueueNamed,
    #[command(flatten)]
    pub output: Output,
}

/// Flags of `queue create`.
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// Name of the queue
    #[arg(short = 'n', long, default_value = "test")]
    pub name: String,
    /// Its weight among its siblings
    #[arg(short = 'w', long, value_name = "N", default_value_t = 1)]
    pub weight: i32,
    /// Whether it takes jobs
    #[arg(short = 'S', long, value_enum, ignore_case = true, default_value_t = State::Open)]
    pub state: State,
    #[command(flatten)]
    pub output: Output,
}

/// Whether a queue takes jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum State {
    /// It takes jobs
    Open,
    /// It takes none
    Closed,
}

/// Flags of `queue operate`.
#[derive(Debug, Args)]
pub struct OperateArgs {
    #[command(flatten)]
    pub queue: QueueNamed,
    /// What to do
    #[arg(short = 'a', long, value_enum)]
    pub action: Action,
    /// The new weight, with `-a update`
    #[arg(short = 'w', long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub weight: i32,
    #[command(flatten)]
    pub output: Output,
}

/// What can be done to a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Action {
    /// It takes jobs again
    Open,
    /// It takes no more jobs
    Close,
    /// It gets another weight
    Update,
}
