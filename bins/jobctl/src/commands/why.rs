//! `jobctl why`: the reason a job waits.

use pumice_jobs::explain::why;
use pumice_jobs::{Exit, lookup};

use super::Session;
use crate::args::{Form, OneJob};
use crate::failure::Failure;
use crate::output;
use crate::terminal;

/// Prints the scheduler's answer.
pub fn run(session: &Session, args: &OneJob) -> Result<Exit, Failure> {
    session.talk(|connection| async move {
        let job = lookup::find_one(&connection, &args.job).await?;
        let why = why::fetch_first_word(&connection, &job).await?;
        match args.output {
            Form::Json | Form::Yaml => {
                let value = serde_json::to_value(&why).map_err(|error| Failure::Machine(error.into()))?;
                output::object(&value, args.output)?;
            }
            Form::Name => output::text(&format!("{}\n", why.stage))?,
            Form::Table | Form::Wide => {
                let text = match why.text.trim_end() {
                    "" => why.stage.clone(),
                    _ if terminal::colours(&session.surroundings) => why.painted(),
                    text => text.to_owned(),
                };
                output::text(&format!("{text}\n"))?;
            }
        }
        Ok(Exit::Success)
    })
}
