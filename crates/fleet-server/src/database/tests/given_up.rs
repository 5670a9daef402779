//! Questions that are given up before they are answered.

use std::pin::pin;

use sqlx::{Connection as _, PgConnection};

use super::homes::Home;
use crate::database::Location;

/// Turns after which a question is given up: those in which its transaction begins are among them.
const TURNS: usize = 60;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_that_is_given_up_leaves_no_transaction_open() {
    let home = Home::postgres().await;
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
