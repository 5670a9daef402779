//! Which services and ingresses there are, and the objects that they become.

use super::super::ServiceConfig;
use super::super::tests::{check_one, item_of, map, pod_spec};
use super::*;
use crate::grants::Grants;

const ID: &str = "01hxyz";

/// A pod that opens 80, 81 by UDP, 82 on its host, 90 in a sidecar and 91 in an init container.
fn spec() -> Value {
    let mut spec = pod_spec(json!({}));
    let mut container = spec["containers"][0].clone();
    spec["containers"][0]["ports"] = json!([
        {"containerPort": 80},
        {"containerPort": 81, "protocol": "UDP"},
        {"containerPort": 82, "hostPort": 82},
    ]);
    container["name"] = json!("first");
    container["ports"] = json!([{"containerPort": 91}]);
    let mut sidecar = container.clone();
    sidecar["name"] = json!("side");
    sidecar["restartPolicy"] = json!("Always");
    sidecar["ports"] = json!([{"containerPort": 90}]);
    spec["initContainers"] = json!([container, sidecar]);
    spec
}

fn service(service_type: ServiceType, ports: &[u32], name: &str) -> ServiceConfig {
    ServiceConfig { service_type, ports: ports.to_vec(), name: name.to_owned() }
}

fn ingress(ports: &[u32], use_cluster_ip: bool) -> IngressConfig {
    IngressConfig { ports: ports.to_vec(), use_cluster_ip, ..IngressConfig::default() }
}

fn job(services: &[ServiceConfig], ingress: &[IngressConfig], rules: &Rules) -> Result<Completed, String> {
    let item = Item { services: services.to_vec(), ingress: ingress.to_vec(), ..item_of(spec()) };
    check_one(item, rules)
}

/// One of the pod's ports is open on its node, which has to be granted.
fn defaults() -> Rules {
    Rules { queue_access: Grants::privileged(), ..Rules::default() }
}

#[test]
fn services_lead_to_ports_that_stay_open() {
    let services =
        [service(ServiceType::NodePort, &[90, 80, 81, 82, 91, 7], ""), service(ServiceType::Headless, &[91, 82], "")];
    let headless = service(ServiceType::Headless, &[80], "mine");
    let job = job(&[services.as_slice(), &[headless]].concat(), &[], &defaults()).expect("accepted");
    let labels = json!({"armada_job_id": ID});
    let port = |name: &str, port: u32, protocol: &str| json!({"name": name, "port": port, "targetPort": port, "protocol": protocol});
    assert_eq!(
        job.for_id(ID).services,
        [
            json!({
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "armada-01hxyz-0-service-0", "namespace": "lab", "labels": labels},
                "spec": {
                    "type": "NodePort",
                    "selector": labels,
                    "ports": [port("main-80", 80, "TCP"), port("main-81", 81, "UDP"), port("side-90", 90, "TCP")],
                },
            }),
            json!({
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "armada-01hxyz-0-service-1", "namespace": "lab", "labels": labels},
                "spec": {
                    "type": "ClusterIP",
                    "clusterIP": "None",
                    "selector": labels,
                    "ports": [port("main-80", 80, "TCP")],
                },
            }),
        ]
    );
}

#[test]
fn names_of_services_count_where_they_may() {
    let rules = Rules { allow_custom_service_names: true, ..defaults() };
    let named = |name: &str| service(ServiceType::Headless, &[80], name);
    let taken = job(&[named("mine"), named("")], &[], &rules).expect("accepted").for_id(ID);
    let names: Vec<&str> = taken.services.iter().map(|one| spec::text(&one["metadata"], "name")).collect();
    assert_eq!(names, ["mine", "armada-01hxyz-0-service-0"]);
    let refusal = job(&[named("mine"), named("mine")], &[], &rules).expect_err("twice");
    assert!(refusal.contains("services[1].name: \"mine\" is the name of services[0], too"), "{refusal}");
    let refusal = job(&[named("My_Own")], &[], &rules).expect_err("no name");
    assert!(refusal.contains("services[0].name: \"My_Own\": "), "{refusal}");
    assert!(job(&[named("My_Own")], &[], &defaults()).is_ok());
}

#[test]
fn an_ingress_reuses_a_service_that_covers_its_ports() {
    use ServiceKind::{ClusterIp, Headless, NodePort};
    let node_port = service(ServiceType::NodePort, &[80, 81], "");
    let headless = service(ServiceType::Headless, &[80, 90], "");
    for (services, ingresses, kinds, leads_to) in [
        (vec![], vec![ingress(&[80], false)], vec![Headless], vec![0]),
        (vec![], vec![ingress(&[80], true)], vec![ClusterIp], vec![0]),
        (vec![], vec![ingress(&[91, 82], false)], vec![], vec![]),
        (vec![node_port.clone()], vec![ingress(&[81], true)], vec![NodePort], vec![0]),
        (vec![node_port.clone()], vec![ingress(&[81, 90], false)], vec![NodePort, Headless], vec![1]),
        (vec![headless.clone()], vec![ingress(&[80], true)], vec![Headless, ClusterIp], vec![1]),
        (
            vec![node_port, headless],
            vec![ingress(&[90], false), ingress(&[80], false)],
            vec![NodePort, Headless],
            vec![1, 0],
        ),
    ] {
        let job = job(&services, &ingresses, &defaults()).expect("accepted");
        assert_eq!(job.services.iter().map(|one| one.kind).collect::<Vec<_>>(), kinds);
        assert_eq!(job.ingresses.iter().map(|one| one.rules[0].service).collect::<Vec<_>>(), leads_to);
    }
}

#[test]
fn an_ingress_has_a_host_for_each_port() {
    let config =
        IngressConfig { tls_enabled: true, annotations: map(&[("class", "fast")]), ..ingress(&[80, 90], true) };
    let own = IngressConfig { cert_name: "mine".to_owned(), tls_enabled: true, ..ingress(&[81], true) };
    let job = job(&[], &[config, own], &defaults()).expect("accepted");
    let objects = job.for_id(ID);
    let hosts = ["main-80-armada-01hxyz-0.lab.", "side-90-armada-01hxyz-0.lab."];
    let rule = |host: &str, port: u32| {
        let backend = json!({"service": {"name": "armada-01hxyz-0-service-0", "port": {"number": port}}});
        json!({"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}})
    };
    let mut wanted = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {
            "name": "armada-01hxyz-0-ingress-0",
            "namespace": "lab",
            "labels": {"armada_job_id": ID},
            "annotations": {"class": "fast"},
        },
        "spec": {
            "rules": [rule(hosts[0], 80), rule(hosts[1], 90)],
            "tls": [{"hosts": hosts, "secretName": "lab-"}],
        },
    });
    assert_eq!(objects.ingresses[0], wanted);
    assert_eq!(objects.ingresses[1]["spec"]["tls"][0]["secretName"], "mine");

    let mut ingress = objects.ingresses[0].clone();
    Addressing::default().complete(&mut ingress);
    let hosts = hosts.map(|host| format!("{host}svc"));
    wanted["spec"]["rules"] = json!([rule(&hosts[0], 80), rule(&hosts[1], 90)]);
    wanted["spec"]["tls"] = json!([{"hosts": hosts, "secretName": "lab-ingress-tls-certificate"}]);
    assert_eq!(ingress, wanted);
    let complete = ingress.clone();
    Addressing::default().complete(&mut ingress);
    assert_eq!(ingress, complete);
}

#[test]
fn the_id_stands_in_labels_and_annotations() {
    let item = Item {
        labels: map(&[("a", "x-{JobId}-{JobId}")]),
        annotations: map(&[("b", "{{JobId}} {JobId} {jobid}"), ("c", "plain")]),
        ..item_of(spec())
    };
    let objects = check_one(item, &defaults()).expect("accepted").for_id(ID);
    assert_eq!(objects.labels, map(&[("a", "x-01hxyz-01hxyz")]));
    assert_eq!(objects.annotations, map(&[("b", "JobId 01hxyz {jobid}"), ("c", "plain")]));
}

#[test]
fn names_of_ports_are_short_enough() {
    let mut long = spec();
    long["containers"][0]["name"] = json!("x".repeat(63));
    let item = Item { services: vec![service(ServiceType::Headless, &[80], "")], ..item_of(long) };
    let objects = check_one(item, &defaults()).expect("accepted").for_id(ID);
    assert_eq!(objects.services[0]["spec"]["ports"][0]["name"], "port-80");
}
