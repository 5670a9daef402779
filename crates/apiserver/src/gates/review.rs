//! AdmissionReview, version 1: what a webhook is sent, and what it answers.
//!
//! Invariant: an answer counts only if it is about what was asked. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Subject;

const VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";
/// Most warnings of one answer.
const WARNINGS_MAX: usize = 16;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    allowed: bool,
    status: Option<Said>,
    patch: Option<String>,
    patch_type: Option<String>,
    warnings: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Said {
    code: Option<i64>,
    message: Option<String>,
    reason: Option<String>,
}

/// What a webhook said.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Verdict {
    pub(super) refusal: Option<Refusal>,
    pub(super) patch: Option<Value>,
    pub(super) warnings: Vec<String>,
}

/// A no, in the webhook's words.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Refusal {
    pub(super) code: Option<u16>,
    pub(super) message: String,
    pub(super) reason: String,
}

/// The body of a request. Objects are shown in `version`.
pub(super) fn ask(subject: &Subject<'_>, uid: &str, version: &str, object: Option<&Value>) -> Vec<u8> {
    let mut request = subject.request(uid, version, object);
    let shown = |object: Option<&Value>| match object {
        Some(object) if version != subject.descriptor.version && subject.schema().is_some() => {
            let mut object = object.clone();
            object["apiVersion"] = format!("{}/{version}", subject.descriptor.group).into();
            object
        }
        Some(object) => object.clone(),
        None => Value::Null,
    };
    request["object"] = shown(object);
    request["oldObject"] = shown(subject.old);
    json!({ "kind": KIND, "apiVersion": VERSION, "request": request }).to_string().into_bytes()
}

/// Reads an answer to the request `uid`.
pub(super) fn read(body: &[u8], uid: &str, may_patch: bool) -> Result<Verdict, String> {
    let response: Response = super::response(body, VERSION, KIND)?;
    if response.uid != uid {
        return Err(format!("expected response.uid={uid:?}, got {:?}", response.uid));
    }
    let mut warnings = response.warnings.unwrap_or_default();
    warnings.truncate(WARNINGS_MAX);
    if !response.allowed {
        let said = response.status.unwrap_or_default();
        let refusal = Refusal {
            code: said.code.and_then(|code| u16::try_from(code).ok()).filter(|code| (400..600).contains(code)),
            message: said.message.unwrap_or_default(),
            reason: said.reason.unwrap_or_default(),
        };
        return Ok(Verdict { refusal: Some(refusal), patch: None, warnings });
    }
    let patch = match (response.patch.filter(|patch| !patch.is_empty()), response.patch_type.as_deref()) {
        (None, None) => None,
        (None, Some(_)) => return Err("webhook returned response.patchType but not response.patch".to_owned()),
        (Some(_), None) => return Err("webhook returned response.patch but not response.patchType".to_owned()),
        (Some(_), _) if !may_patch => return Err("a validating webhook may not patch".to_owned()),
        (Some(patch), Some("JSONPatch")) => {
            let bytes = BASE64.decode(patch).map_err(|error| format!("response.patch is no base64: {error}"))?;
            Some(serde_json::from_slice(&bytes).map_err(|error| format!("response.patch is no JSON: {error}"))?)
        }
        (Some(_), Some(other)) => return Err(format!("webhook returned invalid response.patchType of {other:?}")),
    };
    Ok(Verdict { refusal: None, patch, warnings })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(response: Value) -> Result<Verdict, String> {
        read(json!({ "apiVersion": VERSION, "kind": KIND, "response": response }).to_string().as_bytes(), "u", true)
    }

    #[test]
    fn answers_count_only_if_they_are_about_the_question() {
        assert_eq!(answer(json!({ "uid": "u", "allowed": true })), Ok(Verdict::default()));
        for (response, cause) in [
            (json!({ "uid": "v", "allowed": true }), "expected response.uid"),
            (json!({ "uid": "u", "allowed": true, "patch": "W10=" }), "but not response.patchType"),
            (json!({ "uid": "u", "allowed": true, "patchType": "JSONPatch" }), "but not response.patch"),
            (json!({ "uid": "u", "allowed": true, "patch": "!", "patchType": "JSONPatch" }), "base64"),
            (
                json!({ "uid": "u", "allowed": true, "patch": "e30=", "patchType": "Merge" }),
                "invalid response.patchType",
            ),
            (json!(null), "absent"),
        ] {
            let told = answer(response.clone()).expect_err("refused");
            assert!(told.contains(cause), "{response}: {told}");
        }
        for body in ["", "[]", "{}", "{\"kind\": 1}", "\u{0}"] {
            assert!(read(body.as_bytes(), "u", true).is_err(), "{body}");
        }
        let patched = answer(json!({ "uid": "u", "allowed": true, "patch": "W10=", "patchType": "JSONPatch" }));
        assert_eq!(patched.expect("read").patch, Some(json!([])));
        let refused = answer(json!({ "uid": "u", "allowed": false, "status": { "code": 418, "message": "m" } }));
        let refusal = refused.expect("read").refusal.expect("refused");
        assert_eq!((refusal.code, refusal.message.as_str()), (Some(418), "m"));
    }
}
