//! Flags of `pumice reserve` and `pumice node drain`.

use clap::{Args, Subcommand};
use pumice_vcctl::reservation::Wanted;

use super::vcctl::{ApiFlags, NameAndOutput, Output};

/// Flags of `pumice reserve`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct ReserveArgs {
    #[command(flatten)]
    pub api: ApiFlags,
    #[command(subcommand)]
    pub verb: Option<Verb>,
    #[command(flatten)]
    pub make: MakeArgs,
}

/// What else is done with reservations.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List reservations
    List {
        #[command(flatten)]
        output: Output,
    },
    /// Show one, and which of its nodes are not there
    Show(NameAndOutput),
    /// End one: its nodes are everybody's again
    Delete(NameAndOutput),
}

/// A reservation to be made.
#[derive(Debug, Args)]
pub struct MakeArgs {
    /// Its name
    #[arg(value_name = "NAME", required = true)]
    name: Option<String>,
    /// Nodes by name, separated by commas; such as will join count, too
    #[arg(long, value_name = "NODES", value_delimiter = ',')]
    nodes: Vec<String>,
    /// Nodes by labels, such as rack=a,gpu=h100; all must hold
    #[arg(long, value_name = "LABELS", value_delimiter = ',')]
    selector: Vec<String>,
    /// When it begins: RFC 3339, or from now on, such as +2h [default: now]
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// When it is over, likewise [default: when it is deleted]
    #[arg(long, value_name = "TIME", conflicts_with = "long")]
    to: Option<String>,
    /// Or how long it takes, such as 90m
    #[arg(long = "for", value_name = "DURATION")]
    long: Option<String>,
    /// Queues whose jobs may use the nodes meanwhile; without these and --namespace nobody may
    #[arg(long = "queue", value_name = "QUEUES", value_delimiter = ',')]
    queues: Vec<String>,
    /// Namespaces whose jobs may
    #[arg(long = "namespace", value_name = "NAMESPACES", value_delimiter = ',')]
    namespaces: Vec<String>,
    /// Why, for people
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
    #[command(flatten)]
    pub output: Output,
}

impl MakeArgs {
    /// What is asked for.
    pub fn wanted(&self) -> Wanted {
        Wanted {
            name: self.name.clone().unwrap_or_default(),
            nodes: self.nodes.clone(),
            selector: self.selector.clone(),
            from: self.from.clone(),
            to: self.to.clone(),
            long: self.long.clone(),
            queues: self.queues.clone(),
            namespaces: self.namespaces.clone(),
            reason: self.reason.clone(),
        }
    }
}

/// Flags of `pumice node drain`.
#[derive(Debug, Args)]
pub struct DrainArgs {
    #[command(flatten)]
    pub api: ApiFlags,
    /// The node
    #[arg(value_name = "NODE")]
    node: String,
    /// When it has to be empty: RFC 3339, or from now on, such as +2h [default: now]
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
    /// How long it takes no pods then, such as 90m [default: until pumice node undrain]
    #[arg(long = "for", value_name = "DURATION")]
    long: Option<String>,
    /// Why, for people
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
    #[command(flatten)]
    pub output: Output,
}

impl DrainArgs {
    /// What is asked for.
    pub fn wanted(&self) -> Wanted {
        Wanted::drain(&self.node, self.at.clone(), self.long.clone(), self.reason.clone())
    }
}
