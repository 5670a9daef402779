//! Finalize: changes `spec.finalizers` of a namespace, which no other path does.

use pumice_objects::status::Status;
use serde_json::Value;

use crate::context::Call;
use crate::handlers::verbs::update::{self, Edit};
use crate::handlers::verbs::write;
use crate::http::body::Body;
use crate::http::respond::Answer;
use crate::kinds::descriptor::Subresource;

struct Finalizers(Value);

impl Edit for Finalizers {
    fn edit(&self, _old: &Value) -> Result<Value, Status> {
        Ok(self.0.clone())
    }
}

/// Answers an update of `namespaces/x/finalize`.
pub(crate) async fn finalize(call: &Call, body: Body) -> Answer {
    let decoded = write::read_object(call, body).await?;
    update::run(call, Some(&Subresource::Finalize), &Finalizers(decoded.value)).await
}
