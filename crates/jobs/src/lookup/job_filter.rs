//! Which jobs a user means: by names, patterns, labels, states, queues and age, all of which must hold.
//!
//! Invariant: [`JobFilter::matches`] is pure; the server is asked for a list only where names alone don't say it, and once.
//! Called by every verb that takes jobs.

use jiff::Timestamp;
use serde_json::Value;

use crate::error::Error;
use crate::job::state::State;
use crate::job::{JobError, JobRef, JobRow, Selector, jobs_path};
use crate::platform::call::{self, Pages};
use crate::platform::connection::Connection;

/// Which jobs are meant. Empty lists leave nothing out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobFilter {
    /// By what was typed for them: any of these.
    pub selectors: Vec<Selector>,
    /// By their state: any of these.
    pub states: Vec<State>,
    /// By their queue.
    pub queue: Option<String>,
    /// By who submitted them.
    pub user: Option<String>,
    /// Made at most so many seconds ago.
    pub since_s: Option<i64>,
    /// By a label selector, which the server understands.
    pub labels: Option<String>,
}

impl JobFilter {
    /// One selector and nothing else.
    pub fn one(selector: &Selector) -> Self {
        JobFilter { selectors: vec![selector.clone()], ..JobFilter::default() }
    }

    /// Whether names alone say which jobs are meant.
    fn is_names(&self) -> bool {
        let JobFilter { selectors, states, queue, user, since_s, labels } = self;
        !selectors.is_empty()
            && selectors.iter().all(|selector| matches!(selector, Selector::Name(_)))
            && (states.is_empty() && queue.is_none() && user.is_none() && since_s.is_none() && labels.is_none())
    }

    /// Those of all jobs of a namespace, or of all namespaces, that are meant, in their order. Labels are the server's to see.
    pub fn matches(&self, jobs: Vec<JobRow>, now: Timestamp) -> Vec<JobRow> {
        let newest = jobs.iter().max_by_key(|job| job.birth()).map(|job| job.metadata.uid.clone());
        let named = |job: &JobRow| {
            self.selectors.is_empty()
                || self.selectors.iter().any(|selector| match selector {
                    Selector::Last => Some(&job.metadata.uid) == newest.as_ref(),
                    Selector::Name(name) => *name == job.metadata.name,
                    Selector::Glob(glob) => glob.matches(&job.metadata.name),
                })
        };
        let keeps = |job: &JobRow| {
            named(job)
                && (self.states.is_empty() || self.states.iter().any(|state| state.holds(job.phase())))
                && self.queue.as_deref().is_none_or(|queue| queue == job.queue())
                && self.user.as_deref().is_none_or(|user| user == job.metadata.user)
                && self.since_s.is_none_or(|since| job.age_s(now).is_some_and(|age| age <= since))
        };
        jobs.into_iter().filter(keeps).collect()
    }

    /// What was looked for, for people.
    pub fn words(&self) -> String {
        let mut words: Vec<String> = self.selectors.iter().map(Selector::to_string).collect();
        words.extend(self.labels.iter().map(|labels| format!("with labels {labels}")));
        words.extend(self.queue.iter().map(|queue| format!("in queue {queue}")));
        words.extend(self.user.iter().map(|user| format!("of {user}")));
        if !self.states.is_empty() {
            words.push("in that state".to_owned());
        }
        words.join(" ")
    }
}

/// Where jobs are listed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scope<'p> {
    /// In all namespaces, not only in the connection's.
    pub all_namespaces: bool,
    pub labels: Option<&'p str>,
}

/// All jobs of a scope, oldest first within a namespace; with the objects themselves if `whole`.
pub async fn list(connection: &Connection, scope: Scope<'_>, whole: bool) -> Result<Vec<JobRow>, Error> {
    let path = jobs_path((!scope.all_namespaces).then(|| connection.namespace()));
    let labels = scope.labels.map(|labels| format!("&labelSelector={}", call::query_value(labels)));
    let mut pages = Pages::new(connection, &path, &labels.unwrap_or_default(), "list jobs");
    let mut jobs: Vec<JobRow> = Vec::new();
    if whole {
        while let Some(page) = pages.next_items::<Value>().await? {
            for object in page {
                let summary = super::row(connection, &object)?;
                jobs.push(JobRow { whole: Some(object), ..summary });
            }
        }
    } else {
        while let Some(page) = pages.next_items().await? {
            jobs.extend(page);
        }
    }
    jobs.sort_by(|a, b| (&a.metadata.namespace, a.birth()).cmp(&(&b.metadata.namespace, b.birth())));
    Ok(jobs)
}

/// The jobs that are meant, at least one. A job that is only named may not exist.
pub async fn find(connection: &Connection, filter: &JobFilter, now: Timestamp) -> Result<Vec<JobRef>, Error> {
    let namespace = connection.namespace();
    let named = |name: &String| JobRef { namespace: namespace.to_owned(), name: name.clone() };
    let mut jobs: Vec<JobRef> = Vec::new();
    if filter.is_names() {
        let names = filter.selectors.iter().filter_map(|selector| match selector {
            Selector::Name(name) => Some(name),
            _ => None,
        });
        jobs.extend(names.map(named));
    } else {
        let scope = Scope { all_namespaces: false, labels: filter.labels.as_deref() };
        let all = list(connection, scope, false).await?;
        if all.is_empty() && filter.selectors.contains(&Selector::Last) {
            return Err(JobError::NoJobs { namespace: namespace.to_owned() }.into());
        }
        jobs.extend(filter.matches(all, now).iter().map(JobRow::reference));
    }
    let mut seen = std::collections::HashSet::new();
    jobs.retain(|job| seen.insert(job.name.clone()));
    if jobs.is_empty() {
        return Err(JobError::NoMatch { wanted: filter.words(), namespace: namespace.to_owned() }.into());
    }
    Ok(jobs)
}

/// The one job a selector means; [`JobError::Several`] if a pattern hits more.
pub async fn find_one(connection: &Connection, selector: &Selector) -> Result<JobRef, Error> {
    // Nothing of one selector goes by age.
    let mut jobs = find(connection, &JobFilter::one(selector), Timestamp::UNIX_EPOCH).await?;
    match (jobs.pop(), jobs.len()) {
        (Some(job), 0) => Ok(job),
        (_, more) => Err(JobError::Several { pattern: selector.to_string(), hits: more + 1 }.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn jobs() -> Vec<JobRow> {
        let job = |name: &str, second: u32, queue: &str, phase: Option<&str>| {
            json!({"metadata": {"name": name, "annotations": {"pumice.sh/user": if queue.is_empty() { "ada" } else { "bob" }}, "namespace": "n", "uid": name, "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z")},
                   "spec": {"queue": queue, "tasks": [{"replicas": 2, "template": {"spec": {}}}]},
                   "status": {"state": {"phase": phase}}})
        };
        let jobs = json!([
            job("sweep-1", 1, "", Some("Running")),
            job("sweep-2", 50, "night", Some("Failed")),
            job("other", 50, "night", Some("Completed")),
            job("fresh", 20, "", None),
        ]);
        serde_json::from_value(jobs).unwrap()
    }

    #[test]
    fn all_that_is_asked_for_must_hold() {
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        let selectors = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<Selector>>();
        let states = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<State>>();
        let none = JobFilter::default;
        for (filter, wanted) in [
            (none(), "sweep-1 sweep-2 other fresh"),
            (JobFilter { selectors: selectors(&["sweep-*"]), ..none() }, "sweep-1 sweep-2"),
            (JobFilter { selectors: selectors(&["other", "sweep-1"]), ..none() }, "sweep-1 other"),
            (JobFilter { selectors: selectors(&["last"]), ..none() }, "sweep-2"),
            (JobFilter { states: states(&["failed", "completed"]), ..none() }, "sweep-2 other"),
            (JobFilter { states: states(&["active"]), ..none() }, "sweep-1 fresh"),
            (JobFilter { queue: Some("default".into()), ..none() }, "sweep-1 fresh"),
            (JobFilter { since_s: Some(30), ..none() }, "sweep-2 other"),
            (JobFilter { selectors: selectors(&["sweep-*"]), states: states(&["failed"]), ..none() }, "sweep-2"),
            (JobFilter { user: Some("ada".into()), ..none() }, "sweep-1 fresh"),
            (JobFilter { user: Some("ad".into()), ..none() }, ""),
            (JobFilter { queue: Some("day".into()), ..none() }, ""),
        ] {
            let matches = filter.matches(jobs(), now);
            let names: Vec<&str> = matches.iter().map(|job| job.metadata.name.as_str()).collect();
            assert_eq!(names.join(" "), wanted, "{filter:?}");
        }
    }

    #[test]
    fn within_a_second_the_uid_decides_which_is_newer() {
        let newest = jobs().into_iter().max_by(|a, b| a.birth().cmp(&b.birth())).unwrap();
        assert_eq!(newest.metadata.name, "sweep-2");
    }
}
