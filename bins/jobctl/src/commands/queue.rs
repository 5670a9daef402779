//! `jobctl queue`: queues, and whether one would take a job.

use std::collections::BTreeMap;

use pumice_api::scheduling::Queue;
use pumice_jobs::cluster::queues;
use pumice_jobs::json::text_at;
use pumice_jobs::{Exit, fleet};
use serde_json::{Value, json};

use super::Session;
use crate::args::{CheckArgs, Form, QueueCommand};
use crate::failure::Failure;
use crate::output;
use crate::terminal;

/// Does what the command says.
pub fn run(session: &Session, command: &QueueCommand) -> Result<Exit, Failure> {
    let colours = terminal::colours(&session.surroundings);
    session.talk(|connection| async move {
        let typed = |object: &Value| queues::typed(&connection, object);
        let (queues, form) = match command {
            QueueCommand::List(shown) => (queues::list(&connection).await?, shown.output),
            QueueCommand::Get(one) => {
                let object = queues::get(&connection, &one.name).await?;
                if matches!(one.output, Form::Json | Form::Yaml) {
                    output::object(&object, one.output)?;
                    return Ok(Exit::Success);
                }
                (vec![object], one.output)
            }
            QueueCommand::Check(args) if connection.is_fleet() => {
                return Err(Failure::Usage {
                    message: "a fleet's queues have shares and no limits that a job could be held against".to_owned(),
                    next: format!("jobctl queue get {}", args.name),
                });
            }
            QueueCommand::Check(args) => return check(&typed(&queues::get(&connection, &args.name).await?)?, args),
        };
        match form {
            Form::Json | Form::Yaml => output::object(&output::list_of(queues), form)?,
            Form::Name => {
                let name = |queue: &Value| format!("queue/{}\n", text_at(queue, "/metadata/name"));
                output::text(&queues.iter().map(name).collect::<String>())?;
            }
            Form::Table | Form::Wide if connection.is_fleet() => {
                output::text(&fleet::queue_table(&queues).render(colours))?;
            }
            Form::Table | Form::Wide => {
                let queues: Vec<Queue> = queues.iter().map(typed).collect::<Result<_, _>>()?;
                output::text(&queues::table(&queues, form == Form::Wide).render(colours))?;
            }
        }
        Ok(Exit::Success)
    })
}

/// Exit code 1 says that such a job can never run there.
fn check(queue: &Queue, args: &CheckArgs) -> Result<Exit, Failure> {
    let mut asked = BTreeMap::new();
    for (resource, amount) in [("cpu", args.cpu), ("memory", args.memory)] {
        let Some(amount) = amount else { continue };
        let all = amount.checked_mul(i64::from(args.pods)).filter(|all| !all.is_negative());
        let all = all.ok_or_else(|| Failure::Usage {
            message: format!("{} pods of {amount} {resource} is no amount", args.pods),
            next: format!("jobctl queue check {} --help", args.name),
        })?;
        asked.insert(resource.to_owned(), all);
    }
    let verdict = queues::check(queue, &asked);
    match args.output {
        Form::Json | Form::Yaml => output::object(&json!(verdict), args.output)?,
        Form::Table | Form::Wide | Form::Name => {
            let summary = match (verdict.possible, verdict.now) {
                (true, true) => "there is room for it now",
                (true, false) => "it would wait",
                (false, _) => "it would not run there",
            };
            let mut text = format!("queue {}: {summary}\n", args.name);
            text.extend(verdict.findings.iter().map(|finding| format!("{finding}\n")));
            output::text(&text)?;
        }
    }
    Ok(if verdict.possible { Exit::Success } else { Exit::JobFailed })
}
