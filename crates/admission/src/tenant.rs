//! Tenants: nothing is stored that no tenant may be, and one that is in use goes in two steps.
//!
//! Invariant: the list of refusals is [`pumice_machines::tenant`]'s, by which the controller goes too; here it is said at once. Who
//! was first at a uid, a namespace or a user is found by what was judged before, and looked up again before anything is
//! refused: what slips through two servers or two writes at once is the controller's to refuse.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use pumice_api::tenant::{REFUSED, Tenant, TenantSpec};
use pumice_machines::tenant::{Forbidden, change_refusal, refusal};

use crate::Findings;

/// What one Tenant has for itself alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Thing {
    Uid(i64),
    Namespace(String),
    User(String),
}

impl Thing {
    fn all(spec: &TenantSpec) -> Vec<Self> {
        let mut all = vec![Self::Uid(spec.uid), Self::Namespace(spec.namespace.clone())];
        if !spec.user.is_empty() {
            all.push(Self::User(spec.user.clone()));
        }
        all
    }

    fn is_in(&self, spec: &TenantSpec) -> bool {
        match self {
            Self::Uid(uid) => spec.uid == *uid,
            Self::Namespace(namespace) => spec.namespace == *namespace,
            Self::User(user) => spec.user == *user,
        }
    }

    fn taken_by(&self, owner: &str) -> String {
        let (field, value) = match self {
            Self::Uid(uid) => ("spec.uid", uid.to_string()),
            Self::Namespace(namespace) => ("spec.namespace", namespace.clone()),
            Self::User(user) => ("spec.user", user.clone()),
        };
        format!("{field}: {value} is the Tenant {owner}'s; choose another, or see it: pumice tenant show {owner}")
    }
}

/// Reads Tenants that are stored.
pub trait Tenants {
    /// The Tenant of that name.
    fn tenant(&self, name: &str) -> Option<Tenant>;
    /// All of them, in no order that means anything.
    fn tenants(&self) -> Vec<Tenant>;
}

/// Who had what when it was last looked at. An entry may be wrong, so that each is looked up before it counts.
#[derive(Clone, Debug, Default)]
pub struct Owners(Arc<Mutex<Option<HashMap<Thing, String>>>>);

impl Owners {
    /// What of a new or changed Tenant another has. Remembers what this one asks for.
    fn taken(&self, tenant: &Tenant, stored: &dyn Tenants) -> Option<String> {
        let name = tenant.metadata.name.clone().unwrap_or_default();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.get_or_insert_with(|| {
            let all = stored.tenants();
            let of = |tenant: &Tenant| {
                let name = tenant.metadata.name.clone().unwrap_or_default();
                Thing::all(&tenant.spec).into_iter().map(move |thing| (thing, name.clone())).collect::<Vec<_>>()
            };
            all.iter().flat_map(of).collect()
        });
        let things = Thing::all(&tenant.spec);
        let is_owner = |thing: &Thing, owner: &str| {
            // One that was refused has nothing.
            stored.tenant(owner).is_some_and(|other| thing.is_in(&other.spec) && other.status.phase != REFUSED)
        };
        for thing in &things {
            if let Some(owner) = known.get(thing).filter(|owner| **owner != name)
                && is_owner(thing, owner)
            {
                return Some(thing.taken_by(owner));
            }
        }
        known.extend(things.into_iter().map(|thing| (thing, name.clone())));
        None
    }
}

/// Judges a Tenant that is to be stored; `old` is the one that is there.
pub fn validate(
    new: &Tenant,
    old: Option<&Tenant>,
    forbidden: &Forbidden,
    (owners, stored): (&Owners, &dyn Tenants),
    findings: &mut Findings,
) {
    let old_refusal = old.and_then(|old| refusal(&old.spec, forbidden));
    let refused = refusal(&new.spec, forbidden);
    if let Some(refused) = refused {
        // What was stored under other rules can be suspended still, and mended one by one.
        if old_refusal.is_some() {
            findings.warn(format!("nothing is made of the Tenant: {refused}"));
        } else {
            findings.refuse(refused.to_string());
            return;
        }
    }
    if let Some(refused) = old.and_then(|old| change_refusal(old, &new.spec)) {
        findings.refuse(refused.to_string());
        return;
    }
    // What a Tenant has had, it is not asked about again.
    let asks = old.is_none_or(|old| Thing::all(&old.spec) != Thing::all(&new.spec));
    if asks && let Some(taken) = owners.taken(new, stored) {
        findings.refuse(taken);
    }
}

/// Judges the end of a Tenant: only one that is suspended goes, or of which nothing was made.
pub fn validate_delete(old: &Tenant, findings: &mut Findings) {
    if !old.spec.suspended && old.status.phase != REFUSED {
        let name = old.metadata.name.as_deref().unwrap_or_default();
        findings.refuse(format!(
            "a Tenant that is in use is not deleted; first: pumice tenant suspend {name}, then: pumice tenant delete {name}. Its \
             namespace {} and all that is in it stay.",
            old.spec.namespace
        ));
    }
}
