//! Bodies of requests that are read, or wait to be processed: how much memory they may take.
//!
//! Invariant: a body is charged as it arrives, not as it was announced: what a peer promises and does not send costs nobody
//! else anything. The bodies of one user never take more than [`USER_BYTES_MAX`]; further ones wait for his own, and for
//! nobody else's. All together take [`BYTES_MAX`]; beyond that, users who have more than their share are refused.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, header};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::http::body::Body;
use crate::http::decode::{self, BODY_BYTES_MAX, DecodeError};

/// Most bytes of all bodies.
const BYTES_MAX: usize = 48 * 1024 * 1024;
/// Most bytes of the bodies of one user, as they were announced.
const USER_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The unit in which announced bytes are counted.
const UNIT: usize = 1024;

/// Why a body was not read.
#[derive(Debug)]
pub(super) enum NotRead {
    /// All that may be in memory is.
    Full,
    Decode(DecodeError),
}

#[derive(Debug)]
pub(super) struct Bodies {
    /// Longest wait for other bodies of the same user.
    wait: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    bytes: usize,
    users: HashMap<Arc<str>, User>,
}

#[derive(Debug)]
struct User {
    bytes: usize,
    bodies: usize,
    announced: Arc<Semaphore>,
}

/// The memory of one body, until it is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    bodies: Arc<Bodies>,
    user: Arc<str>,
    bytes: usize,
    _announced: Option<OwnedSemaphorePermit>,
}

impl Bodies {
    pub(super) fn new(wait: Duration) -> Arc<Self> {
        Arc::new(Self { wait, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of all bodies.
    pub(super) fn bytes(&self) -> usize {
        self.state().bytes
    }

    /// Reads a body of `user`, once there is room for it.
    pub(super) async fn read(
        self: &Arc<Self>,
        user: &str,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<(Bytes, Charge), NotRead> {
        let (mut charge, announced) = self.begin(user);
        let units = u32::try_from(expected(headers).div_ceil(UNIT)).unwrap_or(u32::MAX);
        let waited = tokio::time::timeout(self.wait, announced.acquire_many_owned(units)).await;
        charge._announced = waited.map_err(|_| NotRead::Full)?.ok();
        let read = decode::read_charged(body, |more| charge.add(more)).await;
        let bytes = read.map_err(|error| match error {
            DecodeError::NoRoom => NotRead::Full,
            other => NotRead::Decode(other),
        })?;
        Ok((bytes, charge))
    }

    fn begin(self: &Arc<Self>, user: &str) -> (Charge, Arc<Semaphore>) {
        let mut state = self.state();
        let name: Arc<str> = match state.users.get_key_value(user) {
            Some((name, _)) => Arc::clone(name),
            None => user.into(),
        };
        let fresh = || User { bytes: 0, bodies: 0, announced: Arc::new(Semaphore::new(USER_BYTES_MAX / UNIT)) };
        let of_user = state.users.entry(Arc::clone(&name)).or_insert_with(fresh);
        of_user.bodies += 1;
        let announced = Arc::clone(&of_user.announced);
        (Charge { bodies: Arc::clone(self), user: name, bytes: 0, _announced: None }, announced)
    }
}

impl Charge {
    /// More bytes have come; whether there is room for them.
    fn add(&mut self, more: usize) -> bool {
        let mut state = self.bodies.state();
        let share = BYTES_MAX / state.users.len().max(1);
        let total = state.bytes + more;
        let Some(user) = state.users.get_mut(&self.user) else { return false };
        if total > BYTES_MAX && user.bytes + more > share {
            return false;
        }
        user.bytes += more;
        self.bytes += more;
        state.bytes = total;
        true
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut state = self.bodies.state();
        state.bytes -= self.bytes;
        let Some(user) = state.users.get_mut(&self.user) else { return };
        user.bytes -= self.bytes;
        user.bodies -= 1;
        if user.bodies == 0 {
            state.users.remove(&self.user);
        }
    }
}

/// How large a body says that it is, or else may be.
fn expected(headers: &HeaderMap) -> usize {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let is_chunked = headers.contains_key(header::TRANSFER_ENCODING);
    match length {
        Some(length) if !is_chunked => BODY_BYTES_MAX.min(length),
        _ => BODY_BYTES_MAX,
    }
}

#[cfg(test)]
mod tests {
    use futures::{StreamExt as _, stream};

    use super::*;

    fn announcing(length: usize) -> HeaderMap {
        HeaderMap::from_iter([(header::CONTENT_LENGTH, length.into())])
    }

    fn unfinished(length: usize) -> Body {
        Body::stream(stream::iter([Bytes::from(vec![b' '; length])]).chain(stream::pending()))
    }

    fn whole(length: usize) -> Body {
        Body::from(vec![b' '; length])
    }

    #[tokio::test]
    async fn what_one_user_does_not_send_holds_up_himself_alone() {
        let bodies = Bodies::new(Duration::from_millis(1));
        let large = announcing(BODY_BYTES_MAX);
        let mut slow: Vec<_> = (0..100).map(|_| Box::pin(bodies.read("eve", &large, unfinished(1)))).collect();
        for read in &mut slow {
            assert!(futures::poll!(read).is_pending());
        }
        assert!(bodies.bytes() < 10);
        let (bytes, charge) = bodies.read("ann", &large, whole(1_000_000)).await.expect("read at once");
        assert_eq!((bytes.len(), bodies.bytes() >= 1_000_000), (1_000_000, true));
        let last = slow.pop().expect("one of them");
        assert!(matches!(last.await, Err(NotRead::Full)), "who waits for his own bodies is told");
        drop((slow, charge));
        assert!(bodies.bytes() == 0 && bodies.state().users.is_empty());
    }

    #[tokio::test]
    async fn memory_is_bounded_and_who_has_the_most_is_refused() {
        let bodies = Bodies::new(Duration::from_secs(60));
        let large = announcing(3_000_000);
        let mut held = Vec::new();
        let mut refused = 0;
        for number in 0..40_usize {
            let user = ["eve", "mal", "joe", "sue", "ivy"][number % 5];
            let mut reading = Box::pin(bodies.read(user, &large, unfinished(3_000_000)));
            match futures::poll!(&mut reading) {
                std::task::Poll::Ready(_) => refused += 1,
                std::task::Poll::Pending => held.push(reading),
            }
        }
        assert!(refused > 0 && bodies.bytes() <= BYTES_MAX, "{refused} {}", bodies.bytes());
        let small = bodies.read("ann", &announcing(1000), whole(1000)).await;
        assert!(small.is_ok(), "somebody with little is served");
    }

    #[test]
    fn a_body_without_a_length_may_be_as_long_as_any() {
        assert_eq!(expected(&HeaderMap::new()), BODY_BYTES_MAX);
        assert_eq!(expected(&announcing(10)), 10);
        assert_eq!(expected(&announcing(usize::MAX)), BODY_BYTES_MAX);
    }
}
