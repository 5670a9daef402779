//! `jobctl get`: jobs, why they ended, and what went wrong in their pods.

use pumice_jobs::explain::job_end;
use pumice_jobs::job::JobRow;
use pumice_jobs::job::list_columns::{self, Column};
use pumice_jobs::{Exit, lookup};

use super::{Session, results};
use crate::args::{Form, SeveralJobs};
use crate::failure::Failure;
use crate::output;
use crate::terminal;

/// Failures listed under the table, for each job.
const FAILURES_SHOWN: usize = 10;

/// Prints jobs; for people their rows, why they ended and what went wrong in their pods.
pub fn run(session: &Session, args: &SeveralJobs) -> Result<Exit, Failure> {
    session.talk(|connection| async move {
        let now = terminal::now();
        let jobs = lookup::find(&connection, &args.jobs.filter(), now).await?;
        let mut objects = Vec::new();
        for job in &jobs {
            objects.push(lookup::get(&connection, job).await?);
        }
        match args.output {
            Form::Json | Form::Yaml => match (objects.len(), objects.pop()) {
                (1, Some(object)) => output::object(&object, args.output)?,
                (_, last) => {
                    output::object(&output::list_of(objects.into_iter().chain(last).collect()), args.output)?;
                }
            },
            Form::Name => output::text(&jobs.iter().map(|job| format!("job/{}\n", job.name)).collect::<String>())?,
            Form::Table | Form::Wide => {
                let mut columns = Column::SHOWN.to_vec();
                columns.insert(0, Column::Namespace);
                if args.output == Form::Wide {
                    columns.extend(Column::WIDE);
                }
                let summaries: Vec<JobRow> =
                    objects.iter().map(|object| lookup::row(&connection, object)).collect::<Result<_, _>>()?;
                let mut text =
                    list_columns::table(&summaries, &columns, now).render(terminal::colours(&session.surroundings));
                for (job, object) in jobs.iter().zip(&objects) {
                    let typed = lookup::typed(&connection, object)?;
                    if let Some(told) = results::shortfall(&connection, &typed).await {
                        text.push_str(&format!("job {}: {told}\n", job.name));
                    }
                    let account = job_end::fetch(&connection, job, &typed).await?;
                    account
                        .lines(&job.name, FAILURES_SHOWN)
                        .iter()
                        .for_each(|line| text.push_str(&format!("{line}\n")));
                }
                output::text(&text)?;
            }
        }
        Ok(Exit::Success)
    })
}
