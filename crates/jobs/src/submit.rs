//! Objects to the server: Jobs are created, other kinds created or brought to what the manifest says.
//!
//! Invariant: all objects are checked before the first is sent; what was created is told object by
//! object, so a failure in the middle never hides what exists. Called by `jobctl` and Python.

pub mod bundled;
mod error;
pub mod marked;
mod retry;
mod seal;

use std::collections::HashMap;

use pumice_api::names::ROOT_QUEUE;
use serde_json::{Value, json};

use crate::cluster::{Missing, queues};
use crate::job::{JobRef, idempotency};
use crate::json::text_at;
use crate::manifest::Object;
use crate::names;
use crate::platform::call::{self, CallError, FailureClass};
use crate::platform::connection::Connection;

pub use error::{SubmitError, known_queues};
pub use retry::{RETRY_OF, again, retry};
pub use seal::sealed;

/// What became of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    Created,
    /// It existed and was changed.
    Configured,
    /// It existed just so.
    Unchanged,
}

impl Effect {
    /// kubectl's word for it.
    pub fn word(self) -> &'static str {
        match self {
            Effect::Created => "created",
            Effect::Configured => "configured",
            Effect::Unchanged => "unchanged",
        }
    }
}

/// An object that is on the server now.
#[derive(Debug, Clone)]
pub struct Submitted {
    pub kind: String,
    pub effect: Effect,
    /// As the server has it.
    pub object: Value,
}

impl Submitted {
    /// The name that the server gave it, or that its manifest says.
    pub fn name(&self) -> &str {
        text_at(&self.object, "/metadata/name")
    }

    /// `job/NAME`.
    pub fn reference(&self) -> String {
        format!("{}/{}", self.kind.to_ascii_lowercase(), self.name())
    }

    /// The job, if it is one.
    pub fn job(&self) -> Option<JobRef> {
        if !is_job(&self.object) {
            return None;
        }
        let namespace = text_at(&self.object, "/metadata/namespace").to_owned();
        Some(JobRef { namespace, name: self.name().to_owned() })
    }
}

/// How a kind is served.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Served {
    plural: String,
    namespaced: bool,
}

/// A Volcano Job, not one of Kubernetes' own.
pub fn is_job(object: &Value) -> bool {
    text_at(object, "/kind") == "Job" && text_at(object, "/apiVersion").starts_with("batch.volcano.sh/")
}

/// Checks what can be checked without a server. `namespace` is the one a flag demands.
pub fn check(objects: &[Object], namespace: Option<&str>) -> Result<(), SubmitError> {
    for Object { body, origin } in objects {
        let fail = |detail: String| SubmitError::Check { origin: origin.clone(), detail };
        for part in text_at(body, "/apiVersion").split('/') {
            names::check("apiVersion", part, 253).map_err(|e| fail(e.to_string()))?;
        }
        if text_at(body, "/apiVersion").matches('/').count() > 1 {
            return Err(fail("apiVersion has more than one '/'".to_owned()));
        }
        let [name, generate_name, own_namespace] =
            ["/metadata/name", "/metadata/generateName", "/metadata/namespace"].map(|p| text_at(body, p));
        if name.is_empty() && generate_name.is_empty() {
            return Err(fail("metadata.name is missing".to_owned()));
        }
        if !own_namespace.is_empty() {
            names::check("namespace", own_namespace, 63).map_err(|e| fail(e.to_string()))?;
        }
        if let Some(wanted) = namespace.filter(|n| !own_namespace.is_empty() && *n != own_namespace) {
            return Err(fail(format!(
                "the object is for namespace {own_namespace} and --namespace says {wanted}; drop one"
            )));
        }
        if is_job(body) {
            names::check("job name", if name.is_empty() { "x" } else { name }, 63).map_err(|e| fail(e.to_string()))?;
            let tasks = body.pointer("/spec/tasks").and_then(Value::as_array);
            if tasks.is_none_or(Vec::is_empty) {
                return Err(fail(format!("job {name} has no task: spec.tasks needs at least one")));
            }
        }
    }
    Ok(())
}

/// Submits objects in their order; `done` hears of each as it happens. Call [`check`] first.
/// Not cancellation safe in the sense that dropping it leaves what was created.
pub async fn submit(
    connection: &Connection,
    objects: &[Object],
    mut done: impl FnMut(&Submitted),
) -> Result<Vec<Submitted>, SubmitError> {
    only_jobs(connection, objects)?;
    let mut kinds: HashMap<(String, String), Served> = HashMap::new();
    let mut all = Vec::new();
    for object in objects {
        let submitted = submit_one(connection, object, &mut kinds).await?;
        done(&submitted);
        all.push(submitted);
    }
    Ok(all)
}

/// Submits a job and what it brings along, which is owned by it and goes with it. Call [`check`] first.
///
/// What it brings can only name its owner once the job is there; pods wait for what they mount. A job whose belongings the
/// server refuses would wait for ever, so it is taken back.
pub async fn submit_with_belongings(
    connection: &Connection,
    job: &Object,
    belongings: &[Object],
    mut done: impl FnMut(&Submitted),
) -> Result<Submitted, SubmitError> {
    only_jobs(connection, belongings)?;
    let bodies: Vec<Value> = belongings.iter().map(|object| object.body.clone()).collect();
    let sealed = Object { body: sealed(job.body.clone(), &bodies), origin: job.origin.clone() };
    let mut kinds = HashMap::new();
    let submitted = submit_one(connection, &sealed, &mut kinds).await?;
    for object in belongings {
        let object = Object { body: owned(&object.body, &submitted), origin: object.origin.clone() };
        if let Err(error) = submit_one(connection, &object, &mut kinds).await {
            take_back(connection, &submitted).await;
            return Err(error);
        }
    }
    done(&submitted);
    Ok(submitted)
}

/// Submits a job alone.
pub(crate) async fn submit_one_job(connection: &Connection, job: &Object) -> Result<Submitted, SubmitError> {
    submit_one(connection, job, &mut HashMap::new()).await
}

/// A fleet takes nothing but jobs, which is to be known before any of them is there.
fn only_jobs(connection: &Connection, objects: &[Object]) -> Result<(), SubmitError> {
    match objects.iter().find(|object| connection.is_fleet() && !is_job(&object.body)) {
        Some(Object { body, origin }) => Err(SubmitError::Check {
            origin: origin.clone(),
            detail: format!(
                "a fleet takes jobs and no {}: a script goes along with jobctl submit SCRIPT, other files into the image",
                text_at(body, "/kind")
            ),
        }),
        None => Ok(()),
    }
}

/// Deletes a job that was created and lacks what it needs. The failure that led to this is the one to tell of.
pub(crate) async fn take_back(connection: &Connection, submitted: &Submitted) {
    if submitted.effect == Effect::Created {
        let path = path_of(&submitted.object);
        let _ = call::delete(connection, &path, &format!("delete {}", submitted.reference())).await;
    }
}

/// The object with the job as its owner, in the job's namespace.
fn owned(body: &Value, job: &Submitted) -> Value {
    let mut body = body.clone();
    if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("ownerReferences".to_owned(), json!([owner(&job.kind, &job.object)]));
        let namespace = text_at(&job.object, "/metadata/namespace");
        metadata.insert("namespace".to_owned(), json!(namespace));
    }
    body
}

/// What names an object of this kind as an owner.
pub(crate) fn owner(kind: &str, object: &Value) -> Value {
    let [api_version, name, uid] =
        ["/apiVersion", "/metadata/name", "/metadata/uid"].map(|pointer| text_at(object, pointer));
    json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid})
}

/// Where a job is.
fn path_of(job: &Value) -> String {
    let [api_version, namespace, name] =
        ["/apiVersion", "/metadata/namespace", "/metadata/name"].map(|pointer| text_at(job, pointer));
    format!("{}/namespaces/{namespace}/jobs/{name}", call::root_path(api_version))
}

async fn submit_one(
    connection: &Connection,
    object: &Object,
    kinds: &mut HashMap<(String, String), Served>,
) -> Result<Submitted, SubmitError> {
    let Object { body, origin } = object;
    let kind = text_at(body, "/kind").to_owned();
    let api_version = text_at(body, "/apiVersion").to_owned();
    let name = [text_at(body, "/metadata/name"), text_at(body, "/metadata/generateName")]
        .into_iter()
        .find(|name| !name.is_empty())
        .unwrap_or_default()
        .to_owned();
    let failed = |source: CallError| SubmitError::Call {
        origin: origin.clone(),
        kind: kind.clone(),
        name: name.clone(),
        source: Box::new(source),
    };
    let key = (api_version.clone(), kind.clone());
    if !kinds.contains_key(&key) {
        let found = served(connection, &api_version, &kind, is_job(body)).await.map_err(&failed)?;
        let found = found.ok_or_else(|| SubmitError::NotServed {
            origin: origin.clone(),
            kind: kind.clone(),
            api_version: api_version.clone(),
        })?;
        kinds.insert(key.clone(), found);
    }
    let (path, body) = addressed(connection, &kinds[&key], &api_version, body);
    let lower = kind.to_ascii_lowercase();
    match call::create(connection, &path, &body, &format!("create {lower} {name}")).await {
        Ok(object) => Ok(Submitted { kind, effect: Effect::Created, object }),
        Err(error) if error.class() == FailureClass::Conflict && idempotency::key(&body).is_some() => {
            let found =
                call::get(connection, &path_of(&body), &format!("read {lower} {name}")).await.map_err(&failed)?;
            if idempotency::is_same(&body, &found) {
                return Ok(Submitted { kind, effect: Effect::Unchanged, object: found });
            }
            let key = idempotency::key(&body).unwrap_or_default().to_owned();
            let namespace = text_at(&found, "/metadata/namespace").to_owned();
            Err(SubmitError::OtherJob { key, name, namespace })
        }
        Err(error)
            if error.class() == FailureClass::Conflict
                && is_job(&body)
                && !text_at(&body, "/metadata/name").is_empty() =>
        {
            let namespace = text_at(&body, "/metadata/namespace").to_owned();
            Err(SubmitError::NameTaken { origin: origin.clone(), name, namespace })
        }
        // A second Job of a name would be another run; other kinds are settings.
        Err(error) if error.class() == FailureClass::Conflict && !is_job(&body) => {
            let path = format!("{path}/{}", call::query_value(&name));
            let before = call::get(connection, &path, &format!("read {lower} {name}")).await.map_err(&failed)?;
            let object =
                call::merge(connection, &path, &body, &format!("change {lower} {name}")).await.map_err(&failed)?;
            let version = |object| text_at(object, "/metadata/resourceVersion").to_owned();
            let effect = if version(&before) == version(&object) { Effect::Unchanged } else { Effect::Configured };
            Ok(Submitted { kind, effect, object })
        }
        Err(error) => Err(match unknown_queue(connection, &body, &error).await {
            Some((queue, known)) => SubmitError::NoQueue { origin: origin.clone(), queue, known },
            None => failed(error),
        }),
    }
}

/// Whether a job was refused since its queue does not exist; admission says so in its own words, among others.
async fn unknown_queue(connection: &Connection, body: &Value, error: &CallError) -> Option<(String, Vec<String>)> {
    let name = text_at(body, "/spec/queue");
    let refused = matches!(error.class(), FailureClass::Invalid | FailureClass::Denied | FailureClass::NotFound);
    if !refused || !is_job(body) || name.is_empty() {
        return None;
    }
    if !queues::get(connection, name).await.is_err_and(|error| error.downcast_ref::<Missing>().is_some()) {
        return None;
    }
    let known = queues::list(connection).await.unwrap_or_default();
    let names = known.iter().map(|queue| text_at(queue, "/metadata/name").to_owned());
    Some((name.to_owned(), names.filter(|name| name != ROOT_QUEUE).collect()))
}

/// The collection's path, and the object with its namespace filled in.
fn addressed(connection: &Connection, served: &Served, api_version: &str, body: &Value) -> (String, Value) {
    let mut body = body.clone();
    let root = call::root_path(api_version);
    if !served.namespaced {
        return (format!("{root}/{}", served.plural), body);
    }
    let namespace = match text_at(&body, "/metadata/namespace") {
        "" => connection.namespace().to_owned(),
        namespace => namespace.to_owned(),
    };
    if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("namespace".to_owned(), json!(namespace));
    }
    (format!("{root}/namespaces/{namespace}/{}", served.plural), body)
}

/// Asks the server how a kind is served; Jobs are known, which saves a round trip.
async fn served(
    connection: &Connection,
    api_version: &str,
    kind: &str,
    is_job: bool,
) -> Result<Option<Served>, CallError> {
    if is_job {
        return Ok(Some(Served { plural: "jobs".to_owned(), namespaced: true }));
    }
    let doing = format!("look up {kind} of {api_version}");
    match call::get(connection, &call::root_path(api_version), &doing).await {
        Ok(list) => Ok(served_in(&list, kind)),
        Err(error) if error.class() == FailureClass::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn served_in(resources: &Value, kind: &str) -> Option<Served> {
    resources.get("resources")?.as_array()?.iter().find_map(|resource| {
        let plural = text_at(resource, "/name");
        if text_at(resource, "/kind") != kind || plural.contains('/') || plural.is_empty() {
            return None;
        }
        let namespaced = resource.get("namespaced").and_then(Value::as_bool).unwrap_or(false);
        Some(Served { plural: plural.to_owned(), namespaced })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(body: Value) -> Vec<Object> {
        vec![Object { body, origin: "f:1".to_owned() }]
    }

    #[test]
    fn objects_are_checked_before_anything_is_sent() {
        let job = |spec: Value| {
            json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
                   "metadata": {"name": "x", "namespace": "a"}, "spec": spec})
        };
        let tasks = json!({"tasks": [{"replicas": 1}]});
        for (body, namespace, wanted) in [
            (job(tasks.clone()), None, ""),
            (job(tasks.clone()), Some("a"), ""),
            (job(tasks), Some("b"), "f:1: the object is for namespace a and --namespace says b; drop one"),
            (job(json!({})), None, "f:1: job x has no task: spec.tasks needs at least one"),
            (job(json!({"tasks": []})), None, "f:1: job x has no task: spec.tasks needs at least one"),
            (json!({"apiVersion": "v1", "kind": "ConfigMap"}), None, "f:1: metadata.name is missing"),
            (
                json!({"apiVersion": "a/b/c", "kind": "X", "metadata": {"name": "x"}}),
                None,
                "f:1: apiVersion has more than one '/'",
            ),
        ] {
            let found = check(&object(body), namespace).err().map(|e| e.to_string()).unwrap_or_default();
            assert_eq!(found, wanted);
        }
        let traversal = json!({"apiVersion": "..", "kind": "X", "metadata": {"name": "x"}});
        assert!(check(&object(traversal), None).is_err());
    }

    #[test]
    fn kinds_are_found_in_discovery() {
        let list = json!({"resources": [
            {"name": "queues/status", "kind": "Queue", "namespaced": false},
            {"name": "queues", "kind": "Queue", "namespaced": false},
            {"name": "podgroups", "kind": "PodGroup", "namespaced": true},
        ]});
        let served = |plural: &str, namespaced| Some(Served { plural: plural.to_owned(), namespaced });
        assert_eq!(served_in(&list, "Queue"), served("queues", false));
        assert_eq!(served_in(&list, "PodGroup"), served("podgroups", true));
        assert_eq!(served_in(&list, "Nothing"), None);
        assert_eq!(served_in(&json!({}), "Queue"), None);
    }
}
