//! What became of a job's memory, told while it runs: pods that are made again with more, a start with what was learned, pods
//! that no node can hold.
//!
//! Invariant: a sentence is told once; of raises it is told at the first and whenever their number has doubled, so a job of very
//! many pods says little. Pure. Called by whatever shows a job's state.

use std::collections::BTreeMap;

use pumice_api::batch::Job;
use pumice_api::names::{MEMORY_EXCEEDS_NODES as TOO_LARGE, MEMORY_START as START};
use serde_json::Value;

/// Longest text that is read.
const TEXT_MAX: usize = 32 * 1024;

/// Remembers what was told.
#[derive(Debug, Clone, Default)]
pub struct MemoryNotices {
    raised: u64,
    start: bool,
    too_large: String,
}

impl MemoryNotices {
    /// What is new in a job's state.
    pub fn take(&mut self, job: &Job) -> Vec<String> {
        let mut notices = Vec::new();
        if !self.start {
            notices.extend(start(job));
            self.start = !notices.is_empty();
        }
        let raised: u64 = job.status.memory_raises.iter().map(|raise| pods(&raise.indices)).sum();
        if raised > 0 && (self.raised == 0 || raised >= self.raised.saturating_mul(2)) {
            self.raised = raised;
            let pods = if raised == 1 { "1 pod was".to_owned() } else { format!("{raised} pods were") };
            notices.push(format!("{pods} killed for memory and started again with more"));
        }
        let state = &job.status.state;
        let too_large = if state.reason == TOO_LARGE { state.message.as_str() } else { "" };
        if too_large != self.too_large {
            too_large.clone_into(&mut self.too_large);
            notices.extend(Some(self.too_large.clone()).filter(|text| !text.is_empty()));
        }
        notices
    }
}

/// How many indices a text such as `0-3,7:2` names.
fn pods(indices: &str) -> u64 {
    let span = |part: &str| {
        let span = part.split(':').next()?;
        let (first, last) = span.split_once('-').unwrap_or((span, span));
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    indices.split(',').filter_map(span).fold(0, u64::saturating_add)
}

/// What the job starts with, if that was learned.
fn start(job: &Job) -> Option<String> {
    let text = job.metadata.annotations.as_ref()?.get(START).filter(|text| text.len() <= TEXT_MAX)?;
    let value: Value = serde_json::from_str(text).ok()?;
    if value["uid"].as_str() != job.metadata.uid.as_deref() {
        return None;
    }
    let tasks: BTreeMap<String, BTreeMap<String, String>> = serde_json::from_value(value["tasks"].clone()).ok()?;
    let (task, (container, amount)) = tasks.iter().find_map(|(task, of)| Some((task, of.first_key_value()?)))?;
    let all: usize = tasks.values().map(BTreeMap::len).sum();
    let more = if all > 1 { format!(", and {} more", all - 1) } else { String::new() };
    Some(format!(
        "starts with {amount} of memory, learned from earlier runs (task {task}, container {container}{more})"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn job(indices: &str, state: Value) -> Job {
        let start = json!({"uid": "u", "tasks": {"w": {"c": "300Mi", "d": "1Gi"}}}).to_string();
        serde_json::from_value(json!({
            "metadata": {"uid": "u", "annotations": {START: start}}, "spec": {},
            "status": {"state": state, "memoryRaises": [{"task": "w", "container": "c", "indices": indices}]},
        }))
        .unwrap()
    }

    #[test]
    fn each_thing_is_told_once() {
        let mut notices = MemoryNotices::default();
        let start = "starts with 300Mi of memory, learned from earlier runs (task w, container c, and 1 more)";
        assert_eq!(notices.take(&job("", json!({}))), [start]);
        assert_eq!(notices.take(&job("", json!({}))), [""; 0]);
        assert_eq!(notices.take(&job("3", json!({}))), ["1 pod was killed for memory and started again with more"]);
        assert_eq!(notices.take(&job("3:2", json!({}))), [""; 0]);
        assert_eq!(
            notices.take(&job("0-3:2,7", json!({}))),
            ["5 pods were killed for memory and started again with more"]
        );
        assert_eq!(notices.take(&job("0-8", json!({}))), [""; 0], "not twice as many yet");
        let too_large = json!({"reason": TOO_LARGE, "message": "pod 3 needs 96Gi"});
        assert_eq!(notices.take(&job("0-8", too_large.clone())), ["pod 3 needs 96Gi"]);
        assert_eq!(notices.take(&job("0-8", too_large)), [""; 0]);
        assert_eq!(notices.take(&job("0-8", json!({"reason": "Other", "message": "x"}))), [""; 0]);
    }

    #[test]
    fn what_is_hostile_is_nothing() {
        for (indices, expected) in [("9-3", 0), ("x", 0), ("0-18446744073709551615", 0), ("1,,2", 2), ("-1", 0)] {
            assert_eq!(pods(indices), expected, "{indices}");
        }
        let mut hostile = job("", json!({}));
        for text in ["[", "[]", r#"{"uid":"u","tasks":{"w":{}}}"#, r#"{"uid":"v","tasks":{"w":{"c":"1Gi"}}}"#] {
            hostile.metadata.annotations = Some([(START.to_owned(), text.to_owned())].into());
            assert_eq!(MemoryNotices::default().take(&hostile), [""; 0], "{text}");
        }
    }
}
