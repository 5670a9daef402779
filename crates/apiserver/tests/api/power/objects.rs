//! Kinds under test, and what their objects look like: every write puts one token into several places.

use serde_json::{Value, json};

use crate::harness::config_map;

/// Kinds that differ in how they are stored: built in, defined, of relaxed durability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    ConfigMap,
    Pod,
    Thing,
    /// Of relaxed durability: an answered write may be lost.
    Lease,
}

/// What one object says: the token of its main part, that of its status, its node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Said {
    pub main: String,
    pub status: Option<String>,
    pub node: Option<String>,
}

impl Kind {
    pub const ALL: [Self; 4] = [Self::ConfigMap, Self::Pod, Self::Thing, Self::Lease];

    pub fn path(self) -> &'static str {
        match self {
            Self::ConfigMap => "/api/v1/namespaces/default/configmaps",
            Self::Pod => "/api/v1/namespaces/default/pods",
            Self::Thing => "/apis/test.io/v1/namespaces/default/things",
            Self::Lease => "/apis/coordination.k8s.io/v1/namespaces/default/leases",
        }
    }

    /// An object to be created, which says `token` as often as `repeats`.
    pub fn object(self, name: &str, token: &str, repeats: usize) -> Value {
        let mut object = match self {
            Self::ConfigMap => config_map(name),
            Self::Pod => crate::harness::pod(name),
            Self::Thing => json!({"apiVersion": "test.io/v1", "kind": "Thing", "metadata": {"name": name}}),
            Self::Lease => json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}}),
        };
        self.say(&mut object, token, repeats);
        object
    }

    /// Puts the token into the main part of an object, or of a merge patch.
    pub fn say(self, object: &mut Value, token: &str, repeats: usize) {
        let padding = token.repeat(repeats);
        object["metadata"]["annotations"] = json!({"token": token, "padding": padding});
        match self {
            Self::ConfigMap => object["data"] = json!({"token": token, "padding": padding}),
            Self::Thing => object["spec"] = json!({"token": token, "padding": padding}),
            Self::Lease => object["spec"] = json!({"holderIdentity": token}),
            Self::Pod => {}
        }
    }

    /// A merge patch of the status, for kinds that have one.
    pub fn status(self, token: &str) -> Option<Value> {
        match self {
            Self::Pod => Some(json!({"status": {"message": token, "reason": token}})),
            Self::Thing => Some(json!({"status": {"message": token, "padding": token.repeat(50)}})),
            _ => None,
        }
    }

    /// Reads an object, after a check that each part of it is of one write.
    pub fn said(self, object: &Value) -> Said {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let main = text("/metadata/annotations/token").expect("a token").to_owned();
        let repeated =
            |text: &str, of: &str| text.len().is_multiple_of(of.len()) && text == of.repeat(text.len() / of.len());
        let paddings = ["/metadata/annotations/padding", "/data/padding", "/spec/padding"];
        let equals = ["/data/token", "/spec/token", "/spec/holderIdentity"];
        let is_whole = paddings.iter().filter_map(|at| text(at)).all(|padding| repeated(padding, &main))
            && equals.iter().filter_map(|at| text(at)).all(|token| token == main);
        assert!(is_whole, "a torn write: {object}");
        let status = text("/status/message").map(str::to_owned);
        if let Some(status) = &status {
            let others = ["/status/reason", "/status/padding"];
            assert!(others.iter().filter_map(|at| text(at)).all(|other| repeated(other, status)), "torn: {object}");
        }
        Said { main, status, node: text("/spec/nodeName").map(str::to_owned) }
    }
}

/// The definition of [`Kind::Thing`].
pub fn definition() -> Value {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.test.io"},
        "spec": {"group": "test.io", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": any, "status": any}}}}]}})
}

/// The revision of an object or a list.
pub fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).expect("a revision")
}

pub fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().expect("a name")
}
