//! A platform of an ordinary user: the users that its pods have, and what it says of what is missing.

use pumice_testkit::{FIRST_SUBORDINATE_ID, OrdinaryUser, Platform, Setup, eventually};
use serde_json::{Value, json};

/// A pod with a volume, and fields of its spec beside.
fn pod(name: &str, script: &str, more: Value) -> Value {
    let mut spec = json!({
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
        "volumes": [{"name": "data", "emptyDir": {}}],
        "containers": [{
            "name": "main", "image": "pumice.sh/host", "command": ["sh", "-c", script],
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        }],
    });
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
}

fn create(platform: &Platform, object: &Value) {
    platform.kubectl_with_input(["create", "-f", "-"], &object.to_string()).ok();
}

fn phase(platform: &Platform, name: &str, wanted: &str) {
    eventually(&format!("{name} is {wanted}"), || {
        let pod = platform.get("pod", name).ok_or("no pod")?;
        if pod["status"]["phase"] == wanted { Ok(()) } else { Err(pod["status"].to_string()) }
    });
}

fn output(platform: &Platform, object: &Value) -> String {
    create(platform, object);
    let name = object["metadata"]["name"].as_str().unwrap();
    phase(platform, name, "Succeeded");
    platform.kubectl(["logs", name]).ok()
}

/// Why a pod's container waits.
fn refusal(platform: &Platform, object: &Value) -> String {
    create(platform, object);
    let name = object["metadata"]["name"].as_str().unwrap();
    eventually(&format!("{name} is refused"), || {
        let pod = platform.get("pod", name).ok_or("no pod")?;
        let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
        match waiting["message"].as_str().filter(|_| waiting["reason"] == "CreateContainerConfigError") {
            Some(message) => Ok(message.to_owned()),
            None => Err(pod["status"].to_string()),
        }
    })
}

fn capabilities(platform: &Platform) -> String {
    let node = platform.kubectl(["get", "nodes", "-o", "json"]).ok();
    let nodes: Value = serde_json::from_str(&node).unwrap();
    nodes["items"][0]["metadata"]["annotations"]["pumice.sh/node-capabilities"].as_str().unwrap().to_owned()
}

fn with_ids() -> Option<Platform> {
    OrdinaryUser::can_be().then(|| Platform::start_as(OrdinaryUser::with_ids(), Setup::default()))
}

const OTHER: &str = "touch /data/made; mkdir -m 700 /data/own; echo deep > /data/own/deep";

#[test]
fn pods_of_a_user_run_as_the_users_that_they_name() {
    let Some(platform) = with_ids() else { return };
    let said = capabilities(&platform);
    assert!(said.contains("no users of their own for each pod"), "{said}");
    let found = output(&platform, &pod("plain", "id -u; id -g; cat /proc/self/uid_map; echo $HOME", json!({})));
    assert!(found.starts_with("0\n0\n         0 ") && found.contains(" 65535\n"), "{found}");
    platform.kubectl(["create", "secret", "generic", "key", "--from-literal=key=secret"]).ok();
    let security = json!({"runAsUser": 1000, "runAsGroup": 2000, "supplementalGroups": [3000], "fsGroup": 4000});
    let volumes = json!([
        {"name": "data", "emptyDir": {}},
        {"name": "key", "secret": {"secretName": "key", "defaultMode": 256}},
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
    ]);
    let script = format!(
        "id -u; id -g; id -G; {OTHER}; touch /memory/made; stat -c '%n %u %g' /data/made /memory/made; cat /key/key"
    );
    let mut named = pod("named", &script, json!({"securityContext": security, "volumes": volumes}));
    named["spec"]["containers"][0]["volumeMounts"] = json!([
        {"name": "data", "mountPath": "/data"}, {"name": "key", "mountPath": "/key"}, {"name": "memory", "mountPath": "/memory"},
    ]);
    let expected = "1000\n2000\n2000 3000 4000\n/data/made 1000 4000\n/memory/made 1000 4000\nsecret";
    assert_eq!(output(&platform, &named), expected);
    let script = "cp /usr/bin/id /data/id; chown 5:6 /data/id; chmod 6755 /data/id; stat -c '%u %g %a' /data/id; \
                  setpriv --reuid 7 --regid 8 --clear-groups sh -c '/data/id -u; /data/id -ru; /data/id -g'";
    assert_eq!(output(&platform, &pod("set-user-id", script, json!({}))), "5 6 6755\n5\n7\n6\n");
    let refused = refusal(&platform, &pod("beyond", "true", json!({"securityContext": {"runAsUser": 70_000}})));
    assert_eq!(
        refused,
        "spec.securityContext.runAsUser: 70000 is none of the 65536 ids of a pod of a user without root"
    );
}

/// What is left of pods' folders.
fn left(platform: &Platform) -> Vec<String> {
    let folders = ["node/pods", "node/removing", "node/set-aside", "volumes/default", "volumes/.removing"];
    let entries = folders.map(|folder| std::fs::read_dir(platform.data_dir().join(folder)));
    let entries = entries.into_iter().flatten().flatten().flatten();
    entries.map(|entry| entry.path().display().to_string()).collect()
}

#[test]
fn what_other_users_of_a_pod_left_is_copied_adopted_and_removed() {
    let Some(mut platform) = with_ids() else { return };
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "gone"},
        "provisioner": "pumice.sh/folder", "reclaimPolicy": "Delete", "volumeBindingMode": "WaitForFirstConsumer",
    });
    let spec = json!({
        "storageClassName": "gone", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}},
    });
    let claim =
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "claim"}, "spec": spec});
    create(&platform, &class);
    create(&platform, &claim);
    let script =
        format!("{OTHER}; chown -R 999:999 /claim; chmod 700 /claim; touch /claim/file; echo begun; sleep 1000");
    let volumes = json!([
        {"name": "data", "emptyDir": {}},
        {"name": "claim", "persistentVolumeClaim": {"claimName": "claim"}},
    ]);
    let mut object = pod("lasting", &script, json!({"volumes": volumes}));
    let container = &mut object["spec"]["containers"][0];
    container["volumeMounts"] =
        json!([{"name": "data", "mountPath": "/data"}, {"name": "claim", "mountPath": "/claim"}]);
    create(&platform, &object);
    let user =
        pod("user", &format!("{OTHER}; echo begun; sleep 1000"), json!({"securityContext": {"runAsUser": 1000}}));
    create(&platform, &user);
    for name in ["lasting", "user"] {
        eventually("it has begun", || {
            let log = platform.kubectl(["logs", name]).stdout;
            if log.contains("begun") { Ok(()) } else { Err(log) }
        });
    }
    platform.crash();
    platform.up();
    for (name, id) in [("lasting", "0"), ("user", "1000")] {
        phase(&platform, name, "Running");
        let found =
            platform.kubectl(["exec", name, "--", "sh", "-c", "id -u; cat /data/own/deep; touch /tmp/beside"]).ok();
        assert_eq!(found, format!("{id}\ndeep\n"));
        let copy = platform.data_dir().parent().unwrap().join(format!("{name}-copy"));
        platform.kubectl(["cp", &format!("{name}:/data/own"), &copy.display().to_string()]).ok();
        assert_eq!(std::fs::read_to_string(copy.join("deep")).unwrap(), "deep\n");
    }
    let uid = platform.get("pod", "user").unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
    let own = platform.data_dir().join("node/pods").join(uid).join("volumes/data/own");
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(own).unwrap()), FIRST_SUBORDINATE_ID + 999);
    platform.kubectl(["delete", "pod", "lasting", "user"]).ok();
    platform.kubectl(["delete", "pvc", "claim"]).ok();
    eventually("nothing is left", || {
        let left = left(&platform);
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
}

#[test]
fn pods_that_run_when_the_platform_is_brought_down_leave_nothing_of_other_users() {
    let Some(mut platform) = with_ids() else { return };
    let user =
        pod("user", &format!("{OTHER}; echo begun; sleep 1000"), json!({"securityContext": {"runAsUser": 1000}}));
    create(&platform, &user);
    phase(&platform, "user", "Running");
    let scratch =
        platform.kubectl(["exec", "user", "--", "sh", "-c", "mkdir -m 700 /tmp/own; touch /tmp/own/file; ls /tmp/own"]);
    assert_eq!(scratch.ok(), "file\n");
    let layers = platform
        .data_dir()
        .join("node/pods")
        .join(platform.get("pod", "user").unwrap()["metadata"]["uid"].as_str().unwrap());
    assert!(layers.join("c").exists());
    platform.stop();
    let down = platform.program().args(["down", "--data-dir"]).arg(platform.data_dir()).output().unwrap();
    assert!(down.status.success(), "{down:?}");
    assert!(!layers.join("c").exists(), "what it wrote is gone");
    assert!(left(&platform).iter().all(|path| path.contains("node/pods")), "{:?}", left(&platform));
}

#[test]
fn what_other_users_of_a_pod_write_counts_for_its_limit() {
    let Some(platform) = with_ids() else { return };
    let script = "mkdir -m 700 /data/own && head -c 30000000 /dev/urandom > /data/own/large; sleep 1000";
    let mut object = pod("large", script, json!({"securityContext": {"runAsUser": 1000}}));
    object["spec"]["containers"][0]["resources"] = json!({"limits": {"ephemeral-storage": "10Mi"}});
    create(&platform, &object);
    phase(&platform, "large", "Failed");
    let pod = platform.get("pod", "large").unwrap();
    assert_eq!(pod["status"]["reason"], "Evicted", "{pod}");
}

/// What it is missing is said at the start, on the Node, and where a pod relies on it.
#[test]
fn a_user_without_other_ids_is_told_what_gives_them() {
    if !OrdinaryUser::can_be() {
        return;
    }
    let nothing = OrdinaryUser::default();
    let of = |subordinate_ids: &str| OrdinaryUser { subordinate_ids: subordinate_ids.to_owned(), ..nothing.clone() };
    let enough = OrdinaryUser::with_ids();
    let mut platform = Platform::start_as(nothing.clone(), Setup::default());
    for (user, told) in [
        (
            nothing.clone(),
            "/etc/subuid gives no ids to nobody; /etc/subgid gives no ids to nobody): a pod's programs are this user, \
                           root to themselves, and another runAsUser is refused; add nobody:100000:65536 to /etc/subuid and /etc/subgid",
        ),
        (of("nobody:100000:1000\n"), "/etc/subuid gives 1000 ids to nobody, and a pod takes 65535"),
        (of("nobody:65000:65536\n"), "nobody:65000:65536 in /etc/subuid has ids of nobody's own (65534)"),
        (of("ada:100000:65536\nnobody:150000:65536\n"), "has ids of another user, by ada:100000:65536"),
        (OrdinaryUser { path: Some("/usr/sbin".to_owned()), ..enough.clone() }, "newuidmap is not there): "),
        (
            OrdinaryUser { path: Some("/usr/sbin".to_owned()), ..nothing.clone() },
            "; install the package uidmap, and add nobody:100000:65536 to",
        ),
        (OrdinaryUser { no_new_privileges: true, ..enough.clone() }, "newuidmap refuses: "),
    ] {
        platform.stop();
        platform.set_user(user.clone());
        platform.up();
        let said = capabilities(&platform);
        assert!(said.contains("no users for pods but this one (") && said.contains(told), "{user:?}: {said}");
        assert!(platform.log().contains(told), "{user:?}: {}", platform.log());
    }
    assert_eq!(output(&platform, &pod("one", "id -u; wc -l < /proc/self/uid_map", json!({}))), "0\n1\n");
    let refused = refusal(&platform, &pod("other", "true", json!({"securityContext": {"runAsUser": 1000}})));
    assert!(refused.starts_with("spec.securityContext.runAsUser: 1000 can't be had"), "{refused}");
    // As soon as there are some, pods have them.
    platform.stop();
    platform.set_user(enough);
    platform.up();
    let user = json!({"securityContext": {"runAsUser": 1000}});
    assert_eq!(output(&platform, &pod("named", "id -u", user)), "1000\n");
}

#[test]
fn the_profile_restricted_is_refused_to_a_user_with_all_that_it_lacks() {
    if !OrdinaryUser::can_be() {
        return;
    }
    let mut platform = Platform::start_as(OrdinaryUser::with_ids(), Setup::default());
    platform.stop();
    let data = platform.data_dir();
    let ended = platform
        .program()
        .args(["up", "--port", "0", "--profile", "restricted", "--data-dir"])
        .arg(&data)
        .output()
        .unwrap();
    assert!(!ended.status.success());
    let said = String::from_utf8_lossy(&ended.stderr);
    for lack in ["users of their own for each pod (", "network namespaces (", "control groups ("] {
        assert!(said.contains(&format!("\n  - {lack}")), "{said}");
    }
    assert!(!said.contains("quota of projects"), "{said}");
}
