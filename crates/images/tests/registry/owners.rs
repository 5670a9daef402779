//! Whose an image is that was pulled with a credential.

use pumice_images::digest::Digest;
use pumice_images::provide::{Images, ProvideError, Provided, PullPolicy};
use pumice_images::registry::credentials::Keyring;
use pumice_units::with_causes;

use crate::image::{Image, Packed, tar};
use crate::machine::{Machine, content, password, provide};
use crate::server::{Access, Fault, Registry, User};

use PullPolicy::{Always, IfNotPresent, Never};

/// Files of a layer that takes a while to unpack.
const FILES: usize = 8000;

/// A registry with a private image that Ada and Bob may pull, and Carol not; Ada has pulled it.
struct Case {
    registry: Registry,
    machine: Machine,
    image: Image,
    name: String,
    ada: Keyring,
    bob: Keyring,
    carol: Keyring,
}

impl Case {
    async fn start() -> Case {
        let registry = Registry::start().await;
        let image = Image::small("private");
        registry.push("team/app", "1", &image);
        registry.push("team/app", "2", &image);
        let user = |name, password, repositories: &[&'static str]| User {
            name,
            password,
            repositories: repositories.to_vec(),
        };
        let users =
            [user("ada", "a", &["team/app"]), user("bob", "b", &["team/app"]), user("carol", "c", &["carol/app"])];
        registry.open_by(Access::Bearer(registry.address("/token")), &users, &["open/app"]);
        let machine = Machine::new(&[&registry]);
        let name = registry.name("team/app", "1");
        let ring = |user, word| password(&registry, user, word);
        let (ada, bob, carol) = (ring("ada", "a"), ring("bob", "b"), ring("carol", "c"));
        assert_eq!(content(&machine.pull_as(&name, &ada).await.unwrap()), "private");
        registry.requests();
        Case { registry, machine, image, name, ada, bob, carol }
    }

    fn nobody() -> Keyring {
        Keyring::default()
    }

    /// Questions for what the tag stands for, one without and one with a token, and for content.
    fn questions(&self) -> (usize, usize) {
        (self.registry.count("HEAD", "/manifests/"), self.registry.count("GET", "/blobs/"))
    }

    /// The names that the image could be had by.
    fn names(&self) -> [String; 3] {
        let by_digest = self.registry.name("team/app", &self.image.digest().to_string());
        [self.name.clone(), by_digest, self.registry.name("team/app", "2")]
    }
}

/// A failure that says that it is somebody else's.
fn assert_refused(result: Result<Provided, ProvideError>, what: &str) {
    let Err(error) = result else { panic!("{what}: given") };
    let text = with_causes(&error);
    let expected = ["refuses", "is not in registry", "gives no token", "not on this machine", "for others alone"];
    assert!(expected.iter().any(|part| text.contains(part)), "{what}: {text}");
}

#[tokio::test]
async fn a_private_image_is_for_those_whose_credentials_open_it() {
    let case = Case::start().await;
    for name in case.names() {
        for policy in [Always, IfNotPresent, Never] {
            let refused = [("nobody", Case::nobody()), ("carol", case.carol.clone())];
            for (who, ring) in refused {
                let images = case.machine.images();
                assert_refused(provide(&images, &name, &ring, policy).await, &format!("{who} {name} {policy:?}"));
                assert_eq!(images.find_open(&name).await.unwrap(), None);
            }
        }
    }
    let wrong = password(&case.registry, "ada", "wrong");
    for policy in [Always, IfNotPresent, Never] {
        assert_refused(provide(&case.machine.images(), &case.name, &wrong, policy).await, &format!("wrong {policy:?}"));
    }
    // A password for another registry is none for this one.
    let other = Registry::start().await;
    let elsewhere = password(&other, "ada", "a");
    assert_refused(case.machine.pull_as(&case.name, &elsewhere).await, "elsewhere");
}

#[tokio::test]
async fn the_one_who_has_pulled_it_has_it_without_a_question() {
    let case = Case::start().await;
    let images = case.machine.images();
    for policy in [IfNotPresent, Never] {
        assert_eq!(content(&provide(&images, &case.name, &case.ada, policy).await.unwrap()), "private");
    }
    assert_eq!(case.registry.requests().len(), 0);
    let provided = provide(&images, &case.name, &case.ada, Always).await.unwrap();
    assert_eq!((content(&provided).as_str(), provided.pulled_bytes), ("private", None));
    assert_eq!(case.questions(), (2, 0));
}

#[tokio::test]
async fn another_credential_is_shown_to_the_registry_once_and_then_granted() {
    let case = Case::start().await;
    let images = case.machine.images();
    assert_refused(provide(&images, &case.name, &case.bob, Never).await, "never");
    assert_eq!(content(&provide(&images, &case.name, &case.bob, IfNotPresent).await.unwrap()), "private");
    assert_eq!(case.questions(), (2, 0));
    case.registry.requests();
    for ring in [&case.ada, &case.bob] {
        for policy in [IfNotPresent, Never] {
            provide(&images, &case.name, ring, policy).await.unwrap();
        }
    }
    assert_eq!(case.registry.requests().len(), 0, "both are remembered");
}

#[tokio::test]
async fn those_who_pulled_the_same_image_in_turn_all_have_it() {
    let case = Case::start().await;
    case.registry.spoil("HEAD", "/", usize::MAX, Fault::Answer(405, vec![], Vec::new()));
    case.machine.pull_as(&case.name, &case.bob).await.unwrap();
    let images = case.machine.images();
    for ring in [&case.ada, &case.bob] {
        assert_eq!(content(&provide(&images, &case.name, ring, Never).await.unwrap()), "private");
    }
    // Of another image under the name each is asked for again.
    case.registry.push("team/app", "1", &Image::small("newer"));
    provide(&images, &case.name, &case.bob, Always).await.unwrap();
    assert_refused(provide(&images, &case.name, &case.ada, Never).await, "the newer one is Bob's");
}

#[tokio::test]
async fn a_layers_digest_in_somebody_elses_manifest_gives_nothing() {
    let case = Case::start().await;
    let evil = Registry::start().await;
    let mut machine = Machine::new(&[&evil]);
    machine.set(&case.registry.host, "plainHttp: true");
    let (name, ada) = (&case.name, &case.ada);
    machine.pull_as(name, ada).await.unwrap();
    // The whole image, but without its layer.
    evil.push_manifest("x", "1", case.image.kind, &case.image.manifest);
    evil.push_blob("x", &case.image.config);
    assert_refused(machine.pull(&evil.name("x", "1")).await, "no layer");
    assert_refused(machine.pull(&evil.name("x", &case.image.digest().to_string())).await, "by digest");
    // It says that it has it.
    evil.spoil("HEAD", "/blobs/", usize::MAX, Fault::Answer(200, vec![], Vec::new()));
    assert_refused(machine.pull(&evil.name("x", "1")).await, "said to be there");
    evil.spoil(
        "GET",
        &case.image.layer_path(),
        usize::MAX,
        Fault::Answer(200, vec![], vec![b'x'; case.image.layers[0].len()]),
    );
    let failure = machine.failure(&evil.name("x", "1")).await;
    assert!(failure.contains(&format!("registry {} gives", evil.host)), "{failure}");
    evil.heal();
    // Whoever does have the layer gets what he has.
    evil.push("x", "1", &case.image);
    assert_eq!(content(&machine.pull(&evil.name("x", "1")).await.unwrap()), "private");
}

#[tokio::test]
async fn a_small_layer_with_a_private_ones_diff_id_gives_nothing() {
    let case = Case::start().await;
    let evil = Registry::start().await;
    let mut machine = Machine::new(&[&evil]);
    machine.set(&case.registry.host, "plainHttp: true");
    machine.pull_as(&case.name, &case.ada).await.unwrap();
    for packed in [Packed::Plain, Packed::Gzip, Packed::Zstd] {
        let own = packed.pack(&tar(&[("mine", b"x")]));
        let kind = match packed {
            Packed::Plain => "tar",
            Packed::Gzip => "tar+gzip",
            Packed::Zstd => "tar+zstd",
        };
        let image =
            Image::of_parts(&[(format!("application/vnd.oci.image.layer.v1.{kind}"), own)], &[case.image.diff_id()]);
        evil.push("x", "1", &image);
        for _ in 0..2 {
            let failure = machine.failure(&evil.name("x", "1")).await;
            assert!(failure.contains("the image's configuration says"), "{packed:?}: {failure}");
        }
    }
    assert_eq!(content(&machine.pull_as(&case.name, &case.ada).await.unwrap()), "private");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_private_layer_that_is_just_being_unpacked_is_not_given_to_who_waits_for_it() {
    let (registry, evil) = (Registry::start().await, Registry::start().await);
    // So many files that the other one comes while they are made.
    let names: Vec<_> = (0..FILES).map(|index| format!("{index}")).collect();
    let mut files: Vec<(&str, &[u8])> = vec![("file", b"private")];
    files.extend(names.iter().map(|name| (name.as_str(), b"x".as_slice())));
    let private = Image::new(&[(Packed::Zstd, tar(&files))]);
    registry.push("team/app", "1", &private);
    let user = User { name: "ada", password: "a", repositories: vec!["team/app"] };
    registry.open_by(Access::Basic, &[user], &[]);
    let own = Packed::Gzip.pack(&tar(&[("mine", b"x")]));
    let kind = "application/vnd.oci.image.layer.v1.tar+gzip".to_owned();
    evil.push("x", "1", &Image::of_parts(&[(kind, own)], &[private.diff_id()]));
    let machine = Machine::new(&[&registry, &evil]);
    // As an agent, and `pumice image pull` beside it.
    let (images, others) = (machine.images(), machine.images());
    let (name, ada, nobody) = (registry.name("team/app", "1"), password(&registry, "ada", "a"), Case::nobody());
    let half = machine.store_dir().join("partial").join(format!("layer-{}", private.diff_id().hex())).join("root");
    let (pulled, refused) = tokio::join!(provide(&images, &name, &ada, IfNotPresent), async {
        while !half.is_dir() {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        provide(&others, &evil.name("x", "1"), &nobody, IfNotPresent).await
    });
    assert_eq!(content(&pulled.unwrap()), "private");
    let failure = with_causes(&refused.unwrap_err());
    assert!(failure.contains("the image's configuration says"), "{failure}");
}

/// Forgets which images there are, as a process does that ends before it has written them down.
fn forget_images(machine: &Machine) {
    let records = std::fs::read_dir(machine.store_dir().join("images")).unwrap();
    records.for_each(|record| std::fs::remove_file(record.unwrap().path()).unwrap());
}

#[tokio::test]
async fn blobs_that_no_image_has_yet_are_those_registries_that_gave_them() {
    let case = Case::start().await;
    let evil = Registry::start().await;
    let mut machine = Machine::at(case.machine.dir());
    machine.set(&evil.host, "plainHttp: true");
    evil.push_manifest("x", "1", case.image.kind, &case.image.manifest);
    evil.push_blob("x", &case.image.config);
    evil.spoil("HEAD", "/blobs/", usize::MAX, Fault::Answer(200, vec![], Vec::new()));
    case.registry.push_manifest("carol/app", "1", case.image.kind, &case.image.manifest);
    case.registry.push_blob("carol/app", &case.image.config);
    let carols = case.registry.name("carol/app", "1");
    forget_images(&machine);
    assert_refused(machine.pull(&evil.name("x", "1")).await, "evil");
    assert_refused(machine.pull_as(&carols, &case.carol).await, "carol");
    let layer = case.image.layer_path();
    case.registry.requests();
    machine.pull_as(&case.name, &case.bob).await.unwrap();
    assert_eq!((case.registry.count("HEAD", &layer), case.registry.count("GET", &layer)), (1, 0));
    // All bytes of it were there when the process ended, and it had no name yet.
    let store = machine.store_dir();
    let hex = case.image.layer_digest().hex().to_owned();
    let host = Digest::of(case.registry.host.as_bytes());
    forget_images(&machine);
    std::fs::remove_file(store.join("origins").join(format!("{hex}.json"))).unwrap();
    std::fs::remove_dir_all(store.join("layers")).unwrap();
    let partial = store.join("partial").join(format!("blob-{hex}-{}", &host.hex()[..16]));
    std::fs::rename(store.join("blobs").join(&hex), &partial).unwrap();
    assert_refused(machine.pull(&evil.name("x", "1")).await, "evil");
    case.registry.requests();
    let bobs = machine.pull_as(&case.name, &case.bob).await.unwrap();
    assert_eq!((content(&bobs).as_str(), case.registry.count("GET", &layer)), ("private", 0));
    forget_images(&machine);
    std::fs::remove_file(store.join("origins").join(format!("{hex}.json"))).unwrap();
    std::fs::remove_dir_all(store.join("layers")).unwrap();
    std::fs::rename(store.join("blobs").join(&hex), &partial).unwrap();
    assert_refused(machine.pull_as(&carols, &case.carol).await, "carol");
}

#[tokio::test]
async fn a_neighbour_at_the_same_registry_gets_nothing_by_naming_the_layer() {
    let case = Case::start().await;
    // Carol's own repository has a manifest with Ada's layer, which the registry does not give there.
    case.registry.push_manifest("carol/app", "1", case.image.kind, &case.image.manifest);
    case.registry.push_blob("carol/app", &case.image.config);
    assert_refused(case.machine.pull_as(&case.registry.name("carol/app", "1"), &case.carol).await, "carol");
    case.registry.push("open/app", "1", &case.image);
    // What everybody may have from this repository is no secret.
    assert_eq!(content(&case.machine.pull(&case.registry.name("open/app", "1")).await.unwrap()), "private");
}

#[tokio::test]
async fn layers_that_came_with_a_credential_are_fetched_once_by_those_who_may() {
    let case = Case::start().await;
    let second = case.registry.name("team/app", "2");
    case.machine.pull_as(&second, &case.bob).await.unwrap();
    let layer = case.image.layer_path();
    assert_eq!((case.registry.count("HEAD", &layer), case.registry.count("GET", &layer)), (1, 0));
    // A host of content that refuses to say so is tried the long way.
    let machine = Machine::new(&[&case.registry]);
    machine.pull_as(&case.name, &case.ada).await.unwrap();
    case.registry.spoil("HEAD", &layer, usize::MAX, Fault::Answer(403, vec![], Vec::new()));
    case.registry.requests();
    machine.pull_as(&second, &case.bob).await.unwrap();
    assert_eq!(case.registry.count("GET", &layer), 1);
}

#[tokio::test]
async fn a_public_image_is_for_all() {
    let case = Case::start().await;
    case.registry.push("open/app", "1", &Image::small("open"));
    let name = case.registry.name("open/app", "1");
    case.machine.pull(&name).await.unwrap();
    case.registry.requests();
    let images = case.machine.images();
    for ring in [Case::nobody(), case.ada.clone(), case.carol.clone()] {
        for policy in [IfNotPresent, Never] {
            assert_eq!(content(&provide(&images, &name, &ring, policy).await.unwrap()), "open");
        }
    }
    assert_eq!(case.registry.requests().len(), 0);
    assert!(images.find_open(&name).await.unwrap().is_some());
}

#[tokio::test]
async fn a_loaded_image_is_for_all_and_always_is_the_registrys() {
    let case = Case::start().await;
    let images = case.machine.images();
    let mut record = images.store().image(&case.name).unwrap().unwrap();
    record.loaded = true;
    record.grants.clear();
    images.store().put_image(&record).unwrap();
    for policy in [IfNotPresent, Never] {
        let provided = provide(&images, &case.name, &Case::nobody(), policy).await.unwrap();
        assert_eq!((content(&provided).as_str(), provided.id), ("private", case.image.digest().to_string()));
    }
    assert_eq!(case.registry.requests().len(), 0);
    assert_refused(provide(&images, &case.name, &Case::nobody(), Always).await, "always");
    provide(&images, &case.name, &case.ada, Always).await.unwrap();
    assert_refused(provide(&case.machine.images(), &case.name, &Case::nobody(), Never).await, "pulled since");
}

#[tokio::test]
async fn what_is_not_there_is_never_pulled_by_never() {
    let case = Case::start().await;
    let name = case.registry.name("team/app", "3");
    let error = provide(&case.machine.images(), &name, &case.ada, Never).await.unwrap_err();
    assert_eq!(error.reason(), "ErrImageNeverPull");
    assert_eq!(case.registry.requests().len(), 0);
}

#[tokio::test]
async fn always_follows_a_tag() {
    let case = Case::start().await;
    let images = case.machine.images();
    case.registry.push("team/app", "1", &Image::small("newer"));
    assert_eq!(content(&provide(&images, &case.name, &case.ada, IfNotPresent).await.unwrap()), "private");
    assert_eq!(content(&provide(&images, &case.name, &case.ada, Always).await.unwrap()), "newer");
    assert_refused(provide(&images, &case.name, &case.bob, Never).await, "the newer one is Ada's");
}

#[tokio::test]
async fn two_at_the_same_time_pull_once() {
    let case = Case::start().await;
    let machine = Machine::new(&[&case.registry]);
    let images = machine.images();
    let one = |ring| provide(&images, &case.name, ring, IfNotPresent);
    let (ada, again, bob, nobody) = tokio::join!(one(&case.ada), one(&case.ada), one(&case.bob), async {
        provide(&images, &case.name, &Case::nobody(), IfNotPresent).await
    });
    for provided in [ada, again, bob] {
        assert_eq!(content(&provided.unwrap()), "private");
    }
    assert_refused(nobody, "nobody");
    assert_eq!(case.registry.count("GET", &case.image.layer_path()), 1);
}

#[tokio::test]
async fn one_persons_failures_hold_nobody_else_up() {
    let case = Case::start().await;
    let machine = Machine::new(&[&case.registry]);
    let images: Images = machine.images();
    let wrong = password(&case.registry, "ada", "wrong");
    assert_refused(provide(&images, &case.name, &wrong, Always).await, "wrong");
    case.registry.requests();
    let error = provide(&images, &case.name, &wrong, Always).await.unwrap_err();
    assert_eq!(error.reason(), "ImagePullBackOff");
    assert!(with_causes(&error).contains(&case.registry.host), "{error}");
    assert_eq!(case.registry.requests().len(), 0);
    assert_eq!(content(&provide(&images, &case.name, &case.ada, Always).await.unwrap()), "private");
}

#[tokio::test]
async fn an_image_that_is_there_waits_for_no_pull() {
    let case = Case::start().await;
    let images = case.machine.images();
    case.registry.spoil("HEAD", "/", usize::MAX, Fault::Silence);
    let always = provide(&images, &case.name, &case.ada, Always);
    tokio::select! {
        biased;
        _ = always => panic!("a registry that is silent answers nothing"),
        found = async {
            while case.registry.count("HEAD", "/manifests/") == 0 {
                tokio::task::yield_now().await;
            }
            provide(&images, &case.name, &case.ada, IfNotPresent).await
        } => assert_eq!(content(&found.unwrap()), "private"),
    }
}

#[tokio::test]
async fn an_image_that_lost_a_part_is_pulled_again() {
    let case = Case::start().await;
    let images = case.machine.images();
    let store = case.machine.store_dir();
    let config = Digest::of(&case.image.config);
    let losses: [&dyn Fn(); 3] = [
        &|| std::fs::remove_dir_all(images.store().layer_dir(&case.image.diff_id())).unwrap(),
        &|| std::fs::remove_file(store.join("blobs").join(config.hex())).unwrap(),
        &|| {
            let records = std::fs::read_dir(store.join("images")).unwrap();
            records.for_each(|record| std::fs::write(record.unwrap().path(), "{").unwrap());
        },
    ];
    for (index, lose) in losses.iter().enumerate() {
        lose();
        let error = provide(&images, &case.name, &case.ada, Never).await.unwrap_err();
        assert!(["ErrImageNeverPull", "ImageInspectError"].contains(&error.reason()), "{index}: {error:?}");
        let provided = provide(&images, &case.name, &case.ada, IfNotPresent).await;
        assert_eq!(content(&provided.unwrap_or_else(|error| panic!("{index}: {error:?}"))), "private");
    }
}
