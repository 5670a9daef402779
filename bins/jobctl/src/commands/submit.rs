//! `jobctl submit`: submit and return.

use pumice_jobs::{Exit, submit};

use super::{Session, work};
use crate::args::{Form, SubmitArgs};
use crate::failure::Failure;
use crate::output;

/// Prints each object as it is submitted, so that a failure half-way hides none.
pub fn run(session: &Session, args: &SubmitArgs) -> Result<Exit, Failure> {
    let objects = work::objects(session, &args.work)?;
    session.talk(|connection| async move {
        let mut printed = Ok(());
        let submitted = submit::submit(&connection, &objects, |one| {
            if printed.is_err() {
                return;
            }
            printed = match args.output {
                Form::Name => output::text(&format!("{}\n", one.reference())),
                Form::Table | Form::Wide => output::text(&format!("{} {}\n", one.reference(), one.effect.word())),
                Form::Json | Form::Yaml => Ok(()),
            };
        })
        .await?;
        printed?;
        if matches!(args.output, Form::Json | Form::Yaml) {
            let mut objects: Vec<_> = submitted.into_iter().map(|one| one.object).collect();
            let whole = match (objects.len(), objects.pop()) {
                (1, Some(object)) => object,
                (_, last) => output::list_of(objects.into_iter().chain(last).collect()),
            };
            output::object(&whole, args.output)?;
        }
        Ok(Exit::Success)
    })
}
