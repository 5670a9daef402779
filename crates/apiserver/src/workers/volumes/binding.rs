//! Claims and volumes: which belong together, and what becomes of each.
//!
//! Invariant: pure, and as upstream's controller decides: a pair is bound by both sides naming each other, a volume is given
//! to one claim only, by its uid, and what was bound is never bound to another. Used by the worker above.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pumice_objects::meta;
use pumice_objects::selector::LabelSelector;
use pumice_units::Quantity;
use serde_json::{Value, json};

use crate::admission::tenants::Index;
use crate::authz::nodes::VOLUME_NODE;
use crate::strategies::claim::{CLAIM_PROTECTION, class_of};
use crate::strategies::pod::spec::parse_quantity;
use crate::strategies::storage_class::PROVISIONER;
use crate::strategies::volume::VOLUME_PROTECTION;

const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const BOUND_BY_US: &str = "pv.kubernetes.io/bound-by-controller";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
pub(crate) const HOST_NAME: &str = "kubernetes.io/hostname";

/// Longest value of a label.
const LABEL_BYTES_MAX: usize = 63;

/// Everything that the decision looks at.
pub(crate) struct View {
    /// By namespace and name.
    pub(crate) claims: BTreeMap<(String, String), Value>,
    pub(crate) volumes: BTreeMap<String, Value>,
    pub(crate) classes: BTreeMap<String, Value>,
    /// Claims that pods use which have not ended; looked at for claims that are to go.
    pub(crate) used: BTreeSet<(String, String)>,
    /// The label by which volumes name a node, by the node's name.
    pub(crate) host_names: BTreeMap<String, String>,
    /// Who may have which volumes.
    pub(crate) tenants: Arc<Index>,
}

/// A volume that is to be made.
pub(crate) struct Made {
    pub(crate) name: String,
    pub(crate) object: Value,
}

/// Text of a field; empty where there is none.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn storage(list: &Value) -> Quantity {
    parse_quantity(&list["storage"]).unwrap_or_default()
}

fn requested_storage(claim: &Value) -> Quantity {
    storage(&claim["spec"]["resources"]["requests"])
}

fn mode(object: &Value) -> &str {
    object["spec"]["volumeMode"].as_str().unwrap_or("Filesystem")
}

fn is_leaving(object: &Value) -> bool {
    meta::deletion_timestamp(object).is_some()
}

/// Whether a volume is kept for a claim, by name or, once they have found each other, by uid.
fn is_kept_for(volume: &Value, claim: &Value) -> bool {
    let reference = &volume["spec"]["claimRef"];
    text(&reference["name"]) == meta::name(claim)
        && text(&reference["namespace"]) == meta::namespace(claim).unwrap_or_default()
        && matches!(text(&reference["uid"]), uid if uid.is_empty() || Some(uid) == meta::uid(claim))
}

/// Whether a volume is what a claim asks for.
fn suits(volume: &Value, claim: &Value) -> bool {
    let modes = |object: &Value| -> Vec<String> {
        let modes = object["spec"]["accessModes"].as_array().into_iter().flatten();
        modes.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let offered = modes(volume);
    let selector = &claim["spec"]["selector"];
    !is_leaving(volume)
        && mode(volume) == mode(claim)
        && class_of(volume) == class_of(claim)
        && storage(&volume["spec"]["capacity"]) >= requested_storage(claim)
        && modes(claim).iter().all(|wanted| offered.contains(wanted))
        && (!selector.is_object()
            || LabelSelector::from_json(selector)
                .is_ok_and(|selector| selector.matches(|key| meta::label(volume, key))))
}

impl View {
    /// What is to be made, after which everything is as it is to be. Changes claims and volumes in place.
    pub(crate) fn settle(&mut self) -> Vec<Made> {
        let mut made = Vec::new();
        let keys: Vec<(String, String)> = self.claims.keys().cloned().collect();
        for key in &keys {
            made.extend(self.claim(key));
        }
        let names: Vec<String> = self.volumes.keys().cloned().collect();
        for name in &names {
            self.volume(name);
        }
        made
    }

    fn claim(&mut self, key: &(String, String)) -> Option<Made> {
        let mut claim = self.claims.get(key)?.clone();
        if is_leaving(&claim) {
            if !self.used.contains(key) {
                drop_finalizer(&mut claim, CLAIM_PROTECTION);
            }
            self.claims.insert(key.clone(), claim);
            return None;
        }
        let mut made = None;
        if meta::annotation(&claim, BIND_COMPLETED).is_some() {
            self.keep_bound(&mut claim);
        } else if let Some(name) = self.find(&claim) {
            self.bind(&name, &mut claim);
        } else {
            claim["status"]["phase"] = json!("Pending");
            if text(&claim["spec"]["volumeName"]).is_empty() {
                made = self.provision(&claim);
            }
        }
        self.claims.insert(key.clone(), claim);
        made
    }

    /// A claim that was bound is bound to that volume, or to none ever.
    fn keep_bound(&mut self, claim: &mut Value) {
        let name = text(&claim["spec"]["volumeName"]).to_owned();
        let volume = self.volumes.get(&name).filter(|volume| {
            is_kept_for(volume, claim) || volume["spec"]["claimRef"].is_null() && self.may_have(&name, volume, claim)
        });
        if volume.is_some() {
            self.bind(&name, claim);
        } else {
            claim["status"] = json!({ "phase": "Lost" });
        }
    }

    /// The volume for a claim: the one that it names, else one that is kept for it, else the smallest that will do. A claim
    /// whose class waits for a pod gets only what is kept for it: the scheduler chooses.
    fn find(&self, claim: &Value) -> Option<String> {
        let named = text(&claim["spec"]["volumeName"]);
        if !named.is_empty() {
            let volume = self.volumes.get(named)?;
            let free = volume["spec"]["claimRef"].is_null();
            let fits = is_kept_for(volume, claim) || free && suits(volume, claim);
            return if fits && self.may_have(named, volume, claim) { Some(named.to_owned()) } else { None };
        }
        let kept = self.volumes.iter().find(|(name, volume)| {
            is_kept_for(volume, claim) && suits(volume, claim) && self.may_have(name, volume, claim)
        });
        if let Some((name, _)) = kept {
            return Some(name.clone());
        }
        if self.waits(claim) {
            return None;
        }
        let free = self.volumes.iter().filter(|(name, volume)| {
            volume["spec"]["claimRef"].is_null() && suits(volume, claim) && self.may_have(name, volume, claim)
        });
        free.min_by_key(|(_, volume)| storage(&volume["spec"]["capacity"])).map(|(name, _)| name.clone())
    }

    fn may_have(&self, name: &str, volume: &Value, claim: &Value) -> bool {
        self.tenants.may_have(meta::namespace(claim).unwrap_or_default(), name, is_kept_for(volume, claim))
    }

    /// Whether the claim's class waits for a pod.
    fn waits(&self, claim: &Value) -> bool {
        self.classes.get(class_of(claim)).is_some_and(|class| class["volumeBindingMode"] == "WaitForFirstConsumer")
    }

    /// Makes both sides name each other.
    fn bind(&mut self, name: &str, claim: &mut Value) {
        let Some(volume) = self.volumes.get_mut(name) else { return };
        let reference = &volume["spec"]["claimRef"];
        if reference.is_null() {
            meta::set_annotation(volume, BOUND_BY_US, "yes");
        }
        if text(&volume["spec"]["claimRef"]["uid"]).is_empty() {
            volume["spec"]["claimRef"] = reference_to(claim);
        }
        let spec = &volume["spec"];
        let status = json!({
            "phase": "Bound", "accessModes": spec["accessModes"], "capacity": spec["capacity"],
        });
        if text(&claim["spec"]["volumeName"]).is_empty() {
            claim["spec"]["volumeName"] = json!(name);
            meta::set_annotation(claim, BOUND_BY_US, "yes");
        }
        if meta::annotation(claim, BIND_COMPLETED).is_none() {
            meta::set_annotation(claim, BIND_COMPLETED, "yes");
        }
        claim["status"] = status;
    }

    /// The folder that becomes a claim's volume, where its class makes one now.
    fn provision(&self, claim: &Value) -> Option<Made> {
        let class_name = class_of(claim);
        let reclaim = match self.classes.get(class_name) {
            Some(class) if class["provisioner"] == PROVISIONER => class["reclaimPolicy"].as_str().unwrap_or("Delete"),
            Some(_) => return None,
            // Without any class only volumes made by hand will do.
            None if class_name.is_empty() => return None,
            // Manifests from elsewhere name classes that are not here: what they want is room that stays.
            None => "Retain",
        };
        let node = meta::annotation(claim, SELECTED_NODE);
        let ready = node.is_some() || !self.waits(claim);
        if !ready || mode(claim) != "Filesystem" || claim["spec"]["selector"].is_object() {
            return None;
        }
        let (namespace, uid) = (meta::namespace(claim)?, meta::uid(claim)?);
        let name = format!("pvc-{uid}");
        if self.volumes.contains_key(&name) {
            return None;
        }
        let mut handle = format!("{namespace}/{}", meta::name(claim));
        if self.volumes.values().any(|volume| volume["spec"]["csi"]["volumeHandle"] == *handle) {
            // What is kept of an earlier claim of this name is not this one's.
            handle = format!("{handle}.{uid}");
        }
        let mut object = json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {
                "name": name,
                "annotations": { PROVISIONED_BY: PROVISIONER },
                "finalizers": [VOLUME_PROTECTION],
            },
            "spec": {
                "accessModes": claim["spec"]["accessModes"],
                "capacity": { "storage": claim["spec"]["resources"]["requests"]["storage"] },
                "claimRef": reference_to(claim),
                "csi": { "driver": PROVISIONER, "volumeHandle": handle },
                "persistentVolumeReclaimPolicy": reclaim,
                "storageClassName": class_name,
                "volumeMode": "Filesystem",
            },
            "status": { "phase": "Pending" },
        });
        if let Some(node) = node {
            let host = self.host_names.get(node).map_or(node, String::as_str);
            let term = json!({"matchExpressions": [{"key": HOST_NAME, "operator": "In", "values": [host]}]});
            object["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [term]}});
        }
        Some(Made { name, object })
    }

    fn volume(&mut self, name: &str) {
        let Some(mut volume) = self.volumes.get(name).cloned() else { return };
        let reference = &volume["spec"]["claimRef"];
        let phase = if text(&reference["uid"]).is_empty() {
            "Available"
        } else {
            let key = (text(&reference["namespace"]).to_owned(), text(&reference["name"]).to_owned());
            match self.claims.get(&key).filter(|claim| meta::uid(claim) == reference["uid"].as_str()) {
                Some(claim) if claim["spec"]["volumeName"] == name => "Bound",
                // Its claim is about to take it.
                Some(claim) if text(&claim["spec"]["volumeName"]).is_empty() => "Available",
                _ => "Released",
            }
        };
        // Whoever made a volume takes it away; nobody does for one that somebody made by hand.
        let made_by = meta::annotation(&volume, PROVISIONED_BY).is_some();
        let is_stuck = phase == "Released" && volume["spec"]["persistentVolumeReclaimPolicy"] != "Retain" && !made_by;
        let mut status = json!({ "phase": if is_stuck { "Failed" } else { phase } });
        if is_stuck {
            status["message"] = json!(
                "nobody here can delete this volume: it was not provisioned; delete it, or set persistentVolumeReclaimPolicy to \
                 Retain"
            );
        }
        if volume["status"]["phase"] == status["phase"] && !volume["status"]["lastPhaseTransitionTime"].is_null() {
            status["lastPhaseTransitionTime"] = volume["status"]["lastPhaseTransitionTime"].clone();
        }
        volume["status"] = status;
        if volume["spec"]["csi"]["driver"] == PROVISIONER {
            let node = node_of_folder(&volume);
            if meta::label(&volume, VOLUME_NODE) != Some(&node) {
                meta::set_label(&mut volume, VOLUME_NODE, &node);
            }
        }
        if is_leaving(&volume) && phase != "Bound" {
            drop_finalizer(&mut volume, VOLUME_PROTECTION);
        }
        self.volumes.insert(name.to_owned(), volume);
    }
}

fn reference_to(claim: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": meta::namespace(claim), "name": meta::name(claim),
        "uid": meta::uid(claim),
    })
}

/// The one node that a folder is on; empty where it is on each.
fn node_of_folder(volume: &Value) -> String {
    let terms = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"].as_array().into_iter().flatten();
    let expressions = terms.flat_map(|term| term["matchExpressions"].as_array().into_iter().flatten());
    let mut hosts = expressions.filter(|one| one["key"] == HOST_NAME).filter_map(|one| one["values"][0].as_str());
    hosts.next().filter(|host| host.len() <= LABEL_BYTES_MAX).unwrap_or_default().to_owned()
}

fn drop_finalizer(object: &mut Value, finalizer: &str) {
    let left: Vec<String> = meta::finalizers(object).filter(|one| *one != finalizer).map(str::to_owned).collect();
    meta::set_finalizers(object, left.iter().map(String::as_str));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(name: &str, spec: Value) -> Value {
        let mut whole = json!({
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "",
        });
        for (field, value) in spec.as_object().expect("fields") {
            whole[field] = value.clone();
        }
        json!({"metadata": {"name": name, "namespace": "ns", "uid": format!("u-{name}")}, "spec": whole})
    }

    fn volume(name: &str, size: &str, spec: Value) -> Value {
        let mut whole = json!({
            "accessModes": ["ReadWriteOnce", "ReadOnlyMany"], "capacity": {"storage": size},
            "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "", "hostPath": {"path": "/x"},
        });
        for (field, value) in spec.as_object().expect("fields") {
            whole[field] = value.clone();
        }
        json!({"metadata": {"name": name, "labels": {"disk": name}}, "spec": whole})
    }

    fn view(claims: Vec<Value>, volumes: Vec<Value>) -> View {
        let class =
            |mode: &str| json!({"provisioner": PROVISIONER, "volumeBindingMode": mode, "reclaimPolicy": "Delete"});
        let owned = |object: &Value| meta::name(object).to_owned();
        View {
            claims: claims.into_iter().map(|claim| (("ns".to_owned(), owned(&claim)), claim)).collect(),
            volumes: volumes.into_iter().map(|volume| (owned(&volume), volume)).collect(),
            classes: [("now", "Immediate"), ("later", "WaitForFirstConsumer")]
                .map(|(name, mode)| (name.to_owned(), class(mode)))
                .into(),
            used: BTreeSet::new(),
            host_names: BTreeMap::new(),
            tenants: Arc::default(),
        }
    }

    fn bound(view: &View, name: &str) -> (String, String) {
        let claim = &view.claims[&("ns".to_owned(), name.to_owned())];
        (text(&claim["status"]["phase"]).to_owned(), text(&claim["spec"]["volumeName"]).to_owned())
    }

    fn phase<'v>(view: &'v View, name: &str) -> &'v str {
        text(&view.volumes[name]["status"]["phase"])
    }

    #[test]
    fn a_claim_gets_the_smallest_volume_that_will_do() {
        let others = vec![
            volume("small", "500Mi", json!({})),
            volume("big", "5Gi", json!({})),
            volume("fits", "2Gi", json!({})),
            volume("classy", "1Gi", json!({"storageClassName": "now"})),
            volume("block", "1Gi", json!({"volumeMode": "Block"})),
            volume("taken", "1Gi", json!({"claimRef": {"namespace": "ns", "name": "other"}})),
            volume("readers", "1Gi", json!({"accessModes": ["ReadOnlyMany"]})),
        ];
        let mut all = view(vec![claim("c", json!({}))], others.clone());
        assert!(all.settle().is_empty());
        assert_eq!(bound(&all, "c"), ("Bound".into(), "fits".into()));
        assert_eq!(
            (phase(&all, "fits"), phase(&all, "big"), phase(&all, "taken")),
            ("Bound", "Available", "Available")
        );
        assert_eq!(all.volumes["fits"]["spec"]["claimRef"]["uid"], "u-c");
        assert_eq!(all.claims[&("ns".into(), "c".into())]["status"]["capacity"]["storage"], "2Gi");
        let before = (all.claims.clone(), all.volumes.clone());
        all.settle();
        assert_eq!((&all.claims, &all.volumes), (&before.0, &before.1), "once is enough");

        for (spec, wanted) in [
            (json!({"volumeName": "big"}), "big"),
            (json!({"selector": {"matchLabels": {"disk": "big"}}}), "big"),
            (json!({"resources": {"requests": {"storage": "9Gi"}}}), ""),
            (json!({"volumeMode": "Block"}), "block"),
        ] {
            let mut all = view(vec![claim("c", spec.clone())], others.clone());
            all.settle();
            assert_eq!(bound(&all, "c").1, wanted, "{spec}");
        }
        let mut all = view(vec![claim("other", json!({}))], others);
        all.settle();
        assert_eq!(bound(&all, "other").1, "taken", "one that is kept for it comes first");
    }

    // INV-13
    #[test]
    fn two_claims_never_get_one_volume() {
        let mut all = view(vec![claim("a", json!({})), claim("b", json!({}))], vec![volume("v", "1Gi", json!({}))]);
        all.settle();
        assert_eq!((bound(&all, "a").0, bound(&all, "b").0), ("Bound".to_owned(), "Pending".to_owned()));
    }

    #[test]
    fn folders_are_made_at_once_or_when_a_node_is_chosen() {
        let mut all = view(vec![claim("c", json!({"storageClassName": "now"}))], Vec::new());
        let made = all.settle().pop().expect("a volume");
        assert_eq!((made.name.as_str(), &made.object["spec"]["csi"]["volumeHandle"]), ("pvc-u-c", &json!("ns/c")));
        all.volumes.insert(made.name.clone(), made.object);
        assert!(all.settle().is_empty(), "one is enough");
        assert_eq!(bound(&all, "c"), ("Bound".into(), "pvc-u-c".into()));

        let made = view(vec![claim("e", json!({"storageClassName": "elsewhere"}))], Vec::new()).settle().pop();
        let made = made.expect("a volume for a class that is not here").object;
        assert_eq!(made["spec"]["persistentVolumeReclaimPolicy"], "Retain");
        assert_eq!(made["spec"]["storageClassName"], "elsewhere");
        let mut others = view(vec![claim("f", json!({"storageClassName": "foreign"}))], Vec::new());
        others.classes.insert("foreign".into(), json!({"provisioner": "example.com/disk"}));
        assert!(others.settle().is_empty(), "a class that is here says who makes its volumes");

        let mut waits = claim("w", json!({"storageClassName": "later"}));
        let mut all = view(vec![waits.clone()], vec![volume("v", "1Gi", json!({"storageClassName": "later"}))]);
        assert!(all.settle().is_empty());
        assert_eq!(bound(&all, "w").0, "Pending", "the scheduler chooses");
        meta::set_annotation(&mut waits, SELECTED_NODE, "n");
        let made = view(vec![waits], Vec::new()).settle().pop().expect("a volume");
        let terms = &made.object["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"];
        assert_eq!(terms[0]["matchExpressions"][0]["values"], json!(["n"]));
        let odd = claim("o", json!({"storageClassName": "now", "volumeMode": "Block"}));
        assert!(view(vec![odd], Vec::new()).settle().is_empty());
    }

    #[test]
    fn what_was_bound_is_lost_or_released_and_never_given_on() {
        let mut all = view(vec![claim("c", json!({}))], vec![volume("v", "1Gi", json!({}))]);
        all.settle();
        let (mut without_claim, mut without_volume) = (view(Vec::new(), Vec::new()), view(Vec::new(), Vec::new()));
        without_claim.volumes = all.volumes.clone();
        without_claim.claims.insert(("ns".into(), "d".into()), claim("d", json!({})));
        let mut again = claim("c", json!({}));
        again["metadata"]["uid"] = json!("another");
        without_claim.claims.insert(("ns".into(), "c".into()), again);
        without_claim.settle();
        assert_eq!(phase(&without_claim, "v"), "Released");
        assert_eq!(bound(&without_claim, "d").0, "Pending");
        assert_eq!(bound(&without_claim, "c").0, "Pending", "another claim of that name");
        without_volume.claims = all.claims.clone();
        without_volume.settle();
        assert_eq!(bound(&without_volume, "c"), ("Lost".into(), "v".into()));
    }

    // INV-13
    #[test]
    fn what_is_in_use_stays() {
        let mut leaving = claim("c", json!({}));
        leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        leaving["metadata"]["finalizers"] = json!([CLAIM_PROTECTION]);
        let mut all = view(vec![leaving], Vec::new());
        let key = ("ns".to_owned(), "c".to_owned());
        all.used.insert(key.clone());
        all.settle();
        assert_eq!(meta::finalizers(&all.claims[&key]).count(), 1);
        all.used.clear();
        all.settle();
        assert_eq!(meta::finalizers(&all.claims[&key]).count(), 0);
    }
}
