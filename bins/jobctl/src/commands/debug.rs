//! `jobctl debug`: what failed in a pod, and the same command on this machine.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use anyhow::Context;
use pumice_jobs::bundle::{Location, StoreAddress, location};
use pumice_jobs::explain::debug::{self, Case};
use pumice_jobs::job::{JobError, JobRef};
use pumice_jobs::logs::{JobLogs, LogOptions};
use pumice_jobs::lookup::pods::failed_pods;
use pumice_jobs::{Connection, Exit, lookup};
use serde_json::json;

use super::Session;
use crate::args::{DebugArgs, Form};
use crate::failure::Failure;
use crate::output;
use crate::terminal;

/// Prints the case, or runs it: then the exit code is that of the command.
pub fn run(session: &Session, args: &DebugArgs) -> Result<Exit, Failure> {
    let mut found = None;
    session.talk(|connection| {
        let found = &mut found;
        async move {
            let job = lookup::find_one(&connection, &args.job).await?;
            lookup::get(&connection, &job).await?;
            let case = debug::case(&failed_pods(&connection, &job).await?, args.shard).ok_or_else(|| {
                JobError::NoFailure { job: job.name.clone(), index: args.shard, flag: job.namespace_flag() }
            })?;
            if !args.run {
                let lines = last_lines(&connection, &job, &case, args.tail).await;
                show(&job, &case, &lines, args)?;
            }
            *found = Some((job, case));
            Ok(Exit::Success)
        }
    })?;
    match found {
        Some((job, case)) if args.run => run_here(session, &job, &case),
        _ => Ok(Exit::Success),
    }
}

/// The end of its log; empty if that is gone with the pod's node.
async fn last_lines(connection: &Connection, job: &JobRef, case: &Case, lines: u32) -> Vec<String> {
    let options = LogOptions {
        tail_lines: Some(lines),
        pod: Some(case.pod.clone()),
        container: Some(case.container.clone()).filter(|name| !name.is_empty()),
        ..LogOptions::default()
    };
    let mut log = JobLogs::new(connection.clone(), job.clone(), options);
    let mut found = Vec::new();
    while let Some(Ok(line)) = log.next().await {
        found.push(String::from_utf8_lossy(&line.text).into_owned());
    }
    found
}

fn show(job: &JobRef, case: &Case, lines: &[String], args: &DebugArgs) -> Result<(), Failure> {
    match args.output {
        Form::Json | Form::Yaml => {
            let mut object = json!(case);
            object["lastLines"] = json!(lines);
            return output::object(&object, args.output);
        }
        Form::Name => return output::text(&format!("pod/{}\n", case.pod)),
        Form::Table | Form::Wide => {}
    }
    let mut text = format!("{}\n", case.text);
    let node = if case.node.is_empty() { "none" } else { &case.node };
    let records = if case.records.is_empty() { String::new() } else { format!(" ({})", case.records) };
    text.push_str(&format!(
        "task {}, index {}{records}, attempt {}, node {node}\n",
        case.task, case.index, case.attempt
    ));
    if case.out_of_memory {
        text.push_str("it was killed for want of memory: --memory asks for more\n");
    }
    if !lines.is_empty() {
        text.push_str("last lines:\n");
        text.extend(lines.iter().map(|line| format!("  {}\n", line.replace(char::is_control, " "))));
    }
    if !case.command.is_empty() {
        text.push_str(&format!(
            "command: {}\n",
            case.command.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
        ));
    }
    output::text(&text)?;
    terminal::say(&format!("next:  jobctl debug {}{} --shard {} --run", job.name, job.namespace_flag(), case.index));
    Ok(())
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// The user's own environment with the pod's over it: here is where the user's programs are.
fn run_here(session: &Session, job: &JobRef, case: &Case) -> Result<Exit, Failure> {
    let Some((program, arguments)) = case.command.split_first() else {
        return Err(Failure::Usage {
            message: format!("pod {} runs what its image says, which this machine does not know", case.pod),
            next: format!("jobctl logs {}{} --pod {}", job.name, job.namespace_flag(), case.pod),
        });
    };
    for missing in &case.not_here {
        terminal::say(&format!("not set: {missing}, whose value is not in the pod"));
    }
    let mut command = Command::new(program);
    let told = case.environment.get(location::VARIABLE).and_then(|text| text.parse::<Location>().ok());
    // Only `jobctl shard` reads ConfigMaps; here it has no token, and reads them as who asks.
    if told.as_ref().is_some_and(|told| matches!(told.address, StoreAddress::ConfigMaps { .. })) {
        command.args(session.global.platform_flags());
    }
    command.args(arguments).envs(&case.environment);
    // What is tried here is no result of the job.
    if let Some(told) = told {
        command.env(location::VARIABLE, Location { run: None, ..told }.to_string());
    }
    match Path::new(&case.directory) {
        directory if directory.is_dir() => {
            command.current_dir(directory);
        }
        directory if !case.directory.is_empty() => {
            terminal::say(&format!("{} is not on this machine; it runs here", directory.display()));
        }
        _ => {}
    }
    let status = command.status().with_context(|| format!("cannot start {program}")).map_err(Failure::Machine)?;
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    terminal::say(&format!("it ended with exit code {code} here, and {} in the pod", case.exit_code));
    Ok(u8::try_from(code).ok().filter(|code| *code != 0).map_or(Exit::Success, Exit::Own))
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn words_are_quoted_where_a_shell_would_split_them() {
        for (word, text) in
            [("sh", "sh"), ("exit 7", "'exit 7'"), ("", "''"), ("it's", "'it'\\''s'"), ("a=b/c.d", "a=b/c.d")]
        {
            assert_eq!(quoted(word), text);
        }
    }
}
