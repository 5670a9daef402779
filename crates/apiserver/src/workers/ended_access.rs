//! Ends the streams of those who have no access any more, as soon as that is stored.
//!
//! Invariant: a watch, a followed log, a program in a pod or a forwarded port lasts at most [`PAUSE`] longer than its user's
//! access: than his tenant's suspension, or his login. Nothing is looked at while no Tenant and no login changes. One task per
//! server.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::watch_trigger::WatchTrigger;
use crate::authn::ended_logins::{self, NAMESPACE, SECRETS};
use crate::authn::password_logins;
use crate::authn::suspensions::TENANTS;
use crate::storage::Storage;

/// Changes within this time are looked at together.
const PAUSE: Duration = Duration::from_millis(200);
/// How often the ends of logins are looked at that may be forgotten.
const FORGET_EVERY: Duration = Duration::from_secs(600);

/// Runs until `stop`.
pub(crate) async fn run(storage: Arc<Storage>, stop: CancellationToken) {
    let mut watches = WatchTrigger::default();
    loop {
        // Followed before anything is looked at, so that nothing is missed.
        let store = &storage.store;
        if !watches.follow_in(store, TENANTS, None) || !watches.follow_in(store, SECRETS, Some(NAMESPACE)) {
            return;
        }
        let logins = &storage.logins;
        let ended = logins.streams.end_where(|caller| logins.ended(store, caller).is_some());
        if ended > 0 {
            tracing::info!(ended, "streams were ended: their users have no access any more");
        }
        ended_logins::forget_old(store, storage.clock.now()).await;
        password_logins::forget_old(store, storage.clock.now()).await;
        if !watches.next_look(&stop, Some(FORGET_EVERY), PAUSE).await {
            return;
        }
    }
}
