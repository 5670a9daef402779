//! Tenants, as far as they say who somebody is: which user of the API a user of the machine is, and whose tenants a user is.
//!
//! Invariant: nothing here is read from outside: facts come in, an identity or a sentence comes out. No user of the machine gets a
//! name that belongs to the system, and none gets the name of a tenant with another user id. Called by the API server.

use std::collections::HashMap;

use pumice_api::names::GROUP_TENANTS;
use pumice_api::tenant::{REFUSED, Tenant};
use thiserror::Error;

use crate::identity::Identity;

/// What names begin with that nobody gets from outside: they are the system's and the platform's own.
const RESERVED: [&str; 2] = ["system:", "pumice:"];

/// A user of the machine, as its name service knows him.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    pub name: String,
    /// Names of his groups.
    pub groups: Vec<String>,
}

/// What of a tenant says who somebody is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantFacts {
    pub name: String,
    /// Its user; empty for a team that has members only.
    pub user: String,
    pub members: Vec<String>,
    pub member_groups: Vec<String>,
    pub namespace: String,
    pub uid: i64,
    pub gid: i64,
    pub groups: Vec<i64>,
    pub suspended: bool,
    /// Whether the controller makes nothing of it.
    pub refused: bool,
}

impl TenantFacts {
    /// The facts of an object.
    pub fn of(tenant: Tenant) -> Self {
        let (spec, name) = (tenant.spec, tenant.metadata.name.unwrap_or_default());
        Self {
            name,
            user: spec.user,
            members: spec.members,
            member_groups: spec.member_groups,
            namespace: spec.namespace,
            uid: spec.uid,
            gid: spec.gid,
            groups: spec.groups,
            suspended: spec.suspended,
            refused: tenant.status.phase == REFUSED,
        }
    }

    fn counts(&self) -> bool {
        !self.suspended && !self.refused
    }
}

/// Why a user of the machine is nobody on the platform.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoTenant {
    /// There is no tenant for him.
    #[error(
        "user {who} of this machine is no tenant of this platform: ask its administrator for a Tenant with uid {uid}, or to be \
         added to a group whose members are tenants"
    )]
    Unknown { who: String, uid: u32 },
    /// He is one and may do nothing at present.
    #[error("tenant {tenant} is suspended: ask the administrator of this platform to resume it")]
    Suspended { tenant: String },
    /// The controller has refused what the tenant asks for.
    #[error("tenant {tenant} is refused: its status says why, and the administrator of this platform can correct it")]
    Refused { tenant: String },
    /// Two users of the API are one of the machine's.
    #[error(
        "user id {uid} of this machine is that of tenants {first} and {second}: the administrator has to suspend one of them"
    )]
    Ambiguous { uid: u32, first: String, second: String },
    /// Somebody else has his name.
    #[error(
        "user {name} of this machine has uid {uid}, and tenant {tenant} of this name has uid {expected}: ask the administrator"
    )]
    OtherUid { name: String, uid: u32, tenant: String, expected: i64 },
    /// The name is the system's.
    #[error("{name:?} is no name of a tenant's user: names that begin with system: and pumice: are the platform's own")]
    Reserved { name: String },
}

/// All tenants at one moment.
#[derive(Debug, Default)]
pub struct Tenants {
    all: Vec<TenantFacts>,
    by_uid: HashMap<i64, Vec<usize>>,
    /// By users and members.
    by_user: HashMap<String, Vec<usize>>,
    by_group: HashMap<String, Vec<usize>>,
}

impl Tenants {
    /// Sorts facts by what they are found by.
    pub fn new(facts: impl IntoIterator<Item = TenantFacts>) -> Self {
        let mut tenants = Self { all: facts.into_iter().collect(), ..Self::default() };
        // So that of several the same one comes first everywhere.
        tenants.all.sort_by(|one, other| one.name.cmp(&other.name));
        for (at, tenant) in tenants.all.iter().enumerate() {
            if !tenant.user.is_empty() {
                tenants.by_uid.entry(tenant.uid).or_default().push(at);
                tenants.by_user.entry(tenant.user.clone()).or_default().push(at);
            }
            for member in tenant.members.iter().filter(|member| **member != tenant.user) {
                tenants.by_user.entry(member.clone()).or_default().push(at);
            }
            for group in &tenant.member_groups {
                tenants.by_group.entry(group.clone()).or_default().push(at);
            }
        }
        tenants
    }

    /// Whether the machine's names can say more of a user than his id does.
    pub fn depends_on_account(&self, uid: u32) -> bool {
        !self.by_group.is_empty()
            || (!self.by_uid.contains_key(&i64::from(uid)) && self.all.iter().any(|tenant| !tenant.members.is_empty()))
    }

    /// Who a user of the machine is on the platform: the user of the tenant with his id, else the member of a team with his name.
    ///
    /// # Errors
    /// A sentence for him.
    pub fn identity_of(&self, uid: u32, account: Option<&Account>) -> Result<Identity, NoTenant> {
        let user = self.user_of(uid, account)?;
        if RESERVED.iter().any(|reserved| user.starts_with(reserved)) {
            return Err(NoTenant::Reserved { name: user });
        }
        let groups = account.iter().flat_map(|account| &account.groups);
        // Of the machine's groups those by which somebody is a member of a team, and no others: their names mean nothing else here.
        let groups = groups.filter(|group| {
            self.by_group.contains_key(*group) && RESERVED.iter().all(|reserved| !group.starts_with(reserved))
        });
        Ok(Identity::new(user, groups.cloned().chain([GROUP_TENANTS.to_owned()])))
    }

    fn user_of(&self, uid: u32, account: Option<&Account>) -> Result<String, NoTenant> {
        let own: Vec<_> = self.indexed(self.by_uid.get(&i64::from(uid))).filter(|tenant| !tenant.refused).collect();
        if let Some(first) = own.first() {
            if let Some(second) = own.iter().find(|other| other.user != first.user) {
                let (first, second) = (first.name.clone(), second.name.clone());
                return Err(NoTenant::Ambiguous { uid, first, second });
            }
            if let Some(suspended) = own.iter().find(|tenant| tenant.suspended) {
                return Err(NoTenant::Suspended { tenant: suspended.name.clone() });
            }
            return Ok(first.user.clone());
        }
        if let Some(refused) = self.indexed(self.by_uid.get(&i64::from(uid))).next() {
            return Err(NoTenant::Refused { tenant: refused.name.clone() });
        }
        let who = account.map_or_else(|| uid.to_string(), |account| format!("{} (uid {uid})", account.name));
        let Some(account) = account else { return Err(NoTenant::Unknown { who, uid }) };
        let named: Vec<_> = self.indexed(self.by_user.get(&account.name)).collect();
        if let Some(other) = named.iter().find(|tenant| tenant.user == account.name) {
            let (name, tenant) = (account.name.clone(), other.name.clone());
            return Err(NoTenant::OtherUid { name, uid, tenant, expected: other.uid });
        }
        let by_group = account.groups.iter().flat_map(|group| self.indexed(self.by_group.get(group)));
        let mut teams = named.into_iter().chain(by_group).filter(|tenant| !tenant.refused).peekable();
        let Some(team) = teams.peek() else { return Err(NoTenant::Unknown { who, uid }) };
        let tenant = team.name.clone();
        if teams.any(|tenant| tenant.counts()) { Ok(account.name.clone()) } else { Err(NoTenant::Suspended { tenant }) }
    }

    /// The tenants that somebody works for: his own first.
    pub fn of(&self, identity: &Identity) -> Vec<&TenantFacts> {
        if !identity.is_in(GROUP_TENANTS) && !self.by_user.contains_key(&identity.user) {
            return Vec::new();
        }
        let by_group = identity.groups.iter().flat_map(|group| self.indexed(self.by_group.get(group)));
        let mut found: Vec<_> = self.indexed(self.by_user.get(&identity.user)).chain(by_group).collect();
        found.sort_by_key(|tenant| (tenant.user != identity.user, &tenant.name));
        found.dedup_by_key(|tenant| &tenant.name);
        found
    }

    fn indexed<'a>(&'a self, at: Option<&'a Vec<usize>>) -> impl Iterator<Item = &'a TenantFacts> {
        at.into_iter().flatten().filter_map(|at| self.all.get(*at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str, user: &str, uid: i64) -> TenantFacts {
        TenantFacts {
            name: name.to_owned(),
            user: user.to_owned(),
            uid,
            namespace: name.to_owned(),
            ..Default::default()
        }
    }

    fn account(name: &str, groups: &[&str]) -> Account {
        Account { name: name.to_owned(), groups: groups.iter().map(|group| (*group).to_owned()).collect() }
    }

    fn tenants() -> Tenants {
        let alice = tenant("alice", "alice", 4001);
        let bob = TenantFacts { suspended: true, ..tenant("bob", "bob", 4002) };
        let eve = tenant("eve", "system:admin", 4003);
        let mal = TenantFacts { refused: true, ..tenant("mal", "mal", 4004) };
        let desk = TenantFacts {
            members: vec!["carol".into(), "bob".into()],
            member_groups: vec!["traders".into(), "system:masters".into()],
            ..tenant("desk", "", 5000)
        };
        let rest = TenantFacts { members: vec!["dora".into()], suspended: true, ..tenant("rest", "", 5001) };
        Tenants::new([alice, bob, eve, mal, desk, rest, tenant("one", "one", 4005), tenant("two", "two", 4005)])
    }

    #[test]
    fn the_user_id_says_who_somebody_is_and_the_name_only_of_teams() {
        let tenants = tenants();
        let who = |uid, name: &str, groups: &[&str]| tenants.identity_of(uid, Some(&account(name, groups)));
        let user = |uid, name: &str| who(uid, name, &[]).map(|identity| identity.user);
        assert_eq!(tenants.identity_of(4001, None).map(|identity| identity.user), Ok("alice".to_owned()));
        assert_eq!(
            user(4001, "renamed"),
            Ok("alice".to_owned()),
            "a name of the machine does not matter where the id does"
        );
        assert_eq!(user(4100, "carol"), Ok("carol".to_owned()));
        let unknown = |who: &str, uid| Err(NoTenant::Unknown { who: who.to_owned(), uid });
        assert_eq!(user(4100, "frank"), unknown("frank (uid 4100)", 4100));
        for (uid, why) in [(4100, "no name"), (5000, "a team's id is nobody's"), (0, "root is no tenant")] {
            let user = tenants.identity_of(uid, None).map(|identity| identity.user);
            assert_eq!(user, unknown(&uid.to_string(), uid), "{why}");
        }
        let suspended = |tenant: &str| Err(NoTenant::Suspended { tenant: tenant.to_owned() });
        assert_eq!(user(4002, "bob"), suspended("bob"), "also as a member of a team");
        assert_eq!(user(4101, "dora"), suspended("rest"));
        assert_eq!(user(4003, "eve"), Err(NoTenant::Reserved { name: "system:admin".to_owned() }));
        assert_eq!(user(4004, "mal"), Err(NoTenant::Refused { tenant: "mal".to_owned() }));
        let (first, second) = ("one".to_owned(), "two".to_owned());
        assert_eq!(user(4005, "one"), Err(NoTenant::Ambiguous { uid: 4005, first, second }));
        let (name, tenant) = ("alice".to_owned(), "alice".to_owned());
        assert_eq!(user(4200, "alice"), Err(NoTenant::OtherUid { name, uid: 4200, tenant, expected: 4001 }));
    }

    #[test]
    fn of_the_machines_groups_those_of_teams_count() {
        let tenants = tenants();
        let frank = account("frank", &["traders", "docker", "system:masters"]);
        let identity = tenants.identity_of(4100, Some(&frank)).expect("a member by his group");
        assert_eq!(identity.groups, ["traders", GROUP_TENANTS, crate::AUTHENTICATED]);
        let alice = tenants.identity_of(4001, Some(&account("alice", &["traders"]))).expect("alice");
        let names: Vec<_> = tenants.of(&alice).iter().map(|tenant| tenant.name.as_str()).collect();
        assert_eq!(names, ["alice", "desk"], "her own first");
        assert_eq!(tenants.of(&Identity::new("root", [] as [&str; 0])), Vec::<&TenantFacts>::new());
        assert!(tenants.depends_on_account(4001));
    }

    #[test]
    fn names_of_the_machine_are_looked_up_only_where_they_matter() {
        let alone = Tenants::new([tenant("alice", "alice", 4001)]);
        assert!(!alone.depends_on_account(4001) && !alone.depends_on_account(4100));
        let team = TenantFacts { members: vec!["carol".into()], ..tenant("desk", "", 5000) };
        let team = Tenants::new([tenant("alice", "alice", 4001), team]);
        assert!(!team.depends_on_account(4001) && team.depends_on_account(4100));
    }
}
