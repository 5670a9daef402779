//! The names that a quota's `hard` may have, and whose objects use what they name.

pub(crate) const PODS: &str = "pods";
pub(crate) const CLAIMS: &str = "persistentvolumeclaims";
pub(crate) const SERVICES: &str = "services";
/// Kinds that are counted by their bare name, too.
pub(crate) const COUNTED: [&str; 6] =
    ["configmaps", CLAIMS, "replicationcontrollers", "resourcequotas", "secrets", SERVICES];
/// Between a storage class and what is counted of it.
pub(crate) const OF_CLASS: &str = ".storageclass.storage.k8s.io/";
/// Resources of containers that are also counted without `requests.` before them.
pub(crate) const PLAIN: [&str; 3] = ["cpu", "ephemeral-storage", "memory"];

/// The store's resource whose objects use what `hard` calls by this name. Nothing for a name that nothing uses.
pub(crate) fn used_by(name: &str) -> Option<String> {
    if let Some(counted) = name.strip_prefix("count/") {
        return match counted.split_once('.') {
            None => Some(counted.to_owned()),
            Some((plural, group)) => Some(format!("{group}/{plural}")),
        };
    }
    if name == "requests.storage" || name.contains(OF_CLASS) {
        return Some(CLAIMS.to_owned());
    }
    if COUNTED.contains(&name) {
        return Some(name.to_owned());
    }
    if name.starts_with("services.") {
        return Some(SERVICES.to_owned());
    }
    let of_pods = name == PODS
        || PLAIN.contains(&name)
        || ["requests.", "limits.", "hugepages-"].iter().any(|prefix| name.starts_with(prefix));
    of_pods.then(|| PODS.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_belong_to_resources() {
        for (name, resource) in [
            ("cpu", Some("pods")),
            ("requests.nvidia.com/gpu", Some("pods")),
            ("limits.memory", Some("pods")),
            ("pods", Some("pods")),
            ("requests.storage", Some("persistentvolumeclaims")),
            ("gold.storageclass.storage.k8s.io/requests.storage", Some("persistentvolumeclaims")),
            ("services.nodeports", Some("services")),
            ("secrets", Some("secrets")),
            ("count/jobs.batch.volcano.sh", Some("batch.volcano.sh/jobs")),
            ("count/configmaps", Some("configmaps")),
            ("odd", None),
        ] {
            assert_eq!(used_by(name).as_deref(), resource, "{name}");
        }
    }
}
