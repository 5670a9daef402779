//! All Tenants, as far as they are known.
//!
//! Invariant: a Tenant never goes back to an older version of itself, so that the answer of a call and the watch may come in any
//! order.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pumice_api::tenant::Tenant;
use pumice_cluster::Change;

/// Every Tenant by name.
#[derive(Default)]
pub(crate) struct Tenants {
    pub by_name: BTreeMap<String, Tenant>,
    /// Whether a complete list was taken in.
    pub is_listed: bool,
}

impl Tenants {
    /// Takes a change in; names the directories that have to look at their Tenants again.
    pub fn take(&mut self, change: Change<Tenant>, touched: &mut BTreeSet<String>) {
        match change {
            Change::Replace(all) => {
                self.is_listed = true;
                touched.extend(self.by_name.values().chain(&all).filter_map(directory));
                self.by_name = all.into_iter().map(|tenant| (name(&tenant), tenant)).collect();
            }
            Change::Applied(tenant) => {
                let known = self.by_name.get(&name(&tenant));
                if known.is_some_and(|known| !is_newer(&known.metadata, &tenant.metadata)) {
                    return;
                }
                // Of a status nothing follows.
                if known.is_none_or(|known| known.spec != tenant.spec) {
                    touched.extend(known.into_iter().chain([&tenant]).filter_map(directory));
                }
                self.by_name.insert(name(&tenant), tenant);
            }
            Change::Deleted(tenant) => {
                let is_known =
                    self.by_name.get(&name(&tenant)).is_some_and(|known| known.metadata.uid == tenant.metadata.uid);
                if is_known && let Some(known) = self.by_name.remove(&name(&tenant)) {
                    touched.extend(directory(&known));
                }
            }
        }
    }
}

fn name(tenant: &Tenant) -> String {
    tenant.metadata.name.clone().unwrap_or_default()
}

fn directory(tenant: &Tenant) -> Option<String> {
    tenant.spec.directory.as_ref().map(|of| of.name.clone())
}

fn is_newer(old: &ObjectMeta, new: &ObjectMeta) -> bool {
    let version =
        |metadata: &ObjectMeta| metadata.resource_version.as_deref().and_then(|text| text.parse::<u64>().ok());
    old.uid != new.uid || version(new) >= version(old)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pumice_api::tenant::DirectoryEntry;

    fn tenant(version: &str, user: &str) -> Tenant {
        let mut tenant = Tenant::default();
        tenant.metadata.name = Some("alice".into());
        tenant.metadata.uid = Some("u".into());
        tenant.metadata.resource_version = Some(version.into());
        tenant.spec.user = user.into();
        tenant.spec.directory = Some(DirectoryEntry { name: "staff".into(), ..DirectoryEntry::default() });
        tenant
    }

    #[test]
    fn tenants_never_get_older_and_only_changes_are_looked_at() {
        let (mut tenants, mut touched) = (Tenants::default(), BTreeSet::new());
        tenants.take(Change::Replace(vec![tenant("9", "a")]), &mut touched);
        assert!(tenants.is_listed && touched.remove("staff"));
        tenants.take(Change::Applied(tenant("10", "a")), &mut touched);
        tenants.take(Change::Applied(tenant("9", "old")), &mut touched);
        assert!(touched.is_empty());
        assert_eq!(tenants.by_name["alice"].metadata.resource_version.as_deref(), Some("10"));
        tenants.take(Change::Applied(tenant("11", "b")), &mut touched);
        assert!(touched.remove("staff"));
        tenants.take(Change::Deleted(tenant("12", "b")), &mut touched);
        assert!(touched.remove("staff") && tenants.by_name.is_empty());
    }
}
