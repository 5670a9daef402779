//! `kubectl debug` and `kubectl cp`: a container is added to a pod that runs, and files go in and out.

use std::os::unix::fs::PermissionsExt as _;

use pumice_testkit::{Clients, OrdinaryUser, Platform, Registry, Screen, Setup, TestImage, eventually};
use serde_json::{Value, json};

/// What a platform is started with that reaches this registry alone, by a file in a directory that every user reads.
fn setup(registry: &Registry) -> (Setup, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let file = directory.path().join("registries.yaml");
    registry.settings(&file);
    let flags = vec!["--images=registry".to_owned(), format!("--registries={}", file.display())];
    (Setup { flags }, directory)
}

fn platform(registry: &Registry) -> (Platform, tempfile::TempDir) {
    let (setup, directory) = setup(registry);
    (Platform::start(setup), directory)
}

/// Makes a pod and waits until it runs.
fn run(clients: &Clients, name: &str, spec: Value) {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
    clients.kubectl_with_input(["create", "-f", "-"], &pod.to_string()).ok();
    eventually(&format!("pod {name} runs"), || match clients.get("pod", name) {
        Some(pod) if pod["status"]["phase"] == "Running" => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

fn debug(clients: &Clients, pod: &str, image: &str, flags: &[&str], script: &str) {
    let image = format!("--image={image}");
    clients.kubectl([&["debug", pod, &image], flags, &["--", "sh", "-c", script]].concat()).ok();
}

/// The status of an added container, once it has ended.
fn ended(clients: &Clients, pod: &str, container: &str) -> Value {
    eventually(&format!("container {container} of pod {pod} has ended"), || {
        let status = status(clients, pod, container);
        if status["state"]["terminated"].is_object() { Ok(status) } else { Err(status.to_string()) }
    })
}

fn status(clients: &Clients, pod: &str, container: &str) -> Value {
    let pod = clients.get("pod", pod).unwrap_or_default();
    let list = pod["status"]["ephemeralContainerStatuses"].as_array().cloned().unwrap_or_default();
    list.into_iter().find(|one| one["name"] == container).unwrap_or_default()
}

/// Tells the target's program and a file of its root, by the processes that are seen.
const LOOK: &str = "for p in /proc/[0-9]*; do [ \"$(cat $p/comm)\" = sleep ] && cat $p/root/word; done; ps; exit 3";

#[test]
fn a_container_is_added_to_a_pod_whose_image_has_no_shell() {
    let registry = Registry::start();
    let (bare, _) = registry.put("team/bare", "1", &TestImage::sleep().with_files(&[("word", "of the target\n")]));
    let (tools, digest) = registry.put("team/tools", "1", &TestImage::busybox());
    let (mut platform, _directory) = platform(&registry);
    let spec = json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": bare}]});
    run(&platform, "p", spec);
    assert_ne!(platform.kubectl(["exec", "p", "--", "sh", "-c", "true"]).code, 0, "it has no shell");

    debug(&platform, "p", &tools, &["--target=main", "-c", "looker"], LOOK);
    let status_of_looker = ended(&platform, "p", "looker");
    assert_eq!(status_of_looker["state"]["terminated"]["exitCode"], 3, "{status_of_looker}");
    assert_eq!(status_of_looker["imageID"], format!("{}@{digest}", tools.rsplit_once(':').unwrap().0));
    let told = platform.kubectl(["logs", "p", "-c", "looker"]).ok();
    assert!(told.starts_with("of the target\n") && told.contains("/sleep 1000"), "{told}");
    let described = platform.kubectl(["describe", "pod", "p"]).ok();
    assert!(described.contains("Ephemeral Containers:") && described.contains("looker:"), "{described}");

    // One that runs can be entered, also after the platform was killed; one whose image does not come says why, and
    // comes when it is there.
    debug(&platform, "p", &tools, &["-c", "stays"], "echo started; exec sleep 1000");
    let late = tools.replace("tools", "late");
    debug(&platform, "p", &late, &["-c", "late", "--target=main"], "echo once; exec sleep 1000");
    eventually("the image is missed", || {
        let waiting = status(&platform, "p", "late")["state"]["waiting"].clone();
        let text = waiting["message"].as_str().unwrap_or_default();
        if text.contains("team/late:1 is not in registry") { Ok(()) } else { Err(waiting.to_string()) }
    });
    eventually("the other runs", || {
        let found = status(&platform, "p", "stays");
        if found["state"]["running"].is_object() { Ok(()) } else { Err(found.to_string()) }
    });
    platform.crash();
    registry.put("team/late", "1", &TestImage::busybox());
    platform.up();
    eventually("the late one runs", || {
        let found = status(&platform, "p", "late");
        if found["state"]["running"].is_object() { Ok(()) } else { Err(found.to_string()) }
    });
    assert_eq!(platform.kubectl(["logs", "p", "-c", "late"]).ok(), "once\n");
    assert_eq!(platform.kubectl(["logs", "p", "-c", "stays"]).ok(), "started\n", "it was started once");
    assert_eq!(platform.kubectl(["exec", "p", "-c", "stays", "--", "echo", "within"]).ok(), "within\n");
    let looked = platform.kubectl(["exec", "p", "-c", "late", "--", "sh", "-c", LOOK]);
    assert!(looked.stdout.starts_with("of the target\n"), "{looked:?}");
    let pod = platform.get("pod", "p").unwrap();
    assert_eq!(pod["status"]["phase"], "Running");
    for status in pod["status"]["ephemeralContainerStatuses"].as_array().unwrap() {
        assert!(status["imageID"].as_str().is_some_and(|id| id.contains("@sha256:")), "{status}");
    }
    // They end with the pod.
    platform.kubectl(["delete", "pod", "p"]).ok();
    assert!(platform.tear_down().is_empty());
}

#[test]
fn a_person_looks_into_a_pod_by_a_shell() {
    let registry = Registry::start();
    let (bare, _) = registry.put("team/bare", "1", &TestImage::sleep());
    let (tools, _) = registry.put("team/tools", "1", &TestImage::busybox());
    let (platform, _directory) = platform(&registry);
    run(&platform, "p", json!({"terminationGracePeriodSeconds": 1, "containers": [{"name": "main", "image": bare}]}));
    let image = format!("--image={tools}");
    let mut command = platform.command(platform.kubectl_program());
    command.args(["debug", "-it", "p", &image, "--target=main", "-c", "shell", "--", "sh"]);
    let mut shell = Screen::start(&mut command);
    shell.shows("/ # ");
    shell.press("ps; echo $((6 * 7))\r");
    shell.shows("/sleep 1000");
    shell.shows("\n42");
    shell.press("exit\r");
    assert_eq!(shell.end(), 0, "{}", shell.text());
    assert_eq!(ended(&platform, "p", "shell")["state"]["terminated"]["exitCode"], 0);
    let typed = ["debug", "-i", "p", &image, "-c", "reader", "--", "cat"];
    let read = platform.kubectl_with_input(typed, "typed\n");
    assert!(read.code == 0 && read.stdout.contains("typed\n"), "{read:?}");
}

/// What the profile `restricted` asks of a container.
fn confined() -> Value {
    json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": true, "runAsUser": 1000,
        "seccompProfile": {"type": "RuntimeDefault"}})
}

#[test]
fn pod_security_and_users_of_the_pods_own_hold_for_what_is_added() {
    let registry = Registry::start();
    let (tools, _) = registry.put("team/tools", "1", &TestImage::busybox().with_files(&[("word", "of the target\n")]));
    let (platform, _directory) = platform(&registry);
    let strict = platform.in_namespace(&platform.data_dir().join("kubeconfig"), "strict");
    platform.kubectl(["label", "namespace", "strict", "pod-security.kubernetes.io/enforce=restricted"]).ok();
    let container =
        json!({"name": "main", "image": tools, "command": ["sleep", "1000"], "securityContext": confined()});
    run(&strict, "p", json!({"terminationGracePeriodSeconds": 1, "containers": [container]}));
    let image = format!("--image={tools}");
    let refused = strict.kubectl(["debug", "p", &image, "--profile=sysadmin", "--", "true"]);
    assert!(refused.code != 0 && refused.stderr.contains("violates PodSecurity \"restricted:latest\""), "{refused:?}");
    let custom = platform.file("custom.json", json!({"securityContext": confined()}).to_string());
    let custom = format!("--custom={}", custom.display());
    debug(&strict, "p", &tools, &["--target=main", "-c", "looker", "--profile=restricted", &custom], LOOK);
    ended(&strict, "p", "looker");
    let told = strict.kubectl(["logs", "p", "-c", "looker"]).ok();
    assert!(told.starts_with("of the target\n"), "{told}");

    // Users of its own, without the profile.
    let container = json!({"name": "main", "image": tools, "command": ["sleep", "1000"]});
    let spec = json!({"hostUsers": false, "terminationGracePeriodSeconds": 1, "containers": [container]});
    run(&platform, "own", spec);
    debug(&platform, "own", &tools, &["--target=main", "-c", "looker"], &format!("cat /proc/self/uid_map; {LOOK}"));
    ended(&platform, "own", "looker");
    let told = platform.kubectl(["logs", "own", "-c", "looker"]).ok();
    let (map, rest) = told.split_once('\n').unwrap();
    assert_ne!(map.split_whitespace().nth(1), Some("0"), "{map}");
    assert!(rest.starts_with("of the target\n"), "{told}");
}

#[test]
fn pods_of_a_user_without_root_get_more_containers_too() {
    if !OrdinaryUser::can_be() {
        return;
    }
    let registry = Registry::start();
    let (tools, _) = registry.put("team/tools", "1", &TestImage::busybox().with_files(&[("word", "of the target\n")]));
    for user in [OrdinaryUser::default(), OrdinaryUser::with_ids()] {
        let (setup, _directory) = setup(&registry);
        let platform = Platform::start_as(user, setup);
        let container = json!({"name": "main", "image": tools, "command": ["sleep", "1000"]});
        run(&platform, "p", json!({"terminationGracePeriodSeconds": 1, "containers": [container]}));
        debug(&platform, "p", &tools, &["--target=main", "-c", "looker"], LOOK);
        let status = ended(&platform, "p", "looker");
        let told = platform.kubectl(["logs", "p", "-c", "looker"]).ok();
        assert!(told.starts_with("of the target\n"), "{status} {told}");
    }
}

#[test]
fn a_copy_of_a_pod_is_debugged() {
    let registry = Registry::start();
    let (bare, _) = registry.put("team/bare", "1", &TestImage::sleep());
    let (tools, _) = registry.put("team/tools", "1", &TestImage::busybox());
    let (platform, _directory) = platform(&registry);
    run(&platform, "p", json!({"terminationGracePeriodSeconds": 1, "containers": [{"name": "main", "image": bare}]}));
    debug(
        &platform,
        "p",
        &tools,
        &["--copy-to=copy", "--share-processes", "-c", "looker"],
        "while :; do ps; sleep 1; done",
    );
    eventually("the copy's container sees the other's", || {
        let told = platform.kubectl(["logs", "copy", "-c", "looker"]).stdout;
        if told.contains("/sleep 1000") { Ok(()) } else { Err(told) }
    });
}

#[test]
fn files_are_copied_to_and_from_pods_that_may_not_write_their_root() {
    let registry = Registry::start();
    let (tools, _) = registry.put("team/tools", "1", &TestImage::busybox());
    let (platform, _directory) = platform(&registry);
    let volumes = json!([{"name": "v", "emptyDir": {}}]);
    for (name, context, users) in [
        ("user", json!({"runAsUser": 1000, "runAsGroup": 1001}), true),
        ("read-only", json!({"runAsUser": 1000, "readOnlyRootFilesystem": true}), true),
        ("own", json!({"runAsUser": 1000, "readOnlyRootFilesystem": true}), false),
        ("root", json!({}), true),
    ] {
        let container = json!({"name": "main", "image": tools, "command": ["sleep", "1000"], "securityContext": context,
            "volumeMounts": [{"name": "v", "mountPath": "/v"}]});
        let spec = json!({"hostUsers": users, "terminationGracePeriodSeconds": 1, "containers": [container],
            "volumes": volumes});
        run(&platform, name, spec);
        let folder = platform.scratch().join(format!("from-{name}"));
        std::fs::create_dir_all(folder.join("deep")).unwrap();
        let large: String = (0..200_000).map(|number| format!("{number}\n")).collect();
        std::fs::write(folder.join("deep/large"), &large).unwrap();
        std::fs::write(folder.join("small"), "small\n").unwrap();
        let given = folder.display().to_string();
        platform.kubectl(["cp", &given, &format!("{name}:/v/to")]).ok();
        assert_eq!(platform.kubectl(["exec", name, "--", "cat", "/v/to/small"]).ok(), "small\n", "{name}");
        let back = platform.scratch().join(format!("back-{name}"));
        platform.kubectl(["cp", &format!("{name}:/v/to"), &back.display().to_string()]).ok();
        assert_eq!(std::fs::read_to_string(back.join("deep/large")).unwrap(), large, "{name}");
        let refused = platform.kubectl(["cp", &given, &format!("{name}:/bin/to")]);
        assert_eq!(refused.code != 0, name != "root", "{name}: {refused:?}");
    }
}
