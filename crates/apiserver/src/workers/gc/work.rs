//! What the collector does about one object. Every step is safe to repeat.

use std::collections::HashSet;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream;
use pumice_objects::meta::{self, OwnerReference};
use pumice_objects::status::{GroupResource, Status};
use pumice_store::{ApplyError, Change, Expect, Key, Object};
use serde_json::{Value, json};

use super::Item;
use super::index::Facts;
use crate::kinds::crd::strategy::CLEANUP;
use crate::kinds::{DEFINITIONS, Descriptor};
use crate::storage::{DeleteOptions, FOREGROUND, ORPHAN, Propagation, Storage, apply_status, ends_deletion};
use crate::stored::{draft, parse, parse_metadata};
use crate::strategies::namespace::FINALIZER;

/// How often an edit is tried against a changing object.
const ATTEMPTS_MAX: usize = 16;
/// Most owners above an object that are looked at.
const ANCESTORS_MAX: usize = 256;
/// Objects of a namespace deleted at a time.
const DELETES_MAX: usize = 32;

/// Whether an item needs another look without an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    Again,
}

/// Does what an item asks for. `dependents` are those that the index knows.
pub(super) async fn run(storage: &Arc<Storage>, item: &Item, dependents: Vec<Key>) -> Outcome {
    let result = match item {
        Item::Dependent(key) => dependent(storage, key, !dependents.is_empty()).await,
        Item::Dying(key) => dying(storage, key, dependents).await,
        Item::Namespace(_) | Item::Definition(_) => empty(storage, item).await,
    };
    match result {
        Ok(()) => Outcome::Done,
        Err(status) if status.code == 404 => Outcome::Done,
        Err(status) => {
            tracing::debug!(?item, error = %status, "the collector tries again");
            Outcome::Again
        }
    }
}

fn descriptor(storage: &Storage, resource: &str) -> Option<Arc<Descriptor>> {
    storage.registry.load(&storage.store).stored().get(resource).cloned()
}

/// How an owner stands.
enum OwnerState {
    /// It is there, or nobody can tell.
    Solid,
    /// It goes, and waits for its dependents.
    Waiting,
    /// It is not there.
    Gone,
}

fn owner_state(storage: &Storage, namespace: &str, owner: &OwnerReference) -> OwnerState {
    let registry = storage.registry.load(&storage.store);
    let Some(descriptor) = registry.find_kind(&owner.api_version, &owner.kind) else { return OwnerState::Solid };
    if descriptor.namespaced && namespace.is_empty() {
        return OwnerState::Solid;
    }
    match find_owner(storage, descriptor, namespace, owner) {
        None => OwnerState::Gone,
        Some(found) if waits(&found) => OwnerState::Waiting,
        Some(_) => OwnerState::Solid,
    }
}

fn find_owner(storage: &Storage, descriptor: &Descriptor, namespace: &str, owner: &OwnerReference) -> Option<Value> {
    let namespace = if descriptor.namespaced { namespace } else { "" };
    let found = parse_metadata(&*storage.store.find(&descriptor.storage, namespace, &owner.name)?);
    (meta::uid(&found) == Some(owner.uid.as_str())).then_some(found)
}

/// Whether an object stays until its dependents are gone.
fn waits(object: &Value) -> bool {
    meta::deletion_timestamp(object).is_some() && meta::finalizers(object).any(|one| one == FOREGROUND)
}

/// Uids of the owners of an object, of their owners, and so on.
fn ancestors(storage: &Storage, key: &Key, object: &Value) -> HashSet<String> {
    let registry = storage.registry.load(&storage.store);
    let mut found = HashSet::new();
    let mut next = meta::owner_references(object);
    while let Some(owner) = next.pop() {
        if found.len() >= ANCESTORS_MAX || !found.insert(owner.uid.clone()) {
            continue;
        }
        let Some(descriptor) = registry.find_kind(&owner.api_version, &owner.kind) else { continue };
        if let Some(above) = find_owner(storage, descriptor, &key.namespace, &owner) {
            next.extend(meta::owner_references(&above));
        }
    }
    found
}

/// Looks at an object until a look stands that nothing has overtaken.
async fn dependent(storage: &Arc<Storage>, key: &Key, has_dependents: bool) -> Result<(), Status> {
    for _ in 0..ATTEMPTS_MAX {
        let Some(stored) = storage.store.get(key) else { return Ok(()) };
        match settle(storage, &stored, has_dependents).await {
            Err(status) if status.code == 409 => {}
            settled => return settled,
        }
    }
    Err(Status::conflict_modified(GroupResource { group: "", resource: &key.resource }, &key.name))
}

/// Deletes an object whose owners are gone; cuts it loose from those that are while others stay.
///
/// Only this version of it (409 otherwise): between the look at the object and the look at its owners, an owner may have
/// cut it loose and gone, and a deletion by name would take what was to be kept.
async fn settle(storage: &Arc<Storage>, stored: &Object, has_dependents: bool) -> Result<(), Status> {
    let key = &stored.key;
    let object = parse_metadata(stored);
    let owners = meta::owner_references(&object);
    if owners.is_empty() || object["metadata"]["deletionTimestamp"].is_string() {
        return Ok(());
    }
    let (mut solid, mut waiting, mut loose) = (0, 0, Vec::new());
    for owner in &owners {
        match owner_state(storage, &key.namespace, owner) {
            OwnerState::Solid => solid += 1,
            OwnerState::Waiting => {
                waiting += 1;
                loose.push(owner.uid.clone());
            }
            OwnerState::Gone => loose.push(owner.uid.clone()),
        }
    }
    if loose.is_empty() {
        return Ok(());
    }
    if solid > 0 {
        return edit(storage, key, |object| cut_loose(object, &loose)).await;
    }
    let Some(descriptor) = descriptor(storage, &key.resource) else { return Ok(()) };
    let foreground = waiting > 0 && has_dependents;
    let deletion = DeleteOptions {
        propagation: foreground.then_some(Propagation::Foreground),
        revision: Some(stored.revision),
        ..DeleteOptions::default()
    };
    storage.delete(&descriptor, &key.namespace, &key.name, &deletion).await.map(|_| ())
}

fn cut_loose(object: &mut Value, uids: &[String]) {
    let kept: Vec<OwnerReference> =
        meta::owner_references(object).into_iter().filter(|owner| !uids.contains(&owner.uid)).collect();
    meta::set_owner_references(object, &kept);
}

/// Serves the `orphan` and `foregroundDeletion` finalizers.
async fn dying(storage: &Arc<Storage>, key: &Key, dependents: Vec<Key>) -> Result<(), Status> {
    let Some(stored) = storage.store.get(key) else { return Ok(()) };
    let owner = parse(&stored);
    let uid = meta::uid(&owner).unwrap_or_default().to_owned();
    if meta::finalizers(&owner).any(|one| one == ORPHAN) {
        for dependent in owned_by(storage, &uid) {
            match edit(storage, &dependent, |object| cut_loose(object, std::slice::from_ref(&uid))).await {
                Err(status) if status.code != 404 => return Err(status),
                _ => {}
            }
        }
        return edit(storage, key, |object| drop_finalizer(object, ORPHAN)).await;
    }
    let ancestors = ancestors(storage, key, &owner);
    let blocks = |dependent: &Key| {
        let Some(stored) = storage.store.get(dependent) else { return false };
        let object = parse(&stored);
        // Where each waits for the other, as upstream, neither is held.
        let circle = waits(&object) && meta::uid(&object).is_some_and(|uid| ancestors.contains(uid));
        !circle && meta::owner_references(&object).iter().any(|one| one.uid == uid && one.block_owner_deletion)
    };
    // The deletion of the last blocker brings this item back.
    if dependents.iter().any(blocks) {
        return Ok(());
    }
    edit(storage, key, |object| drop_finalizer(object, FOREGROUND)).await
}

/// Every object that names this owner, by looking at all of them: an orphan that is overlooked would be deleted.
fn owned_by(storage: &Storage, uid: &str) -> Vec<Key> {
    let resources = storage.store.resources();
    let objects = resources.iter().flat_map(|resource| storage.store.list(resource, None).items);
    objects
        .filter(|object| Facts::of(object).is_some_and(|facts| facts.owners.iter().any(|owner| owner == uid)))
        .map(|object| object.key.clone())
        .collect()
}

fn drop_finalizer(object: &mut Value, finalizer: &str) {
    let kept: Vec<String> = meta::finalizers(object).filter(|one| *one != finalizer).map(str::to_owned).collect();
    meta::set_finalizers(object, kept.iter().map(String::as_str));
}

/// What belongs to a namespace or a definition: store resource and namespace of each collection.
fn collections(storage: &Storage, item: &Item) -> Vec<(Arc<Descriptor>, Option<Arc<str>>)> {
    let stored = storage.registry.load(&storage.store).stored();
    match item {
        Item::Namespace(name) => stored
            .into_values()
            .filter(|descriptor| descriptor.namespaced)
            .map(|descriptor| (descriptor, Some(Arc::clone(name))))
            .collect(),
        Item::Definition(resource) => stored.get(resource).map(|one| (Arc::clone(one), None)).into_iter().collect(),
        Item::Dependent(_) | Item::Dying(_) => Vec::new(),
    }
}

/// Whether nothing is left in a namespace or of a definition.
pub(super) fn is_empty(storage: &Storage, item: &Item) -> bool {
    collections(storage, item)
        .iter()
        .all(|(descriptor, namespace)| storage.store.count(&descriptor.storage, namespace.as_deref()) == 0)
}

/// Deletes everything in a container, and lets the container go once nothing is left.
async fn empty(storage: &Arc<Storage>, item: &Item) -> Result<(), Status> {
    for (descriptor, namespace) in collections(storage, item) {
        let objects = storage.store.list(&descriptor.storage, namespace.as_deref()).items;
        let results: Vec<Result<(), Status>> = stream::iter(objects)
            .map(|object| {
                let descriptor = Arc::clone(&descriptor);
                async move {
                    let deletion = DeleteOptions::default();
                    storage.delete(&descriptor, &object.key.namespace, &object.key.name, &deletion).await.map(|_| ())
                }
            })
            .buffer_unordered(DELETES_MAX)
            .collect()
            .await;
        if let Some(status) = results.into_iter().filter_map(Result::err).find(|status| status.code != 404) {
            return Err(status);
        }
    }
    if !is_empty(storage, item) {
        return Ok(());
    }
    match item {
        Item::Namespace(name) => {
            edit(storage, &Key::new("namespaces", "", Arc::clone(name)), |object| {
                let kept: Vec<Value> = object["spec"]["finalizers"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter(|one| *one != FINALIZER)
                    .cloned()
                    .collect();
                object["spec"]["finalizers"] = json!(kept);
            })
            .await
        }
        Item::Definition(resource) => {
            let (group, plural) = resource.split_once('/').unwrap_or(("", resource));
            let key = Key::new(DEFINITIONS, "", format!("{plural}.{group}"));
            edit(storage, &key, |object| drop_finalizer(object, CLEANUP)).await
        }
        Item::Dependent(_) | Item::Dying(_) => Ok(()),
    }
}

/// Changes a stored object, and removes it if that was the last thing that held it.
async fn edit(storage: &Storage, key: &Key, change: impl Fn(&mut Value)) -> Result<(), Status> {
    let resource = GroupResource { group: "", resource: &key.resource };
    for _ in 0..ATTEMPTS_MAX {
        let Some(stored) = storage.store.get(key) else { return Ok(()) };
        let old = parse(&stored);
        let mut new = old.clone();
        change(&mut new);
        let goes = ends_deletion(&new);
        if new == old && !goes {
            return Ok(());
        }
        let (key, draft, expect) = (key.clone(), draft(&new), Expect::Revision(stored.revision));
        let change = if goes { Change::Delete { key, draft, expect } } else { Change::Put { key, draft, expect } };
        match storage.commit(change).await {
            Ok(_) | Err(ApplyError::NotFound(_)) => return Ok(()),
            Err(ApplyError::Conflict(_)) => {}
            Err(error) => return Err(apply_status(resource, &error)),
        }
    }
    Err(Status::conflict_modified(resource, &key.name))
}

#[cfg(test)]
mod tests {
    use pumice_auth::{Policy, built_in};
    use pumice_store::{Options, Store};

    use super::*;
    use crate::server::ApiServer;

    fn map(name: &str, owners: &Value) -> (Key, Value) {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "namespace": "default", "name": name, "uid": format!("uid-of-{name}"), "ownerReferences": owners,
        }});
        (Key::new("configmaps", "default", name), object)
    }

    #[tokio::test]
    async fn what_was_cut_loose_after_the_look_stays() {
        let store = Store::in_memory(Options::default()).expect("store");
        let server = ApiServer::builder(store, Policy::new(built_in())).build().await.expect("server");
        server.stop().await;
        let storage = &server.state.storage;
        let owners = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "uid-of-owner"}]);
        let (key, child) = map("child", &owners);
        let change = Change::Put { key: key.clone(), draft: draft(&child), expect: Expect::Absent };
        let seen = storage.commit(change).await.expect("child");
        // Its owner orphans it and goes, before anybody looks for that owner.
        edit(storage, &key, |object| cut_loose(object, &["uid-of-owner".to_owned()])).await.expect("edit");
        let overtaken = settle(storage, &seen, false).await.expect_err("an old look must not stand");
        assert_eq!(overtaken.code, 409);
        dependent(storage, &key, false).await.expect("a new look");
        let kept = storage.store.get(&key).expect("it is kept");
        // The same without the race: nobody owns what names an owner that is not there.
        let change = Change::Put { key: key.clone(), draft: draft(&child), expect: Expect::Revision(kept.revision) };
        storage.commit(change).await.expect("owned again");
        dependent(storage, &key, false).await.expect("garbage");
        assert!(storage.store.get(&key).is_none());
    }
}
