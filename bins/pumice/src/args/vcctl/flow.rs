//! Flags of `jobflow` and `jobtemplate`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{FromFile, Listed, Named, NamedAndOutput, Output};

/// The verbs of both groups.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Make the objects of a file
    Create(FromFile),
    /// List them
    List(Listed),
    /// Show one
    Get(NamedAndOutput),
    /// Print one, or all of a namespace, whole
    Describe(NamedAndOutput),
    /// Delete one, or those of a file
    Delete(DeleteArgs),
}

/// Flags of `delete`.
#[derive(Debug, Args)]
pub struct DeleteArgs {
    #[command(flatten)]
    pub named: Named,
    /// Manifest that names them; `-` is standard input
    #[arg(short = 'f', long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub output: Output,
}
