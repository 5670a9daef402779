//! Laws of the log, in each database.

pub(crate) mod homes;
pub(crate) mod leading;
mod partitions;
mod retention;
mod retrying;
mod stories;
mod submitting;

use std::collections::BTreeMap;
use std::pin::pin;

use pumice_ledger::{
    Digest, Entry, Event, JobId, NodeRef, PriorityClass, PriorityClasses, Proposal, Queue, Shape, Submitted, TimeMs,
};
use sqlx::{Connection as _, PgConnection};

use super::{Database, Expect, Location, NewJob, Seq, Submission};

/// Makes a test of each law for each database.
macro_rules! laws {
    ($($law:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $law() {
                super::$law($crate::database::tests::homes::Home::sqlite()).await;
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $law() {
                super::$law($crate::database::tests::homes::Home::postgres().await).await;
            })*
        }
    };
}
pub(crate) use laws;

pub(crate) fn classes() -> PriorityClasses {
    let class = |value, preemptible| PriorityClass { value, preemptible };
    [("urgent".to_owned(), class(10, false)), ("spare".to_owned(), class(0, true))].into()
}

fn shape(class: &str) -> Shape {
    let requests = [("cpu".to_owned(), 1000)].into();
    Shape {
        priority_class: class.to_owned(),
        requests,
        template: serde_json::json!({ "nodes": ["a", "b"] }),
        volcano_job: None,
        price_band: None,
        retries: None,
    }
}

fn digest(class: &str) -> Digest {
    Digest(if class == "urgent" { 1 } else { 2 })
}

pub(crate) fn job(id: u128, client_id: Option<&str>) -> NewJob {
    let class = if id.is_multiple_of(2) { "urgent" } else { "spare" };
    NewJob {
        submitted: Submitted {
            job: JobId(id),
            spec: Digest(id % 3),
            shape: digest(class),
            priority: 0,
            gang: None,
            fail_fast: false,
        },
        namespace: "people".to_owned(),
        client_id: client_id.map(str::to_owned),
        external_uri: None,
    }
}

fn spec(digest: u128) -> Vec<u8> {
    format!("{{\"command\":\"{}\"}}", digest.to_string().repeat(300)).into_bytes()
}

pub(crate) fn submission(job_set: &str, jobs: Vec<NewJob>) -> Submission {
    let shapes: BTreeMap<_, _> = ["urgent", "spare"].map(|class| (digest(class), shape(class))).into();
    Submission {
        at: TimeMs(1_000),
        queue: "q".to_owned(),
        job_set: job_set.to_owned(),
        user: "ada".to_owned(),
        specs: jobs.iter().map(|job| (job.submitted.spec, spec(job.submitted.spec.0))).collect(),
        shapes,
        jobs,
    }
}

pub(crate) fn entry(job_set: &str, event: Event) -> Entry {
    Entry { user: "ada".to_owned(), events: vec![event], ..Entry::new(TimeMs(2_000), "q", job_set) }
}

fn queue_set(queue: Queue) -> Entry {
    entry("", Event::QueueSet(Box::new(queue)))
}

pub(crate) fn lease(job: u128, cluster: &str) -> Proposal {
    let at = NodeRef { cluster: cluster.to_owned(), node: "n".to_owned() };
    Proposal::Lease { jobs: vec![(JobId(job), at)], pool: "p".to_owned(), away: None }
}

/// The whole log; its sequence has no gap.
async fn whole(log: &Database) -> Vec<Entry> {
    let rows = log.tail(Seq(0), 100_000).await.unwrap();
    for (place, (seq, _)) in rows.iter().enumerate() {
        assert_eq!(seq.0, i64::try_from(place).unwrap() + 1);
    }
    rows.into_iter().map(|(_, entry)| entry).collect()
}

/// The jobs that the log says were submitted, in order.
async fn submitted(log: &Database) -> Vec<u128> {
    let events = whole(log).await.into_iter().flat_map(|entry| entry.events);
    events
        .filter_map(|event| match event {
            Event::Submitted(submitted) => Some(submitted.job.0),
            _ => None,
        })
        .collect()
}

pub(crate) async fn define_queue(log: &Database) {
    log.request(queue_set(Queue::default()), Expect::Any).await.unwrap();
}

/// Turns after which a question is given up before it is answered: those in which its transaction begins are among them.
const TURNS: usize = 60;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_that_is_given_up_leaves_no_transaction_open() {
    let home = homes::Home::postgres().await;
    let database = home.open().await;
    for turns in 0..TURNS {
        let mut asked = pin!(database.queues());
        for _ in 0..turns {
            if futures::poll!(&mut asked).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    let Location::Postgres(url) = &home.place else { panic!("it is Postgres") };
    let mut connection = PgConnection::connect(url).await.expect("connects");
    // What stays open is ended by Postgres after a while, and its connection with it.
    let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'";
    while sqlx::query_scalar::<_, i64>(open).fetch_one(&mut connection).await.expect("answers") > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let ended = "SELECT sessions_fatal FROM pg_stat_database WHERE datname = current_database()";
    let ended: i64 = sqlx::query_scalar(ended).fetch_one(&mut connection).await.expect("answers");
    assert_eq!(ended, 0, "Postgres ended connections that were left within a transaction");
}
