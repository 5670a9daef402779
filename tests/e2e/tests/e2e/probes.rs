//! Probes and hooks go where the pod itself can go, and nowhere else. With real pods.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pumice_testkit::{Platform, eventually};
use serde_json::{Value, json};

const SECRET: &str = "LOOPBACK-SECRET";

/// A listener on the host's loopback that answers with a secret, and counts who comes.
fn listener() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, count) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
    let counting = Arc::clone(&count);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            counting.fetch_add(1, Ordering::SeqCst);
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1024]);
            let _ = write!(stream, "HTTP/1.1 418 No\r\ncontent-length: {}\r\n\r\n{SECRET}", SECRET.len());
        }
    });
    (port, count)
}

fn pod(name: &str, fields: Value) -> String {
    let mut container = json!({"name": "main", "image": "pumice.sh/host", "command": ["sleep", "1000"]});
    for (key, value) in fields.as_object().unwrap() {
        container[key] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}})
    .to_string()
}

fn every_second(mut action: Value) -> Value {
    action["periodSeconds"] = json!(1);
    action["failureThreshold"] = json!(1);
    action
}

/// A Job whose pods have this probe.
fn job_of(probe: &Value) -> String {
    let container = json!({"name": "main", "image": "pumice.sh/host", "command": ["true"], "readinessProbe": probe});
    let task = json!({"replicas": 1, "name": "main", "template": {"spec": {"containers": [container]}}});
    let job = json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "asks"},
        "spec": {"minAvailable": 1, "tasks": [task]},
    });
    job.to_string()
}

fn wait_for_event(platform: &Platform, pod: &str, reason: &str) -> String {
    eventually(&format!("pod {pod} has an event {reason}"), || {
        let events = platform.list("events");
        let found = events
            .iter()
            .find(|event| event["involvedObject"]["name"] == pod && event["reason"] == reason)
            .and_then(|event| event["message"].as_str());
        found.map(str::to_owned).ok_or_else(|| format!("{events:?}"))
    })
}

#[test]
fn a_probe_reaches_nothing_of_the_hosts_and_repeats_no_answer() {
    if !nix::unistd::Uid::effective().is_root() {
        eprintln!("not run: pods have networks of their own only where the platform is root's");
        return;
    }
    let platform = Platform::new();
    let (port, count) = listener();
    let get = json!({"httpGet": {"host": "127.0.0.1", "port": port}});
    let connection = json!({"tcpSocket": {"host": "127.0.0.1", "port": port}});
    for (name, fields) in [
        ("get", json!({"readinessProbe": every_second(get.clone())})),
        ("connection", json!({"readinessProbe": every_second(connection)})),
    ] {
        let made = platform.kubectl_with_input(["create", "-f", "-"], &pod(name, fields));
        assert!(made.stderr.contains("Warning: would violate PodSecurity"), "{made:?}");
        let message = wait_for_event(&platform, name, "Unhealthy");
        assert!(message.contains("Connection refused"), "{message}");
    }
    let made = platform.kubectl_with_input(["create", "--dry-run=server", "-f", "-"], &job_of(&get));
    assert!(made.stderr.contains("Warning: would violate PodSecurity") && made.code == 0, "{made:?}");
    let hook = json!({"lifecycle": {"postStart": get}});
    platform.kubectl_with_input(["create", "-f", "-"], &pod("hook", hook)).ok();
    wait_for_event(&platform, "hook", "FailedPostStartHook");
    assert_eq!(count.load(Ordering::SeqCst), 0, "nobody was asked on the host's loopback");

    // A pod on the host's network may ask there by itself; what it is told there is still nobody else's.
    let mut on_host: Value = serde_json::from_str(&pod(
        "host",
        json!({"readinessProbe": every_second(json!({"httpGet": {"host": "127.0.0.1", "port": port}}))}),
    ))
    .unwrap();
    on_host["spec"]["hostNetwork"] = json!(true);
    platform.kubectl_with_input(["create", "-f", "-"], &on_host.to_string()).ok();
    assert_eq!(
        wait_for_event(&platform, "host", "Unhealthy"),
        "Readiness probe failed: HTTP probe failed with statuscode: 418"
    );
    let events = format!("{:?}", platform.list("events"));
    assert!(!events.contains(SECRET), "{events}");
}

#[test]
fn a_probe_reaches_the_pods_own_servers() {
    if !nix::unistd::Uid::effective().is_root() {
        return;
    }
    let platform = Platform::new();
    let server = "exec python3 -m http.server 8000 --bind";
    for (name, address, host) in [("by-address", "0.0.0.0", None), ("by-loopback", "127.0.0.1", Some("localhost"))] {
        let mut get = json!({"port": 8000});
        if let Some(host) = host {
            get["host"] = json!(host);
        }
        let fields = json!({"command": ["sh", "-c", format!("{server} {address}")],
            "readinessProbe": {"httpGet": get, "periodSeconds": 1}});
        platform.kubectl_with_input(["create", "-f", "-"], &pod(name, fields)).ok();
        eventually(&format!("pod {name} is ready"), || {
            let status = platform.get("pod", name).unwrap()["status"].take();
            if status["containerStatuses"][0]["ready"] == true { Ok(()) } else { Err(status.to_string()) }
        });
    }
}

#[test]
fn a_namespace_that_enforces_a_profile_refuses_hosts_of_probes() {
    let platform = Platform::new();
    platform.kubectl(["label", "namespace", "default", "pod-security.kubernetes.io/enforce=baseline"]).ok();
    let probe = json!({"livenessProbe": {"tcpSocket": {"host": "10.0.0.1", "port": 1}}});
    let job = platform.kubectl_with_input(["create", "--dry-run=server", "-f", "-"], &job_of(&probe["livenessProbe"]));
    assert!(job.stderr.contains("Warning: would violate PodSecurity \"baseline:latest\"") && job.code == 0, "{job:?}");
    let refused = platform.kubectl_with_input(["create", "-f", "-"], &pod("p", probe));
    assert!(
        refused.stderr.contains(
            "pods \"p\" is forbidden: violates PodSecurity \"baseline:latest\": probe or lifecycle host (container \"main\" uses \
             probe or lifecycle host \"10.0.0.1\")"
        ),
        "{refused:?}"
    );
    platform
        .kubectl_with_input(["create", "-f", "-"], &pod("p", json!({"livenessProbe": {"tcpSocket": {"port": 1}}})))
        .ok();
}
