//! `jobctl why`: the reason a job waits.

use pumice_jobs::{Exit, pick, why};

use super::Session;
use crate::args::{Form, OneJob};
use crate::failure::Failure;
use crate::output;

/// Prints the scheduler's answer.
pub fn run(session: &Session, args: &OneJob) -> Result<Exit, Failure> {
    session.talk(|connection| async move {
        let job = pick::pick_one(&connection, &args.job).await?;
        let why = why::fetch(&connection, &job).await?;
        match args.output {
            Form::Json | Form::Yaml => {
                let value = serde_json::to_value(&why).map_err(|error| Failure::Machine(error.into()))?;
                output::object(&value, args.output)?;
            }
            Form::Name => output::text(&format!("{}\n", why.stage))?,
            Form::Table | Form::Wide => {
                let text = if why.text.trim().is_empty() { &why.stage } else { &why.text };
                output::text(&format!("{}\n", text.trim_end()))?;
            }
        }
        Ok(Exit::Success)
    })
}
