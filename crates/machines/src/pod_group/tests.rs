//! Every case of the machine, and what holds of all of them.

use k8s_openapi::api::core::v1::Pod;
use proptest::prelude::*;
use pumice_api::scheduling::{NetworkTopologyMode, PodGroupPhase};
use serde_json::{Value, json};

use super::*;

fn pod(metadata: Value, spec: Value) -> Pod {
    let mut pod = json!({"metadata": {"namespace": "n", "name": "p", "uid": "1"}, "spec": {"containers": [
        {"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m"}}}]}});
    for (part, more) in [("metadata", metadata), ("spec", spec)] {
        pod[part].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    }
    serde_json::from_value(pod).unwrap()
}

fn owner(kind: &str) -> Value {
    json!([{"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "7", "controller": true},
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "8"}])
}

fn facts(annotations: &[(&str, &str)], replicas: Option<i32>) -> OwnerFacts {
    let annotations = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    OwnerFacts { annotations: inherited(annotations), replicas, at_once: replicas }
}

fn newest(member: &Member) -> Newest<'_> {
    Newest { name: "p", uid: "1", owners: &member.owners, template: &member.template }
}

/// One pod that was not told.
fn view<'a>(member: &'a Member, source: Source<'a>, group: Option<&'a PodGroup>) -> GroupView<'a> {
    GroupView {
        namespace: "n",
        name: &member.group,
        group,
        source,
        pods: 1,
        staying: 1,
        newest: Some(newest(member)),
        untold: vec![("p", "1")],
        may_wait: false,
    }
}

fn created(view: &GroupView<'_>) -> PodGroup {
    let effects = step(view);
    let Some(GroupEffect::Create(group)) = effects.first() else { panic!("{effects:?}") };
    let mut group = (**group).clone();
    group.metadata.uid = Some("of the server".into());
    group
}

/// What an API server would make of a patch.
fn patched(group: &PodGroup, patch: &Value) -> PodGroup {
    fn merge(into: &mut Value, patch: &Value) {
        let Value::Object(patch) = patch else { return *into = patch.clone() };
        if !into.is_object() {
            *into = json!({});
        }
        for (key, value) in patch {
            let fields = into.as_object_mut().unwrap();
            if value.is_null() {
                fields.remove(key);
            } else {
                merge(fields.entry(key).or_insert(Value::Null), value);
            }
        }
    }
    let mut object = serde_json::to_value(group).unwrap();
    merge(&mut object, patch);
    serde_json::from_value(object).unwrap()
}

fn tell() -> GroupEffect {
    GroupEffect::Tell { pod: "p".into(), uid: "1".into() }
}

#[test]
fn a_pod_alone_gets_a_group_of_one_that_goes_with_it() {
    let annotations = json!({
        "scheduling.volcano.sh/queue-name": "q", "volcano.sh/preemptable": "true", "volcano.sh/cooldown-time": "60s",
        "volcano.sh/revocable-zone": "rz", "volcano.sh/jdb-max-unavailable": "1", "volcano.sh/sla-waiting-time": "1h",
        "volcano.sh/network-topology-mode": "SOFT", "volcano.sh/network-topology-highest-tier": "2", "other": "x",
    });
    let labels = json!({"volcano.sh/preemptable": "false", "app": "a"});
    let pod = pod(json!({"annotations": annotations, "labels": labels}), json!({"priorityClassName": "high"}));
    let member = Member::of(&pod).unwrap();
    let view = view(&member, Source::Pod, None);
    assert_eq!(step(&view)[1..], [tell()]);
    let group = created(&view);
    assert_eq!(group.metadata.name.as_deref(), Some("podgroup-1"));
    let owners = group.metadata.owner_references.unwrap();
    assert_eq!((owners.len(), &*owners[0].kind, &*owners[0].uid, owners[0].controller), (1, "Pod", "1", Some(true)));
    let taken: Vec<String> = group.metadata.annotations.unwrap().into_keys().collect();
    assert_eq!(
        taken,
        [
            "volcano.sh/cooldown-time",
            "volcano.sh/jdb-max-unavailable",
            "volcano.sh/preemptable",
            "volcano.sh/revocable-zone",
            "volcano.sh/sla-waiting-time"
        ]
    );
    let labels = group.metadata.labels.unwrap();
    assert_eq!(labels.keys().collect::<Vec<_>>(), [names::MADE_OF, names::PREEMPTABLE]);
    assert_eq!((group.spec.min_member, &*group.spec.queue, &*group.spec.priority_class_name), (1, "q", "high"));
    assert_eq!(group.status.phase, Some(PodGroupPhase::Pending));
    let topology = group.spec.network_topology.unwrap();
    assert_eq!((topology.mode, topology.highest_tier_allowed), (Some(NetworkTopologyMode::Soft), Some(2)));
    let least = group.spec.min_resources.unwrap();
    assert_eq!((&*least["cpu"].0, &*least["requests.cpu"].0, &*least["pods"].0), ("500m", "500m", "1"));
}

#[test]
fn words_that_nobody_knows_mean_what_they_mean_in_volcano() {
    let topology = |mode: Option<&str>, tier: Option<&str>| {
        let mut annotations = json!({});
        let keys = [names::NETWORK_TOPOLOGY_MODE, names::NETWORK_TOPOLOGY_HIGHEST_TIER];
        for (key, value) in keys.into_iter().zip([mode, tier]).filter_map(|(key, value)| Some((key, value?))) {
            annotations[key] = value.into();
        }
        let member = Member::of(&pod(json!({"annotations": annotations}), json!({}))).unwrap();
        let group = created(&view(&member, Source::Pod, None));
        group.spec.network_topology.map(|topology| (topology.mode.unwrap(), topology.highest_tier_allowed))
    };
    assert_eq!(topology(None, None), None);
    assert_eq!(topology(Some("Hard"), None), Some((NetworkTopologyMode::Hard, None)));
    assert_eq!(topology(Some("strict"), Some("x")), Some((NetworkTopologyMode::Hard, None)));
    assert_eq!(topology(None, Some("1")), Some((NetworkTopologyMode::Hard, Some(1))));
    let minimum = [("4", 4), ("0", 0), ("-1", 1), ("four", 1), ("", 1), ("99999999999", 1)];
    for (text, expected) in minimum {
        let owner_facts = facts(&[(names::GROUP_MIN_MEMBER, text)], None);
        let member = Member::of(&pod(json!({"ownerReferences": owner("ReplicaSet")}), json!({}))).unwrap();
        let group = created(&view(&member, Source::Owner(Owner::There(&owner_facts)), None));
        assert_eq!(group.spec.min_member, expected, "{text}");
        let cpu = group.spec.min_resources.unwrap()["cpu"].0.clone();
        assert_eq!(cpu, ["0", "500m", "2"][usize::try_from(expected.min(2)).unwrap()], "{text}");
    }
}

/// A Deployment that is rolled out has one pod of its new ReplicaSet, then two, and so on.
#[test]
fn no_more_pods_have_to_be_there_than_the_owner_makes() {
    let member = Member::of(&pod(json!({"ownerReferences": owner("ReplicaSet")}), json!({}))).unwrap();
    let wants = |replicas| facts(&[(names::GROUP_MIN_MEMBER, "4")], replicas);
    let mut group = created(&view(&member, Source::Owner(Owner::There(&wants(Some(1)))), None));
    assert_eq!(group.spec.min_member, 1);
    for (replicas, least) in [(Some(2), 2), (Some(4), 4), (Some(6), 4), (Some(3), 3), (Some(0), 1), (None, 4)] {
        let facts = wants(replicas);
        let effects =
            step(&GroupView { untold: vec![], ..view(&member, Source::Owner(Owner::There(&facts)), Some(&group)) });
        if let [GroupEffect::Patch(patch)] = effects.as_slice() {
            group = patched(&group, patch);
        }
        assert_eq!(group.spec.min_member, least, "{replicas:?}");
    }
}

#[test]
fn pods_of_one_owner_share_a_group_that_inherits_from_it() {
    let annotations = json!({"volcano.sh/preemptable": "true", "volcano.sh/jdb-min-available": "1",
        "volcano.sh/jdb-max-unavailable": "2"});
    let pod = pod(json!({"ownerReferences": owner("StatefulSet"), "annotations": annotations}), json!({}));
    let member = Member::of(&pod).unwrap();
    assert_eq!(step(&view(&member, Source::Owner(Owner::Unread), None)), [GroupEffect::ReadOwner]);
    let facts = facts(
        &[
            ("volcano.sh/preemptable", "false"),
            ("volcano.sh/x", "y"),
            ("scheduling.volcano.sh/group-min-member", "3"),
            ("deployment.kubernetes.io/revision", "1"),
        ],
        Some(3),
    );
    let group = created(&view(&member, Source::Owner(Owner::There(&facts)), None));
    assert_eq!(group.metadata.name.as_deref(), Some("podgroup-7"));
    assert_eq!(group.metadata.owner_references.as_ref().unwrap(), &member.owners, "all of the pod's");
    let expected = [("volcano.sh/jdb-min-available", "1"), ("volcano.sh/preemptable", "true"), ("volcano.sh/x", "y")];
    assert_eq!(
        group.metadata.annotations.unwrap(),
        expected.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
    );
    assert_eq!((group.spec.min_member, &*group.spec.queue), (3, ""));
}

#[test]
fn who_gets_no_group() {
    let grouped = |name: &str| json!({"annotations": {names::GROUP_NAME: name}});
    let cases = [
        (grouped("mine"), json!({})),
        (json!({"labels": {names::GROUP_NAME: "mine"}}), json!({})),
        (json!({"ownerReferences": owner("Node")}), json!({})),
        (json!({"uid": ""}), json!({})),
    ];
    for (metadata, spec) in cases {
        assert_eq!(Member::of(&pod(metadata.clone(), spec)), None, "{metadata}");
    }
    for phase in ["Succeeded", "Failed"] {
        let mut ended = pod(json!({}), json!({}));
        ended.status = serde_json::from_value(json!({ "phase": phase })).unwrap();
        assert_eq!(Member::of(&ended), None, "{phase}");
    }
    let told = Member::of(&pod(grouped("podgroup-1"), json!({}))).unwrap();
    assert!(told.is_told);
}

#[test]
fn a_pod_on_its_way_to_a_node_is_left_alone() {
    let member = Member::of(&pod(json!({}), json!({}))).unwrap();
    let early = GroupView { may_wait: true, ..view(&member, Source::Pod, None) };
    assert_eq!(step(&early), []);
    let leaving = GroupView { staying: 0, ..view(&member, Source::Pod, None) };
    assert_eq!(step(&leaving), []);
}

#[test]
fn a_group_of_somebody_else_is_only_told_of() {
    let member = Member::of(&pod(json!({"ownerReferences": owner("ReplicaSet")}), json!({}))).unwrap();
    let mut group = PodGroup::default();
    group.spec.min_member = 9;
    let facts = facts(&[], Some(0));
    let source = Source::Owner(Owner::There(&facts));
    assert_eq!(step(&view(&member, source, Some(&group))), [tell()]);
    assert_eq!(step(&GroupView { pods: 0, newest: None, untold: vec![], ..view(&member, source, Some(&group)) }), []);
}

#[test]
fn a_group_follows_its_causes_and_keeps_what_others_add() {
    let member = Member::of(&pod(json!({"ownerReferences": owner("ReplicaSet")}), json!({}))).unwrap();
    let before = facts(&[(names::GROUP_MIN_MEMBER, "2")], Some(3));
    let mut group = created(&view(&member, Source::Owner(Owner::There(&before)), None));
    // The server's default, the scheduler's note, somebody's correction.
    group.spec.queue = "default".into();
    group.metadata.annotations = Some([("volcano.sh/note".to_owned(), "x".to_owned())].into());
    group.spec.min_member = 5;
    let told = |group, source| step(&GroupView { untold: vec![], ..view(&member, source, Some(group)) });
    assert_eq!(told(&group, Source::Owner(Owner::There(&before))), []);
    assert_eq!(told(&group, Source::Owner(Owner::Gone)), []);

    let after = facts(&[(names::GROUP_MIN_MEMBER, "0"), ("volcano.sh/x", "y")], Some(3));
    let effects = told(&group, Source::Owner(Owner::There(&after)));
    let [GroupEffect::Patch(patch)] = effects.as_slice() else { panic!("{effects:?}") };
    let group = patched(&group, patch);
    assert_eq!((group.spec.min_member, &*group.spec.queue), (0, "default"));
    assert_eq!(group.metadata.annotations.as_ref().unwrap().len(), 2);
    assert_eq!(told(&group, Source::Owner(Owner::There(&after))), []);

    // Another template: another class, no topology any more.
    let newer = pod(
        json!({"ownerReferences": owner("ReplicaSet"), "annotations": {names::SCHEDULING_QUEUE_NAME: "q"}}),
        json!({"priorityClassName": "high", "containers": [{"name": "c", "image": "i"}]}),
    );
    let newer = Member::of(&newer).unwrap();
    let source = Source::Owner(Owner::There(&before));
    let effects = step(&GroupView { untold: vec![], ..view(&newer, source, Some(&group)) });
    let [GroupEffect::Patch(patch)] = effects.as_slice() else { panic!("{effects:?}") };
    let group = patched(&group, patch);
    assert_eq!((&*group.spec.queue, &*group.spec.priority_class_name), ("q", "high"));
    assert!(!group.spec.min_resources.unwrap().contains_key("cpu"), "it asks for none now");
}

#[test]
fn the_group_of_an_owner_that_wants_no_pods_goes() {
    let member = Member::of(&pod(json!({"ownerReferences": owner("ReplicaSet")}), json!({}))).unwrap();
    let (some, none) = (facts(&[], Some(3)), facts(&[], Some(0)));
    let group = created(&view(&member, Source::Owner(Owner::There(&some)), None));
    let empty = |source| GroupView {
        pods: 0,
        staying: 0,
        newest: None,
        untold: Vec::new(),
        ..view(&member, source, Some(&group))
    };
    let gone = vec![GroupEffect::Delete { uid: "of the server".into() }];
    let cases = [
        (Owner::There(&none), gone),
        (Owner::There(&some), vec![]),
        (Owner::Unread, vec![]),
        (Owner::Gone, vec![]),
        (Owner::Silent, vec![]),
    ];
    for (owner, expected) in cases {
        assert_eq!(step(&empty(Source::Owner(owner))), expected, "{owner:?}");
    }
    let last = GroupView {
        pods: 1,
        staying: 0,
        untold: vec![],
        ..view(&member, Source::Owner(Owner::There(&none)), Some(&group))
    };
    assert_eq!(step(&last), [], "its last pod is still on its way out");
}

#[test]
fn a_pod_group_of_kubernetes_own_is_followed() {
    let annotations = [(names::SCHEDULING_QUEUE_NAME.to_owned(), "q".to_owned())].into();
    let native = |spec: Value| NativeGroup::new(&annotations, serde_json::from_value(spec).unwrap());
    fn with<'a>(group: &'a NativeGroup, workload: Option<&'a Workload>) -> Source<'a> {
        Source::Native(Some(Native { api_version: "scheduling.k8s.io/v1alpha2", uid: "g", group, workload }))
    }
    let spec = json!({"schedulingGroup": {"podGroupName": "gang"}, "priorityClassName": "of-the-pod"});
    let member = Member::of(&pod(json!({"ownerReferences": owner("Job")}), spec)).unwrap();
    assert_eq!((&*member.group, &member.origin), ("gang", &Origin::Native));
    assert_eq!(step(&view(&member, Source::Native(None), None)), [], "it comes yet");

    let gang = native(json!({"schedulingPolicy": {"gang": {"minCount": 4}}, "priorityClassName": "high",
        "schedulingConstraints": {"topology": [{"key": "example.com/rack"}]}}));
    let group = created(&view(&member, with(&gang, None), None));
    assert_eq!((group.spec.min_member, &*group.spec.queue, &*group.spec.priority_class_name), (4, "q", "high"));
    let topology = group.spec.network_topology.clone().unwrap();
    assert_eq!((topology.mode, &*topology.highest_tier_name), (Some(NetworkTopologyMode::Hard), "example.com/rack"));
    let owners = group.metadata.owner_references.clone().unwrap();
    assert_eq!((owners.len(), &*owners[0].api_version, &*owners[0].uid), (1, "scheduling.k8s.io/v1alpha2", "g"));
    assert_eq!(step(&view(&member, with(&gang, None), Some(&group))), [], "its pods say it in their spec");

    let basic = native(json!({"schedulingPolicy": {"basic": {}}}));
    let group = created(&view(&member, with(&basic, None), None));
    assert_eq!((group.spec.min_member, &*group.spec.priority_class_name), (1, "of-the-pod"));

    // What it leaves to the template of a Workload that it refers to, in the words of each version.
    let workload: WorkloadSpec = serde_json::from_value(json!({"controllerRef": null, "podGroupTemplates": [
        {"name": "other", "schedulingPolicy": {"gang": {"minCount": 9}}},
        {"name": "w", "schedulingPolicy": {"gang": {"minCount": 3}}, "priorityClassName": "of-the-template",
            "schedulingConstraints": {"topology": [{"key": "example.com/block"}]}}]}))
    .unwrap();
    let workload = Workload::from(workload);
    let references = [
        json!({"podGroupTemplateRef": {"workload": {"workloadName": "job", "podGroupTemplateName": "w"}}}),
        json!({"workloadRef": {"workloadName": "job", "templateName": "w"}}),
    ];
    for mut spec in references {
        spec["schedulingPolicy"] = json!({"gang": {"minCount": 2}});
        spec["schedulingConstraints"] = Value::Null;
        let gang = native(spec);
        assert_eq!(gang.workload(), Some("job"));
        let group = created(&view(&member, with(&gang, Some(&workload)), None));
        let tier = group.spec.network_topology.as_ref().map(|topology| &*topology.highest_tier_name);
        assert_eq!(
            (group.spec.min_member, &*group.spec.priority_class_name, tier),
            (2, "of-the-template", Some("example.com/block"))
        );
        // The Workload goes, and the group stays as it is; one that is made without it follows it when it comes.
        assert_eq!(step(&view(&member, with(&gang, None), Some(&group))), []);
        let early = created(&view(&member, with(&gang, None), None));
        assert_eq!(early.spec.network_topology, None);
        let effects = step(&view(&member, with(&gang, Some(&workload)), Some(&early)));
        let [GroupEffect::Patch(patch)] = effects.as_slice() else { panic!("{effects:?}") };
        assert_eq!(patched(&early, patch).spec, group.spec);
    }
    let silent =
        native(json!({"podGroupTemplateRef": {"workload": {"workloadName": "job", "podGroupTemplateName": "w"}}}));
    assert_eq!(created(&view(&member, with(&silent, Some(&workload)), None)).spec.min_member, 3);
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[a-z0-9-]{1,8}", Just("3".to_owned())]
}

fn any_annotations() -> impl Strategy<Value = std::collections::BTreeMap<String, String>> {
    let keys = prop::sample::select(vec![
        names::SCHEDULING_QUEUE_NAME,
        names::PREEMPTABLE,
        names::GROUP_MIN_MEMBER,
        names::JDB_MIN_AVAILABLE,
        names::NETWORK_TOPOLOGY_MODE,
        names::NETWORK_TOPOLOGY_HIGHEST_TIER,
        "volcano.sh/x",
        "other",
    ]);
    prop::collection::btree_map(keys.prop_map(str::to_owned), any_text(), 0..5)
}

fn any_member() -> impl Strategy<Value = Member> {
    (any_annotations(), any_text(), any_text(), prop::bool::ANY).prop_map(|(annotations, cpu, class, owned)| {
        let owners = if owned { owner("ReplicaSet") } else { json!([]) };
        let spec = json!({"priorityClassName": class, "containers": [
            {"name": "c", "resources": {"requests": {"cpu": cpu}}}]});
        Member::of(&pod(json!({"annotations": annotations, "ownerReferences": owners}), spec)).unwrap()
    })
}

fn any_owner() -> impl Strategy<Value = OwnerFacts> {
    (any_annotations(), prop::option::of(0..3)).prop_map(|(annotations, replicas)| OwnerFacts {
        annotations: inherited(annotations),
        replicas,
        at_once: replicas,
    })
}

proptest! {
    /// From one cause to another, and then to rest.
    #[test]
    fn a_step_leads_to_rest(
        members in prop::collection::vec(any_member(), 2),
        owners in prop::collection::vec(any_owner(), 2),
    ) {
        let source = |member: &Member, facts| match member.origin {
            Origin::Owned(_) => Source::Owner(Owner::There(facts)),
            _ => Source::Pod,
        };
        let mut group: Option<PodGroup> = None;
        for (member, facts) in members.iter().zip(&owners) {
            let name = group.as_ref().map_or(&member.group, |group| group.metadata.name.as_ref().unwrap()).clone();
            let mut is_told = false;
            for round in 0..3 {
                let now = GroupView { name: &name, ..view(member, source(member, facts), group.as_ref()) };
                let untold = if is_told { Vec::new() } else { now.untold.clone() };
                let effects = step(&GroupView { untold, ..now });
                prop_assert!(round < 2 || effects.is_empty(), "{effects:?}");
                let mut next = group.clone();
                for effect in effects {
                    match effect {
                        GroupEffect::Create(made) => next = Some(*made),
                        GroupEffect::Patch(patch) => next = next.as_ref().map(|group| patched(group, &patch)),
                        GroupEffect::Tell { .. } => is_told = true,
                        other => prop_assert!(false, "{other:?}"),
                    }
                }
                group = next;
            }
        }
    }

    /// Whatever its pods and their owner say.
    #[test]
    fn a_group_of_somebody_else_is_never_written(
        member in any_member(), facts in any_owner(), pods in 0_usize..3, min in 0..9, told in prop::bool::ANY,
    ) {
        let mut group = PodGroup::default();
        group.spec.min_member = min;
        let source = Source::Owner(Owner::There(&facts));
        let mut view = GroupView { pods, staying: pods, ..view(&member, source, Some(&group)) };
        if told || pods == 0 {
            view.untold.clear();
        }
        let effects = step(&view);
        prop_assert!(effects.iter().all(|effect| matches!(effect, GroupEffect::Tell { .. })), "{effects:?}");
    }
}
