//! The queues of a case: making, changing, looking at and removing them.

use std::collections::BTreeSet;
use std::time::Duration;

use pumice_wire::api::streaming_queue_message::Event;
use pumice_wire::api::{
    GetActiveQueuesRequest, Queue, QueueDeleteRequest, QueueGetRequest, QueueList, StreamingQueueGetRequest,
};
use serde_json::{Map, Value};
use tokio::time::{Instant, sleep};
use tonic::Code;

use super::failure::Failure;
use super::server::{Server, answer};
use super::spec::{Assertion, QueueCase};

/// How long a queue may be in use by jobs that were cancelled.
const IN_USE_MAX: Duration = Duration::from_secs(30);
/// Time between two tries to remove a queue.
const AGAIN: Duration = Duration::from_millis(250);

/// Makes the queue if it is not there; it is the caller's then.
pub(super) async fn provide(server: &Server, name: &str) -> Result<(), Failure> {
    match get(server, name).await {
        Err(failure) if failure.code() == Some(Code::NotFound) => {}
        other => return other.map(drop),
    }
    let queue = Queue { name: name.to_owned(), priority_factor: 1.0, ..Queue::default() };
    match answer("CreateQueue", server.queues().create_queue(queue)).await {
        // Another case was first.
        Err(failure) if failure.code() == Some(Code::AlreadyExists) => Ok(()),
        other => other.map(drop),
    }
}

/// Makes a case's queues and adds their names to `made`; at most `batches` times `batch_size`, also where it fails.
pub(super) async fn set_up(
    server: &Server,
    case: &QueueCase,
    base: &str,
    made: &mut Vec<String>,
) -> Result<(), Failure> {
    for batch in 0..case.batches.get() {
        if batch > 0 {
            sleep(case.interval).await;
        }
        let queues: Vec<Queue> = (0..case.batch_size.get()).map(|_| one(case, base)).collect();
        // They are removed whether the answer comes or not.
        made.extend(queues.iter().map(|queue| queue.name.clone()));
        create(server, queues).await?;
    }
    Ok(())
}

/// A queue like the template with a name that nobody else has.
fn one(case: &QueueCase, base: &str) -> Queue {
    with_factor(Queue { name: format!("{base}-{:012x}", rand::random::<u64>() >> 16), ..case.template.clone() })
}

/// Not every template says it, and a queue has one.
fn with_factor(queue: Queue) -> Queue {
    let priority_factor = if queue.priority_factor == 0.0 { 1.0 } else { queue.priority_factor };
    Queue { priority_factor, ..queue }
}

async fn create(server: &Server, mut queues: Vec<Queue>) -> Result<(), Failure> {
    if let [_] = queues.as_slice() {
        let queue = queues.remove(0);
        return answer("CreateQueue", server.queues().create_queue(queue)).await.map(drop);
    }
    let answered = answer("CreateQueues", server.queues().create_queues(QueueList { queues })).await?;
    let failed = answered.failed_queues.into_iter().map(|failed| (failed.queue, failed.error));
    without_failed("CreateQueues", failed)
}

fn without_failed(
    call: &'static str,
    mut failed: impl Iterator<Item = (Option<Queue>, String)>,
) -> Result<(), Failure> {
    match failed.next() {
        None => Ok(()),
        Some((queue, message)) => {
            Err(Failure::Item { call, item: format!("queue {}", queue.unwrap_or_default().name), message })
        }
    }
}

/// Changes the queues to what the case says.
pub(super) async fn update(server: &Server, case: &QueueCase, names: &[String]) -> Result<(), Failure> {
    let Some(update) = &case.update else { return Ok(()) };
    let changed = |name: &String| with_factor(Queue { name: name.clone(), ..update.clone() });
    let mut queues: Vec<Queue> = names.iter().map(changed).collect();
    if let [_] = queues.as_slice() {
        let queue = queues.remove(0);
        return answer("UpdateQueue", server.queues().update_queue(queue)).await.map(drop);
    }
    let answered = answer("UpdateQueues", server.queues().update_queues(QueueList { queues })).await?;
    without_failed("UpdateQueues", answered.failed_queues.into_iter().map(|failed| (failed.queue, failed.error)))
}

/// Looks at the queues; whether they are gone is looked at by [`remove`].
pub(super) async fn check(server: &Server, case: &QueueCase, names: &[String]) -> Result<(), Failure> {
    for assertion in &case.assertions {
        match assertion {
            Assertion::ActiveInPool(pool) => {
                if let Some(name) = names.first() {
                    is_active(server, pool, name).await?;
                }
            }
            Assertion::AppearsInStream => are_streamed(server, names).await?,
            Assertion::Matches(expected) => {
                for name in names {
                    matches(expected, &get(server, name).await?)?;
                }
            }
            Assertion::Deleted => {}
        }
    }
    Ok(())
}

async fn get(server: &Server, name: &str) -> Result<Queue, Failure> {
    answer("GetQueue", server.queues().get_queue(QueueGetRequest { name: name.to_owned() })).await
}

fn wrong(queue: &str, problem: String) -> Failure {
    Failure::Queue { queue: queue.to_owned(), problem }
}

async fn is_active(server: &Server, pool: &str, name: &str) -> Result<(), Failure> {
    let answered = answer("GetActiveQueues", server.jobs().get_active_queues(GetActiveQueuesRequest {})).await?;
    let pools: Vec<String> = answered.active_queues_by_pool.keys().cloned().collect();
    match answered.active_queues_by_pool.get(pool) {
        Some(active) if active.queues.iter().any(|queue| queue == name) => Ok(()),
        Some(_) => Err(wrong(name, format!("it is not active in pool {pool}"))),
        None => Err(wrong(name, format!("there is no pool {pool} with active queues; pools: [{}]", pools.join(", ")))),
    }
}

async fn are_streamed(server: &Server, names: &[String]) -> Result<(), Failure> {
    const CALL: &str = "GetQueues";
    let mut queues = server.queues();
    let mut stream = answer(CALL, queues.get_queues(StreamingQueueGetRequest::default())).await?;
    let mut missing: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    while let Some(message) = stream.message().await.map_err(|status| Failure::refused(CALL, status))? {
        if let Some(Event::Queue(queue)) = message.event {
            missing.remove(queue.name.as_str());
        }
    }
    match missing.first() {
        None => Ok(()),
        Some(name) => Err(wrong(name, "it does not appear in the stream of queues".to_owned())),
    }
}

/// All fields count but the name.
fn matches(expected: &Queue, actual: &Queue) -> Result<(), Failure> {
    let expected = Queue { name: actual.name.clone(), ..expected.clone() };
    if expected == *actual {
        return Ok(());
    }
    let fields = |queue: &Queue| match serde_json::to_value(queue) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    let (wanted, found) = (fields(&expected), fields(actual));
    let names: BTreeSet<&String> = wanted.keys().chain(found.keys()).collect();
    let told = |value: Option<&Value>| value.map_or_else(|| "unset".to_owned(), Value::to_string);
    let differs = |name: &&&String| wanted.get(**name) != found.get(**name);
    let differences: Vec<String> = names
        .iter()
        .filter(differs)
        .map(|name| format!("{name} is {} instead of {}", told(found.get(*name)), told(wanted.get(*name))))
        .collect();
    Err(wrong(&actual.name, differences.join(", ")))
}

/// Removes the queues, and looks whether they are gone where the case says so. A queue whose jobs are still ending is tried
/// again; the answer says if that was so.
pub(super) async fn remove(server: &Server, case: &QueueCase, names: &[String]) -> Result<Option<String>, Failure> {
    let mut note = None;
    for name in names {
        if let Some(refusal) = remove_one(server, name).await? {
            note = Some(format!("queue {name} could be deleted at a later try only ({refusal})"));
        }
    }
    if case.assertions.contains(&Assertion::Deleted) {
        for name in names {
            match get(server, name).await {
                Ok(_) => return Err(wrong(name, "it is still there after it was deleted".to_owned())),
                Err(failure) if failure.code() == Some(Code::NotFound) => {}
                Err(failure) => return Err(failure),
            }
        }
    }
    Ok(note)
}

/// The first refusal, where there was one.
async fn remove_one(server: &Server, name: &str) -> Result<Option<String>, Failure> {
    let until = Instant::now() + IN_USE_MAX;
    let mut refusal = None;
    loop {
        let request = QueueDeleteRequest { name: name.to_owned() };
        match answer("DeleteQueue", server.queues().delete_queue(request)).await {
            Err(failure) if failure.code() == Some(Code::FailedPrecondition) && Instant::now() < until => {
                refusal.get_or_insert_with(|| failure.to_string());
                sleep(AGAIN).await;
            }
            Err(failure) if failure.code() == Some(Code::NotFound) => return Ok(refusal),
            other => return other.map(|_| refusal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(queue: Value) -> Queue {
        serde_json::from_value(queue).expect("a queue")
    }

    #[test]
    fn a_queue_matches_in_all_but_its_name() {
        use serde_json::json;
        let expected = queue(json!({ "cordoned": true, "priorityFactor": 1 }));
        assert!(matches(&expected, &queue(json!({ "name": "q", "cordoned": true, "priorityFactor": 1 }))).is_ok());
        let other = queue(json!({ "name": "q", "priorityFactor": 1, "userOwners": ["ada"] }));
        let error = matches(&expected, &other).expect_err("they differ").to_string();
        assert_eq!(error, r#"queue q: cordoned is unset instead of true, userOwners is ["ada"] instead of unset"#);
    }
}
