//! A job's volumes inside its pods.
//!
//! Invariant: one pod volume for each claim; mounts go into every container and no init container. A volume without a claim
//! is an emptyDir of the pod, as in Volcano's first articles.

use k8s_openapi::api::core::v1::{
    EmptyDirVolumeSource, PersistentVolumeClaimVolumeSource, PodSpec, Volume, VolumeMount,
};
use pumice_api::batch::Job;

use crate::job::pods::claims;
use crate::job_object;

/// Longest part of the job's name in a volume name, which is a DNS label.
const JOB_NAME_MAX: usize = 40;

pub(in crate::job) fn mount(job: &Job, pod: &mut PodSpec) {
    let mut mounted = std::collections::BTreeSet::new();
    for (position, wanted) in job.spec.volumes.iter().enumerate() {
        let claim = claims::claim_name(job, position, wanted);
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
