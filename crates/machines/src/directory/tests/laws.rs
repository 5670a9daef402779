//! What holds whatever is read, and whatever people do meanwhile.

use proptest::prelude::*;

use super::*;

/// Something that happens.
#[derive(Clone, Debug)]
enum Step {
    /// The directory is read: users as (id, name, uid, disabled), and ids that are doubtful.
    Read(Vec<(u8, u8, u8, bool)>, Vec<u8>),
    /// People suspend or resume a Tenant.
    Suspend(u8, bool),
    /// People make a Tenant of their own, or one of another directory.
    Make(u8, u8, bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let user = (0..6u8, 0..6u8, 0..6u8, prop::bool::weighted(0.1));
    let read = (prop::collection::vec(user, 0..6), prop::collection::vec(0..6u8, 0..2));
    let step = prop_oneof![
        6 => read.prop_map(|(users, doubtful)| Step::Read(users, doubtful)),
        1 => (0..6u8, any::<bool>()).prop_map(|(name, suspended)| Step::Suspend(name, suspended)),
        1 => (0..6u8, 0..6u8, any::<bool>()).prop_map(|(name, uid, is_other)| Step::Make(name, uid, is_other)),
    ];
    prop::collection::vec(step, 1..20)
}

fn name(number: u8) -> String {
    ["a.b", "a-b", "c", "d", "system:e", "f"][usize::from(number)].to_owned()
}

fn reading(users: &[(u8, u8, u8, bool)], doubtful: &[u8]) -> Reading {
    let entry = |(id, user, uid, disabled): &(u8, u8, u8, bool)| Entry {
        disabled: *disabled,
        ..entry(&id.to_string(), &name(*user), 999 + i64::from(*uid))
    };
    Reading { entries: users.iter().map(entry).collect(), doubtful: doubtful.iter().map(u8::to_string).collect() }
}

fn is_own(tenant: &Tenant) -> bool {
    tenant.spec.directory.as_ref().is_some_and(|of| of.name == "staff")
}

/// What never changes about a Tenant of the directory.
fn lasting(spec: &TenantSpec) -> (i64, i64, String, String) {
    (spec.uid, spec.gid, spec.namespace.clone(), spec.directory.as_ref().map(|of| of.id.clone()).unwrap_or_default())
}

/// Proves what holds after `reading` led from `before` to `after`.
fn check(before: &World, after: &World, reading: &Reading, outcome: Outcome) -> Result<(), TestCaseError> {
    for (name, tenant) in &before.tenants {
        let now = after.tenants.get(name);
        prop_assert!(now.is_some(), "{} was deleted", name);
        let now = now.unwrap();
        if is_own(tenant) {
            prop_assert_eq!(lasting(&tenant.spec), lasting(&now.spec));
            let by_people = tenant.spec.suspended && !tenant.spec.directory.as_ref().unwrap().suspended;
            prop_assert!(!by_people || now.spec.suspended, "{} was suspended by people", name);
        } else {
            prop_assert_eq!(tenant, now, "somebody else's");
        }
    }
    for (name, tenant) in after.tenants.iter().filter(|(name, _)| !before.tenants.contains_key(*name)) {
        let others = || after.tenants.iter().filter(|(other, _)| *other != name).map(|(_, other)| &other.spec);
        prop_assert!(others().all(|spec| spec.uid != tenant.spec.uid), "{} has another's uid", name);
        prop_assert!(others().all(|spec| spec.namespace != tenant.spec.namespace), "{} has another's namespace", name);
        prop_assert!(others().all(|spec| spec.user != tenant.spec.user), "{} has another's name", name);
        prop_assert!(tenant.spec.uid >= 1000 && !tenant.spec.user.contains(':'));
    }
    if outcome != Outcome::Counts {
        prop_assert_eq!(&before.tenants, &after.tenants);
        return Ok(());
    }
    // Whoever is in use is who he was, by an entry that is there once.
    let mut users = BTreeSet::new();
    for tenant in after.tenants.values().filter(|tenant| is_own(tenant) && !tenant.spec.suspended) {
        let id = &tenant.spec.directory.as_ref().unwrap().id;
        let entries: Vec<&Entry> = reading.entries.iter().filter(|entry| entry.id == *id).collect();
        if reading.doubtful.contains(id) || entries.len() > 1 {
            continue;
        }
        prop_assert_eq!(entries.len(), 1, "{} is gone", id);
        let entry = entries[0];
        prop_assert!(!entry.disabled && entry.uid == Some(tenant.spec.uid) && entry.user == tenant.spec.user);
        prop_assert!(users.insert(&tenant.spec.user), "two have one name");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_read_nothing_is_deleted_or_handed_on(steps in steps()) {
        let mut world = World::default();
        for step in steps {
            match step {
                Step::Read(users, doubtful) => {
                    let before = world.clone();
                    let reading = reading(&users, &doubtful);
                    let plan = world.read_whole(&reading);
                    check(&before, &world, &reading, plan.outcome)?;
                }
                Step::Suspend(number, suspended) => {
                    if let Some(tenant) = world.tenants.values_mut().nth(usize::from(number)) {
                        tenant.spec.suspended = suspended;
                    }
                }
                Step::Make(number, uid, is_other) => {
                    let (name, uid) = (format!("t-{}", number), 1000 + i64::from(uid));
                    let taken = |spec: &TenantSpec| spec.uid == uid || spec.user == super::laws::name(number);
                    if world.tenants.values().all(|tenant| !taken(&tenant.spec)) && !world.tenants.contains_key(&name) {
                        let of = DirectoryEntry { name: "other".into(), id: "0".into(), suspended: false };
                        let user = super::laws::name(number);
                        let spec = TenantSpec { user, uid, gid: uid, directory: is_other.then_some(of), ..TenantSpec::default() };
                        world.add(&name, spec);
                    }
                }
            }
        }
    }
}
