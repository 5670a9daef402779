//! Flags of the verbs about logins: `login`, `logout`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::completion;

/// Flags of `login`.
#[derive(Debug, Args)]
pub struct LoginArgs {
    /// Address of the platform, such as https://farm.example.com:6440
    #[arg(value_name = "URL")]
    pub server: String,
    /// Name of the context [default: the address]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Fingerprint of the platform's authority, as its administrator has it from pumice status
    #[arg(long, value_name = "SHA256:...", conflicts_with = "ca")]
    pub fingerprint: Option<String>,
    /// Certificate of the platform's authority
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub ca: Option<PathBuf>,
    /// Log in with a password, which is read from the terminal, or from standard input
    #[arg(long, value_name = "NAME", conflicts_with_all = ["device", "no_browser"])]
    pub user: Option<String>,
    /// Log in on another machine, by a code: for machines without a browser
    #[arg(long)]
    pub device: bool,
    /// Print the address to log in at, and open no browser
    #[arg(long, conflicts_with = "device")]
    pub no_browser: bool,
}

/// Flags of `logout`.
#[derive(Debug, Args)]
pub struct LogoutArgs {
    /// Name of the context [default: the one in use]
    #[arg(add = completion::contexts())]
    pub name: Option<String>,
}
