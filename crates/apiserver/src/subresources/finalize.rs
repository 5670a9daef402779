//! Finalize: changes `spec.finalizers` of a namespace, which no other path does.

use pumice_objects::status::Status;
use serde_json::Value;

use crate::body::Body;
use crate::pipeline::{Answer, Call};
use crate::registry::descriptor::Subresource;
use crate::verbs::update::{self, Edit};
use crate::verbs::write;

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
