//! What a user types for a job: a name, `job/NAME` as `submit` prints it, a pattern, or `last`; and the job's place.
//!
//! Invariant: a [`JobRef`] names a valid path; whether the job exists is for the caller to see. Which jobs are meant where it
//! may be several is in `lookup`.

use crate::names::glob::Glob;
use crate::names::{self, NameError};

/// The namespace and the name of one job, by which everything asks for it. Another job may have them later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRef {
    pub namespace: String,
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
}

/// What a user typed for a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// The newest.
    Last,
    /// By name.
    Name(String),
    /// All of this pattern.
    Glob(Glob),
}

impl std::fmt::Display for Selector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Selector::Last => f.write_str(names::NEWEST),
            Selector::Name(name) => f.write_str(name),
            Selector::Glob(glob) => glob.fmt(f),
        }
    }
}

impl std::str::FromStr for Selector {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text == names::NEWEST {
            return Ok(Selector::Last);
        }
        let name = match text.split_once('/') {
            Some(("job" | "jobs" | "vcjob" | "job.batch.volcano.sh" | "jobs.batch.volcano.sh", name)) => name,
            _ => text,
        };
        if Glob::is_one(name) {
            return Ok(Selector::Glob(Glob::new("job name", name)?));
        }
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
        assert_eq!("job/a-*".parse::<Selector>().unwrap().to_string(), "a-*");
        for bad in ["", "pod/x", "A*", "../x", "a/b/c", "X"] {
            assert!(bad.parse::<Selector>().is_err(), "{bad}");
        }
    }
}
