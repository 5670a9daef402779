//! From the text of a specification to what it says.

use std::num::NonZeroU32;
use std::time::Duration;

use pumice_units::GoDuration;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::text::{with_texts, without_nulls};
use super::{
    Action, Assertion, PlannedAction, QueueCase, SPEC_BYTES_MAX, Spec, SpecError, Submission, TIMEOUT_DEFAULT,
};
use crate::fleet_testsuite::events::Kind;
use crate::fleet_testsuite::expected::{Expected, no_value};

const EXPECTED_EVENTS: &str = "expectedEvents";

/// Everything that a specification may have. What is a message of the API is read after it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Fields {
    name: Option<String>,
    queue: String,
    job_set_id: Option<String>,
    jobs: Vec<Map<String, Value>>,
    num_batches: u32,
    batch_size: u32,
    interval: Option<GoDuration>,
    timeout: Option<GoDuration>,
    random_client_id: bool,
    trigger_event: Option<String>,
    cancel: Option<CancelFields>,
    cancel_job_set: Option<CancelJobSetFields>,
    preempt: Option<JobsFields>,
    reprioritize: Option<JobsFields>,
    cancel_on_node: Option<NodeFields>,
    preempt_on_node: Option<NodeFields>,
    queue_config: Option<QueueFields>,
    /// Armada's test suite takes it and does nothing.
    #[serde(rename = "getLogs")]
    _get_logs: bool,
    /// For metrics of Armada's test suite.
    #[serde(rename = "environment")]
    _environment: String,
    #[serde(rename = "target")]
    _target: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct CancelFields {
    request: Map<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct CancelJobSetFields {
    request: Map<String, Value>,
    assert_inactive_succeeds: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct JobsFields {
    request: Map<String, Value>,
    /// Says nothing of preemptions, which are by ids always.
    by_job_set: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct NodeFields {
    request: Map<String, Value>,
    /// Armada's test suite looks for a node with this label; here it is where the jobs are, which select it.
    #[serde(rename = "nodePoolTag")]
    _node_pool_tag: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct QueueFields {
    setup: SetupFields,
    update: Option<Map<String, Value>>,
    assertions: Vec<AssertionFields>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct SetupFields {
    num_batches: u32,
    batch_size: u32,
    interval: Option<GoDuration>,
    queue_spec: Map<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct AssertionFields {
    active_in_pool: String,
    appears_in_stream: bool,
    matches: Option<Map<String, Value>>,
    deleted: bool,
}

impl Spec {
    /// Reads a specification. Its fields may be in any number of documents.
    ///
    /// # Errors
    /// What can't be run, with the field that says so.
    pub fn read(text: &str) -> Result<Self, SpecError> {
        let mut fields = documents(text)?;
        let expected = fields.remove(EXPECTED_EVENTS).unwrap_or_default();
        let mut fields = Value::Object(fields);
        without_nulls(&mut fields);
        let fields: Fields = serde_json::from_value(fields).map_err(|error| SpecError::Syntax(error.to_string()))?;
        if fields.queue.is_empty() {
            return Err(wrong("queue", "it is missing"));
        }
        let cancels_inactive = fields.cancel_job_set.as_ref().is_some_and(|action| action.assert_inactive_succeeds);
        Ok(Self {
            timeout: duration("timeout", fields.timeout)?.filter(|time| !time.is_zero()).unwrap_or(TIMEOUT_DEFAULT),
            expected: self::expected(expected)?,
            planned: planned(&fields)?,
            submission: submission(&fields)?,
            cancels_inactive,
            queues: fields.queue_config.map(queues).transpose()?,
            name: fields.name,
            queue: fields.queue,
            job_set: fields.job_set_id,
        })
    }
}

fn wrong(place: impl Into<String>, problem: impl ToString) -> SpecError {
    SpecError::Field { path: place.into(), problem: problem.to_string() }
}

/// The fields of all documents.
fn documents(text: &str) -> Result<Map<String, Value>, SpecError> {
    if text.len() > SPEC_BYTES_MAX {
        return Err(SpecError::TooLong { bytes: text.len() });
    }
    let first_line = |error: &str| error.lines().next().unwrap_or_default().to_owned();
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)
        .map_err(|error| SpecError::Syntax(first_line(&error.without_snippet().to_string())))?;
    let mut all = Map::new();
    for (index, document) in documents.into_iter().enumerate() {
        let Value::Object(fields) = document else { return Err(SpecError::Document(index + 1)) };
        for (name, value) in fields {
            if all.contains_key(&name) {
                return Err(SpecError::Twice(name));
            }
            all.insert(name, value);
        }
    }
    Ok(all)
}

fn duration(place: &str, given: Option<GoDuration>) -> Result<Option<Duration>, SpecError> {
    let duration = |given: GoDuration| match u64::try_from(given.as_nanos()) {
        Ok(nanos) => Ok(Duration::from_nanos(nanos)),
        Err(_) => Err(wrong(place, format!("{given} is less than nothing"))),
    };
    given.map(duration).transpose()
}

/// A message of the API.
fn message<T: DeserializeOwned>(place: &str, fields: Map<String, Value>) -> Result<T, SpecError> {
    let unknown = |name: &&String| serde_json::from_value::<T>(json!({ *name: no_value() })).is_ok();
    if let Some(name) = fields.keys().find(unknown) {
        return Err(wrong(place, format!("it has no field {name:?}")));
    }
    serde_json::from_value(Value::Object(fields)).map_err(|error| wrong(place, error))
}

fn expected(events: Value) -> Result<Vec<Expected>, SpecError> {
    let events = match events {
        Value::Null => Vec::new(),
        Value::Array(events) => events,
        _ => return Err(wrong(EXPECTED_EVENTS, "it is no list")),
    };
    events.into_iter().enumerate().map(|(index, event)| expected_one(index, event)).collect()
}

/// `kind: {fields}`, or `kind:` alone.
fn expected_one(index: usize, event: Value) -> Result<Expected, SpecError> {
    let one = || wrong(format!("{EXPECTED_EVENTS}[{index}]"), "it is no mapping from one kind of event to its fields");
    let Value::Object(event) = event else { return Err(one()) };
    let mut event = event.into_iter();
    let (Some((kind, mut fields)), None) = (event.next(), event.next()) else { return Err(one()) };
    without_nulls(&mut fields);
    let fields = match fields {
        Value::Null => Map::new(),
        Value::Object(fields) => fields,
        _ => return Err(one()),
    };
    Expected::read(&kind, &fields).map_err(|source| SpecError::Expected { index, source })
}

fn submission(fields: &Fields) -> Result<Option<Submission>, SpecError> {
    if fields.jobs.is_empty() {
        return match fields.num_batches {
            0 => Ok(None),
            _ => Err(wrong("jobs", "there are none, but numBatches of them are to be submitted")),
        };
    }
    let job = |(index, job): (usize, &Map<String, Value>)| {
        let mut job = job.clone();
        with_texts(&mut job);
        message(&format!("jobs[{index}]"), job)
    };
    Ok(Some(Submission {
        jobs: fields.jobs.iter().enumerate().map(job).collect::<Result<_, _>>()?,
        batch_size: NonZeroU32::new(fields.batch_size).ok_or_else(|| wrong("batchSize", "it has to be at least 1"))?,
        batches: NonZeroU32::new(fields.num_batches),
        interval: duration("interval", fields.interval)?.unwrap_or_default(),
        random_client_id: fields.random_client_id,
    }))
}

fn planned(fields: &Fields) -> Result<Option<PlannedAction>, SpecError> {
    let mut actions = Vec::new();
    if let Some(action) = &fields.cancel {
        actions.push(Action::Cancel(message("cancel.request", action.request.clone())?));
    }
    if let Some(action) = &fields.cancel_job_set {
        actions.push(Action::CancelJobSet(message("cancelJobSet.request", action.request.clone())?));
    }
    if let Some(action) = &fields.preempt {
        actions.push(Action::Preempt(message("preempt.request", action.request.clone())?));
    }
    if let Some(action) = &fields.reprioritize {
        let request = message("reprioritize.request", action.request.clone())?;
        actions.push(Action::Reprioritize { request, by_job_set: action.by_job_set });
    }
    if let Some(action) = &fields.cancel_on_node {
        actions.push(Action::CancelOnNode(message("cancelOnNode.request", action.request.clone())?));
    }
    if let Some(action) = &fields.preempt_on_node {
        actions.push(Action::PreemptOnNode(message("preemptOnNode.request", action.request.clone())?));
    }
    let trigger = match &fields.trigger_event {
        None => None,
        Some(name) => {
            let unknown = || wrong("triggerEvent", format!("there are no events {name:?}"));
            Some(Kind::parse(name).ok_or_else(unknown)?)
        }
    };
    if let [first, second, ..] = actions.as_slice() {
        return Err(wrong(second.word(), format!("there is {} already: only one can be done", first.word())));
    }
    match actions.pop() {
        Some(_) if fields.jobs.is_empty() => Err(wrong("jobs", "there are none to do something to")),
        Some(action) => Ok(Some(PlannedAction { trigger: trigger.unwrap_or_else(|| action.trigger()), action })),
        None => Ok(None),
    }
}

fn queues(fields: QueueFields) -> Result<QueueCase, SpecError> {
    let QueueFields { setup, update, assertions } = fields;
    let at_least_one = |number| NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN);
    let assertions = assertions.into_iter().enumerate().map(|(index, fields)| assertions_of(index, fields));
    Ok(QueueCase {
        template: message("queueConfig.setup.queueSpec", setup.queue_spec)?,
        batch_size: at_least_one(setup.batch_size),
        batches: at_least_one(setup.num_batches),
        interval: duration("queueConfig.setup.interval", setup.interval)?.unwrap_or_default(),
        update: update.map(|update| message("queueConfig.update", update)).transpose()?,
        assertions: assertions.collect::<Result<Vec<_>, _>>()?.concat(),
    })
}

/// One item may say several things.
fn assertions_of(index: usize, fields: AssertionFields) -> Result<Vec<Assertion>, SpecError> {
    let AssertionFields { active_in_pool, appears_in_stream, matches, deleted } = fields;
    let mut assertions = Vec::new();
    if !active_in_pool.is_empty() {
        assertions.push(Assertion::ActiveInPool(active_in_pool));
    }
    if appears_in_stream {
        assertions.push(Assertion::AppearsInStream);
    }
    if let Some(queue) = matches {
        let place = format!("queueConfig.assertions[{index}].matches");
        assertions.push(Assertion::Matches(Box::new(message(&place, queue)?)));
    }
    if deleted {
        assertions.push(Assertion::Deleted);
    }
    Ok(assertions)
}
