//! Images on the platform of a user without root: with users of others' ids for its pods, and with none.

use std::os::unix::fs::PermissionsExt as _;

use pumice_testkit::{OrdinaryUser, Platform, Registry, Setup, TestImage, eventually};
use serde_json::{Value, json};
use tempfile::TempDir;

struct World {
    platform: Platform,
    registry: Registry,
    _directory: TempDir,
}

/// A platform of this user that reaches a registry; `None` where nobody can become another user.
fn start(user: OrdinaryUser) -> Option<World> {
    if !OrdinaryUser::can_be() {
        return None;
    }
    let (registry, directory) = (Registry::start(), tempfile::tempdir().unwrap());
    // Another user reads it.
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let file = directory.path().join("registries.yaml");
    registry.settings(&file);
    let flags = vec!["--images=registry".to_owned(), format!("--registries={}", file.display())];
    Some(World { platform: Platform::start_as(user, Setup { flags }), registry, _directory: directory })
}

/// An image whose upper layers take away files of the lower ones: one by its name, and whatever a folder had.
fn layered() -> TestImage {
    TestImage::busybox()
        .with_files(&[("srv/word", "lower\n"), ("srv/stays", ""), ("srv/gone", ""), ("opt/tool/old", "")])
        .with_files(&[
            ("srv/word", "upper\n"),
            ("srv/.wh.gone", ""),
            ("opt/tool/.wh..wh..opq", ""),
            ("opt/tool/new", ""),
        ])
}

fn create(platform: &Platform, name: &str, image: &str, words: &[&str], security: Value) {
    let mut container = json!({"name": "c", "image": image, "securityContext": security});
    if !words.is_empty() {
        container["command"] = json!(words);
    }
    let spec = json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
    platform.kubectl_with_input(["create", "-f", "-"], &pod.to_string()).ok();
}

/// What a pod of this image prints.
fn output(platform: &Platform, name: &str, image: &str, words: &[&str], security: Value) -> String {
    create(platform, name, image, words, security);
    eventually(&format!("{name} succeeds"), || {
        let status = platform.get("pod", name).ok_or("no pod")?["status"].take();
        if status["phase"] == "Succeeded" { Ok(()) } else { Err(status.to_string()) }
    });
    platform.kubectl(["logs", name]).ok()
}

/// Looks at the layers, writes over and beside them, and looks again.
const WRITE: &str = "cat /srv/word; ls /srv /opt/tool; echo own > /srv/word; rm /srv/stays; touch /etc/made; \
                     cat /srv/word; ls /srv";
const WRITTEN: &str = "upper\n/opt/tool:\nnew\n\n/srv:\nstays\nword\nown\nword\n";

#[test]
fn an_image_of_layers_runs_as_the_users_that_it_names() {
    let Some(World { platform, registry, _directory }) = start(OrdinaryUser::with_ids()) else { return };
    let told = "id -u; id -g; echo $HOME; pwd; cat word; touch /tmp/made && stat -c '%u %g' /tmp/made; touch /srv/no";
    let config = json!({"Entrypoint": ["sh", "-c"], "Cmd": [format!("{told} 2>/dev/null || echo refused")],
        "User": "app", "WorkingDir": "/srv"});
    let (name, digest) = registry.put("team/layers", "1", &layered().with_config(config));
    let said = output(&platform, "app", &name, &[], json!({}));
    assert_eq!(said, "1000\n1001\n/home/app\n/srv\nupper\n1000 1001\nrefused\n");
    let id = platform.get("pod", "app").unwrap()["status"]["containerStatuses"][0]["imageID"].take();
    assert_eq!(id, format!("{}@{digest}", name.rsplit_once(':').unwrap().0));
    for pod in ["first", "second"] {
        let said = output(&platform, pod, &name, &["sh", "-c", WRITE], json!({"runAsUser": 0}));
        assert_eq!(said, WRITTEN, "{pod}: what another pod wrote is not there");
    }
    let unlisted = ["sh", "-c", "id; touch ~/made && echo ~"];
    let said = output(&platform, "other", &name, &unlisted, json!({"runAsUser": 1234, "runAsGroup": 50}));
    assert!(said.starts_with("uid=1234(1234) gid=50(") && said.ends_with("\n/home/1234\n"), "{said}");
}

#[test]
fn an_image_runs_as_its_only_user_where_there_are_no_others() {
    let Some(World { platform, registry, _directory }) = start(OrdinaryUser::default()) else { return };
    let (name, _) = registry.put("team/layers", "1", &layered());
    for pod in ["first", "second"] {
        assert_eq!(output(&platform, pod, &name, &["sh", "-c", WRITE], json!({})), WRITTEN, "{pod}");
    }
    assert_eq!(output(&platform, "root", &name, &["id", "-u"], json!({"runAsUser": 0})), "0\n");
    // The image's user is this one, too: there is nobody else. A pod that insists on another is refused.
    let user = json!({"User": "app", "Cmd": ["sh", "-c", "id -u; id -g; touch /srv/mine; ls /srv"]});
    let (app, _) = registry.put("team/app", "1", &layered().with_config(user));
    assert_eq!(output(&platform, "app", &app, &[], json!({})), "0\n0\nmine\nstays\nword\n");
    create(&platform, "named", &name, &["true"], json!({"runAsUser": 1000}));
    eventually("another user is refused", || {
        let status = platform.get("pod", "named").ok_or("no pod")?["status"].take();
        let waiting = &status["containerStatuses"][0]["state"]["waiting"];
        let said = waiting["message"].as_str().unwrap_or_default();
        let is_refused =
            waiting["reason"] == "CreateContainerConfigError" && said.contains("runAsUser: 1000 can't be had");
        if is_refused { Ok(()) } else { Err(status.to_string()) }
    });
}
