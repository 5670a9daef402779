//! Server-side apply: a patch that is what its sender wants, and makes it the owner of that. Makes the object where there is none.

use http::header;
use pumice_clock::wire_time;
use pumice_objects::apply::{self, By};
use pumice_objects::field::FieldError;
use pumice_objects::meta;
use pumice_objects::status::{Status, StatusReason};
use serde_json::Value;

use super::update::{self, Edit};
use super::{create, read, write};
use crate::context::Call;
use crate::handlers::pipeline;
use crate::http::body::Body;
use crate::http::decode::{self, DecodeError, Decoded, Format};
use crate::http::query::{FIELD_MANAGER_BYTES_MAX, WriteOptions};
use crate::http::request::Verb;
use crate::http::respond::Answer;
use crate::kinds::descriptor::Subresource;

/// How often it is tried again, because the object came or went in between.
const ATTEMPTS_MAX: usize = 4;

/// Answers an apply to an object, or to its status.
pub(crate) async fn apply(call: &Call, subresource: Option<&Subresource>, body: Body) -> Answer {
    let options = WriteOptions::parse(&call.query)?;
    let bytes = decode::read(body).await?;
    let Decoded { value: mut config, duplicates } = decoded(&bytes)?;
    write::check_kind(&call.descriptor, &mut config)?;
    write::check_place(call, &mut config)?;
    let Some(manager) = options.field_manager else {
        let error = FieldError::required("fieldManager", "is required for apply patch");
        return Err(write::invalid(&call.descriptor, &config, &[error]));
    };
    keep_own(call, subresource, &mut config);
    // Nobody can own what there is not.
    if let Some(path) = call.descriptor.schema.prune(&mut config).first() {
        let (version, kind) = (call.descriptor.api_version(), &call.descriptor.kind);
        let name = format!("{}/{}", call.stored_namespace(), call.request.name);
        return Err(Status::bad_request(format!(
            "failed to create typed patch object ({}; {version}, Kind={kind}): .{path}: field not declared in schema",
            name.trim_start_matches('/')
        )));
    }
    let wish = Apply {
        call,
        config,
        duplicates,
        manager,
        api_version: call.descriptor.api_version(),
        now: wire_time(call.now()),
        force: options.force,
    };
    for _ in 0..ATTEMPTS_MAX {
        let absent = read::fetch(call).is_err();
        if absent && subresource.is_none() {
            match wish.make().await {
                Err(status) if status.reason == StatusReason::AlreadyExists => continue,
                answer => return answer,
            }
        }
        match update::run(call, subresource, &wish).await {
            Err(status) if status.reason == StatusReason::NotFound && !absent && subresource.is_none() => {}
            answer => return answer,
        }
    }
    Err(Status::conflict_modified(call.resource(), &call.request.name))
}

/// Who writes, where no manager is named: the client's program.
pub(crate) fn manager(call: &Call, options: &WriteOptions) -> String {
    if let Some(manager) = &options.field_manager {
        return manager.clone();
    }
    let agent = call.headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
    agent.split('/').next().unwrap_or_default().chars().take(FIELD_MANAGER_BYTES_MAX).collect()
}

/// Leaves of a configuration what this path writes: nobody may own the rest by it.
fn keep_own(call: &Call, subresource: Option<&Subresource>, config: &mut Value) {
    let Some(fields) = config.as_object_mut() else { return };
    if subresource == Some(&Subresource::Status) {
        fields.retain(|name, _| ["apiVersion", "kind", "metadata", "status"].contains(&name.as_str()));
        if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|name, _| ["name", "namespace", "uid", "resourceVersion"].contains(&name.as_str()));
        }
    } else if call.descriptor.has_status() {
        fields.remove("status");
    }
}

/// YAML, which clients make of JSON: that is read faster, and its duplicate fields are told.
fn decoded(bytes: &[u8]) -> Result<Decoded, DecodeError> {
    if bytes.first() == Some(&b'{')
        && let Ok(decoded) = decode::decode(bytes, Format::Json)
    {
        return Ok(decoded);
    }
    decode::decode(bytes, Format::Yaml)
}

struct Apply<'c> {
    call: &'c Call,
    config: Value,
    duplicates: Vec<String>,
    manager: String,
    api_version: String,
    now: String,
    force: bool,
}

impl Apply<'_> {
    fn applied(&self, live: Option<&Value>) -> Result<Value, Status> {
        let by = By {
            manager: &self.manager,
            api_version: &self.api_version,
            subresource: &self.call.request.subresource,
            now: &self.now,
        };
        Ok(apply::apply(live, &self.config, &self.call.descriptor.schema, &by, self.force)?)
    }

    /// Makes the object, which takes the right to do that.
    async fn make(&self) -> Answer {
        pipeline::authorize_also(self.call, Verb::Create)?;
        if let Some(uid) = meta::uid(&self.config).filter(|uid| !uid.is_empty()) {
            let cause =
                format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
            return Err(Status::conflict(self.call.resource(), &self.call.request.name, cause));
        }
        create::make(self.call, self.applied(None)?, &self.duplicates).await
    }
}

impl Edit for Apply<'_> {
    fn edit(&self, old: &Value) -> Result<Value, Status> {
        let mut new = self.applied(Some(old))?;
        // Only a revision that the configuration names must still be the one that is stored.
        if self.config["metadata"]["resourceVersion"].is_null() {
            meta::set_resource_version(&mut new, None);
        }
        Ok(new)
    }

    fn records_owners(&self) -> bool {
        true
    }

    fn duplicates(&self) -> &[String] {
        &self.duplicates
    }
}
