//! Flags of `results`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use pumice_jobs::bundle::Status;
use pumice_jobs::job::Selector;

use super::completion;

/// Flags of `results`.
#[derive(Debug, Args)]
pub struct ResultsArgs {
    /// Name, job/NAME, a pattern that hits one, or `last` for the newest
    #[arg(add = completion::jobs())]
    pub job: Selector,
    /// Only records of which the last attempt failed
    #[arg(long)]
    pub failed: bool,
    /// Only records that nothing was recorded of
    #[arg(long)]
    pub missing: bool,
    /// Write each result into a file of this folder, named by its key; of failed records with --failed only
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["missing", "output"])]
    pub save: Option<PathBuf>,
    /// Form of what is printed
    #[arg(short, long, value_enum, default_value_t = ResultsForm::Table)]
    pub output: ResultsForm,
}

impl ResultsArgs {
    /// What says which records are meant, by how they ended.
    pub fn wanted(&self) -> impl Fn(Option<Status>) -> bool + Send + use<> {
        let (failed, missing) = (self.failed, self.missing);
        move |status| match status {
            Some(Status::Failed) => failed || !missing,
            None => missing || !failed,
            Some(Status::Succeeded) => !failed && !missing,
        }
    }
}

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ResultsForm {
    /// For people; a result's first line
    Table,
    /// Comma-separated values with whole results
    Csv,
    /// A JSON object a line with whole results
    Json,
    /// Keys, one a line
    Keys,
}
