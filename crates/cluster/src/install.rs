//! Objects that have to be there before anything else starts, such as custom resource definitions.

use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::write::{Failure, failure};

/// Why a definition is not there.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The definition is not an object with a name.
    #[error("a custom resource definition cannot be read")]
    ReadDefinition(#[source] serde_json::Error),
    /// The API server refused it.
    #[error("cannot install custom resource definition {name}")]
    WriteDefinition {
        name: String,
        #[source]
        source: Box<kube::Error>,
    },
}

/// Creates custom resource definitions, or brings the `spec` of existing ones up to date.
pub async fn install_definitions(client: &Client, definitions: Vec<Value>) -> Result<(), InstallError> {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    for definition in definitions {
        let object: DynamicObject = serde_json::from_value(definition).map_err(InstallError::ReadDefinition)?;
        let name = object.metadata.name.clone().unwrap_or_default();
        install(&api, &name, &object)
            .await
            .map_err(|source| InstallError::WriteDefinition { name, source: Box::new(source) })?;
    }
    Ok(())
}

async fn install(api: &Api<DynamicObject>, name: &str, wanted: &DynamicObject) -> Result<(), kube::Error> {
    match api.create(&PostParams::default(), wanted).await {
        Err(error) if failure(&error) == Failure::AlreadyExists => {}
        other => return other.map(drop),
    }
    let there = api.get(name).await?;
    if there.data["spec"] != wanted.data["spec"] {
        // Lists are replaced whole by a merge, so a version that is gone from ours goes from theirs.
        let patch = json!({"spec": wanted.data["spec"]});
        api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
    }
    Ok(())
}
