//! What becomes of the Tenants that a directory has already.

use std::collections::{BTreeMap, BTreeSet};

use pumice_api::tenant::{Tenant, TenantSpec};

use super::{ChangeKind, DirectoryView, Entry, Remarks, TenantChange, TenantEffect, groups, names};

/// A Tenant of the directory, and what was found of its entry.
pub(super) struct Fate<'a> {
    pub name: &'a str,
    pub tenant: &'a Tenant,
    pub found: Found<'a>,
}

/// What was found of a Tenant's entry.
pub(super) enum Found<'a> {
    /// It is there, and is the one that it was.
    Entry(&'a Entry, Box<TenantSpec>),
    /// He has left, or may not come in, and why.
    Left(&'static str),
    /// He is there as somebody who may not work here, and why.
    Refused(String),
    /// Nobody knows: nothing is changed.
    Doubtful,
}

impl Fate<'_> {
    /// Whether it stops a Tenant that is in use.
    pub fn is_suspension(&self) -> bool {
        matches!(self.found, Found::Left(_) | Found::Refused(_)) && !self.tenant.spec.suspended
    }

    /// The user's name that it has from now on.
    pub fn user(&self) -> &str {
        match &self.found {
            Found::Entry(entry, _) => &entry.user,
            _ => &self.tenant.spec.user,
        }
    }
}

/// Looks for the entry of each Tenant of the directory, in the order of their names.
pub(super) fn fates<'a>(
    view: &DirectoryView<'a>,
    by_id: &BTreeMap<&str, Option<&'a Entry>>,
    remarks: &mut Remarks,
) -> Vec<Fate<'a>> {
    let mut followed = BTreeSet::new();
    let mut fates = Vec::new();
    for (name, tenant) in view.tenants {
        let Some(of) = tenant.spec.directory.as_ref().filter(|of| of.name == view.name) else { continue };
        let found = if !followed.insert(of.id.as_str()) {
            Found::Refused("follows the entry of another Tenant".to_owned())
        } else {
            match by_id.get(of.id.as_str()) {
                None => Found::Left("is gone from the directory"),
                Some(None) => Found::Doubtful,
                Some(Some(entry)) => look(view, tenant, entry, remarks),
            }
        };
        fates.push(Fate { name, tenant, found });
    }
    settle_names(view, &mut fates);
    fates
}

fn look<'a>(view: &DirectoryView<'a>, tenant: &Tenant, entry: &'a Entry, remarks: &mut Remarks) -> Found<'a> {
    if entry.disabled {
        return Found::Left("is disabled in the directory");
    }
    if let Err(why) = names::check_user(&entry.user) {
        return Found::Refused(format!("is called {:?} in the directory: {why}", entry.user));
    }
    let uid = tenant.spec.uid;
    let Some(entry_uid) = entry.uid else {
        return Found::Refused("has no uid in the directory".to_owned());
    };
    if entry_uid != uid {
        return Found::Refused(format!(
            "has uid {entry_uid} in the directory and {uid} in the Tenant, which is another one: a uid is never changed"
        ));
    }
    let mut spec = tenant.spec.clone();
    spec.user.clone_from(&entry.user);
    if let Some(gid) = entry.gid.filter(|gid| *gid != spec.gid) {
        let name = &spec.namespace;
        remarks.flag(format!(
            "{name} has gid {gid} in the directory and {} in the Tenant: change spec.gid while it is suspended",
            spec.gid
        ));
    }
    spec.groups = groups(view, entry, remarks);
    match (view.refusal)(&spec) {
        Some(why) => Found::Refused(why),
        None => Found::Entry(entry, Box::new(spec)),
    }
}

/// Sees to it that no two Tenants have one name. Who can't have the name that he has in the directory is stopped, since his old
/// name may be somebody else's by now; he goes on holding it, which may stop the next one.
fn settle_names(view: &DirectoryView<'_>, fates: &mut [Fate<'_>]) {
    let own: BTreeSet<&str> = fates.iter().map(|fate| fate.name).collect();
    let others: BTreeMap<&str, &str> = view
        .tenants
        .iter()
        .filter(|(name, tenant)| !own.contains(name.as_str()) && !tenant.spec.user.is_empty())
        .map(|(name, tenant)| (tenant.spec.user.as_str(), name.as_str()))
        .collect();
    loop {
        let mut holders: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (index, fate) in fates.iter().enumerate() {
            holders.entry(fate.user().to_owned()).or_default().push(index);
        }
        let mut lost: Vec<(usize, String)> = Vec::new();
        for (user, indices) in &holders {
            let other = others.get(user.as_str()).map(|name| (*name).to_owned());
            // Who is not renamed goes first; of those who are gone the name is not free either.
            let first = indices.iter().copied().min_by_key(|index| {
                let fate = &fates[*index];
                (matches!(fate.found, Found::Entry(..)), fate.tenant.spec.user != *user, *index)
            });
            for index in indices {
                let holder = match (&other, first) {
                    (Some(other), _) => other.clone(),
                    (None, Some(first)) if first != *index => fates[first].name.to_owned(),
                    _ => continue,
                };
                if matches!(fates[*index].found, Found::Entry(..)) {
                    lost.push((
                        *index,
                        format!("is called {user} in the directory, as the user of Tenant {holder} is"),
                    ));
                }
            }
        }
        if lost.is_empty() {
            return;
        }
        for (index, why) in lost {
            fates[index].found = Found::Refused(why);
        }
    }
}

/// The changes of those that are there.
pub(super) fn changes(view: &DirectoryView<'_>, fates: &[Fate<'_>], remarks: &mut Remarks) -> Vec<TenantEffect> {
    fates.iter().filter_map(|fate| change(view, fate, remarks)).collect()
}

fn change(view: &DirectoryView<'_>, fate: &Fate<'_>, remarks: &mut Remarks) -> Option<TenantEffect> {
    let Fate { name, tenant, found } = fate;
    let metadata = &tenant.metadata;
    if metadata.deletion_timestamp.is_some() {
        return None;
    }
    let (spec, kind, message) = match found {
        Found::Doubtful => {
            remarks.flag(format!("{name}: nobody knows whether it is still there, and it stays as it is"));
            return None;
        }
        Found::Left(why) => {
            if tenant.spec.suspended {
                remarks.away += 1;
                return None;
            }
            remarks.flag(format!("{name} {why}"));
            suspend(view, name, tenant, why)
        }
        Found::Refused(why) => {
            remarks.refuse(format!("{name} {why}"));
            if tenant.spec.suspended {
                return None;
            }
            suspend(view, name, tenant, why)
        }
        Found::Entry(entry, wanted) => {
            let mut spec = TenantSpec::clone(wanted);
            let is_back = tenant.spec.directory.as_ref().is_some_and(|of| of.suspended);
            if is_back {
                spec.suspended = false;
                mark(&mut spec, false);
            }
            if spec == tenant.spec {
                return None;
            }
            if is_back && tenant.spec.suspended {
                (spec, ChangeKind::Resumed, format!("resumed by Directory {}: {} is back", view.name, entry.user))
            } else if spec.user != tenant.spec.user {
                let message =
                    format!("its user {} is called {} now in Directory {}", tenant.spec.user, spec.user, view.name);
                (spec, ChangeKind::Updated, message)
            } else {
                (spec, ChangeKind::Updated, format!("its groups follow Directory {}", view.name))
            }
        }
    };
    Some(TenantEffect::Change(Box::new(TenantChange {
        name: (*name).to_owned(),
        uid: metadata.uid.clone().unwrap_or_default(),
        resource_version: metadata.resource_version.clone().unwrap_or_default(),
        spec,
        kind,
        message,
    })))
}

/// Who was suspended by people is left alone by the caller, and stays suspended when the entry is back.
fn suspend(view: &DirectoryView<'_>, name: &str, tenant: &Tenant, why: &str) -> (TenantSpec, ChangeKind, String) {
    let mut spec = tenant.spec.clone();
    spec.suspended = true;
    mark(&mut spec, true);
    (spec, ChangeKind::Suspended, format!("suspended by Directory {}: {name} {why}", view.name))
}

fn mark(spec: &mut TenantSpec, suspended: bool) {
    if let Some(of) = &mut spec.directory {
        of.suspended = suspended;
    }
}
