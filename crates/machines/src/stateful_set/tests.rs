//! StatefulSets of a small cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::*;
use crate::workload::world::World;

fn set(spec: Value) -> StatefulSet {
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}});
    let mut set = json!({"metadata": {"name": "s", "namespace": "n", "uid": "u", "generation": 1}, "spec": {
        "replicas": 3, "serviceName": "svc", "selector": {"matchLabels": {"a": "b"}}, "volumeClaimTemplates": [claim],
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}}});
    set["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    serde_json::from_value(set).unwrap()
}

struct Scene {
    world: World,
    set: StatefulSet,
    revisions: BTreeMap<String, ControllerRevision>,
    claims: BTreeMap<String, PersistentVolumeClaim>,
}

impl Scene {
    fn new(spec: Value) -> Self {
        Self { world: World::new(), set: set(spec), revisions: BTreeMap::new(), claims: BTreeMap::new() }
    }

    fn step(&mut self) -> bool {
        let seen = self.world.seen();
        let claims = |name: &str| self.claims.get(name);
        let view = StatefulView {
            set: &self.set,
            pods: seen.iter().collect(),
            revisions: self.revisions.values().collect(),
            claims: &claims,
        };
        let plan = step(&view, self.world.now);
        let idle = plan.effects.is_empty();
        plan.effects.into_iter().for_each(|effect| self.apply(effect));
        !idle
    }

    fn apply(&mut self, effect: StatefulEffect) {
        match effect {
            StatefulEffect::CreateRevision(mut revision) => {
                let name = revision.metadata.name.clone().unwrap();
                revision.metadata.uid = Some(format!("uid-{name}"));
                revision.metadata.creation_timestamp = Some(Time(self.world.now));
                assert!(self.revisions.insert(name, *revision).is_none());
            }
            StatefulEffect::Renumber { name, revision, .. } => {
                self.revisions.get_mut(&name).unwrap().revision = revision
            }
            StatefulEffect::DeleteRevision { name, .. } => drop(self.revisions.remove(&name)),
            StatefulEffect::CreateClaim(mut claim) => {
                claim.metadata.uid = claim.metadata.name.clone();
                assert!(self.claims.insert(claim.metadata.name.clone().unwrap(), *claim).is_none());
            }
            StatefulEffect::OwnClaim { name, add, remove, .. } => {
                let owners = self.claims.get_mut(&name).unwrap().metadata.owner_references.get_or_insert_default();
                owners.retain(|owner| !remove.contains(&owner.uid));
                owners.extend(add.map(|owner| *owner));
            }
            StatefulEffect::Pod(pod) => self.world.apply(pod),
            StatefulEffect::WriteStatus(status) => self.set.status = Some(*status),
        }
    }

    /// Until nothing is left to do but to wait.
    fn settle(&mut self) {
        for _ in 0..20 {
            if !self.step() {
                return;
            }
        }
        panic!("it does not settle: {:?}", self.set.status);
    }

    /// As long as it takes, with nodes that work.
    fn run(&mut self) {
        for _ in 0..30 {
            self.settle();
            self.world.end_leaving();
            self.world.run_all();
        }
        self.settle();
    }

    fn spec(&mut self) -> &mut StatefulSetSpec {
        *self.set.metadata.generation.as_mut().unwrap() += 1;
        self.set.spec.as_mut().unwrap()
    }

    fn image(&mut self, image: &str) {
        self.spec().template.spec.as_mut().unwrap().containers[0].image = Some(image.to_owned());
    }

    fn images(&self) -> String {
        let image =
            |pod: &k8s_openapi::api::core::v1::Pod| pod.spec.as_ref().unwrap().containers[0].image.clone().unwrap();
        self.world.pods.iter().map(|(name, pod)| format!("{name}={}", image(pod))).collect::<Vec<_>>().join(" ")
    }

    fn status(&self) -> StatefulSetStatus {
        self.set.status.clone().unwrap()
    }

    fn owners(&self, claim: &str) -> Vec<String> {
        self.claims[claim].metadata.owner_references.iter().flatten().map(|owner| owner.name.clone()).collect()
    }
}

#[test]
fn pods_come_one_after_the_other_with_their_claims() {
    let mut scene = Scene::new(json!({}));
    scene.settle();
    assert_eq!(scene.world.active(), ["s-0"], "the next waits for it");
    scene.world.run_all();
    scene.settle();
    assert_eq!(scene.world.active(), ["s-0", "s-1"]);
    scene.run();
    assert_eq!(scene.world.active(), ["s-0", "s-1", "s-2"]);
    let pod = &scene.world.pods["s-1"];
    let spec = pod.spec.as_ref().unwrap();
    assert_eq!((spec.hostname.as_deref(), spec.subdomain.as_deref()), (Some("s-1"), Some("svc")));
    let claim = spec.volumes.as_ref().unwrap()[0].persistent_volume_claim.as_ref().unwrap();
    assert_eq!(claim.claim_name, "data-s-1");
    assert_eq!(scene.claims.len(), 3);
    assert_eq!(pod.metadata.labels.as_ref().unwrap()["apps.kubernetes.io/pod-index"], "1");
    let status = scene.status();
    assert_eq!((status.replicas, status.ready_replicas, status.current_revision), (3, Some(3), status.update_revision));
}

#[test]
fn pods_go_from_the_last_and_claims_stay() {
    let mut scene = Scene::new(json!({}));
    scene.run();
    scene.spec().replicas = Some(1);
    scene.settle();
    assert_eq!(scene.world.active(), ["s-0", "s-1"], "one at a time");
    scene.run();
    assert_eq!((scene.world.active(), scene.claims.len()), (vec!["s-0".to_owned()], 3));
    assert_eq!(scene.owners("data-s-2"), [""; 0]);
}

#[test]
fn a_policy_lets_claims_go_with_pod_or_set() {
    let policy = json!({"whenScaled": "Delete", "whenDeleted": "Delete"});
    let mut scene = Scene::new(json!({"persistentVolumeClaimRetentionPolicy": policy}));
    scene.run();
    assert_eq!(scene.owners("data-s-2"), ["s"]);
    scene.spec().replicas = Some(2);
    scene.settle();
    assert_eq!((scene.owners("data-s-2"), scene.owners("data-s-1")), (vec!["s-2".to_owned()], vec!["s".to_owned()]));
    scene.spec().persistent_volume_claim_retention_policy = None;
    scene.settle();
    assert_eq!(scene.owners("data-s-1"), [""; 0]);
}

#[test]
fn all_at_once_where_order_does_not_matter() {
    let mut scene = Scene::new(json!({"podManagementPolicy": "Parallel", "ordinals": {"start": 5}}));
    scene.settle();
    assert_eq!(scene.world.active(), ["s-5", "s-6", "s-7"]);
    scene.spec().replicas = Some(0);
    scene.settle();
    assert_eq!(scene.world.active(), [""; 0]);
}

#[test]
fn a_new_template_is_rolled_out_from_the_last_and_back() {
    let mut scene = Scene::new(json!({}));
    scene.run();
    scene.image("i:2");
    scene.settle();
    assert_eq!(scene.world.active(), ["s-0", "s-1"]);
    assert_ne!(scene.status().current_revision, scene.status().update_revision);
    scene.run();
    assert_eq!(scene.images(), "s-0=i:2 s-1=i:2 s-2=i:2");
    assert_eq!(scene.status().current_revision, scene.status().update_revision);
    let numbers = |scene: &Scene| {
        let mut numbers: Vec<i64> = scene.revisions.values().map(|one| one.revision).collect();
        numbers.sort_unstable();
        numbers
    };
    assert_eq!(numbers(&scene), [1, 2]);
    scene.image("i:1");
    scene.run();
    assert_eq!((scene.images().as_str(), numbers(&scene)), ("s-0=i:1 s-1=i:1 s-2=i:1", vec![2, 3]));
}

#[test]
fn a_partition_keeps_the_first_as_they_are() {
    let mut scene = Scene::new(json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}}));
    scene.run();
    scene.image("i:2");
    scene.run();
    assert_eq!(scene.images(), "s-0=i:1 s-1=i:1 s-2=i:2");
    let uid = scene.world.pods["s-0"].metadata.uid.clone().unwrap();
    scene.world.apply(PodEffect::Delete(crate::workload::PodName { name: "s-0".to_owned(), uid }));
    scene.run();
    assert_eq!(scene.images(), "s-0=i:1 s-1=i:1 s-2=i:2", "it comes back as it was");
    assert_eq!((scene.status().current_replicas, scene.status().updated_replicas), (Some(2), Some(1)));
}

#[test]
fn on_delete_waits_for_somebody_else() {
    let mut scene = Scene::new(json!({"updateStrategy": {"type": "OnDelete"}}));
    scene.run();
    scene.image("i:2");
    scene.run();
    assert_eq!(scene.images(), "s-0=i:1 s-1=i:1 s-2=i:1");
}

#[test]
fn a_pod_that_has_ended_is_made_again_and_old_templates_are_forgotten() {
    let mut scene = Scene::new(json!({"revisionHistoryLimit": 1}));
    scene.run();
    scene.world.end("s-1", 1);
    scene.run();
    assert_eq!(scene.world.active().len(), 3);
    for image in ["i:2", "i:3", "i:4"] {
        scene.image(image);
        scene.run();
    }
    assert_eq!(scene.revisions.len(), 2);
}

#[test]
fn names_have_places() {
    for (pod, wanted) in
        [("s-0", Some(0)), ("s-12", Some(12)), ("s-01", None), ("s--1", None), ("t-1", None), ("s-x", None)]
    {
        assert_eq!(ordinal("s", pod), wanted, "{pod}");
    }
}
