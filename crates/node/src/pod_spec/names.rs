//! By which names a pod is known: to its peers, and to its own programs.
//!
//! Invariant: pure. Called when a pod is resolved, and for the hosts files of its peers.

use std::path::Path;

use k8s_openapi::api::core::v1::Pod;

use pumice_shim::spec::MountSpec;

/// The host name by which its peers know a pod; cut as the kubelet cuts it.
pub(crate) fn hostname(pod: &Pod) -> String {
    let named = pod.spec.as_ref().and_then(|spec| spec.hostname.clone()).filter(|name| !name.is_empty());
    let mut name = named.or_else(|| pod.metadata.name.clone()).unwrap_or_default();
    name.truncate(name.floor_char_boundary(63));
    name.trim_end_matches(['-', '.']).to_owned()
}

/// Most bytes of a host name, by the kernel.
pub(crate) const FQDN_BYTES_MAX: usize = 64;

/// The whole name of a pod in its subdomain, if that is to be its host name.
pub(crate) fn full_name(pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref().filter(|spec| spec.set_hostname_as_fqdn == Some(true))?;
    let subdomain = spec.subdomain.as_deref().filter(|name| !name.is_empty())?;
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    Some(format!("{}.{subdomain}.{namespace}.svc.cluster.local", hostname(pod)))
}

/// The host name that a pod sees.
pub(crate) fn own_name(pod: &Pod) -> String {
    full_name(pod).unwrap_or_else(|| hostname(pod))
}

/// Files of the pod's directory that every container gets. Whom the pod asks for addresses is not for its programs to say.
pub(crate) fn common_mounts(dir: &Path) -> Vec<MountSpec> {
    let mount = |name: &str, read_only| MountSpec {
        source: dir.join(name),
        sub_path: None,
        target: Path::new("/etc").join(name),
        read_only,
    };
    vec![mount("hosts", false), mount("hostname", false), mount("resolv.conf", true)]
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn host_names_fit_the_kernel() {
        let named = |name: &str, hostname: Value| {
            hostname_of(json!({"metadata": {"name": name}, "spec": {"containers": [], "hostname": hostname}}))
        };
        assert_eq!(named("p", json!("h")), "h");
        assert_eq!(named("p", json!(null)), "p");
        assert_eq!(named(&format!("{}-b", "a".repeat(62)), json!(null)), "a".repeat(62));
    }

    #[test]
    fn the_whole_name_is_the_host_name_where_that_is_wanted() {
        let named = |wanted: bool, subdomain: &str| {
            let pod = json!({"metadata": {"name": "p", "namespace": "n"},
                "spec": {"containers": [], "setHostnameAsFQDN": wanted, "subdomain": subdomain}});
            own_name(&serde_json::from_value(pod).unwrap())
        };
        let found = [(true, "s"), (false, "s"), (true, "")].map(|(wanted, subdomain)| named(wanted, subdomain));
        assert_eq!(found, ["p.s.n.svc.cluster.local", "p", "p"]);
    }

    fn hostname_of(pod: Value) -> String {
        hostname(&serde_json::from_value(pod).unwrap())
    }
}
