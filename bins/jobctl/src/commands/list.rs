//! `jobctl list`: jobs as a table or as objects.

use pumice_jobs::list::{self, Columns};
use pumice_jobs::{Exit, select};

use super::Session;
use crate::args::{Form, ListArgs};
use crate::failure::Failure;
use crate::output;
use crate::terminal;

/// Prints the jobs; an empty list is said on standard error.
pub fn run(session: &Session, args: &ListArgs) -> Result<Exit, Failure> {
    session.talk(|connection| async move {
        let jobs = list::fetch(&connection, args.all_namespaces, args.selector.as_deref()).await?;
        match args.output {
            Form::Json | Form::Yaml => output::object(&output::list_of(jobs), args.output)?,
            Form::Name => {
                for job in &jobs {
                    let name = job.pointer("/metadata/name").and_then(|name| name.as_str()).unwrap_or_default();
                    output::text(&format!("job/{name}\n"))?;
                }
            }
            Form::Table | Form::Wide if jobs.is_empty() => {
                let place = if args.all_namespaces { "any namespace" } else { connection.namespace() };
                terminal::say(&format!("no jobs in {place}"));
            }
            Form::Table | Form::Wide => {
                let typed = jobs.iter().map(|job| select::typed(&connection, job)).collect::<Result<Vec<_>, _>>()?;
                let columns = Columns { namespace: args.all_namespaces, wide: args.output == Form::Wide };
                output::text(&list::table(&typed, columns, terminal::now()).render())?;
            }
        }
        Ok(Exit::Success)
    })
}
