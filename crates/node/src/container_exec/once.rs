//! A program run in a container to its end, for the agent's own purposes.

use std::io;
use std::path::Path;

use crate::container_exec::Stream;
use crate::container_exec::helper::Helper;
use crate::container_exec::{DRAIN, READ_BYTES};
use crate::launcher::Launcher;
use pumice_shim::exec::Request;
use pumice_shim::report::Report;

/// Runs `argv`; gives how it ended and the first `bytes_max` of what it said. Whoever stops waiting ends the program.
pub(crate) async fn run(
    shim: &Launcher,
    dir: &Path,
    container: &str,
    argv: &[String],
    bytes_max: usize,
) -> io::Result<(Report, Vec<u8>)> {
    let request = Request {
        container: container.to_owned(),
        argv: argv.to_vec(),
        stdin: false,
        stdout: true,
        stderr: true,
        terminal: false,
    };
    let mut helper = Helper::start(shim.clone(), dir, &request).await?;
    match helper.report().await? {
        Report::Started => {}
        failed => return Ok((failed, Vec::new())),
    }
    let ends: Vec<Stream> = helper.take_ends().into_iter().map(Stream::new).collect::<io::Result<_>>()?;
    let [stdout, stderr] = <[Stream; 2]>::try_from(ends).map_err(|_| io::Error::other("streams are missing"))?;
    let mut said = Vec::new();
    let report = {
        let mut reading = std::pin::pin!(read_both(&stdout, &stderr, bytes_max, &mut said));
        tokio::select! {
            report = helper.report() => {
                let report = report?;
                // What somebody that it left behind still says is not waited for.
                let _ = tokio::time::timeout(DRAIN, &mut reading).await;
                report
            }
            () = &mut reading => helper.report().await?,
        }
    };
    Ok((report, said))
}

/// Reads both to their ends, and keeps the first of it.
async fn read_both(stdout: &Stream, stderr: &Stream, bytes_max: usize, said: &mut Vec<u8>) {
    let (mut output, mut errors) = (vec![0; READ_BYTES], vec![0; READ_BYTES]);
    let (mut more_output, mut more_errors) = (true, true);
    while more_output || more_errors {
        let bytes = tokio::select! {
            read = stdout.read(&mut output), if more_output => {
                let read = read.unwrap_or(0);
                more_output = read > 0;
                &output[..read]
            }
            read = stderr.read(&mut errors), if more_errors => {
                let read = read.unwrap_or(0);
                more_errors = read > 0;
                &errors[..read]
            }
        };
        let room = bytes_max.saturating_sub(said.len());
        said.extend(&bytes[..bytes.len().min(room)]);
    }
}
