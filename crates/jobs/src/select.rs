//! Which job a user means: a name, `job/NAME` as `submit` prints it, or `last`.
//!
//! Invariant: a resolved [`JobRef`] names a valid path; whether the job exists is for the caller to see.

use pumice_api::batch::Job;
use serde_json::Value;

use crate::call;
use crate::connection::Connection;
use crate::error::Error;
use crate::names::{self, NameError};

/// A job's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl JobRef {
    /// Path of the object.
    pub fn path(&self) -> String {
        format!("{}/{}", jobs_path(Some(&self.namespace)), self.name)
    }

    /// A flag that repeats the namespace where it isn't the default, for commands shown to people.
    pub fn namespace_flag(&self) -> String {
        if self.namespace == "default" { String::new() } else { format!(" --namespace {}", self.namespace) }
    }

    /// The error that says it does not exist.
    pub fn missing(&self) -> Error {
        Error::NoJob { name: self.name.clone(), namespace: self.namespace.clone() }
    }
}

/// What a user typed for a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// The newest.
    Last,
    /// By name.
    Name(String),
}

impl std::str::FromStr for Selector {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text == "last" {
            return Ok(Selector::Last);
        }
        let name = match text.split_once('/') {
            Some(("job" | "jobs" | "vcjob" | "job.batch.volcano.sh" | "jobs.batch.volcano.sh", name)) => name,
            _ => text,
        };
        names::check("job name", name, 253)?;
        Ok(Selector::Name(name.to_owned()))
    }
}

/// Path of the jobs of a namespace, or of all.
pub fn jobs_path(namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("/apis/batch.volcano.sh/v1alpha1/namespaces/{namespace}/jobs"),
        None => "/apis/batch.volcano.sh/v1alpha1/jobs".to_owned(),
    }
}

/// Finds the job a selector means. Asks the server only for `last`.
pub async fn resolve(connection: &Connection, selector: &Selector) -> Result<JobRef, Error> {
    let namespace = connection.namespace().to_owned();
    let name = match selector {
        Selector::Name(name) => name.clone(),
        Selector::Last => {
            let (jobs, _) = call::list(connection, &jobs_path(Some(&namespace)), "", "list jobs").await?;
            newest(&jobs).ok_or_else(|| Error::NoJobs { namespace: namespace.clone() })?
        }
    };
    Ok(JobRef { namespace, name })
}

/// The name of the job created last. Within one second the uid decides, which our server makes in
/// the order of time.
fn newest(jobs: &[Value]) -> Option<String> {
    let key = |job: &Value| {
        ["/metadata/creationTimestamp", "/metadata/uid"].map(|pointer| call::text_at(job, pointer).to_owned())
    };
    let newest = jobs.iter().max_by_key(|job| key(job))?;
    Some(call::text_at(newest, "/metadata/name").to_owned())
}

/// Reads a job; [`Error::NoJob`] if there is none.
pub async fn get(connection: &Connection, job: &JobRef) -> Result<Value, Error> {
    let doing = format!("read job {}", job.name);
    call::get(connection, &job.path(), &doing).await.map_err(|error| match error.class() {
        call::FailureClass::NotFound => job.missing(),
        _ => Error::Call(error),
    })
}

/// The typed view of a job.
pub fn typed(connection: &Connection, object: &Value) -> Result<Job, Error> {
    <Job as serde::Deserialize>::deserialize(object)
        .map_err(|error| call::CallError::unreadable("read a job", connection.url(), error).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors() {
        let name = |n: &str| Ok(Selector::Name(n.to_owned()));
        assert_eq!("last".parse(), Ok(Selector::Last));
        assert_eq!("job/last".parse::<Selector>(), name("last"));
        assert_eq!("job/a-b".parse::<Selector>(), name("a-b"));
        assert_eq!("jobs.batch.volcano.sh/x".parse::<Selector>(), name("x"));
        assert_eq!("x".parse::<Selector>(), name("x"));
        for bad in ["", "pod/x", "../x", "a/b/c", "X"] {
            assert!(bad.parse::<Selector>().is_err(), "{bad}");
        }
    }

    #[test]
    fn newest_by_time_then_uid() {
        let job = |name: &str, at: &str, uid: &str| serde_json::json!({"metadata": {"name": name, "creationTimestamp": at, "uid": uid}});
        let jobs = [
            job("a", "2026-01-01T00:00:01Z", "01"),
            job("c", "2026-01-01T00:00:02Z", "03"),
            job("b", "2026-01-01T00:00:02Z", "02"),
        ];
        assert_eq!(newest(&jobs).as_deref(), Some("c"));
        assert_eq!(newest(&[]), None);
    }
}
