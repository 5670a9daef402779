//! Subresources that are no part of the stored object.

pub(crate) mod binding;
pub(crate) mod eviction;
pub(crate) mod finalize;
pub(crate) mod log;
pub(crate) mod on_node;
pub(crate) mod scale;
pub(crate) mod stream;
pub(crate) mod token;

use http::{Response, StatusCode};
use serde_json::json;

use crate::http::body::Body;
use crate::http::respond::json as json_response;

/// 201 with a bare success.
fn done() -> Response<Body> {
    let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201 });
    json_response(StatusCode::CREATED, status.to_string())
}
