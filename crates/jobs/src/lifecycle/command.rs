//! The Command that asks Volcano's controllers for an action on a job or queue.
//!
//! Invariant: the object is the Command's owner, by its uid, so that a Command never outlives it and never reaches a later
//! object of the same name. Called by `lifecycle`, and by the crate that does what Volcano's command line does.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use pumice_api::CustomResource;
use pumice_api::bus::{Action, Command};
use serde_json::Value;

use crate::platform::call::{self, CallError};
use crate::platform::connection::Connection;

/// Who asks, for people who look at the Command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reason {
    /// One CamelCase word; may be empty.
    pub word: String,
    /// A sentence; may be empty.
    pub sentence: String,
}

/// The object that a Command is about.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
}

/// The Command for an object of kind `K` that has this name and uid, made in `namespace`.
pub fn command<K: CustomResource>(object: Subject<'_>, action: Action, reason: Reason) -> Command {
    let Subject { namespace, name, uid } = object;
    let target = OwnerReference {
        api_version: format!("{}/{}", K::GROUP, K::VERSION),
        kind: K::KIND.to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    Command {
        metadata: ObjectMeta {
            generate_name: Some(format!("{name}-{}-", action.as_str().to_ascii_lowercase())),
            namespace: Some(namespace.to_owned()),
            owner_references: Some(vec![target.clone()]),
            ..ObjectMeta::default()
        },
        action: Some(action),
        target: Some(target),
        reason: reason.word,
        message: reason.sentence,
    }
}

/// Gives a Command; `doing` is what it is for, as in "suspend job x".
pub async fn give(connection: &Connection, command: &Command, doing: &str) -> Result<Value, CallError> {
    let namespace = command.metadata.namespace.as_deref().unwrap_or("default");
    let path = format!("/apis/bus.volcano.sh/v1alpha1/namespaces/{namespace}/commands");
    let body = serde_json::to_value(command)
        .map_err(|error| CallError::unreadable("write a command", connection.url(), error))?;
    call::create(connection, &path, &body, doing).await
}
