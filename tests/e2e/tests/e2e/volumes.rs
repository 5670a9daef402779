//! Claims that become folders, and volumes made by hand, under real pods.

use pumice_testkit::{Platform, eventually};
use serde_json::{Value, json};

/// Runs a script once, with the claim at `/tmp/data` of the pod.
fn run(platform: &Platform, name: &str, claim: &str, script: &str) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
            "containers": [{
                "name": "main", "image": "pumice.sh/host", "command": ["sh", "-c", script],
                "volumeMounts": [{"name": "data", "mountPath": "/tmp/data"}],
            }],
        },
    });
    apply(platform, &pod);
    eventually(&format!("{name} succeeds"), || {
        let pod = platform.get("pod", name).ok_or("no pod")?;
        if pod["status"]["phase"] == "Succeeded" { Ok(()) } else { Err(pod["status"].to_string()) }
    });
}

fn apply(platform: &Platform, object: &Value) {
    platform.kubectl_with_input(["apply", "-f", "-"], &object.to_string()).ok();
}

fn claim(name: &str, class: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": class, "resources": {"requests": {"storage": "1Mi"}},
        },
    })
}

#[test]
fn a_folder_is_kept_or_deleted_as_its_class_says() {
    let platform = Platform::new();
    apply(
        &platform,
        &json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "scratch"},
            "provisioner": "pumice.sh/folder", "reclaimPolicy": "Delete", "volumeBindingMode": "WaitForFirstConsumer",
        }),
    );
    for (name, class, stays) in [("kept", "folder", true), ("gone", "scratch", false)] {
        apply(&platform, &claim(name, class));
        run(&platform, &format!("{name}-write"), name, "echo 1 > /tmp/data/x");
        run(&platform, &format!("{name}-read"), name, "grep 1 /tmp/data/x");
        let bound = platform.get("pvc", name).unwrap();
        let volume = platform.get("pv", bound["spec"]["volumeName"].as_str().unwrap()).unwrap();
        let folder = volume["spec"]["csi"]["volumeHandle"].as_str().unwrap();
        let file = platform.data_dir().join("volumes").join(folder).join("x");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "1\n");
        platform.kubectl(["delete", "pvc", name]).ok();
        let name = volume["metadata"]["name"].as_str().unwrap();
        if stays {
            eventually("the volume is released", || match platform.get("pv", name) {
                Some(volume) if volume["status"]["phase"] == "Released" => Ok(()),
                other => Err(format!("{other:?}")),
            });
            assert!(file.exists());
        } else {
            eventually("the volume is gone", || platform.get("pv", name).map_or(Ok(()), |left| Err(left.to_string())));
            assert!(!file.exists(), "{}", file.display());
        }
    }
}

#[test]
fn a_directory_becomes_a_volume_by_hand() {
    let platform = Platform::new();
    let path = platform.scratch().join("archive");
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("x"), "old").unwrap();
    apply(
        &platform,
        &json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "archive"},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "",
                "hostPath": {"path": path},
            },
        }),
    );
    apply(&platform, &claim("c", ""));
    run(&platform, "reader", "c", "grep old /tmp/data/x");
    assert_eq!(platform.get("pvc", "c").unwrap()["spec"]["volumeName"], "archive");
}
