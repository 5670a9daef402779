//! Services and ingresses of a lease, by the rules of submission: ports that no container opens are left out, and so is
//! what has none then; an ingress reuses a service that has all of its ports.

use std::collections::BTreeMap;

use pumice_fleet_model::submission::{
    Addressing, Completed, IngressPlan, IngressRule, ServiceKind, ServicePlan, ServicePort,
};
use pumice_ledger::RunId;
use pumice_wire::api::{IngressConfig, ServiceType};
use pumice_wire::executor::Lease;
use serde_json::Value;

/// The services and ingresses; hosts and certificates with the cluster's part.
pub fn build(run: RunId, lease: &Lease, pod_spec: &Value, addressing: &Addressing) -> (Vec<Value>, Vec<Value>) {
    let mut services = Vec::new();
    for config in &lease.services {
        let is_headless = config.r#type == ServiceType::Headless as i32;
        let kind = if is_headless { ServiceKind::Headless } else { ServiceKind::NodePort };
        let ports = open(pod_spec, &config.ports);
        if !ports.is_empty() {
            services.push(ServicePlan { name: Some(config.name.clone()).filter(|name| !name.is_empty()), kind, ports });
        }
    }
    let ingresses = lease.ingresses.iter().filter_map(|config| ingress(config, pod_spec, &mut services)).collect();
    let planned = Completed { services, ingresses, ..nothing(&lease.namespace) };
    let mut objects = planned.for_id(&run.job.to_string());
    objects.ingresses.iter_mut().for_each(|ingress| addressing.complete(ingress));
    (objects.services, objects.ingresses)
}

fn ingress(config: &IngressConfig, pod_spec: &Value, services: &mut Vec<ServicePlan>) -> Option<IngressPlan> {
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

/// Those of the wanted ports that containers open in the pod's own address.
fn open(pod_spec: &Value, wanted: &[u32]) -> Vec<ServicePort> {
    let list = |value: &Value, name: &str| value[name].as_array().cloned().unwrap_or_default();
    let sidecars = list(pod_spec, "initContainers").into_iter().filter(|one| one["restartPolicy"] == "Always");
    let containers = list(pod_spec, "containers").into_iter().chain(sidecars);
    let mut ports = Vec::new();
    for container in containers {
        for port in list(&container, "ports") {
            let number = port["containerPort"].as_u64().and_then(|number| u32::try_from(number).ok());
            let is_own = port["hostPort"].as_i64().unwrap_or(0) == 0;
            if let Some(number) = number.filter(|number| is_own && wanted.contains(number)) {
                ports.push(ServicePort {
                    container: container["name"].as_str().unwrap_or_default().to_owned(),
                    port: number,
                    protocol: port["protocol"].as_str().filter(|text| !text.is_empty()).unwrap_or("TCP").to_owned(),
                });
            }
        }
    }
    ports
}

/// A job of which only the objects beside its pod are asked for.
fn nothing(namespace: &str) -> Completed {
    Completed {
        priority: 0,
        namespace: namespace.to_owned(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        pod_spec: Value::Null,
        services: Vec::new(),
        ingresses: Vec::new(),
        client_id: None,
        external_job_uri: None,
        scheduler: String::new(),
        gang: None,
        fail_fast: false,
        priority_class: String::new(),
        requests: BTreeMap::new(),
        price_band: None,
        retries: None,
        volcano_job: None,
    }
}
