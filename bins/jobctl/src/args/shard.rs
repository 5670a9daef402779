//! What a pod of a job with shards may ask.

use clap::{Args, Subcommand};

/// Flags of `shard`.
#[derive(Debug, Args)]
pub struct ShardArgs {
    /// What to do
    #[command(subcommand)]
    pub command: ShardCommand,
}

/// The verbs of `shard`.
#[derive(Debug, Subcommand)]
pub enum ShardCommand {
    /// Run a command for each record of this pod, in order
    Exec(ExecArgs),
    /// Print the variables of a record as lines for `eval`
    Env(OneRecord),
    /// Print the key of a record
    Key(OneRecord),
    /// Print the keys of this pod's records, a line each
    List,
}

/// Flags of `shard exec`.
#[derive(Debug, Args)]
pub struct ExecArgs {
    /// Program and arguments; `{key}` and the record's other names in braces are replaced
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub argv: Vec<String>,
}

/// Which record of this pod.
#[derive(Debug, Args)]
pub struct OneRecord {
    /// Place of the record among this pod's, from 0
    #[arg(value_name = "PLACE", default_value_t = 0)]
    pub position: u32,
}
