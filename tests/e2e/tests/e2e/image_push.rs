//! Images of a machine into Debian's `docker-registry`, and out of it again.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

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

/// A folder that an image can be made of.
fn root(directory: &Path) -> PathBuf {
    let root = directory.join("root");
    fs::create_dir_all(root.join("bin")).unwrap();
    fs::copy("/bin/busybox", root.join("bin/busybox")).unwrap();
    symlink("busybox", root.join("bin/cat")).unwrap();
    fs::write(root.join("word"), "of a folder\n").unwrap();
    root
}

/// Passes connections on to a server, and what that sends by so many bytes each tenth of a second. Its threads last as long as
/// their connections and the test's process.
fn slow_way_to(server: SocketAddr, bytes: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let mut server = TcpStream::connect(server).unwrap();
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Write);
            });
            std::thread::spawn(move || {
                let mut buffer = vec![0; bytes];
                while let Ok(count @ 1..) = server.read(&mut buffer) {
                    if client.write_all(&buffer[..count]).is_err() {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(100));
                }
                let _ = client.shutdown(Shutdown::Both);
            });
        }
    });
    address
}

#[test]
fn run_says_how_far_the_pull_of_its_image_is() {
    let directory = tempfile::tempdir().unwrap();
    let debian = Debian::start(directory.path());
    let slow = slow_way_to(debian.address, 100_000);
    let root = root(directory.path());
    let mut noise = vec![0; 10 << 20];
    fs::File::open("/dev/urandom").unwrap().read_exact(&mut noise).unwrap();
    fs::write(root.join("noise"), noise).unwrap();
    let settings = directory.path().join("registries.yaml");
    let plain = json!({"plainHttp": true});
    fs::write(&settings, json!({debian.address.to_string(): plain, slow.to_string(): plain}).to_string()).unwrap();
    let settings = settings.display().to_string();
    let flags = vec!["--images=registry".to_owned(), format!("--registries={settings}")];
    let platform = Platform::start(Setup { flags });
    let data = platform.data_dir().display().to_string();
    let image = |words: &[&str]| {
        let words: Vec<&str> = ["image"].iter().chain(words).chain(&["--data-dir", &data]).copied().collect();
        platform.run(&pumice_testkit::binary("pumice"), words, None).ok()
    };
    image(&["from-root", &root.display().to_string(), "localhost/large:1"]);
    let large = |address: SocketAddr| format!("{address}/team/large:1");
    image(&["push", "--registries", &settings, "localhost/large:1", &large(debian.address)]);
    image(&["rm", "localhost/large:1"]);
    let out = platform.jobctl(["run", "--image", &large(slow), "--", "cat", "/word"]);
    assert_eq!((out.code, out.stdout.as_str()), (0, "of a folder\n"), "{out:?}");
    let told = out.stderr.lines().filter(|line| line.contains(&format!("pulling image \"{}\": ", large(slow))));
    let told: Vec<&str> = told.filter(|line| line.ends_with(" MB")).collect();
    assert!(told.len() >= 2, "{out:?}");
    assert!(told.iter().all(|line| line.contains(" of 1")), "of all bytes that are to come: {told:?}");
}

#[test]
fn an_image_of_a_folder_is_pushed_and_runs_by_the_digest_that_was_said() {
    let directory = tempfile::tempdir().unwrap();
    let debian = Debian::start(directory.path());
    let root = root(directory.path());
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
