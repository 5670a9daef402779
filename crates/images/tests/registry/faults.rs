//! Connections that end, stand still or never stop.

use std::time::Duration;

use crate::image::Image;
use crate::machine::{Machine, content};
use crate::server::{Fault, Registry};

/// For ever, as far as a test is concerned.
const ALWAYS: usize = usize::MAX;
const LARGE: usize = 300_000;

fn answer(status: u16, headers: &[(&'static str, &str)]) -> Fault {
    Fault::Answer(status, headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(), Vec::new())
}

/// A registry with an image, and a machine that reaches it.
async fn start(image: &Image) -> (Registry, Machine, String) {
    let registry = Registry::start().await;
    registry.push("team/app", "1", image);
    let machine = Machine::new(&[&registry]);
    let name = registry.name("team/app", "1");
    (registry, machine, name)
}

#[tokio::test]
async fn an_image_is_pulled_once_by_tag_and_by_digest() {
    let image = Image::small("hello");
    let (registry, machine, name) = start(&image).await;
    let pulled = machine.pull(&name).await.unwrap();
    assert_eq!(content(&pulled), "hello");
    assert_eq!(pulled.id, registry.name("team/app", &image.digest().to_string()));
    assert_eq!(pulled.config.cmd, ["/bin/true"]);
    assert_eq!(pulled.pulled_bytes, Some(u64::try_from(image.layers[0].len()).unwrap()));
    registry.requests();
    assert_eq!(machine.pull(&name).await.unwrap().pulled_bytes, None);
    assert_eq!(registry.requests().len(), 0);
    let by_digest = machine.pull(&pulled.id).await.unwrap();
    assert_eq!((content(&by_digest).as_str(), by_digest.id), ("hello", pulled.id));
    assert_eq!(registry.count("GET", &image.layer_digest().to_string()), 0, "everybody may have it");
}

#[tokio::test]
async fn a_layer_goes_on_where_the_connection_ended() {
    let image = Image::large(LARGE);
    let (registry, machine, name) = start(&image).await;
    registry.spoil("GET", &image.layer_digest().to_string(), 2, Fault::Cut(100_000));
    machine.pull(&name).await.unwrap();
    let ranges: Vec<_> =
        registry.requests().into_iter().filter_map(|mut request| request.headers.remove("range")).collect();
    assert_eq!(ranges, ["bytes=100000-", "bytes=200000-"]);
    // Each byte of it came once.
    assert_eq!(registry.sent_bytes(), image.layers[0].len() + image.config.len());
}

#[tokio::test]
async fn connections_that_always_end_fail_the_pull_and_what_came_stays() {
    let image = Image::large(LARGE);
    let (registry, machine, name) = start(&image).await;
    registry.spoil("GET", &image.layer_digest().to_string(), ALWAYS, Fault::Cut(700));
    let failure = machine.failure(&name).await;
    assert!(failure.contains(&format!("registry {} ends {}", registry.host, image.layer_digest())), "{failure}");
    assert!(machine.is_empty());
    registry.heal();
    registry.requests();
    machine.pull(&name).await.unwrap();
    assert_eq!(registry.requests().iter().filter(|request| request.headers.contains_key("range")).count(), 1);
}

#[tokio::test]
async fn manifests_and_configurations_that_are_cut_are_fetched_again() {
    let image = Image::small("hello");
    let (registry, machine, name) = start(&image).await;
    registry.spoil("GET", "/manifests/", 1, Fault::Cut(10));
    registry.spoil("GET", "/blobs/", 1, Fault::Cut(10));
    assert_eq!(content(&machine.pull(&name).await.unwrap()), "hello");
}

#[tokio::test]
async fn a_registry_without_ranges_sends_all_again() {
    for fault in [Fault::NoRange, Fault::WrongRange, answer(416, &[])] {
        let image = Image::large(LARGE);
        let (registry, machine, name) = start(&image).await;
        registry.spoil("GET", &image.layer_digest().to_string(), 1, Fault::Cut(100_000));
        registry.spoil("GET", &image.layer_digest().to_string(), 1, fault.clone());
        machine.pull(&name).await.unwrap_or_else(|error| panic!("{fault:?}: {error:?}"));
    }
}

#[tokio::test]
async fn a_registry_without_ranges_that_always_cuts_is_given_up() {
    let image = Image::large(LARGE);
    let (registry, machine, name) = start(&image).await;
    let layer = image.layer_digest().to_string();
    // The longer answers are no progress, as the shorter ones throw their bytes away.
    for _ in 0..40 {
        registry.spoil("GET", &layer, 1, Fault::NoRangeAndCut(100_000));
        registry.spoil("GET", &layer, 1, Fault::NoRangeAndCut(10));
    }
    let failure = machine.failure(&name).await;
    assert!(failure.contains("before its end"), "{failure}");
    assert!(registry.count("GET", &layer) < 10);
}

#[tokio::test]
async fn a_busy_registry_is_left_alone_for_as_long_as_it_says_within_reason() {
    for after in ["0", "1", "999999", "99999999999999999999", "-1", "soon", "Wed, 21 Oct 2099 07:28:00 GMT", ""] {
        let (registry, machine, name) = start(&Image::small("hello")).await;
        registry.spoil("GET", "/manifests/", 2, answer(429, &[("Retry-After", after)]));
        machine.pull(&name).await.unwrap_or_else(|error| panic!("{after}: {error:?}"));
    }
    let (registry, machine, name) = start(&Image::small("hello")).await;
    registry.spoil("GET", "/manifests/", ALWAYS, answer(429, &[]));
    let failure = machine.failure(&name).await;
    assert!(
        failure.contains(&format!("registry {} has had too many requests; it was asked 3 times", registry.host)),
        "{failure}"
    );
}

#[tokio::test]
async fn failures_of_a_moment_are_passed_over() {
    for status in [500, 502, 503, 504, 408] {
        let (registry, machine, name) = start(&Image::small("hello")).await;
        registry.spoil("GET", "/manifests/", 2, answer(status, &[]));
        registry.spoil("GET", "/blobs/", 2, answer(status, &[]));
        machine.pull(&name).await.unwrap_or_else(|error| panic!("{status}: {error:?}"));
    }
    let (registry, machine, name) = start(&Image::small("hello")).await;
    registry.spoil("GET", "/manifests/", ALWAYS, answer(500, &[]));
    let failure = machine.failure(&name).await;
    assert!(failure.contains(&format!("registry {} answers 500", registry.host)), "{failure}");
    assert_eq!(registry.count("GET", "/manifests/"), 3);
}

#[tokio::test]
async fn silence_and_trickles_end_the_pull() {
    let image = Image::large(LARGE);
    let layer = image.layer_digest().to_string();
    let cases = [
        ("/manifests/", Fault::Silence, "did not answer within"),
        ("/manifests/", Fault::Stall(3), "sends too slowly"),
        (layer.as_str(), Fault::Silence, "did not answer within"),
        (layer.as_str(), Fault::Stall(3), "sends too slowly: 3 bytes"),
        (layer.as_str(), Fault::Drip(Duration::from_millis(20)), "sends too slowly"),
    ];
    for (path, fault, expected) in cases {
        let (registry, mut machine, name) = start(&image).await;
        machine.hurry();
        registry.spoil("GET", path, ALWAYS, fault.clone());
        let failure = machine.failure(&name).await;
        assert!(failure.contains(&registry.host) && failure.contains(expected), "{fault:?}: {failure}");
        assert!(registry.count("GET", path) <= 2, "{fault:?}: tries of tries");
        assert!(machine.is_empty());
    }
}

#[tokio::test]
async fn a_registry_that_drips_a_layer_keeps_up_nobody_who_has_it_from_elsewhere() {
    let image = Image::large(LARGE);
    let (slow, mut machine, slow_name) = start(&image).await;
    let (quick, _, quick_name) = start(&image).await;
    machine.set(&quick.host, "plainHttp: true");
    (machine.patience.window, machine.patience.bytes) = (Duration::from_millis(200), 1);
    slow.spoil("GET", &image.layer_path(), ALWAYS, Fault::Drip(Duration::from_millis(5)));
    let images = machine.images();
    let policy = pumice_images::provide::PullPolicy::IfNotPresent;
    let ring = Default::default();
    let dripped = crate::machine::provide(&images, &slow_name, &ring, policy);
    let pulled = tokio::select! {
        biased;
        done = dripped => panic!("{done:?} after {LARGE} bytes, one at a time"),
        pulled = async {
            while slow.count("GET", &image.layer_path()) == 0 {
                tokio::task::yield_now().await;
            }
            let pull = crate::machine::provide(&images, &quick_name, &ring, policy);
            tokio::time::timeout(Duration::from_secs(20), pull).await.expect("it does not wait for the slow one")
        } => pulled,
    };
    assert_eq!(pulled.unwrap().layers.len(), 1);
    assert_eq!(quick.count("GET", &image.layer_path()), 1);
    let partial = std::fs::read_dir(machine.store_dir().join("partial")).unwrap();
    let names: Vec<_> = partial.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(names.len() == 1 && names[0].ends_with("-public"), "{names:?}");
}

#[tokio::test]
async fn what_never_ends_is_cut_off() {
    let image = Image::small("hello");
    for path in ["/manifests/", &image.config_path(), &image.layer_digest().to_string()] {
        let (registry, machine, name) = start(&image).await;
        registry.spoil("GET", path, ALWAYS, Fault::EndlessBody);
        let failure = machine.failure(&name).await;
        let expected = format!("registry {} answers with more than ", registry.host);
        assert!(failure.contains(&expected), "{path}: {failure}");
    }
    let (registry, machine, name) = start(&image).await;
    registry.spoil("GET", "/manifests/", ALWAYS, Fault::EndlessHead);
    let failure = machine.failure(&name).await;
    assert!(failure.contains(&registry.host) && failure.contains("message head is too large"), "{failure}");
}

#[tokio::test]
async fn an_endless_refusal_is_a_refusal() {
    let (registry, machine, name) = start(&Image::small("hello")).await;
    let body = vec![b'x'; 10 << 20];
    registry.spoil("GET", "/manifests/", ALWAYS, Fault::Answer(418, vec![], body));
    let failure = machine.failure(&name).await;
    assert!(failure.contains(&format!("registry {} answers 418", registry.host)), "{failure}");
}

#[tokio::test]
async fn other_content_than_the_digests_is_refused() {
    let image = Image::small("hello");
    let other = Image::small("other");
    let by_digest = image.digest().to_string();
    let cases = [
        (by_digest.clone(), &other.manifest),
        (image.config_path(), &other.config),
        (image.layer_path(), &other.layers[0]),
    ];
    for (path, content) in cases {
        let (registry, machine, _) = start(&image).await;
        let mut content = content.clone();
        // Of the same length, so that nothing but the digest tells them apart.
        content.truncate(image.part(&path).len());
        content.resize(image.part(&path).len(), b' ');
        registry.spoil("GET", &path, ALWAYS, Fault::Body(content));
        let failure = machine.failure(&registry.name("team/app", &by_digest)).await;
        let expected = format!("registry {} gives ", registry.host);
        assert!(failure.contains(&expected) && failure.contains("push the image again"), "{path}: {failure}");
        assert!(machine.is_empty());
        registry.heal();
        machine.pull(&registry.name("team/app", &by_digest)).await.unwrap();
    }
}

#[tokio::test]
async fn a_bad_beginning_that_another_registry_left_does_not_spoil_a_pull() {
    let image = Image::large(LARGE);
    let layer = image.layer_digest().to_string();
    let (bad, mut machine, name) = start(&image).await;
    let (good, _, good_name) = start(&image).await;
    machine.set(&good.host, "plainHttp: true");
    bad.spoil("GET", &layer, 1, Fault::Body(vec![b'x'; 100_000]));
    bad.spoil("GET", &layer, ALWAYS, Fault::Cut(0));
    machine.failure(&name).await;
    machine.pull(&good_name).await.unwrap();
    assert_eq!(good.count("GET", &layer), 2);
}

#[tokio::test]
async fn a_size_that_is_wrong_in_the_manifest_is_refused() {
    for (part, wrong) in [("layers", -1), ("layers", 1), ("config", -1)] {
        let mut image = Image::small("hello");
        image.change(|manifest| {
            let size =
                if part == "layers" { &mut manifest["layers"][0]["size"] } else { &mut manifest["config"]["size"] };
            *size = (size.as_i64().unwrap() + wrong).into();
        });
        let (registry, machine, name) = start(&image).await;
        let failure = machine.failure(&name).await;
        assert!(failure.contains(&registry.host), "{failure}");
        let expected = if wrong < 0 { "answers with more than" } else { "before its end" };
        assert!(failure.contains(expected), "{failure}");
        assert!(machine.is_empty());
        assert!(registry.requests().len() < 12);
    }
}

#[tokio::test]
async fn registries_that_answer_no_head_requests_are_asked_with_get() {
    let image = Image::small("hello");
    for status in [405, 400, 501] {
        let (registry, machine, name) = start(&image).await;
        machine.pull(&name).await.unwrap();
        registry.spoil("HEAD", "/", ALWAYS, answer(status, &[]));
        let always = pumice_images::provide::PullPolicy::Always;
        let again = crate::machine::provide(&machine.images(), &name, &Default::default(), always).await;
        assert_eq!(content(&again.unwrap_or_else(|error| panic!("{status}: {error:?}"))), "hello");
    }
    let (registry, machine, name) = start(&image).await;
    machine.pull(&name).await.unwrap();
    registry.spoil("HEAD", "/", ALWAYS, Fault::Without("Docker-Content-Digest"));
    let always = pumice_images::provide::PullPolicy::Always;
    crate::machine::provide(&machine.images(), &name, &Default::default(), always).await.unwrap();
}

#[tokio::test]
async fn mirrors_come_first_and_the_registry_when_they_fail() {
    let image = Image::small("hello");
    let layer = image.layer_digest().to_string();
    let gone = {
        let registry = Registry::start().await;
        registry.host.clone()
    };
    // Down, without the image, and with a bad copy of it.
    for case in 0..4 {
        let (registry, _, name) = start(&image).await;
        let mirror = Registry::start().await;
        if case >= 2 {
            mirror.push("team/app", "1", &image);
        }
        if case == 3 {
            mirror.spoil("GET", &layer, ALWAYS, Fault::Body(vec![b'x'; image.layers[0].len()]));
        }
        let host = if case == 0 { &gone } else { &mirror.host };
        let mut machine = Machine::new(&[]);
        machine.set(&registry.host, &format!("plainHttp: true, mirrors: ['{host}']"));
        machine.set(host, "plainHttp: true");
        let pulled = machine.pull(&name).await.unwrap_or_else(|error| panic!("{case}: {error:?}"));
        assert_eq!(content(&pulled), "hello");
        assert!(pulled.id.starts_with(&registry.host), "{}", pulled.id);
        assert_eq!(pulled.pulled_bytes, Some(u64::try_from(image.layers[0].len()).unwrap()), "{case}");
        assert_eq!(registry.count("GET", &layer), usize::from(case != 2), "{case}");
    }
    let mut machine = Machine::new(&[]);
    machine.set(&gone, "plainHttp: true");
    let failure = machine.failure(&format!("{gone}/team/app:1")).await;
    assert!(failure.contains(&format!("registry {gone} can't be reached")) && failure.contains("refused"), "{failure}");
}

#[tokio::test]
async fn a_layer_that_an_image_has_twice_comes_once() {
    let tar = crate::image::tar(&[("file", b"hello")]);
    let image = Image::new(&[(crate::image::Packed::Gzip, tar.clone()), (crate::image::Packed::Gzip, tar)]);
    let (registry, machine, name) = start(&image).await;
    assert_eq!(machine.pull(&name).await.unwrap().layers.len(), 2);
    assert_eq!(registry.count("GET", &image.layer_digest().to_string()), 1);
}

#[tokio::test]
async fn layers_of_a_pull_that_failed_do_not_come_again() {
    let tars = [crate::image::tar(&[("below", b"x")]), crate::image::tar(&[("file", b"hello")])];
    let image = Image::new(&tars.map(|tar| (crate::image::Packed::Gzip, tar)));
    let (registry, machine, name) = start(&image).await;
    registry.push("team/app", "2", &image);
    let last = pumice_images::digest::Digest::of(&image.layers[1]).to_string();
    registry.spoil("GET", &last, 1, answer(404, &[]));
    let images = machine.images();
    let policy = pumice_images::provide::PullPolicy::IfNotPresent;
    crate::machine::provide(&images, &name, &Default::default(), policy).await.unwrap_err();
    let other = registry.name("team/app", "2");
    let pulled = crate::machine::provide(&images, &other, &Default::default(), policy).await.unwrap();
    assert_eq!(content(&pulled), "hello");
    assert_eq!(registry.count("GET", &image.layer_path()), 1);
}
