//! Which PodGroup a pod is in.
//!
//! Invariant: the scheduler and the controllers read it from here, so that the group which a pod waits for is the one that is
//! made for it. What the pod says itself comes before what follows from its owner.

use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::names;

/// The PodGroup that the controllers make for a pod that names none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Made<'a> {
    /// After Kubernetes' own PodGroup of this name, which the pod is in.
    Native(&'a str),
    /// For all pods of this controller.
    Owned(&'a OwnerReference),
    /// For this pod alone.
    Alone,
}

/// The name in the pod's annotation, if it has one.
pub fn named(metadata: &ObjectMeta) -> Option<&str> {
    text(metadata.annotations.as_ref()?.get(names::GROUP_NAME))
}

/// The group to make; none for a pod that has a label of that name (it is scheduled by itself), and for one that its node
/// runs without being told to.
pub fn made<'a>(metadata: &'a ObjectMeta, spec: &'a PodSpec) -> Option<Made<'a>> {
    if let Some(group) = spec.scheduling_group.as_ref().and_then(|group| text(group.pod_group_name.as_ref())) {
        return Some(Made::Native(group));
    }
    if metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(names::GROUP_NAME)) {
        return None;
    }
    match metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true)) {
        Some(owner) if owner.kind == "Node" => None,
        Some(owner) => Some(Made::Owned(owner)),
        None => Some(Made::Alone),
    }
}

impl Made<'_> {
    /// Its name. `uid` is the pod's.
    pub fn name(&self, uid: &str) -> String {
        match self {
            Self::Native(name) => (*name).to_owned(),
            Self::Owned(owner) => names::made_group_name(&owner.uid),
            Self::Alone => names::made_group_name(uid),
        }
    }
}

/// The group without which the pod is not to be scheduled: one of its own comes later.
pub fn needed(metadata: &ObjectMeta, spec: &PodSpec) -> Option<String> {
    if let Some(name) = named(metadata) {
        return Some(name.to_owned());
    }
    let made = made(metadata, spec).filter(|made| *made != Made::Alone)?;
    Some(made.name(metadata.uid.as_deref().unwrap_or_default()))
}

fn text(value: Option<&String>) -> Option<&str> {
    value.map(String::as_str).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{Value, json};

    #[test]
    fn what_a_pod_says_comes_before_what_follows_from_its_owner() {
        let owner = |kind: &str, controller: bool| json!([{"apiVersion": "v1", "kind": kind, "name": "o", "uid": "7", "controller": controller}]);
        let annotated = |name: &str| json!({"annotations": {names::GROUP_NAME: name}});
        let native = json!({"schedulingGroup": {"podGroupName": "gang"}, "containers": []});
        let plain = json!({"containers": []});
        struct Case<'a> {
            metadata: Value,
            spec: &'a Value,
            needs: Option<&'a str>,
            makes: Option<&'a str>,
        }
        let case = |metadata, spec, needs, makes| Case { metadata, spec, needs, makes };
        let cases = [
            case(json!({}), &plain, None, Some("podgroup-1")),
            case(annotated(""), &plain, None, Some("podgroup-1")),
            case(annotated("g"), &plain, Some("g"), Some("podgroup-1")),
            case(annotated("g"), &native, Some("g"), Some("gang")),
            case(json!({}), &native, Some("gang"), Some("gang")),
            case(json!({"ownerReferences": owner("ReplicaSet", true)}), &native, Some("gang"), Some("gang")),
            case(json!({"ownerReferences": owner("ReplicaSet", true)}), &plain, Some("podgroup-7"), Some("podgroup-7")),
            case(json!({"ownerReferences": owner("ReplicaSet", false)}), &plain, None, Some("podgroup-1")),
            case(json!({"ownerReferences": owner("Node", true)}), &plain, None, None),
            case(json!({"labels": {names::GROUP_NAME: "g"}}), &plain, None, None),
            case(
                json!({"labels": {names::GROUP_NAME: "g"}, "ownerReferences": owner("ReplicaSet", true)}),
                &plain,
                None,
                None,
            ),
        ];
        for Case { mut metadata, spec, needs, makes } in cases {
            metadata["uid"] = "1".into();
            let pod: Pod = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
            let spec = pod.spec.unwrap();
            assert_eq!(needed(&pod.metadata, &spec).as_deref(), needs, "{metadata} {spec:?}");
            let made = made(&pod.metadata, &spec).map(|made| made.name("1"));
            assert_eq!(made.as_deref(), makes, "{metadata} {spec:?}");
        }
    }
}
