//! Suspended tenants: who has no access any more, by the Tenants of now.
//!
//! Invariant: a [`Suspensions`] never changes; it is made anew as soon as a Tenant has changed, which every request checks first.
//! Where no Tenant is suspended it is empty and a request costs one comparison. The platform's own users and administrators are
//! never in it, whatever a Tenant says.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use pumice_api::tenant::Tenant;
use pumice_auth::{Identity, MASTERS, is_reserved, service_account_of};
use pumice_store::Store;

/// The store's name of Tenants.
pub(crate) const TENANTS: &str = "pumice.sh/tenants";

/// Tenants of somebody: whether one of them is in use, and one that is suspended.
#[derive(Debug, Default)]
struct Membership {
    is_active: bool,
    suspended: Option<String>,
}

impl Membership {
    fn add(&mut self, tenant: &str, is_suspended: bool) {
        if is_suspended {
            self.suspended.get_or_insert_with(|| tenant.to_owned());
        } else {
            self.is_active = true;
        }
    }
}

/// Whose access has ended.
#[derive(Debug, Default)]
pub(crate) struct Suspensions {
    /// Users by the Tenants that are their own.
    owners: HashMap<String, Membership>,
    members: HashMap<String, Membership>,
    groups: HashMap<String, Membership>,
    /// Suspended tenants by their namespace.
    namespaces: BTreeMap<String, String>,
}

impl Suspensions {
    /// What these Tenants, by name, make of their users.
    fn new<'t>(tenants: impl Iterator<Item = (&'t str, Tenant)>) -> Self {
        let mut made = Self::default();
        for (name, Tenant { spec, .. }) in tenants {
            let is_suspended = spec.suspended;
            if is_suspended {
                made.namespaces.insert(spec.namespace, name.to_owned());
            }
            if !spec.user.is_empty() {
                made.owners.entry(spec.user).or_default().add(name, is_suspended);
            }
            for member in spec.members {
                made.members.entry(member).or_default().add(name, is_suspended);
            }
            for group in spec.member_groups {
                made.groups.entry(group).or_default().add(name, is_suspended);
            }
        }
        if made.namespaces.is_empty() { Self::default() } else { made }
    }

    /// Whether there could be a suspended tenant on account of which he has no access. The platform's components, who write most
    /// Tenants, are asked about nothing, and so pay for no look at all of them after each.
    pub(crate) fn concern(identity: &Identity) -> bool {
        let is_account = service_account_of(&identity.user).is_some();
        !identity.is_in(MASTERS) && (is_account || !is_reserved(&identity.user))
    }

    /// The suspended tenant on account of which somebody has no access. `in_pod` is whether he is a pod's own account, shown by
    /// a token that ends with the pod: what runs on may go on to its end.
    ///
    /// The Tenant that is a user's own decides: who is suspended there is out everywhere. Who is only a member somewhere is out
    /// once all of his tenants are suspended.
    pub(crate) fn ends(&self, identity: &Identity, in_pod: bool) -> Option<&str> {
        if self.namespaces.is_empty() || !Self::concern(identity) {
            return None;
        }
        if let Some((namespace, _)) = service_account_of(&identity.user) {
            return if in_pod { None } else { self.namespaces.get(namespace).map(String::as_str) };
        }
        if let Some(own) = self.owners.get(&identity.user) {
            return if own.is_active { None } else { own.suspended.as_deref() };
        }
        let by_group = identity.groups.iter().filter_map(|group| self.groups.get(group));
        let mut suspended = None;
        for membership in self.members.get(&identity.user).into_iter().chain(by_group) {
            if membership.is_active {
                return None;
            }
            suspended = suspended.or(membership.suspended.as_deref());
        }
        suspended
    }
}

/// Whether a Tenant names somebody as its user, or as a member. Reads all Tenants: for logins, not for requests.
pub(crate) fn is_of_a_tenant(store: &Store, user: &str) -> bool {
    store.list(TENANTS, None).items.iter().any(|object| {
        serde_json::from_slice::<Tenant>(&object.body)
            .is_ok_and(|Tenant { spec, .. }| spec.user == user || spec.members.iter().any(|member| member == user))
    })
}

/// The suspensions of now.
#[derive(Default)]
pub(crate) struct SuspensionsCell(RwLock<(Option<u64>, Arc<Suspensions>)>);

impl SuspensionsCell {
    pub(crate) fn load(&self, store: &Store) -> Arc<Suspensions> {
        // Taken before the objects are read: what changes in between is read again at the next look.
        let [changed] = store.changed([TENANTS]);
        {
            let current = self.0.read().unwrap_or_else(PoisonError::into_inner);
            if current.0 == Some(changed) {
                return Arc::clone(&current.1);
            }
        }
        let objects = store.list(TENANTS, None).items;
        let tenants = objects.iter().filter_map(|object| match serde_json::from_slice(&object.body) {
            Ok(tenant) => Some((&*object.key.name, tenant)),
            Err(error) => {
                tracing::warn!(%error, tenant = &*object.key.name, "a Tenant can't be read");
                None
            }
        });
        let made = Arc::new(Suspensions::new(tenants));
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = (Some(changed), Arc::clone(&made));
        made
    }
}

#[cfg(test)]
mod tests {
    use pumice_api::tenant::TenantSpec;

    use super::*;

    fn tenant(user: &str, members: &[&str], groups: &[&str], suspended: bool) -> Tenant {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let spec = TenantSpec {
            user: user.to_owned(),
            members: owned(members),
            member_groups: owned(groups),
            namespace: format!("ns-{user}"),
            suspended,
            ..TenantSpec::default()
        };
        Tenant { spec, ..Tenant::default() }
    }

    fn suspensions() -> Suspensions {
        Suspensions::new(
            [
                ("alice", tenant("alice", &[], &[], true)),
                ("bob", tenant("bob", &[], &[], false)),
                ("team", tenant("", &["alice", "bob", "carol"], &["desk"], false)),
                ("old-team", tenant("", &["carol", "dave", "bob"], &["night"], true)),
                ("odd", tenant("system:admin", &["pumice:node"], &["system:authenticated"], true)),
                ("spare", tenant("erin", &[], &[], true)),
                ("erin", tenant("erin", &[], &[], false)),
            ]
            .into_iter(),
        )
    }

    #[test]
    fn the_own_tenant_decides_and_members_are_out_with_the_last() {
        let all = suspensions();
        let ends = |user: &str, groups: &[&str]| all.ends(&Identity::new(user, groups.iter().copied()), false);
        assert_eq!(ends("alice", &[]), Some("alice"), "though a team of hers goes on");
        assert_eq!(ends("bob", &["night"]), None, "though a team of his is suspended");
        assert_eq!(ends("carol", &[]), None, "one of her teams goes on");
        assert_eq!(ends("erin", &[]), None, "one of her own goes on");
        assert_eq!(ends("frank", &["desk", "night"]), None);
        // The group of everybody stands in a suspended Tenant, and so do these two.
        assert_eq!(ends("dave", &[]), Some("old-team"));
        assert_eq!(ends("grace", &["night"]), Some("night").map(|_| "old-team"));
    }

    #[test]
    fn administrators_and_components_are_never_out() {
        let all = suspensions();
        for (user, groups) in [("pumice:node", &[][..]), ("system:admin", &[]), ("alice", &[MASTERS])] {
            assert_eq!(all.ends(&Identity::new(user, groups.iter().copied()), false), None, "{user}");
        }
        let robot = Identity::service_account("ns-alice", "default");
        assert_eq!(all.ends(&robot, false), Some("alice"));
        assert_eq!(all.ends(&robot, true), None, "what runs may go on to its end");
        assert_eq!(all.ends(&Identity::service_account("ns-bob", "default"), false), None);
    }

    #[test]
    fn nothing_is_indexed_where_nobody_is_suspended() {
        let made = Suspensions::new([("bob", tenant("bob", &["x"], &["y"], false))].into_iter());
        assert!(made.owners.is_empty() && made.members.is_empty() && made.groups.is_empty());
    }
}
