//! All watches as one stream. Kinds that not every API server has are empty where it has none.

use futures::stream::{BoxStream, SelectAll, StreamExt};
use kube::{Api, Client};
use pumice_cluster::{WatchScope, watch, watch_all, watch_optional};

use crate::watch_to_deltas::WatchedChange;

/// Starts a watch of every kind that the scheduler goes by, as one stream.
pub(crate) fn start(client: &Client) -> SelectAll<BoxStream<'static, WatchedChange>> {
    let all = WatchScope::default;
    let mut feed = SelectAll::new();
    feed.push(watch_all(client, all()).map(WatchedChange::Node).boxed());
    feed.push(watch_all(client, all()).map(WatchedChange::Pod).boxed());
    feed.push(watch_all(client, all()).map(WatchedChange::Group).boxed());
    feed.push(watch(Api::all(client.clone()), all()).map(WatchedChange::Queue).boxed());
    feed.push(watch_all(client, all()).map(WatchedChange::Job).boxed());
    feed.push(watch(Api::all(client.clone()), all()).map(WatchedChange::Priority).boxed());
    feed.push(watch(Api::all(client.clone()), all()).map(WatchedChange::Namespace).boxed());
    feed.push(watch_optional(Api::all(client.clone()), all()).map(WatchedChange::HyperNode).boxed());
    feed.push(watch_optional(Api::all(client.clone()), all()).map(WatchedChange::Numa).boxed());
    feed.push(watch_optional(Api::all(client.clone()), all()).map(WatchedChange::Shard).boxed());
    feed.push(watch_optional(Api::all(client.clone()), all()).map(WatchedChange::Reservation).boxed());
    feed.push(watch_optional(Api::all(client.clone()), all()).map(WatchedChange::Budget).boxed());
    feed.push(watch_optional(Api::all(client.clone()), all()).map(WatchedChange::Quota).boxed());
    claims(client, &mut feed);
    feed
}

/// What pods claim by name; an API server may lack any of these kinds.
fn claims(client: &Client, feed: &mut SelectAll<BoxStream<'static, WatchedChange>>) {
    let all = WatchScope::default;
    feed.push(watch_optional(Api::all(client.clone()), all()).map(WatchedChange::VolumeClaim).boxed());
    feed.push(watch_optional(Api::all(client.clone()), all()).map(WatchedChange::Volume).boxed());
    feed.push(watch_optional(Api::all(client.clone()), all()).map(WatchedChange::StorageClass).boxed());
    feed.push(watch_optional(Api::all(client.clone()), all()).map(WatchedChange::CsiNode).boxed());
    feed.push(watch_optional(Api::all(client.clone()), all()).map(WatchedChange::DeviceClaim).boxed());
    feed.push(watch_optional(Api::all(client.clone()), all()).map(WatchedChange::DeviceClass).boxed());
    feed.push(watch_optional(Api::all(client.clone()), all()).map(WatchedChange::DeviceSlice).boxed());
}
