//! The services in process, over a log in SQLite.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use futures::{Stream, StreamExt};
use pumice_fleet_model::submission::Rules;
use pumice_ledger::{Event, Filter, JobId, PodRef, ReportKind, TimeMs};
use pumice_wire::api::event_server::Event as _;
use pumice_wire::api::jobs_server::Jobs as _;
use pumice_wire::api::queue_service_server::QueueService;
use pumice_wire::api::submit_server::Submit;
use pumice_wire::api::{self, EventStreamMessage, JobState, event_message::Events};
use pumice_wire::job_sets::job_sets_server::JobSets as _;
use pumice_wire::job_sets::{ListRequest, ListResponse};
use pumice_wire::wellknown::Empty;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Status};

use super::convert::tests::request as jobs;
use super::{Api, Permission, Sources, Who};
use crate::database::tests as stored;
use crate::database::tests::leading::{Leader, proposals, report, reports};
use crate::database::{Database, Location, Seq};

const DEADLINE: Duration = Duration::from_secs(20);

pub(super) struct Home {
    pub api: Api,
    pub log: Arc<Database>,
    stopping: CancellationToken,
    clock: Arc<AtomicI64>,
    _directory: tempfile::TempDir,
}

pub(super) async fn home() -> Home {
    let directory = tempfile::tempdir().unwrap();
    let log = Arc::new(Database::open(&Location::File(directory.path().join("fleet.db"))).await.unwrap());
    let clock = Arc::new(AtomicI64::new(1_764_000_000_000));
    let drawn = AtomicU64::new(0);
    let now = clock.clone();
    let sources = Sources {
        now: Box::new(move || TimeMs(now.load(Ordering::Relaxed))),
        random: Box::new(move || u128::from(drawn.fetch_add(1, Ordering::Relaxed)) << 32),
    };
    let stopping = CancellationToken::new();
    let api = Api::new(log.clone(), Rules::default(), sources, stopping.clone());
    Home { api, log, stopping, clock, _directory: directory }
}

pub(super) fn who(name: &str, permissions: &[Permission]) -> Arc<Who> {
    let permissions = permissions.iter().copied().collect();
    Arc::new(Who { name: name.to_owned(), groups: ["staff".to_owned()].into(), permissions, ..Who::default() })
}

fn ask<T>(who: &Arc<Who>, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.extensions_mut().insert(who.clone());
    request
}

/// The same with a message in JSON.
pub(super) fn by<T: serde::de::DeserializeOwned>(who: &Arc<Who>, message: Value) -> Request<T> {
    ask(who, serde_json::from_value(message).expect("a message"))
}

pub(super) fn code<T: std::fmt::Debug>(answer: Result<T, Status>) -> Code {
    answer.expect_err("refused").code()
}

/// A queue of ada's, in which staff may watch.
pub(super) async fn queue(api: &Api) -> (Arc<Who>, Arc<Who>) {
    let admin = who("root", Permission::ALL);
    let permissions = json!([{ "subjects": [{ "kind": "Group", "name": "staff" }], "verbs": ["watch"] }]);
    let queue = json!({ "name": "q", "priorityFactor": 1, "userOwners": ["ada"], "permissions": permissions });
    Submit::create_queue(api, by(&admin, queue)).await.unwrap();
    (admin, who("ada", &[]))
}

async fn submit(api: &Api, who: &Arc<Who>, items: &[Value]) -> Vec<String> {
    let answer = api.submit_jobs(ask(who, jobs(items))).await.unwrap().into_inner();
    answer.job_response_items.into_iter().map(|item| item.job_id).collect()
}

async fn events(api: &Api, who: &Arc<Who>, from: &str) -> Vec<EventStreamMessage> {
    let request = json!({ "queue": "q", "id": "set", "fromMessageId": from });
    let stream = api.get_job_set_events(by(who, request)).await.unwrap().into_inner();
    stream.map(|message| message.unwrap()).collect().await
}

async fn next<S: Stream<Item = Result<EventStreamMessage, Status>> + Unpin>(
    stream: &mut S,
) -> Option<Result<Events, Status>> {
    let message = tokio::time::timeout(DEADLINE, stream.next()).await.expect("it comes in time");
    message.map(|message| message.map(|message| message.message.unwrap().events.unwrap()))
}

#[tokio::test]
async fn what_is_submitted_is_queued_and_told() {
    let home = home().await;
    let (_, ada) = queue(&home.api).await;
    let uri = "https://elsewhere";
    let ids = submit(&home.api, &ada, &[json!({ "externalJobUri": uri }), json!({ "priority": 2 })]).await;
    let other = JobId(7).to_string();
    let asked = json!({ "jobIds": [ids[0], ids[1], other] });
    let states = home.api.get_job_status(by(&ada, asked.clone())).await.unwrap().into_inner().job_states;
    let (queued, unknown) = (i32::from(JobState::Queued), i32::from(JobState::Unknown));
    assert_eq!(states, BTreeMap::from([(ids[0].clone(), queued), (ids[1].clone(), queued), (other, unknown)]));

    let by_uri = json!({ "queue": "q", "jobset": "set", "externalJobUri": uri });
    let states = home.api.get_job_status_using_external_job_uri(by(&ada, by_uri)).await.unwrap().into_inner();
    assert_eq!(states.job_states, BTreeMap::from([(ids[0].clone(), queued)]));

    let asked = json!({ "jobIds": [ids[1]], "expandJobSpec": true, "expandJobRun": true });
    let details = home.api.get_job_details(by(&ada, asked.clone())).await.unwrap().into_inner();
    let details = &details.job_details[&ids[1]];
    let job = details.job_spec.as_ref().unwrap();
    assert_eq!((job.owner.as_str(), job.priority, job.pod_specs.len()), ("ada", 2.0, 1));
    assert_eq!((details.queue.as_str(), details.latest_run_id.as_str(), details.job_runs.len()), ("q", "", 0));
    let errors = home.api.get_job_errors(by(&ada, json!({ "jobIds": [ids[1]] }))).await.unwrap().into_inner();
    assert_eq!(errors.job_errors, BTreeMap::new());
    let active = home.api.get_active_queues(by(&ada, json!({}))).await.unwrap().into_inner();
    assert_eq!(active.active_queues_by_pool, BTreeMap::new(), "what waits is in no pool");
    let runs = home.api.get_job_run_details(by(&ada, json!({ "runIds": [format!("{}-1", ids[1])] }))).await.unwrap();
    assert_eq!(runs.into_inner().job_run_details, BTreeMap::new());
}

#[tokio::test]
async fn job_sets_are_told_to_those_who_may_watch_them() {
    let home = home().await;
    let (admin, ada) = queue(&home.api).await;
    let hidden = json!({ "name": "hidden", "priorityFactor": 1 });
    Submit::create_queue(&home.api, by(&admin, hidden)).await.unwrap();
    let ids = submit(&home.api, &ada, &[json!({}), json!({})]).await;
    let mut other = jobs(&[json!({})]);
    (other.queue, other.job_set_id) = ("hidden".to_owned(), "other".to_owned());
    home.api.submit_jobs(ask(&admin, other)).await.unwrap();
    let list = async |who: &Arc<Who>, job_set: &str, since: Option<i64>| {
        let since = since.map(|seconds| pumice_wire::wellknown::Timestamp { seconds, nanos: 0 });
        let request = ListRequest { job_set: job_set.to_owned(), since, ..ListRequest::default() };
        home.api.list(ask(who, request)).await.unwrap().into_inner()
    };
    let names = |answer: &ListResponse| answer.job_sets.iter().map(|set| set.job_set.clone()).collect::<Vec<_>>();
    let mine = list(&ada, "", None).await;
    assert_eq!((names(&mine), mine.user.as_str(), mine.more), (vec!["set".to_owned()], "ada", false));
    let [state] = mine.job_sets[0].states.as_slice() else { panic!("{mine:?}") };
    assert_eq!((state.state, state.jobs, &state.first_job_id), (JobState::Queued.into(), 2, &ids[0]));
    assert_eq!(names(&list(&admin, "", None).await), ["other", "set"]);
    assert_eq!(names(&list(&ada, "other", None).await), Vec::<String>::new());
    assert_eq!(names(&list(&admin, "other", None).await), ["other"]);
    assert_eq!(names(&list(&who("eve", &[]), "", Some(0)).await), ["set"], "staff may watch it");
    let far = ListRequest {
        since: Some(pumice_wire::wellknown::Timestamp { seconds: i64::MAX, nanos: 0 }),
        ..ListRequest::default()
    };
    assert_eq!(code(home.api.list(ask(&ada, far)).await), Code::InvalidArgument);
}

#[tokio::test]
async fn events_go_on_after_any_of_their_ids() {
    let home = home().await;
    let (_, ada) = queue(&home.api).await;
    let ids = submit(&home.api, &ada, &[json!({}), json!({})]).await;
    let cancel = json!({ "queue": "q", "jobSetId": "set", "jobIds": ids, "jobId": ids[0] });
    let cancelled = home.api.cancel_jobs(by(&ada, cancel)).await.unwrap().into_inner();
    assert_eq!(cancelled.cancelled_ids, ids);
    let all = events(&home.api, &ada, "").await;
    assert_eq!(all.len(), 6);
    for place in 0..all.len() {
        assert_eq!(events(&home.api, &ada, &all[place].id).await, all[place + 1..]);
    }
    for of_armada in ["1690000000000:0:3:1", "1690000000000-0"] {
        assert_eq!(events(&home.api, &ada, of_armada).await, all, "{of_armada}");
    }
    let wrong = json!({ "queue": "q", "id": "set", "fromMessageId": "yesterday" });
    assert_eq!(home.api.get_job_set_events(by(&ada, wrong)).await.err().unwrap().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn streams_of_more_than_a_page_are_whole() {
    let home = home().await;
    let (_, ada) = queue(&home.api).await;
    let mut ids = submit(&home.api, &ada, &vec![json!({}); 300]).await;
    for _ in 0..120 {
        ids.extend(submit(&home.api, &ada, &[json!({})]).await);
    }
    let all = events(&home.api, &ada, "").await;
    let submitted = all.iter().filter_map(|message| match message.message.as_ref().unwrap().events.as_ref().unwrap() {
        Events::Submitted(event) if event.job.is_some() => Some(event.job_id.clone()),
        _ => None,
    });
    assert_eq!(submitted.collect::<Vec<_>>(), ids);
    assert_eq!(events(&home.api, &ada, &all[599].id).await, all[600..]);
}

#[tokio::test]
async fn who_watches_is_told_what_comes_until_the_server_stops() {
    let home = home().await;
    let (_, ada) = queue(&home.api).await;
    let missing = json!({ "queue": "q", "jobSetId": "set" });
    assert_eq!(home.api.watch(by(&ada, missing.clone())).await.err().unwrap().code(), Code::NotFound);
    let ids = submit(&home.api, &ada, &[json!({})]).await;
    let mut stream = home.api.watch(by(&who("bob", &[]), missing)).await.unwrap().into_inner();
    assert!(matches!(next(&mut stream).await, Some(Ok(Events::Submitted(_)))));
    assert!(matches!(next(&mut stream).await, Some(Ok(Events::Queued(_)))));
    let cancel = json!({ "queue": "q", "jobSetId": "set", "jobId": ids[0], "reason": "enough" });
    home.api.cancel_jobs(by(&ada, cancel)).await.unwrap();
    match next(&mut stream).await {
        Some(Ok(Events::Cancelling(event))) => {
            assert_eq!((event.requestor, event.reason), ("ada".into(), "enough".into()))
        }
        other => panic!("{other:?}"),
    }
    home.stopping.cancel();
    assert_eq!(next(&mut stream).await.unwrap().unwrap_err().code(), Code::Unavailable);
    let health = Submit::health(&home.api, Request::new(Empty {})).await.unwrap().into_inner();
    assert_eq!(health.status, 2);
}

#[tokio::test]
async fn a_client_id_is_submitted_once() {
    let home = home().await;
    let (_, ada) = queue(&home.api).await;
    let one = json!({ "clientId": "a" });
    let ids = submit(&home.api, &ada, &[one.clone(), json!({}), one.clone()]).await;
    assert_eq!(ids[0], ids[2]);
    assert_eq!(submit(&home.api, &ada, &[one]).await, [ids[0].clone()]);
    assert_eq!(events(&home.api, &ada, "").await.len(), 4);
}

#[tokio::test]
async fn requests_that_are_refused_say_why() {
    let home = home().await;
    let (admin, ada) = queue(&home.api).await;
    let bob = who("bob", &[]);
    let api = &home.api;
    let unknown = api::JobSubmitRequest { queue: "none".to_owned(), ..jobs(&[json!({})]) };
    let nameless = api::JobSubmitRequest { queue: String::new(), ..jobs(&[json!({})]) };
    assert_eq!(code(api.submit_jobs(Request::new(jobs(&[json!({})]))).await), Code::Unauthenticated);
    assert_eq!(code(api.submit_jobs(ask(&bob, jobs(&[json!({})]))).await), Code::PermissionDenied);
    assert_eq!(code(api.submit_jobs(ask(&ada, unknown)).await), Code::NotFound);
    assert_eq!(code(api.submit_jobs(ask(&ada, nameless)).await), Code::InvalidArgument);
    assert_eq!(code(api.submit_jobs(ask(&ada, jobs(&[json!({ "namespace": "" })]))).await), Code::InvalidArgument);
    let many = vec![json!({}); super::ITEMS_MAX + 1];
    assert_eq!(code(api.submit_jobs(ask(&ada, jobs(&many))).await), Code::InvalidArgument);
    for too_long in ["é".repeat(512), "x".repeat(1_024)] {
        let long = api::JobSubmitRequest { job_set_id: too_long, ..jobs(&[json!({})]) };
        assert_eq!(code(api.submit_jobs(ask(&ada, long)).await), Code::InvalidArgument);
    }
    let longest = api::JobSubmitRequest { job_set_id: "x".repeat(1_023), ..jobs(&[json!({})]) };
    api.submit_jobs(ask(&ada, longest)).await.unwrap();
    let of_longest = json!({ "queue": "q", "id": "x".repeat(1_023) });
    assert_eq!(api.get_job_set_events(by(&ada, of_longest)).await.unwrap().into_inner().count().await, 2);
    submit(api, &admin, &[json!({})]).await;

    for (message, expected) in [
        (json!({ "queue": "q", "jobSetId": "set" }), Code::PermissionDenied),
        (json!({ "queue": "q" }), Code::InvalidArgument),
        (json!({ "jobSetId": "set" }), Code::InvalidArgument),
        (json!({ "queue": "q", "jobSetId": "set", "jobIds": ["x"] }), Code::InvalidArgument),
        (json!({ "queue": "q", "jobSetId": "set", "reason": "x".repeat(513) }), Code::InvalidArgument),
    ] {
        assert_eq!(code(api.cancel_jobs(by(&bob, message.clone())).await), expected, "{message}");
    }
    let job = JobId(1).to_string();
    let of = |more: Value| {
        let mut message = json!({ "queue": "q", "jobSetId": "set", "jobIds": [job] });
        message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        message
    };
    assert_eq!(code(api.preempt_jobs(by(&bob, of(json!({})))).await), Code::PermissionDenied);
    assert_eq!(code(api.preempt_jobs(by(&ada, of(json!({ "jobIds": [] })))).await), Code::InvalidArgument);
    assert_eq!(code(api.reprioritize_jobs(by(&bob, of(json!({ "newPriority": 1 })))).await), Code::PermissionDenied);
    let ids = vec![job.clone(); 501];
    assert_eq!(code(api.get_job_status(by(&ada, json!({ "jobIds": ids }))).await), Code::InvalidArgument);
    let watch = json!({ "queue": "none", "id": "set" });
    assert_eq!(api.get_job_set_events(by(&ada, watch)).await.err().unwrap().code(), Code::NotFound);
}

#[tokio::test]
async fn one_unknown_id_refuses_nothing_else() {
    let home = home().await;
    let (admin, ada) = queue(&home.api).await;
    let api = &home.api;
    let ids = submit(api, &ada, &[json!({}), json!({})]).await;
    let mut elsewhere = jobs(&[json!({})]);
    elsewhere.job_set_id = "other".to_owned();
    let elsewhere = api.submit_jobs(ask(&admin, elsewhere)).await.unwrap().into_inner();
    let elsewhere = elsewhere.job_response_items[0].job_id.clone();
    let (missing, wrong) = (JobId(7).to_string(), "not an id".to_owned());
    let all = [&ids[0], &missing, &wrong, &elsewhere, &ids[1], &String::new()];
    let of = |ids: &[&String]| json!({ "queue": "q", "jobSetId": "set", "jobIds": ids, "newPriority": 3 });
    let nothing = |results: &BTreeMap<String, String>| {
        assert_eq!(results.len(), all.len());
        assert!(ids.iter().all(|id| results[id].is_empty()), "{results:?}");
        for (id, said) in [(&missing, "no such job"), (&elsewhere, "no such job"), (&wrong, "is no job id")] {
            assert!(results[id].contains(said), "{results:?}");
        }
    };
    nothing(&api.reprioritize_jobs(by(&ada, of(&all))).await.unwrap().into_inner().reprioritization_results);
    // None of them has a node to leave.
    let waiting = api.preempt_jobs(by(&ada, of(&all))).await.unwrap().into_inner().preemption_results;
    assert!(ids.iter().all(|id| waiting[id] == "it waits, and has no node to leave"), "{waiting:?}");
    assert_eq!(api.cancel_jobs(by(&ada, of(&all))).await.unwrap().into_inner().cancelled_ids, ids);
    // Only jobs of the set are asked for anything; and none of it is never all of it.
    let known: Vec<JobId> = ids.iter().map(|id| id.parse().unwrap()).collect();
    let asked = async || {
        let entries = home.log.events("q", "set", Seq(0), 10).await.unwrap();
        entries.into_iter().skip(1).flat_map(|(_, entry)| entry.events).collect::<Vec<_>>()
    };
    let before = asked().await;
    assert_eq!(before[0], Event::Reprioritised { jobs: known.clone(), priority: 3 });
    assert!(matches!(&before[1], Event::CancelAsked { jobs, .. } if *jobs == known));
    let unknown = of(&[&missing, &elsewhere, &wrong]);
    assert_eq!(
        api.cancel_jobs(by(&ada, unknown.clone())).await.unwrap().into_inner().cancelled_ids,
        Vec::<String>::new()
    );
    let said = api.reprioritize_jobs(by(&ada, unknown.clone())).await.unwrap().into_inner().reprioritization_results;
    assert!(said.len() == 3 && said.values().all(|said| !said.is_empty()), "{said:?}");
    api.preempt_jobs(by(&ada, unknown.clone())).await.unwrap();
    assert_eq!(asked().await, before);
    assert_eq!(code(api.cancel_jobs(by(&who("bob", &[]), unknown)).await), Code::PermissionDenied);
    let nobody = api.cancel_jobs(by(&ada, of(&[&wrong]))).await.expect_err("a mistake");
    assert!(nobody.code() == Code::InvalidArgument && nobody.message().starts_with("jobIds: "), "{nobody}");

    let asked = json!({ "jobIds": all });
    let states = api.get_job_status(by(&ada, asked.clone())).await.unwrap().into_inner().job_states;
    let state = |id: &String| JobState::try_from(states[id]).unwrap();
    assert_eq!((states.len(), state(&ids[0]), state(&missing)), (6, JobState::Queued, JobState::Unknown));
    assert_eq!((state(&wrong), state(&String::new())), (JobState::Unknown, JobState::Unknown));
    let details = api.get_job_details(by(&ada, asked.clone())).await.unwrap().into_inner().job_details;
    assert_eq!(details.len(), 3);
    assert_eq!(api.get_job_errors(by(&ada, asked)).await.unwrap().into_inner().job_errors, BTreeMap::new());
    let runs = json!({ "runIds": [format!("{}-1", ids[0]), "60e4f1a2-ea41-4a8a-a1a9-5c0b0c7b9f11"] });
    assert_eq!(api.get_job_run_details(by(&ada, runs)).await.unwrap().into_inner().job_run_details, BTreeMap::new());
}

#[tokio::test]
async fn why_a_job_was_preempted_is_its_error() {
    let home = home().await;
    let (_, ada) = queue(&home.api).await;
    // An odd number has a class that makes room.
    home.log.submit(vec![stored::submission("set", vec![stored::job(1, None), stored::job(3, None)])]).await.unwrap();
    let mut leader = Leader::new(&home.log).await;
    let leases = proposals(vec![stored::lease(1, "one"), stored::lease(3, "one")]);
    leader.commit(&home.log, 3_000, leases).await.unwrap();
    let running = |job| report(job, 1, ReportKind::Running(PodRef::default(), "n".to_owned()));
    leader.commit(&home.log, 4_000, reports(vec![running(1), running(3)])).await.unwrap();
    let id = JobId(1).to_string();
    let of = json!({ "queue": "q", "jobSetId": "set", "jobIds": [id], "reason": "the night shift" });
    home.api.preempt_jobs(by(&ada, of)).await.unwrap();
    leader.commit(&home.log, 5_000, reports(Vec::new())).await.unwrap();
    let asked = json!({ "jobIds": [id, JobId(3).to_string()] });
    let states = home.api.get_job_status(by(&ada, asked.clone())).await.unwrap().into_inner().job_states;
    assert_eq!(states[&id], i32::from(JobState::Preempted));
    let errors = home.api.get_job_errors(by(&ada, asked)).await.unwrap().into_inner().job_errors;
    assert_eq!(errors, BTreeMap::from([(id.clone(), "preempted: the night shift".to_owned())]));
    // Whoever asks for more of it learns that it has ended.
    let of = || json!({ "queue": "q", "jobSetId": "set", "jobIds": [id], "newPriority": 1 });
    let cancelled = home.api.cancel_jobs(by(&ada, of())).await.unwrap().into_inner().cancelled_ids;
    let moved = home.api.reprioritize_jobs(by(&ada, of())).await.unwrap().into_inner().reprioritization_results;
    assert_eq!((cancelled, moved[&id].as_str()), (Vec::new(), "it has ended: preempted"));
}

#[tokio::test]
async fn what_is_asked_of_jobs_is_in_the_log() {
    let home = home().await;
    let (_, ada) = queue(&home.api).await;
    let ids = submit(&home.api, &ada, &[json!({})]).await;
    let job: JobId = ids[0].parse().unwrap();
    let of = json!({ "queue": "q", "jobSetId": "set", "jobIds": ids, "newPriority": 4.4 });
    let results = home.api.reprioritize_jobs(by(&ada, of)).await.unwrap().into_inner().reprioritization_results;
    assert_eq!(results, BTreeMap::from([(ids[0].clone(), String::new())]));
    let all = |set: &str| json!({ "queue": "q", "jobSetId": set, "newPriority": 5 });
    let results = home.api.reprioritize_jobs(by(&ada, all("set"))).await.unwrap().into_inner().reprioritization_results;
    assert_eq!(results, BTreeMap::from([("all jobs in job set set".to_owned(), String::new())]));
    assert_eq!(code(home.api.reprioritize_jobs(by(&ada, all("none"))).await), Code::NotFound);
    let of = json!({ "queue": "q", "jobSetId": "set", "filter": { "states": ["QUEUED"] }, "reason": "enough" });
    home.api.cancel_job_set(by(&ada, of)).await.unwrap();
    let entries = home.log.events("q", "set", Seq(0), 10).await.unwrap();
    let asked: Vec<Event> = entries.into_iter().skip(1).flat_map(|(_, entry)| entry.events).collect();
    let expected = [
        Event::Reprioritised { jobs: vec![job], priority: 4 },
        Event::Reprioritised { jobs: Vec::new(), priority: 5 },
        Event::CancelAsked { jobs: Vec::new(), filter: Filter::Queued, reason: "enough".to_owned() },
    ];
    assert_eq!(asked, expected);
}

#[tokio::test]
async fn queues_are_made_changed_and_removed() {
    let home = home().await;
    let api = &home.api;
    let (admin, ada) = queue(api).await;
    let named = |name: &str| json!({ "name": name, "priorityFactor": 2 });
    assert_eq!(code(Submit::create_queue(api, by(&ada, named("mine"))).await), Code::PermissionDenied);
    assert_eq!(code(Submit::create_queue(api, by(&admin, named("q"))).await), Code::AlreadyExists);
    assert_eq!(code(Submit::update_queue(api, by(&admin, named("none"))).await), Code::NotFound);
    assert_eq!(code(Submit::get_queue(api, by(&ada, json!({ "name": "none" }))).await), Code::NotFound);
    assert_eq!(code(QueueService::cordon_queue(api, by(&admin, json!({}))).await), Code::InvalidArgument);
    let whole = json!({ "queues": [named("a"), named("q"), { "name": "b", "priorityFactor": 0.5 }] });
    let failed = Submit::create_queues(api, by(&admin, whole)).await.unwrap().into_inner().failed_queues;
    let failed: Vec<&str> = failed.iter().filter_map(|failed| Some(failed.queue.as_ref()?.name.as_str())).collect();
    assert_eq!(failed, ["q", "b"]);

    let stream = Submit::get_queues(api, by(&ada, json!({ "num": 10 }))).await.unwrap().into_inner();
    let told: Vec<Value> = stream.map(|told| serde_json::to_value(told.unwrap()).unwrap()).collect().await;
    assert_eq!((told.len(), &told[0]["queue"]["userOwners"], &told[2]), (3, &json!(["root"]), &json!({ "end": {} })));

    QueueService::cordon_queue(api, by(&admin, json!({ "name": "a" }))).await.unwrap();
    let one = QueueService::get_queue(api, by(&ada, json!({ "name": "a" }))).await.unwrap().into_inner();
    assert!(one.cordoned && (one.priority_factor - 2.0).abs() < f64::EPSILON);
    QueueService::uncordon_queue(api, by(&admin, json!({ "name": "a" }))).await.unwrap();

    submit(api, &ada, &[json!({})]).await;
    let delete = |name: &str| json!({ "name": name });
    assert_eq!(code(Submit::delete_queue(api, by(&admin, delete("q"))).await), Code::FailedPrecondition);
    Submit::delete_queue(api, by(&admin, delete("a"))).await.unwrap();
    assert_eq!(code(Submit::delete_queue(api, by(&admin, delete("a"))).await), Code::NotFound);
    assert_eq!(code(Submit::get_queue(api, by(&ada, delete("a"))).await), Code::NotFound);
}

#[tokio::test]
async fn a_queue_s_label_says_when_its_runs_are_started_elsewhere() {
    let home = home().await;
    let api = &home.api;
    let (admin, _) = queue(api).await;
    let labelled = |labels: Value| json!({ "name": "q", "priorityFactor": 1, "labels": labels });
    let known = async || {
        let queue = home.log.queues().await.unwrap().remove("q").unwrap();
        (queue.rerun_after_ms, queue.labels.get("pumice.sh/rerun-after").cloned())
    };
    assert_eq!(known().await, (0, None));
    let five = labelled(json!({ "pumice.sh/rerun-after": "5m", "team": "a" }));
    Submit::update_queue(api, by(&admin, five.clone())).await.unwrap();
    assert_eq!(known().await, (300_000, Some("5m".to_owned())));
    let told = QueueService::get_queue(api, by(&admin, json!({ "name": "q" }))).await.unwrap().into_inner();
    assert_eq!(serde_json::to_value(&told).unwrap()["labels"], five["labels"]);
    let refused = Submit::update_queue(api, by(&admin, labelled(json!({ "pumice.sh/rerun-after": "5s" })))).await;
    assert_eq!(code(refused), Code::InvalidArgument);
    QueueService::cordon_queue(api, by(&admin, json!({ "name": "q" }))).await.unwrap();
    assert_eq!(known().await, (300_000, Some("5m".to_owned())));
    Submit::update_queue(api, by(&admin, labelled(json!({ "pumice.sh/rerun-after": "90s" })))).await.unwrap();
    assert_eq!(known().await, (90_000, Some("90s".to_owned())));
    Submit::update_queue(api, by(&admin, labelled(json!({ "team": "a" })))).await.unwrap();
    assert_eq!(known().await, (0, None));
    let other = json!({ "name": "r", "priorityFactor": 1, "labels": { "pumice.sh/rerun-after": "2m" } });
    Submit::create_queue(api, by(&admin, other)).await.unwrap();
    assert_eq!(home.log.queues().await.unwrap()["r"].rerun_after_ms, 120_000);
}

#[tokio::test]
async fn a_queue_that_another_server_changed_is_known_soon() {
    let home = home().await;
    let (admin, ada) = queue(&home.api).await;
    submit(&home.api, &ada, &[json!({})]).await;
    let sources = Sources { now: Box::new(|| TimeMs(0)), random: Box::new(|| 0) };
    let other = Api::new(home.log.clone(), Rules::default(), sources, CancellationToken::new());
    let nobodys = json!({ "name": "q", "priorityFactor": 1, "userOwners": ["eve"] });
    Submit::update_queue(&other, by(&admin, nobodys)).await.unwrap();
    home.clock.fetch_add(1_000, Ordering::Relaxed);
    assert_eq!(code(home.api.submit_jobs(ask(&ada, jobs(&[json!({})]))).await), Code::PermissionDenied);
    let made = json!({ "name": "new", "priorityFactor": 1, "userOwners": ["ada"] });
    Submit::create_queue(&other, by(&admin, made)).await.unwrap();
    let request = api::JobSubmitRequest { queue: "new".to_owned(), ..jobs(&[json!({})]) };
    home.api.submit_jobs(ask(&ada, request)).await.unwrap();
}
