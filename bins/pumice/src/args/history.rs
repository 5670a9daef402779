//! Flags of the history: whether, where, and for how long.
//!
//! Invariant: no password is ever an argument, which others can read; an address with one is refused without being repeated.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;
use pumice_history::{DAYS, Location, postgres_location};

use super::cluster::{ClusterArgs, LeaseArgs};
use super::serving::ServingArgs;

/// The file in the data directory.
pub const FILE: &str = "history.db";

/// The history of `pumice up`.
#[derive(Debug, Args)]
#[command(next_help_heading = "History")]
pub struct HistoryArgs {
    /// Keep what became of jobs beyond their objects (see docs/history.md)
    #[arg(long, value_name = "true|false", default_value_t = true, action = clap::ArgAction::Set)]
    pub history: bool,
    #[command(flatten)]
    pub keep: HistoryKeepArgs,
}

/// Where the history is kept, and for how long.
#[derive(Debug, Args)]
#[command(next_help_heading = "History")]
pub struct HistoryKeepArgs {
    /// Days for which a job is kept after its object is gone
    #[arg(long, value_name = "DAYS", default_value_t = DAYS, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub history_days: u32,
    /// Keep it in this database of Postgres, postgres://USER@HOST/NAME, in place of a file. The password is read from
    /// $PGPASSWORD, or from the file $PGPASSFILE
    #[arg(long, value_name = "URL")]
    pub history_database_url: Option<String>,
}

impl HistoryKeepArgs {
    /// The database that is named, else the file in `folder`.
    pub fn database(&self, folder: &Path) -> Result<Location> {
        match &self.history_database_url {
            Some(url) => postgres_location(url).context("--history-database-url can't be used"),
            None => Ok(Location::File(folder.join(FILE))),
        }
    }
}

/// `pumice history run`.
#[derive(Debug, Args)]
pub struct HistoryRunArgs {
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// The file that it is kept in
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "history_database_url",
        conflicts_with = "history_database_url"
    )]
    history_file: Option<PathBuf>,
    #[command(flatten)]
    pub keep: HistoryKeepArgs,
    #[command(flatten)]
    pub answer: AnswerArgs,
    #[command(flatten)]
    pub serving: ServingArgs,
    #[command(flatten)]
    pub lease: LeaseArgs,
}

impl HistoryRunArgs {
    /// The file, or the database.
    pub fn database(&self) -> Result<Location> {
        match &self.history_file {
            Some(file) => Ok(Location::File(file.clone())),
            None => self.keep.database(Path::new("")),
        }
    }
}

/// Where questions that the cluster's API server passes on are answered; the names are those of Kubernetes' extension servers.
#[derive(Debug, Args)]
#[command(next_help_heading = "Answering (see docs/history.md)")]
pub struct AnswerArgs {
    /// Port of the API
    #[arg(long, value_name = "PORT", default_value_t = 8443)]
    pub secure_port: u16,
    /// The certificate that is shown to the API server, PEM; without it questions are not answered
    #[arg(long, value_name = "FILE", requires_all = ["tls_private_key_file", "requestheader_client_ca_file"])]
    tls_cert_file: Option<PathBuf>,
    /// Its key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
    /// Who signs the certificates by which the API server is known as a proxy, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    requestheader_client_ca_file: Option<PathBuf>,
    /// Common names of such certificates; none = any
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub requestheader_allowed_names: Vec<String>,
}

impl AnswerArgs {
    /// Certificate, key, and who signs the certificates of those that ask.
    pub fn files(&self) -> Option<(&Path, &Path, &Path)> {
        let certificate = self.tls_cert_file.as_deref()?;
        Some((certificate, self.tls_private_key_file.as_deref()?, self.requestheader_client_ca_file.as_deref()?))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        history: HistoryArgs,
    }

    fn parsed(line: &str) -> HistoryArgs {
        Line::try_parse_from(std::iter::once("up").chain(line.split_whitespace())).unwrap().history
    }

    #[test]
    fn it_is_kept_in_a_file_unless_said_otherwise() {
        let database = |line: &str| parsed(line).keep.database(Path::new("/d")).map_err(|error| format!("{error:#}"));
        assert_eq!(database(""), Ok(Location::File("/d/history.db".into())));
        assert!(parsed("").history && !parsed("--history=false").history);
        assert_eq!((parsed("").keep.history_days, parsed("--history-days 7").keep.history_days), (DAYS, 7));
        let url = "postgres://me@host/db";
        assert_eq!(database(&format!("--history-database-url {url}")), Ok(Location::Postgres(url.to_owned())));
    }

    #[test]
    fn passwords_and_nonsense_are_refused_without_being_repeated() {
        for url in ["postgres://me:secret@host/db", "postgres://host/db?password=secret", "secret"] {
            let refused = parsed(&format!("--history-database-url {url}")).keep.database(Path::new("/d")).unwrap_err();
            let text = format!("{refused:#}");
            assert!(text.starts_with("--history-database-url") && !text.contains("secret"), "{text}");
        }
        assert!(Line::try_parse_from(["up", "--history-days", "0"]).is_err());
    }
}
