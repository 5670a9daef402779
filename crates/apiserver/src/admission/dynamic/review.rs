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
    status: Option<AnswerStatus>,
    patch: Option<Patch>,
    patch_type: Option<String>,
    warnings: Option<Vec<String>>,
}

/// Bytes as Go reads them: base64, or a list of them. Go writes the patch of a webhook that changes nothing as `null`, as
/// nothing, or as the base64 of `null`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Patch {
    Base64(String),
    Bytes(Vec<u8>),
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AnswerStatus {
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
    let response: Response = crate::webhooks::response(body, VERSION, KIND)?;
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
    let patch = response.patch.map(Patch::bytes).transpose()?.filter(|patch| !patch.is_empty());
    let patch = match (patch, response.patch_type.as_deref()) {
        (None, None) => None,
        (Some(_), _) if !may_patch => return Err("validating webhook may not return response.patch".to_owned()),
        (None, Some(_)) if !may_patch => return Err("validating webhook may not return response.patchType".to_owned()),
        (None, Some(_)) => return Err("webhook returned response.patchType but not response.patch".to_owned()),
        (Some(_), None) => return Err("webhook returned response.patch but not response.patchType".to_owned()),
        (Some(patch), Some("JSONPatch")) => operations(&patch)?,
        (Some(_), Some(other)) => return Err(format!("webhook returned invalid response.patchType of {other:?}")),
    };
    Ok(Verdict { refusal: None, patch, warnings })
}

impl Patch {
    fn bytes(self) -> Result<Vec<u8>, String> {
        match self {
            Self::Base64(text) => BASE64.decode(text).map_err(|error| format!("response.patch is no base64: {error}")),
            Self::Bytes(bytes) => Ok(bytes),
        }
    }
}

/// The operations of a patch, if there are any. What is no list of them counts as no answer.
fn operations(patch: &[u8]) -> Result<Option<Value>, String> {
    let undecodable = |cause: String| format!("received undecodable patch in webhook response: {cause}");
    match serde_json::from_slice(patch).map_err(|error| undecodable(error.to_string()))? {
        Value::Null => Ok(None),
        Value::Array(operations) if operations.is_empty() => Ok(None),
        Value::Array(operations) => Ok(Some(Value::Array(operations))),
        other => Err(undecodable(format!("a list of operations is needed, not {other:.40}"))),
    }
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
        let patch = json!([{ "op": "add", "path": "/a", "value": null }]);
        let encoded = BASE64.encode(patch.to_string());
        let patched = answer(json!({ "uid": "u", "allowed": true, "patch": encoded, "patchType": "JSONPatch" }));
        assert_eq!(patched.expect("read").patch, Some(patch));
        let refused = answer(json!({ "uid": "u", "allowed": false, "status": { "code": 418, "message": "m" } }));
        let refusal = refused.expect("read").refusal.expect("refused");
        assert_eq!((refusal.code, refusal.message.as_str()), (Some(418), "m"));
    }

    /// Volcano's webhooks answer the base64 of `null` about what they leave as it is.
    #[test]
    fn a_patch_of_nothing_is_none() {
        for patch in ["null", " null\n", "[]", " [ ] "] {
            for patch in [json!(BASE64.encode(patch)), json!(patch.as_bytes())] {
                let response = json!({ "uid": "u", "allowed": true, "patch": patch, "patchType": "JSONPatch" });
                assert_eq!(answer(response.clone()), Ok(Verdict::default()), "{response}");
            }
        }
        for patch in [json!(null), json!(""), json!([])] {
            for patch_type in [json!(null), json!("JSONPatch")] {
                let response = json!({ "uid": "u", "allowed": true, "patch": patch, "patchType": patch_type });
                let expected = match patch_type.is_null() {
                    true => Ok(Verdict::default()),
                    false => Err("webhook returned response.patchType but not response.patch".to_owned()),
                };
                assert_eq!(answer(response.clone()), expected, "{response}");
            }
        }
        for patch in ["{}", "3", "\"x\"", "[", ""] {
            let encoded = BASE64.encode(patch);
            let told = answer(json!({ "uid": "u", "allowed": true, "patch": encoded, "patchType": "JSONPatch" }));
            assert!(told.is_err(), "{patch}: {told:?}");
        }
    }

    #[test]
    fn a_validating_webhook_may_not_patch() {
        let read = |response: Value| {
            read(
                json!({ "apiVersion": VERSION, "kind": KIND, "response": response }).to_string().as_bytes(),
                "u",
                false,
            )
        };
        assert_eq!(
            read(json!({ "uid": "u", "allowed": true, "patch": "", "patchType": null })),
            Ok(Verdict::default())
        );
        for field in ["patch", "patchType"] {
            let mut response = json!({ "uid": "u", "allowed": true });
            response[field] = json!("W10=");
            assert_eq!(read(response), Err(format!("validating webhook may not return response.{field}")));
        }
    }
}
