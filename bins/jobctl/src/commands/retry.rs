//! `jobctl retry`: ended jobs anew.

use pumice_api::batch::JobPhase;
use pumice_jobs::job::state::State;
use pumice_jobs::{Exit, lookup, submit};

use super::Session;
use super::careful::{self, Verdict, ask};
use crate::args::{Form, RetryArgs};
use crate::failure::Failure;
use crate::terminal;

/// Submits each anew and prints its new name; the first that can't be ends it.
pub fn run(session: &Session, args: &RetryArgs) -> Result<Exit, Failure> {
    session.talk(|connection| async move {
        let mut filter = args.jobs.filter();
        if args.failed {
            filter.states.push(State::Phase(JobPhase::Failed));
        }
        let jobs = lookup::find(&connection, &filter, terminal::now()).await?;
        if ask("retry", &jobs, &args.careful)? == Verdict::Leave {
            return Ok(Exit::Success);
        }
        let whole = args.careful.output.filter(|form| matches!(form, Form::Json | Form::Yaml));
        let mut made = Vec::new();
        for job in &jobs {
            let new = submit::retry(&connection, job).await?;
            terminal::say(&format!("job {} is submitted anew", job.name));
            if whole.is_none() {
                careful::print(std::slice::from_ref(&new), Form::Name)?;
            }
            made.push(new);
        }
        if let Some(form) = whole {
            careful::print(&made, form)?;
        }
        Ok(Exit::Success)
    })
}
