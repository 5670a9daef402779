//! `jobctl delete`: removes jobs and what they own.

use pumice_jobs::job::JobRef;
use pumice_jobs::lifecycle::{Deleted, Removal, delete_all};
use pumice_jobs::{Exit, lookup};

use super::Session;
use super::careful::{self, Outcomes, Verdict, ask, unless_interrupted};
use crate::args::DeleteArgs;
use crate::failure::Failure;
use crate::terminal;

/// Removes each job and says so; the first failure decides the exit code.
pub fn run(session: &Session, args: &DeleteArgs) -> Result<Exit, Failure> {
    session.attend(|connection| async move {
        let jobs = lookup::find(&connection, &args.jobs.filter(), terminal::now()).await?;
        if ask("delete", &jobs, &args.careful)? == Verdict::Leave {
            return Ok(Exit::Success);
        }
        if let Some(form) = args.careful.output {
            careful::print(&jobs, form)?;
        }
        let removal = Removal { force: args.force, wait: !args.no_wait };
        let mut outcomes = Outcomes::default();
        let deleting = delete_all(&connection, &jobs, removal, |job, outcome| {
            outcomes.take(job, outcome.map(|deleted| sentence(job, deleted)));
        });
        if unless_interrupted(deleting, &jobs).await { outcomes.exit() } else { Ok(Exit::Interrupted) }
    })
}

fn sentence(job: &JobRef, deleted: Deleted) -> String {
    match deleted {
        Deleted::Gone => format!("job {} deleted", job.name),
        Deleted::Requested => format!("job {} is being deleted", job.name),
    }
}
