//! Tenants for entries that have none yet.

use std::collections::{BTreeMap, BTreeSet};

use pumice_api::directory::TenantTemplate;
use pumice_api::tenant::{DirectoryEntry, TenantSpec, TenantVolume};

use super::existing::Fate;
use super::{DirectoryView, Entry, Remarks, TenantEffect, groups, names};

/// Folders of a root that no home is mounted in.
const SYSTEM_FOLDERS: &[&str] =
    &["bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "proc", "run", "sbin", "sys", "usr"];

/// What is taken, by whom.
struct Taken<'a> {
    uids: BTreeMap<i64, &'a str>,
    namespaces: BTreeMap<&'a str, &'a str>,
    users: BTreeMap<String, String>,
}

/// Makes a Tenant of each entry that has none and may have one, in the order of their ids.
pub(super) fn creates(
    view: &DirectoryView<'_>,
    by_id: &BTreeMap<&str, Option<&Entry>>,
    fates: &[Fate<'_>],
    remarks: &mut Remarks,
) -> Vec<TenantEffect> {
    let known: BTreeSet<&str> =
        fates.iter().filter_map(|fate| Some(fate.tenant.spec.directory.as_ref()?.id.as_str())).collect();
    let arrivals: Vec<&Entry> =
        by_id.iter().filter(|(id, _)| !known.contains(**id)).filter_map(|(_, entry)| *entry).collect();
    let arrivals: Vec<&Entry> = arrivals.into_iter().filter(|entry| !entry.disabled).collect();
    let taken = taken(view, fates);
    let prefix = &view.spec.template.namespace_prefix;
    let mut by_uid: BTreeMap<i64, Vec<&str>> = BTreeMap::new();
    let mut by_namespace: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for entry in &arrivals {
        if let Some(uid) = entry.uid {
            by_uid.entry(uid).or_default().push(&entry.user);
        }
        if let Ok(namespace) = names::namespace_of(prefix, &entry.user) {
            by_namespace.entry(namespace).or_default().push(&entry.user);
        }
    }
    let mut effects = Vec::new();
    for entry in arrivals {
        match spec_of(view, entry, &taken, remarks) {
            Ok(spec) => {
                let namesakes = &by_namespace[&spec.namespace];
                let twins = &by_uid[&spec.uid];
                if namesakes.len() > 1 {
                    let all = namesakes.join(" and ");
                    remarks.refuse(format!("{all} would have the namespace {}: none of them has it", spec.namespace));
                } else if twins.len() > 1 {
                    remarks.refuse(format!("{} have the uid {}: none of them has it", twins.join(" and "), spec.uid));
                } else {
                    effects.push(TenantEffect::Create { name: spec.namespace.clone(), spec: Box::new(spec) });
                }
            }
            Err(why) => remarks.refuse(format!("{:?} is refused: {why}", entry.user)),
        }
    }
    effects
}

/// What Tenants have, all of them: also of those that are suspended, nothing goes to somebody else.
fn taken<'a>(view: &DirectoryView<'a>, fates: &[Fate<'_>]) -> Taken<'a> {
    let tenants = || view.tenants.iter().map(|(name, tenant)| (name.as_str(), &tenant.spec));
    // Names of Tenants are taken as the namespaces are: a new Tenant is called as its namespace.
    let namespaces = tenants().flat_map(|(name, spec)| [(spec.namespace.as_str(), name), (name, name)]).collect();
    // Those of the directory have the names that they get now.
    let own: BTreeSet<&str> = fates.iter().map(|fate| fate.name).collect();
    let mut users: BTreeMap<String, String> = tenants()
        .filter(|(name, spec)| !own.contains(name) && !spec.user.is_empty())
        .map(|(name, spec)| (spec.user.clone(), name.to_owned()))
        .collect();
    users.extend(fates.iter().map(|fate| (fate.user().to_owned(), fate.name.to_owned())));
    Taken { uids: tenants().map(|(name, spec)| (spec.uid, name)).collect(), namespaces, users }
}

fn spec_of(
    view: &DirectoryView<'_>,
    entry: &Entry,
    taken: &Taken<'_>,
    remarks: &mut Remarks,
) -> Result<TenantSpec, String> {
    let template = &view.spec.template;
    let namespace = names::namespace_of(&template.namespace_prefix, &entry.user)?;
    let uid = entry.uid.ok_or("it has no uid that is a number")?;
    let gid = entry.gid.ok_or("it has no gid that is a number")?;
    if let Some(tenant) = taken.uids.get(&uid) {
        return Err(format!(
            "its uid {uid} is Tenant {tenant}'s, and no uid is given to another user; give it a new one"
        ));
    }
    if let Some(tenant) = taken.namespaces.get(namespace.as_str()) {
        return Err(format!("its namespace {namespace} is Tenant {tenant}'s, who is another user"));
    }
    if let Some(tenant) = taken.users.get(&entry.user) {
        return Err(format!("its name is that of the user of Tenant {tenant}"));
    }
    let mut spec = TenantSpec { user: entry.user.clone(), uid, gid, namespace, ..TenantSpec::default() };
    template.fill(&mut spec);
    spec.groups = groups(view, entry, remarks);
    spec.home = home(template, entry);
    spec.directory = Some(DirectoryEntry { name: view.name.to_owned(), id: entry.id.clone(), suspended: false });
    match (view.refusal)(&spec) {
        Some(why) => Err(why),
        None => Ok(spec),
    }
}

/// The home: the folder of that user's name, mounted where the directory says. A user may be able to change what the directory
/// says, so that it never says which folder of the node it is.
fn home(template: &TenantTemplate, entry: &Entry) -> Option<TenantVolume> {
    let homes = template.homes.trim_end_matches('/');
    if template.homes.is_empty() {
        return None;
    }
    let mount_path = if may_be_home(&entry.home) { entry.home.clone() } else { format!("/home/{}", entry.user) };
    Some(TenantVolume { mount_path, host_path: format!("{homes}/{}", entry.user), ..TenantVolume::default() })
}

fn may_be_home(path: &str) -> bool {
    let Some(inner) = path.strip_prefix('/') else { return false };
    let parts: Vec<&str> = inner.trim_end_matches('/').split('/').collect();
    let is_plain =
        |part: &&str| !matches!(*part, "" | "." | "..") && !part.contains(|c: char| c.is_control() || c == ':');
    path.len() <= 1_024 && parts.iter().all(is_plain) && !SYSTEM_FOLDERS.contains(&parts[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes_are_mounted_where_they_may_be() {
        for path in ["/home/alice", "/nfs/home/a.b", "/var/lib/x", "/home/alice/"] {
            assert!(may_be_home(path), "{path}");
        }
        for path in ["", "/", "home", "/etc", "/etc/x", "/home/../etc", "//x", "/proc/self", "/home/a:b", "/home/\n"] {
            assert!(!may_be_home(path), "{path}");
        }
    }
}
