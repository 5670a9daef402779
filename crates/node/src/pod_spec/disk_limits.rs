//! What a pod reads and writes a second at most, by its annotations: Kubernetes has no field for it.
//!
//! Invariant: pure; a limit that this node can't hold the pod to is refused, not passed over. Called when a pod is resolved.

use k8s_openapi::api::core::v1::Pod;
use pumice_linux::cgroup::DiskLimits;
use pumice_units::Quantity;

use crate::pod_spec::security::{Refusal, refuse};

const READ: &str = "pumice.sh/io-read-bytes-per-second";
const WRITE: &str = "pumice.sh/io-write-bytes-per-second";

/// The limits of a pod, if it has some, on a node that has or has not what holds pods to them.
pub(crate) fn of_pod(pod: &Pod, node_limits: bool) -> Result<Option<DiskLimits>, Refusal> {
    let annotations = pod.metadata.annotations.as_ref();
    let limit = |name: &str| {
        let Some(text) = annotations.and_then(|annotations| annotations.get(name)) else { return Ok(None) };
        let path = format!("metadata.annotations[{name}]");
        let bytes = text.parse::<Quantity>().ok().and_then(|bytes| u64::try_from(bytes.value()).ok());
        match bytes {
            Some(bytes) if bytes > 0 && node_limits => Ok(Some(bytes)),
            Some(bytes) if bytes > 0 => refuse(
                path,
                "this node has nothing that limits what pods read and write: it takes the controller of disks (blkio, in version \
                 2 io) and a data directory on a disk of the machine; leave the annotation out, or choose another node",
            ),
            _ => refuse(path, format!("{text:?} is no quantity of bytes above 0; try 10Mi")),
        }
    };
    let limits = DiskLimits { read_bytes_per_second: limit(READ)?, write_bytes_per_second: limit(WRITE)? };
    Ok(if limits == DiskLimits::default() { None } else { Some(limits) })
}

#[cfg(test)]
mod tests {
    use super::*;

    use serde_json::json;

    #[test]
    fn limits_are_quantities_that_the_node_can_hold_pods_to() {
        let of = |name: &str, value: &str, node_limits| {
            let pod = json!({"metadata": {"annotations": {name: value}}});
            of_pod(&serde_json::from_value(pod).unwrap(), node_limits).map_err(|refusal| refusal.to_string())
        };
        let write = |bytes| DiskLimits { write_bytes_per_second: Some(bytes), ..DiskLimits::default() };
        let read = |bytes| DiskLimits { read_bytes_per_second: Some(bytes), ..DiskLimits::default() };
        assert_eq!(of(WRITE, "10Mi", true), Ok(Some(write(10 << 20))));
        assert_eq!(of(READ, "500k", true), Ok(Some(read(500_000))));
        assert_eq!(of("pumice.sh/other", "x", false), Ok(None));
        for value in ["fast", "", "0", "-1Mi"] {
            let refused = of(READ, value, true).unwrap_err();
            assert_eq!(
                refused,
                format!("metadata.annotations[{READ}]: {value:?} is no quantity of bytes above 0; try 10Mi")
            );
        }
        let refused = of(WRITE, "10Mi", false).unwrap_err();
        assert!(refused.starts_with(&format!("metadata.annotations[{WRITE}]: this node has nothing")), "{refused}");
    }
}
