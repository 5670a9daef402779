//! How many requests are processed at a time, and whose turn it is.
//!
//! Invariant: the body of a write is whole before the write counts as one that is processed, so a peer that does not send
//! holds up nobody. Users take turns: however many requests one has, another's goes on. The platform's own components and
//! administrators have a share of their own. Whoever waits for too long is told to come again. Used by the pipeline.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use pumice_auth::{Identity, MASTERS, service_account_of};
use pumice_metrics::{Counts, Page};
use pumice_objects::status::Status;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::http::body::Body;
use crate::http::log_pause::LogPause;

mod bodies;
mod fair_queue;
mod watches;

use bodies::{Bodies, Charge, NotRead};
use fair_queue::{FairQueue, Limits, NoTurn, Turn};
use watches::Watches;

pub(crate) use watches::WatchSeat;

/// How many writes of users are answered at a time, and how many wait.
const WRITES: Limits =
    Limits { running: 256, running_of_user: 64, waiting_of_user: 1024, wait: Duration::from_secs(30) };
/// Lists that are put together, or sent to who asked for them.
const LISTS: Limits = Limits { running: 128, running_of_user: 32, waiting_of_user: 512, wait: Duration::from_secs(30) };
/// Most watches of one user at a time.
const WATCHES_OF_USER_MAX: usize = 1000;
/// Most writes at a time of components and administrators.
const SYSTEM_WRITES_MAX: usize = 256;
/// Longest wait of a body for others of the same user.
const BODY_WAIT: Duration = Duration::from_secs(30);
/// After how many seconds whoever got no turn may come again.
const RETRY_AFTER: u32 = 1;
/// What the names of the platform's components begin with.
const COMPONENT: &str = "system:";

/// Names of upstream's labels. There is one flow for each of the two kinds of users, and no others can be configured.
const LABELS: [&str; 3] = ["flow_schema", "priority_level", "reason"];
const USERS: &str = "users";
const SYSTEM: &str = "system";

pub(crate) struct Flow {
    writes: Arc<FairQueue>,
    lists: Arc<FairQueue>,
    watches: Arc<Watches>,
    system_writes: Semaphore,
    bodies: Arc<Bodies>,
    rejected: Counts<3>,
    log: LogPause,
}

/// A write that is processed, until it is dropped.
pub(crate) enum WriteTurn<'f> {
    User { _turn: Turn },
    System { _permit: Option<SemaphorePermit<'f>> },
}

impl Default for Flow {
    fn default() -> Self {
        Self {
            writes: FairQueue::new(WRITES),
            lists: FairQueue::new(LISTS),
            watches: Arc::default(),
            system_writes: Semaphore::new(SYSTEM_WRITES_MAX),
            bodies: Bodies::new(BODY_WAIT),
            rejected: Counts::new(LABELS),
            log: LogPause::default(),
        }
    }
}

impl Flow {
    /// Reads the body of a write that came over a socket.
    pub(crate) async fn read(
        &self,
        user: &Identity,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<(Bytes, Charge), Status> {
        let read = self.bodies.read(&user.user, headers, body).await;
        read.map_err(|error| match error {
            NotRead::Full => self.reject(user, "writes", "memory"),
            NotRead::Decode(error) => error.into(),
        })
    }

    /// Waits until a write may be processed. `in_process` is what a component sends from inside the platform's own process.
    pub(crate) async fn write(&self, user: &Identity, in_process: bool) -> Result<WriteTurn<'_>, Status> {
        if in_process || is_system(user) {
            return Ok(WriteTurn::System { _permit: self.system_writes.acquire().await.ok() });
        }
        match self.writes.turn(&user.user).await {
            Ok(turn) => Ok(WriteTurn::User { _turn: turn }),
            Err(none) => Err(self.reject(user, "writes", none.label())),
        }
    }

    /// Waits until a list may be put together; it is sent by the time that the turn is dropped.
    pub(crate) async fn list(&self, user: &Identity) -> Result<Option<Turn>, Status> {
        if is_system(user) {
            return Ok(None);
        }
        let turn = self.lists.turn(&user.user).await;
        turn.map(Some).map_err(|none| self.reject(user, "lists", none.label()))
    }

    /// Counts a watch until what comes back is dropped.
    pub(crate) fn watch(&self, user: &Identity) -> Result<Option<WatchSeat>, Status> {
        if is_system(user) {
            return Ok(None);
        }
        let seat = self.watches.begin(&user.user, WATCHES_OF_USER_MAX);
        seat.map(Some).ok_or_else(|| self.reject(user, "watches", NoTurn::QueueFull.label()))
    }

    fn reject(&self, user: &Identity, level: &'static str, reason: &'static str) -> Status {
        let schema = if is_system(user) { SYSTEM } else { USERS };
        self.rejected.add([schema, level, reason]);
        if let Some(rejected) = self.log.due(Instant::now()) {
            tracing::warn!(user = user.user, level, reason, rejected, "requests are refused, as there are too many");
        }
        let message = format!("there are too many {level} of {} at the moment ({reason}): try again later", user.user);
        Status::too_many_requests(message, RETRY_AFTER)
    }

    /// Writes what is counted of it.
    pub(crate) fn show(&self, page: &mut Page) {
        let system = SYSTEM_WRITES_MAX - self.system_writes.available_permits();
        let [(writes, writes_wait), (lists, lists_wait)] = [self.writes.counts(), self.lists.counts()];
        let name = "apiserver_flowcontrol_current_executing_requests";
        page.head(name, "gauge", "Writes that are processed, and lists that are put together and sent");
        for (schema, level, count) in [(SYSTEM, "writes", system), (USERS, "writes", writes), (USERS, "lists", lists)] {
            page.line(name, &[(LABELS[0], schema), (LABELS[1], level)], count);
        }
        let name = "apiserver_flowcontrol_current_inqueue_requests";
        page.head(name, "gauge", "Requests that wait for their user's turn");
        for (level, count) in [("writes", writes_wait), ("lists", lists_wait)] {
            page.line(name, &[(LABELS[0], USERS), (LABELS[1], level)], count);
        }
        let name = "apiserver_flowcontrol_rejected_requests_total";
        page.counts(name, "Requests that were refused, as there were too many", &self.rejected);
        page.gauge(
            "pumice_request_body_bytes",
            "Bytes of bodies that are read or processed",
            self.bodies.bytes() as u64,
        );
    }
}

impl NoTurn {
    /// As upstream calls it.
    fn label(self) -> &'static str {
        match self {
            Self::QueueFull => "queue-full",
            Self::TimeOut => "time-out",
        }
    }
}

/// Whether a user is a component of the platform or one of its administrators.
fn is_system(user: &Identity) -> bool {
    let is_component = user.user.starts_with(COMPONENT) && service_account_of(&user.user).is_none();
    is_component || user.is_in(MASTERS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_users_writes_hold_up_no_administrator_and_no_other_user() {
        let limits = Limits { wait: Duration::from_millis(1), ..WRITES };
        let flow = Flow { writes: FairQueue::new(limits), ..Flow::default() };
        let eve = Identity::new("eve", Vec::<String>::new());
        let mut turns = Vec::new();
        for _ in 0..WRITES.running_of_user {
            turns.push(flow.write(&eve, false).await.expect("a turn"));
        }
        let refused = flow.write(&eve, false).await.err().expect("no turn");
        assert_eq!(refused.code, 429);
        assert_eq!(refused.details.map(|details| details.retry_after_seconds), Some(RETRY_AFTER));
        for other in [Identity::new("ann", Vec::<String>::new()), Identity::new("root", [MASTERS])] {
            assert!(flow.write(&other, false).await.is_ok(), "{}", other.user);
        }
        let mut page = Page::default();
        flow.show(&mut page);
        let page = page.into_text();
        let line = "apiserver_flowcontrol_rejected_requests_total{flow_schema=\"users\",priority_level=\"writes\",\
                    reason=\"time-out\"} 1\n";
        assert!(page.contains(line), "{page}");
    }

    #[test]
    fn a_service_account_is_no_component() {
        assert!(is_system(&Identity::new("system:kube-scheduler", Vec::<String>::new())));
        assert!(!is_system(&Identity::service_account("team", "robot")));
    }
}
