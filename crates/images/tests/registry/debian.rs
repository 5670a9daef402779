//! Debian's `docker-registry`.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use pumice_images::digest::Digest;

use crate::image::{Image, Packed, noise, tar};
use crate::machine::{Machine, content};
use crate::server::Registry;

const PROGRAM: &str = "/usr/bin/docker-registry";
/// What `htpasswd -nbB -C 4 ada secret` says.
const USERS: &str = "ada:$2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW\n";
/// `ada:secret` in base64.
const AUTHORIZATION: &str = "Basic YWRhOnNlY3JldA==";
/// Wait for it to begin.
const WITHIN: Duration = Duration::from_secs(20);

/// The program while it runs.
struct Debian {
    child: Child,
    host: String,
    client: Client<HttpConnector, Full<bytes::Bytes>>,
    with_password: bool,
}

impl Drop for Debian {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Debian {
    /// None where it isn't installed.
    async fn start(dir: &Path, with_password: bool) -> Option<Debian> {
        if !Path::new(PROGRAM).is_file() {
            eprintln!(
                "not run: needs docker-registry; `apt-get install docker-registry`, or run ./tests/prerequisites"
            );
            assert!(std::env::var_os("CI").is_none(), "docker-registry is not installed");
            return None;
        }
        // A port that was free a moment ago.
        let host = Registry::start().await.host.clone();
        std::fs::write(dir.join("users"), USERS).unwrap();
        let auth = format!("auth: {{htpasswd: {{realm: here, path: '{}'}}}}\n", dir.join("users").display());
        let config = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: '{}'}}}}\nhttp: {{addr: '{host}'}}\n{}",
            dir.join("data").display(),
            if with_password { auth.as_str() } else { "" }
        );
        std::fs::write(dir.join("config.yml"), config).unwrap();
        let log = std::fs::File::create(dir.join("log")).unwrap();
        let mut command = Command::new(PROGRAM);
        command.arg("serve").arg(dir.join("config.yml")).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().unwrap();
        let client = Client::builder(TokioExecutor::new()).build_http();
        let debian = Debian { child, host, client, with_password };
        let answers = async {
            while debian.call(Method::GET, &debian.address("/v2/"), "", b"").await.is_none() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let answered = tokio::time::timeout(WITHIN, answers).await;
        assert!(answered.is_ok(), "{}", std::fs::read_to_string(dir.join("log")).unwrap());
        Some(debian)
    }

    fn address(&self, path: &str) -> String {
        format!("http://{}{path}", self.host)
    }

    async fn call(&self, method: Method, address: &str, kind: &str, body: &[u8]) -> Option<Response<()>> {
        let mut request = Request::builder().method(method).uri(address).header("Content-Type", kind);
        if self.with_password {
            request = request.header("Authorization", AUTHORIZATION);
        }
        let answer = self.client.request(request.body(Full::from(body.to_vec())).unwrap()).await.ok()?;
        let (head, body) = answer.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        assert!(head.status.is_success(), "{}: {}", head.status, String::from_utf8_lossy(&body));
        Some(Response::from_parts(head, ()))
    }

    async fn push(&self, repository: &str, tag: &str, image: &Image) {
        for blob in image.layers.iter().chain([&image.config]) {
            let uploads = self.address(&format!("/v2/{repository}/blobs/uploads/"));
            let upload = self.call(Method::POST, &uploads, "", b"").await.unwrap();
            let location = upload.headers()["Location"].to_str().unwrap();
            let location = if location.starts_with('/') { self.address(location) } else { location.to_owned() };
            let address = format!("{location}&digest={}", Digest::of(blob));
            self.call(Method::PUT, &address, "application/octet-stream", blob).await.unwrap();
        }
        let address = self.address(&format!("/v2/{repository}/manifests/{tag}"));
        self.call(Method::PUT, &address, image.kind, &image.manifest).await.unwrap();
    }
}

#[tokio::test]
async fn debians_registry_gives_what_was_pushed() {
    let machine = Machine::new(&[]);
    let Some(debian) = Debian::start(machine.dir(), false).await else { return };
    let mut machine = machine;
    machine.set(&debian.host, "plainHttp: true");
    let image =
        Image::new(&[(Packed::Zstd, tar(&[("below", &noise(200_000))])), (Packed::Gzip, tar(&[("file", b"hello")]))]);
    debian.push("team/app", "1", &image).await;
    let by_tag = machine.pull(&format!("{}/team/app:1", debian.host)).await.unwrap();
    assert_eq!((content(&by_tag).as_str(), by_tag.layers.len()), ("hello", 2));
    assert_eq!(by_tag.id, format!("{}/team/app@{}", debian.host, image.digest()));
    assert_eq!(machine.pull(&by_tag.id).await.unwrap().layers, by_tag.layers);
    let failure = machine.failure(&format!("{}/team/app:2", debian.host)).await;
    assert!(failure.contains(&format!("team/app:2 is not in registry {}", debian.host)), "{failure}");
}

#[tokio::test]
async fn debians_registry_takes_what_is_pushed() {
    let machine = Machine::new(&[]);
    let Some(debian) = Debian::start(machine.dir(), true).await else { return };
    let registry = Registry::start().await;
    let image =
        Image::new(&[(Packed::Zstd, tar(&[("below", &noise(3 << 20))])), (Packed::Gzip, tar(&[("file", b"hello")]))]);
    registry.push("team/app", "1", &image);
    let mut machine = machine;
    for host in [&debian.host, &registry.host] {
        machine.set(host, "plainHttp: true");
    }
    let name = registry.name("team/app", "1");
    machine.pull(&name).await.unwrap();
    let destination = format!("{}/other/copy:1", debian.host);
    assert!(machine.push_failure(&name, Some(&destination)).await.contains("docker login"));
    machine.log_in(&debian.host, "ada", "wrong");
    assert!(machine.push_failure(&name, Some(&destination)).await.contains("check the password"));
    machine.log_in(&debian.host, "ada", "secret");
    let pushed = machine.push(&name, Some(&destination)).await.unwrap();
    assert_eq!(pushed.id, format!("{}/other/copy@{}", debian.host, image.digest()));
    let by_tag = machine.pull(&destination).await.unwrap();
    assert_eq!((content(&by_tag).as_str(), by_tag.id.as_str()), ("hello", pushed.id.as_str()));
    // From one repository of it to another, where it is pulled by its digest.
    let progress = pumice_images::registry::push::PushProgress::default();
    let again = format!("{}/third/copy:2", debian.host);
    let pushed = machine.images().push(&destination, Some(&again), &progress).await.unwrap();
    assert_eq!(progress.there(), progress.bytes().1, "all was mounted");
    let mut fresh = Machine::new(&[]);
    fresh.set(&debian.host, "plainHttp: true");
    fresh.log_in(&debian.host, "ada", "secret");
    assert_eq!(content(&fresh.pull(&pushed.id).await.unwrap()), "hello");
}

#[tokio::test]
async fn debians_registry_gives_to_whoever_has_the_password() {
    let machine = Machine::new(&[]);
    let Some(debian) = Debian::start(machine.dir(), true).await else { return };
    let mut machine = machine;
    machine.set(&debian.host, "plainHttp: true");
    debian.push("team/app", "1", &Image::small("private")).await;
    let name = format!("{}/team/app:1", debian.host);
    let ring =
        |word: &str| crate::machine::keyring(&debian.host, &serde_json::json!({"username": "ada", "password": word}));
    assert!(machine.failure(&name).await.contains("without credentials"));
    assert!(machine.failure_as(&name, &ring("wrong")).await.contains("with the credentials that there are"));
    assert_eq!(content(&machine.pull_as(&name, &ring("secret")).await.unwrap()), "private");
    assert!(machine.failure_as(&name, &ring("wrong")).await.contains("refuses"));
    assert!(machine.failure(&name).await.contains("refuses"));
}
