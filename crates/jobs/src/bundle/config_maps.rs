//! ConfigMaps as a place, for what is small enough to be kept by the API.
//!
//! One ConfigMap, the *anchor*, owns all others of a bundle, and the Job owns the anchor: so a bundle can be there before
//! its Job, becomes the Job's with one request, and is collected with it. ConfigMaps and not Secrets: a service account that
//! may create Secrets could have the token of another one filled into one.
//!
//! Invariant: every object is below a megabyte and immutable; what one [`ConfigMaps`] creates stays within its bound.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt, ready};
use futures::stream::{self, StreamExt, TryStreamExt};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use pumice_api::names::BUNDLE;
use serde_json::{Value, json};

use super::store::{EntryName, Made, Memory, Name, Store, StoreError};
use crate::Connection;
use crate::json::text_at;
use crate::names;
use crate::platform::call::{self, CallError, FailureClass};
use crate::platform::watch::BACKOFF;

/// Most bytes of a bundle that is kept by the API.
pub const BUNDLE_BYTES_MAX: u64 = 64 << 20;
/// Most bytes of the results of all shards together.
pub const RESULTS_BYTES_MAX: u64 = 256 << 20;
/// Most shards of a run whose results are kept by the API: each has an object at least.
pub const SHARDS_MAX: u32 = 10_000;
/// How often a request is made that gets no answer; the pauses between come to 11 s.
const TRIES_MAX: u32 = 9;
/// ConfigMaps that are being written at a time.
const WRITES_MAX: usize = 8;
/// How the kinds of [`ConfigMaps::rights`] are served.
const PLURALS: [&str; 3] = ["serviceaccounts", "roles", "rolebindings"];
/// The key in a ConfigMap's `binaryData`.
const CONTENT: &str = "content";

/// The ConfigMaps of one bundle and of the results of its runs.
pub struct ConfigMaps {
    connection: Connection,
    namespace: String,
    anchor: String,
    uid: String,
    bytes_max: u64,
    bytes: AtomicU64,
}

impl ConfigMaps {
    /// Makes an anchor of this name, a DNS label that no other bundle has, in the connection's namespace, for up to
    /// [`BUNDLE_BYTES_MAX`].
    pub async fn make(connection: &Connection, name: &str) -> Result<Self, StoreError> {
        names::check_label("bundle", name)?;
        let namespace = connection.namespace().to_owned();
        let object = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": namespace, "labels": {BUNDLE: name}},
            "immutable": true,
            "data": {"format": "1"},
        });
        let made = call::create(connection, &path(&namespace), &object, &format!("create bundle {name}")).await;
        Self::of_anchor(connection, &namespace, name, BUNDLE_BYTES_MAX, &made?)
    }

    /// The bundle of this name. What is created through this is at most `bytes_max`; see [`shard_bytes_max`].
    pub async fn open(
        connection: &Connection,
        namespace: &str,
        name: &str,
        bytes_max: u64,
    ) -> Result<Self, StoreError> {
        names::check_label("namespace", namespace)?;
        names::check_label("bundle", name)?;
        let doing = format!("read bundle {name}");
        let path = format!("{}/{name}", path(namespace));
        let anchor = persist(|| call::get(connection, &path, &doing)).await?;
        Self::of_anchor(connection, namespace, name, bytes_max, &anchor)
    }

    fn of_anchor(
        connection: &Connection,
        namespace: &str,
        name: &str,
        bytes_max: u64,
        anchor: &Value,
    ) -> Result<Self, StoreError> {
        let labelled = anchor.pointer("/metadata/labels").and_then(|labels| labels.get(BUNDLE));
        if labelled.and_then(Value::as_str) != Some(name) {
            return Err(StoreError::Foreign { namespace: namespace.to_owned(), name: name.to_owned() });
        }
        Ok(ConfigMaps {
            connection: connection.clone(),
            namespace: namespace.to_owned(),
            anchor: name.to_owned(),
            uid: text_at(anchor, "/metadata/uid").to_owned(),
            bytes_max,
            bytes: AtomicU64::new(0),
        })
    }

    /// Gives the bundle and all results to an owner, the Job as the server has it: they go when it goes.
    pub async fn adopt(&self, owner: &Value) -> Result<(), StoreError> {
        let reference = json!({
            "apiVersion": text_at(owner, "/apiVersion"),
            "kind": text_at(owner, "/kind"),
            "name": text_at(owner, "/metadata/name"),
            "uid": text_at(owner, "/metadata/uid"),
        });
        let patch = json!({"metadata": {"ownerReferences": [reference]}});
        let (path, doing) = (self.path_of(&self.anchor), format!("give bundle {} to its job", self.anchor));
        persist(|| call::merge(&self.connection, &path, &patch, &doing)).await?;
        Ok(())
    }

    /// Deletes the bundle and all results, in the background: for what never got an owner.
    pub async fn discard(&self) -> Result<(), StoreError> {
        let (path, doing) = (self.path_of(&self.anchor), format!("delete bundle {}", self.anchor));
        match persist(|| call::delete(&self.connection, &path, &doing)).await {
            Err(error) if error.class() != FailureClass::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Stores what was packed in memory, several objects at a time.
    pub async fn fill(&self, content: &Memory) -> Result<(), StoreError> {
        let writes = stream::iter(content.objects()).map(|(name, bytes)| self.write(name, bytes));
        writes.buffer_unordered(WRITES_MAX).try_for_each(|_| ready(Ok(()))).await
    }

    /// Gives pods of the service account of the bundle's name their [`rights`](Self::rights).
    pub async fn grant(&self) -> Result<(), StoreError> {
        for (plural, object) in PLURALS.into_iter().zip(self.rights()) {
            let path =
                format!("{}/namespaces/{}/{plural}", call::root_path(text_at(&object, "/apiVersion")), self.namespace);
            let doing = format!("create {} {}", text_at(&object, "/kind"), self.anchor);
            match persist(|| call::create(&self.connection, &path, &object, &doing)).await {
                // Nobody else has the name: the answer to an earlier try was lost.
                Err(error) if error.class() != FailureClass::Conflict => {
                    return Err(match error.class() {
                        // A server without the kinds has no rights to give.
                        FailureClass::Denied | FailureClass::NotFound => {
                            StoreError::Rights { namespace: self.namespace.clone(), source: error }
                        }
                        _ => error.into(),
                    });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// What a pod needs to read the bundle and to record results: a service account of the bundle's name, for its
    /// `serviceAccountName`, with a role of its own. All three go with the bundle.
    ///
    /// The role has `get` and `create` on the namespace's ConfigMaps and nothing else. It can't be narrowed to names, since
    /// those of results are not known before; but it allows no list, change or deletion, so that other ConfigMaps can be read
    /// by a pod only if it knows their names, and none can be harmed.
    pub fn rights(&self) -> [Value; 3] {
        let api = "rbac.authorization.k8s.io";
        let name = &self.anchor;
        let metadata = json!({
            "name": name,
            "namespace": self.namespace,
            "labels": {BUNDLE: name},
            "ownerReferences": [self.reference()],
        });
        [
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
            json!({
                "apiVersion": format!("{api}/v1"),
                "kind": "Role",
                "metadata": metadata,
                "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create"]}],
            }),
            json!({
                "apiVersion": format!("{api}/v1"),
                "kind": "RoleBinding",
                "metadata": metadata,
                "roleRef": {"apiGroup": api, "kind": "Role", "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": self.namespace}],
            }),
        ]
    }

    fn reference(&self) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": self.anchor, "uid": self.uid})
    }

    fn path_of(&self, name: &str) -> String {
        format!("{}/{name}", path(&self.namespace))
    }

    /// The ConfigMap of an object. Labels have no dots, so no two bundles and runs meet in one name.
    fn object_name(&self, name: &Name) -> String {
        let anchor = &self.anchor;
        match name {
            Name::Chunk(id) => format!("{anchor}.{id}"),
            Name::Entry(EntryName { run, shard, number }) => format!("{anchor}.{run}.{shard}.{number}"),
        }
    }

    async fn read(&self, name: Name) -> Result<Option<Bytes>, StoreError> {
        let (path, doing) = (self.path_of(&self.object_name(&name)), format!("read {name}"));
        let found = persist(|| call::get(&self.connection, &path, &doing)).await;
        let object = match found {
            Ok(object) => object,
            Err(error) if error.class() == FailureClass::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let content = serde_json::from_value::<ConfigMap>(object)
            .map_err(|error| CallError::unreadable(&doing, self.connection.url(), error))?
            .binary_data
            .and_then(|mut data| data.remove(CONTENT));
        match content {
            Some(ByteString(content)) => Ok(Some(content.into())),
            None => Err(StoreError::Foreign { namespace: self.namespace.clone(), name: self.object_name(&name) }),
        }
    }

    async fn write(&self, name: Name, bytes: Bytes) -> Result<Made, StoreError> {
        let size = bytes.len() as u64;
        let found = self.bytes.fetch_add(size, Ordering::Relaxed) + size;
        if found > self.bytes_max {
            return Err(StoreError::Bound { what: "bytes", found, max: self.bytes_max });
        }
        let doing = format!("create {name}");
        let object = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": self.object_name(&name),
                "namespace": self.namespace,
                "labels": {BUNDLE: self.anchor},
                "ownerReferences": [self.reference()],
            },
            "immutable": true,
            "binaryData": {CONTENT: ByteString(bytes.into())},
        });
        let path = path(&self.namespace);
        let Err(error) = persist(|| call::create(&self.connection, &path, &object, &doing)).await else {
            return Ok(Made::New);
        };
        // Not created, so not counted.
        self.bytes.fetch_sub(size, Ordering::Relaxed);
        if error.class() == FailureClass::Conflict { Ok(Made::Existing) } else { Err(error.into()) }
    }
}

/// Most bytes that one shard of so many may record.
pub fn shard_bytes_max(shards: u32) -> Result<u64, StoreError> {
    if shards > SHARDS_MAX {
        return Err(StoreError::Bound { what: "shards", found: shards.into(), max: SHARDS_MAX.into() });
    }
    Ok(RESULTS_BYTES_MAX / u64::from(shards.max(1)))
}

fn path(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps")
}

/// Repeats a request that got no answer. Each of ours may be repeated: a creation that took place is then refused as such.
async fn persist<F>(mut request: impl FnMut() -> F) -> Result<Value, CallError>
where
    F: Future<Output = Result<Value, CallError>>,
{
    let mut failures = 0;
    loop {
        match request().await {
            Err(error) if error.class() == FailureClass::Unreachable && failures + 1 < TRIES_MAX => {
                tokio::time::sleep(BACKOFF.pause(failures)).await;
                failures += 1;
            }
            answer => return answer,
        }
    }
}

impl fmt::Debug for ConfigMaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigMaps")
            .field("namespace", &self.namespace)
            .field("anchor", &self.anchor)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for ConfigMaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bundle {}/{} in the API", self.namespace, self.anchor)
    }
}

impl Store for ConfigMaps {
    fn get(&self, name: Name) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>> {
        self.read(name).boxed()
    }

    fn create(&self, name: Name, bytes: Bytes) -> BoxFuture<'_, Result<Made, StoreError>> {
        self.write(name, bytes).boxed()
    }
}
