//! A program in a running container: its streams, its terminal and how it ended.
//!
//! Invariant: [`exit_of`] is pure; a program whose end nobody told has not succeeded.

use std::pin::pin;

use futures::FutureExt;
use futures::future::OptionFuture;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::Api;
use kube::api::AttachParams;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::InteractiveError;
use super::container_choice::RunningContainer;
use crate::error::Error;
use crate::exit_code::Exit;
use crate::platform::call::{self, CallError};
use crate::platform::connection::Connection;

pub use kube::api::{AttachedProcess, TerminalSize};

/// Bytes of each stream that wait for their reader.
const BUFFER_BYTES: usize = 64 << 10;
/// The most of a short answer that is read.
const ANSWER_BYTES_MAX: u64 = 4 << 10;
/// The cause of a Status that has the exit code.
const EXIT_CODE: &str = "ExitCode";
/// The reason of a Status that has one.
const NON_ZERO: &str = "NonZeroExitCode";

/// Which streams of the program are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Streams {
    /// Standard input, output and error, each by itself.
    Apart,
    Terminal,
    /// Standard output and error only.
    Output,
}

/// Starts a program in a container.
pub async fn open(
    connection: &Connection,
    running: &RunningContainer,
    command: &[String],
    streams: Streams,
) -> Result<AttachedProcess, Error> {
    let terminal = streams == Streams::Terminal;
    let parameters = AttachParams::default()
        .container(&running.container)
        .stdin(streams != Streams::Output)
        .stdout(true)
        .stderr(!terminal)
        .tty(terminal)
        .max_stdin_buf_size(BUFFER_BYTES)
        .max_stdout_buf_size(BUFFER_BYTES)
        .max_stderr_buf_size(BUFFER_BYTES);
    let pods = Api::<Pod>::namespaced(connection.client().clone(), &running.job.namespace);
    let doing = format!("run a program in pod {}", running.pod);
    let opening = pods.exec(&running.pod, command, &parameters);
    let opened = match tokio::time::timeout(call::CALL_TIMEOUT, opening).await {
        Ok(opened) => opened.map_err(|error| CallError::new(&doing, connection.url(), &error)),
        Err(_) => Err(CallError::timed_out(&doing, connection.url(), call::CALL_TIMEOUT)),
    };
    opened.map_err(|error| match InteractiveError::forbidden(&error, "pods/exec", &running.job.namespace) {
        Some(forbidden) => forbidden.into(),
        None => error.into(),
    })
}

/// Reads a program's streams to their ends, by `reading`, and says how it ended.
pub async fn end<E: From<Error>>(
    mut process: AttachedProcess,
    running: &RunningContainer,
    program: &str,
    back: &str,
    reading: impl Future<Output = Result<(), E>>,
) -> Result<Exit, E> {
    let mut reading = pin!(reading);
    let mut status = pin!(OptionFuture::from(process.take_status()).map(Option::flatten));
    let status = tokio::select! {
        read = &mut reading => {
            read?;
            status.await
        }
        told = &mut status => {
            // The streams of a connection that broke have no end.
            if told.is_some() {
                reading.await?;
            }
            told
        }
    };
    if let Some(status) = status {
        let not_started = |message| InteractiveError::NotStarted {
            program: program.to_owned(),
            pod: running.pod.clone(),
            job: running.job.clone(),
            message,
        };
        return exit_of(&status).map_err(|message| Error::from(not_started(message)).into());
    }
    let detail = match process.join().await {
        Ok(()) => "it was closed from there".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(Error::from(InteractiveError::Lost { pod: running.pod.clone(), back: back.to_owned(), detail }).into())
}

/// What a short program prints, at most 4 KiB of it, and how it ended.
pub async fn answer(
    connection: &Connection,
    running: &RunningContainer,
    command: &[String],
    back: &str,
) -> Result<(String, Exit), Error> {
    let mut process = open(connection, running, command, Streams::Output).await?;
    let (stdout, stderr) = (process.stdout(), process.stderr());
    let mut answer = String::new();
    let reading = async {
        (answer, _) = tokio::join!(first_bytes(stdout), first_bytes(stderr));
        Ok::<(), Error>(())
    };
    let program = command.first().map_or("", String::as_str);
    let exit = end(process, running, program, back, reading).await?;
    Ok((answer, exit))
}

/// The first bytes of a stream as text; the rest is read and dropped, so that the program can go on.
async fn first_bytes(stream: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut stream) = stream else { return String::new() };
    let mut bytes = Vec::new();
    // A stream that breaks ends here; how the program ended says why.
    let _ = (&mut stream).take(ANSWER_BYTES_MAX).read_to_end(&mut bytes).await;
    let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The program's own code, or why there is none.
pub fn exit_of(status: &Status) -> Result<Exit, String> {
    if status.status.as_deref() == Some("Success") {
        return Ok(Exit::Success);
    }
    match exit_code_told(status) {
        // A code that no process has must not read as success.
        Some(code) => Ok(Exit::Own(u8::try_from(code).ok().filter(|code| *code != 0).unwrap_or(255))),
        None => Err(status.message.clone().unwrap_or_else(|| "the node did not say why".to_owned())),
    }
}

/// The code in the causes of a status that says that the program ended with one other than zero.
fn exit_code_told(status: &Status) -> Option<i64> {
    if status.reason.as_deref() != Some(NON_ZERO) {
        return None;
    }
    let mut causes = status.details.iter().flat_map(|details| details.causes.iter().flatten());
    let code = causes.find(|cause| cause.reason.as_deref() == Some(EXIT_CODE))?;
    code.message.as_deref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_code_is_in_the_causes() {
        let failure = |reason: &str, cause: &str, code: &str| {
            json!({"status": "Failure", "reason": reason, "message": "command terminated",
                   "details": {"causes": [{"reason": "Other", "message": "3"}, {"reason": cause, "message": code}]}})
        };
        let told = Err("command terminated".to_owned());
        for (status, wanted) in [
            (json!({"status": "Success"}), Ok(Exit::Success)),
            (failure(NON_ZERO, EXIT_CODE, "7"), Ok(Exit::Own(7))),
            (failure(NON_ZERO, EXIT_CODE, "137"), Ok(Exit::Own(137))),
            (failure(NON_ZERO, EXIT_CODE, "-1"), Ok(Exit::Own(255))),
            (failure(NON_ZERO, EXIT_CODE, "256"), Ok(Exit::Own(255))),
            (failure(NON_ZERO, EXIT_CODE, "0"), Ok(Exit::Own(255))),
            (failure(NON_ZERO, EXIT_CODE, "x"), told.clone()),
            (failure(NON_ZERO, "Elsewhere", "7"), told.clone()),
            (failure("InternalError", EXIT_CODE, "7"), told),
            (json!({"status": "Failure"}), Err("the node did not say why".to_owned())),
            (json!({}), Err("the node did not say why".to_owned())),
        ] {
            let typed: Status = serde_json::from_value(status.clone()).unwrap();
            assert_eq!(exit_of(&typed), wanted, "{status}");
        }
    }
}
