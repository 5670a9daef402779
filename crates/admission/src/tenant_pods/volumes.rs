//! Volumes: which kinds a tenant's pods may have, and those that each of its containers is given.

use pumice_api::tenant::{TenantSpec, TenantVolume};
use pumice_machines::tenant::claim_name;
use pumice_objects::field::FieldError;
use serde_json::{Value, json};

use super::{LISTS, forbid, host_paths, is_empty, text};

/// What the names of given volumes begin with, before their numbers; a home is the first.
const GIVEN: &str = "pumice-tenant-";
/// Kinds of volumes that hold nothing of others. Folders of nodes and claims have rules of their own.
const OWN_KINDS: [&str; 7] =
    ["configMap", "secret", "emptyDir", "downwardAPI", "projected", "image", "persistentVolumeClaim"];
/// What is projected besides the tenant's own objects.
const OWN_SOURCES: [&str; 5] = ["configMap", "secret", "downwardAPI", "serviceAccountToken", "clusterTrustBundle"];

/// A volume that each container gets.
pub(super) struct Given {
    pub name: String,
    pub mount_path: String,
    read_only: bool,
    source: Value,
}

/// The tenant's home and volumes.
pub(super) fn given(tenant: &TenantSpec) -> Vec<Given> {
    let all = tenant.home.iter().chain(&tenant.volumes).enumerate();
    all.map(|(index, volume)| Given::new(format!("{GIVEN}{index}"), volume)).collect()
}

impl Given {
    fn new(name: String, volume: &TenantVolume) -> Self {
        let source = if volume.host_path.is_empty() {
            json!({"persistentVolumeClaim": {"claimName": claim_name(volume)}})
        } else {
            json!({"hostPath": {"path": volume.host_path, "type": "Directory"}})
        };
        Self { name, mount_path: volume.mount_path.clone(), read_only: volume.read_only, source }
    }

    pub(super) fn volume(&self) -> Value {
        let mut volume = self.source.clone();
        volume["name"] = json!(self.name);
        volume
    }

    pub(super) fn mount(&self) -> Value {
        let mut mount = json!({"name": self.name, "mountPath": self.mount_path});
        if self.read_only {
            mount["readOnly"] = json!(true);
        }
        mount
    }

    fn is(&self, volume: &Value) -> bool {
        let (kind, field) = match self.source.get("hostPath") {
            Some(_) => ("hostPath", "path"),
            None => ("persistentVolumeClaim", "claimName"),
        };
        volume[kind][field] == self.source[kind][field]
    }
}

/// Whether two paths of mounts are the same place.
pub(super) fn same_path(one: &str, other: &str) -> bool {
    one.trim_end_matches('/') == other.trim_end_matches('/')
}

/// Why a pod can't have its volumes, or not mount them as it does.
pub(crate) fn volume_refusals(spec: &Value, tenant: &TenantSpec) -> Vec<FieldError> {
    let given = given(tenant);
    let mut found = Vec::new();
    let mut read_only: Vec<&str> = Vec::new();
    for (index, volume) in spec["volumes"].as_array().into_iter().flatten().enumerate() {
        let path = format!("spec.volumes[{index}]");
        let name = text(&volume["name"]);
        if let Some(ours) = given.iter().find(|one| one.name == name)
            && !ours.is(volume)
        {
            found.push(forbid(
                format!("{path}.name"),
                format!("{name} is the tenant's own volume; name yours otherwise"),
            ));
        }
        for (kind, source) in volume.as_object().into_iter().flatten().filter(|(kind, _)| *kind != "name") {
            if !source.is_null() {
                source_refused(&format!("{path}.{kind}"), kind, source, tenant, &mut found);
            }
        }
        if is_read_only(volume, tenant) {
            read_only.push(name);
        }
    }
    mounts_refused(spec, &read_only, &mut found);
    found
}

fn source_refused(path: &str, kind: &str, source: &Value, tenant: &TenantSpec, found: &mut Vec<FieldError>) {
    match kind {
        "hostPath" => {
            let wanted = text(&source["path"]);
            match host_paths::allowed(wanted, tenant) {
                None => {
                    let detail = format!(
                        "{wanted:?} is not among the tenant's hostPaths; use a claim, or have an administrator add the folder"
                    );
                    found.push(forbid(format!("{path}.path"), detail));
                }
                Some((entry, rest)) if !rest.is_empty() => {
                    let detail = format!("mount {}, and name {rest:?} as subPath of the mounts", entry.path);
                    found.push(forbid(format!("{path}.path"), detail));
                }
                Some(_) => {}
            }
            if text(&source["type"]).ends_with("OrCreate") {
                let detail =
                    "the node would make it as its own; make it before, or mount the folder that it is to be in";
                found.push(forbid(format!("{path}.type"), detail));
            }
        }
        "projected" => {
            for (index, part) in source["sources"].as_array().into_iter().flatten().enumerate() {
                let kinds = part.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
                for (kind, _) in kinds.filter(|(kind, _)| !OWN_SOURCES.contains(&kind.as_str())) {
                    found.push(forbid(format!("{path}.sources[{index}].{kind}"), "is no tenant's to have; remove it"));
                }
            }
        }
        "ephemeral" => {
            let claim = &source["volumeClaimTemplate"]["spec"];
            found.extend(claim_refusals(claim, &|_| false).into_iter().map(|mut error| {
                error.path = format!("{path}.volumeClaimTemplate.{}", error.path);
                error
            }));
        }
        kind if OWN_KINDS.contains(&kind) => {}
        _ => {
            let detail =
                "a tenant's pods have claims, objects of their namespace, empty folders and images; use one of these";
            found.push(forbid(path, detail));
        }
    }
}

/// Whether a volume can't be written, by whatever way it is named.
fn is_read_only(volume: &Value, tenant: &TenantSpec) -> bool {
    let by_path = host_paths::allowed(text(&volume["hostPath"]["path"]), tenant).is_some_and(|(one, _)| one.read_only);
    let claim = text(&volume["persistentVolumeClaim"]["claimName"]);
    let mut of_claims = tenant.home.iter().chain(&tenant.volumes).filter(|one| !claim_name(one).is_empty());
    by_path || of_claims.any(|one| one.read_only && claim_name(one) == claim)
}

fn mounts_refused(spec: &Value, read_only: &[&str], found: &mut Vec<FieldError>) {
    if read_only.is_empty() {
        return;
    }
    for list in LISTS {
        for (index, container) in spec[list].as_array().into_iter().flatten().enumerate() {
            for (number, mount) in container["volumeMounts"].as_array().into_iter().flatten().enumerate() {
                if read_only.contains(&text(&mount["name"])) && mount["readOnly"] != true {
                    let path = format!("spec.{list}[{index}].volumeMounts[{number}].readOnly");
                    found.push(forbid(path, "must be true: the tenant may only read this hostPath or claim"));
                }
            }
            if !is_empty(&container["volumeDevices"]) {
                let devices = container["volumeDevices"].as_array().into_iter().flatten().enumerate();
                for (number, _) in devices.filter(|(_, device)| read_only.contains(&text(&device["name"]))) {
                    let path = format!("spec.{list}[{index}].volumeDevices[{number}]");
                    found.push(forbid(path, "the tenant may only read this volume; mount it with readOnly: true"));
                }
            }
        }
    }
}

/// A claim's specification. `is_theirs` says whether the tenant may have a PersistentVolume by name.
pub(crate) fn claim_refusals(spec: &Value, is_theirs: &dyn Fn(&str) -> bool) -> Vec<FieldError> {
    let mut found = Vec::new();
    let volume = text(&spec["volumeName"]);
    if !volume.is_empty() && !is_theirs(volume) {
        let detail = format!(
            "PersistentVolume {volume} is not this tenant's; leave the field out, or have an administrator name the volume in the Tenant"
        );
        found.push(forbid("spec.volumeName", detail));
    }
    for field in ["dataSource", "dataSourceRef"] {
        if !text(&spec[field]["namespace"]).is_empty() {
            found.push(forbid(
                format!("spec.{field}.namespace"),
                "data comes from the tenant's own namespace; remove the field",
            ));
        }
    }
    found
}
