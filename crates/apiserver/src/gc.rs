//! placeholder
use crate::server::State;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
pub(crate) async fn run(_state: Arc<State>, stop: CancellationToken) {
    stop.cancelled().await;
}
