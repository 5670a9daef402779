//! The long text of one Job: what it is, what it asks for, how it is, what happened.
//!
//! Invariant: the text's size is bounded by the Job's own and [`EVENTS_MAX`]; a line that is empty in a Job is left out.
//! Called by `job::view`.

use std::fmt::Write as _;

use jiff::Timestamp;
use pumice_jobs::json::text_at;
use pumice_jobs::platform::call::{self, Pages};
use serde_json::Value;

use crate::error::Error;
use crate::kinds::EVENT;
use crate::objects;
use crate::session::Session;
use crate::table::{Table, Width, age};

/// Events that are shown: the newest ones.
pub const EVENTS_MAX: usize = 50;
/// What kubectl notes for itself: the whole manifest once more.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Where a value begins, from its line's indent.
const VALUE_AT: usize = 20;

/// The newest events about an object, oldest first, and how many older ones there are.
#[derive(Debug, Default)]
pub struct Events {
    newest: Vec<Value>,
    older: usize,
}

impl Events {
    fn add(&mut self, event: Value) {
        self.newest.push(event);
        // Sorting at twice the size costs little for each event.
        if self.newest.len() >= 2 * EVENTS_MAX {
            self.cut();
        }
    }

    fn cut(&mut self) {
        self.newest.sort_by(|a, b| last_seen(a).cmp(last_seen(b)));
        let surplus = self.newest.len().saturating_sub(EVENTS_MAX);
        self.newest.drain(..surplus);
        self.older += surplus;
    }
}

/// Reads the events about a Job.
pub async fn events(session: &Session<'_>, job: &Value) -> Result<Events, Error> {
    let [namespace, name, uid] =
        ["/metadata/namespace", "/metadata/name", "/metadata/uid"].map(|pointer| text_at(job, pointer));
    let fields = format!("involvedObject.kind=Job,involvedObject.name={name},involvedObject.uid={uid}");
    let query = format!("&fieldSelector={}", call::query_value(&fields));
    let path = EVENT.collection(Some(namespace))?;
    let mut pages = Pages::new(&session.connection, &path, &query, "list events");
    let mut events = Events::default();
    while let Some(mut page) = pages.next().await? {
        objects::items(&mut page).for_each(|event| events.add(event));
    }
    events.cut();
    Ok(events)
}

/// The table of events.
pub fn event_lines(events: &Events, now: Timestamp) -> String {
    if events.newest.is_empty() {
        return format!("{:<VALUE_AT$}<none>\n", "Events:");
    }
    let widths = [("Type", 3), ("Reason", 3), ("Age", 3), ("From", 3), ("Message", 0)];
    let mut table = Table::new(widths.iter().map(|(head, more)| (*head, Width::Longest(*more))).collect());
    for event in &events.newest {
        let text = |pointer| text_at(event, pointer).trim().to_owned();
        let count = event["count"].as_u64().unwrap_or(1);
        let last = age_of(last_seen(event), now);
        let seen = match first_seen(event) {
            first if count > 1 && !first.is_empty() => format!("{last} (x{count} over {})", age_of(first, now)),
            _ => last,
        };
        let from = [text("/source/component"), text("/reportingComponent")];
        let from = from.into_iter().find(|from| !from.is_empty()).unwrap_or_default();
        table.push([text("/type"), text("/reason"), seen, from, text("/message")]);
    }
    let mut lines = Vec::new();
    // Writing into memory does not fail.
    let _ = table.write(0, &mut lines);
    let older = match events.older {
        0 => String::new(),
        older => format!("  ({older} older ones)\n"),
    };
    let lines = String::from_utf8_lossy(&lines).lines().map(|line| format!("  {line}\n")).collect::<String>();
    format!("Events:\n{older}{lines}")
}

fn last_seen(event: &Value) -> &str {
    seen(event, ["/lastTimestamp", "/series/lastObservedTime", "/eventTime", "/firstTimestamp"])
}

fn first_seen(event: &Value) -> &str {
    seen(event, ["/firstTimestamp", "/eventTime", "/metadata/creationTimestamp", "/lastTimestamp"])
}

fn seen<'e>(event: &'e Value, pointers: [&str; 4]) -> &'e str {
    pointers.iter().map(|pointer| text_at(event, pointer)).find(|at| !at.is_empty()).unwrap_or_default()
}

fn age_of(moment: &str, now: Timestamp) -> String {
    age(&Value::from(moment), "", now)
}

/// Lines of headings and values.
#[derive(Default)]
struct Page(String);

impl Page {
    /// A heading at a level, with a value unless that is empty.
    fn line(&mut self, level: usize, head: &str, value: impl AsRef<str>) {
        let value = value.as_ref();
        if !value.is_empty() {
            // A terminal must not obey what somebody wrote into a Job.
            let value = value.replace(|c: char| c.is_control() && c != '\n', " ").replace('\n', "\\n");
            let heading = format!("{head}:");
            // Writing into memory does not fail.
            let _ = writeln!(self.0, "{:indent$}{heading:<VALUE_AT$}{value}", "", indent = 2 * level);
        }
    }

    fn heading(&mut self, level: usize, head: &str) {
        let _ = writeln!(self.0, "{:indent$}{head}:", "", indent = 2 * level);
    }

    /// The entries of a map under a heading; `<none>` where there is nothing.
    fn map(&mut self, level: usize, head: &str, map: &Value) {
        let entries: Vec<_> = map.as_object().into_iter().flatten().filter(|(key, _)| *key != LAST_APPLIED).collect();
        if entries.is_empty() {
            return self.line(level, head, "<none>");
        }
        self.heading(level, head);
        for (key, value) in entries {
            self.line(level + 1, key, plain(value));
        }
    }

    fn fields(&mut self, level: usize, object: &Value, fields: &[(&str, &str)]) {
        for (head, pointer) in fields {
            self.line(level, head, object.pointer(pointer).map(plain).unwrap_or_default());
        }
    }
}

/// Everything but the events.
pub fn job(job: &Value) -> String {
    let mut page = Page::default();
    page.fields(0, job, &[("Name", "/metadata/name"), ("Namespace", "/metadata/namespace")]);
    page.map(0, "Labels", &job["metadata"]["labels"]);
    page.map(0, "Annotations", &job["metadata"]["annotations"]);
    page.fields(0, job, &[("API Version", "/apiVersion"), ("Kind", "/kind")]);
    page.heading(0, "Metadata");
    page.fields(
        1,
        job,
        &[
            ("Creation Timestamp", "/metadata/creationTimestamp"),
            ("Generate Name", "/metadata/generateName"),
            ("Generation", "/metadata/generation"),
            ("Resource Version", "/metadata/resourceVersion"),
            ("UID", "/metadata/uid"),
        ],
    );
    spec(&mut page, &job["spec"]);
    status(&mut page, &job["status"]);
    page.0
}

fn spec(page: &mut Page, spec: &Value) {
    page.heading(0, "Spec");
    page.fields(
        1,
        spec,
        &[
            ("Min Available", "/minAvailable"),
            ("Min Success", "/minSuccess"),
            ("Max Retry", "/maxRetry"),
            ("Queue", "/queue"),
            ("Priority Class", "/priorityClassName"),
            ("Scheduler Name", "/schedulerName"),
            ("TTL After Finished", "/ttlSecondsAfterFinished"),
        ],
    );
    if spec["plugins"].as_object().is_some_and(|plugins| !plugins.is_empty()) {
        page.map(1, "Plugins", &spec["plugins"]);
    }
    policies(page, 1, &spec["policies"]);
    page.heading(1, "Tasks");
    for task in spec["tasks"].as_array().into_iter().flatten() {
        page.fields(2, task, &[("Name", "/name"), ("Replicas", "/replicas"), ("Min Available", "/minAvailable")]);
        page.fields(2, task, &[("Depends On", "/dependsOn/name"), ("Max Retry", "/maxRetry")]);
        policies(page, 2, &task["policies"]);
        let pod = &task["template"]["spec"];
        page.heading(2, "Containers");
        for container in pod["containers"].as_array().into_iter().flatten() {
            container_lines(page, container);
        }
        page.fields(2, pod, &[("Restart Policy", "/restartPolicy"), ("Image Pull Secrets", "/imagePullSecrets")]);
    }
}

fn container_lines(page: &mut Page, container: &Value) {
    page.fields(
        3,
        container,
        &[
            ("Name", "/name"),
            ("Image", "/image"),
            ("Command", "/command"),
            ("Args", "/args"),
            ("Ports", "/ports"),
            ("Working Dir", "/workingDir"),
        ],
    );
    for (head, amounts) in [("Limits", "limits"), ("Requests", "requests")] {
        let amounts = &container["resources"][amounts];
        if amounts.as_object().is_some_and(|amounts| !amounts.is_empty()) {
            page.map(3, head, amounts);
        }
    }
}

fn policies(page: &mut Page, level: usize, policies: &Value) {
    for policy in policies.as_array().into_iter().flatten() {
        let events: Vec<String> = [&policy["event"], &policy["events"], &policy["exitCode"]]
            .into_iter()
            .map(plain)
            .filter(|text| !text.is_empty())
            .collect();
        let after = policy["timeout"].as_str().map(|timeout| format!(" after {timeout}")).unwrap_or_default();
        page.line(level, "Policy", format!("{} on {}{after}", plain(&policy["action"]), events.join(",")));
    }
}

fn status(page: &mut Page, status: &Value) {
    page.heading(0, "Status");
    let counts = [
        ("Pending", "/pending"),
        ("Running", "/running"),
        ("Succeeded", "/succeeded"),
        ("Failed", "/failed"),
        ("Terminating", "/terminating"),
        ("Unknown", "/unknown"),
        ("RetryCount", "/retryCount"),
        ("Min Available", "/minAvailable"),
        ("Version", "/version"),
    ];
    let some = counts.into_iter().filter(|(_, pointer)| status.pointer(pointer).and_then(Value::as_i64) > Some(0));
    page.fields(1, status, &some.collect::<Vec<_>>());
    page.fields(1, status, &[("Running Duration", "/runningDuration")]);
    page.heading(1, "State");
    page.fields(
        2,
        status,
        &[
            ("Phase", "/state/phase"),
            ("Reason", "/state/reason"),
            ("Message", "/state/message"),
            ("Last Transition", "/state/lastTransitionTime"),
        ],
    );
    let tasks: Vec<_> = status["taskStatusCount"].as_object().into_iter().flatten().collect();
    if !tasks.is_empty() {
        page.heading(1, "Task Status Count");
        for (task, state) in tasks {
            page.line(2, task, plain(&state["phase"]));
        }
    }
    if status["controlledResources"].as_object().is_some_and(|resources| !resources.is_empty()) {
        page.map(1, "Controlled Resources", &status["controlledResources"]);
    }
    if status["conditions"].as_array().is_some_and(|conditions| !conditions.is_empty()) {
        page.heading(1, "Conditions");
        page.line(2, "Status", "TransitionTime");
        for condition in status["conditions"].as_array().into_iter().flatten() {
            let _ = writeln!(
                page.0,
                "    {:<VALUE_AT$}{}",
                text_at(condition, "/status"),
                text_at(condition, "/lastTransitionTime")
            );
        }
    }
}

/// A value in one line: texts as they are, lists of single words in brackets, the rest as JSON.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.iter().all(is_word) => {
            let words: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
            format!("[{}]", words.join(" "))
        }
        Value::Object(map) if map.values().all(Value::is_number) => {
            map.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
        }
        other => other.to_string(),
    }
}

fn is_word(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty() && !text.contains(char::is_whitespace))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_text_says_everything_that_matters() {
        let object = json!({
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
            "metadata": {"name": "train", "namespace": "team", "uid": "u", "generation": 1, "resourceVersion": "7",
                "creationTimestamp": "2026-11-21T10:00:00Z",
                "annotations": {LAST_APPLIED: "{}", "note": "two\nlines \u{1b}[31m"}},
            "spec": {"minAvailable": 2, "maxRetry": 3, "queue": "default", "schedulerName": "volcano",
                "plugins": {"env": [], "ssh": ["--no-root"]},
                "policies": [{"event": "PodEvicted", "action": "RestartJob", "timeout": "10m"},
                    {"exitCode": 3, "action": "AbortJob"}],
                "tasks": [{"name": "main", "replicas": 2, "dependsOn": {"name": ["ps"]}, "template": {"spec": {
                    "restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox",
                        "command": ["sh", "-c", "echo hi"], "ports": [{"containerPort": 80}],
                        "resources": {"limits": {"cpu": "1"}, "requests": {}}}]}}}]},
            "status": {"state": {"phase": "Running", "lastTransitionTime": "2026-11-21T10:00:02Z"}, "running": 2,
                "pending": 0, "minAvailable": 2, "version": 0, "taskStatusCount": {"main": {"phase": {"Running": 2}}},
                "controlledResources": {"plugin-env": "env"},
                "conditions": [{"status": "Pending", "lastTransitionTime": "2026-11-21T10:00:01Z"}]},
        });
        insta::assert_snapshot!(job(&object));
        assert!(job(&json!({})).contains("State:"), "an empty Job has a text, too");
    }

    #[test]
    fn the_newest_events_are_kept() {
        let now = "2026-11-21T10:10:00Z".parse().unwrap();
        let mut events = Events::default();
        assert_eq!(event_lines(&events, now), "Events:             <none>\n");
        for index in (0..EVENTS_MAX * 3).rev() {
            let at = format!("2026-11-21T10:{:02}:{:02}Z", index / 60, index % 60);
            events.add(json!({"type": "Normal", "reason": format!("R{index}"), "lastTimestamp": at, "message": "m\n"}));
        }
        events.cut();
        assert_eq!((events.newest.len(), events.older), (EVENTS_MAX, 2 * EVENTS_MAX));
        let text = event_lines(&events, now);
        assert!(text.contains("(100 older ones)") && text.contains("R149 ") && !text.contains("R99 "), "{text}");

        let mut events = Events::default();
        events.add(json!({"type": "Warning", "reason": "Failed", "count": 3, "source": {"component": "vc"},
            "firstTimestamp": "2026-11-21T10:00:00Z", "lastTimestamp": "2026-11-21T10:09:00Z", "message": "why"}));
        events.add(json!({"type": "Normal", "reason": "Later", "eventTime": "2026-11-21T10:09:59.000001Z",
            "reportingComponent": "pumice", "message": "then"}));
        events.cut();
        insta::assert_snapshot!(event_lines(&events, now));
    }
}
