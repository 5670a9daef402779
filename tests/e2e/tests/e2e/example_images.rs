//! A registry with images of the names that others' manifests have.
//!
//! Nothing in them is made up but the programs in the folder beside this file. They stand in for nginx, TensorFlow, MPI, MindSpore and
//! Ray, and end well only where they have found each other as the job's plugins say. They run by this machine's Python, and reach
//! each other by its OpenSSH.
//!
//! Called by the tests of the articles and of Volcano's examples.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::OnceLock;

use pumice_testkit::{Clients, Files, Layer, Platform, Registry, Setup, TestImage, eventually};
use serde_json::{Value, json};
use tempfile::TempDir;

const PEERS: &str = include_str!("example_images/peers.py");
const TENSORFLOW: &str = include_str!("example_images/tensorflow.py");
const MPIEXEC: &str = include_str!("example_images/mpiexec.py");
const MPI_RANK: &str = include_str!("example_images/mpi_rank.py");
const RANKS: &str = include_str!("example_images/ranks.py");
const RAY: &str = include_str!("example_images/ray.py");
const PAGES: &str = include_str!("example_images/pages.py");
const NGINX: &str = include_str!("example_images/nginx");
/// What the programs import; Python loads the last two only where it needs them.
const MODULES: [&str; 10] =
    ["argparse", "json", "os", "pathlib", "shlex", "socket", "subprocess", "time", "encodings.ascii", "encodings.idna"];
/// The users of images with a server of OpenSSH, which leaves its rights to one of its own.
const USERS: &str = "root:x:0:0::/root:/bin/sh\nsshd:x:100:65534::/run/sshd:/bin/false\n";

/// A platform that gets its images from a registry of the examples' images alone, which stands in for Docker Hub.
pub struct World {
    pub platform: Platform,
    // They end after the platform.
    _registry: Registry,
    _directory: TempDir,
}

impl World {
    pub fn start(flags: &[&str]) -> World {
        let (registry, directory) = (Registry::start(), tempfile::tempdir().unwrap());
        for (name, tag, image) in images() {
            registry.put(name, tag, &image);
        }
        let settings = directory.path().join("registries.yaml");
        registry.settings_as_mirror(&settings, &["docker.io"]);
        let mut flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        flags.extend(["--images=registry".to_owned(), format!("--registries={}", settings.display())]);
        World { platform: Platform::start(Setup { flags }), _registry: registry, _directory: directory }
    }
}

/// Waits until so many pods that a selector fits, or all where it is empty, run, and serve their pages to the first of them: by the
/// names that the job's plugins have written down there, or by their addresses.
pub fn serve_pages(clients: &Clients, selector: &str, count: usize) {
    eventually(&format!("{count} pods of {selector:?} serve each their page"), || {
        let listed = clients.kubectl(["get", "pods", "-l", selector, "-o", "json"]).ok();
        let listed: Value = serde_json::from_str(&listed).unwrap();
        let pods = listed["items"].as_array().unwrap();
        if pods.len() != count || pods.iter().any(|pod| pod["status"]["phase"] != "Running") {
            return Err(listed.to_string());
        }
        let text = |pod: &Value, pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap().to_owned();
        let names: BTreeSet<String> = pods.iter().map(|pod| text(pod, "/metadata/name")).collect();
        let first = names.first().unwrap();
        let mut words = vec!["exec".to_owned(), first.clone(), "--".into(), "pages".into()];
        words.extend(pods.iter().map(|pod| text(pod, "/status/podIP")));
        let asked = clients.kubectl(&words);
        let found: BTreeSet<String> = asked.stdout.lines().map(str::to_owned).collect();
        if asked.code == 0 && found == names { Ok(()) } else { Err(format!("{asked:?} {listed}")) }
    });
}

/// Each image that a manifest names: its name at Docker Hub, its tag, and what it is.
fn images() -> Vec<(&'static str, &'static str, TestImage)> {
    let nginx = || {
        let entrypoint = "#!/bin/sh\nexec \"$@\"\n";
        let files = [("docker-entrypoint.sh", entrypoint), ("usr/sbin/nginx", NGINX), ("usr/local/bin/pages", PAGES)];
        let config = json!({"Entrypoint": ["/docker-entrypoint.sh"], "Cmd": ["nginx", "-g", "daemon off;"],
            "Env": ["PATH=/usr/local/bin:/usr/sbin:/usr/bin:/bin"], "StopSignal": "SIGQUIT"});
        python(&files, config)
    };
    let tensorflow = || python(&[("var/tf_dist_mnist/dist_mnist.py", TENSORFLOW)], json!({}));
    let benchmark = [("opt/tf-benchmarks/scripts/tf_cnn_benchmarks/tf_cnn_benchmarks.py", TENSORFLOW)];
    let mpi = || python(&[("usr/local/bin/mpiexec", MPIEXEC), ("usr/local/bin/mpi_hello_world", MPI_RANK)], json!({}));
    let horovod = [("usr/local/bin/mpiexec", MPIEXEC), ("examples/tensorflow_mnist_lm.py", MPI_RANK)];
    let ray = || python(&[("usr/local/bin/ray", RAY)], json!({}));
    let worker = python(&[("worker.py", RANKS)], json!({"Cmd": ["python", "/worker.py"]}));
    vec![
        ("library/alpine", "latest", TestImage::busybox()),
        ("library/nginx", "latest", nginx()),
        ("library/nginx", "1.14.2", nginx()),
        ("library/my-worker", "latest", worker),
        ("volcanosh/dist-mnist-tf-example", "0.0.1", tensorflow()),
        ("volcanosh/example-tf", "0.0.1", python(&benchmark, json!({}))),
        ("volcanosh/example-mpi", "0.0.1", mpi()),
        ("volcanosh/example-mpi", "0.0.3", mpi()),
        ("volcanosh/horovod-tf-mnist", "0.5", python(&horovod, json!({"WorkingDir": "/examples"}))),
        ("lyd911/mindspore-cpu-example", "0.2.0", python(&[("tmp/lenet.py", RANKS)], json!({}))),
        (
            "lyd911/mindspore-gpu-example",
            "0.2.0",
            python(&[("usr/local/bin/mpiexec", MPIEXEC), ("tmp/gpu-test.py", MPI_RANK)], json!({})),
        ),
        ("rayproject/ray", "latest-py311-cpu", ray()),
        ("bitnami/ray", "2.49.0", ray()),
    ]
}

/// An image with these programs, on layers that all such images share.
fn python(programs: &[(&str, &str)], config: Value) -> TestImage {
    let mut files = Files::new();
    files.folder("tmp", 0o1777);
    for (path, text) in programs {
        files.file(path, 0o755, text.as_bytes());
    }
    TestImage::busybox().with_layer(machine_layer()).with_layer(files.end()).with_config(config)
}

/// Python, a shell and OpenSSH of this machine.
fn machine_layer() -> Layer {
    static LAYER: OnceLock<Layer> = OnceLock::new();
    LAYER.get_or_init(made_machine_layer).clone()
}

fn made_machine_layer() -> Layer {
    let mut files = Files::new();
    files.python(&MODULES).file("usr/lib/python3/dist-packages/peers.py", 0o644, PEERS.as_bytes());
    files.of_machine("/bin/bash").of_machine("/usr/bin/ssh").of_machine("/usr/sbin/sshd");
    files.folder("run", 0o755).folder("var", 0o755).link("var/run", "/run").folder("root", 0o700).folder("home", 0o755);
    files.file("etc/passwd", 0o644, USERS.as_bytes());
    files.file("etc/nsswitch.conf", 0o644, b"passwd: files\ngroup: files\nhosts: files dns\n");
    files.file("etc/ssh/sshd_config", 0o644, b"");
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("key");
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).status();
    assert!(made.unwrap().success());
    files.file("etc/ssh/ssh_host_ed25519_key", 0o600, &std::fs::read(key).unwrap());
    files.end()
}
