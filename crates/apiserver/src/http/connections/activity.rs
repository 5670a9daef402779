//! What a connection does: requests that are answered, and for how long its peer lets it wait.
//!
//! Invariant: a connection waits for its peer for a bounded time, whatever the peer sends meanwhile: until a request is
//! whole (a first byte, a preface and half a head are none), and until what there is of an answer is taken. A connection
//! whose answers wait for the server, as a quiet watch does, waits for nobody.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use super::limits::Ended;

/// Longest time from the handshake to the first request of a peer that showed no certificate.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The same of one that did: clients open some connections before they need them.
const FIRST_REQUEST_TIMEOUT_IDENTIFIED: Duration = Duration::from_secs(30);
/// Longest time between two requests of a peer that has not shown who it is.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// The same of one that has: longer than the 90 s after which usual clients close a connection by themselves, so that none is
/// closed under a request.
const IDLE_TIMEOUT_IDENTIFIED: Duration = Duration::from_secs(120);
/// Longest time in which a peer that has not shown who it is takes nothing of an answer.
const TAKE_TIMEOUT: Duration = Duration::from_secs(20);
/// The same of one that has, where the answer's end is known.
const TAKE_TIMEOUT_IDENTIFIED: Duration = Duration::from_secs(60);
/// The same where its end is not known: a person may look for long at a page of a log.
const TAKE_TIMEOUT_STREAM: Duration = Duration::from_secs(15 * 60);
/// Longest time between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Most bytes of an answer that are handed over at once, so that taking some of a large one shows.
const PIECE_BYTES: usize = 64 * 1024;

/// What one connection does. Shared by its task, its requests and the limits.
#[derive(Debug)]
pub(super) struct Activity(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Requests that are answered.
    answers: HashMap<u64, Answer>,
    next: u64,
    /// Since when there are none.
    quiet_since: Instant,
    asked_before: bool,
    identified: bool,
    upgraded: bool,
}

/// How it stands with one answer.
#[derive(Debug, Clone, Copy)]
enum Answer {
    /// The server has nothing for the peer.
    Awaited,
    /// There is something for the peer since then.
    Offered { since: Instant, finite: bool },
}

impl Default for Activity {
    fn default() -> Self {
        Self(Mutex::new(State {
            answers: HashMap::new(),
            next: 0,
            quiet_since: Instant::now(),
            asked_before: false,
            identified: false,
            upgraded: false,
        }))
    }
}

impl Activity {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The peer has shown who it is.
    pub(super) fn identify(&self) {
        self.state().identified = true;
    }

    /// The handshake has ended now.
    pub(super) fn open(&self) {
        self.state().quiet_since = Instant::now();
    }

    /// Somebody else has taken the connection over, and ends it.
    pub(super) fn upgrade(&self) {
        self.state().upgraded = true;
    }

    pub(super) fn is_upgraded(&self) -> bool {
        self.state().upgraded
    }

    /// Since when no request is answered; `None` while one is.
    pub(super) fn quiet_since(&self) -> Option<Instant> {
        let state = self.state();
        state.answers.is_empty().then_some(state.quiet_since)
    }

    /// A request is whole but for its body; it is being answered until what comes back is dropped.
    pub(super) fn request(self: &Arc<Self>) -> Answering {
        let mut state = self.state();
        let id = state.next;
        state.next += 1;
        state.asked_before = true;
        state.answers.insert(id, Answer::Awaited);
        Answering { activity: Arc::clone(self), id }
    }

    /// Ends when the peer has let the connection wait for too long.
    pub(super) async fn overdue(&self) -> Ended {
        loop {
            let now = Instant::now();
            let next = match self.state().deadline() {
                Some((at, reason)) if at <= now => return reason,
                Some((at, _)) => at.min(now + LOOK_EVERY),
                None => now + LOOK_EVERY,
            };
            tokio::time::sleep_until(next).await;
        }
    }
}

impl State {
    /// When the connection has waited for long enough for what it waits for now, and how its end is counted.
    fn deadline(&self) -> Option<(Instant, Ended)> {
        if self.answers.is_empty() {
            let (limit, reason) = match (self.asked_before, self.identified) {
                (false, false) => (FIRST_REQUEST_TIMEOUT, Ended::FirstRequest),
                (false, true) => (FIRST_REQUEST_TIMEOUT_IDENTIFIED, Ended::FirstRequest),
                (true, false) => (IDLE_TIMEOUT, Ended::Idle),
                (true, true) => (IDLE_TIMEOUT_IDENTIFIED, Ended::Idle),
            };
            return Some((self.quiet_since + limit, reason));
        }
        let deadlines = self.answers.values().filter_map(|answer| match *answer {
            Answer::Awaited => None,
            Answer::Offered { since, finite } => Some(match (self.identified, finite) {
                (false, _) => since + TAKE_TIMEOUT,
                (true, true) => since + TAKE_TIMEOUT_IDENTIFIED,
                (true, false) => since + TAKE_TIMEOUT_STREAM,
            }),
        });
        deadlines.min().map(|at| (at, Ended::AnswerNotTaken))
    }
}

/// A request that is being answered.
pub(super) struct Answering {
    activity: Arc<Activity>,
    id: u64,
}

impl Answering {
    fn set(&self, answer: Answer) {
        self.activity.state().answers.insert(self.id, answer);
    }

    /// The answer's head is there for the peer, and maybe some of its body, which is handed over through what comes back.
    pub(super) fn offer<B: Body>(self, body: B) -> Offered<B> {
        let offered = Offered {
            finite: body.size_hint().exact().is_some(),
            body: Box::pin(body),
            rest: Bytes::new(),
            answering: self,
        };
        offered.answering.set(offered.waits());
        offered
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let mut state = self.activity.state();
        state.answers.remove(&self.id);
        if state.answers.is_empty() {
            state.quiet_since = Instant::now();
        }
    }
}

/// The body of an answer, in pieces: the next one is asked for when the peer has room for it.
pub(super) struct Offered<B> {
    finite: bool,
    body: Pin<Box<B>>,
    /// What is left of a piece that is too large.
    rest: Bytes,
    answering: Answering,
}

impl<B> Offered<B> {
    fn waits(&self) -> Answer {
        Answer::Offered { since: Instant::now(), finite: self.finite }
    }
}

impl<B: Body<Data = Bytes>> Body for Offered<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if self.rest.is_empty() {
            match self.body.as_mut().poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) if data.len() > PIECE_BYTES => self.rest = data,
                    Ok(data) => {
                        self.answering.set(self.waits());
                        return Poll::Ready(Some(Ok(Frame::data(data))));
                    }
                    Err(other) => {
                        self.answering.set(self.waits());
                        return Poll::Ready(Some(Ok(other)));
                    }
                },
                Poll::Pending => {
                    self.answering.set(Answer::Awaited);
                    return Poll::Pending;
                }
                ended => return ended,
            }
        }
        self.answering.set(self.waits());
        let size = self.rest.len().min(PIECE_BYTES);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(size)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        let inner = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + rest);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use futures::{StreamExt as _, stream};
    use http_body_util::{BodyExt as _, Full, StreamBody};

    use super::*;

    /// What the connection waits for, and for how long.
    fn waits(activity: &Activity) -> Option<(Ended, Duration)> {
        let begun = activity.quiet_since();
        let (at, reason) = activity.state().deadline()?;
        let rounded = at.duration_since(begun.unwrap_or_else(Instant::now)).as_secs_f64().round();
        Some((reason, Duration::from_secs_f64(rounded)))
    }

    #[test]
    fn who_asks_nothing_is_not_waited_for() {
        let activity = Arc::new(Activity::default());
        assert_eq!(waits(&activity), Some((Ended::FirstRequest, FIRST_REQUEST_TIMEOUT)));
        activity.identify();
        assert_eq!(waits(&activity), Some((Ended::FirstRequest, FIRST_REQUEST_TIMEOUT_IDENTIFIED)));
        let request = activity.request();
        assert_eq!(waits(&activity), None, "the server works on it");
        drop(request);
        assert_eq!(waits(&activity), Some((Ended::Idle, IDLE_TIMEOUT_IDENTIFIED)));
    }

    #[tokio::test]
    async fn who_takes_no_answer_is_not_waited_for() {
        let activity = Arc::new(Activity::default());
        let mut body = activity.request().offer(Full::new(Bytes::from(vec![0; 3 * PIECE_BYTES])));
        assert_eq!(body.size_hint().exact(), Some(3 * PIECE_BYTES as u64));
        assert_eq!(waits(&activity), Some((Ended::AnswerNotTaken, TAKE_TIMEOUT)));
        let before = activity.state().deadline();
        let piece = body.frame().await.expect("a piece").expect("whole").into_data().expect("data");
        assert_eq!((piece.len(), body.size_hint().exact()), (PIECE_BYTES, Some(2 * PIECE_BYTES as u64)));
        assert!(activity.state().deadline() > before, "taking some is progress");
        activity.identify();
        assert_eq!(waits(&activity), Some((Ended::AnswerNotTaken, TAKE_TIMEOUT_IDENTIFIED)));
        assert_eq!(body.collect().await.expect("the rest").to_bytes().len(), 2 * PIECE_BYTES);
        assert_eq!(waits(&activity), Some((Ended::Idle, IDLE_TIMEOUT_IDENTIFIED)));
    }

    #[tokio::test]
    async fn a_quiet_watch_waits_for_nobody() {
        let activity = Arc::new(Activity::default());
        activity.identify();
        let events = stream::iter([Ok::<_, std::io::Error>(Frame::data(Bytes::from_static(b"{}")))]);
        let mut body = activity.request().offer(StreamBody::new(events.chain(stream::pending())));
        body.frame().await.expect("an event").expect("whole");
        assert_eq!(waits(&activity), Some((Ended::AnswerNotTaken, TAKE_TIMEOUT_STREAM)));
        assert!(futures::poll!(body.frame()).is_pending());
        assert_eq!(waits(&activity), None);
        assert_eq!(activity.quiet_since(), None);
    }
}
