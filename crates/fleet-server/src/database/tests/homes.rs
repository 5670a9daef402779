//! Databases for tests.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use pumice_testkit::Postgres;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tempfile::TempDir;

use crate::database::cells::Cell;
use crate::database::{Database, Location};

/// One server for all tests that run at the same time.
static SERVER: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());
static DATABASES: AtomicUsize = AtomicUsize::new(0);

/// An empty database of its own for one test, in a file or in the Postgres that all tests share.
pub struct Home {
    pub place: Location,
    _directory: Option<TempDir>,
    _server: Option<Arc<Postgres>>,
}

impl Home {
    pub fn sqlite() -> Home {
        let directory = tempfile::tempdir().unwrap();
        let place = Location::File(directory.path().join("fleet.db"));
        Home { place, _directory: Some(directory), _server: None }
    }

    pub async fn postgres() -> Home {
        let server = tokio::task::spawn_blocking(server).await.unwrap();
        let name = format!("fleet_{}", DATABASES.fetch_add(1, Ordering::Relaxed));
        let mut connection = PgConnection::connect(&server.url()).await.unwrap();
        sqlx::query(AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&mut connection).await.unwrap();
        let place = Location::Postgres(server.url().replace("/postgres?", &format!("/{name}?")));
        Home { place, _directory: None, _server: Some(server) }
    }

    pub async fn open(&self) -> Database {
        Database::open(&self.place).await.unwrap()
    }

    pub fn is_shared(&self) -> bool {
        matches!(self.place, Location::Postgres(_))
    }
}

fn server() -> Arc<Postgres> {
    let mut shared = SERVER.lock().unwrap();
    shared.upgrade().unwrap_or_else(|| {
        let server = Arc::new(Postgres::start());
        *shared = Arc::downgrade(&server);
        server
    })
}

/// Changes the database behind everybody's back.
pub(in crate::database) async fn execute(database: &Database, sql: &str, arguments: Vec<Cell>) {
    let mut transaction = database.begin_write().await.unwrap();
    transaction.execute(sql, arguments).await.unwrap();
    transaction.commit().await.unwrap();
}
