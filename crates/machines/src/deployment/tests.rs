//! Deployments of a small cluster.

use k8s_openapi::api::apps::v1::ReplicaSetStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn deployment(spec: Value) -> Deployment {
    let mut deployment = json!({"metadata": {"name": "d", "namespace": "n", "uid": "u", "generation": 1}, "spec": {
        "replicas": 4, "selector": {"matchLabels": {"a": "b"}}, "revisionHistoryLimit": 2, "progressDeadlineSeconds": 60,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}}});
    deployment["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    serde_json::from_value(deployment).unwrap()
}

/// A Deployment, its ReplicaSets, and pods as numbers: those that are there, and of them those that serve.
struct Scene {
    deployment: Deployment,
    sets: BTreeMap<String, ReplicaSet>,
    there: BTreeMap<String, i32>,
    now: Timestamp,
    made: usize,
    wake_at: Option<Timestamp>,
    told: Vec<&'static str>,
}

impl Scene {
    fn new(spec: Value) -> Self {
        Self {
            deployment: deployment(spec),
            sets: BTreeMap::new(),
            there: BTreeMap::new(),
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
            made: 0,
            wake_at: None,
            told: Vec::new(),
        }
    }

    fn step(&mut self) -> bool {
        let there: BTreeMap<String, usize> =
            self.there.iter().map(|(name, pods)| (format!("uid-{name}"), usize::try_from(*pods).unwrap())).collect();
        let pods = there.iter().map(|(uid, pods)| (uid.as_str(), *pods)).collect();
        let view = DeploymentView { deployment: &self.deployment, sets: self.sets.values().collect(), pods };
        let plan = step(&view, self.now);
        let idle = plan.effects.is_empty();
        self.wake_at = plan.wake_at;
        self.told.extend(plan.events.into_iter().map(|told| told.reason));
        plan.effects.into_iter().for_each(|effect| self.apply(effect));
        !idle
    }

    fn apply(&mut self, effect: DeploymentEffect) {
        match effect {
            DeploymentEffect::CreateSet(mut set) => {
                self.made += 1;
                let name = set.metadata.name.clone().unwrap();
                set.metadata.uid = Some(format!("uid-{name}"));
                set.metadata.creation_timestamp = Some(Time(self.now));
                set.metadata.generation = Some(1);
                assert!(self.sets.insert(name, *set).is_none(), "it was there");
            }
            DeploymentEffect::ChangeSet { name, replicas, annotations, .. } => {
                let set = self.sets.get_mut(&name).unwrap();
                set.metadata.annotations.get_or_insert_default().extend(annotations);
                let spec = set.spec.as_mut().unwrap();
                spec.replicas = replicas.or(spec.replicas);
            }
            DeploymentEffect::DeleteSet { name, .. } => {
                assert_eq!(self.there.get(&name).copied().unwrap_or(0), 0);
                self.sets.remove(&name);
            }
            DeploymentEffect::Annotate { revision } => {
                self.deployment.metadata.annotations.get_or_insert_default().insert(REVISION.to_owned(), revision);
            }
            DeploymentEffect::WriteStatus(status) => self.deployment.status = Some(*status),
            DeploymentEffect::AdoptSet { .. } | DeploymentEffect::ReleaseSet { .. } => panic!("nobody else is here"),
        }
    }

    /// The ReplicaSets get their pods, which serve if their image is `good`.
    fn serve(&mut self, good: impl Fn(&str) -> bool) {
        for (name, set) in &mut self.sets {
            let wanted = replicas_of(set);
            let image = set.spec.as_ref().unwrap().template.as_ref().unwrap().spec.as_ref().unwrap().containers[0]
                .image
                .clone();
            let serving = if good(&image.unwrap()) { wanted } else { 0 };
            self.there.insert(name.clone(), wanted);
            set.status = Some(ReplicaSetStatus {
                replicas: wanted,
                ready_replicas: Some(serving),
                available_replicas: Some(serving),
                observed_generation: set.metadata.generation,
                ..ReplicaSetStatus::default()
            });
        }
    }

    fn settle(&mut self) {
        for _ in 0..60 {
            let stepped = self.step();
            self.serve(|_| true);
            if !stepped && !self.step() {
                return;
            }
        }
        panic!("it does not settle: {:?}", self.deployment.status);
    }

    fn image(&mut self, image: &str) {
        let template = &mut self.deployment.spec.as_mut().unwrap().template;
        template.spec.as_mut().unwrap().containers[0].image = Some(image.to_owned());
        *self.deployment.metadata.generation.as_mut().unwrap() += 1;
    }

    /// Images and replicas of the sets that have some.
    fn sizes(&self) -> Vec<(String, i32)> {
        let image = |set: &ReplicaSet| {
            set.spec.as_ref().unwrap().template.as_ref().unwrap().spec.as_ref().unwrap().containers[0]
                .image
                .clone()
                .unwrap()
        };
        let mut sizes: Vec<_> =
            self.sets.values().filter(|set| replicas_of(set) > 0).map(|set| (image(set), replicas_of(set))).collect();
        sizes.sort();
        sizes
    }

    fn condition(&self, kind: &str) -> (String, String) {
        let conditions = self.deployment.status.clone().unwrap().conditions.unwrap();
        let one = conditions.into_iter().find(|one| one.type_ == kind).unwrap();
        (one.status, one.reason.unwrap())
    }

    fn revision(&self) -> &str {
        annotation(&self.deployment.metadata, REVISION).unwrap()
    }
}

fn is(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

fn sizes(all: &[(&str, i32)]) -> Vec<(String, i32)> {
    all.iter().map(|(image, size)| ((*image).to_owned(), *size)).collect()
}

#[test]
fn it_rolls_within_its_bounds_and_goes_back() {
    let mut scene = Scene::new(json!({}));
    scene.settle();
    assert_eq!((scene.sizes(), scene.revision()), (sizes(&[("i:1", 4)]), "1"));
    assert_eq!(scene.condition("Progressing"), is("True", "NewReplicaSetAvailable"));
    assert_eq!(scene.condition("Available"), is("True", "MinimumReplicasAvailable"));
    scene.image("i:2");
    scene.step();
    scene.step();
    assert_eq!(scene.sizes(), sizes(&[("i:1", 3), ("i:2", 1)]), "one more, then one less");
    scene.settle();
    assert_eq!((scene.sizes(), scene.revision()), (sizes(&[("i:2", 4)]), "2"));
    scene.image("i:1");
    scene.settle();
    assert_eq!((scene.sizes(), scene.revision(), scene.made), (sizes(&[("i:1", 4)]), "3", 2));
    let old = scene.sets.values().find(|set| replicas_of(set) == 4).unwrap();
    assert_eq!(annotation(&old.metadata, "deployment.kubernetes.io/revision-history"), Some("1"));
}

#[test]
fn a_bad_template_stops_it_and_time_tells() {
    let mut scene = Scene::new(json!({}));
    scene.settle();
    scene.image("bad");
    for _ in 0..20 {
        scene.step();
        scene.serve(|image| image != "bad");
    }
    assert_eq!(scene.sizes(), sizes(&[("bad", 2), ("i:1", 3)]));
    assert_eq!(scene.condition("Available").0, "True");
    assert!(scene.wake_at.is_some_and(|at| at > scene.now));
    scene.now = scene.wake_at.unwrap();
    scene.step();
    assert_eq!(scene.condition("Progressing"), is("False", "ProgressDeadlineExceeded"));
    assert!(!scene.step(), "nothing more to say");
    scene.image("i:1");
    scene.settle();
    assert_eq!(scene.condition("Progressing"), is("True", "NewReplicaSetAvailable"));
}

#[test]
fn recreated_pods_never_meet() {
    let mut scene = Scene::new(json!({"strategy": {"type": "Recreate"}}));
    scene.settle();
    scene.image("i:2");
    scene.step();
    assert_eq!(scene.sizes(), []);
    scene.step();
    assert_eq!(scene.sizes(), [], "the old ones have not ended");
    scene.serve(|_| true);
    scene.step();
    assert_eq!(scene.sizes(), sizes(&[("i:2", 4)]));
}

#[test]
fn a_paused_one_is_scaled_but_does_not_roll() {
    let mut scene = Scene::new(json!({}));
    scene.settle();
    scene.deployment.spec.as_mut().unwrap().paused = Some(true);
    scene.image("i:2");
    scene.settle();
    assert_eq!(scene.sizes(), sizes(&[("i:1", 4)]));
    assert_eq!(scene.condition("Progressing"), is("Unknown", "DeploymentPaused"));
    scene.deployment.spec.as_mut().unwrap().replicas = Some(6);
    scene.settle();
    assert_eq!(scene.sizes(), sizes(&[("i:1", 6)]));
    scene.deployment.spec.as_mut().unwrap().paused = Some(false);
    scene.settle();
    assert_eq!(
        (scene.sizes(), scene.condition("Progressing").1),
        (sizes(&[("i:2", 6)]), "NewReplicaSetAvailable".to_owned())
    );
}

#[test]
fn what_is_half_way_is_resized_in_proportion() {
    let mut scene = Scene::new(json!({"replicas": 10, "strategy": {"type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}}}));
    scene.settle();
    scene.image("bad");
    for _ in 0..20 {
        scene.step();
        scene.serve(|image| image != "bad");
    }
    assert_eq!(scene.sizes(), sizes(&[("bad", 5), ("i:1", 8)]));
    scene.deployment.spec.as_mut().unwrap().replicas = Some(15);
    scene.step();
    assert_eq!(scene.sizes(), sizes(&[("bad", 6), ("i:1", 12)]));
}

#[test]
fn only_so_many_old_ones_are_kept() {
    let mut scene = Scene::new(json!({}));
    for image in ["i:1", "i:2", "i:3", "i:4", "i:5"] {
        scene.image(image);
        scene.settle();
    }
    assert_eq!(scene.sets.len(), 3);
    assert_eq!(scene.revision(), "5");
}

#[test]
fn a_name_that_is_taken_is_another_one_next_time() {
    let mut scene = Scene::new(json!({}));
    let name = |scene: &mut Scene| {
        let view = DeploymentView { deployment: &scene.deployment, sets: vec![], pods: BTreeMap::new() };
        let made = step(&view, scene.now).effects.into_iter().find_map(|effect| match effect {
            DeploymentEffect::CreateSet(set) => Some(*set),
            _ => None,
        });
        made.unwrap()
    };
    let first = name(&mut scene);
    assert!(is_the_same(&first, &first));
    let mut other = first.clone();
    other.metadata.owner_references = None;
    assert!(!is_the_same(&first, &other));
    scene.deployment.status = Some(collided(&scene.deployment));
    assert_ne!(name(&mut scene).metadata.name, first.metadata.name);
}

proptest! {
    // INV-44
    #[test]
    fn a_roll_keeps_within_its_bounds(
        replicas in 0..12_i32, surge in 0..4_i32, missing in 0..4_i32, good in prop::collection::vec(any::<bool>(), 1..40),
    ) {
        let rolling = json!({"maxSurge": surge, "maxUnavailable": missing});
        let mut scene = Scene::new(json!({"replicas": replicas, "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling}}));
        scene.settle();
        scene.image("i:2");
        let missing = if surge == 0 && missing == 0 { 1 } else { missing };
        for served in good {
            scene.step();
            let asked_for: i32 = scene.sets.values().map(replicas_of).sum();
            prop_assert!(asked_for <= replicas + surge, "{asked_for} of {replicas} and {surge}");
            // Pods that are taken away are no longer there to serve.
            let serving: i32 = scene.sets.values().map(|set| available(set).min(replicas_of(set))).sum();
            prop_assert!(serving >= replicas - missing, "{serving} of {replicas} less {missing}");
            if served {
                scene.serve(|_| true);
            }
        }
        scene.settle();
        prop_assert_eq!(scene.sizes(), if replicas > 0 { sizes(&[("i:2", replicas)]) } else { vec![] });
    }
}
