//! What is asked of a cluster itself, as far as the log knows: whose pod it is, where that is, and who may ask.
//!
//! Who may watch a queue may read what its pods write. Cordoning a node takes the permission for it.

use jiff::{SignedDuration, Timestamp};
use pumice_fleet_model::names::{pod_name, pod_number};
use pumice_ledger::{JobId, RunId, Verb};
use pumice_wire::binoculars::LogRequest;
use pumice_wire::executor::ReadLog;
use pumice_wire::kubernetes::PodLogOptions;
use serde::Deserialize;

use super::limits;
use super::{Api, Error, Permission, Who};
use crate::database::{RunRow, RunState};

/// Bytes of an answer with lines of a log, times among them.
pub(crate) const LOG_BYTES_MAX: u32 = 1 << 20;

/// Armada's labels of a node that somebody cordoned.
const CORDON_REASON: (&str, &str) = ("armadaproject.io/cordon-reason", "binoculars");
const CORDON_USER: &str = "armadaproject.io/cordon-user";
/// Longest value of a label.
const LABEL_MAX: usize = 63;

/// Which lines are wanted, as Kubernetes has it; what is not here makes no difference.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Options {
    container: String,
    previous: bool,
    since_seconds: Option<i64>,
    since_time: Option<String>,
    tail_lines: Option<i64>,
    limit_bytes: Option<i64>,
}

/// Where a log is, and what to ask for it.
pub(crate) struct PodLog {
    /// The cluster that has the pod.
    pub cluster: String,
    /// The run whose pod it is.
    pub run: RunId,
    /// What to ask of the cluster's executor.
    pub read: ReadLog,
}

impl Api {
    /// The pod whose log is asked for. `exactly` is a pod's number that goes before the request's, and of which 0 is the first
    /// one.
    pub(crate) async fn log_of(&self, who: &Who, request: LogRequest, exactly: Option<u32>) -> Result<PodLog, Error> {
        limits::name("jobId", &request.job_id)?;
        let id: JobId = request.job_id.parse().map_err(|source| Error::Id { field: "jobId", source })?;
        let mut lines = wanted(&request, self.now().0)?;
        let job = self.log().jobs(&[id]).await?.into_iter().next().ok_or(Error::NoJob(id))?;
        who.need_verb(&self.queue_lately(&job.queue).await?, Verb::Watch)?;
        let runs = self.log().runs_of(&[id]).await?;
        let run = run_of(id, request.pod_number, exactly, &runs)?;
        let (namespace, pod) = match &run.pod {
            Some(pod) if !pod.name.is_empty() => (pod.namespace.clone(), pod.name.clone()),
            // It ended before anything else was said of it.
            _ => (job.namespace, pod_name(run.run)),
        };
        (lines.run_id, lines.namespace, lines.pod_name) = (run.run.to_string(), namespace, pod);
        Ok(PodLog { cluster: run.at.cluster.clone(), run: run.run, read: lines })
    }

    /// Refuses who may not cordon nodes. The cluster, where one is named, and the node.
    pub(crate) fn node_to_cordon<'n>(&self, who: &Who, name: &'n str) -> Result<(Option<&'n str>, &'n str), Error> {
        who.need(Permission::CordonNodes, "cordon nodes")?;
        limits::name("nodeName", name)?;
        Ok(match name.split_once('/') {
            Some((cluster, node)) => (Some(cluster), node),
            None => (None, name),
        })
    }
}

/// The one cluster that is meant, of those that have a node of this name.
pub(crate) fn home(cluster: Option<&str>, node: &str, mut homes: Vec<String>) -> Result<String, Error> {
    homes.retain(|home| cluster.is_none_or(|cluster| cluster == home));
    if homes.len() > 1 {
        let (first, clusters) = (homes.remove(0), homes.join(", "));
        let (node, clusters) = (node.to_owned(), format!("{first}, {clusters}"));
        return Err(Error::Nodes { node, clusters, first });
    }
    let missing = || match cluster {
        Some(cluster) => Error::NoNode(format!("{cluster}/{node}")),
        None => Error::NoNode(node.to_owned()),
    };
    homes.pop().ok_or_else(missing)
}

/// What is put on a node that this user cordons.
pub(crate) fn cordon_labels(user: &str) -> [(String, String); 2] {
    let (reason, binoculars) = CORDON_REASON;
    [(reason.to_owned(), binoculars.to_owned()), (CORDON_USER.to_owned(), label_value(user))]
}

/// A name in the letters that a label may have.
fn label_value(name: &str) -> String {
    let letter = |letter: char| match letter {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '_' | '.' => letter,
        _ => '_',
    };
    let letters: String = name.chars().take(LABEL_MAX).map(letter).collect();
    letters.trim_matches(|letter: char| !letter.is_ascii_alphanumeric()).to_owned()
}

/// Which lines, of a run that is yet to be found.
fn wanted(request: &LogRequest, now_ms: i64) -> Result<ReadLog, Error> {
    let wrong = |field: &str, problem: String| Error::Field { field: field.to_owned(), problem };
    let options = request.log_options.as_ref().map(PodLogOptions::to_json).transpose();
    let options = options.map_err(|error| wrong("logOptions", error.to_string()))?.unwrap_or_default();
    let options: Options = match options.is_null() {
        true => Options::default(),
        false => serde_json::from_value(options).map_err(|error| wrong("logOptions", error.to_string()))?,
    };
    limits::text("logOptions.container", &options.container, limits::ID_BYTES_MAX)?;
    let ago = |seconds: i64| {
        let now = Timestamp::from_millisecond(now_ms).unwrap_or(Timestamp::UNIX_EPOCH);
        now.checked_sub(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::UNIX_EPOCH)
    };
    let time = |field: &str, text: &str| {
        let problem = |_| "it is no time as in 2026-01-31T12:00:00.123456789Z".to_owned();
        text.parse::<Timestamp>().map_err(|error| wrong(field, problem(error)))
    };
    let since = match (request.since_time.as_str(), &options.since_time, options.since_seconds) {
        ("", None, None) => None,
        ("", None, Some(seconds)) if seconds > 0 => Some(ago(seconds)),
        ("", None, Some(_)) => return Err(wrong("logOptions.sinceSeconds", "have it above 0".to_owned())),
        ("", Some(text), _) => Some(time("logOptions.sinceTime", text)?),
        (text, ..) => Some(time("sinceTime", text)?),
    };
    let tail_lines = match options.tail_lines {
        Some(lines) if lines < 0 => return Err(wrong("logOptions.tailLines", "have it at least 0".to_owned())),
        lines => lines.map(|lines| u32::try_from(lines).unwrap_or(u32::MAX)),
    };
    let bytes_max = match options.limit_bytes {
        Some(bytes) if bytes < 1 => return Err(wrong("logOptions.limitBytes", "have it above 0".to_owned())),
        bytes => bytes.map_or(LOG_BYTES_MAX, |bytes| u32::try_from(bytes).unwrap_or(u32::MAX).min(LOG_BYTES_MAX)),
    };
    Ok(ReadLog {
        container: options.container,
        previous: options.previous,
        since_ns: since.map_or(0, |since| i64::try_from(since.as_nanosecond()).unwrap_or(0).max(0)),
        tail_lines,
        bytes_max,
        ..ReadLog::default()
    })
}

/// The run whose pod has this number. Clients of Armada know of one pod, whose number is 0, and mean the last one with it.
fn run_of(job: JobId, number: i32, exactly: Option<u32>, runs: &[RunRow]) -> Result<&RunRow, Error> {
    let stands = |stands: String| Error::NoPod { job, stands };
    let last = runs.iter().max_by_key(|row| row.run.attempt);
    let last = last.ok_or_else(|| {
        let path = format!("/v1/job/{job}/scheduler-report");
        stands(format!("has not started, so that there is no log yet; {path} says what it waits for"))
    })?;
    let asked = match (exactly, u32::try_from(number)) {
        (Some(number), _) => Some(number),
        (None, Ok(0)) => None,
        (None, Ok(number)) => Some(number),
        (None, Err(_)) => return Err(stands(format!("has no pod {number}: they count from 0"))),
    };
    let run = match asked {
        None => last,
        Some(number) => runs
            .iter()
            .find(|row| pod_number(row.run) == number)
            .ok_or_else(|| stands(format!("has no pod {number}: {} is its last one", pod_number(last.run))))?,
    };
    if run.state == RunState::Leased {
        return Err(stands(format!("has no pod yet: cluster {} is to make it on {}", run.at.cluster, run.at.node)));
    }
    Ok(run)
}

#[cfg(test)]
mod tests;
