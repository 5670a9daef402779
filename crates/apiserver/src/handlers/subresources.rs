//! Subresources that are no part of the stored object.

pub(crate) mod binding;
pub(crate) mod eviction;
pub(crate) mod log;
pub(crate) mod on_node;
pub(crate) mod scale;
pub(crate) mod stream;
pub(crate) mod token;

use http::{Response, StatusCode};
use pumice_objects::status::Status;
use serde_json::{Value, json};

use crate::context::Call;
use crate::handlers::verbs::update::{self, Edit};
use crate::handlers::verbs::write;
use crate::http::body::Body;
use crate::http::respond::{Answer, json as json_response};
use crate::kinds::descriptor::Subresource;

/// 201 with a bare success.
fn done() -> Response<Body> {
    let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201 });
    json_response(StatusCode::CREATED, status.to_string())
}

struct Finalizers(Value);

impl Edit for Finalizers {
    fn edit(&self, _old: &Value) -> Result<Value, Status> {
        Ok(self.0.clone())
    }
}

/// Answers an update of `namespaces/x/finalize`, the only path that changes `spec.finalizers` of a namespace.
pub(crate) async fn finalize(call: &Call, body: Body) -> Answer {
    let decoded = write::read_object(call, body).await?;
    update::run(call, Some(&Subresource::Finalize), &Finalizers(decoded.value)).await
}
