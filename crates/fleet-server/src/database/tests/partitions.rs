//! The log in partitions, which only Postgres has; all other laws hold over several of them.

use super::homes::{Home, execute};
use super::leading::Leader;
use super::*;
use crate::database::Database;
use crate::database::cells::Kind;

async fn partitions(database: &Database) -> Vec<String> {
    let mut names = Vec::new();
    let sql = "SELECT inhrelid::regclass::TEXT FROM pg_inherits WHERE inhparent = 'log'::regclass ORDER BY inhrelid";
    let read = |mut cells: crate::database::cells::Cells| {
        names.push(cells.text()?);
        Ok(())
    };
    let mut transaction = database.begin_read().await.unwrap();
    transaction.each("log", &[("name", Kind::Text)], sql.to_owned(), vec![], read).await.unwrap();
    names
}

async fn submit(database: &Database, job_set: &str, ids: std::ops::Range<u128>) {
    for id in ids {
        database.submit(vec![submission(job_set, vec![job(id, None)])]).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_goes_when_all_in_it_is_over() {
    let home = Home::postgres().await;
    let database = home.open().await;
    submit(&database, "old", 0..20).await;
    assert_eq!(partitions(&database).await, ["log_0", "log_1"]);
    // One request may begin several.
    let many = (20..60).map(|id| submission("new", vec![job(id, None)])).collect();
    database.submit(many).await.unwrap();
    assert_eq!(partitions(&database).await, ["log_0", "log_1", "log_2", "log_3"]);
    assert_eq!(submitted(&database).await, (0..60).collect::<Vec<_>>());
    let leader = Leader::new(&database).await;
    assert!(!database.retire(leader.epoch).await.unwrap(), "nothing is decided yet");
    execute(&database, "UPDATE head SET folded = seq", vec![]).await;
    assert!(!database.retire(leader.epoch).await.unwrap(), "all of it is in use");
    execute(&database, "DELETE FROM log WHERE job_set = 'old'", vec![]).await;
    assert!(database.retire(leader.epoch).await.unwrap());
    assert!(!database.retire(leader.epoch).await.unwrap(), "the next one has newer entries");
    assert_eq!(partitions(&database).await, ["log_1", "log_2", "log_3"]);
    assert_eq!(database.events("q", "new", Seq(0), 100).await.unwrap().len(), 40);
    submit(&database, "new", 60..80).await;
    database.close().await;
    let database = home.open().await;
    assert_eq!(partitions(&database).await, ["log_1", "log_2", "log_3", "log_4", "log_5"]);
    database.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_of_one_table_becomes_the_first_partition() {
    let home = Home::postgres().await;
    let database = home.open().await;
    submit(&database, "s", 0..20).await;
    for sql in [
        "CREATE TABLE whole AS SELECT * FROM log",
        "DROP TABLE log",
        "ALTER TABLE whole RENAME TO log",
        "ALTER TABLE log ADD CONSTRAINT log_pkey PRIMARY KEY (seq)",
        "CREATE INDEX log_of_set ON log (queue, job_set, seq)",
        "DROP TABLE retry_policies",
        "ALTER TABLE jobs DROP COLUMN grown",
        "ALTER TABLE runs DROP COLUMN away",
        "ALTER TABLE runs DROP COLUMN places",
        "UPDATE meta SET value = 3 WHERE key = 'format'",
    ] {
        execute(&database, sql, vec![]).await;
    }
    database.close().await;
    let database = home.open().await;
    assert_eq!(partitions(&database).await, ["log_0"]);
    submit(&database, "s", 20..40).await;
    assert_eq!(submitted(&database).await, (0..40).collect::<Vec<_>>());
    // The first has what was there, up to the next multiple.
    assert_eq!(partitions(&database).await, ["log_0", "log_2"]);
    database.close().await;
}
