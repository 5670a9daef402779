//! What lasts longer than a request: watches, logs that are followed, programs and ports of pods, and whose each is.
//!
//! Invariant: a stream is here for as long as it lasts and a little longer, so that it can be ended when its user may no
//! longer have it. As in Kubernetes the end of a token's time ends no stream that began before. Filled by the pipeline.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use super::Caller;

/// How many are remembered before those that are over are looked for.
const ROOM_MIN: usize = 64;

/// Streams that go on.
#[derive(Default)]
pub(crate) struct LiveStreams(Mutex<Streams>);

#[derive(Default)]
struct Streams {
    all: Vec<Stream>,
    /// So many may be there before those that are over are removed.
    room: usize,
}

struct Stream {
    caller: Caller,
    /// Ends it in good order; cancelled, too, when it is over.
    end: CancellationToken,
    /// Breaks its connection off, where the stream has one to itself.
    connection: Option<CancellationToken>,
}

impl Stream {
    fn is_over(&self) -> bool {
        self.end.is_cancelled() || self.connection.as_ref().is_some_and(CancellationToken::is_cancelled)
    }
}

impl LiveStreams {
    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin(&self, caller: Caller, end: CancellationToken, connection: Option<CancellationToken>) {
        let mut streams = self.streams();
        if streams.all.len() >= streams.room {
            streams.all.retain(|stream| !stream.is_over());
            streams.room = (streams.all.len() * 2).max(ROOM_MIN);
        }
        streams.all.push(Stream { caller, end, connection });
    }

    /// Ends the streams of those who may not have them, and says how many these were.
    pub(crate) fn end_where(&self, may_not: impl Fn(&Caller) -> bool) -> usize {
        let mut ended = 0;
        self.streams().all.retain(|stream| {
            if stream.is_over() {
                return false;
            }
            if !may_not(&stream.caller) {
                return true;
            }
            stream.end.cancel();
            if let Some(connection) = &stream.connection {
                connection.cancel();
            }
            ended += 1;
            false
        });
        ended
    }
}

#[cfg(test)]
mod tests {
    use pumice_auth::Identity;

    use super::*;
    use crate::authn::Credential;

    fn caller(user: &str) -> Caller {
        let nobody: [&str; 0] = [];
        Caller { identity: Identity::new(user, nobody), by: None, credential: Credential::Certificate }
    }

    #[test]
    fn only_who_may_not_have_a_stream_loses_it() {
        let streams = LiveStreams::default();
        let tokens: Vec<CancellationToken> = (0..4).map(|_| CancellationToken::new()).collect();
        streams.begin(caller("alice"), tokens[0].clone(), Some(tokens[1].clone()));
        streams.begin(caller("bob"), tokens[2].clone(), Some(tokens[3].clone()));
        let of_alice = |caller: &Caller| caller.identity.user == "alice";
        assert_eq!(streams.end_where(of_alice), 1);
        assert_eq!(streams.end_where(of_alice), 0, "it is over");
        let cancelled: Vec<bool> = tokens.iter().map(CancellationToken::is_cancelled).collect();
        assert_eq!(cancelled, [true, true, false, false]);
    }

    #[test]
    fn what_is_over_takes_no_room() {
        let streams = LiveStreams::default();
        for _ in 0..10 * ROOM_MIN {
            let end = CancellationToken::new();
            streams.begin(caller("alice"), end.clone(), None);
            end.cancel();
        }
        assert!(streams.streams().all.len() <= ROOM_MIN);
    }
}
