//! AdmissionReview, version 1: the request as the API server sends it, and the answer.
//!
//! Invariant: an object is judged by [`VolcanoAdmission`] alone, as in process; here is only what stands around it. Whatever
//! bytes come, there is an answer or a [`BadReview`]. Called by the webhook server, and by the fuzzer.

use std::panic::{AssertUnwindSafe, catch_unwind};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use pumice_apiserver::{Admission as _, AdmissionRequest, Admitted, NoTenants, ObjectReader, Operation};
use pumice_auth::Identity;
use pumice_objects::status::Status;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::VolcanoAdmission;
use crate::routes::{Phase, Route};

const VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";
/// Most bytes of a request: an object has 1.5 MiB, and an update sends two.
pub const REVIEW_BYTES_MAX: usize = 3 * 1024 * 1024;
/// Longest warning, in bytes: a longer one the API server would cut off, and all after 4096.
const WARNING_BYTES_MAX: usize = 256;
const WARNINGS_MAX: usize = 15;

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum BadReview {
    /// It is too long to be looked at.
    #[error("the review has more than {REVIEW_BYTES_MAX} bytes")]
    TooLong,
    /// It is not JSON, too deep, or not of this form.
    #[error("the review can't be read")]
    Read(#[source] serde_json::Error),
    /// It is something else.
    #[error("{api_version} {kind} is not {VERSION} {KIND}")]
    Kind { api_version: String, kind: String },
    #[error("the review holds no request")]
    Empty,
    /// It is about another kind than the path.
    #[error("{path} is not about {group}/{resource}")]
    Resource { path: &'static str, group: String, resource: String },
    /// A rule crashed on it.
    #[error("a rule crashed on this object; report it together with the object")]
    Crash,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    request: Option<Request>,
}

/// What is to be judged.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    uid: String,
    resource: Resource,
    kind: Kind,
    #[serde(default)]
    sub_resource: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    operation: Wanted,
    #[serde(default)]
    user_info: User,
    object: Option<Value>,
    old_object: Option<Value>,
    dry_run: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct Resource {
    #[serde(default)]
    group: String,
    version: String,
    resource: String,
}

#[derive(Debug, Deserialize)]
struct Kind {
    kind: String,
}

#[derive(Debug, Default, Deserialize)]
struct User {
    #[serde(default)]
    username: String,
    groups: Option<Vec<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Wanted {
    Create,
    Update,
    Delete,
    Connect,
}

/// What the rules found in one object: refused, or admitted with warnings and a patch.
#[derive(Debug, Default)]
pub struct Verdict {
    refusal: Option<Status>,
    warnings: Vec<String>,
    patch: Option<Vec<u8>>,
}

impl Verdict {
    /// Whether the object may not be stored.
    pub fn is_refusal(&self) -> bool {
        self.refusal.is_some()
    }
}

impl Request {
    /// Reads the body of a request to `route`.
    pub fn read(body: &[u8], route: &Route) -> Result<Self, BadReview> {
        if body.len() > REVIEW_BYTES_MAX {
            return Err(BadReview::TooLong);
        }
        let Wire { api_version, kind, request } = serde_json::from_slice(body).map_err(BadReview::Read)?;
        if api_version != VERSION || kind != KIND {
            return Err(BadReview::Kind { api_version, kind });
        }
        let request = request.ok_or(BadReview::Empty)?;
        let Resource { group, resource, .. } = &request.resource;
        if group != route.group || resource != route.resource {
            let (group, resource) = (group.clone(), resource.clone());
            return Err(BadReview::Resource { path: route.path, group, resource });
        }
        Ok(request)
    }

    /// Judges the object, beside `objects`. Pure but for them; a rule that panics is an error, not an end.
    pub fn judge(
        &self,
        admission: &VolcanoAdmission,
        phase: Phase,
        objects: &dyn ObjectReader,
        now: Timestamp,
    ) -> Result<Verdict, BadReview> {
        let judged = AssertUnwindSafe(|| self.judge_unguarded(admission, phase, objects, now));
        catch_unwind(judged).map_err(|_| BadReview::Crash)
    }

    fn judge_unguarded(
        &self,
        admission: &VolcanoAdmission,
        phase: Phase,
        objects: &dyn ObjectReader,
        now: Timestamp,
    ) -> Verdict {
        let operation = match self.operation {
            Wanted::Create => Operation::Create,
            Wanted::Update => Operation::Update,
            Wanted::Delete => Operation::Delete,
            Wanted::Connect => return Verdict::default(),
        };
        let groups = self.user_info.groups.iter().flatten().cloned();
        let request = AdmissionRequest {
            operation,
            identity: &Identity::new(&self.user_info.username, groups),
            group: &self.resource.group,
            version: &self.resource.version,
            resource: &self.resource.resource,
            kind: &self.kind.kind,
            subresource: &self.sub_resource,
            namespace: &self.namespace,
            name: &self.name,
            old: self.old_object.as_ref(),
            dry_run: self.dry_run.unwrap_or(false),
            objects,
            tenants: &NoTenants,
            now,
        };
        match (phase, &self.object) {
            (_, None) => verdict(admission.admit(&request, None), None),
            (Phase::Validate, Some(object)) => verdict(admission.validate(&request, Some(object)), None),
            (Phase::Mutate, Some(object)) => {
                let mut filled = object.clone();
                let admitted = admission.admit(&request, Some(&mut filled));
                verdict(admitted, Some((object, &filled)))
            }
        }
    }

    /// The body of the answer.
    pub fn answer(&self, verdict: Verdict) -> Vec<u8> {
        let Verdict { refusal, warnings, patch } = verdict;
        let mut response = json!({ "uid": self.uid, "allowed": refusal.is_none() });
        if let Some(refusal) = refusal {
            let (code, reason) = (refusal.code, refusal.reason.as_str());
            let message = without_webhook(&refusal.message);
            response["status"] = json!({ "status": "Failure", "code": code, "reason": reason, "message": message });
        } else if let Some(patch) = patch {
            response["patchType"] = "JSONPatch".into();
            response["patch"] = STANDARD.encode(patch).into();
        }
        if !warnings.is_empty() {
            response["warnings"] = warnings.into_iter().take(WARNINGS_MAX).map(short).collect();
        }
        json!({ "apiVersion": VERSION, "kind": KIND, "response": response }).to_string().into_bytes()
    }
}

/// `filled` is the object before and after.
fn verdict(judged: Result<Admitted, Status>, filled: Option<(&Value, &Value)>) -> Verdict {
    match judged {
        Err(refusal) => Verdict { refusal: Some(refusal), ..Verdict::default() },
        Ok(Admitted { warnings, untouched, .. }) => {
            let changed = filled.filter(|(before, after)| !untouched && before != after);
            let patch = changed.and_then(|(before, after)| serde_json::to_vec(&json_patch::diff(before, after)).ok());
            Verdict { refusal: None, warnings, patch }
        }
    }
}

/// The API server says by itself which webhook refused; in process the rules say it, in the same words.
fn without_webhook(message: &str) -> &str {
    let named = message.strip_prefix("admission webhook \"").and_then(|rest| rest.split_once('"'));
    named.and_then(|(_, rest)| rest.strip_prefix(" denied the request: ")).unwrap_or(message)
}

fn short(mut warning: String) -> Value {
    if warning.len() > WARNING_BYTES_MAX {
        let end = (0..=WARNING_BYTES_MAX - 3).rev().find(|end| warning.is_char_boundary(*end)).unwrap_or(0);
        warning.truncate(end);
        warning.push('…');
    }
    warning.into()
}
