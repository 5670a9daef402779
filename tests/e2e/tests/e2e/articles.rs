//! The manifests of the articles about Volcano are accepted and run, unchanged (requirement V13).

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use pumice_testkit::{Platform, Setup, eventually, shared_fixture};
use tempfile::TempDir;

/// Stands in for the TensorFlow image's program: checks TF_CONFIG and really connects to every peer.
const DIST_MNIST: &str = r#"
import json, os, socket, time
config = json.loads(os.environ["TF_CONFIG"])
role, index = config["task"]["type"], config["task"]["index"]
assert len(config["cluster"]["ps"]) == 1 and len(config["cluster"]["worker"]) == 2, config
me = config["cluster"][role][index]
host, port = me.rsplit(":", 1)
server = socket.create_server((socket.gethostbyname(host), int(port)), backlog=16)
for peers in config["cluster"].values():
    for peer in peers:
        if peer == me:
            continue
        host, port = peer.rsplit(":", 1)
        for attempt in range(200):
            try:
                socket.create_connection((host, int(port)), timeout=2).close()
                print(role, index, "reached", peer, flush=True)
                break
            except OSError as error:
                time.sleep(0.05)
        else:
            raise SystemExit(f"{role} {index} could not reach {peer}")
if role == "ps":
    time.sleep(1000)  # a parameter server serves until the job completes
time.sleep(0.5)
"#;

/// A platform that knows the images of the articles, and the folder that has to stay as long as it.
fn platform() -> (Platform, TempDir) {
    let setup = Setup { flags: vec!["--cpu".into(), "16".into()] };
    let layer = layer();
    let images = format!(
        "nginx:\n  command: [sh, -c, 'ls -d /myinput /myoutput && ls /root/.ssh && cat /etc/volcano/default_nginx.host && touch /myoutput/$(hostname)']\n\
         volcanosh/dist-mnist-tf-example:\n  layer: {0}\n\
         lyd911/mindspore-cpu-example:\n  layer: {0}\n",
        layer.path().display()
    );
    (Platform::start_with_image_map(setup, &images), layer)
}

/// A folder that is laid over the host's root, as the images of the articles would bring it.
fn layer() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str, mode: u32| {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    write("usr/local/bin/python", "#!/bin/sh\nexec python3 \"$@\"\n", 0o755);
    write("var/tf_dist_mnist/dist_mnist.py", DIST_MNIST, 0o644);
    write("tmp/lenet.py", "import os\nprint('epoch 1 on', os.environ['VC_TASK_INDEX'])\n", 0o644);
    std::fs::set_permissions(root.path().join("tmp"), std::fs::Permissions::from_mode(0o1777)).unwrap();
    std::fs::set_permissions(root.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    root
}

fn article(name: &str) -> Option<String> {
    shared_fixture(&format!("articles/{name}")).map(|path| path.to_str().unwrap().to_owned())
}

#[test]
fn the_test_job_runs_with_ssh_env_svc_and_two_volumes() {
    let Some(manifest) = article("test-job.yaml") else { return };
    let (platform, _layer) = platform();
    platform.kubectl(["apply", "-f", &manifest]).ok();
    let job = platform.wait_for_phase("test-job", "Completed");
    assert_eq!(job["status"]["succeeded"], 6, "{}", job["status"]);
    let logs = platform.jobctl(["logs", "test-job"]).ok();
    for word in ["/myinput", "/myoutput", "id_rsa", "authorized_keys", "test-job-default-nginx-5.test-job"] {
        assert!(logs.matches(word).count() >= 6, "{word}: {logs}");
    }
    let claim = platform.get("pvc", "testvolumeclaimname").expect("its claim was made");
    assert_eq!(claim["status"]["phase"], "Bound", "{claim}");
    platform.kubectl(["delete", "-f", &manifest]).ok();
    run_by_jobctl(&platform, &manifest);
}

#[test]
fn the_tensorflow_job_meets_and_completes() {
    let Some(manifest) = article("tensorflow-dist-mnist.yaml") else { return };
    let (platform, _layer) = platform();
    platform.kubectl(["apply", "-f", &manifest]).ok();
    platform.wait_for_phase("tensorflow-dist-mnist", "Completed");
    platform.kubectl(["delete", "-f", &manifest]).ok();
    let output = run_by_jobctl(&platform, &manifest);
    for line in ["worker 0 reached", "worker 1 reached", "ps 0 reached"] {
        assert!(output.contains(line), "{line}: {output}");
    }
}

#[test]
fn the_mindspore_job_runs_its_eight_pods() {
    let Some(manifest) = article("mindspore-cpu.yaml") else { return };
    let (platform, _layer) = platform();
    platform.kubectl(["apply", "-f", &manifest]).ok();
    let job = platform.wait_for_phase("mindspore-cpu", "Completed");
    assert_eq!(job["status"]["succeeded"], 8, "{}", job["status"]);
    platform.kubectl(["delete", "-f", &manifest]).ok();
    assert_eq!(run_by_jobctl(&platform, &manifest).matches("epoch 1 on").count(), 8);
}

#[test]
fn the_queue_and_the_pod_group_are_accepted_and_the_queue_limits() {
    let (Some(queue), Some(group), Some(job)) =
        (article("queue-default.yaml"), article("podgroup.yaml"), article("mindspore-cpu.yaml"))
    else {
        return;
    };
    let (platform, _layer) = platform();
    platform.kubectl(["apply", "-f", &queue]).ok();
    assert_eq!(platform.get("queue", "default").unwrap()["spec"]["capability"]["cpu"], "4");
    platform.kubectl(["apply", "-f", &group]).ok();
    eventually("the pod group is admitted to its queue", || {
        let group = platform.get("podgroup", "test").ok_or("no pod group")?;
        if group["status"]["phase"] == "Inqueue" { Ok(()) } else { Err(group["status"].to_string()) }
    });
    // Eight pods of one cpu each in a queue of four.
    platform.kubectl(["apply", "-f", &job]).ok();
    platform.wait_for_phase("mindspore-cpu", "Completed");
}

/// Runs a manifest and gives what its pods printed.
fn run_by_jobctl(platform: &Platform, manifest: &str) -> String {
    eventually("the job of before is gone", || {
        let jobs = platform.list("jobs.batch.volcano.sh");
        let pods = platform.list("pods");
        if jobs.is_empty() && pods.is_empty() {
            Ok(())
        } else {
            Err(format!("{} jobs, {} pods", jobs.len(), pods.len()))
        }
    });
    assert!(Path::new(manifest).is_file());
    platform.jobctl(["run", "-f", manifest]).ok()
}
