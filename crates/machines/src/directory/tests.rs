//! Directories that people come to and leave.

mod laws;

use super::*;
use pumice_api::tenant::DirectoryEntry;

/// Tenants, and a directory that is read into them.
#[derive(Clone, Default)]
struct World {
    spec: DirectorySpec,
    tenants: BTreeMap<String, Tenant>,
    writes: u64,
}

fn entry(id: &str, user: &str, uid: i64) -> Entry {
    Entry { id: id.into(), user: user.into(), uid: Some(uid), gid: Some(uid), ..Entry::default() }
}

fn refusal(spec: &TenantSpec) -> Option<String> {
    (spec.uid < 1000 || spec.gid < 1000).then(|| format!("uid {} is the system's", spec.uid))
}

impl World {
    fn read(&mut self, entries: &[Entry]) -> DirectoryPlan {
        self.read_whole(&Reading { entries: entries.to_vec(), doubtful: BTreeSet::new() })
    }

    /// Takes a reading in, writes what follows, and proves that a second look finds nothing to do.
    fn read_whole(&mut self, reading: &Reading) -> DirectoryPlan {
        let plan = self.look(reading);
        for effect in plan.effects.clone() {
            self.write(effect);
        }
        assert_eq!(self.look(reading).effects, [], "a second look");
        plan
    }

    fn look(&self, reading: &Reading) -> DirectoryPlan {
        let refuses_group = &|group| group < 1000;
        let tenants = &self.tenants;
        reconcile(&DirectoryView {
            name: "staff",
            spec: &self.spec,
            reading,
            tenants,
            refusal: &refusal,
            refuses_group,
        })
    }

    fn write(&mut self, effect: TenantEffect) {
        self.writes += 1;
        let (name, spec) = match effect {
            TenantEffect::Create { name, spec } => {
                assert!(!self.tenants.contains_key(&name), "{name} is there");
                (name, *spec)
            }
            TenantEffect::Change(change) => (change.name, change.spec),
        };
        let tenant = self.tenants.entry(name.clone()).or_default();
        tenant.metadata.name = Some(name.clone());
        tenant.metadata.uid = Some(format!("uid-{name}"));
        tenant.metadata.resource_version = Some(self.writes.to_string());
        tenant.spec = spec;
    }

    fn add(&mut self, name: &str, spec: TenantSpec) {
        let spec = TenantSpec { namespace: name.to_owned(), ..spec };
        self.write(TenantEffect::Create { name: name.to_owned(), spec: Box::new(spec) });
    }

    fn spec(&self, name: &str) -> &TenantSpec {
        &self.tenants[name].spec
    }

    fn suspended(&self, name: &str) -> (bool, bool) {
        let spec = self.spec(name);
        (spec.suspended, spec.directory.as_ref().is_some_and(|of| of.suspended))
    }
}

#[test]
fn each_user_is_a_tenant() {
    let mut world = World::default();
    world.spec.template.homes = "/export/home".to_owned();
    world.spec.template.queues = vec!["research".to_owned()];
    let mut alice = entry("1", "Alice.B", 4001);
    alice.groups = vec![5001, 27, 4001, 5000];
    alice.home = "/nfs/home/alice".to_owned();
    let plan = world.read(&[alice, entry("2", "bob", 4002)]);
    assert_eq!((plan.outcome, plan.users, plan.refused), (Outcome::Counts, 2, 0));
    assert_eq!(plan.message, "groups that no tenant may have are left out, with how many had them: 27 (1)");
    let spec = world.spec("alice-b");
    assert_eq!((spec.user.as_str(), spec.uid, spec.gid, &spec.groups[..]), ("Alice.B", 4001, 4001, &[5000, 5001][..]));
    let home = spec.home.clone().unwrap();
    assert_eq!((home.mount_path.as_str(), home.host_path.as_str()), ("/nfs/home/alice", "/export/home/Alice.B"));
    assert_eq!((spec.namespace.as_str(), &spec.queues[..]), ("alice-b", &["research".to_owned()][..]));
    let of = DirectoryEntry { name: "staff".into(), id: "1".into(), suspended: false };
    assert_eq!(spec.directory, Some(of));
}

#[test]
fn who_leaves_is_suspended_and_who_comes_back_is_resumed() {
    let mut world = World::default();
    let (alice, bob) = (entry("1", "alice", 4001), entry("2", "bob", 4002));
    world.read(&[alice.clone(), bob.clone()]);
    let plan = world.read(std::slice::from_ref(&alice));
    assert_eq!(plan.message, "bob is gone from the directory");
    assert_eq!(world.suspended("bob"), (true, true));
    assert_eq!(world.read(std::slice::from_ref(&alice)).message, "1 who are gone or disabled stay suspended");
    world.read(&[alice.clone(), bob.clone()]);
    assert_eq!(world.suspended("bob"), (false, false));
    let disabled = Entry { disabled: true, ..bob.clone() };
    world.read(&[alice.clone(), disabled.clone()]);
    assert_eq!(world.suspended("bob"), (true, true));
    // People's own suspension is not undone by it.
    world.read(&[alice.clone(), bob.clone()]);
    world.tenants.get_mut("bob").unwrap().spec.suspended = true;
    world.read(&[alice.clone(), disabled]);
    world.read(std::slice::from_ref(&alice));
    world.read(&[alice, bob]);
    assert_eq!(world.suspended("bob"), (true, false));
}

#[test]
fn who_is_disabled_from_the_start_is_no_tenant() {
    let mut world = World::default();
    let plan = world.read(&[Entry { disabled: true, ..entry("1", "alice", 4001) }]);
    assert_eq!((plan.effects.len(), plan.refused), (0, 0));
}

#[test]
fn a_renamed_user_keeps_uid_and_namespace() {
    let mut world = World::default();
    world.read(&[entry("1", "alice", 4001)]);
    world.read(&[entry("1", "alice.smith", 4001)]);
    let spec = world.spec("alice");
    assert_eq!((spec.user.as_str(), spec.uid, spec.namespace.as_str()), ("alice.smith", 4001, "alice"));
    assert_eq!(world.tenants.len(), 1);
    // The old name is somebody else's now, and gets neither the namespace nor anything in it.
    let plan = world.read(&[entry("1", "alice.smith", 4001), entry("2", "alice", 4009)]);
    assert_eq!(plan.refused, 1);
    assert!(plan.message.contains("its namespace alice is Tenant alice's"), "{}", plan.message);
    assert_eq!(world.spec("alice").user, "alice.smith");
}

#[test]
fn who_is_renamed_to_a_name_that_is_taken_is_stopped() {
    let mut world = World::default();
    world.read(&[entry("1", "alice", 4001), entry("2", "bob", 4002)]);
    // Bob left, alice is called bob now, and a new alice came: none of them gets what was another's.
    let plan = world.read(&[entry("1", "bob", 4001), entry("3", "alice", 4003)]);
    assert_eq!((world.suspended("alice"), world.suspended("bob")), ((true, true), (true, true)));
    assert!(
        plan.message.contains("alice is called bob in the directory, as the user of Tenant bob is"),
        "{}",
        plan.message
    );
    assert_eq!((world.tenants.len(), plan.refused), (2, 2));
    // They change names with each other: each keeps uid and namespace.
    let mut world = World::default();
    world.read(&[entry("1", "alice", 4001), entry("2", "bob", 4002)]);
    world.read(&[entry("1", "bob", 4001), entry("2", "alice", 4002)]);
    assert_eq!((world.spec("alice").user.as_str(), world.spec("bob").user.as_str()), ("bob", "alice"));
    assert!(!world.spec("alice").suspended && !world.spec("bob").suspended);
}

#[test]
fn a_uid_is_never_given_to_another_user() {
    let mut world = World::default();
    world.add("team", TenantSpec { user: "team".into(), uid: 4050, gid: 4050, ..TenantSpec::default() });
    world.read(&[entry("1", "alice", 4001), entry("2", "bob", 4002)]);
    world.read(&[entry("1", "alice", 4001)]);
    let entries =
        [entry("1", "alice", 4001), entry("3", "carol", 4002), entry("4", "dave", 4050), entry("5", "eve", 4001)];
    let plan = world.read(&entries);
    assert_eq!((plan.refused, world.tenants.len()), (3, 3));
    for uid in ["its uid 4002 is Tenant bob's", "its uid 4050 is Tenant team's", "its uid 4001 is Tenant alice's"] {
        assert!(plan.message.contains(uid), "{uid}: {}", plan.message);
    }
    // Two new ones at once.
    let plan = world.read(&[entry("1", "alice", 4001), entry("6", "fay", 4006), entry("7", "gus", 4006)]);
    assert_eq!((plan.refused, world.tenants.len()), (2, 3));
    assert!(plan.message.contains("fay and gus have the uid 4006"), "{}", plan.message);
}

#[test]
fn the_same_id_with_another_uid_is_another_user() {
    let mut world = World::default();
    world.read(&[entry("bob", "bob", 4002), entry("alice", "alice", 4001)]);
    let plan = world.read(&[entry("bob", "bob", 4007), entry("alice", "alice", 4001)]);
    assert_eq!((world.suspended("bob"), world.spec("bob").uid), ((true, true), 4002));
    assert!(plan.message.contains("bob has uid 4007 in the directory and 4002 in the Tenant"), "{}", plan.message);
    assert_eq!(plan.refused, 1);
}

#[test]
fn an_empty_reading_changes_nothing() {
    let mut world = World::default();
    world.read(&[entry("1", "alice", 4001)]);
    let plan = world.read(&[]);
    assert_eq!((plan.outcome, plan.effects.len()), (Outcome::Empty, 0));
    assert!(plan.message.contains("no users at all"), "{}", plan.message);
    assert_eq!(world.suspended("alice"), (false, false));
}

#[test]
fn too_many_at_once_are_not_suspended() {
    let mut world = World::default();
    let all: Vec<Entry> = (0..100).map(|n| entry(&n.to_string(), &format!("u{n}"), 5000 + n)).collect();
    world.read(&all);
    let mut rest = all[21..].to_vec();
    rest.push(entry("new", "new", 9000));
    let plan = world.read(&rest);
    assert_eq!((plan.outcome, plan.effects.len()), (Outcome::TooManyGone, 0));
    assert!(
        plan.message
            .starts_with("21 of 100 tenants would be suspended at once (u0, u1, u10 and others), and at most 20")
    );
    world.spec.suspended_percent_max = 21;
    assert_eq!(world.read(&rest).outcome, Outcome::Counts);
    // Of few, ten may always go.
    let mut world = World::default();
    world.read(&all[..11]);
    assert_eq!(world.read(&all[10..11]).outcome, Outcome::Counts);
    let mut world = World::default();
    world.read(&all[..11]);
    assert_eq!(world.read(&all[11..12]).outcome, Outcome::TooManyGone);
}

#[test]
fn users_whose_namespaces_would_be_one_are_refused_by_both_names() {
    let mut world = World::default();
    let plan = world.read(&[entry("1", "a.b", 4001), entry("2", "a_b", 4002), entry("3", "c", 4003)]);
    assert_eq!((plan.refused, world.tenants.len()), (2, 1));
    assert!(plan.message.contains("a.b and a_b would have the namespace a-b"), "{}", plan.message);
    // Who was there first stays.
    let plan = world.read(&[entry("3", "c", 4003), entry("4", "C", 4004)]);
    assert!(plan.message.contains("\"C\" is refused: its namespace c is Tenant c's"), "{}", plan.message);
    assert_eq!(world.spec("c").uid, 4003);
}

#[test]
fn what_asks_for_what_no_tenant_may_be_is_refused_and_told() {
    let mut world = World::default();
    let no_uid = Entry { uid: None, ..entry("5", "nouid", 0) };
    let entries = [entry("1", "root", 0), entry("2", "system:admin", 4002), entry("3", "müller", 4003), no_uid];
    let plan = world.read(&entries);
    assert_eq!((plan.refused, plan.users, world.tenants.len()), (4, 4, 0));
    for part in ["uid 0 is the system's", "names that begin with system:", "'ü' can't be", "no uid that is a number"] {
        assert!(plan.message.contains(part), "{part}: {}", plan.message);
    }
}

#[test]
fn what_is_doubtful_stays_as_it_is() {
    let mut world = World::default();
    world.read(&[entry("1", "alice", 4001), entry("2", "bob", 4002)]);
    let doubtful = BTreeSet::from(["2".to_owned(), "9".to_owned()]);
    world.read_whole(&Reading { entries: vec![entry("1", "alice", 4001)], doubtful });
    assert_eq!(world.suspended("bob"), (false, false));
    // Two entries of one id.
    let plan = world.read(&[entry("1", "alice", 4001), entry("1", "eve", 4009), entry("2", "bob", 4002)]);
    assert!(plan.message.contains("alice and eve have the same id"), "{}", plan.message);
    assert_eq!((world.suspended("alice"), world.tenants.len()), ((false, false), 2));
}

#[test]
fn groups_follow_and_what_people_set_stays() {
    let mut world = World::default();
    world.spec.template.queues = vec!["a".to_owned()];
    world.read(&[entry("1", "alice", 4001)]);
    world.tenants.get_mut("alice").unwrap().spec.queues = vec!["mine".to_owned()];
    world.spec.template.queues = vec!["b".to_owned()];
    // The first group is on files and running processes.
    let more = Entry { groups: vec![5000], gid: Some(4444), ..entry("1", "alice", 4001) };
    let plan = world.read(&[more]);
    assert_eq!(
        plan.message,
        "alice has gid 4444 in the directory and 4001 in the Tenant: change spec.gid while it is suspended"
    );
    let TenantEffect::Change(change) = &plan.effects[0] else { panic!("{plan:?}") };
    assert_eq!((change.uid.as_str(), change.resource_version.as_str()), ("uid-alice", "1"));
    let spec = world.spec("alice");
    assert_eq!((spec.gid, &spec.groups[..], &spec.queues[..]), (4001, &[5000][..], &["mine".to_owned()][..]));
}

#[test]
fn a_long_message_ends_with_how_many_more_there_are() {
    let mut world = World::default();
    let all: Vec<Entry> = (0..500).map(|n| entry(&n.to_string(), &format!("u{n}"), n)).collect();
    let message = world.read(&all).message;
    assert!(message.len() <= 4_096 && message.ends_with("more"), "{} {message}", message.len());
}
