//! Names of what there is on a platform, for who has typed the beginning of one.
//!
//! Invariant: at most [`NAMES_MAX`] names, each begins with what was typed; jobs newest first, all else by name. Called where
//! shells complete command lines.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::error::Error;
use crate::job::JobRow;
use crate::job::state::State;
use crate::lookup::{self, Scope};
use crate::names::ZONE;
use crate::platform::call::{CallError, Pages};
use crate::platform::connection::Connection;

/// More names help nobody to choose.
pub const NAMES_MAX: usize = 200;

/// The kind of things whose names complete what was typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Jobs of the namespace, in any of these states if some are given.
    Jobs(Vec<State>),
    Queues,
    Nodes,
    /// Zones that nodes are in.
    Zones,
    Namespaces,
    Priorities,
}

/// What is read of an object.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Named {
    metadata: Identity,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Identity {
    name: String,
    labels: BTreeMap<String, String>,
}

/// The names of this kind that begin with `begin`.
pub async fn names(connection: &Connection, kind: &Kind, begin: &str) -> Result<Vec<String>, Error> {
    let path = match kind {
        Kind::Jobs(states) => {
            let jobs = lookup::list(connection, Scope::default(), false).await?;
            return Ok(newest(jobs, states, begin));
        }
        Kind::Queues => "/apis/scheduling.volcano.sh/v1beta1/queues",
        Kind::Nodes | Kind::Zones => "/api/v1/nodes",
        Kind::Namespaces => "/api/v1/namespaces",
        Kind::Priorities => "/apis/scheduling.k8s.io/v1/priorityclasses",
    };
    let name = |object: Named| match kind {
        Kind::Zones => object.metadata.labels.get(ZONE).cloned(),
        _ => Some(object.metadata.name),
    };
    Ok(first(connection, path, name, begin).await?)
}

/// Reads no further than it must: the server lists by name.
async fn first(
    connection: &Connection,
    path: &str,
    name: impl Fn(Named) -> Option<String>,
    begin: &str,
) -> Result<Vec<String>, CallError> {
    let mut names = BTreeSet::new();
    let mut pages = Pages::new(connection, path, "", "list names");
    while let Some(page) = pages.next_items::<Named>().await? {
        names.extend(page.into_iter().filter_map(&name).filter(|name| name.starts_with(begin)));
        if names.len() >= NAMES_MAX {
            break;
        }
    }
    Ok(names.into_iter().take(NAMES_MAX).collect())
}

fn newest(jobs: Vec<JobRow>, states: &[State], begin: &str) -> Vec<String> {
    let fits = |job: &JobRow| {
        job.metadata.name.starts_with(begin)
            && (states.is_empty() || states.iter().any(|state| state.holds(job.phase())))
    };
    jobs.into_iter().rev().filter(fits).take(NAMES_MAX).map(|job| job.metadata.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn jobs_are_offered_newest_first_and_not_too_many() {
        let job = |index: usize| {
            let phase = if index.is_multiple_of(2) { "Running" } else { "Completed" };
            json!({"metadata": {"name": format!("sweep-{index}")}, "status": {"state": {"phase": phase}}})
        };
        let jobs = || -> Vec<JobRow> { serde_json::from_value((0..1000).map(job).collect()).unwrap() };
        let all = newest(jobs(), &[], "");
        assert_eq!((all.len(), all[0].as_str(), all[1].as_str()), (NAMES_MAX, "sweep-999", "sweep-998"));
        assert_eq!(
            newest(jobs(), &[State::Ended], "sweep-10"),
            ["sweep-109", "sweep-107", "sweep-105", "sweep-103", "sweep-101"]
        );
        assert!(newest(jobs(), &[], "other").is_empty());
    }
}
