//! What the rules look at beside the object itself.

use pumice_api::names::ROOT_QUEUE;
use pumice_api::scheduling::Queue;
use serde_json::{Map, Value};

/// Other objects, as they are now. The rules only read.
pub trait View {
    /// The queue of that name.
    fn queue(&self, name: &str) -> Option<Queue>;
    /// Every queue, in no order that means anything.
    fn queues(&self) -> Vec<Queue>;
    /// An annotation of a namespace.
    fn namespace_annotation(&self, namespace: &str, key: &str) -> Option<String>;
}

/// The name of a queue; empty where it has none yet.
pub(crate) fn name_of(queue: &Queue) -> &str {
    queue.metadata.name.as_deref().unwrap_or_default()
}

/// The parent of a queue. Only `root` has none.
pub(crate) fn parent_of(queue: &Queue) -> Option<&str> {
    match (name_of(queue), queue.spec.parent.as_str()) {
        (ROOT_QUEUE, _) => None,
        (_, "") => Some(ROOT_QUEUE),
        (_, parent) => Some(parent),
    }
}

/// The queues right below `parent`.
pub(crate) fn children<'a>(queues: &'a [Queue], parent: &'a str) -> impl Iterator<Item = &'a Queue> {
    queues.iter().filter(move |queue| parent_of(queue) == Some(parent))
}

/// The annotations of an object, if it has any.
pub(crate) fn annotations(pod: &Value) -> Option<&Map<String, Value>> {
    pod.get("metadata")?.get("annotations")?.as_object()
}
