//! From `-f FILE` or flags to the objects to submit; shared by `run` and `submit`.

use pumice_jobs::manifest::{self, Object};
use pumice_jobs::render::{self, JobFlags};
use pumice_jobs::submit;

use super::Session;
use crate::args::{FromFlags, Work};
use crate::environment::variable;
use crate::failure::Failure;

/// The objects, checked as far as that goes without a server.
pub fn objects(session: &Session, work: &Work) -> Result<Vec<Object>, Failure> {
    let objects = if work.files.is_empty() {
        vec![rendered(session, work)?]
    } else {
        let mut objects = Vec::new();
        for file in &work.files {
            objects.extend(manifest::read(file, std::io::stdin().lock())?);
        }
        objects
    };
    submit::check(&objects, session.global.namespace.as_deref())?;
    Ok(objects)
}

fn rendered(session: &Session, work: &Work) -> Result<Object, Failure> {
    let FromFlags { name, replicas, cpu, memory, queue, image, env, workdir, min_available, max_retry, priority_class } =
        &work.flags;
    // On this machine a command finds what it would find in this shell, and leaves what it would leave.
    let here = session.is_local() && image.is_none();
    let workdir = match (workdir, &session.surroundings.directory) {
        (Some(dir), Some(current)) => Some(current.join(dir)),
        (None, current) if here => current.clone(),
        (dir, _) => dir.clone(),
    };
    let workdir = workdir.map(|dir| match dir.to_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(usage(format!("--workdir {} is not UTF-8 text", dir.display()))),
    });
    let flags = JobFlags {
        name: name.clone(),
        namespace: session.global.namespace.clone(),
        replicas: *replicas,
        cpu: cpu.clone(),
        memory: memory.clone(),
        queue: queue.clone(),
        image: image.clone(),
        env: env.iter().map(|text| assignment(text)).collect::<Result<_, _>>()?,
        workdir: workdir.transpose()?,
        share_workdir: here,
        min_available: *min_available,
        max_retry: *max_retry,
        priority_class: priority_class.clone(),
        command: work.argv.clone(),
    };
    let job = render::render(&flags)?;
    let body = serde_json::to_value(job).map_err(|error| Failure::Machine(error.into()))?;
    Ok(Object { body, origin: "flags".to_owned() })
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

fn usage(message: String) -> Failure {
    Failure::Usage { message, next: "jobctl run --help".to_owned() }
}
