//! Pods that claim volumes and devices, through whole cycles.

use super::*;

fn claim(name: &str, class: &str) -> VolumeClaimFacts {
    VolumeClaimFacts {
        namespace: "ns".into(),
        name: name.into(),
        uid: format!("uid-{name}"),
        class: class.into(),
        access_modes: vec!["ReadWriteOnce".into()],
        bytes: 10,
        ..VolumeClaimFacts::default()
    }
}

fn bound(name: &str, volume: &str) -> VolumeClaimFacts {
    VolumeClaimFacts { volume: volume.into(), bound: true, ..claim(name, "local") }
}

fn volume(name: &str, on: &str, bytes: i64) -> VolumeFacts {
    let expressions = vec![Requirement { key: "host".into(), operator: Operator::In, values: vec![on.into()] }];
    VolumeFacts {
        name: name.into(),
        class: "local".into(),
        access_modes: vec!["ReadWriteOnce".into()],
        bytes,
        node_terms: Some(vec![NodeTerm { expressions, fields: Vec::new() }]),
        available: true,
        driver: "csi".into(),
        handle: name.into(),
        ..VolumeFacts::default()
    }
}

fn class(name: &str, provisioner: &str, waits: bool) -> Delta {
    Delta::StorageClassUpsert(StorageClassFacts {
        name: name.into(),
        provisioner: provisioner.into(),
        waits,
        topologies: Vec::new(),
    })
}

fn lab() -> Lab {
    let mut lab = Lab::new(&[]);
    for name in ["n0", "n1", "n2"] {
        let labels = [("host", name), ("topology.kubernetes.io/zone", if name == "n2" { "b" } else { "a" })];
        let labels = labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        lab.apply(Delta::NodeUpsert(NodeFacts { labels, ..node(name, 10_000) }));
    }
    lab.apply(class("local", "kubernetes.io/no-provisioner", true));
    lab.apply(class("made", "example.com/made", true));
    lab.apply(class("soon", "example.com/soon", false));
    lab
}

fn pod_of(lab: &mut Lab, name: &str, volumes: &[&str], devices: &[&str]) {
    lab.apply(Delta::GroupUpsert(Box::new(group(name, 1))));
    let mut facts = pod(name, 0, 1_000);
    facts.claims.volumes = volumes.iter().map(|name| (*name).to_owned()).collect();
    facts.claims.devices = devices.iter().map(|name| (*name).to_owned()).collect();
    lab.pod(facts);
}

#[test]
fn claims_that_are_not_as_they_must_be_hold_the_pod_back() {
    for (facts, told) in [
        (None, "volume claim c does not exist"),
        (Some(claim("c", "soon")), "volume claim c is not bound yet"),
        (Some(VolumeClaimFacts { lost: true, ..bound("c", "v") }), "volume claim c has lost its volume v"),
        (Some(VolumeClaimFacts { terminating: true, ..bound("c", "v") }), "volume claim c is being deleted"),
        (Some(bound("c", "v")), "volume claim c is bound to volume v, which is not there"),
        (Some(claim("c", "local")), "3 without a volume for claim c"),
    ] {
        let mut lab = lab();
        facts.into_iter().for_each(|facts| lab.apply(Delta::VolumeClaimUpsert(facts)));
        pod_of(&mut lab, "p", &["c"], &[]);
        assert_eq!(lab.binds(), [""; 0], "{told}");
        assert!(lab.why("p").contains(told), "{told}: {}", lab.why("p"));
    }
}

#[test]
fn claims_without_a_volume_wait_unless_the_nodes_meet_them() {
    for (nodes_meet_claims, binds) in [(false, 0), (true, 1)] {
        let mut lab = Lab::with(Config { nodes_meet_claims, ..Config::default() }, &[10_000]);
        lab.apply(Delta::VolumeClaimUpsert(claim("c", "")));
        pod_of(&mut lab, "p", &["c"], &[]);
        assert_eq!(lab.binds().len(), binds, "where there is no volume and no class");
    }
    let mut lab = Lab::with(Config { nodes_meet_claims: true, ..Config::default() }, &[10_000]);
    lab.apply(class("soon", "example.com/soon", false));
    lab.apply(Delta::VolumeClaimUpsert(claim("c", "")));
    pod_of(&mut lab, "p", &["c"], &[]);
    assert_eq!(lab.binds(), [""; 0], "somebody else makes volumes");
}

#[test]
fn a_bound_volume_decides_the_node() {
    let mut lab = lab();
    lab.apply(Delta::VolumeUpsert(volume("v", "n1", 10)));
    lab.apply(Delta::VolumeClaimUpsert(bound("c", "v")));
    pod_of(&mut lab, "p", &["c"], &[]);
    let plan = lab.cycle();
    assert_eq!(plan.binds[0].node, "n1");
    assert_eq!(plan.binds[0].prebind, []);
    let labels = [("topology.kubernetes.io/zone".to_owned(), "b__c".to_owned())].into();
    lab.apply(Delta::VolumeUpsert(VolumeFacts { labels, node_terms: None, ..volume("w", "n1", 10) }));
    lab.apply(Delta::VolumeClaimUpsert(bound("d", "w")));
    pod_of(&mut lab, "q", &["d"], &[]);
    assert_eq!(lab.cycle().binds[0].node, "n2", "the volume's zone");
}

#[test]
fn waiting_claims_get_the_smallest_volume_that_fits_and_no_two_the_same() {
    let mut lab = lab();
    for (name, on, bytes) in [("v0", "n1", 5), ("v1", "n1", 50), ("v2", "n1", 20)] {
        lab.apply(Delta::VolumeUpsert(volume(name, on, bytes)));
    }
    for name in ["c0", "c1", "c2"] {
        lab.apply(Delta::VolumeClaimUpsert(claim(name, "local")));
        pod_of(&mut lab, &format!("p{name}"), &[name], &[]);
    }
    let plan = lab.cycle();
    let bind = |claim: &str, volume: &str| {
        let (claim, volume) = (claim.to_owned(), volume.to_owned());
        vec![Prebind::BindVolume { namespace: "ns".into(), uid: format!("uid-{claim}"), claim, volume }]
    };
    let writes: Vec<_> = plan.binds.iter().map(|bind| bind.prebind.clone()).collect();
    assert_eq!(writes, [bind("c0", "v2"), bind("c1", "v1")]);
    assert!(lab.why("pc2").contains("without a volume for claim c2"));
    // The volume comes free when the pod that was to get it is gone before it is bound.
    lab.apply(Delta::TaskRemove("uid-pc0-0".into()));
    assert_eq!(lab.cycle().binds[0].prebind, bind("c2", "v2"));
}

#[test]
fn a_volume_is_made_where_the_pod_goes() {
    let mut lab = lab();
    lab.apply(Delta::VolumeClaimUpsert(claim("c", "made")));
    lab.apply(Delta::VolumeClaimUpsert(VolumeClaimFacts { selected_node: Some("n2".into()), ..claim("d", "made") }));
    pod_of(&mut lab, "p", &["c"], &[]);
    pod_of(&mut lab, "q", &["d"], &[]);
    let plan = lab.cycle();
    let select = |claim: &str, node: &str| Prebind::SelectNode {
        namespace: "ns".into(),
        claim: claim.into(),
        node: node.into(),
    };
    assert_eq!(plan.binds[0].prebind, [select("c", &plan.binds[0].node)]);
    assert_eq!((plan.binds[1].node.as_str(), &plan.binds[1].prebind), ("n2", &vec![select("d", "n2")]));
}

#[test]
fn nodes_attach_only_so_many_volumes_and_some_claims_take_one_pod() {
    let mut lab = lab();
    for node in ["n0", "n1", "n2"] {
        let limits = [("csi".to_owned(), i64::from(node == "n1"))].into();
        lab.apply(Delta::CsiNodeUpsert(CsiNodeFacts { node: node.into(), limits }));
    }
    for name in ["v0", "v1"] {
        lab.apply(Delta::VolumeUpsert(VolumeFacts { node_terms: None, ..volume(name, "", 10) }));
        lab.apply(Delta::VolumeClaimUpsert(bound(&format!("c{name}"), name)));
        pod_of(&mut lab, name, &[&format!("c{name}")], &[]);
    }
    let plan = lab.cycle();
    assert_eq!(plan.binds.iter().map(|bind| bind.node.as_str()).collect::<Vec<_>>(), ["n1"]);
    assert!(lab.why("v1").contains("3 that take no more volumes of csi"), "{}", lab.why("v1"));
    let single = VolumeClaimFacts { access_modes: vec!["ReadWriteOncePod".into()], ..bound("cv0", "v0") };
    lab.apply(Delta::VolumeClaimUpsert(single));
    pod_of(&mut lab, "second", &["cv0"], &[]);
    assert_eq!(lab.binds(), [""; 0]);
    let told = "volume claim cv0 is for one pod at a time";
    assert!(lab.why("second").contains(told) || lab.why("second").contains("no more"), "{}", lab.why("second"));
}

fn devices(node: &str, names: &[&str]) -> Delta {
    let device = |name: &&str| DeviceFacts {
        name: (*name).to_owned(),
        attributes: [("type".to_owned(), Attribute::Text("gpu".into()))].into(),
    };
    Delta::DeviceSliceUpsert(DeviceSliceFacts {
        name: format!("slice-{node}"),
        driver: "gpu.com".into(),
        pool: node.into(),
        generation: 1,
        node: Some(node.into()),
        node_terms: None,
        devices: names.iter().map(device).collect(),
    })
}

fn wants(name: &str, count: u32) -> DeviceClaimFacts {
    let selectors = vec!["device.attributes['gpu.com'].type == 'gpu'".to_owned()];
    let request = DeviceRequest { name: "r".into(), class: "gpu".into(), count, selectors };
    DeviceClaimFacts { namespace: "ns".into(), name: name.into(), requests: vec![request], ..Default::default() }
}

#[test]
fn devices_are_given_once_and_go_with_the_bind() {
    let mut lab = lab();
    let selectors = vec!["device.driver == 'gpu.com'".to_owned()];
    lab.apply(Delta::DeviceClassUpsert(DeviceClassFacts { name: "gpu".into(), selectors }));
    lab.apply(devices("n0", &["d0"]));
    lab.apply(devices("n2", &["d0", "d1", "d2"]));
    for (name, count) in [("a", 2), ("b", 1), ("c", 1), ("d", 1)] {
        lab.apply(Delta::DeviceClaimUpsert(wants(name, count)));
        pod_of(&mut lab, &format!("p{name}"), &[], &[name]);
    }
    let plan = lab.cycle();
    let given = |bind: &Bind| match &bind.prebind[..] {
        [Prebind::Reserve { devices, .. }] => {
            devices.iter().map(|(_, device)| format!("{}/{}", device.pool, device.device)).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    let given: Vec<Vec<String>> = plan.binds.iter().map(given).collect();
    assert_eq!(given, [vec!["n2/d0", "n2/d1"], vec!["n0/d0"], vec!["n2/d2"]]);
    assert!(lab.why("pd").contains("too few free devices of class gpu"), "{}", lab.why("pd"));
    // Written, the devices stay taken; another pod of the same claim goes where they are.
    let device = DeviceName { driver: "gpu.com".into(), pool: "n0".into(), device: "d0".into() };
    let fields = vec![Requirement { key: "metadata.name".into(), operator: Operator::In, values: vec!["n0".into()] }];
    let node_terms = Some(vec![NodeTerm { expressions: Vec::new(), fields }]);
    lab.apply(Delta::DeviceClaimUpsert(DeviceClaimFacts {
        allocated: Some(vec![device]),
        node_terms,
        ..wants("b", 1)
    }));
    pod_of(&mut lab, "again", &[], &["b"]);
    let plan = lab.cycle();
    assert_eq!((plan.binds.len(), plan.binds[0].node.as_str()), (1, "n0"));
}

#[test]
fn what_needs_all_of_cel_says_so() {
    let mut lab = lab();
    let selectors = vec!["device.capacity['x'].y.isGreaterThan(quantity('1'))".to_owned()];
    lab.apply(Delta::DeviceClassUpsert(DeviceClassFacts { name: "gpu".into(), selectors }));
    lab.apply(devices("n0", &["d0"]));
    lab.apply(Delta::DeviceClaimUpsert(wants("a", 1)));
    pod_of(&mut lab, "p", &[], &["a"]);
    assert_eq!(lab.binds(), [""; 0]);
    assert!(lab.why("p").contains("selector needs all of CEL: device.capacity"), "{}", lab.why("p"));
}

#[test]
fn pods_go_where_their_images_are() {
    let parse = |text: &str| Config::parse(text).map(|(config, _)| config).unwrap();
    let config = parse(
        "actions: \"allocate\"\ntiers:\n- plugins:\n  - name: gang\n  - name: nodeorder\n    arguments:\n      imagelocality.weight: 1\n      leastrequested.weight: 0\n      balancedresource.weight: 0\n",
    );
    let mut lab = Lab::with(config, &[10_000, 10_000, 10_000]);
    let image = |node: &str, bytes: i64| {
        let images = [("app:1".to_owned(), bytes)].into();
        Delta::NodeUpsert(NodeFacts { images, ..super::node(node, 10_000) })
    };
    let place = |lab: &mut Lab, name: &str| {
        lab.apply(Delta::GroupUpsert(Box::new(group(name, 1))));
        let mut facts = pod(name, 0, 100);
        facts.template.images = vec!["app:1".to_owned()];
        lab.pod(facts);
        lab.cycle().binds[0].node.clone()
    };
    assert_eq!(place(&mut lab, "a"), "n0", "nobody has it");
    lab.apply(image("n2", 600 << 20));
    assert_eq!(place(&mut lab, "b"), "n2");
    // What other nodes hold counts too: scores that were known before are good no more.
    let (few, many) =
        (lab.world.tables.images.score(&["app:1".to_owned()], lab.world.tables.nodes.row(crate::ids::NodeId(2)), 3), {
            lab.apply(image("n1", 600 << 20));
            lab.world.tables.images.score(&["app:1".to_owned()], lab.world.tables.nodes.row(crate::ids::NodeId(2)), 3)
        });
    // A third of 600 MiB, then two thirds of it, less 23 MiB of 1000.
    assert_eq!((few, many), (18, 38));
    assert_eq!(place(&mut lab, "c"), "n1");
}
