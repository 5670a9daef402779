//! An image that can't be used here, or that its registry does not give: the pod says why, and `jobctl run` ends with it.

use pumice_testkit::{Files, Platform, Registry, Setup, TestImage, eventually};
use serde_json::json;
use tempfile::TempDir;

/// Registries with and without faults, and a platform that knows how each is reached but one.
struct Registries {
    plain: Registry,
    trusted: Registry,
    /// Its authority is named nowhere.
    untrusted: Registry,
    expired: Registry,
    /// It wants a password.
    locked: Registry,
    platform: Platform,
    _directory: TempDir,
}

impl Registries {
    fn start() -> Registries {
        let directory = tempfile::tempdir().unwrap();
        let own = |name: &str| {
            let own = directory.path().join(name);
            std::fs::create_dir(&own).unwrap();
            own
        };
        let (plain, locked) = (Registry::start(), Registry::start());
        let (trusted, untrusted) = (Registry::start_tls(&own("trusted")), Registry::start_tls(&own("untrusted")));
        let expired = Registry::start_tls_expired(&own("expired"));
        let mut settings = json!({});
        for registry in [&plain, &trusted, &expired, &locked] {
            settings[registry.address().to_string()] = registry.setting();
        }
        settings[by_other_name(&trusted)] = trusted.setting();
        let file = directory.path().join("registries.yaml");
        std::fs::write(&file, settings.to_string()).unwrap();
        let flags = vec!["--images=registry".to_owned(), format!("--registries={}", file.display())];
        let platform = Platform::start(Setup { flags });
        Registries { plain, trusted, untrusted, expired, locked, platform, _directory: directory }
    }

    /// An image of each fault, what is said of it, and the same image without the fault.
    fn faults(&self) -> Vec<Fault> {
        let here = TestImage::busybox;
        let other = || here().with_architecture("s390x");
        let put = |registry: &Registry, tag: &str, image: &TestImage| registry.put("team/tool", tag, image).0;
        vec![
            Fault {
                name: "platform",
                image: put(&self.plain, "other", &other()),
                said: "the image is for linux/s390x, and this machine is linux/",
                good: put(&self.plain, "here", &here()),
            },
            Fault {
                name: "index",
                image: self.plain.put_index("team/index", "other", &[other(), here().with_architecture("mips64le")]),
                said: "; it is for linux/s390x, linux/mips64le",
                good: self.plain.put_index("team/index", "both", &[other(), here()]),
            },
            Fault {
                name: "certificate",
                image: put(&self.untrusted, "1", &here()),
                said: "is not trusted; name its authority in the registries' file",
                good: put(&self.trusted, "1", &here()),
            },
            Fault {
                name: "expired",
                image: put(&self.expired, "1", &here()),
                said: "has expired: look at this machine's clock, or have the registry's certificate renewed",
                good: put(&self.trusted, "2", &here()),
            },
            Fault {
                name: "names",
                image: format!("{}/team/tool:1", by_other_name(&self.trusted)),
                said: "is for other names: name the registry in the image as its certificate does",
                good: put(&self.trusted, "3", &here()),
            },
        ]
    }
}

/// The same host by a name that its certificate does not have.
fn by_other_name(registry: &Registry) -> String {
    format!("localhost:{}", registry.address().port())
}

struct Fault {
    name: &'static str,
    image: String,
    said: &'static str,
    good: String,
}

fn create(platform: &Platform, name: &str, image: &str, secret: Option<&str>) {
    create_with(platform, name, image, secret, "true");
}

fn create_with(platform: &Platform, name: &str, image: &str, secret: Option<&str>, program: &str) {
    let secrets: Vec<_> = secret.iter().map(|name| json!({"name": name})).collect();
    let container = json!({"name": "c", "image": image, "command": [program]});
    let spec = json!({"restartPolicy": "Never", "imagePullSecrets": secrets, "containers": [container]});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
    platform.kubectl_with_input(["create", "-f", "-"], &pod.to_string()).ok();
}

fn refused(platform: &Platform, pod: &str, said: &str) {
    eventually(&format!("pod {pod} says {said:?}"), || {
        let status = platform.get("pod", pod).ok_or("no such pod")?["status"].take();
        let waiting = &status["containerStatuses"][0]["state"]["waiting"];
        let is_pulled = ["ErrImagePull", "ImagePullBackOff"].iter().any(|reason| waiting["reason"] == *reason);
        let says_it = waiting["message"].as_str().is_some_and(|message| message.contains(said));
        if is_pulled && says_it { Ok(()) } else { Err(status.to_string()) }
    });
}

fn succeeds(platform: &Platform, pod: &str) {
    eventually(&format!("pod {pod} succeeds"), || {
        let status = platform.get("pod", pod).ok_or("no such pod")?["status"].take();
        if status["phase"] == "Succeeded" { Ok(()) } else { Err(status.to_string()) }
    });
}

#[test]
fn a_pod_says_what_is_wrong_with_its_image() {
    let registries = Registries::start();
    let platform = &registries.platform;
    let faults = registries.faults();
    for fault in &faults {
        create(platform, fault.name, &fault.image, None);
        create(platform, &format!("{}-good", fault.name), &fault.good, None);
    }
    let (secured, _) = registries.locked.put("team/tool", "1", &TestImage::busybox());
    let (user, password) = registries.locked.lock();
    for (secret, password) in [("right", password), ("wrong", "guessed")] {
        let server = format!("--docker-server={}", registries.locked.address());
        let words = ["create", "secret", "docker-registry", secret, &server, "--docker-username", user];
        platform.kubectl(words.iter().chain(&["--docker-password", password])).ok();
    }
    create(platform, "unauthorized", &secured, None);
    create(platform, "unauthorized-wrong", &secured, Some("wrong"));
    create(platform, "unauthorized-good", &secured, Some("right"));
    for fault in &faults {
        refused(platform, fault.name, fault.said);
        succeeds(platform, &format!("{}-good", fault.name));
    }
    refused(platform, "unauthorized", "without credentials; name a secret with a password for this registry");
    refused(platform, "unauthorized-wrong", "with the credentials that there are; check the password");
    succeeds(platform, "unauthorized-good");
    let events = platform.kubectl(["get", "events", "-o", "json"]).ok();
    assert!(!events.contains("guessed") && !platform.log().contains("guessed"), "no password is part of a message");
}

#[test]
fn run_ends_with_what_is_wrong_with_its_image() {
    let registries = Registries::start();
    let platform = &registries.platform;
    let faults = registries.faults();
    let (secured, _) = registries.locked.put("team/tool", "1", &TestImage::busybox());
    registries.locked.lock();
    let rows = faults.iter().map(|fault| (fault.name, fault.image.as_str(), fault.said));
    let rows = rows.chain([("unauthorized", secured.as_str(), "without credentials; name a secret")]);
    std::thread::scope(|scope| {
        for (name, image, said) in rows {
            scope.spawn(move || {
                let out = platform.jobctl(["run", "--name", name, "--image", image, "--", "true"]);
                assert!(out.code != 0 && out.stderr.contains(said), "{name}: {out:?}");
                let job = platform.get("jobs.batch.volcano.sh", name).unwrap();
                assert_ne!(job["status"]["state"]["phase"], "Running", "{name}: it waits no more: {job}");
            });
        }
    });
    let good = faults[0].good.as_str();
    assert_eq!(platform.jobctl(["run", "--image", good, "--", "echo", "within"]).ok(), "within\n");
}

#[test]
fn a_pod_says_why_a_program_of_its_image_does_not_run() {
    let registries = Registries::start();
    let platform = &registries.platform;
    let mut files = Files::new();
    files.file("interpreter", 0o755, b"#!/usr/bin/env python3\n");
    files.file("text", 0o755, b"echo without its first line\n");
    files.file("mode", 0o644, b"#!/bin/sh\n");
    // The head of a program for another processor, s390: big-endian, of 64 bits.
    let mut other = b"\x7fELF\x02\x02\x01".to_vec();
    other.resize(18, 0);
    other.extend([0, 22]);
    other.resize(64, 0);
    files.file("processor", 0o755, &other);
    let (image, _) = registries.plain.put("team/programs", "1", &TestImage::busybox().with_layer(files.end()));
    let neither = "it is neither a program for this machine's processor nor a script";
    let rows = [
        ("interpreter", "the interpreter or loader that it names is not there"),
        ("text", neither),
        ("processor", neither),
        ("mode", "Permission denied"),
        ("missing", "executable file not found in $PATH"),
    ];
    for (program, _) in rows {
        create_with(platform, program, &image, None, &format!("/{program}"));
    }
    create(platform, "good", &image, None);
    for (program, said) in rows {
        eventually(&format!("pod {program} says {said:?}"), || {
            let status = platform.get("pod", program).ok_or("no such pod")?["status"].take();
            let ended = &status["containerStatuses"][0]["state"]["terminated"];
            let says_it = ended["message"].as_str().is_some_and(|message| message.contains(said));
            if ended["reason"] == "StartError" && says_it { Ok(()) } else { Err(status.to_string()) }
        });
    }
    succeeds(platform, "good");
}
