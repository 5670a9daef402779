//! Volumes of a job. The first error ends the search, as in Volcano.

use std::collections::BTreeSet;

use pumice_api::batch::VolumeSpec;
use pumice_objects::names::check_dns1123_subdomain;

use crate::Findings;

/// Judges the volumes of a new job.
pub(super) fn validate(volumes: &[VolumeSpec], findings: &mut Findings) {
    let mut paths = BTreeSet::new();
    for volume in volumes {
        let path = volume.mount_path.as_str();
        if path.is_empty() {
            return findings.refuse("mountPath is required;");
        }
        if !paths.insert(path) {
            return findings.refuse(format!("duplicated mountPath: {path};"));
        }
        let name = volume.volume_claim_name.as_str();
        match (name.is_empty(), &volume.volume_claim) {
            (true, None) => findings.warn(format!(
                "volume {path} names no claim: each pod gets an empty directory there that goes with the pod"
            )),
            (false, Some(_)) => findings.warn(format!(
                "volume {path} names claim {name} and describes it: the claim is made if it does not exist"
            )),
            _ => {}
        }
        if !name.is_empty()
            && let Err(error) = check_dns1123_subdomain(name)
        {
            return findings.refuse(format!("invalid VolumeClaimName {name} : [{error}]"));
        }
    }
}
