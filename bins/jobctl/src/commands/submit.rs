//! `jobctl submit`: submit and return.

use pumice_jobs::Exit;
use pumice_jobs::submit::Submitted;

use super::Session;
use super::work::Submission;
use crate::args::{Form, SubmitArgs};
use crate::failure::Failure;
use crate::output;

/// Prints each object as it is submitted, so that a failure half-way hides none.
pub fn run(session: &Session, args: &SubmitArgs) -> Result<Exit, Failure> {
    let submission = Submission::read(session, &args.work)?;
    if args.work.dry_run {
        return submission.print(args.output);
    }
    session.bring_up()?;
    session.talk(|connection| async move {
        let mut printed = Ok(());
        let print = |one: &Submitted| {
            if printed.is_err() {
                return;
            }
            printed = match args.output {
                Form::Name => output::text(&format!("{}\n", one.reference())),
                Form::Table | Form::Wide => output::text(&format!("{} {}\n", one.reference(), one.effect.word())),
                Form::Json | Form::Yaml => Ok(()),
            };
        };
        let submitted = submission.send(&connection, print).await?;
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
