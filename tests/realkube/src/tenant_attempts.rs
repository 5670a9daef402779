//! Tries the ways of [`crate::tenant_ways`] as a tenant's user, and says what came of each.

use pumice_testkit::{Clients, eventually};
use serde_json::Value;

use crate::tenant_ways::{Expected, NAMESPACE, Request, Way};

/// Begins what kubectl would take for JSON otherwise.
pub const YAML: &str = "---\n";

/// What came of a request: the object as it was stored, or why it was not.
pub type Outcome = Result<Value, String>;

/// Somebody who tries: the tenant's user, and the administrator who looks at what came of it.
pub struct Attempts<'a> {
    pub tenant: Clients,
    pub administrator: &'a Clients,
    /// What the names of what is made end in, so that each round makes its own.
    pub round: &'a str,
}

impl Attempts<'_> {
    /// As the tenant's user.
    pub fn send(&self, name: &str, request: Request) -> Outcome {
        let name = format!("{name}-{}", self.round);
        let named = |text: &str| text.replace("NAME", &name).replace("BASE", &self.base());
        match request {
            Request::Pod(metadata, spec, container) => self.create(&pod(&name, metadata, spec, container)),
            Request::Object(manifest) => self.create(&named(manifest)),
            Request::Workload(kind, spec, template) => self.workload(&name, kind, spec, template),
            Request::Patch(object, subresource, patch) => {
                let object = named(object);
                let mut args =
                    vec!["patch", "-n", NAMESPACE, &object, "--type=merge", "--dry-run=server", "-o", "json"];
                args.extend(["-p", patch]);
                let subresource = format!("--subresource={subresource}");
                args.extend((subresource.len() > "--subresource=".len()).then_some(subresource.as_str()));
                read(self.tenant.kubectl(args))
            }
            Request::Post(path, body) => {
                let path = format!("/api/v1/namespaces/{NAMESPACE}/{}?dryRun=All", named(path));
                read(self.tenant.kubectl_with_input(["create", "--raw", &path, "-f", "-"], &named(body)))
            }
            Request::Ephemeral(more) => self.ephemeral(&name, more),
            Request::Delete(object) => {
                let deleted = self.tenant.kubectl(["delete", object, "--dry-run=server"]);
                if deleted.code == 0 { Ok(Value::Null) } else { Err(deleted.stderr) }
            }
        }
    }

    /// The pod that ways change.
    fn base(&self) -> String {
        format!("base-{}", self.round)
    }

    /// Makes the pod that ways change, as the tenant. One that was made before rules were in force is none of theirs.
    pub fn make_base(&self) -> Outcome {
        self.create(&pod(&self.base(), "", "", ""))
    }

    /// Why a way is not held; nothing where it is.
    pub fn unheld(&self, way: &Way) -> Option<String> {
        match (self.send(way.name, way.request), way.expected) {
            (Err(told), Expected::Refused(words)) if told.contains(words) => None,
            (Ok(object), Expected::Forced(place, wanted)) if has(&object, place, wanted) => None,
            (outcome, _) => Some(format!("{}: {outcome:?}", way.name)),
        }
    }

    /// Why a way does not lead anywhere, where no rule is in force; nothing where it does.
    pub fn unsuccessful(&self, way: &Way) -> Option<String> {
        match (self.send(way.name, way.request), way.expected) {
            (Ok(_), Expected::Refused(_)) => None,
            (Ok(object), Expected::Forced(place, wanted)) if !has(&object, place, wanted) => None,
            (outcome, _) => Some(format!("{}: {outcome:?}", way.name)),
        }
    }

    fn create(&self, manifest: &str) -> Outcome {
        let manifest = format!("{YAML}{manifest}");
        read(self.tenant.kubectl_with_input(["create", "-n", NAMESPACE, "-o", "json", "-f", "-"], &manifest))
    }

    /// Makes something that makes pods, and waits for its first pod, or for why there is none.
    fn workload(&self, name: &str, kind: &str, spec: &str, template: &str) -> Outcome {
        let selector = match kind {
            "batch/v1, kind: Job" => String::new(),
            "v1, kind: ReplicationController" => format!("selector: {{app: {name}}},"),
            _ => format!("selector: {{matchLabels: {{app: {name}}}}},"),
        };
        let comma = if spec.is_empty() { "" } else { "," };
        self.create(&format!(
            "{{apiVersion: {kind}, metadata: {{name: {name}}}, spec: {{{spec}{comma} {selector} template: \
             {{metadata: {{labels: {{app: {name}}}}}, spec: {{{template}}}}}}}}}"
        ))?;
        let items = |args: &[&str]| -> Vec<Value> {
            let text = self.administrator.kubectl([&["get", "-n", NAMESPACE, "-o", "json"], args].concat()).ok();
            let list: Value = serde_json::from_str(&text).expect("kubectl prints JSON");
            list["items"].as_array().cloned().unwrap_or_default()
        };
        let selector = format!("app={name}");
        eventually(&format!("{name} has made a pod, or was refused"), || {
            if let Some(pod) = items(&["pods", "-l", &selector]).pop() {
                return Ok(Ok(pod));
            }
            let events = items(&["events", "--field-selector", "reason=FailedCreate"]);
            let about = |event: &&Value| {
                let of = event["involvedObject"]["name"].as_str();
                of.is_some_and(|of| of == name || of.starts_with(&format!("{name}-")))
            };
            let told = events.iter().find(about).map(|event| event["message"].to_string());
            told.map(Err).ok_or_else(|| "no pod and no event".to_owned())
        })
    }

    /// Adds a container to the pod `base`, and gives it as it is there then.
    fn ephemeral(&self, name: &str, more: &str) -> Outcome {
        let base = self.base();
        let pod = self.administrator.kubectl(["get", "pod", &base, "-n", NAMESPACE, "-o", "json"]).ok();
        let mut pod: Value = serde_json::from_str(&pod).expect("kubectl prints JSON");
        let comma = if more.is_empty() { "" } else { ", " };
        let added = format!("{{name: {name}, image: none{comma}{more}}}");
        pod["spec"]["ephemeralContainers"] = Value::String("ADDED".to_owned());
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{base}/ephemeralcontainers?dryRun=All");
        let body = format!("{YAML}{pod}").replace("\"ADDED\"", &format!("[{added}]"));
        let body =
            self.administrator.kubectl_with_input(["create", "--dry-run=client", "-o", "json", "-f", "-"], &body);
        let changed = read(self.tenant.kubectl_with_input(["replace", "--raw", &path, "-f", "-"], &body.ok()))?;
        Ok(changed["spec"]["ephemeralContainers"][0].clone())
    }
}

/// A pod, as YAML.
fn pod(name: &str, metadata: &str, spec: &str, container: &str) -> String {
    let comma = |text: &str| if text.is_empty() { String::new() } else { format!(", {text}") };
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}{}}}, spec: {{containers: [{{name: main, image: none{}}}]{}}}}}",
        comma(metadata),
        comma(container),
        comma(spec)
    )
}

fn read(output: pumice_testkit::Output) -> Outcome {
    match output.code {
        0 => Ok(serde_json::from_str(&output.stdout).expect("kubectl prints JSON")),
        _ => Err(output.stderr),
    }
}

/// Whether an object has a value at a place.
fn has(object: &Value, place: &str, wanted: &str) -> bool {
    let place = if place.starts_with('/') { place.to_owned() } else { format!("/{place}") };
    let found = object.pointer(&place).filter(|found| !found.is_null());
    match wanted {
        "" => found.is_none(),
        wanted => found.is_some_and(|found| serde_json::from_str::<Value>(wanted).is_ok_and(|wanted| wanted == *found)),
    }
}
