//! All watches as one stream. Kinds that not every API server has are empty where it has none.

use futures::stream::{BoxStream, SelectAll, StreamExt};
use kube::{Api, Client};
use pumice_cluster::{WatchScope, watch, watch_optional};

use crate::intake::Input;

/// Starts every watch.
pub(crate) fn start(client: &Client) -> SelectAll<BoxStream<'static, Input>> {
    let all = WatchScope::default;
    let mut feed = SelectAll::new();
    feed.push(watch(Api::all(client.clone()), all()).map(Input::Node).boxed());
    feed.push(watch(Api::all(client.clone()), all()).map(Input::Pod).boxed());
    feed.push(watch(Api::all(client.clone()), all()).map(Input::Group).boxed());
    feed.push(watch(Api::all(client.clone()), all()).map(Input::Queue).boxed());
    feed.push(watch(Api::all(client.clone()), all()).map(Input::Job).boxed());
    feed.push(watch(Api::all(client.clone()), all()).map(Input::Priority).boxed());
    feed.push(watch(Api::all(client.clone()), all()).map(Input::Namespace).boxed());
    feed.push(watch_optional(Api::all(client.clone()), all()).map(Input::HyperNode).boxed());
    feed.push(watch_optional(Api::all(client.clone()), all()).map(Input::Shard).boxed());
    feed.push(watch_optional(Api::all(client.clone()), all()).map(Input::Budget).boxed());
    feed.push(watch_optional(Api::all(client.clone()), all()).map(Input::Quota).boxed());
    feed
}
