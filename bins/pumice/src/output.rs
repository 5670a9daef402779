//! What commands print: answers on standard output, complaints on standard error.
//!
//! Invariant: nothing panics where they can't be written. A pipe that was closed (`| head`) has what it wanted; a full disk
//! fails the command.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use anyhow::{Context as _, Result};

/// Prints text as it is.
pub fn print(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    written(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

pub fn line(text: impl Display) -> Result<()> {
    print(&format!("{text}\n"))
}

/// A number of things by their name: `1 pod`, `2 pods`.
pub fn count(number: usize, of: &str) -> String {
    format!("{number} {of}{}", if number == 1 { "" } else { "s" })
}

/// The end of writing to standard output.
pub fn written(result: io::Result<()>) -> Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other.context("standard output can't be written"),
    }
}

/// Prints a line of what goes on without it, such as a platform that says where it is.
pub fn announce(text: impl Display) {
    if let Err(error) = line(text) {
        tracing::warn!("{error:#}");
    }
}

/// Says something on standard error, if that can be written.
pub fn note(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Says why a command failed.
pub fn fail(error: &anyhow::Error, code: u8) -> ExitCode {
    note(format_args!("pumice: {error:#}"));
    ExitCode::from(code)
}
