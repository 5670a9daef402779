//! A watch as a stream of changes that never ends and never lies.
//!
//! Invariant: folding the changes from the start gives exactly the objects that the API server held
//! at some moment not long ago. A broken or expired watch shows up as another [`Change::Replace`].
//! Called by every component.

use std::borrow::Cow;

use futures::stream::{self, Stream, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client, Resource};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::follow::{Collection, Follower, Objects, PageEnd, Step, WatchScope};

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

/// Watches `api`, restarting with backoff for as long as the stream is polled.
///
/// Failures are logged, never yielded: a component that can't reach the API server has nothing
/// better to do than to wait with the view it has. Cancel safe: dropping the stream ends the watch.
pub fn watch<K>(api: Api<K>, scope: WatchScope) -> impl Stream<Item = Change<K>> + Send
where
    K: Resource + DeserializeOwned + Send + 'static,
{
    watch_where_served(api, scope).filter_map(std::future::ready)
}

/// As [`watch`], of all namespaces, for a kind of which there are many. The objects of a long list are not moved about
/// while it grows.
pub fn watch_all<K>(client: &Client, scope: WatchScope) -> impl Stream<Item = Change<K>> + Send + use<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Send + 'static,
{
    watch(Api::<Boxed<K>>::all(client.clone()), scope).map(|change| change.map(|object| *object.0))
}

/// An object on the heap: a pod has kilobytes, and a list that grows copies all of them, again and again.
#[derive(Deserialize)]
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
    K: Resource + DeserializeOwned + Send + 'static,
{
    watch_where_served(api, scope).map(|change| change.unwrap_or_else(|| Change::Replace(Vec::new())))
}

/// As [`watch_optional`], for those who have to tell a kind that is not there, or not for us, from one of which there are no
/// objects: nothing says that it is not there, once until it is.
pub fn watch_where_served<K>(api: Api<K>, scope: WatchScope) -> impl Stream<Item = Option<Change<K>>> + Send
where
    K: Resource + DeserializeOwned + Send + 'static,
{
    let watching = Watching { follower: follow(api, scope, PAGE, None), read: Read(Vec::new()), is_absent: false };
    stream::unfold(watching, |mut watching| async move {
        loop {
            let step = watching.follower.next(&mut watching.read).await;
            if let Some(change) = fold(&mut watching.read.0, &mut watching.is_absent, &step) {
                return Some((change, watching));
            }
        }
    })
}

struct Watching<K> {
    follower: Follower,
    read: Read<K>,
    is_absent: bool,
}

/// Objects asked for at once in a list. A page costs the API server a look at all that are listed, so that few long ones
/// are cheaper than many short ones; some ten megabytes of pods.
const PAGE: u32 = 5_000;

/// Gathers a list into one change; everything else passes through.
fn fold<K>(read: &mut Vec<K>, is_absent: &mut bool, step: &Step) -> Option<Option<Change<K>>> {
    match step {
        Step::ListBegins => read.clear(),
        Step::Listed | Step::Quiet { .. } => {}
        Step::ListEnds { .. } => {
            *is_absent = false;
            return Some(Some(Change::Replace(std::mem::take(read))));
        }
        Step::Applied => return read.pop().map(|object| Some(Change::Applied(object))),
        Step::Deleted => return read.pop().map(|object| Some(Change::Deleted(object))),
        Step::Missing if *is_absent => {}
        Step::Missing => {
            *is_absent = true;
            return Some(None);
        }
    }
    None
}

/// Follows the objects of `api`, from `version` on if there is one.
pub(crate) fn follow<K: Resource>(api: Api<K>, scope: WatchScope, page: u32, version: Option<String>) -> Follower {
    let collection = Collection {
        path: api.resource_url().to_owned(),
        client: api.into_client(),
        metadata_only: K::metadata_api(),
        scope,
        page,
        kind: std::any::type_name::<K>(),
    };
    Follower::new(collection, version)
}

/// The objects that were read and are not yet told of.
pub(crate) struct Read<K>(pub Vec<K>);

impl<K: Resource + DeserializeOwned + Send> Objects for Read<K> {
    fn read_page(&mut self, text: &str) -> serde_json::Result<PageEnd> {
        #[derive(Deserialize)]
        #[serde(bound = "K: DeserializeOwned")]
        struct Page<K> {
            #[serde(default)]
            metadata: PageEnd,
            items: Option<Vec<K>>,
        }
        let page: Page<K> = serde_json::from_str(text)?;
        match page.items {
            Some(items) if self.0.is_empty() => self.0 = items,
            Some(items) => self.0.extend(items),
            None => {}
        }
        Ok(page.metadata)
    }

    fn read_one(&mut self, text: &str) -> serde_json::Result<String> {
        let object: K = serde_json::from_str(text)?;
        let version = object.meta().resource_version.clone().unwrap_or_default();
        self.0.push(object);
        Ok(version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(steps: Vec<(Step, Vec<u8>)>) -> Vec<Option<Change<u8>>> {
        let (mut read, mut is_absent) = (Vec::new(), false);
        let fold = |(step, objects): (Step, Vec<u8>)| {
            read.extend(objects);
            fold(&mut read, &mut is_absent, &step)
        };
        steps.into_iter().filter_map(fold).collect()
    }

    fn end() -> Step {
        Step::ListEnds { version: "7".into() }
    }

    #[test]
    fn a_list_becomes_one_replacement() {
        let steps = vec![
            (Step::ListBegins, vec![]),
            (Step::Listed, vec![1]),
            (Step::Listed, vec![2]),
            (end(), vec![]),
            (Step::Applied, vec![3]),
            (Step::Quiet { version: "9".into() }, vec![]),
            (Step::Deleted, vec![1]),
        ];
        let expected = [Change::Replace(vec![1, 2]), Change::Applied(3), Change::Deleted(1)].map(Some);
        assert_eq!(changes(steps), expected);
    }

    #[test]
    fn a_list_cut_short_is_forgotten_by_the_next_one() {
        let steps = vec![
            (Step::ListBegins, vec![]),
            (Step::Listed, vec![1]),
            (Step::ListBegins, vec![]),
            (Step::Listed, vec![2]),
            (end(), vec![]),
        ];
        assert_eq!(changes(steps), [Some(Change::Replace(vec![2]))]);
    }

    #[test]
    fn an_empty_cluster_is_a_replacement_too() {
        assert_eq!(changes(vec![(Step::ListBegins, vec![]), (end(), vec![])]), [Some(Change::Replace(vec![]))]);
    }

    #[test]
    fn a_kind_that_is_not_served_is_told_of_once_until_it_is() {
        let missing = || (Step::Missing, vec![]);
        let steps = vec![missing(), missing(), (Step::ListBegins, vec![]), (end(), vec![]), missing()];
        assert_eq!(changes(steps), [None, Some(Change::Replace(vec![])), None]);
    }
}
