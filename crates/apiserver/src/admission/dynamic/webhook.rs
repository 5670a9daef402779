//! One webhook: whether it is asked, how, and what its answer or its silence means.
//!
//! Invariant: a webhook that does not answer in its time counts as its `failurePolicy` says; one with side effects is not
//! asked on a dry run. Called by [`super::DynamicAdmission`].

use std::time::Duration;

use pumice_objects::status::{Status, StatusReason};
use serde_json::Value;
use uuid::Uuid;

use super::matching::Matching;
use super::policy::Conditions;
use super::{Subject, review};
use crate::webhooks::{Callee, Webhooks};

/// How long a webhook may take where it does not say.
const TIMEOUT_SECONDS: u64 = 10;
/// Longest that it may say.
pub(super) const TIMEOUT_SECONDS_MAX: u64 = 30;

/// One webhook of a configuration.
#[derive(Debug)]
pub(super) struct Webhook {
    pub(super) name: String,
    /// Whether it is asked again when others changed the object after it.
    pub(super) reinvoked: bool,
    mutates: bool,
    matching: Matching,
    conditions: Conditions,
    callee: Callee,
    passes_on_failure: bool,
    has_side_effects: bool,
}

#[derive(Debug, Default)]
pub(super) struct Answered {
    pub(super) patch: Option<Value>,
    pub(super) warnings: Vec<String>,
}

/// The webhooks of a stored configuration, in its order.
pub(super) fn webhooks(configuration: &Value, mutates: bool) -> Vec<Webhook> {
    let declared = configuration["webhooks"].as_array().into_iter().flatten();
    declared.map(|one| Webhook::new(one, mutates)).collect()
}

impl Webhook {
    fn new(declared: &Value, mutates: bool) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let seconds = declared["timeoutSeconds"].as_u64().unwrap_or(TIMEOUT_SECONDS).clamp(1, TIMEOUT_SECONDS_MAX);
        Self {
            name: text(&declared["name"]),
            reinvoked: declared["reinvocationPolicy"] == "IfNeeded",
            mutates,
            matching: Matching::new(declared, "rules"),
            conditions: Conditions::new(&declared["matchConditions"], None),
            callee: Callee::new(&declared["clientConfig"], Duration::from_secs(seconds)),
            passes_on_failure: declared["failurePolicy"] == "Ignore",
            has_side_effects: !["None", "NoneOnDryRun"].contains(&declared["sideEffects"].as_str().unwrap_or_default()),
        }
    }

    /// Asks, if the request is its business. A refusal, or a failure that counts as one, is an error.
    pub(super) async fn ask(
        &self,
        webhooks: &Webhooks,
        subject: &Subject<'_>,
        object: Option<&Value>,
    ) -> Result<Option<Answered>, Status> {
        let Some(version) = self.matching.version(subject, object) else { return Ok(None) };
        match self.conditions.hold(subject, object) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(_) if self.passes_on_failure => return Ok(None),
            Err(cause) => return Err(self.not_judged(subject, &cause)),
        }
        if subject.dry_run && self.has_side_effects {
            let text = format!("admission webhook {:?} does not support dry run", self.name);
            return Err(Status::bad_request(text));
        }
        let uid = Uuid::now_v7().to_string();
        let body = review::ask(subject, &uid, &version, object);
        let called = webhooks.ask(&self.callee, body).await;
        let called = called.map_err(|cause| format!("failed to call webhook: {cause}"));
        let verdict = called.and_then(|answer| review::read(&answer, &uid, self.mutates));
        match verdict {
            Ok(verdict) => match verdict.refusal {
                None => Ok(Some(Answered { patch: verdict.patch, warnings: verdict.warnings })),
                Some(refusal) => Err(self.refused(&refusal)),
            },
            Err(cause) if self.passes_on_failure => {
                tracing::warn!(webhook = self.name, cause, "a webhook did not answer, and may be passed over");
                Ok(Some(Answered::default()))
            }
            Err(cause) => Err(Status::internal_error(format!("failed calling webhook {:?}: {cause}", self.name))),
        }
    }

    fn refused(&self, refusal: &review::Refusal) -> Status {
        let message = match (refusal.message.as_str(), refusal.reason.as_str()) {
            ("", "") => format!("admission webhook {:?} denied the request without explanation", self.name),
            ("", said) | (said, _) => format!("admission webhook {:?} denied the request: {said}", self.name),
        };
        let mut status = Status::new(StatusReason::Forbidden, message);
        if let Some(code) = refusal.code {
            status.code = code;
        }
        status
    }

    fn not_judged(&self, subject: &Subject<'_>, cause: &str) -> Status {
        let resource = pumice_objects::status::GroupResource {
            group: &subject.descriptor.group,
            resource: &subject.descriptor.plural,
        };
        Status::forbidden(resource, subject.name, format!("failed calling webhook {:?}: {cause}", self.name))
    }
}
