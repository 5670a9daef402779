//! The script of `jobctl submit SCRIPT`, with the flags of its first lines.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::Path;

use pumice_jobs::Error;
use pumice_jobs::job::idempotency;
use pumice_jobs::manifest::Object;
use pumice_jobs::render::{RenderError, slurm};
use pumice_jobs::script::{AtLine, Carrier, Header, SCRIPT_BYTES_MAX, Script, ScriptError, SlurmUse, Warning};
use pumice_jobs::submit::known_queues;

use super::{plain_flags, read_bounded, usage};
use crate::args::{JobArgs, Work};
use crate::commands::Session;
use crate::environment::{self, variable};
use crate::failure::Failure;
use crate::terminal;

/// A script and what its lines ask for.
pub struct Given {
    pub script: Script,
    pub args: JobArgs,
    header: Header,
    used: SlurmUse,
}

/// Reads it, to travel in that; `None` where the command line has none.
pub fn read(session: &Session, work: &Work, carrier: Carrier) -> Result<Option<Given>, Failure> {
    let Some(path) = work.script.first() else { return Ok(None) };
    if path.starts_with('-') {
        return Err(usage(format!("unexpected flag {path}; the flags of a command go after --")));
    }
    let bytes = read_bounded(Path::new(path), SCRIPT_BYTES_MAX as u64).map_err(|error| Failure::Command {
        message: format!("cannot read the script {path}: {error}; a command goes after --"),
        words: work.script.join(" "),
    })?;
    let script = Script::read(path, &bytes, String::new(), carrier);
    let mut script = script.map_err(|error| match error {
        ScriptError::Encoding { .. } => Failure::Command { message: error.to_string(), words: work.script.join(" ") },
        error => wrong(path, &error),
    })?;
    let text_of = |name: &str| variable(name).and_then(|value| value.into_string().ok());
    let header = script.header(&text_of).map_err(|error| wrong(path, &error))?;
    let mut args = JobArgs::default();
    for line in &header.lines {
        let at = |problem: String| wrong(path, &format!("{path}:{}: {problem}", line.number));
        let of_line = JobArgs::of_line(&line.words).map_err(at)?;
        check(session, &of_line).map_err(|failure| match failure {
            Failure::Jobs { error, .. } => at(error.to_string()),
            Failure::Flags { message } => at(message),
            other => other,
        })?;
        args = of_line.over(args);
    }
    // A key names one job, so its script has one name too.
    let key = work.flags.idempotency_key.as_ref().or(args.idempotency_key.as_ref());
    script.tag = key.map_or_else(made_up, |key| idempotency::tag(key));
    let used = SlurmUse::of(&script.text);
    Ok(Some(Given { script, args, header, used }))
}

/// Whether the flags of a line make a job by themselves. Two that don't go together are found when all are known.
fn check(session: &Session, of_line: &JobArgs) -> Result<(), Failure> {
    let mut flags = plain_flags(session, of_line.clone(), false)?;
    flags.command = vec![String::from("true")];
    match pumice_jobs::render::render(&flags) {
        Ok(_) | Err(RenderError::Together { .. }) => Ok(()),
        Err(error) => Err(Error::from(error).into()),
    }
}

fn wrong(path: &str, problem: &impl ToString) -> Failure {
    let next = format!("correct {path} and run the same command again");
    Failure::Usage { message: problem.to_string(), next }
}

/// The place of a partition of Slurm that is taken for a queue.
pub struct Partition(String);

impl Partition {
    /// The job in the queue of jobs that name none, which is said: clusters have other partitions than a platform has queues.
    pub fn given_up(&self, job: &Object, queue: &str, known: &[String]) -> Object {
        terminal::say(&format!(
            "warning: {}: there is no queue {queue}{}; the job goes to the queue default, --queue NAME names another",
            self.0,
            known_queues(known)
        ));
        let mut job = job.clone();
        slurm::to_default_queue(&mut job.body["spec"]);
        job
    }
}

impl Given {
    /// What its pods find of Slurm; `None` if it was not written for it. `name` is the job's, if its user gave it one, and
    /// `directory` the folder that it was submitted from, where pods see it.
    pub fn slurm(&self, name: Option<&str>, directory: Option<String>) -> Option<slurm::SlurmRun> {
        let header = self.header.slurm.as_ref();
        if header.is_none() && self.used.variables.is_empty() {
            return None;
        }
        let of_header = header.and_then(|header| header.job_name.as_deref());
        Some(slurm::SlurmRun {
            tag: self.script.tag.clone(),
            job_name: name.or(of_header).unwrap_or(&self.script.file_name).to_owned(),
            tasks: header.map_or(1, |header| header.tasks),
            directory,
            host: environment::host(),
            user: environment::user(),
            mpi: self.used.mpi,
        })
    }

    /// The line of the partition that the job's queue comes from.
    pub fn partition(&self, queue: Option<&str>) -> Option<Partition> {
        let AtLine { line, value: name } = self.header.slurm.as_ref()?.partition.as_ref()?;
        (queue == Some(name)).then(|| Partition(format!("{}:{line}", self.script.path)))
    }

    /// Says what is not done of what it asks for. `set` are the variables that its pods have.
    pub fn warn(&self, set: &[String]) {
        let mut warnings = self.header.warnings.clone();
        match &self.header.slurm {
            Some(header) => warnings.extend(self.used.missing(set, header.tasks)),
            // Programs of Slurm may be on the machine that a script of another kind runs on.
            None => warnings.extend(SlurmUse { programs: Vec::new(), ..self.used.clone() }.missing(set, 1)),
        }
        warnings.sort_by_key(|warning| warning.line);
        for Warning { line, text } in warnings {
            terminal::say(&format!("warning: {}:{line}: {text}", self.script.path));
        }
    }
}

/// Eight digits that nobody else has.
fn made_up() -> String {
    // The standard library seeds its hash tables from the system's randomness.
    let random = RandomState::new().build_hasher().finish();
    format!("{:08x}", random >> 32)
}
