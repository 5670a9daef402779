//! From `-f FILE`, a command or a script to what is submitted; shared by `run` and `submit`.

mod records;
mod script;
mod store;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use pumice_jobs::manifest::{self, Object};
use pumice_jobs::render::{self, JobFlags, links, slurm};
use pumice_jobs::script::Carrier;
use pumice_jobs::submit::bundled::{self, Prepared};
use pumice_jobs::submit::{self, SubmitError, Submitted};
use pumice_jobs::{Connection, Error, Exit};
use serde::Serialize;
use serde_json::Value;

use self::script::Partition;
use super::Session;
use crate::args::{Form, Gang, JobArgs, Work};
use crate::environment::variable;
use crate::failure::Failure;
use crate::output;
use crate::terminal;

/// What a command submits: objects as they were written, or one job that flags make.
pub enum Submission {
    /// The objects of manifests.
    Manifest(Vec<Object>),
    /// A job and what it brings along.
    Job {
        job: Object,
        belongings: Vec<Object>,
        /// Its bundle, where that is to be in ConfigMaps.
        bundle: Option<Prepared>,
        /// Whether the user gave it its name.
        named: bool,
        /// Where its queue comes from, if from a partition of Slurm.
        partition: Option<Partition>,
    },
}

impl Submission {
    /// Reads files and flags, and checks them as far as that goes without a server.
    pub fn read(session: &Session, work: &Work) -> Result<Submission, Failure> {
        let submission = if work.files.is_empty() { rendered(session, work)? } else { read_manifests(work)? };
        submit::check(&submission.objects(), session.global.namespace.as_deref())?;
        Ok(submission)
    }

    /// Sends it; `done` hears of each object that a user knows of.
    pub async fn send(
        &self,
        connection: &Connection,
        mut done: impl FnMut(&Submitted),
    ) -> Result<Vec<Submitted>, Error> {
        let (job, belongings, bundle, partition) = match self {
            Submission::Manifest(objects) => return Ok(submit::submit(connection, objects, done).await?),
            Submission::Job { job, belongings, bundle, partition, .. } => (job, belongings, bundle.as_ref(), partition),
        };
        let sent = send_job(connection, job, belongings, bundle, &mut done).await;
        match (sent.as_ref().err().and_then(Error::downcast_ref), partition) {
            (Some(SubmitError::NoQueue { queue, known, .. }), Some(partition)) => {
                let job = partition.given_up(job, queue, known);
                Ok(vec![send_job(connection, &job, belongings, bundle, &mut done).await?])
            }
            _ => Ok(vec![sent?]),
        }
    }

    /// Prints the objects in place of submitting them, for `--dry-run`.
    pub fn print(self, form: Form) -> Result<Exit, Failure> {
        let mut bodies: Vec<Value> = match self {
            Submission::Manifest(objects) => objects.into_iter().map(|object| object.body).collect(),
            Submission::Job { job, belongings, .. } => {
                let belongings: Vec<Value> = belongings.into_iter().map(|object| object.body).collect();
                let job = submit::sealed(job.body, &belongings);
                [job].into_iter().chain(belongings).collect()
            }
        };
        let whole = if bodies.len() == 1 { bodies.remove(0) } else { output::list_of(bodies) };
        output::object(&whole, if form == Form::Json { Form::Json } else { Form::Yaml })?;
        Ok(Exit::Success)
    }

    fn objects(&self) -> Vec<Object> {
        match self {
            Submission::Manifest(objects) => objects.clone(),
            Submission::Job { job, belongings, .. } => [job].into_iter().chain(belongings).cloned().collect(),
        }
    }
}

async fn send_job(
    connection: &Connection,
    job: &Object,
    belongings: &[Object],
    bundle: Option<&Prepared>,
    done: impl FnMut(&Submitted),
) -> Result<Submitted, Error> {
    Ok(match bundle {
        None => submit::submit_with_belongings(connection, job, belongings, done).await?,
        Some(bundle) => bundled::submit(connection, job, belongings, bundle, done).await?,
    })
}

fn read_manifests(work: &Work) -> Result<Submission, Failure> {
    let mut objects = Vec::new();
    for file in &work.files {
        objects.extend(manifest::read(file, std::io::stdin().lock())?);
    }
    Ok(Submission::Manifest(objects))
}

fn rendered(session: &Session, work: &Work) -> Result<Submission, Failure> {
    let carrier = if session.is_of_a_fleet() { Carrier::Annotation } else { Carrier::ConfigMap };
    let script = script::read(session, work, carrier)?;
    let args = match &script {
        Some(script) => work.flags.clone().over(script.args.clone()),
        None => work.flags.clone(),
    };
    let here = session.is_local() && args.image.is_none();
    let site = Site { here, elsewhere: session.is_elsewhere(), dry_run: work.dry_run };
    let (flags, bundle) = job_flags(session, args, site)?;
    let own = if here { session.surroundings.directory.as_deref().and_then(Path::to_str) } else { None };
    let directory = own.map(str::to_owned).or_else(|| flags.workdir.clone());
    let flags = JobFlags {
        slurm: script.as_ref().and_then(|script| script.slurm(flags.name.as_deref(), directory)),
        script: script.as_ref().map(|script| script.script.clone()),
        command: if work.script.is_empty() { work.argv.clone() } else { work.script[1..].to_vec() },
        ..flags
    };
    // Of flags the message says what they are; a script has a name.
    let origin = script.as_ref().map_or("", |script| script.script.path.as_str());
    let job = object(&render::render(&flags)?, origin)?;
    if let Some(script) = &script {
        script.warn(&variables_of(&job.body));
    }
    let partition = script.as_ref().and_then(|script| script.partition(flags.queue.as_deref()));
    let namespace = session.global.namespace.as_deref();
    let script = flags.script.as_ref();
    let belongings = script.and_then(|script| Some(object(&render::config_map(script, namespace)?, &script.file_name)));
    let belongings = belongings.transpose()?.into_iter().collect();
    Ok(Submission::Job { job, belongings, bundle, named: flags.name.is_some(), partition })
}

/// The variables that a script finds in the pods of a job.
fn variables_of(job: &Value) -> Vec<String> {
    let env = job.pointer("/spec/tasks/0/template/spec/containers/0/env").and_then(Value::as_array);
    let names = env.into_iter().flatten().filter_map(|variable| variable.get("name")?.as_str());
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    if names.iter().any(|name| name == slurm::ARRAY_JOB_ID) {
        names.push(slurm::ARRAY_TASK_ID.to_owned());
    }
    names
}

fn object(value: &impl Serialize, origin: &str) -> Result<Object, Failure> {
    let body = serde_json::to_value(value).map_err(|error| Failure::Machine(error.into()))?;
    Ok(Object { body, origin: origin.to_owned() })
}

/// The variable with the folders of programs.
const PATH: &str = "PATH";

/// Where a job is to run, as far as that changes what it is.
#[derive(Clone, Copy)]
struct Site {
    /// On this machine, with its files: a command finds what it would find in this shell, and leaves what it would leave.
    here: bool,
    /// On a platform that is not that of this machine.
    elsewhere: bool,
    /// Nowhere, it is only printed.
    dry_run: bool,
}

/// The flags as the library takes them, with the records of the job. And the bundle, where that is to be in ConfigMaps.
fn job_flags(session: &Session, args: JobArgs, site: Site) -> Result<(JobFlags, Option<Prepared>), Failure> {
    let records = records::read(session, &args, site)?;
    let flags = plain_flags(session, args, site.here)?;
    let max_parallel = flags.max_parallel.or(records.max_parallel);
    Ok((JobFlags { max_parallel, shards: records.shards, ..flags }, records.bundle))
}

/// The flags of a job without records: with what this process knows of directories and variables.
fn plain_flags(session: &Session, args: JobArgs, here: bool) -> Result<JobFlags, Failure> {
    let workdir = match (&args.workdir, &session.surroundings.directory) {
        (Some(dir), Some(current)) => Some(current.join(dir)),
        (None, current) if here => current.clone(),
        (dir, _) => dir.clone(),
    };
    let linked = match &workdir {
        Some(folder) if here => links::look(folder),
        _ => links::Links::default(),
    };
    for note in linked.notes() {
        terminal::say(&note);
    }
    let volumes = args.volume.iter().map(|text| volume(text, session.surroundings.directory.as_deref()));
    let mut env: Vec<_> = args.env.iter().map(|text| assignment(text)).collect::<Result<_, _>>()?;
    // So that `python` is the one of the user's virtual environment.
    if here
        && let Some(Ok(path)) = variable(PATH).map(std::ffi::OsString::into_string)
        && env.iter().all(|(name, _)| name != PATH)
    {
        env.insert(0, (PATH.to_owned(), path));
    }
    Ok(JobFlags {
        name: args.name,
        name_stem: args.name_stem,
        namespace: session.global.namespace.clone(),
        labels: args.label.iter().map(|text| label(text)).collect::<Result<_, _>>()?,
        idempotency_key: args.idempotency_key,
        queue: args.queue,
        zone: args.zone,
        priority_class: args.priority,
        deadline: args.deadline,
        after: args.after,
        replicas: args.replicas,
        max_parallel: args.max_parallel,
        shards: None,
        gang: args.gang == Some(Gang::All),
        min_available: match args.gang {
            Some(Gang::Of(pods)) => Some(pods),
            _ => args.min_available,
        },
        min_success: args.min_success,
        retries: args.retries,
        max_retry: args.max_retry,
        on_oom: args.on_oom,
        timeout: args.timeout,
        signal: args.signal,
        cpu: args.cpu,
        memory: args.memory.or(args.mem),
        gpu: args.gpu,
        image: args.image,
        env,
        volumes: volumes.collect::<Result<_, _>>()?,
        workdir: workdir.map(|dir| text_of(&dir, "--workdir")).transpose()?,
        share_workdir: here,
        linked: linked.shared,
        script: None,
        slurm: None,
        command: Vec::new(),
    })
}

/// `NAME=VALUE`, or `NAME` with the value it has here.
fn assignment(text: &str) -> Result<(String, String), Failure> {
    if let Some((name, value)) = text.split_once('=') {
        return Ok((name.to_owned(), value.to_owned()));
    }
    match variable(text).map(std::ffi::OsString::into_string) {
        Some(Ok(value)) => Ok((text.to_owned(), value)),
        Some(Err(_)) => Err(usage(format!("--env {text}: its value here is not UTF-8 text"))),
        None => Err(usage(format!("--env {text}: no such variable here; write {text}=VALUE"))),
    }
}

fn label(text: &str) -> Result<(String, String), Failure> {
    let (key, value) = text.split_once('=').ok_or_else(|| usage(format!("--label {text}: write KEY=VALUE")))?;
    Ok((key.to_owned(), value.to_owned()))
}

/// A directory that is named from here gets its whole path.
fn volume(text: &str, here: Option<&Path>) -> Result<String, Failure> {
    match here {
        Some(here) if text.starts_with('.') => {
            let (host, rest) = text.split_once(':').unwrap_or((text, ""));
            // Without the `.` in the middle.
            let host: PathBuf = here.join(host).components().collect();
            let host = text_of(&host, "--volume")?;
            Ok(format!("{host}:{rest}"))
        }
        _ => Ok(text.to_owned()),
    }
}

/// The bytes of a file that a flag names and that has at most `max` of them.
fn read_bounded(path: &Path, max: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more than may be shows that there are too many; the length that a file claims may be wrong.
    File::open(path)?.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(std::io::Error::other(format!("it has more than {} KiB", max >> 10)));
    }
    Ok(bytes)
}

fn text_of(path: &Path, flag: &str) -> Result<String, Failure> {
    path.to_str().map(str::to_owned).ok_or_else(|| usage(format!("{flag} {} is not UTF-8 text", path.display())))
}

fn usage(message: String) -> Failure {
    Failure::Flags { message }
}
