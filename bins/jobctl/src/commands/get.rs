//! `jobctl get`: one job.

use pumice_jobs::list::{self, Columns};
use pumice_jobs::outcome::pod_failures;
use pumice_jobs::{Exit, logs, select};

use super::Session;
use crate::args::{Form, OneJob};
use crate::failure::Failure;
use crate::output;
use crate::terminal;

/// Failures listed under the table.
const FAILURES_SHOWN: usize = 10;

/// Prints a job; for people its row and what went wrong in its pods.
pub fn run(session: &Session, args: &OneJob) -> Result<Exit, Failure> {
    session.talk(|connection| async move {
        let job = select::resolve(&connection, &args.job).await?;
        let object = select::get(&connection, &job).await?;
        match args.output {
            Form::Json | Form::Yaml => output::object(&object, args.output)?,
            Form::Name => output::text(&format!("job/{}\n", job.name))?,
            Form::Table | Form::Wide => {
                let typed = select::typed(&connection, &object)?;
                let columns = Columns { namespace: true, wide: args.output == Form::Wide };
                let mut text = list::table(&[typed], columns, terminal::now()).render();
                let failures = pod_failures(&logs::failed_pods(&connection, &job).await?);
                for failure in failures.iter().take(FAILURES_SHOWN) {
                    text.push_str(&format!("{}\n", failure.sentence()));
                }
                if failures.len() > FAILURES_SHOWN {
                    text.push_str(&format!("and {} more\n", failures.len() - FAILURES_SHOWN));
                }
                output::text(&text)?;
            }
        }
        Ok(Exit::Success)
    })
}
