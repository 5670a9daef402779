//! Adding a container to a pod that runs: its image is got, its spec is resolved, and the pod's shim has it.
//!
//! Invariant: a request to the shim is written once, and stays; so this may be repeated after any crash without anything running
//! twice. What the pod was made with counts, not what would be given to it now: whose users it has, above all.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{EphemeralContainer, Pod};
use pumice_units::with_causes;

use crate::agent::start::{self, NodeContext, StartError};
use crate::confinement::allotment::PodDevices;
use crate::pod_images::{self, ImagesError, PodImages, Provider, Pulling};
use crate::pod_spec::ephemeral;
use crate::pod_spec::resolve::ResolveError;
use crate::pod_spec::security::PodUsers;
use crate::pod_spec::sources::{References, Sources};
use crate::spec_numbers;
use pumice_shim::ephemeral::EPHEMERAL_MAX;
use pumice_shim::spec::{ShimSpec, SpecError};

/// One container to add.
pub(crate) struct AddOrder {
    pub pod: Arc<Pod>,
    pub uid: String,
    pub address: Ipv4Addr,
    /// Which of the pod's `ephemeralContainers` it is.
    pub index: usize,
}

/// Why a container was not added; it is tried again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AddError {
    #[error(transparent)]
    Images(#[from] ImagesError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("can't read what the pod was made with")]
    Spec(#[from] SpecError),
    #[error("spec.ephemeralContainers: a pod has {EPHEMERAL_MAX} at most on this node")]
    TooMany,
    #[error("its name is no DNS label")]
    Name,
}

impl AddError {
    /// The reason that the waiting container shows.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            AddError::Images(error) => error.reason(),
            AddError::Start(error) => error.reason(),
            AddError::Spec(_) => "CreateContainerError",
            AddError::TooMany | AddError::Name => "CreateContainerConfigError",
        }
    }

    /// Whether an Event told of it when it happened.
    pub(crate) fn has_event(&self) -> bool {
        matches!(self, AddError::Images(error) if error.has_event())
    }

    /// What the waiting container says, which is the one at `index`.
    pub(crate) fn message(&self, index: usize) -> String {
        ephemeral::with_own_path(&with_causes(self), index)
    }
}

/// Has the shim of the pod start the container; gives what it runs.
pub(crate) async fn add(context: Arc<NodeContext>, order: AddOrder) -> Result<String, AddError> {
    let Some(added) = ephemeral::of(&order.pod).get(order.index).cloned() else { return Ok(String::new()) };
    if order.index >= EPHEMERAL_MAX {
        return Err(AddError::TooMany);
    }
    // It becomes a part of files' names.
    if pumice_objects::names::check_dns1123_label(&added.name).is_err() {
        return Err(AddError::Name);
    }
    let dir = context.pods_dir.join(&order.uid);
    if let Ok(before) = pumice_shim::ephemeral::read(&dir, &added.name) {
        // By an agent that ended before the shim heard of it.
        pumice_shim::ephemeral::request(&dir, &before).map_err(not_requested)?;
        return Ok(before.image_id);
    }
    let pod = ephemeral::alone(&order.pod, &added);
    spec_numbers::check(&pod).map_err(|error| StartError::from(ResolveError::from(error)))?;
    let images = match &context.images {
        Some(images) if pod_images::names_images(&pod) => {
            let provider = Provider {
                client: &context.client,
                images,
                map: context.image_map.as_deref(),
                events: &context.events,
                about: &order.pod,
            };
            Some(provider.provide(&pod, &Pulling::default()).await?)
        }
        _ => None,
    };
    let sources = References::of(&pod).fetch(&context.client, &pod).await;
    let sources = sources.map_err(|error| StartError::Fetch(Box::new(error)))?;
    let made = tokio::task::spawn_blocking(move || {
        make(&context, &dir, &Alone { pod, address: order.address, images, sources }, &added)
    });
    made.await.unwrap_or_else(|error| Err(StartError::Shim(error.to_string()).into()))
}

/// A pod with the added container as its only one, and what that refers to.
struct Alone {
    pod: Pod,
    address: Ipv4Addr,
    images: Option<PodImages>,
    sources: Sources,
}

fn make(context: &NodeContext, dir: &Path, alone: &Alone, added: &EphemeralContainer) -> Result<String, AddError> {
    let spec = ShimSpec::read(dir)?;
    let own = PodDevices::default();
    let view = start::device_view(context, &own);
    let ground = start::PodGround {
        pod: &alone.pod,
        dir,
        address: alone.address,
        sources: &alone.sources,
        images: alone.images.as_ref(),
        users: users(&spec),
        view: &view,
    };
    let mut resolved = start::resolve_on(context, &ground)?;
    view.give(&alone.pod, &mut [], &mut resolved.containers);
    let Some(container) = resolved.containers.pop() else { return Ok(String::new()) };
    let by_name = || alone.pod.spec.iter().flat_map(|spec| &spec.containers).find_map(pod_images::id_by_name);
    let image_id = match &alone.images {
        Some(images) => images.ids.get(&added.name).cloned().unwrap_or_default(),
        None => by_name().unwrap_or_default().to_owned(),
    };
    let target = added.target_container_name.clone().filter(|name| !name.is_empty());
    let request = pumice_shim::ephemeral::EphemeralContainer { container, target, image_id: image_id.clone() };
    pumice_shim::ephemeral::request(dir, &request).map_err(not_requested)?;
    Ok(image_id)
}

fn not_requested(source: std::io::Error) -> StartError {
    StartError::Prepare { step: "ask the pod's shim for the container", source }
}

/// Whose users a pod has that runs.
fn users(spec: &ShimSpec) -> PodUsers {
    if spec.users_by_root().is_some() {
        PodUsers::Own
    } else if spec.users.is_some() {
        PodUsers::Subordinate
    } else {
        PodUsers::Machines
    }
}
