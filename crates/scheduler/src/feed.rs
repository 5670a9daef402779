//! All watches as one stream. Kinds that not every API server has are empty where it has none.

use futures::stream::{BoxStream, SelectAll, StreamExt};
use kube::{Api, Client};
use pumice_cluster::{WatchScope, watch, watch_all, watch_optional};

use crate::intake::Input;

/// Starts every watch.
pub(crate) fn start(client: &Client) -> SelectAll<BoxStream<'static, Input>> {
    let all = WatchScope::default;
    let mut feed = SelectAll::new();
    feed.push(watch_all(client, all()).map(Input::Node).boxed());
    feed.push(watch_all(client, all()).map(Input::Pod).boxed());
    feed.push(watch_all(client, all()).map(Input::Group).boxed());
    feed.push(watch(Api::all(client.clone()), all()).map(Input::Queue).boxed());
    feed.push(watch_all(client, all()).map(Input::Job).boxed());
    feed.push(watch(Api::all(client.clone()), all()).map(Input::Priority).boxed());
    feed.push(watch(Api::all(client.clone()), all()).map(Input::Namespace).boxed());
    feed.push(watch_optional(Api::all(client.clone()), all()).map(Input::HyperNode).boxed());
    feed.push(watch_optional(Api::all(client.clone()), all()).map(Input::Numa).boxed());
    feed.push(watch_optional(Api::all(client.clone()), all()).map(Input::Shard).boxed());
    feed.push(watch_optional(Api::all(client.clone()), all()).map(Input::Reservation).boxed());
    feed.push(watch_optional(Api::all(client.clone()), all()).map(Input::Budget).boxed());
    feed.push(watch_optional(Api::all(client.clone()), all()).map(Input::Quota).boxed());
    claims(client, &mut feed);
    feed
}

/// What pods claim by name; an API server may lack any of these kinds.
fn claims(client: &Client, feed: &mut SelectAll<BoxStream<'static, Input>>) {
    let all = WatchScope::default;
    feed.push(watch_optional(Api::all(client.clone()), all()).map(Input::VolumeClaim).boxed());
    feed.push(watch_optional(Api::all(client.clone()), all()).map(Input::Volume).boxed());
    feed.push(watch_optional(Api::all(client.clone()), all()).map(Input::StorageClass).boxed());
    feed.push(watch_optional(Api::all(client.clone()), all()).map(Input::CsiNode).boxed());
    feed.push(watch_optional(Api::all(client.clone()), all()).map(Input::DeviceClaim).boxed());
    feed.push(watch_optional(Api::all(client.clone()), all()).map(Input::DeviceClass).boxed());
    feed.push(watch_optional(Api::all(client.clone()), all()).map(Input::DeviceSlice).boxed());
}
