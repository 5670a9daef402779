//! A program in a pod, on this terminal or between pipes.
//!
//! Invariant: the terminal is given back as it was, whatever ends the session: the program, a failure, a signal, a panic.

use std::fs::File;
use std::io::IsTerminal;
use std::os::fd::AsFd;

use anyhow::Context;
use futures::SinkExt;
use pumice_jobs::interactive::container_choice::RunningContainer;
use pumice_jobs::interactive::exec::{self, AttachedProcess, Streams, TerminalSize};
use pumice_jobs::interactive::program;
use pumice_jobs::{Connection, Exit};
use ratatui::crossterm::terminal::{disable_raw_mode, enable_raw_mode};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::signal::unix::{SignalKind, signal};

use crate::environment::variable;
use crate::failure::Failure;

/// The program of a session, and the command that comes back where its connection is lost.
pub struct Program<'a> {
    /// Its words; a shell if empty.
    pub argv: &'a [String],
    pub back: &'a str,
}

/// Runs it in a container with this process's streams; its exit code is the answer. Ctrl-C goes to the program on a terminal, and
/// ends the session between pipes.
pub async fn run(connection: &Connection, running: &RunningContainer, wanted: &Program<'_>) -> Result<Exit, Failure> {
    // With the output in a file a terminal would only spoil it.
    let on_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let streams = if on_terminal { Streams::Terminal } else { Streams::Apart };
    let kind = if on_terminal { variable("TERM").and_then(|kind| kind.into_string().ok()) } else { None };
    let argv = if wanted.argv.is_empty() { program::shell(kind.as_deref()) } else { wanted.argv.to_vec() };
    let handler = |kind| signal(kind).context("cannot hear signals").map_err(Failure::Machine);
    let mut interrupt = handler(SignalKind::interrupt())?;
    let (mut term, mut hangup) = (handler(SignalKind::terminate())?, handler(SignalKind::hangup())?);
    let mut process = exec::open(connection, running, &argv, streams).await?;
    let raw = if on_terminal { Some(Raw::take()?) } else { None };
    let sizes = resize(&mut process);
    let input = feed(process.stdin());
    let (stdout, stderr) = (process.stdout(), process.stderr());
    let reading = async {
        tokio::try_join!(pour(stdout, std::io::stdout()), pour(stderr, std::io::stderr()))?;
        Ok(())
    };
    let name = argv.first().map_or("", String::as_str);
    let attended = exec::end(process, running, name, wanted.back, reading);
    let ended = tokio::select! {
        biased;
        _ = interrupt.recv() => Ok(Exit::Interrupted),
        _ = term.recv() => Ok(Exit::Interrupted),
        _ = hangup.recv() => Ok(Exit::Interrupted),
        ended = attended => ended,
        // The program may go on without input, and without a size.
        never = async { tokio::join!(sizes, input); std::future::pending().await } => never,
    };
    drop(raw);
    ended
}

/// The terminal in raw mode: keys go to the program as they are. Dropping it gives the terminal back.
struct Raw;

impl Raw {
    fn take() -> Result<Raw, Failure> {
        enable_raw_mode().context("cannot take over the terminal").map_err(Failure::Machine)?;
        Ok(Raw)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing back.
        let _ = disable_raw_mode();
    }
}

/// Tells the program the size of the terminal, now and when it changes.
fn resize(process: &mut AttachedProcess) -> impl Future<Output = ()> + use<> {
    let sizes = process.terminal_size();
    async move {
        let (Some(mut sizes), Ok(mut changes)) = (sizes, signal(SignalKind::window_change())) else { return };
        loop {
            if let Some((height, width)) = console::Term::stdout().size_checked()
                && sizes.send(TerminalSize { width, height }).await.is_err()
            {
                return;
            }
            changes.recv().await;
        }
    }
}

/// Gives the program what comes on standard input, and its end.
async fn feed(stdin: Option<impl AsyncWrite + Unpin>) {
    let (Some(mut program), Ok(here)) = (stdin, std::io::stdin().as_fd().try_clone_to_owned()) else { return };
    let mut here = tokio::fs::File::from_std(File::from(here));
    // What can't be read or is not taken any more ends the input.
    let _ = tokio::io::copy(&mut here, &mut program).await;
    let _ = program.shutdown().await;
}

/// Writes what the program writes, to the end.
async fn pour(from: Option<impl AsyncRead + Unpin>, to: impl AsFd) -> Result<(), Failure> {
    let Some(mut from) = from else { return Ok(()) };
    let to = to.as_fd().try_clone_to_owned().map_err(Failure::Output)?;
    let mut to = tokio::fs::File::from_std(File::from(to));
    tokio::io::copy(&mut from, &mut to).await.map_err(Failure::Output)?;
    to.flush().await.map_err(Failure::Output)
}
