//! Steps of the machine of a Tenant, applied to a model of what exists.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;
use pumice_api::tenant::{AllowedHostPath, TenantSpec, TenantVolume};
use serde::de::DeserializeOwned;

use super::*;

/// What exists in a cluster of one tenant.
#[derive(Clone, Default)]
struct Model {
    tenant: Tenant,
    namespace: Option<ObjectMeta>,
    bindings: BTreeMap<String, RoleBinding>,
    quota: Option<ResourceQuota>,
    claims: Vec<PersistentVolumeClaim>,
    policy: Option<NetworkPolicy>,
    refused: Option<Refusal>,
    is_own_cluster: bool,
    pods: usize,
}

fn alice() -> Tenant {
    let spec =
        TenantSpec { user: "alice".into(), uid: 4001, gid: 4001, namespace: "alice".into(), ..Default::default() };
    let mut tenant = Tenant { spec, ..Tenant::default() };
    tenant.metadata.name = Some("alice".into());
    tenant.metadata.generation = Some(1);
    tenant
}

fn typed<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object of its kind")
}

impl Model {
    fn new(tenant: Tenant) -> Self {
        Self { tenant, is_own_cluster: true, ..Self::default() }
    }

    fn step(&self) -> Vec<TenantEffect> {
        step(&TenantView {
            tenant: &self.tenant,
            refused: self.refused.as_ref(),
            namespace: self.namespace.as_ref(),
            bindings: self.bindings.values().collect(),
            quota: self.quota.as_ref(),
            claims: self.claims.iter().collect(),
            network_policy: self.policy.as_ref(),
            is_own_cluster: self.is_own_cluster,
        })
    }

    fn apply(&mut self, effect: TenantEffect) {
        match effect {
            TenantEffect::ApplyNamespace(wanted) => {
                let applied: Namespace = typed(wanted);
                let mut metadata = self.namespace.take().unwrap_or_default();
                metadata.name = applied.metadata.name;
                metadata.labels.get_or_insert_default().extend(applied.metadata.labels.unwrap_or_default());
                metadata.annotations.get_or_insert_default().extend(applied.metadata.annotations.unwrap_or_default());
                self.namespace = Some(metadata);
            }
            TenantEffect::CloseNamespace { message, .. } => {
                let namespace = self.namespace.get_or_insert_default();
                namespace.annotations.get_or_insert_default().insert(TENANT_CLOSED.into(), message);
            }
            TenantEffect::ApplyBinding(wanted) => {
                let mut binding: RoleBinding = typed(wanted);
                binding.metadata.uid = Some("u".into());
                self.bindings.insert(binding.metadata.name.clone().expect("a name"), binding);
            }
            TenantEffect::DeleteBinding { namespace, name, uid } => {
                assert_eq!((namespace.as_str(), uid.as_str()), (self.tenant.spec.namespace.as_str(), "u"));
                self.bindings.remove(&name).expect("it was there");
            }
            TenantEffect::ApplyQuota(wanted) => self.quota = Some(typed(wanted)),
            TenantEffect::ApplyNetworkPolicy(wanted) => self.policy = Some(typed(wanted)),
            TenantEffect::CreateClaim(claim) => self.claims.push(*claim),
            TenantEffect::WriteStatus(status) => self.tenant.status = status,
            TenantEffect::StopPods { .. } => {
                self.pods = 0;
                self.stopped("True");
            }
            TenantEffect::ResumeJobs { .. } => self.stopped("False"),
        }
    }

    fn stopped(&mut self, status: &str) {
        let condition =
            pumice_api::topology::Condition { type_: STOPPED.into(), status: status.into(), ..Default::default() };
        self.tenant.status.conditions = vec![condition];
    }

    /// Steps until nothing is left to do. What was done.
    fn settle(&mut self) -> Vec<TenantEffect> {
        let mut all = Vec::new();
        for _ in 0..8 {
            let effects = self.step();
            if effects.is_empty() {
                return all;
            }
            effects.iter().cloned().for_each(|effect| self.apply(effect));
            all.extend(effects);
        }
        panic!("it never settles: {:?}", self.step());
    }

    fn annotation(&self, key: &str) -> &str {
        self.namespace.as_ref().and_then(|one| one.annotations.as_ref()?.get(key)).map_or("", String::as_str)
    }
}

#[test]
fn the_least_tenant_has_a_namespace_and_a_role() {
    let mut model = Model::new(alice());
    assert_eq!(model.settle().len(), 3, "namespace, binding, status");
    let labels = model.namespace.as_ref().and_then(|one| one.labels.clone()).unwrap_or_default();
    assert_eq!(labels[TENANT], "alice");
    assert_eq!(labels["pod-security.kubernetes.io/enforce"], "restricted");
    assert_eq!(model.annotation("pumice.sh/tenant-uid"), "4001");
    let binding = &model.bindings["pumice-tenant-edit"];
    assert_eq!(binding.role_ref.name, "edit");
    assert_eq!(binding.subjects.as_ref().map(|all| all[0].name.as_str()), Some("alice"));
    assert_eq!(model.tenant.status.phase, ACTIVE);
}

#[test]
fn a_team_has_what_it_wants() {
    let mut team = alice();
    team.spec.user.clear();
    team.spec.members = vec!["bob".into()];
    team.spec.member_groups = vec!["quants".into()];
    team.spec.roles = vec!["view".into(), "edit".into()];
    team.spec.limits = BTreeMap::from([("pods".to_owned(), Quantity("10".into()))]);
    let volume =
        |at: &str| TenantVolume { mount_path: at.into(), persistent_volume: "pv".into(), ..Default::default() };
    team.spec.home = Some(volume("/home/team"));
    team.spec.volumes = vec![volume("/data")];
    let mut model = Model { is_own_cluster: false, ..Model::new(team) };
    model.settle();
    assert_eq!(model.bindings.keys().collect::<Vec<_>>(), ["pumice-tenant-edit", "pumice-tenant-view"]);
    let subjects = model.bindings["pumice-tenant-view"].subjects.clone().unwrap_or_default();
    let subjects: Vec<(&str, &str)> = subjects.iter().map(|one| (one.kind.as_str(), one.name.as_str())).collect();
    assert_eq!(subjects, [("User", "bob"), ("Group", "quants")]);
    assert_eq!(model.claims.len(), 1, "one claim serves both places");
    assert!(model.quota.is_some() && model.policy.is_some());
    // Amounts that mean the same, written in another way, are no drift.
    let hard = model.quota.as_mut().and_then(|quota| quota.spec.as_mut()?.hard.as_mut()).expect("amounts");
    hard.insert("pods".to_owned(), Quantity("10000m".into()));
    assert_eq!(model.step(), []);
    // Limits that are taken away are taken away.
    model.tenant.spec.limits.clear();
    model.settle();
    assert!(model.quota.and_then(|quota| quota.spec?.hard).is_none_or(|hard| hard.is_empty()));
}

#[test]
fn what_somebody_changed_is_put_right() {
    let mut settled = Model::new(alice());
    settled.settle();
    type Change = fn(&mut Model);
    let changes: [(&str, Change); 6] = [
        ("a binding is deleted", |model| drop(model.bindings.pop_first())),
        ("a subject is added", |model| {
            let binding = model.bindings.values_mut().next().expect("one");
            let mut other = binding.subjects.as_ref().expect("some")[0].clone();
            other.name = "mallory".into();
            binding.subjects.as_mut().expect("some").push(other);
        }),
        ("a binding of another role has the label", |model| {
            let mut other = model.bindings["pumice-tenant-edit"].clone();
            other.metadata.name = Some("more".into());
            other.role_ref.name = "admin".into();
            model.bindings.insert("more".into(), other);
        }),
        ("the binding is of another role", |model| {
            model.bindings.values_mut().next().expect("one").role_ref.name = "admin".into();
        }),
        ("an annotation is changed", |model| {
            let annotations = model.namespace.as_mut().and_then(|one| one.annotations.as_mut()).expect("some");
            annotations.insert("pumice.sh/tenant-uid".into(), "0".into());
        }),
        ("the label is taken away", |model| {
            model.namespace.as_mut().and_then(|one| one.labels.as_mut()).expect("some").remove(TENANT);
        }),
    ];
    for (what, change) in changes {
        let mut model = settled.clone();
        change(&mut model);
        assert!(!model.settle().is_empty(), "{what}");
        assert_eq!(model.bindings, settled.bindings, "{what}");
        assert_eq!(model.namespace, settled.namespace, "{what}");
    }
}

#[test]
fn a_suspended_tenant_has_no_rights_and_all_its_things() {
    let mut model = Model::new(alice());
    model.tenant.spec.home =
        Some(TenantVolume { mount_path: "/home/alice".into(), persistent_volume: "pv".into(), ..Default::default() });
    model.settle();
    model.pods = 3;
    model.tenant.spec.suspended = true;
    let effects = model.settle();
    assert!(matches!(effects[1], TenantEffect::ApplyNamespace(_)), "closed once nobody has rights: {effects:?}");
    assert_eq!((model.bindings.len(), model.claims.len(), model.pods), (0, 1, 3), "pods are left");
    assert_eq!(model.tenant.status.phase, SUSPENDED);
    assert_eq!(model.annotation(TENANT_CLOSED), "the Tenant alice is suspended");
    model.tenant.spec.running_pods = STOP_RUNNING_PODS.into();
    assert_eq!(model.settle(), [TenantEffect::StopPods { namespace: "alice".into() }]);
    model.tenant.spec.suspended = false;
    let effects = model.settle();
    assert!(effects.contains(&TenantEffect::ResumeJobs { namespace: "alice".into() }), "{effects:?}");
    assert_eq!((model.bindings.len(), model.annotation(TENANT_CLOSED)), (1, ""));
}

#[test]
fn nobodys_namespace_is_taken_over() {
    let mut model = Model::new(alice());
    let namespace = ObjectMeta { name: Some("alice".into()), ..ObjectMeta::default() };
    model.namespace = Some(namespace.clone());
    model.settle();
    assert_eq!(model.tenant.status.phase, REFUSED);
    assert!(model.tenant.status.message.contains("kubectl label namespace alice pumice.sh/tenant=alice"));
    assert_eq!((model.namespace.as_ref(), model.bindings.len()), (Some(&namespace), 0));
    // An administrator gives it away.
    let labels = |name: &str| Some(BTreeMap::from([(TENANT.to_owned(), name.to_owned())]));
    model.namespace = Some(ObjectMeta { labels: labels("alice"), ..namespace.clone() });
    model.settle();
    assert_eq!((model.tenant.status.phase.as_str(), model.bindings.len()), (ACTIVE, 1));
    let mut model = Model::new(alice());
    model.namespace = Some(ObjectMeta { labels: labels("bob"), ..namespace });
    model.settle();
    assert!(model.tenant.status.message.contains("is the Tenant bob's"), "{}", model.tenant.status.message);
}

#[test]
fn a_tenant_that_becomes_refused_loses_its_rights_and_nothing_else() {
    let mut model = Model::new(alice());
    model.settle();
    model.refused = Some(Refusal { field: "spec.uid".into(), message: "4001 is taken".into() });
    model.settle();
    assert_eq!((model.tenant.status.phase.as_str(), model.bindings.len()), (REFUSED, 0));
    assert!(model.annotation(TENANT_CLOSED).contains("spec.uid: 4001 is taken"));
    let mut never = Model { refused: model.refused.clone(), ..Model::new(alice()) };
    never.settle();
    assert!(never.namespace.is_none(), "nothing is made");
}

#[test]
fn a_tenant_that_is_gone_leaves_its_data() {
    let mut model = Model::new(alice());
    model.settle();
    let namespace = model.namespace.clone().expect("one");
    let binding = model.bindings.values().next().cloned().expect("one");
    let effects = gone("alice", &[&namespace], &[&binding]);
    assert!(matches!(&effects[..], [TenantEffect::DeleteBinding { .. }, TenantEffect::CloseNamespace { .. }]));
    effects.into_iter().for_each(|effect| model.apply(effect));
    assert_eq!(gone("alice", &[model.namespace.as_ref().expect("one")], &[]), []);
}

#[test]
fn folders_of_nodes_are_the_policies_on_kubernetes() {
    let mut tenant = alice();
    tenant.spec.host_paths = vec![AllowedHostPath { path: "/data".into(), read_only: true }];
    for (is_own_cluster, profile) in [(true, "restricted"), (false, "privileged")] {
        let mut model = Model { is_own_cluster, ..Model::new(tenant.clone()) };
        model.settle();
        let labels = model.namespace.and_then(|one| one.labels).unwrap_or_default();
        assert_eq!(labels["pod-security.kubernetes.io/enforce"], profile);
    }
}

#[test]
fn what_no_tenant_may_be_is_refused_by_its_field() {
    let forbidden = Forbidden { uids: BTreeSet::from([1500]), gids: BTreeSet::from([1001]) };
    let volume =
        |at: &str, host: &str| TenantVolume { mount_path: at.into(), host_path: host.into(), ..Default::default() };
    type Change = fn(&mut TenantSpec);
    let cases: Vec<(&str, Change)> = vec![
        ("spec.uid", |spec| spec.uid = 0),
        ("spec.uid", |spec| spec.uid = -1),
        ("spec.uid", |spec| spec.uid = 999),
        ("spec.uid", |spec| spec.uid = 65534),
        ("spec.uid", |spec| spec.uid = 4_294_967_295),
        ("spec.uid", |spec| spec.uid = 1500),
        ("spec.gid", |spec| spec.gid = 0),
        ("spec.gid", |spec| spec.gid = 1001),
        ("spec.groups[1]", |spec| spec.groups = vec![5000, 6]),
        ("spec.groups[0]", |spec| spec.groups = vec![1001]),
        ("spec.user", |spec| spec.user = "system:node".into()),
        ("spec.user", |spec| spec.user = "PUMICE:administrator".into()),
        ("spec.user", |spec| spec.user = "root".into()),
        ("spec.user", |spec| spec.user = "a\nb".into()),
        ("spec.members[0]", |spec| spec.members = vec!["system:admin".into()]),
        ("spec.memberGroups[0]", |spec| spec.member_groups = vec!["system:masters".into()]),
        ("spec.roles[0]", |spec| spec.roles = vec!["cluster-admin".into()]),
        ("spec.roles[0]", |spec| spec.roles = vec!["system:pumice:controllers".into()]),
        ("spec.namespace", |spec| spec.namespace = "kube-system".into()),
        ("spec.namespace", |spec| spec.namespace = "volcano-system".into()),
        ("spec.namespace", |spec| spec.namespace = "default".into()),
        ("spec.hostPaths[0].path", |spec| {
            spec.host_paths = vec![AllowedHostPath { path: "/".into(), read_only: true }];
        }),
    ];
    assert_eq!(refusal(&alice().spec, &forbidden), None);
    for (field, change) in cases {
        let mut spec = alice().spec;
        change(&mut spec);
        let found = refusal(&spec, &forbidden).map(|refusal| refusal.field);
        assert_eq!(found.as_deref(), Some(field), "{spec:?}");
    }
    for (at, host, refused) in [
        ("/home/alice", "/srv/alice", None),
        ("/home/alice/", "/srv/alice/", None),
        ("/", "/srv/alice", Some("spec.home.mountPath")),
        ("/home/../etc", "/srv/alice", Some("spec.home.mountPath")),
        ("/proc/self", "/srv/alice", Some("spec.home.mountPath")),
        ("/etcetera", "/srv/alice", None),
        ("/home/alice", "/", Some("spec.home.hostPath")),
        ("/home/alice", "/srv/./alice", Some("spec.home.hostPath")),
    ] {
        let spec = TenantSpec { home: Some(volume(at, host)), ..alice().spec };
        let found = refusal(&spec, &forbidden).map(|refusal| refusal.field);
        assert_eq!(found.as_deref(), refused, "{at} {host}");
    }
}

fn claimant(name: &str, second: i64, uid: i64, namespace: &str, user: &str) -> Tenant {
    let mut tenant = alice();
    tenant.metadata.name = Some(name.to_owned());
    tenant.metadata.creation_timestamp = jiff::Timestamp::from_second(second).ok().map(Time);
    tenant.spec = TenantSpec { uid, namespace: namespace.into(), user: user.into(), ..tenant.spec };
    tenant
}

#[test]
fn of_several_the_oldest_has_what_they_claim() {
    let mut claims = Claims::default();
    let names = |all: BTreeSet<String>| all.into_iter().collect::<Vec<_>>();
    assert_eq!(names(claims.put(&claimant("young", 20, 4001, "young", "young"))), [] as [&str; 0]);
    assert_eq!(claims.refusal("young"), None);
    assert_eq!(names(claims.put(&claimant("old", 10, 4001, "old", "old"))), ["young"]);
    let refused = claims.refusal("young").map(|refusal| refusal.to_string());
    assert_eq!(refused.as_deref(), Some("spec.uid: 4001 is the Tenant old's, which was first; choose another"));
    assert_eq!(claims.refusal("old"), None);
    assert_eq!(names(claims.put(&claimant("old", 10, 4002, "old", "old"))), ["young"]);
    assert_eq!(claims.refusal("young"), None);
    claims.put(&claimant("third", 30, 4003, "old", "young"));
    assert_eq!(claims.refusal("third").map(|refusal| refusal.field).as_deref(), Some("spec.namespace"));
    assert_eq!(claims.of_namespace("old"), Some("old"));
    assert_eq!(names(claims.remove("old")), ["third"]);
    assert_eq!(claims.of_namespace("old"), Some("third"));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever Tenants come, change and go: each uid, namespace and user is one's alone, the oldest's; and what was touched is all
    /// whose refusal changed.
    #[test]
    fn no_two_have_the_same(changes in proptest::collection::vec((0..6usize, 0..4i64, 0..3i64, 0..3usize, 0..3usize, any::<bool>()), 1..40)) {
        let mut claims = Claims::default();
        let mut there: BTreeMap<String, Tenant> = BTreeMap::new();
        for (who, second, uid, namespace, user, stays) in changes {
            let name = format!("t{who}");
            let before: BTreeMap<String, Option<Refusal>> = there.keys().map(|name| (name.clone(), claims.refusal(name))).collect();
            let touched = if stays {
                let tenant = claimant(&name, second, 4000 + uid, &format!("n{namespace}"), &format!("u{user}"));
                let touched = claims.put(&tenant);
                there.insert(name.clone(), tenant);
                touched
            } else {
                there.remove(&name);
                claims.remove(&name)
            };
            let turn = |tenant: &Tenant| (tenant.metadata.creation_timestamp.clone().map(|time| time.0), tenant.metadata.name.clone());
            for (one, tenant) in &there {
                let clash = |other: &&Tenant| {
                    let (mine, its) = (&tenant.spec, &other.spec);
                    turn(other) < turn(tenant) && (mine.uid == its.uid || mine.namespace == its.namespace || mine.user == its.user)
                };
                prop_assert_eq!(claims.refusal(one).is_some(), there.values().any(|other| clash(&other)), "{}", one);
                if *one != name && before.get(one).is_some_and(|before| *before != claims.refusal(one)) {
                    prop_assert!(touched.contains(one), "{} was not touched", one);
                }
            }
        }
    }
}

/// Whoever may write RoleBindings in his namespace can give one of them the label.
#[test]
fn a_namesake_in_another_namespace_goes_alone() {
    let mut model = Model::new(alice());
    model.settle();
    let mut elsewhere = model.bindings["pumice-tenant-edit"].clone();
    elsewhere.metadata.namespace = Some("mallory".into());
    model.bindings.insert("a namesake".into(), elsewhere);
    let effects = model.step();
    let is_it = |effect: &TenantEffect| {
        matches!(effect, TenantEffect::DeleteBinding { namespace, name, .. }
            if (namespace.as_str(), name.as_str()) == ("mallory", "pumice-tenant-edit"))
    };
    assert!(effects.len() == 1 && is_it(&effects[0]), "{effects:?}");
}

#[test]
fn rights_go_before_anything_else_can_fail() {
    let mut model = Model::new(alice());
    model.settle();
    model.tenant.spec.suspended = true;
    let effects = model.step();
    let kinds = |effect: &TenantEffect| matches!(effect, TenantEffect::DeleteBinding { .. });
    assert!(kinds(&effects[0]) && matches!(effects[1], TenantEffect::ApplyNamespace(_)), "{effects:?}");
}
