//! A job's volumes: the claims they need, and how its pods mount them.
//!
//! Invariant: the name of a generated claim follows from the job's uid and the volume's place, so that making it twice is
//! making it once. A claim that is only named must be made by the user: the job waits for it. A pod has one volume for each
//! claim, mounted into every container and no init container; a volume without a claim is an emptyDir of the pod, as in Volcano's
//! first articles.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    EmptyDirVolumeSource, PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, PodSpec, Volume, VolumeMount,
};
use pumice_api::batch::{Job, VolumeSpec};
use pumice_units::stable_hash;

use crate::job::plan::Effect;
use crate::job_object;

const RESOURCE_PREFIX: &str = "volume-pvc-";
/// Longest part of the job's name in a volume name, which is a DNS label.
const JOB_NAME_MAX: usize = 40;
const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// Whether the claims are there.
pub(in crate::job) enum Claims {
    /// They are, once these have been made.
    Ready(Vec<Effect>),
    /// This one is not, and is the user's to make.
    Missing(String),
}

/// Name of the claim of a volume; `None` for a volume without a claim, which is an emptyDir.
fn claim_name(job: &Job, position: usize, volume: &VolumeSpec) -> Option<String> {
    if !volume.volume_claim_name.is_empty() {
        return Some(volume.volume_claim_name.clone());
    }
    volume.volume_claim.as_ref()?;
    Some(format!("{}-pvc-{}", job_object::name(job), suffix(job_object::uid(job), position)))
}

/// Which claims are to be made, or the one that the user has yet to make.
pub(in crate::job) fn claims(job: &Job, existing: &BTreeSet<String>) -> Claims {
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

/// Gives a pod the job's volumes, and mounts them.
pub(in crate::job) fn mount(job: &Job, pod: &mut PodSpec) {
    let mut mounted = BTreeSet::new();
    for (position, wanted) in job.spec.volumes.iter().enumerate() {
        let claim = claim_name(job, position, wanted);
        if claim.as_ref().is_some_and(|claim| !mounted.insert(claim.clone())) {
            continue;
        }
        let job_name = job_object::name(job);
        let short = &job_name[..job_name.floor_char_boundary(JOB_NAME_MAX)];
        let name = format!("{}-volume-{position}", short.trim_end_matches(['-', '.']).replace('.', "-"));
        let mut volume = Volume { name: name.clone(), ..Volume::default() };
        match claim {
            Some(claim_name) => {
                let source = PersistentVolumeClaimVolumeSource { claim_name, ..Default::default() };
                volume.persistent_volume_claim = Some(source);
            }
            None => volume.empty_dir = Some(EmptyDirVolumeSource::default()),
        }
        pod.volumes.get_or_insert_default().push(volume);
        for container in &mut pod.containers {
            let mount = VolumeMount { name: name.clone(), mount_path: wanted.mount_path.clone(), ..Default::default() };
            container.volume_mounts.get_or_insert_default().push(mount);
        }
    }
}

/// Entries of `status.controlledResources` for the claims, each under its name with a prefix.
pub(in crate::job) fn claim_resources(job: &Job) -> BTreeMap<String, String> {
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
