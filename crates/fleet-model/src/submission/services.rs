//! Services and ingresses beside a pod: which there are, and the objects once the job has an id.
//!
//! Invariant: every port in a plan is one of a container that runs as long as the pod, and every ingress has a service for
//! all of its ports. The cluster's own part of hosts and certificates comes last, by [`Addressing`].

use std::collections::BTreeMap;

use pumice_objects::names;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::spec;
use super::{Completed, IngressConfig, Item, ItemError, Rules, ServiceType};

/// The label by which services select a job's pod.
const JOB_ID_LABEL: &str = "armada_job_id";
/// Services, ingresses and hosts are called after the pod of an Armada job, which has this number, whatever the attempt: they
/// do not change with it.
const POD_NUMBER: u32 = 0;

/// A service beside the pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServicePlan {
    /// The name that the submitter chose, where that is allowed.
    pub name: Option<String>,
    /// How it is reached.
    pub kind: ServiceKind,
    /// Its ports: at least one.
    pub ports: Vec<ServicePort>,
}

/// How a planned service is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServiceKind {
    /// By a port of every node.
    NodePort,
    /// By the pod's own address.
    Headless,
    /// By an address of its own.
    ClusterIp,
}

/// A port of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServicePort {
    pub container: String,
    pub port: u32,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
}

/// An ingress beside the pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IngressPlan {
    /// Annotations of the ingress.
    pub annotations: BTreeMap<String, String>,
    /// Whether it speaks TLS.
    pub tls_enabled: bool,
    /// The secret with its certificate, where it is not the cluster's.
    pub cert_name: Option<String>,
    /// A rule for each port: at least one.
    pub rules: Vec<IngressRule>,
}

/// A port that an ingress leads to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IngressRule {
    pub container: String,
    pub port: u32,
    /// The service, by its place in the plan.
    pub service: usize,
}

/// What a job with an id has.
#[derive(Clone, Debug, PartialEq)]
pub struct ForId {
    /// Labels of the pod.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the pod.
    pub annotations: BTreeMap<String, String>,
    /// Services, as `core/v1` has them.
    pub services: Vec<Value>,
    /// Ingresses, as `networking.k8s.io/v1` has them; hosts and the cluster's certificates lack the cluster's part.
    pub ingresses: Vec<Value>,
}

/// A cluster's part of hosts and certificates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Addressing {
    /// What hosts end in.
    pub host_suffix: String,
    /// What names of certificates' secrets end in.
    pub cert_name_suffix: String,
}

impl Default for Addressing {
    fn default() -> Self {
        Self { host_suffix: "svc".to_owned(), cert_name_suffix: "ingress-tls-certificate".to_owned() }
    }
}

impl Addressing {
    /// Puts the cluster's part into an ingress of [`ForId`]: to hosts that end in a dot, secrets that end in a dash.
    pub fn complete(&self, ingress: &mut Value) {
        let hosts = |value: Option<&mut Value>| end(value, '.', &self.host_suffix);
        for rule in items(ingress.pointer_mut("/spec/rules")) {
            hosts(rule.get_mut("host"));
        }
        for tls in items(ingress.pointer_mut("/spec/tls")) {
            end(tls.get_mut("secretName"), '-', &self.cert_name_suffix);
            items(tls.get_mut("hosts")).for_each(|host| hosts(Some(host)));
        }
    }
}

fn items(list: Option<&mut Value>) -> impl Iterator<Item = &mut Value> {
    list.and_then(Value::as_array_mut).into_iter().flatten()
}

/// Completes a text that ends in `mark`.
fn end(value: Option<&mut Value>, mark: char, suffix: &str) {
    if let Some(Value::String(text)) = value
        && text.ends_with(mark)
    {
        text.push_str(suffix);
    }
}

/// Checks the names that the submitter chose, where they count.
pub fn check_names(item: &Item, rules: &Rules) -> Result<(), ItemError> {
    if !rules.allow_custom_service_names {
        return Ok(());
    }
    let mut seen = BTreeMap::new();
    for (index, service) in item.services.iter().enumerate().filter(|(_, service)| !service.name.is_empty()) {
        let name = &service.name;
        names::check_dns1035_label(name).map_err(|source| ItemError::ServiceName {
            index,
            name: name.clone(),
            source,
        })?;
        if let Some(first) = seen.insert(name, index) {
            return Err(ItemError::ServiceNameTwice { index, name: name.clone(), first });
        }
    }
    Ok(())
}

/// The services and ingresses of an item that was checked. Ports that no container opens are left out, and so is what has
/// none then.
pub fn plan(item: &Item, pod_spec: &Value, rules: &Rules) -> (Vec<ServicePlan>, Vec<IngressPlan>) {
    let mut services = Vec::new();
    for config in &item.services {
        let kind = match config.service_type {
            ServiceType::NodePort => ServiceKind::NodePort,
            ServiceType::Headless => ServiceKind::Headless,
        };
        let name = Some(config.name.clone()).filter(|name| rules.allow_custom_service_names && !name.is_empty());
        let ports = open(pod_spec, &config.ports);
        if !ports.is_empty() {
            services.push(ServicePlan { name, kind, ports });
        }
    }
    let ingresses = item.ingress.iter().filter_map(|config| plan_ingress(config, pod_spec, &mut services)).collect();
    (services, ingresses)
}

fn plan_ingress(config: &IngressConfig, pod_spec: &Value, services: &mut Vec<ServicePlan>) -> Option<IngressPlan> {
    let ports = open(pod_spec, &config.ports);
    if ports.is_empty() {
        return None;
    }
    let fits = |service: &ServicePlan| {
        let has_address = service.kind != ServiceKind::Headless || !config.use_cluster_ip;
        has_address && ports.iter().all(|port| service.ports.contains(port))
    };
    let service = services.iter().position(fits).unwrap_or_else(|| {
        let kind = if config.use_cluster_ip { ServiceKind::ClusterIp } else { ServiceKind::Headless };
        services.push(ServicePlan { name: None, kind, ports: ports.clone() });
        services.len() - 1
    });
    let rule = |port: ServicePort| IngressRule { container: port.container, port: port.port, service };
    Some(IngressPlan {
        annotations: config.annotations.clone(),
        tls_enabled: config.tls_enabled,
        cert_name: Some(config.cert_name.clone()).filter(|name| !name.is_empty()),
        rules: ports.into_iter().map(rule).collect(),
    })
}

/// Those of the wanted ports that containers open in the pod's own address, in the order of the containers.
fn open(pod_spec: &Value, wanted: &[u32]) -> Vec<ServicePort> {
    let port = |(container, port): (&Value, &Value)| {
        let number = u32::try_from(port["containerPort"].as_u64()?).ok()?;
        let is_own = port["hostPort"].as_i64().unwrap_or(0) == 0;
        if !is_own || !wanted.contains(&number) {
            return None;
        }
        let protocol = Some(spec::text(port, "protocol")).filter(|protocol| !protocol.is_empty());
        Some(ServicePort {
            container: spec::text(container, "name").to_owned(),
            port: number,
            protocol: protocol.unwrap_or("TCP").to_owned(),
        })
    };
    spec::ports(pod_spec).filter_map(port).collect()
}

impl Completed {
    /// What the job has once its id is known. `{JobId}` in labels and annotations becomes the id, `{{JobId}}` the word.
    pub fn for_id(&self, job_id: &str) -> ForId {
        let pod = of_pod(job_id);
        // Those that have a name of their own are not counted.
        let mut numbers = 0..self.services.len();
        let mut names = Vec::with_capacity(numbers.len());
        for service in &self.services {
            names.push(match &service.name {
                Some(name) => name.clone(),
                None => format!("{pod}-service-{}", numbers.next().unwrap_or_default()),
            });
        }
        let services = self.services.iter().zip(&names).map(|(plan, name)| self.service(plan, name, job_id));
        let ingresses =
            self.ingresses.iter().enumerate().map(|(number, plan)| self.ingress(plan, number, &names, job_id));
        ForId {
            services: services.collect(),
            ingresses: ingresses.collect(),
            labels: with_id(&self.labels, job_id),
            annotations: with_id(&self.annotations, job_id),
        }
    }

    fn service(&self, plan: &ServicePlan, name: &str, job_id: &str) -> Value {
        let ports: Vec<Value> = plan.ports.iter().map(ServicePort::to_json).collect();
        let kind = if plan.kind == ServiceKind::NodePort { "NodePort" } else { "ClusterIP" };
        let mut service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": { "name": name, "namespace": self.namespace, "labels": { JOB_ID_LABEL: job_id } },
            "spec": { "type": kind, "selector": { JOB_ID_LABEL: job_id }, "ports": ports },
        });
        if plan.kind == ServiceKind::Headless {
            service["spec"]["clusterIP"] = json!("None");
        }
        service
    }

    fn ingress(&self, plan: &IngressPlan, number: usize, names: &[String], job_id: &str) -> Value {
        let namespace = &self.namespace;
        let pod = of_pod(job_id);
        let host = |rule: &IngressRule| format!("{}-{}-{pod}.{namespace}.", rule.container, rule.port);
        let rule = |rule: &IngressRule| {
            let backend = json!({ "service": { "name": names.get(rule.service), "port": { "number": rule.port } } });
            let path = json!({ "path": "/", "pathType": "Prefix", "backend": backend });
            json!({ "host": host(rule), "http": { "paths": [path] } })
        };
        let mut ingress = json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "Ingress",
            "metadata": {
                "name": format!("{pod}-ingress-{number}"),
                "namespace": namespace,
                "labels": { JOB_ID_LABEL: job_id },
                "annotations": plan.annotations,
            },
            "spec": { "rules": plan.rules.iter().map(rule).collect::<Vec<_>>() },
        });
        if plan.tls_enabled {
            let hosts: Vec<String> = plan.rules.iter().map(host).collect();
            let secret = plan.cert_name.clone().unwrap_or_else(|| format!("{namespace}-"));
            ingress["spec"]["tls"] = json!([{ "hosts": hosts, "secretName": secret }]);
        }
        ingress
    }
}

/// The name of the pod after which what stands beside it is called.
fn of_pod(job_id: &str) -> String {
    format!("armada-{job_id}-{POD_NUMBER}")
}

impl ServicePort {
    fn to_json(&self) -> Value {
        let name = format!("{}-{}", self.container, self.port);
        // Names of ports are labels; those of containers may be as long.
        let name = if names::check_dns1123_label(&name).is_ok() { name } else { format!("port-{}", self.port) };
        json!({ "name": name, "port": self.port, "targetPort": self.port, "protocol": self.protocol })
    }
}

/// Texts with the job's id: `{JobId}` becomes the id, `{{JobId}}` the word.
pub fn with_id(texts: &BTreeMap<String, String>, job_id: &str) -> BTreeMap<String, String> {
    let fill = |text: &String| text.replace("{{JobId}}", "JobId").replace("{JobId}", job_id);
    texts.iter().map(|(key, text)| (key.clone(), fill(text))).collect()
}

#[cfg(test)]
mod tests;
