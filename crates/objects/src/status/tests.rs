//! Messages and bodies of statuses, compared with upstream's.

use serde_json::json;

use super::{GroupKind, GroupResource, Status, deleted};
use crate::field::FieldError;

const PODS: GroupResource<'static> = GroupResource { group: "", resource: "pods" };
const JOBS: GroupResource<'static> = GroupResource { group: "batch.volcano.sh", resource: "jobs" };
const JOB: GroupKind<'static> = GroupKind { group: "batch.volcano.sh", kind: "Job" };

#[test]
fn messages_and_codes_are_those_of_upstream() {
    for (status, code, reason, message) in [
        (Status::not_found(PODS, "x"), 404, "NotFound", r#"pods "x" not found"#),
        (Status::already_exists(JOBS, "x"), 409, "AlreadyExists", r#"jobs.batch.volcano.sh "x" already exists"#),
        (
            Status::conflict_modified(PODS, "x"),
            409,
            "Conflict",
            r#"Operation cannot be fulfilled on pods "x": the object has been modified; please apply your changes to the latest version and try again"#,
        ),
        (
            Status::forbidden(PODS, "", r#"User "u" cannot list resource "pods""#),
            403,
            "Forbidden",
            r#"pods is forbidden: User "u" cannot list resource "pods""#,
        ),
        (Status::forbidden(PODS, "x", "no"), 403, "Forbidden", r#"pods "x" is forbidden: no"#),
        (
            Status::method_not_allowed(JOBS, "patch"),
            405,
            "MethodNotAllowed",
            r#"patch is not supported on resources of kind "jobs.batch.volcano.sh""#,
        ),
        (
            Status::not_acceptable(&["application/json", "application/yaml"]),
            406,
            "NotAcceptable",
            "only the following media types are accepted: application/json, application/yaml",
        ),
        (
            Status::unsupported_media_type(&["application/json"]),
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: application/json",
        ),
        (
            Status::too_large("limit is 3145728"),
            413,
            "RequestEntityTooLarge",
            "Request entity is too large: limit is 3145728",
        ),
        (Status::internal_error("boom"), 500, "InternalError", "Internal error occurred: boom"),
        (Status::timeout("late"), 504, "Timeout", "Timeout: late"),
        (Status::unauthorized(), 401, "Unauthorized", "Unauthorized"),
        (Status::expired("old"), 410, "Expired", "old"),
        (Status::gone("old"), 410, "Gone", "old"),
    ] {
        let body = status.to_json();
        assert_eq!(body["code"], code, "{message}");
        assert_eq!(body["reason"], reason, "{message}");
        assert_eq!(body["message"], message);
        assert_eq!(body["status"], "Failure");
        assert_eq!(status.to_string(), message);
    }
}

#[test]
fn invalid_lists_every_cause_and_says_each_message_once() {
    let error = FieldError::invalid("spec.minAvailable", -1, "too small");
    let one = Status::invalid(JOB, "j", std::slice::from_ref(&error));
    assert_eq!(one.message, r#"Job.batch.volcano.sh "j" is invalid: spec.minAvailable: Invalid value: -1: too small"#);
    let other = FieldError::required("spec.tasks", "");
    let status = Status::invalid(JOB, "j", &[error.clone(), other, error]);
    assert_eq!(
        status.to_json(),
        json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": "Job.batch.volcano.sh \"j\" is invalid: [spec.minAvailable: Invalid value: -1: too small, spec.tasks: Required value]",
            "reason": "Invalid",
            "code": 422,
            "details": {
                "name": "j",
                "group": "batch.volcano.sh",
                "kind": "Job",
                "causes": [
                    {"reason": "FieldValueInvalid", "message": "Invalid value: -1: too small", "field": "spec.minAvailable"},
                    {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.tasks"},
                    {"reason": "FieldValueInvalid", "message": "Invalid value: -1: too small", "field": "spec.minAvailable"}
                ]
            }
        })
    );
}

#[test]
fn a_finished_delete_is_a_success() {
    assert_eq!(
        deleted(JOBS, "j", "u-1"),
        json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": {"name": "j", "group": "batch.volcano.sh", "kind": "jobs", "uid": "u-1"}
        })
    );
}

#[test]
fn retry_advice_is_kept_beside_the_details() {
    let body = Status::generate_name_conflict(PODS, "x-abcde").to_json();
    assert_eq!(body["details"]["retryAfterSeconds"], 1);
    assert_eq!(body["details"]["name"], "x-abcde");
    let busy = Status::too_many_requests("slow down", 3).to_json();
    assert_eq!(busy["details"], json!({"retryAfterSeconds": 3}));
}
