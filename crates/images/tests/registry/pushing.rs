//! Pushing to registries that are open, closed, slow, broken or bad.

use pumice_images::digest::Digest;
use pumice_images::registry::push::PushProgress;
use pumice_images::store::Extent;

use crate::image::{Image, Packed, index, noise, tar};
use crate::machine::{Machine, content, password};
use crate::redirects::ada;
use crate::server::{Access, Fault, Registry, Request};

const ALWAYS: usize = usize::MAX;

/// A registry that has an image of two layers, another one that has nothing, and a machine that has pulled the image.
struct Case {
    from: Registry,
    to: Registry,
    machine: Machine,
    image: Image,
    name: String,
}

impl Case {
    async fn start() -> Case {
        let (from, to) = (Registry::start().await, Registry::start().await);
        let layers = [(Packed::Zstd, tar(&[("below", &noise(600_000))])), (Packed::Gzip, tar(&[("file", b"hello")]))];
        let image = Image::new(&layers);
        from.push("team/app", "1", &image);
        let machine = Machine::new(&[&from, &to]);
        let name = from.name("team/app", "1");
        machine.pull(&name).await.unwrap();
        Case { from, to, machine, image, name }
    }

    fn assert_pushed(&self, repository: &str, tag: &str) {
        for version in [tag, &self.image.digest().to_string()] {
            let found = self.to.manifest(repository, version).unwrap_or_else(|| panic!("no {version}"));
            assert_eq!(found, (self.image.kind.to_owned(), self.image.manifest.clone()));
        }
        for blob in self.image.layers.iter().chain([&self.image.config]) {
            assert!(self.to.blob(repository, &Digest::of(blob)).is_some_and(|found| found == *blob));
        }
    }

    fn assert_nothing_named(&self) {
        assert_eq!(self.to.count("PUT", "/manifests/"), 0, "half an image has no name");
    }
}

fn uploads(requests: &[Request]) -> Vec<&Request> {
    requests.iter().filter(|request| request.method == "PUT" && request.path.contains("/blobs/uploads/")).collect()
}

#[tokio::test]
async fn what_was_pushed_is_pulled_by_tag_and_by_the_same_digest() {
    let case = Case::start().await;
    let destination = case.to.name("other/copy", "2");
    let progress = PushProgress::default();
    let pushed = case.machine.images().push(&case.name, Some(&destination), &progress).await.unwrap();
    let digest = case.image.digest();
    assert_eq!((pushed.id, pushed.index), (format!("{}/other/copy@{digest}", case.to.host), None));
    let bytes = case.image.layers.iter().chain([&case.image.config]).map(Vec::len).sum::<usize>();
    let bytes = u64::try_from(bytes).unwrap();
    assert_eq!((progress.bytes(), progress.there()), ((bytes, bytes), 0));
    case.assert_pushed("other/copy", "2");
    let last = case.to.requests().into_iter().rfind(|request| request.method == "PUT").unwrap();
    assert!(last.path.ends_with("/manifests/2"), "the name comes last: {}", last.path);
    let fresh = Machine::new(&[&case.to]);
    for version in ["2", &digest.to_string()] {
        let provided = fresh.pull(&case.to.name("other/copy", version)).await.unwrap();
        assert_eq!(content(&provided), "hello");
        assert!(provided.id.ends_with(&digest.to_string()));
    }
    // Whatever is there is not sent again.
    case.to.requests();
    let progress = PushProgress::default();
    case.machine.images().push(&case.name, Some(&case.to.name("other/copy", "3")), &progress).await.unwrap();
    assert_eq!((progress.there(), uploads(&case.to.requests()).len()), (bytes, 0));
    case.assert_pushed("other/copy", "3");
}

#[tokio::test]
async fn without_a_destination_it_goes_to_what_it_is_called() {
    let case = Case::start().await;
    for blob in case.image.layers.iter().chain([&case.image.config]) {
        case.from.remove_blob("team/app", &Digest::of(blob));
    }
    case.machine.push(&case.name, None).await.unwrap();
    assert_eq!(case.from.blob("team/app", &case.image.layer_digest()).unwrap(), case.image.layers[0]);
}

#[tokio::test]
async fn a_password_opens_and_a_wrong_one_is_refused() {
    for access in ["basic", "bearer"] {
        let case = Case::start().await;
        let access = if access == "basic" { Access::Basic } else { Access::Bearer(case.to.address("/token")) };
        case.to.open_by(access.clone(), &[ada(&["other/copy"])], &["other/copy"]);
        let destination = case.to.name("other/copy", "1");
        let failure = case.machine.push_failure(&case.name, Some(&destination)).await;
        assert!(failure.contains("without credentials") && failure.contains("docker login"), "{failure}");
        case.machine.log_in(&case.to.host, "ada", "wrong");
        let failure = case.machine.push_failure(&case.name, Some(&destination)).await;
        assert!(failure.contains(&format!("registry {} refuses", case.to.host)), "{failure}");
        assert!(failure.contains("config.json") && !failure.contains("wrong"), "{failure}");
        case.assert_nothing_named();
        case.machine.log_in(&case.to.host, "ada", "secret");
        case.to.requests();
        case.machine.push(&case.name, Some(&destination)).await.unwrap();
        case.assert_pushed("other/copy", "1");
        if let Access::Bearer(_) = access {
            let requests = case.to.requests();
            let tokens: Vec<_> = requests.iter().filter(|request| request.path.starts_with("/token")).collect();
            assert!(tokens.iter().all(|token| token.path.ends_with("scope=repository%3Aother%2Fcopy%3Apull%2Cpush")));
        }
        // A repository of somebody else's.
        let failure = case.machine.push_failure(&case.name, Some(&case.to.name("carols/own", "1"))).await;
        assert!(failure.contains("refuses") && failure.contains("carols/own"), "{failure}");
    }
}

#[tokio::test]
async fn an_image_that_was_pulled_with_a_credential_is_the_administrators_to_push() {
    let case = Case::start().await;
    case.from.open_by(Access::Basic, &[ada(&["team/app"])], &[]);
    let machine = Machine::new(&[&case.from, &case.to]);
    machine.pull_as(&case.name, &password(&case.from, "ada", "secret")).await.unwrap();
    machine.push(&case.name, Some(&case.to.name("other/copy", "1"))).await.unwrap();
    case.assert_pushed("other/copy", "1");
}

#[tokio::test]
async fn blobs_are_mounted_from_another_repository_of_the_registry() {
    let case = Case::start().await;
    let to_own = case.from.name("other/copy", "1");
    for access in [Access::Open, Access::Bearer(case.from.address("/token"))] {
        case.from.open_by(access.clone(), &[ada(&["other/copy", "team/app"])], &[]);
        case.machine.log_in(&case.from.host, "ada", "secret");
        for blob in case.image.layers.iter().chain([&case.image.config]) {
            case.from.remove_blob("other/copy", &Digest::of(blob));
        }
        case.from.requests();
        case.machine.push(&case.name, Some(&to_own)).await.unwrap();
        let requests = case.from.requests();
        assert_eq!(uploads(&requests).len(), 0, "{access:?}");
        let mount = requests.iter().find(|request| request.path.contains("mount=")).unwrap();
        assert!(mount.path.ends_with("&from=team%2Fapp"), "{}", mount.path);
        if let Access::Bearer(_) = access {
            let wanted = "scope=repository%3Aother%2Fcopy%3Apull%2Cpush&scope=repository%3Ateam%2Fapp%3Apull";
            assert!(requests.iter().any(|request| request.path.ends_with(wanted)));
        }
        assert!(case.from.blob("other/copy", &case.image.layer_digest()).is_some());
    }
    // One that does not do it is sent them.
    for blob in case.image.layers.iter().chain([&case.image.config]) {
        case.from.remove_blob("other/copy", &Digest::of(blob));
    }
    case.from.requests();
    case.from.spoil("POST", "mount=", ALWAYS, Fault::Answer(403, vec![], Vec::new()));
    case.machine.push(&case.name, Some(&to_own)).await.unwrap();
    assert_eq!(uploads(&case.from.requests()).len(), 3);
}

#[tokio::test]
async fn a_connection_that_ends_in_the_middle_is_tried_again_from_the_beginning() {
    let case = Case::start().await;
    let destination = case.to.name("other/copy", "1");
    let layer = case.image.layer_digest().hex().to_owned();
    case.to.spoil("PUT", &layer, 1, Fault::CutRequest(100_000));
    let progress = PushProgress::default();
    case.machine.images().push(&case.name, Some(&destination), &progress).await.unwrap();
    case.assert_pushed("other/copy", "1");
    let (done, total) = progress.bytes();
    assert_eq!(done, total, "bytes that went astray don't count");
    assert_eq!(case.to.count("PUT", &layer), 2);
    assert_eq!(case.to.count("POST", "/blobs/uploads/"), 4, "the broken upload is not gone on with");
    case.to.spoil("PUT", &layer, ALWAYS, Fault::CutRequest(100_000));
    case.to.remove_blob("other/copy", &case.image.layer_digest());
    case.to.requests();
    let failure = case.machine.push_failure(&case.name, Some(&destination)).await;
    assert!(failure.contains(&format!("registry {} ended the connection after", case.to.host)), "{failure}");
    assert_eq!(case.to.count("PUT", &layer), 3);
    case.assert_nothing_named();
}

#[tokio::test]
async fn a_registry_that_is_busy_or_fails_is_tried_again() {
    for status in [429, 500, 503] {
        for (method, path) in [("POST", "/blobs/uploads/"), ("PUT", "/blobs/uploads/"), ("PUT", "/manifests/")] {
            let case = Case::start().await;
            let fault = Fault::Answer(status, vec![("Retry-After", "0".to_owned())], Vec::new());
            case.to.spoil(method, path, 2, fault);
            case.machine.push(&case.name, Some(&case.to.name("other/copy", "1"))).await.unwrap();
            case.assert_pushed("other/copy", "1");
        }
    }
}

#[tokio::test]
async fn a_location_on_another_host_gets_no_credential() {
    let case = Case::start().await;
    let other = Registry::start().await;
    let to = &case.to;
    to.open_by(Access::Basic, &[ada(&["other/copy"])], &[]);
    case.machine.log_in(&to.host, "ada", "secret");
    let location = other.address("/v2/other/copy/blobs/uploads/9");
    // The registry has looked at the credential before.
    to.spoil("POST", "/blobs/uploads/", ALWAYS, Fault::Answer(202, vec![("Location", location)], Vec::new()));
    case.machine.push(&case.name, Some(&to.name("other/copy", "1"))).await.unwrap();
    let seen = other.requests();
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|request| request.authorization().is_none()), "{seen:?}");
    // A redirect takes none along either.
    to.heal();
    let redirect = |to: String| Fault::Answer(307, vec![("Location", to)], Vec::new());
    to.spoil("PUT", "/blobs/uploads/", ALWAYS, redirect(other.address("/v2/x/blobs/uploads/9?digest=x")));
    other.spoil("PUT", "/v2/x/", ALWAYS, Fault::Answer(401, vec![("WWW-Authenticate", "Basic".into())], Vec::new()));
    let failure = case.machine.push_failure(&case.name, Some(&to.name("other/copy", "2"))).await;
    assert!(failure.contains(&other.host), "{failure}");
    assert!(other.requests().iter().all(|request| request.authorization().is_none()));
}

#[tokio::test]
async fn nonsense_of_a_registry_is_named() {
    let answer = |status, headers, body: &str| Fault::Answer(status, headers, body.as_bytes().to_vec());
    let error = |code: &str| format!(r#"{{"errors": [{{"code": "{code}", "message": "so\nit is"}}]}}"#);
    let at = |location: &str| vec![("Location", location.to_owned())];
    let cases = [
        ("POST", "/blobs/uploads/", answer(202, vec![], ""), "does not say where"),
        ("POST", "/blobs/uploads/", answer(202, at("file:///etc/passwd"), ""), "does not say where"),
        ("POST", "/blobs/uploads/", answer(404, vec![], &error("NAME_UNKNOWN")), "make the repository there first"),
        ("POST", "/blobs/uploads/", answer(302, at("/v2/other/copy/blobs/"), ""), "would be left behind"),
        ("POST", "/blobs/uploads/", answer(403, vec![], &error("DENIED")), "soit is"),
        ("PUT", "/blobs/uploads/", answer(413, vec![], "<html>"), "raise its limit"),
        ("PUT", "/blobs/uploads/", answer(507, vec![], ""), "has no room"),
        (
            "PUT",
            "/blobs/uploads/",
            answer(400, vec![], &error("DIGEST_INVALID")),
            "got another content than other/copy@sha256:",
        ),
        ("PUT", "/blobs/uploads/", answer(405, vec![], &error("UNSUPPORTED")), "answers 405 for other/copy@sha256:"),
        (
            "PUT",
            "/manifests/",
            answer(400, vec![], &error("MANIFEST_INVALID")),
            "answers 400 for other/copy:1: soit is",
        ),
        (
            "PUT",
            "/manifests/",
            answer(201, vec![("Docker-Content-Digest", Digest::of(b"x").to_string())], ""),
            "was pushed",
        ),
    ];
    for (method, path, fault, expected) in cases {
        let case = Case::start().await;
        case.to.spoil(method, path, ALWAYS, fault.clone());
        let failure = case.machine.push_failure(&case.name, Some(&case.to.name("other/copy", "1"))).await;
        assert!(failure.contains(expected) && failure.contains(&case.to.host), "{fault:?}: {failure}");
        assert!(!failure.contains('\n'), "{failure}");
        assert!(case.to.manifest("other/copy", "1").is_none());
    }
}

#[tokio::test]
async fn a_registry_that_takes_nothing_or_says_nothing_is_given_up() {
    let mut case = Case::start().await;
    case.machine.hurry();
    let destination = case.to.name("other/copy", "1");
    // It has the blobs, and only says nothing of it.
    case.to.spoil("PUT", "/blobs/uploads/", ALWAYS, Fault::Silence);
    case.machine.push(&case.name, Some(&destination)).await.unwrap();
    case.assert_pushed("other/copy", "1");
    case.to.spoil("PUT", "/manifests/", ALWAYS, Fault::Silence);
    let failure = case.machine.push_failure(&case.name, Some(&destination)).await;
    assert!(failure.contains("did not answer"), "{failure}");
    // More than the kernel takes for somebody who does not read.
    let image = Image::large(64 << 20);
    case.from.push("team/app", "large", &image);
    let large = case.from.name("team/app", "large");
    Machine::at(case.machine.dir()).pull(&large).await.unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/x", listener.local_addr().unwrap());
    case.to.spoil("POST", "/blobs/uploads/", ALWAYS, Fault::Answer(202, vec![("Location", address)], Vec::new()));
    let failure = case.machine.push_failure(&large, Some(&destination)).await;
    assert!(failure.contains("takes too slowly") || failure.contains("did not answer"), "{failure}");
}

#[tokio::test]
async fn an_index_is_pushed_as_the_image_for_this_machine_by_a_tag_only() {
    let case = Case::start().await;
    let here = format!("linux/{}", pumice_images::manifest::machine().architecture());
    let list = index(&[("plan9/mips", b"elsewhere"), (&here, &case.image.manifest)]);
    case.from.push_manifest("team/app", "many", pumice_images::manifest::OCI_INDEX, &list);
    let by_tag = case.from.name("team/app", "many");
    case.machine.pull(&by_tag).await.unwrap();
    let pushed = case.machine.push(&by_tag, Some(&case.to.name("other/copy", "1"))).await.unwrap();
    assert_eq!(pushed.index, Some(Digest::of(&list)));
    case.assert_pushed("other/copy", "1");
    let of_index = case.to.name("other/copy", &Digest::of(&list).to_string());
    let failure = case.machine.push_failure(&by_tag, Some(&of_index)).await;
    assert!(failure.contains("for several machines") && failure.contains("name a tag"), "{failure}");
    let of_other = case.to.name("other/copy", &Digest::of(b"other").to_string());
    let failure = case.machine.push_failure(&by_tag, Some(&of_other)).await;
    assert!(failure.contains("names another digest") && failure.contains("name a tag"), "{failure}");
    let own = case.to.name("other/own", &case.image.digest().to_string());
    case.machine.push(&by_tag, Some(&own)).await.unwrap();
    assert!(case.to.manifest("other/own", &case.image.digest().to_string()).is_some());
}

#[tokio::test]
async fn an_image_that_is_not_there_or_lost_a_layer_is_named() {
    let case = Case::start().await;
    let destination = case.to.name("other/copy", "1");
    let failure = case.machine.push_failure("nowhere.example/x:1", Some(&destination)).await;
    assert!(failure.contains("nowhere.example/x:1 is not on this machine"), "{failure}");
    assert!(case.machine.push_failure(&case.name, Some("A/b")).await.contains("is not the name of an image"));
    let blob = case.machine.store_dir().join("blobs").join(case.image.layer_digest().hex());
    // A bit falls over.
    let mut bytes = std::fs::read(&blob).unwrap();
    bytes[500_000] ^= 1;
    std::fs::write(&blob, bytes).unwrap();
    let failure = case.machine.push_failure(&case.name, Some(&destination)).await;
    assert!(failure.contains("was damaged on the disk") && failure.contains("pumice image pull"), "{failure}");
    assert!(case.to.blob("other/copy", &case.image.layer_digest()).is_none());
    let failure = case.machine.push_failure(&case.name, Some(&destination)).await;
    assert!(failure.contains("is not in the store") && failure.contains("pumice image pull"), "{failure}");
    case.assert_nothing_named();
    // What is advised helps, and nothing goes that is there.
    let images = case.machine.images();
    crate::machine::provide(&images, &case.name, &Default::default(), pumice_images::provide::PullPolicy::Always)
        .await
        .unwrap();
    images.store().prune(Extent::Unnamed, &|_| false, pumice_clock::now()).unwrap();
    case.machine.push(&case.name, Some(&destination)).await.unwrap();
    case.assert_pushed("other/copy", "1");
}
