//! Laws: whatever is replayed, however it is cut into batches, the rows are the same; in memory and in each database.

use std::collections::BTreeMap;

use proptest::prelude::*;
use pumice_clock as clock;
use pumice_testkit::Postgres;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::database::{Database, Location};
use crate::handle::Progress;
use crate::metrics::Numbers;
use crate::pending::{Cursor, Entry, Pending, Watched};
use crate::query::{self, GroupBy, QueryError, Question};
use crate::rows::{Cell, Kind, Row, Table};
use crate::statements::Statement;
use crate::writer;

const OBJECTS: usize = 4;

/// One version of one of a few objects, as a watch tells it.
#[derive(Debug, Clone, Copy)]
struct Version {
    object: usize,
    phase: usize,
    deleted: bool,
}

fn versions() -> impl Strategy<Value = Vec<Version>> {
    let one = (0..OBJECTS, 0..4_usize, prop::bool::weighted(0.1));
    prop::collection::vec(one.prop_map(|(object, phase, deleted)| Version { object, phase, deleted }), 1..40)
}

/// The rows of a version, of each table.
fn rows(version: Version, number: i64, seen: i64) -> Vec<Row> {
    let uid = format!("u{}", version.object);
    let phase = ["Pending", "Running", "Succeeded", "Failed"][version.phase];
    let stamped = |table| Row::new(table).int("version", number).int("seen", seen);
    let at = |there: bool, base: i64| there.then_some(base + number);
    let over = version.phase > 1 || version.deleted;
    let job = stamped(Table::Job)
        .text("uid", &uid)
        .text("api", "batch.volcano.sh")
        .text("phase", phase)
        .text_if("queue", if number % 3 == 0 { "q" } else { "" })
        .int("submitted", 5)
        .int("started", at(version.phase == 1, 100))
        .int("ended", at(over, 200))
        .int("gone", at(version.deleted, 300));
    let attempt = stamped(Table::Attempt)
        .text("uid", &uid)
        .text("job_uid", &uid)
        .text("phase", phase)
        .text_if("node", if version.phase > 0 { "n" } else { "" })
        .int("started", at(version.phase == 1, 100))
        .int("ended", at(over, 200));
    let wait = stamped(Table::Waits)
        .text("group_uid", &uid)
        .int("since", number / 4)
        .text("class", phase)
        .text("job_uid", &uid)
        .text("summary", phase);
    let sample = Row::new(Table::Used)
        .text("uid", &uid)
        .int("sampled", number)
        .int("samples", 1)
        .int("cpu_milli_sum", number * 7)
        .int("cpu_milli_max", number * 13 % 50);
    vec![job, attempt, wait, sample]
}

fn entry(version: Version, number: i64) -> Entry {
    Entry::Changed { watched: Watched::Jobs, version: number.to_string(), rows: rows(version, number, 1) }
}

/// Everything that a database holds.
async fn dump(database: &Database) -> Vec<Vec<Cell>> {
    let mut all = Vec::new();
    for table in Table::ALL {
        let names: Vec<&str> = table.columns().iter().map(|column| column.name).collect();
        let kinds: Vec<Kind> = table.columns().iter().map(|column| column.kind).collect();
        let sql = format!("SELECT {} FROM {}", names.join(", "), table.name());
        let mut rows = database.ask(&Statement::new(sql, vec![]), &kinds).await.unwrap();
        rows.sort();
        all.extend(rows);
    }
    all
}

/// The same as a fold in memory.
fn folded(entries: impl IntoIterator<Item = Entry>) -> Vec<Vec<Cell>> {
    let mut book: BTreeMap<(Table, Vec<Cell>), Row> = BTreeMap::new();
    for entry in entries {
        let Entry::Changed { rows, .. } = entry else { continue };
        for row in rows {
            let key = (row.table, row.key().to_vec());
            match book.get_mut(&key) {
                Some(there) => there.merge(row),
                None => drop(book.insert(key, row)),
            }
        }
    }
    let mut by_table: BTreeMap<Table, Vec<Vec<Cell>>> = BTreeMap::new();
    for row in book.into_values() {
        by_table.entry(row.table).or_default().push(row.cells);
    }
    by_table
        .into_values()
        .flat_map(|mut rows| {
            rows.sort();
            rows
        })
        .collect()
}

async fn forget(database: &Database) {
    let tables = Table::ALL.iter().map(|table| table.name()).chain(["cursor_of"]);
    let all: Vec<Statement> = tables.map(|name| Statement::new(format!("DELETE FROM {name}"), vec![])).collect();
    database.commit(&all).await.unwrap();
}

/// Takes the versions in, in batches of these sizes; after each batch the process may die and begin again a few versions
/// earlier than it had come.
async fn live(database: &Database, versions: &[Version], batches: &[(usize, usize)]) {
    let mut next = 0;
    let mut batches = batches.iter().cycle();
    let mut pending = Pending::new(BTreeMap::new());
    while next < versions.len() {
        let (size, back) = batches.next().unwrap();
        let end = (next + size).min(versions.len());
        for (place, version) in versions.iter().enumerate().take(end).skip(next) {
            pending.add(database.dialect(), entry(*version, place as i64 + 1), 7);
        }
        database.commit(&pending.take(database.dialect())).await.unwrap();
        next = if end == versions.len() { end } else { end.saturating_sub(*back.min(&(size - 1))) };
        if *back > 0 {
            pending = Pending::new(writer::cursors(database).await.unwrap());
        }
    }
}

fn check_laws(database: &Database, runtime: &tokio::runtime::Runtime, cases: u32) {
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let batches = prop::collection::vec((1..9_usize, 0..8_usize), 1..6);
    proptest!(config, |(versions in versions(), batches in batches)| {
        let expected = folded(versions.iter().enumerate().map(|(place, version)| entry(*version, place as i64 + 1)));
        let (found, cursors) = runtime.block_on(async {
            forget(database).await;
            live(database, &versions, &batches).await;
            (dump(database).await, writer::cursors(database).await.unwrap())
        });
        prop_assert_eq!(found, expected);
        let cursor = Cursor { version: versions.len().to_string(), seen: 0, at: 7 };
        prop_assert_eq!(cursors, BTreeMap::from([(Watched::Jobs, cursor)]));
    });
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn in_both(check: impl Fn(&Database, &tokio::runtime::Runtime)) {
    let runtime = runtime();
    let directory = tempfile::tempdir().unwrap();
    let file = runtime.block_on(Database::open(&Location::File(directory.path().join("h.db")))).unwrap();
    check(&file, &runtime);
    runtime.block_on(file.close());
    let postgres = Postgres::start();
    let server = runtime.block_on(Database::open(&Location::Postgres(postgres.url()))).unwrap();
    check(&server, &runtime);
    runtime.block_on(server.close());
}

// INV-27
#[test]
fn whatever_is_replayed_the_rows_are_the_same() {
    in_both(|database, runtime| check_laws(database, runtime, 64));
}

/// Three jobs with attempts: of two users, one failed, one still runs.
fn some_history() -> Vec<Row> {
    let job = |uid: &str, user: &str, phase: &str, submitted: i64, started: Option<i64>, ended: Option<i64>| {
        Row::new(Table::Job)
            .int("version", 1)
            .int("seen", 1)
            .text("uid", uid)
            .text("api", "batch.volcano.sh")
            .text("namespace", "ns")
            .text("name", &format!("train-{uid}"))
            .text("profile", "train")
            .text("submitter", user)
            .text("queue", "q")
            .text("phase", phase)
            .int("submitted", submitted * 1000)
            .int("started", started.map(|at| at * 1000))
            .int("ended", ended.map(|at| at * 1000))
    };
    let attempt = |uid: &str, job: &str, node: &str, phase: &str, span: (i64, Option<i64>)| {
        Row::new(Table::Attempt)
            .int("version", 1)
            .int("seen", 1)
            .text("uid", uid)
            .text("job_uid", job)
            .text("namespace", "ns")
            .text("name", &format!("train-{uid}"))
            .text("task", "w")
            .int("task_index", 0)
            .text("node", node)
            .text("phase", phase)
            .int("created", span.0 * 1000)
            .int("scheduled", span.0 * 1000)
            .int("started", span.0 * 1000)
            .int("ended", span.1.map(|at| at * 1000))
            .int("cpu_milli", 2000)
            .int("memory_bytes", 1 << 30)
    };
    let day = 86_400;
    vec![
        job("a", "ann", "Completed", 100, Some(110), Some(3_710)),
        attempt("a1", "a", "n1", "Failed", (110, Some(1_910))),
        attempt("a2", "a", "n2", "Succeeded", (1_910, Some(3_710))),
        job("b", "ben", "Failed", day, Some(day + 50), Some(day + 60)),
        attempt("b1", "b", "n1", "Failed", (day + 50, Some(day + 60))),
        job("c", "ann", "Running", day + 1, Some(day + 2), None),
        attempt("c1", "c", "n1", "Running", (day + 2, None)),
        Row::new(Table::Used)
            .text("uid", "c1")
            .int("sampled", 9)
            .int("samples", 2)
            .int("cpu_milli_sum", 10)
            .int("cpu_milli_max", 8),
        Row::new(Table::Waits)
            .int("version", 1)
            .int("seen", 1)
            .text("group_uid", "g")
            .int("since", 100_000)
            .text("class", "NotEnoughResources")
            .text("job_uid", "a")
            .text("summary", "s"),
        Row::new(Table::Waits)
            .int("version", 2)
            .int("seen", 1)
            .text("group_uid", "g")
            .int("since", 105_000)
            .text("class", "NotEnoughTasks")
            .text("job_uid", "a")
            .text("summary", "t"),
    ]
}

async fn fill(database: &Database, rows: Vec<Row>) {
    forget(database).await;
    let mut pending = Pending::new(BTreeMap::new());
    pending.add(database.dialect(), Entry::Listed(rows), 1);
    database.commit(&pending.take(database.dialect())).await.unwrap();
}

#[test]
fn questions_are_answered_alike() {
    in_both(|database, runtime| {
        runtime.block_on(async {
            fill(database, some_history()).await;
            let names = async |question: Question| -> Vec<String> {
                let (found, _) = query::jobs(database, &question).await.unwrap();
                found.into_iter().map(|job| job.metadata.uid).collect()
            };
            let any = Question::default;
            assert_eq!(names(any()).await, ["c", "b", "a"]);
            let cases: Vec<(Question, &[&str])> = vec![
                (Question { namespace: Some("elsewhere".into()), ..any() }, &[]),
                (Question { user: Some("ann".into()), ..any() }, &["c", "a"]),
                (Question { queue: Some("q".into()), profile: Some("train".into()), ..any() }, &["c", "b", "a"]),
                (Question { name: Some("train-*".into()), ..any() }, &["c", "b", "a"]),
                (Question { name: Some("train_*".into()), ..any() }, &[]),
                (Question { name: Some("train-?".into()), ..any() }, &["c", "b", "a"]),
                (Question { name: Some("train?".into()), ..any() }, &[]),
                (Question { name: Some("train-b".into()), ..any() }, &["b"]),
                (Question { phases: vec!["failed".into(), "completed".into()], ..any() }, &["b", "a"]),
                (Question { node: Some("n2".into()), ..any() }, &["a"]),
                (Question { since: Some(3_711_000), ..any() }, &["c", "b"]),
                (Question { until: Some(86_401_000), ..any() }, &["b", "a"]),
                (Question { since: Some(i64::MAX), ..any() }, &["c"]),
            ];
            for (question, expected) in cases {
                assert_eq!(names(question.clone()).await, expected, "{question:?}");
            }

            let mut page = Question { limit: 2, ..any() };
            let (first, meta) = query::jobs(database, &page).await.unwrap();
            page.after = query::parse(&format!("continue={}", meta.next), None).unwrap().after;
            let (second, end) = query::jobs(database, &page).await.unwrap();
            assert_eq!((first.len(), second.len(), end.next.as_str()), (2, 1, ""));
            assert_eq!(second[0].metadata.uid, "a");

            let now = (86_400 + 3_602) * 1000;
            let mut sums = Vec::new();
            for (word, by) in GroupBy::WORDS {
                sums.push((word, query::groups(database, &any(), by, now).await.unwrap()));
            }
            let on_n1 = Question { node: Some("n1".into()), ..any() };
            sums.push(("user on n1", query::groups(database, &on_n1, GroupBy::User, now).await.unwrap()));
            insta::assert_json_snapshot!("sums", sums);

            insta::assert_json_snapshot!("job", query::job(database, "ns", "train-a", None).await.unwrap());
            let running = query::job(database, "ns", "train-c", Some("c")).await.unwrap();
            let used = running.attempts[0].used.clone().unwrap();
            assert_eq!((used.samples, used.cpu_mean_milli, used.cpu_max_milli), (2, 5, 8));
            for (namespace, name, uid) in [
                ("ns", "train-x", None),
                ("ns", "train-*", None),
                ("other", "train-a", None),
                ("ns", "train-a", Some("b")),
            ] {
                let refused = query::job(database, namespace, name, uid).await.unwrap_err();
                assert!(matches!(refused, QueryError::NoJob { .. }), "{refused}");
            }

            let runs = query::last_runs(database, 0).await.unwrap();
            assert_eq!(
                runs,
                [query::LastRuns { namespace: "ns".into(), profile: "train".into(), runs_ms: vec![1_800_000] }]
            );
            assert_eq!(query::last_runs(database, 4_000_000).await.unwrap(), []);

            // Of many pods the longest speaks, and a job of many takes one place.
            let pod = |uid: String, job: &str, started: i64, ended: i64| {
                let row =
                    Row::new(Table::Attempt).int("version", 1).int("seen", 1).text("uid", &uid).text("job_uid", job);
                row.text("phase", "Succeeded").int("started", started).int("ended", ended)
            };
            let mut rows: Vec<Row> = some_history().into_iter().filter(|row| row.table == Table::Job).collect();
            rows.extend((0..40).map(|n| pod(format!("a{n}"), "a", 1_000, 2_000 + n)));
            rows.extend((0..2).map(|n| pod(format!("b{n}"), "b", 3_000, 3_500 + n)));
            fill(database, rows).await;
            let runs = query::last_runs(database, 0).await.unwrap();
            assert_eq!(runs.into_iter().map(|kind| kind.runs_ms).collect::<Vec<_>>(), [[1_039, 501]]);
        });
    });
}

#[test]
fn what_a_list_lacks_is_gone_and_its_end_unknown() {
    in_both(|database, runtime| {
        runtime.block_on(async {
            forget(database).await;
            let dialect = database.dialect();
            let version = |object, phase| Version { object, phase, deleted: false };
            let mut pending = Pending::new(BTreeMap::new());
            pending.add(dialect, Entry::ListBegins { watched: Watched::Jobs, seen: 1 }, 10);
            let both = [rows(version(0, 1), 1, 1), rows(version(1, 2), 2, 1), rows(version(2, 1), 3, 1)].concat();
            pending.add(dialect, Entry::Listed(both), 11);
            pending.add(dialect, Entry::ListEnds { watched: Watched::Jobs, seen: 1, version: "3".into() }, 12);
            database.commit(&pending.take(dialect)).await.unwrap();

            // It dies, and comes back to a server that knows only the last of them, at an older version.
            let mut pending = Pending::new(writer::cursors(database).await.unwrap());
            pending.add(dialect, Entry::ListBegins { watched: Watched::Jobs, seen: 2 }, 1_000);
            let begun = pending.take(dialect);
            database.commit(&begun).await.unwrap();
            assert_eq!(
                writer::cursors(database).await.unwrap()[&Watched::Jobs],
                Cursor { version: String::new(), seen: 2, at: 12 }
            );
            pending.add(dialect, Entry::Listed(rows(version(2, 0), 2, 2)), 1_001);
            pending.add(dialect, Entry::ListEnds { watched: Watched::Jobs, seen: 2, version: "9".into() }, 1_002);
            database.commit(&pending.take(dialect)).await.unwrap();

            let (jobs, _) = query::jobs(database, &Question::default()).await.unwrap();
            let said: Vec<_> = jobs
                .iter()
                .map(|job| {
                    let ms = |time: Option<jiff::Timestamp>| time.map(|time| time.as_millisecond());
                    (job.metadata.uid.as_str(), job.phase.as_str(), ms(job.ended), ms(job.unseen_from), ms(job.gone))
                })
                .collect();
            assert_eq!(
                said,
                [
                    ("u2", "Pending", None, None, None),
                    ("u1", "Succeeded", Some(202), None, Some(1_002)),
                    ("u0", "EndUnknown", None, Some(12), Some(1_002)),
                ]
            );
        });
    });
}

#[test]
fn what_was_gone_for_long_is_forgotten_with_all_its_parts() {
    in_both(|database, runtime| {
        runtime.block_on(async {
            let gone = Version { object: 0, phase: 2, deleted: true };
            let there = Version { object: 1, phase: 2, deleted: false };
            let mut stray = rows(gone, 1, 1);
            stray.retain(|row| row.table == Table::Attempt);
            let stray =
                stray.into_iter().map(|row| row.text("uid", "s").text("job_uid", "none").int("gone", 300)).collect();
            fill(database, [rows(gone, 1, 1), rows(there, 2, 1), stray].concat()).await;
            assert_eq!(writer::retired(database, 301).await.unwrap(), 1, "the stray attempt");
            assert_eq!(writer::retired(database, 302).await.unwrap(), 4);
            assert_eq!(writer::retired(database, 302).await.unwrap(), 0);
            let left: Vec<Cell> = dump(database).await.into_iter().map(|row| row[0].clone()).collect();
            assert_eq!(left, vec![Cell::text("u1"); 4]);
        });
    });
}

/// Also while changes never cease to come.
#[test]
fn the_writer_forgets_by_itself_what_was_gone_for_longer_than_it_keeps() {
    in_both(|database, runtime| {
        runtime.block_on(async {
            let ago = |days: i64| clock::now().as_millisecond() - days * 24 * 3_600 * 1_000;
            let job = |object, gone| {
                let version = Version { object, phase: 2, deleted: false };
                rows(version, 1, 1)
                    .into_iter()
                    .filter(|row| row.table == Table::Job)
                    .map(move |row| row.int("gone", gone))
            };
            let all = job(0, Some(ago(8))).chain(job(1, Some(ago(6)))).chain(job(2, None));
            fill(database, all.collect()).await;
            let (sender, entries) = mpsc::channel(8);
            let stop = CancellationToken::new();
            let (cursors, numbers) = (BTreeMap::new(), Numbers::default());
            let writer = writer::Writer {
                database: database.clone(),
                entries,
                cursors,
                days: 7,
                numbers,
                progress: Progress::default(),
            };
            let looking = async {
                loop {
                    let (jobs, _) = query::jobs(database, &Question::default()).await.unwrap();
                    let mut left: Vec<String> = jobs.into_iter().map(|job| job.metadata.uid).collect();
                    left.sort_unstable();
                    if left == ["u1", "u2"] {
                        return stop.cancel();
                    }
                    tokio::task::yield_now().await;
                }
            };
            let busy = async { while sender.send(Entry::Well).await.is_ok() {} };
            let in_time = tokio::time::timeout(std::time::Duration::from_secs(60), looking);
            let (looked, (), ()) = tokio::join!(in_time, writer.run(stop.clone()), busy);
            looked.expect("what is old goes");
        });
    });
}
