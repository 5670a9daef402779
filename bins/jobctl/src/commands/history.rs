//! `jobctl history`: what became of jobs, also of those that are gone.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use pumice_api::history::{GROUP, GroupRecord, JobRecord, VERSION};
use pumice_jobs::history::sheet::Sheet;
use pumice_jobs::history::{self, Ask, GroupBy, parquet, text};
use pumice_jobs::job::Selector;
use pumice_jobs::platform::user;
use pumice_jobs::{Connection, Exit};
use serde::Serialize;
use serde_json::{Value, json};

use super::Session;
use crate::args::{Form, HistoryArgs, HistoryForm};
use crate::failure::Failure;
use crate::output;
use crate::terminal;

/// Prints one job's story, jobs, or sums over them.
pub fn run(session: &Session, args: &HistoryArgs) -> Result<Exit, Failure> {
    session.talk(|connection| async move {
        let colours = args.file.is_none() && terminal::colours(&session.surroundings);
        let ask = ask(&connection, args).await?;
        if let Some(by) = args.group_by {
            let groups = history::groups(&connection, &ask, by).await?;
            if groups.is_empty() {
                terminal::say(&nothing(&ask));
            }
            return write(args, &printed_groups(args.output, &groups, by, colours)?);
        }
        let named = match &args.job {
            Some(Selector::Name(name)) => Some((connection.namespace().to_owned(), name.clone(), args.uid.clone())),
            Some(Selector::Last) => {
                let (last, _) = history::jobs(&connection, &ask, 1).await?;
                let Some(last) = last.into_iter().next() else {
                    terminal::say(&nothing(&ask));
                    return Ok(Exit::NotFound);
                };
                Some((last.metadata.namespace, last.metadata.name, Some(last.metadata.uid)))
            }
            _ => None,
        };
        if let Some((namespace, name, uid)) = named {
            let job = history::one(&connection, &namespace, &name, uid.as_deref()).await?;
            return write(args, &printed_job(args.output, &job, colours)?);
        }
        let (jobs, more) = history::jobs(&connection, &ask, args.limit).await?;
        if jobs.is_empty() {
            terminal::say(&nothing(&ask));
        }
        write(args, &printed_jobs(args, &jobs, colours)?)?;
        if more {
            terminal::say(&format!("these are the last {}; there are more: --limit N", args.limit));
        }
        Ok(Exit::Success)
    })
}

async fn ask(connection: &Connection, args: &HistoryArgs) -> Result<Ask, Failure> {
    let which = &args.which;
    let user = if which.me { Some(user::of(connection).await?) } else { which.user.clone() };
    let named = args.group_by.is_some() || matches!(args.job, Some(Selector::Glob(_)));
    Ok(Ask {
        namespace: (!which.all_namespaces).then(|| connection.namespace().to_owned()),
        name: args.job.as_ref().filter(|job| named && **job != Selector::Last).map(ToString::to_string),
        user,
        queue: which.queue.clone(),
        node: which.node.clone(),
        states: which.state.clone(),
        since: which.since,
        until: which.until,
    })
}

fn printed_jobs(args: &HistoryArgs, jobs: &[JobRecord], colours: bool) -> Result<Vec<u8>, Failure> {
    Ok(match args.output {
        HistoryForm::Table | HistoryForm::Wide if jobs.is_empty() => Vec::new(),
        HistoryForm::Table | HistoryForm::Wide => {
            let wide = args.output == HistoryForm::Wide;
            text::jobs(jobs, args.which.all_namespaces, wide).render(colours).into_bytes()
        }
        HistoryForm::Json => object(&list("JobHistoryList", jobs), Form::Json)?,
        HistoryForm::Yaml => object(&list("JobHistoryList", jobs), Form::Yaml)?,
        HistoryForm::Name => names(jobs),
        HistoryForm::Csv => Sheet::of_jobs(jobs).csv().into_bytes(),
        HistoryForm::Parquet => parquet::file(&Sheet::of_jobs(jobs)),
    })
}

fn printed_job(form: HistoryForm, job: &JobRecord, colours: bool) -> Result<Vec<u8>, Failure> {
    let one = std::slice::from_ref(job);
    Ok(match form {
        HistoryForm::Table | HistoryForm::Wide => text::story(job, terminal::now(), colours).into_bytes(),
        HistoryForm::Json => object(&json!(job), Form::Json)?,
        HistoryForm::Yaml => object(&json!(job), Form::Yaml)?,
        HistoryForm::Name => names(one),
        HistoryForm::Csv => Sheet::of_jobs(one).csv().into_bytes(),
        HistoryForm::Parquet => parquet::file(&Sheet::of_jobs(one)),
    })
}

fn printed_groups(form: HistoryForm, groups: &[GroupRecord], by: GroupBy, colours: bool) -> Result<Vec<u8>, Failure> {
    Ok(match form {
        HistoryForm::Table | HistoryForm::Wide if groups.is_empty() => Vec::new(),
        HistoryForm::Table | HistoryForm::Wide => text::groups(groups, by.word()).render(colours).into_bytes(),
        HistoryForm::Json => object(&list("GroupHistoryList", groups), Form::Json)?,
        HistoryForm::Yaml => object(&list("GroupHistoryList", groups), Form::Yaml)?,
        HistoryForm::Name => groups.iter().map(|group| format!("{}\n", group.key)).collect::<String>().into_bytes(),
        HistoryForm::Csv => Sheet::of_groups(groups, by.word()).csv().into_bytes(),
        HistoryForm::Parquet => parquet::file(&Sheet::of_groups(groups, by.word())),
    })
}

fn names(jobs: &[JobRecord]) -> Vec<u8> {
    jobs.iter().map(|job| format!("job/{}\n", job.metadata.name)).collect::<String>().into_bytes()
}

fn list(kind: &str, items: &[impl Serialize]) -> Value {
    json!({"apiVersion": format!("{GROUP}/{VERSION}"), "kind": kind, "metadata": {}, "items": items})
}

fn object(value: &Value, form: Form) -> Result<Vec<u8>, Failure> {
    output::object_text(value, form).map(String::into_bytes)
}

fn nothing(ask: &Ask) -> String {
    let place = ask.namespace.as_deref().map_or_else(|| "any namespace".to_owned(), str::to_owned);
    let any = *ask == Ask { namespace: ask.namespace.clone(), ..Ask::default() };
    format!("{} in the history of {place}", if any { "no jobs" } else { "no such jobs" })
}

/// Standard output, or the file that is named.
fn write(args: &HistoryArgs, bytes: &[u8]) -> Result<Exit, Failure> {
    match &args.file {
        Some(file) => create(file, bytes).map_err(Failure::Machine)?,
        None => output::bytes(bytes)?,
    }
    Ok(Exit::Success)
}

fn create(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let mut file = File::create_new(path).with_context(|| format!("make {}", path.display()))?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    written.with_context(|| format!("write {}", path.display()))
}
