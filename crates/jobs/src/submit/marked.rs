//! A job whose results are marked: its pods, and nobody else, get the key of its run.
//!
//! The pods have the key as a variable out of a Secret, which belongs to the job and goes with it. A fleet makes no Secret
//! beside a job, so there the key stands in the pods' specs, where it is read by whoever may read those.
//!
//! Invariant: in a Kubernetes API the key is in the Secret and nowhere else. A job without the Secret would wait for ever, so it
//! is taken back. Called by Python, whose results are pickles.

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::Connection;
use crate::bundle::{RunKeyError, location, random_name};
use crate::error::{Error, Failure, Remedy};
use crate::exit_code::Exit;
use crate::json::text_at;
use crate::manifest::Object;
use crate::platform::call::{self, CallError, FailureClass};
use crate::submit::{self, Submitted};

/// The variable that a pod finds the key of its run by.
pub const VARIABLE: &str = "PUMICE_RUN_KEY";
/// The key in the Secret's `data`.
const FIELD: &str = "key";

/// Why a job's pods can't be given a key.
#[derive(Debug, thiserror::Error)]
pub enum MarkedError {
    /// The text is none.
    #[error(transparent)]
    Key(#[from] RunKeyError),
    /// The user may not make the Secret.
    #[error(
        "the pods of job {job} can't be given the key that marks their results, which takes the right to create Secrets in namespace {namespace}; ask for that right, or submit with allow_pickle=True, which reads results without a mark"
    )]
    Rights {
        /// The job, which is not there any more.
        job: String,
        namespace: String,
        /// What the server said.
        #[source]
        source: Box<CallError>,
    },
}

impl Failure for MarkedError {
    fn exit(&self) -> Exit {
        match self {
            MarkedError::Rights { .. } => Exit::Denied,
            MarkedError::Key(_) => Exit::Usage,
        }
    }

    fn remedy(&self) -> Remedy {
        // Its sentence says what to do.
        Remedy::Unknown
    }
}

/// Submits a job of which the pods with a bundle mark what they record with this key. Call [`submit::check`] first.
pub async fn submit(connection: &Connection, job: &Object, key: &str) -> Result<Submitted, Error> {
    key.parse::<crate::bundle::RunKey>().map_err(MarkedError::from)?;
    let secret = format!("run-key-{}", random_name()?);
    let source = if connection.is_fleet() { in_spec(key) } else { in_secret(&secret) };
    let job = Object { body: with_variable(job.body.clone(), &source), origin: job.origin.clone() };
    let submitted = submit::submit_one_job(connection, &job).await?;
    if !connection.is_fleet()
        && let Err(error) = create_secret(connection, &submitted, &secret, key).await
    {
        submit::take_back(connection, &submitted).await;
        return Err(error);
    }
    Ok(submitted)
}

/// Makes the Secret when there is a job to own it. Its pods come later, and wait for it.
async fn create_secret(connection: &Connection, job: &Submitted, name: &str, key: &str) -> Result<(), Error> {
    let namespace = text_at(&job.object, "/metadata/namespace");
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "ownerReferences": [submit::owner(&job.kind, &job.object)],
        },
        "immutable": true,
        "type": "Opaque",
        "data": {FIELD: ByteString(key.as_bytes().to_vec())},
    });
    let doing = format!("create the Secret of job {}", job.name());
    let path = format!("/api/v1/namespaces/{namespace}/secrets");
    match call::create(connection, &path, &secret, &doing).await {
        Ok(_) => Ok(()),
        Err(source) if source.class() == FailureClass::Denied => {
            let (job, namespace) = (job.name().to_owned(), namespace.to_owned());
            Err(MarkedError::Rights { job, namespace, source: Box::new(source) }.into())
        }
        Err(error) => Err(error.into()),
    }
}

fn in_spec(key: &str) -> Value {
    json!({"name": VARIABLE, "value": key})
}

fn in_secret(name: &str) -> Value {
    json!({"name": VARIABLE, "valueFrom": {"secretKeyRef": {"name": name, "key": FIELD}}})
}

/// The job with this variable in each container that is told of a bundle, in place of one of that name.
fn with_variable(mut job: Value, variable: &Value) -> Value {
    let tasks = job.pointer_mut("/spec/tasks").and_then(Value::as_array_mut).into_iter().flatten();
    let pods = tasks.filter_map(|task| task.pointer_mut("/template/spec"));
    for container in pods.filter_map(|pod| pod.get_mut("containers")?.as_array_mut()).flatten() {
        let Some(variables) = container.get_mut("env").and_then(Value::as_array_mut) else { continue };
        if variables.iter().any(|known| known["name"] == location::VARIABLE) {
            variables.retain(|known| known["name"] != VARIABLE);
            variables.push(variable.clone());
        }
    }
    job
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pods_with_a_bundle_get_the_key() {
        let container = |env: Value| json!({"name": "c", "env": env});
        let job = |containers: Value| json!({"spec": {"tasks": [{"template": {"spec": {"containers": containers}}}]}});
        let [bundle, own] = [json!({"name": "PUMICE_BUNDLE", "value": "x"}), json!({"name": VARIABLE, "value": "own"})];
        let given = in_secret("run-key-1");
        let before = job(json!([container(json!([bundle, own])), container(json!([own])), {"name": "bare"}]));
        let after = job(json!([container(json!([bundle, given])), container(json!([own])), {"name": "bare"}]));
        assert_eq!(with_variable(before, &given), after);
        for odd in [json!(null), json!({"spec": {"tasks": 1}}), job(json!({})), job(json!([1, {"env": {}}]))] {
            assert_eq!(with_variable(odd.clone(), &given), odd);
        }
    }
}
