//! The claims a job's volumes need.
//!
//! Invariant: the name of a generated claim follows from the job's uid and the volume's place, so that making it twice is
//! making it once. A claim that is only named must be made by the user: the job waits for it.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use pumice_api::batch::{Job, VolumeSpec};
use pumice_units::stable_hash;

use crate::job::plan::Effect;
use crate::job_object;

const RESOURCE_PREFIX: &str = "volume-pvc-";
const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// Whether the claims are there.
pub(in crate::job) enum Claims {
    /// They are, once these have been made.
    Ready(Vec<Effect>),
    /// This one is not, and is the user's to make.
    Missing(String),
}

/// Name of the claim of a volume; `None` for a volume without a claim, which is an emptyDir.
pub(in crate::job) fn claim_name(job: &Job, position: usize, volume: &VolumeSpec) -> Option<String> {
    if !volume.volume_claim_name.is_empty() {
        return Some(volume.volume_claim_name.clone());
    }
    volume.volume_claim.as_ref()?;
    Some(format!("{}-pvc-{}", job_object::name(job), suffix(job_object::uid(job), position)))
}

pub(in crate::job) fn look(job: &Job, existing: &BTreeSet<String>) -> Claims {
    let mut create = BTreeMap::new();
    for (position, volume) in job.spec.volumes.iter().enumerate() {
        let Some(name) = claim_name(job, position, volume) else { continue };
        if existing.contains(&name) || create.contains_key(&name) {
            continue;
        }
        let Some(spec) = &volume.volume_claim else { return Claims::Missing(name) };
        let claim = PersistentVolumeClaim {
            metadata: job_object::metadata(job, name.clone()),
            spec: Some(spec.clone()),
            ..PersistentVolumeClaim::default()
        };
        create.insert(name, Effect::CreateClaim(Box::new(claim)));
    }
    Claims::Ready(create.into_values().collect())
}

/// Entries of `controlledResources`.
pub(in crate::job) fn resources(job: &Job) -> BTreeMap<String, String> {
    let volumes = job.spec.volumes.iter().enumerate();
    let claims = volumes.filter_map(|(position, volume)| claim_name(job, position, volume));
    claims.map(|claim| (format!("{RESOURCE_PREFIX}{claim}"), claim)).collect()
}

/// Twelve characters that look random and aren't: a hash of uid and place.
fn suffix(uid: &str, position: usize) -> String {
    let mut hash = stable_hash(uid.bytes().chain(position.to_le_bytes()));
    let digit = |hash: &mut u64| {
        let digit = DIGITS[(*hash % 36) as usize];
        *hash /= 36;
        char::from(digit)
    };
    (0..12).map(|_| digit(&mut hash)).collect()
}
