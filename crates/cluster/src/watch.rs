//! A watch as a stream of changes that never ends and never lies.
//!
//! Invariant: folding the changes from the start gives exactly the objects that the API server held
//! at some moment not long ago. A broken or expired watch shows up as another [`Change::Replace`].
//! Called by every component.

use std::borrow::Cow;
use std::fmt::Debug;

use futures::{Stream, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// What happened to the set of watched objects.
#[derive(Debug, Clone, PartialEq)]
pub enum Change<K> {
    /// These are all the objects there are: forget every other one.
    Replace(Vec<K>),
    /// This object was created or changed.
    Applied(K),
    /// This object is gone; the value is its last state.
    Deleted(K),
}

impl<K> Change<K> {
    /// The same change with every object mapped; lets one loop take streams of several kinds.
    pub fn map<T>(self, mut f: impl FnMut(K) -> T) -> Change<T> {
        match self {
            Change::Replace(all) => Change::Replace(all.into_iter().map(f).collect()),
            Change::Applied(object) => Change::Applied(f(object)),
            Change::Deleted(object) => Change::Deleted(f(object)),
        }
    }
}

/// Which objects to watch; empty means all.
#[derive(Debug, Clone, Default)]
pub struct WatchScope {
    /// Label selector as in a query string.
    pub labels: Option<String>,
    /// Field selector as in a query string.
    pub fields: Option<String>,
}

impl WatchScope {
    /// Only objects whose fields match, such as `spec.nodeName=n1`.
    pub fn fields(selector: impl Into<String>) -> Self {
        WatchScope { labels: None, fields: Some(selector.into()) }
    }

    /// Only objects whose labels match, such as `volcano.sh/job-name`.
    pub fn labels(selector: impl Into<String>) -> Self {
        WatchScope { labels: Some(selector.into()), fields: None }
    }
}

/// Watches `api`, restarting with backoff for as long as the stream is polled.
///
/// Failures are logged, never yielded: a component that can't reach the API server has nothing
/// better to do than to wait with the view it has. Cancel safe: dropping the stream ends the watch.
pub fn watch<K>(api: Api<K>, scope: WatchScope) -> impl Stream<Item = Change<K>> + Send
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut initial: Option<Vec<K>> = None;
    events(api, scope)
        .filter_map(move |event| std::future::ready(event.ok().and_then(|event| fold(&mut initial, event))))
}

/// As [`watch`], of all namespaces, for a kind of which there are many. The objects of a long list are not moved about
/// while it grows.
pub fn watch_all<K>(client: &Client, scope: WatchScope) -> impl Stream<Item = Change<K>> + Send + use<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    watch(Api::<Boxed<K>>::all(client.clone()), scope).map(|change| change.map(|object| *object.0))
}

/// An object on the heap: a pod has kilobytes, and a list that grows copies all of them, again and again.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
struct Boxed<K>(Box<K>);

impl<K: Resource> Resource for Boxed<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(kind: &K::DynamicType) -> Cow<'_, str> {
        K::kind(kind)
    }
    fn group(kind: &K::DynamicType) -> Cow<'_, str> {
        K::group(kind)
    }
    fn version(kind: &K::DynamicType) -> Cow<'_, str> {
        K::version(kind)
    }
    fn plural(kind: &K::DynamicType) -> Cow<'_, str> {
        K::plural(kind)
    }
    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}

/// Watches a kind that the API server may not have, or not show to us: that counts as an empty list, and is looked at
/// again, ever slower up to twice a minute. Otherwise as [`watch`].
pub fn watch_optional<K>(api: Api<K>, scope: WatchScope) -> impl Stream<Item = Change<K>> + Send
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    watch_where_served(api, scope).map(|change| change.unwrap_or_else(|| Change::Replace(Vec::new())))
}

/// As [`watch_optional`], for those who have to tell a kind that is not there, or not for us, from one of which there are no
/// objects: nothing says that it is not there, once until it is.
pub fn watch_where_served<K>(api: Api<K>, scope: WatchScope) -> impl Stream<Item = Option<Change<K>>> + Send
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut initial: Option<Vec<K>> = None;
    let mut is_absent = false;
    events(api, scope).filter_map(move |event| {
        std::future::ready(match event {
            Ok(event) => {
                let change = fold(&mut initial, event);
                is_absent &= change.is_none();
                change.map(Some)
            }
            Err(Missing::Yes) if !is_absent => {
                is_absent = true;
                initial = None;
                Some(None)
            }
            Err(_) => None,
        })
    })
}

/// Whether a watch failed because the kind is not there for us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    Yes,
    No,
}

/// Objects asked for at once in a list. A page costs the API server a look at all that are listed, so that few long ones
/// are cheaper than many short ones; some ten megabytes of pods.
const PAGE: u32 = 5_000;

fn events<K>(api: Api<K>, scope: WatchScope) -> impl Stream<Item = Result<watcher::Event<K>, Missing>> + Send
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let config = watcher::Config { label_selector: scope.labels, field_selector: scope.fields, ..Default::default() }
        .page_size(PAGE);
    let kind = std::any::type_name::<K>();
    watcher(api, config).default_backoff().map(move |event| {
        event.map_err(|error| match missing(&error) {
            Missing::Yes => {
                tracing::debug!(kind, error = %error, "this kind can't be listed, will be tried again");
                Missing::Yes
            }
            Missing::No => {
                tracing::warn!(kind, error = %error, "watch failed, will be restarted");
                Missing::No
            }
        })
    })
}

/// A list that says 404 is of a kind that is not served, 403 of one that is not for us.
fn missing(error: &watcher::Error) -> Missing {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => Missing::Yes,
        _ => Missing::No,
    }
}

/// Gathers an initial list into one change; everything else passes through.
fn fold<K>(initial: &mut Option<Vec<K>>, event: watcher::Event<K>) -> Option<Change<K>> {
    match event {
        watcher::Event::Init => {
            *initial = Some(Vec::new());
            None
        }
        watcher::Event::InitApply(object) => {
            initial.get_or_insert_default().push(object);
            None
        }
        watcher::Event::InitDone => Some(Change::Replace(initial.take().unwrap_or_default())),
        watcher::Event::Apply(object) => Some(Change::Applied(object)),
        watcher::Event::Delete(object) => Some(Change::Deleted(object)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_initial_list_becomes_one_replacement() {
        let mut initial = None;
        let events = [
            watcher::Event::Init,
            watcher::Event::InitApply(1),
            watcher::Event::InitApply(2),
            watcher::Event::InitDone,
            watcher::Event::Apply(3),
            watcher::Event::Delete(1),
        ];
        let changes: Vec<_> = events.into_iter().filter_map(|event| fold(&mut initial, event)).collect();
        assert_eq!(changes, [Change::Replace(vec![1, 2]), Change::Applied(3), Change::Deleted(1)]);
    }

    #[test]
    fn a_list_cut_short_is_forgotten_by_the_next_one() {
        let mut initial = None;
        let events = [
            watcher::Event::Init,
            watcher::Event::InitApply(1),
            watcher::Event::Init,
            watcher::Event::InitApply(2),
            watcher::Event::InitDone,
        ];
        let changes: Vec<_> = events.into_iter().filter_map(|event| fold(&mut initial, event)).collect();
        assert_eq!(changes, [Change::Replace(vec![2])]);
    }

    #[test]
    fn an_empty_cluster_is_a_replacement_too() {
        let mut initial: Option<Vec<u8>> = None;
        assert_eq!(fold(&mut initial, watcher::Event::InitDone), Some(Change::Replace(vec![])));
    }
}
