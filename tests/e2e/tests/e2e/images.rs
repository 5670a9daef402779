//! Images run: pulled from a registry, as what they say of themselves, and with a reason where they can't be had.

use pumice_testkit::{Platform, Registry, Setup, TestImage, eventually};
use serde_json::{Value, json};

/// A platform that reaches this registry alone.
fn platform(registry: &Registry) -> (Platform, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("registries.yaml");
    registry.settings(&file);
    let flags = vec!["--images=registry".to_owned(), format!("--registries={}", file.display())];
    (Platform::start(Setup { flags }), directory)
}

fn create(platform: &Platform, name: &str, container: Value, more: Value) {
    let mut spec = json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "containers": [container]});
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
    platform.kubectl_with_input(["create", "-f", "-"], &pod.to_string()).ok();
}

/// The status of a pod's container once its pod has ended.
fn ended(platform: &Platform, name: &str) -> Value {
    eventually(&format!("pod {name} has ended"), || {
        let status = platform.get("pod", name).ok_or("no such pod")?["status"].clone();
        match status["phase"].as_str() {
            Some("Succeeded" | "Failed") => Ok(status["containerStatuses"][0].clone()),
            _ => Err(status.to_string()),
        }
    })
}

/// The state of a pod's container once it waits for this reason.
fn waits(platform: &Platform, name: &str, reasons: &[&str]) -> String {
    eventually(&format!("pod {name} waits for one of {reasons:?}"), || {
        let status = platform.get("pod", name).ok_or("no such pod")?["status"].clone();
        let waiting = status["containerStatuses"][0]["state"]["waiting"].clone();
        let is_it = waiting["reason"].as_str().is_some_and(|reason| reasons.contains(&reason));
        if is_it { Ok(waiting["message"].as_str().unwrap_or_default().to_owned()) } else { Err(status.to_string()) }
    })
}

const TELLS: &str = "echo $GREETING from $(pwd) as $(id -u):$(id -g) at $HOME; cat /srv/word; ls /";

#[test]
fn an_image_runs_as_it_says() {
    let registry = Registry::start();
    let config = json!({"Entrypoint": ["/bin/sh", "-c"], "Cmd": [TELLS], "Env": ["GREETING=hello"], "User": "app",
        "WorkingDir": "/srv"});
    let image = TestImage::busybox().with_files(&[("srv/word", "of the image\n")]).with_config(config);
    let (name, digest) = registry.put("team/hello", "1", &image);
    let (platform, _directory) = platform(&registry);
    create(&platform, "own", json!({"name": "c", "image": name}), json!({}));
    create(&platform, "args", json!({"name": "c", "image": name, "args": ["echo $0", "an argument"]}), json!({}));
    let command = json!({"name": "c", "image": name, "command": ["cat"], "args": ["/proc/self/uid_map"]});
    create(&platform, "command", command, json!({"hostUsers": false}));
    let user = json!({"name": "c", "image": name, "command": ["sh", "-c", "id; touch ~/made && echo ~"],
        "securityContext": {"runAsUser": 1234}});
    create(&platform, "user", user, json!({}));
    let by_digest = format!("{}@{digest}", name.rsplit_once(':').unwrap().0);
    create(&platform, "digest", json!({"name": "c", "image": by_digest, "command": ["true"]}), json!({}));
    create(&platform, "host", json!({"name": "c", "image": "pumice.sh/host", "command": ["true"]}), json!({}));

    let status = ended(&platform, "own");
    assert_eq!(status["state"]["terminated"]["exitCode"], 0, "{status}");
    assert_eq!(status["imageID"], by_digest, "what was run is told");
    let told = platform.kubectl(["logs", "own"]).ok();
    let (first, rest) = told.split_once('\n').unwrap();
    assert_eq!(first, "hello from /srv as 1000:1001 at /home/app");
    assert_eq!(rest, "of the image\nbin\ndev\netc\nproc\nsrv\nsys\ntmp\nvar\n", "nothing of the host");

    ended(&platform, "args");
    assert_eq!(platform.kubectl(["logs", "args"]).ok(), "an argument\n");
    ended(&platform, "command");
    let map = platform.kubectl(["logs", "command"]).ok();
    assert!(map.split_whitespace().nth(1).is_some_and(|first| first != "0"), "users of its own: {map}");
    ended(&platform, "user");
    let told = platform.kubectl(["logs", "user"]).ok();
    assert!(told.starts_with("uid=1234(1234) gid=0(root)") && told.ends_with("\n/home/1234\n"), "{told}");
    assert_eq!(ended(&platform, "digest")["imageID"], by_digest);
    assert_eq!(ended(&platform, "host")["imageID"], "host-program");
}

#[test]
fn dollars_of_an_images_own_command_are_its_shells() {
    let registry = Registry::start();
    let config = json!({"Entrypoint": ["sh", "-c"], "Cmd": ["echo $$ $(echo GREETING)"], "Env": ["GREETING=hello"]});
    let (name, _) = registry.put("team/dollars", "1", &TestImage::busybox().with_config(config));
    let (platform, _directory) = platform(&registry);
    create(&platform, "image", json!({"name": "c", "image": name}), json!({}));
    let container = json!({"name": "c", "image": name, "args": ["echo $$$$ $(GREETING)"],
        "env": [{"name": "GREETING", "value": "good day"}]});
    create(&platform, "pod", container, json!({}));
    for (pod, word) in [("image", "GREETING"), ("pod", "good day")] {
        ended(&platform, pod);
        let told = platform.kubectl(["logs", pod]).ok();
        let (number, rest) = told.split_once(' ').unwrap();
        assert!(number.parse::<u32>().is_ok() && rest.starts_with(word), "{pod}: {told}");
    }
}

#[test]
fn an_image_that_can_not_be_had_says_why() {
    let registry = Registry::start();
    let (name, _) = registry.put("team/hello", "1", &TestImage::busybox());
    let (platform, _directory) = platform(&registry);
    let unknown = name.replace("hello:1", "nothing:1");
    for (pod, image, policy) in [
        ("unknown", unknown.as_str(), "IfNotPresent"),
        ("down", "127.0.0.1:1/x:1", "IfNotPresent"),
        ("never", name.as_str(), "Never"),
    ] {
        let container = json!({"name": "c", "image": image, "imagePullPolicy": policy, "command": ["true"]});
        create(&platform, pod, container, json!({}));
    }
    create(&platform, "bad", json!({"name": "c", "image": "not a name", "command": ["true"]}), json!({}));
    create(&platform, "silent", json!({"name": "c", "image": name}), json!({}));
    create(&platform, "program", json!({"name": "c", "image": name, "command": ["/nothere"]}), json!({}));
    let pulling = ["ErrImagePull", "ImagePullBackOff"];
    let said = waits(&platform, "unknown", &pulling);
    assert!(said.contains("team/nothing:1 is not in registry"), "{said}");
    let said = waits(&platform, "down", &pulling);
    assert!(said.contains("registry 127.0.0.1:1 can't be reached"), "{said}");
    waits(&platform, "bad", &["InvalidImageName"]);
    let said = waits(&platform, "silent", &["ErrImageNeverPull"]);
    assert!(said.contains("its image") && said.contains("names none"), "{said}");
    let program = ended(&platform, "program");
    assert_eq!(program["state"]["terminated"]["reason"], "StartError", "{program}");
    // It may be there by now, as another pod has it.
    let never = platform.get("pod", "never").unwrap()["status"].clone();
    assert!(never.to_string().contains("imagePullPolicy is Never") || never["phase"] == "Succeeded", "{never}");
}

#[test]
fn run_ends_where_the_image_does_not_come() {
    let registry = Registry::start();
    let (name, _) = registry.put("team/hello", "1", &TestImage::busybox());
    let (platform, _directory) = platform(&registry);
    let out = platform.jobctl(["run", "--image", &name, "--", "sh", "-c", "echo within; ls /bin/busybox"]);
    assert_eq!((out.code, out.stdout.as_str()), (0, "within\n/bin/busybox\n"), "{out:?}");
    let out = platform.jobctl(["run", "--image", &name.replace("hello", "nothing"), "--", "true"]);
    assert!(out.code != 0 && out.stderr.contains("team/nothing:1 is not in registry"), "{out:?}");
}

#[test]
fn images_are_listed_and_removed_by_hand() {
    let registry = Registry::start();
    let (name, digest) = registry.put("team/hello", "1", &TestImage::busybox());
    let (platform, directory) = platform(&registry);
    let data = platform.data_dir().display().to_string();
    let settings = directory.path().join("registries.yaml").display().to_string();
    let image = |words: &[&str]| {
        let words: Vec<&str> = ["image"].iter().chain(words).chain(&["--data-dir", &data]).copied().collect();
        platform.run(&pumice_testkit::binary("pumice"), words, None)
    };
    let pulled = image(&["pull", "--registries", &settings, &name]).ok();
    assert_eq!(pulled.trim(), format!("{}@{digest}", name.rsplit_once(':').unwrap().0));
    create(&platform, "user", json!({"name": "c", "image": name, "command": ["sleep", "1000"]}), json!({}));
    eventually("the pod runs", || match platform.get("pod", "user") {
        Some(pod) if pod["status"]["phase"] == "Running" => Ok(()),
        other => Err(format!("{other:?}")),
    });
    image(&["prune", "-a"]).ok();
    let listed: Value = serde_json::from_str(&image(&["ls", "-o", "json"]).ok()).unwrap();
    assert_eq!(
        (listed[0]["name"].as_str(), listed.as_array().unwrap().len()),
        (Some(name.as_str()), 1),
        "a pod uses it"
    );
    let whole: Value = serde_json::from_str(&image(&["inspect", &name]).ok()).unwrap();
    assert_eq!((&whole["digest"], &whole["config"]["os"]), (&json!(digest), &json!("linux")));
    image(&["rm", &name]).ok();
    assert_eq!(image(&["ls", "-o", "json"]).ok().trim(), "[]");
    assert_eq!(platform.kubectl(["exec", "user", "--", "cat", "/etc/group"]).ok().lines().count(), 3, "it goes on");
    assert!(image(&["rm", &name]).code != 0);
}

#[test]
fn a_volume_is_an_image_and_what_an_image_declares_takes_writes() {
    let registry = Registry::start();
    let files = TestImage::busybox().with_files(&[("srv/model/weights", "of the model\n")]);
    let (model, _) = registry.put("team/model", "1", &files);
    let config = json!({"Volumes": {"/data": {}, "/srv/over/deep": {}, "/../proc": {}, "/": {}}});
    let image = TestImage::busybox().with_files(&[("data/given", "given\n"), ("srv/over/deep/hidden", "")]);
    let (name, _) = registry.put("team/app", "1", &image.with_config(config));
    let (platform, _directory) = platform(&registry);
    let script = "cat /model/srv/model/weights /part/weights data/given; echo new > data/new && cat data/new; \
        for at in /model /part / /srv; do ( echo x > $at/no ) 2>/dev/null && echo $at; done; ls srv/over; exec sleep 1000";
    let container = json!({"name": "c", "image": name, "command": ["sh", "-c", script],
        "securityContext": {"readOnlyRootFilesystem": true}, "env": [{"name": "PART", "value": "model"}],
        "volumeMounts": [{"name": "model", "mountPath": "/model"}, {"name": "empty", "mountPath": "/srv/over"},
            {"name": "model", "mountPath": "/part", "subPathExpr": "srv/$(PART)"}]});
    let volumes = json!([{"name": "model", "image": {"reference": model}}, {"name": "empty", "emptyDir": {}}]);
    for (pod, own_users) in [("plain", false), ("own", true)] {
        create(&platform, pod, container.clone(), json!({"volumes": volumes, "hostUsers": !own_users}));
    }
    let expected = "of the model\nof the model\ngiven\nnew\n";
    for pod in ["plain", "own"] {
        eventually(&format!("pod {pod} has looked"), || match platform.kubectl(["logs", pod]).stdout {
            log if log == expected => Ok(()),
            log => Err(format!("{log} {}", platform.get("pod", pod).unwrap()["status"])),
        });
    }
    let described = platform.kubectl(["describe", "pod", "plain"]).ok();
    let source = format!("Reference:   {model}");
    assert!(described.contains("Type:        Image") && described.contains(&source), "{described}");
    // What a pod shows stays.
    let data = platform.data_dir().display().to_string();
    let pumice = pumice_testkit::binary("pumice");
    platform.run(&pumice, ["image", "prune", "-a", "--data-dir", &data], None).ok();
    platform.kubectl(["exec", "plain", "--", "cat", "/model/srv/model/weights"]).ok();
    let listed = platform.run(&pumice, ["image", "ls", "--data-dir", &data], None).ok();
    assert!(listed.contains("team/model"), "{listed}");

    for (pod, reference, words) in [
        ("nothing", model.replace("model:1", "nothing:1"), "team/nothing:1 is not in registry"),
        ("host", "pumice.sh/host".to_owned(), "is no image"),
    ] {
        let volumes = json!([{"name": "v", "image": {"reference": reference}}]);
        let container = json!({"name": "c", "image": "pumice.sh/host", "command": ["true"]});
        create(&platform, pod, container, json!({"volumes": volumes}));
        let message = waits(&platform, pod, &["ErrImagePull", "ImagePullBackOff", "InvalidImageName"]);
        assert!(message.contains("volume \"v\" can't have its image") && message.contains(words), "{message}");
    }
}

/// Events of a reason about pods whose names begin so: pod, part of the pod, message.
fn events(platform: &Platform, reason: &str, pods: &str) -> Vec<(String, String, String)> {
    let listed: Value = serde_json::from_str(&platform.kubectl(["get", "events", "-o", "json"]).ok()).unwrap();
    let all = listed["items"].as_array().unwrap().iter().filter(|event| event["reason"] == reason);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let told = all.map(|event| {
        let about = &event["involvedObject"];
        (text(&about["name"]), text(&about["fieldPath"]), text(&event["message"]))
    });
    told.filter(|(name, _, _)| name.starts_with(pods)).collect()
}

#[test]
fn events_and_the_node_tell_of_images() {
    let registry = Registry::start();
    let (name, digest) = registry.put("team/hello", "1", &TestImage::busybox());
    let (platform, _directory) = platform(&registry);
    let container = |image: &str| json!({"name": "c", "image": image, "command": ["true"]});
    for number in 0..5 {
        create(&platform, &format!("many-{number}"), container(&name), json!({}));
    }
    let unknown = name.replace("hello:1", "nothing:1");
    create(&platform, "none", container(&unknown), json!({}));
    create(&platform, "never", json!({"name": "c", "image": unknown, "imagePullPolicy": "Never"}), json!({}));
    (0..5).for_each(|number| drop(ended(&platform, &format!("many-{number}"))));
    let pulled = eventually("the pull is told", || match events(&platform, "Pulled", "many-") {
        found if found.is_empty() => Err("no event".to_owned()),
        found => Ok(found),
    });
    let (pod, part, message) = &pulled[0];
    assert_eq!((pulled.len(), part.as_str()), (1, "spec.containers{c}"), "{pulled:?}");
    assert!(message.starts_with(&format!("Successfully pulled image {name:?} in ")), "{message}");
    assert!(message.contains(" including waiting). Image size: ") && message.ends_with(" bytes."), "{message}");
    let pulling = events(&platform, "Pulling", "many-");
    assert_eq!(pulling, [(pod.clone(), part.clone(), format!("Pulling image {name:?}"))]);
    for (reason, pod, words) in [
        ("Failed", "none", format!("Failed to pull image {unknown:?}: team/nothing:1 is not in registry")),
        ("BackOff", "none", format!("Back-off pulling image {unknown:?}: can't pull the image")),
        ("ErrImageNeverPull", "never", format!("the image {unknown} is not on this machine")),
    ] {
        eventually(&format!("{reason} is told"), || match events(&platform, reason, pod) {
            found
                if found
                    .iter()
                    .any(|(_, part, message)| part == "spec.containers{c}" && message.starts_with(&words)) =>
            {
                Ok(())
            }
            found => Err(format!("{found:?}")),
        });
    }
    eventually("the Node has the image", || {
        let nodes: Value = serde_json::from_str(&platform.kubectl(["get", "nodes", "-o", "json"]).ok()).unwrap();
        let images = nodes["items"][0]["status"]["images"].clone();
        let by_digest = format!("{}@{digest}", name.rsplit_once(':').unwrap().0);
        let names = json!([name, by_digest]);
        let is_it = images[0]["names"] == names && images[0]["sizeBytes"].as_u64().is_some_and(|size| size > 1_000_000);
        if is_it { Ok(()) } else { Err(images.to_string()) }
    });
}
