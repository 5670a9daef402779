//! `jobctl list`: jobs as a table, as CSV or as objects.

use pumice_jobs::job::JobRow;
use pumice_jobs::job::list_columns::{self, Column, Order};
use pumice_jobs::lookup::{self, JobFilter, Scope};
use pumice_jobs::platform::user;
use pumice_jobs::{Connection, Exit};

use super::Session;
use crate::args::{Form, ListArgs, ListForm};
use crate::failure::Failure;
use crate::output;
use crate::terminal;

/// Prints the jobs; an empty list is said on standard error.
pub fn run(session: &Session, args: &ListArgs) -> Result<Exit, Failure> {
    session.talk(|connection| async move {
        let (mut filter, now) = (args.filter(), terminal::now());
        if args.me {
            filter.user = Some(user::of(&connection).await?);
        }
        let whole = matches!(args.output, ListForm::Json | ListForm::Yaml);
        let scope = Scope { all_namespaces: args.all_namespaces, labels: filter.labels.as_deref() };
        let mut jobs = filter.matches(lookup::list(&connection, scope, whole).await?, now);
        if args.sort != Order::Age {
            list_columns::sort(&mut jobs, args.sort, now);
        }
        shorten(&mut jobs, args);
        let columns = columns(args);
        match args.output {
            ListForm::Table | ListForm::Wide if jobs.is_empty() => terminal::say(&nothing(&connection, args, &filter)),
            ListForm::Table | ListForm::Wide => {
                let colours = terminal::colours(&session.surroundings);
                output::text(&list_columns::table(&jobs, &columns, now).render(colours))?;
            }
            ListForm::Csv => output::text(&list_columns::csv(&jobs, &columns, now))?,
            ListForm::Name => {
                output::text(&jobs.iter().map(|job| format!("job/{}\n", job.metadata.name)).collect::<String>())?;
            }
            ListForm::Json | ListForm::Yaml => {
                let form = if args.output == ListForm::Json { Form::Json } else { Form::Yaml };
                output::object(&output::list_of(jobs.into_iter().filter_map(|job| job.whole).collect()), form)?;
            }
        }
        Ok(Exit::Success)
    })
}

/// Keeps the newest where the newest come last, else the first ones.
fn shorten(jobs: &mut Vec<JobRow>, args: &ListArgs) {
    let limit = args.limit.unwrap_or(usize::MAX);
    if args.sort == Order::Age {
        jobs.drain(..jobs.len().saturating_sub(limit));
    } else {
        jobs.truncate(limit);
    }
}

fn columns(args: &ListArgs) -> Vec<Column> {
    if !args.columns.is_empty() {
        return args.columns.clone();
    }
    if args.output == ListForm::Csv {
        return Column::CSV.to_vec();
    }
    let mut columns = Column::SHOWN.to_vec();
    if args.all_namespaces {
        columns.insert(0, Column::Namespace);
    }
    if args.output == ListForm::Wide {
        columns.extend(Column::WIDE);
    }
    columns
}

fn nothing(connection: &Connection, args: &ListArgs, filter: &JobFilter) -> String {
    let scope = if args.all_namespaces { "any namespace".to_owned() } else { connection.namespace().to_owned() };
    let which = if *filter == JobFilter::default() { "no jobs" } else { "no such jobs" };
    format!("{which} in {scope}")
}
