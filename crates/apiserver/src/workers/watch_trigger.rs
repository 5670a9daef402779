//! A trigger from watches: waits for changes of some resources, for workers that look at everything again when something has happened.
//!
//! Invariant: a change after [`WatchTrigger::follow`] is told by the next [`WatchTrigger::changed`], together with those that came
//! with it; nothing is copied. Used by the tasks behind quotas, disruption budgets and volumes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::select_all;
use pumice_store::{Store, Watch};
use tokio_util::sync::CancellationToken;

/// Resources that are followed.
#[derive(Default)]
pub(crate) struct WatchTrigger(BTreeMap<String, Watch>);

impl WatchTrigger {
    /// Follows these, too. False where the store has closed.
    pub(crate) fn follow(&mut self, store: &Store, resources: &BTreeSet<String>) -> bool {
        resources.iter().all(|resource| self.follow_in(store, resource, None))
    }

    /// The same of one resource, in one namespace alone if it is named.
    pub(crate) fn follow_in(&mut self, store: &Store, resource: &str, namespace: Option<&str>) -> bool {
        if !self.0.contains_key(resource) {
            let Ok(watch) = store.watch(resource, namespace, None) else { return false };
            self.0.insert(resource.to_owned(), watch);
        }
        true
    }

    /// Ceases to follow all but these; what [`Self::follow`] has not begun is not begun here.
    pub(crate) fn keep(&mut self, resources: &BTreeSet<String>) {
        self.0.retain(|resource, _| resources.contains(resource));
    }

    /// Waits until it is time for the next look: for a change or until `again` is over, and then for a `pause`, in which more may
    /// come. False where `stop` came first.
    pub(crate) async fn next_look(
        &mut self,
        stop: &CancellationToken,
        again: Option<Duration>,
        pause: Duration,
    ) -> bool {
        let wait = async {
            match again {
                Some(time) => drop(tokio::time::timeout(time, self.changed()).await),
                None => self.changed().await,
            }
            tokio::time::sleep(pause).await;
        };
        tokio::select! {
            () = stop.cancelled() => false,
            () = wait => true,
        }
    }

    /// Waits for a change, and passes over those that came with it. Cancel safe.
    pub(crate) async fn changed(&mut self) {
        let each = self.0.iter_mut().map(|(resource, watch)| {
            async move {
                let mut ended = watch.next().await.is_err();
                while !ended {
                    match watch.try_next() {
                        Ok(Some(_)) => {}
                        Ok(None) => break,
                        Err(_) => ended = true,
                    }
                }
                if ended { Some(resource.clone()) } else { None }
            }
            .boxed()
        });
        let (ended, _, others) = select_all(each).await;
        drop(others);
        if let Some(ended) = ended {
            // It fell behind, or the store has closed: followed anew, or not, at the next look.
            self.0.remove(&ended);
        }
    }
}
