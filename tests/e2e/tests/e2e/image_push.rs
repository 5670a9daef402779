//! Images of a machine into Debian's `docker-registry`, and out of it again.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use pumice_testkit::{Platform, Setup, eventually};
use serde_json::json;

const PROGRAM: &str = "/usr/bin/docker-registry";

/// The program while it runs, open to everybody.
struct Debian {
    child: Child,
    address: SocketAddr,
}

impl Drop for Debian {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Debian {
    fn start(directory: &Path) -> Debian {
        assert!(Path::new(PROGRAM).is_file(), "needs docker-registry; run ./tests/prerequisites");
        // A port that was free a moment ago.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let content = directory.join("content");
        let config = json!({"version": "0.1", "log": {"level": "error"}, "http": {"addr": address.to_string()},
            "storage": {"filesystem": {"rootdirectory": content}}});
        fs::write(directory.join("registry.yml"), config.to_string()).unwrap();
        let mut command = Command::new(PROGRAM);
        command.arg("serve").arg(directory.join("registry.yml")).stdout(Stdio::null()).stderr(Stdio::null());
        let debian = Debian { child: command.spawn().unwrap(), address };
        eventually("the registry listens", || TcpStream::connect(address).map(drop).map_err(|error| error.to_string()));
        debian
    }
}

#[test]
fn an_image_of_a_folder_is_pushed_and_runs_by_the_digest_that_was_said() {
    let directory = tempfile::tempdir().unwrap();
    let debian = Debian::start(directory.path());
    let root = directory.path().join("root");
    fs::create_dir_all(root.join("bin")).unwrap();
    fs::copy("/bin/busybox", root.join("bin/busybox")).unwrap();
    symlink("busybox", root.join("bin/cat")).unwrap();
    fs::write(root.join("word"), "of a folder\n").unwrap();
    let settings = directory.path().join("registries.yaml");
    fs::write(&settings, json!({debian.address.to_string(): {"plainHttp": true}}).to_string()).unwrap();
    let settings = settings.display().to_string();
    let flags = vec!["--images=registry".to_owned(), format!("--registries={settings}")];
    let platform = Platform::start(Setup { flags });
    let data = platform.data_dir().display().to_string();
    let image = |words: &[&str]| {
        let words: Vec<&str> = ["image"].iter().chain(words).chain(&["--data-dir", &data]).copied().collect();
        platform.run(&pumice_testkit::binary("pumice"), words, None)
    };
    let (local, repository) = ("localhost/folder:1", format!("{}/team/folder", debian.address));
    image(&["from-root", &root.display().to_string(), local]).ok();
    let unreached = image(&["push", local, "127.0.0.1:1/x:1"]);
    assert!(unreached.code != 0 && unreached.stderr.contains("registry 127.0.0.1:1 can't be reached"), "{unreached:?}");
    assert_eq!(unreached.stderr.lines().count(), 1, "{unreached:?}");
    let pushed = image(&["push", "--registries", &settings, local, &format!("{repository}:1")]);
    assert!(pushed.stderr.contains("bytes sent, 0 were there"), "{pushed:?}");
    let id = pushed.ok().trim().to_owned();
    assert!(id.starts_with(&format!("{repository}@sha256:")), "{id}");
    image(&["rm", local]).ok();
    let container = json!({"name": "c", "image": id, "command": ["cat", "/word"]});
    let spec = json!({"restartPolicy": "Never", "containers": [container]});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pushed"}, "spec": spec});
    platform.kubectl_with_input(["create", "-f", "-"], &pod.to_string()).ok();
    eventually("the pod has ended", || match platform.get("pod", "pushed") {
        Some(pod) if pod["status"]["phase"] == "Succeeded" => Ok(()),
        other => Err(format!("{other:?}")),
    });
    assert_eq!(platform.kubectl(["logs", "pushed"]).ok(), "of a folder\n");
    let status = platform.get("pod", "pushed").unwrap()["status"].take();
    assert_eq!(status["containerStatuses"][0]["imageID"], id.as_str());
    // What was pulled goes on to another name, where nothing is sent.
    let again = image(&["push", "--registries", &settings, &id, &format!("{repository}/again:2")]);
    assert!(again.stderr.contains("0 bytes sent"), "{again:?}");
    assert_eq!(again.ok().trim(), id.replace("/folder@", "/folder/again@"));
}
