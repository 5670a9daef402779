//! How long jobs ran before this scheduler began, as somebody knows who keeps it.
//!
//! Invariant: it is asked when a World begins, beside the loop, which never waits for the answer; the answer goes to the World
//! in portions, as deltas like any other, so that a recording has them. Run by the loop.

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt as _};
use pumice_engine::Delta;

/// Kinds of runs told to the World at once.
const PORTION: usize = 512;

/// The last runs of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastRuns {
    pub namespace: String,
    /// The name of their jobs without what differs from run to run.
    pub profile: String,
    /// How long each job ran, in milliseconds, the oldest first.
    pub runs_ms: Vec<i64>,
}

/// Asks for the last runs. Whoever answers decides how long it makes sense to wait.
pub type AskRuns = Arc<dyn Fn() -> BoxFuture<'static, Vec<PastRuns>> + Send + Sync>;

/// The answer as portions of deltas, then nothing for ever.
pub(crate) fn portions(ask: Option<&AskRuns>) -> BoxStream<'static, Vec<Delta>> {
    let Some(ask) = ask else { return stream::pending().boxed() };
    let delta = |PastRuns { namespace, profile, runs_ms }| Delta::RunsLearned { namespace, profile, runs_ms };
    let answered = stream::once(ask()).flat_map(move |runs| stream::iter(runs.into_iter().map(delta)).chunks(PORTION));
    answered.chain(stream::pending()).boxed()
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn all_that_was_answered_comes_in_portions_and_then_nothing() {
        let run = |n: usize| PastRuns { namespace: "ns".into(), profile: format!("p{n}"), runs_ms: vec![n as i64] };
        let all: Vec<PastRuns> = (0..PORTION + 1).map(run).collect();
        let ask: AskRuns = Arc::new(move || {
            let all = all.clone();
            async move { all }.boxed()
        });
        for _ in 0..2 {
            let mut told = portions(Some(&ask));
            assert_eq!(told.next().await.map(|portion| portion.len()), Some(PORTION));
            let last = Delta::RunsLearned {
                namespace: "ns".into(),
                profile: format!("p{PORTION}"),
                runs_ms: vec![PORTION as i64],
            };
            assert_eq!(told.next().await, Some(vec![last]));
            assert_eq!(told.next().now_or_never(), None);
        }
        assert_eq!(portions(None).next().now_or_never(), None);
    }
}
