//! An operator at work: what it sends, with no more rights than it has, and the state that it and its users wait for.

use std::path::Path;

use pumice_testkit::{Clients, Output, eventually};
use serde_json::{Value, json};

/// Which API server a case runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// `pumice up`: no rights of others, no Deployments, StatefulSets and batch Jobs.
    Ours,
    /// kube-apiserver with RBAC, and the controllers of kube-controller-manager.
    Kubernetes,
}

/// User that operators are on a server with rights.
const USER: &str = "system:serviceaccount:operators:operator";
/// Those who apply as somebody else than kubectl.
const MANAGERS: [&str; 2] = ["fabric8", "trainer"];
/// What we write on the groups of others begins with one of these.
const OUR_ANNOTATIONS: [&str; 3] = ["volcano.sh/", "scheduling.volcano.sh/", "pumice.sh/"];

/// An operator, in the namespace that its `clients` are in.
pub struct Operator<'a> {
    pub server: Server,
    clients: &'a Clients,
}

impl<'a> Operator<'a> {
    /// An operator that may do to PodGroups what its own role says; on pods and Kubernetes' own workloads it may do anything.
    pub fn new(clients: &'a Clients, server: Server, on_groups: &[&str]) -> Self {
        let operator = Operator { server, clients };
        if server == Server::Kubernetes {
            let rules = json!([
                {"apiGroups": ["", "apps", "batch"], "resources": ["*"], "verbs": ["*"]},
                {"apiGroups": ["scheduling.volcano.sh"], "resources": ["podgroups"], "verbs": on_groups},
            ]);
            let group = "rbac.authorization.k8s.io";
            let version = format!("{group}/v1");
            let role = json!({"apiVersion": version, "kind": "Role", "metadata": {"name": "operator"}, "rules": rules});
            let binding = json!({"apiVersion": version, "kind": "RoleBinding", "metadata": {"name": "operator"},
                "roleRef": {"apiGroup": group, "kind": "Role", "name": "operator"},
                "subjects": [{"apiGroup": group, "kind": "User", "name": USER}]});
            operator.by_user(&role);
            operator.by_user(&binding);
        }
        operator
    }

    /// Creates an object as a user of the operator would, who may do anything.
    pub fn by_user(&self, object: &Value) -> Value {
        read(&self.clients.kubectl_with_input(["create", "-o", "json", "-f", "-"], &object.to_string()).ok())
    }

    /// Makes sure that a kind of the operator's exists, creates an object of it as a user, and gives the reference that makes
    /// it the controller of others.
    pub fn controller(&self, version: &str, kind: &str, name: &str) -> Value {
        let (group, served) = version.split_once('/').expect("group and version");
        let plural = format!("{}s", kind.to_lowercase());
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}"), "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs"}},
            "spec": {"group": group, "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
                "versions": [{"name": served, "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]},
        });
        if self.clients.get("crd", &format!("{plural}.{group}")).is_none() {
            self.by_user(&definition);
        }
        let object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}});
        let object = eventually("the new kind is served", || {
            let created = self.clients.kubectl_with_input(["create", "-o", "json", "-f", "-"], &object.to_string());
            if created.code == 0 { Ok(read(&created.stdout)) } else { Err(created.stderr) }
        });
        let mut reference = reference(&object);
        reference["blockOwnerDeletion"] = true.into();
        reference
    }

    /// `POST`.
    pub fn create(&self, object: &Value) -> Value {
        read(&self.send(&["create", "--validate=false", "-o", "json", "-f", "-"], object).ok())
    }

    /// `GET`, a change, `PUT` with the version that was read, as a client of Kubernetes does it.
    pub fn update(&self, kind: &str, name: &str, change: impl Fn(&mut Value)) -> Value {
        eventually(&format!("{kind} {name} is updated"), || {
            let mut object = self.get(kind, name).ok_or("it is not there")?;
            change(&mut object);
            let answer = self.send(&["replace", "--validate=false", "-o", "json", "-f", "-"], &object);
            match answer.code {
                0 => Ok(read(&answer.stdout)),
                _ if answer.stderr.contains("Conflict") => Err(answer.stderr),
                _ => panic!("{kind} {name}: {}", answer.stderr),
            }
        })
    }

    /// Server-side apply that takes what others own.
    pub fn apply(&self, manager: &str, object: &Value) -> Value {
        let manager = format!("--field-manager={manager}");
        let args =
            ["apply", "--server-side", "--force-conflicts", "--validate=false", &manager, "-o", "json", "-f", "-"];
        read(&self.send(&args, object).ok())
    }

    /// `PATCH` of labels and the like.
    pub fn patch(&self, kind: &str, name: &str, form: &str, patch: &Value) {
        let (form, patch) = (format!("--type={form}"), patch.to_string());
        self.kubectl(&["patch", kind, name, &form, "-p", &patch]).ok();
    }

    /// `DELETE`, which does not mind if somebody else was faster. Does not wait.
    pub fn delete(&self, kind: &str, name: &str) {
        self.kubectl(&["delete", kind, name, "--ignore-not-found", "--wait=false"]).ok();
    }

    /// `GET` of one object.
    pub fn get(&self, kind: &str, name: &str) -> Option<Value> {
        let output = self.kubectl(&["get", kind, name, "-o", "json"]);
        (output.code == 0).then(|| read(&output.stdout))
    }

    /// `GET` of the PodGroup `name`.
    ///
    /// # Panics
    /// When there is none.
    pub fn group(&self, name: &str) -> Value {
        read(&self.kubectl(&["get", GROUP, name, "--show-managed-fields", "-o", "json"]).ok())
    }

    /// Waits until `count` pods of the selector are in `phase`, and gives them.
    pub fn wait_for_pods(&self, selector: &str, phase: &str, count: usize) -> Vec<Value> {
        eventually(&format!("{count} pods of {selector} are {phase}"), || {
            if count > 0 {
                self.wait(&format!("jsonpath={{.status.phase}}={phase}"), &["pods", "-l", selector]);
            }
            let list = read(&self.clients.kubectl(["get", "pods", "-l", selector, "-o", "json"]).ok());
            let pods = list["items"].as_array().cloned().unwrap_or_default();
            let there: Vec<Value> = pods.into_iter().filter(|pod| pod["status"]["phase"] == phase).collect();
            if there.len() == count { Ok(there) } else { Err(format!("{} are", there.len())) }
        })
    }

    /// Waits until the PodGroup `name` is in `phase`.
    pub fn wait_for_group(&self, name: &str, phase: &str) {
        eventually(&format!("group {name} is {phase}"), || {
            self.wait(&format!("jsonpath={{.status.phase}}={phase}"), &[GROUP, name]);
            match &self.group(name)["status"] {
                status if status["phase"] == phase => Ok(()),
                status => Err(status.to_string()),
            }
        });
    }

    /// Waits until there is no such object.
    pub fn wait_until_gone(&self, kind: &str, name: &str) {
        eventually(&format!("{kind} {name} is gone"), || {
            self.wait("delete", &[kind, name]);
            match self.get(kind, name) {
                None => Ok(()),
                Some(found) => Err(found["metadata"].to_string()),
            }
        });
    }

    /// Passes some time, but no more than it takes: what has been reached is for the caller to look at.
    fn wait(&self, condition: &str, what: &[&str]) {
        let condition = format!("--for={condition}");
        let args = ["wait", &condition, "--timeout=5s"].into_iter().chain(what.iter().copied());
        self.clients.kubectl(args);
    }

    /// Everything but the status and our own annotations is as `made`: the definition alone adds something, the queue
    /// `default` where none is named. PodGroups have no status of their own to write to, so their generation says nothing; a
    /// server that knows who wrote what is asked for it.
    ///
    /// # Panics
    /// When it is not.
    pub fn assert_kept(&self, made: &Value) {
        let name = text(made, "/metadata/name");
        let found = self.group(name);
        let mut spec = made["spec"].clone();
        if spec["queue"].is_null() {
            spec["queue"] = "default".into();
        }
        assert_eq!(found["spec"], spec, "group {name}");
        let fields = found["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        // Ours records owners from the first apply on.
        assert!(!fields.is_empty() || self.server == Server::Ours, "{found}");
        for entry in fields.iter().filter(|entry| !entry["fieldsV1"]["f:spec"].is_null()) {
            let manager = text(entry, "/manager");
            assert!(manager.starts_with("kubectl") || MANAGERS.contains(&manager), "{entry} wrote the spec of {name}");
        }
        for field in ["labels", "ownerReferences", "finalizers"] {
            assert_eq!(found["metadata"][field], made["metadata"][field], "{field} of group {name}");
        }
        let of_others = |key: &str| !OUR_ANNOTATIONS.iter().any(|ours| key.starts_with(ours));
        let (made, found) = (&made["metadata"]["annotations"], &found["metadata"]["annotations"]);
        for (key, value) in made.as_object().into_iter().flatten() {
            assert_eq!(&found[key], value, "annotation {key} of group {name}");
        }
        for (key, value) in found.as_object().into_iter().flatten().filter(|(key, _)| of_others(key)) {
            assert_eq!(value, &made[key], "annotation {key} of group {name}");
        }
    }

    fn kubectl(&self, args: &[&str]) -> Output {
        self.clients.run(Path::new("kubectl"), self.as_itself(args), None)
    }

    fn send(&self, args: &[&str], object: &Value) -> Output {
        self.clients.run(Path::new("kubectl"), self.as_itself(args), Some(&object.to_string()))
    }

    fn as_itself<'b>(&self, args: &[&'b str]) -> Vec<&'b str> {
        let user: &[&str] = if self.server == Server::Kubernetes { &["--as", USER] } else { &[] };
        args.iter().chain(user).copied().collect()
    }
}

/// PodGroups of Volcano: there are two more kinds of that name in the world.
pub const GROUP: &str = "podgroups.scheduling.volcano.sh";
/// Version of a PodGroup.
pub const GROUP_VERSION: &str = "scheduling.volcano.sh/v1beta1";

/// The reference to an object that is the controller of others.
pub fn reference(object: &Value) -> Value {
    let metadata = &object["metadata"];
    json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "name": metadata["name"], "uid": metadata["uid"],
        "controller": true})
}

/// A container that asks for so much.
pub fn container(name: &str, cpu: &str) -> Value {
    json!({"name": name, "image": "an-image", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}})
}

/// A pod as clients send it: nothing but what is given.
pub fn pod(metadata: Value, spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

/// A queue, made by an administrator.
pub fn queue(name: &str, cpu: &str) -> Value {
    json!({"apiVersion": GROUP_VERSION, "kind": "Queue", "metadata": {"name": name},
        "spec": {"weight": 1, "capability": {"cpu": cpu}}})
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_else(|| panic!("no {pointer} in {object}"))
}

fn read(text: &str) -> Value {
    serde_json::from_str(text).expect("kubectl prints JSON")
}
