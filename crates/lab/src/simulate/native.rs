//! Our own format of traces: a JSON object on each line, a job or a queue. Made for tests, for people and by the
//! generators, so that what was generated can be looked at and kept.
//!
//! Invariant: what is written here is read back as it was. Called by the edge that reads and writes traces.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use pumice_engine::Resources;
use pumice_units::Quantity;
use serde::{Deserialize, Serialize};

use super::trace::{DEFAULT_QUEUE, JOBS_MAX, Job, Notes, PODS_MAX, TIME_MAX_MS, Trace};

/// Bytes of one line.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Why a trace can't be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum NativeError {
    /// A line is not a job or a queue.
    #[error("line {line}: {message}")]
    Line {
        line: usize,
        /// What is wrong with it.
        message: String,
    },
    /// It has too many jobs.
    #[error("it has more than {JOBS_MAX} jobs: cut it")]
    TooMany,
}

/// A line: seconds, and quantities as Kubernetes writes them.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Line {
    /// The job's name; its line's number where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    submit: f64,
    #[serde(default = "user")]
    user: String,
    #[serde(default = "queue")]
    queue: String,
    #[serde(default = "one")]
    pods: u32,
    /// Pods that start together; all where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    min: Option<u32>,
    requests: BTreeMap<String, String>,
    run: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limit: Option<f64>,
    #[serde(default, skip_serializing_if = "is_default")]
    priority: i32,
    #[serde(default, skip_serializing_if = "is_default")]
    preemptable: bool,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    profile: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deadline: Option<f64>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct QueueLine {
    weight: i32,
    of: String,
}

fn user() -> String {
    "user".to_owned()
}

fn queue() -> String {
    DEFAULT_QUEUE.to_owned()
}

fn one() -> u32 {
    1
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Reads a trace. Empty lines and lines that begin with `#` mean nothing.
///
/// # Errors
/// At the first line that is neither a job nor a queue.
pub fn read(text: &str) -> Result<Trace, NativeError> {
    let (mut jobs, mut queues, mut names) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
    for (index, line) in text.lines().enumerate() {
        let wrong = |message: String| NativeError::Line { line: index + 1, message };
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if line.len() > LINE_BYTES_MAX {
            return Err(wrong(format!("it has {} bytes, more than {LINE_BYTES_MAX}", line.len())));
        }
        if let Ok(queue) = serde_json::from_str::<QueueLine>(line) {
            queues.insert(queue.of.as_str().into(), queue.weight.max(1));
            continue;
        }
        if jobs.len() >= JOBS_MAX {
            return Err(NativeError::TooMany);
        }
        let line: Line = serde_json::from_str(line).map_err(|error| wrong(error.to_string()))?;
        let job = job(line, index + 1).map_err(wrong)?;
        if !names.insert(job.name.clone()) {
            return Err(wrong(format!("there is a job {:?} before it", job.name)));
        }
        jobs.push(job);
    }
    Ok(Trace::new(jobs, queues, Notes::default()))
}

fn job(line: Line, number: usize) -> Result<Job, String> {
    if line.pods == 0 || line.pods > PODS_MAX {
        return Err(format!("pods: {} is not between 1 and {PODS_MAX}", line.pods));
    }
    let mut requests = Resources::new();
    for (name, text) in line.requests {
        let amount: Quantity = text.parse().map_err(|_| format!("requests: {name}: {text:?} is no quantity"))?;
        let amount = if name == "cpu" { amount.cpu_milli() } else { amount.value() };
        if amount < 0 {
            return Err(format!("requests: {name}: {text:?} is less than nothing"));
        }
        requests.insert(name, amount);
    }
    let ms = |name: &str, seconds: f64| {
        let ms = (seconds * 1_000.0).round();
        let fine = (0.0..=TIME_MAX_MS as f64).contains(&ms);
        if fine { Ok(ms as i64) } else { Err(format!("{name}: {seconds} is no number of seconds")) }
    };
    Ok(Job {
        name: line.name.unwrap_or_else(|| format!("j{number}")),
        submit_ms: ms("submit", line.submit)?,
        user: line.user.into(),
        queue: line.queue.into(),
        pods: line.pods,
        min: line.min.unwrap_or(line.pods),
        requests: Arc::new(requests),
        run_ms: ms("run", line.run)?,
        limit_ms: line.limit.map(|limit| ms("limit", limit)).transpose()?,
        priority: line.priority,
        preemptable: line.preemptable,
        profile: line.profile.into(),
        deadline_ms: line.deadline.map(|deadline| ms("deadline", deadline)).transpose()?,
    })
}

/// The trace's lines, queues first.
pub fn write(trace: &Trace) -> String {
    let mut text = String::new();
    let mut put = |line: Result<String, serde_json::Error>| {
        // Maps with keys of text and numbers that are no NaN always serialise, and writing to a String never fails.
        let _ = writeln!(text, "{}", line.unwrap_or_default());
    };
    for (queue, weight) in &trace.queues {
        put(serde_json::to_string(&QueueLine { weight: *weight, of: queue.to_string() }));
    }
    let seconds = |ms: i64| ms as f64 / 1_000.0;
    for job in &trace.jobs {
        let written = |(name, amount): (&String, &i64)| (name.clone(), pumice_translate::wire_amount(name, *amount));
        put(serde_json::to_string(&Line {
            name: Some(job.name.clone()),
            submit: seconds(job.submit_ms),
            user: job.user.to_string(),
            queue: job.queue.to_string(),
            pods: job.pods,
            min: Some(job.min).filter(|min| *min != job.pods),
            requests: job.requests.iter().map(written).collect(),
            run: seconds(job.run_ms),
            limit: job.limit_ms.map(seconds),
            priority: job.priority,
            preemptable: job.preemptable,
            profile: job.profile.to_string(),
            deadline: job.deadline_ms.map(seconds),
        }));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let text = "# two jobs\n{\"weight\":3,\"of\":\"research\"}\n\
            {\"submit\":1.5,\"requests\":{\"cpu\":\"500m\",\"memory\":\"2Gi\"},\"run\":10}\n\n\
            {\"name\":\"wide\",\"submit\":0,\"user\":\"ann\",\"queue\":\"research\",\"pods\":4,\"min\":2,\
             \"requests\":{\"cpu\":\"2\",\"nvidia.com/gpu\":\"1\"},\"run\":7200,\"limit\":3600,\"priority\":-5,\
             \"preemptable\":true,\"profile\":\"train\",\"deadline\":9000}\n";
        let trace = read(text).unwrap();
        assert_eq!((trace.jobs[0].name.as_str(), trace.jobs[1].name.as_str()), ("wide", "j3"));
        assert_eq!((trace.jobs[1].submit_ms, trace.jobs[1].requests["cpu"]), (1_500, 500));
        assert_eq!((trace.jobs[0].min, trace.jobs[0].priority, trace.queues["research"]), (2, -5, 3));
        let again = read(&write(&trace)).unwrap();
        assert_eq!((&again.jobs, &again.queues), (&trace.jobs, &trace.queues));
    }

    #[test]
    fn a_wrong_line_is_named() {
        for (line, message) in [
            ("{", "EOF"),
            ("{\"submit\":0,\"requests\":{},\"run\":1,\"colour\":1}", "colour"),
            ("{\"submit\":-1,\"requests\":{},\"run\":1}", "submit: -1"),
            ("{\"submit\":0,\"requests\":{},\"run\":1e300}", "run: "),
            ("{\"submit\":0,\"requests\":{\"cpu\":\"x\"},\"run\":1}", "is no quantity"),
            ("{\"submit\":0,\"requests\":{\"cpu\":\"-1\"},\"run\":1}", "less than nothing"),
            ("{\"submit\":0,\"requests\":{},\"run\":1,\"pods\":0}", "pods: 0"),
            ("{\"name\":\"j1\",\"submit\":0,\"requests\":{},\"run\":1}", "before it"),
        ] {
            let text = format!("{{\"submit\":0,\"requests\":{{}},\"run\":1}}\n{line}\n");
            let error = read(&text).unwrap_err().to_string();
            assert!(error.starts_with("line 2: ") && error.contains(message), "{line}: {error}");
        }
        assert!(read(&format!("{{\"name\":\"{}\"}}", "x".repeat(LINE_BYTES_MAX))).is_err());
    }
}
