//! Answers that lead elsewhere. No credential goes along.

use crate::image::Image;
use crate::machine::{Machine, content, password};
use crate::server::{Access, Fault, Registry, User};

const ALWAYS: usize = usize::MAX;

pub fn ada(repositories: &[&'static str]) -> User {
    User { name: "ada", password: "secret", repositories: repositories.to_vec() }
}

fn to(location: String) -> Fault {
    Fault::Answer(307, vec![("Location", location)], Vec::new())
}

#[tokio::test]
async fn blobs_come_from_another_host_without_the_credential() {
    let image = Image::small("hello");
    for access in [true, false] {
        let (registry, store) = (Registry::start().await, Registry::start().await);
        registry.push("team/app", "1", &image);
        store.push("team/app", "1", &image);
        let access = if access { Access::Basic } else { Access::Bearer(registry.address("/token")) };
        registry.open_by(access, &[ada(&["team/app"])], &[]);
        // The registry takes who it is before it says where to go.
        let machine = Machine::new(&[&registry]);
        let ring = password(&registry, "ada", "secret");
        let name = registry.name("team/app", "1");
        registry.spoil(
            "GET",
            &image.layer_path(),
            ALWAYS,
            to(store.address(&format!("/v2/team/app{}", image.layer_path()))),
        );
        assert_eq!(content(&machine.pull_as(&name, &ring).await.unwrap()), "hello");
        let elsewhere = store.requests();
        assert_eq!(elsewhere.len(), 1);
        assert_eq!(elsewhere[0].authorization(), None);
        let own = registry.requests();
        let led = own.iter().find(|request| request.path.contains(&image.layer_path())).unwrap();
        assert!(led.authorization().is_some());
    }
}

#[tokio::test]
async fn a_credential_that_was_left_behind_does_not_come_back_on_the_way() {
    let image = Image::small("hello");
    let (registry, other) = (Registry::start().await, Registry::start().await);
    registry.push("team/app", "1", &image);
    registry.open_by(Access::Basic, &[ada(&["team/app"])], &["open"]);
    registry.push("open", "1", &image);
    let machine = Machine::new(&[&registry]);
    // To another host, and from there to the registry, which the other host may have chosen the path at.
    registry.spoil("GET", &format!("team/app{}", image.layer_path()), ALWAYS, to(other.address("/x")));
    other.spoil("GET", "/x", ALWAYS, to(registry.address(&format!("/v2/open{}", image.layer_path()))));
    machine.pull_as(&registry.name("team/app", "1"), &password(&registry, "ada", "secret")).await.unwrap();
    let last = registry.requests().into_iter().find(|request| request.path.contains("/open/")).unwrap();
    assert_eq!(last.authorization(), None);
    assert_eq!(other.requests()[0].authorization(), None);
}

#[tokio::test]
async fn another_hosts_challenge_is_no_reason_to_show_a_credential() {
    let image = Image::small("hello");
    let (registry, other) = (Registry::start().await, Registry::start().await);
    registry.push("team/app", "1", &image);
    registry.open_by(Access::Basic, &[ada(&["team/app"])], &[]);
    let machine = Machine::new(&[&registry]);
    let ring = password(&registry, "ada", "secret");
    for challenge in ["Basic".to_owned(), format!("Bearer realm=\"{}\"", other.address("/token"))] {
        registry.heal();
        other.heal();
        registry.spoil("GET", &image.layer_path(), ALWAYS, to(other.address("/x")));
        other.spoil("GET", "/x", ALWAYS, Fault::Answer(401, vec![("WWW-Authenticate", challenge)], Vec::new()));
        let failure = machine.failure_as(&registry.name("team/app", "1"), &ring).await;
        assert!(failure.contains(&other.host), "{failure}");
        let seen = other.requests();
        assert!(seen.iter().all(|request| request.authorization().is_none() && request.path == "/x"), "{seen:?}");
    }
}

#[tokio::test]
async fn redirects_end() {
    let image = Image::small("hello");
    let (registry, machine) = {
        let registry = Registry::start().await;
        let machine = Machine::new(&[&registry]);
        registry.push("team/app", "1", &image);
        (registry, machine)
    };
    let own = format!("/v2/team/app{}", image.layer_path());
    let cases = [
        (registry.address(&own), "there were too many"),
        (own.clone(), "there were too many"),
        ("file:///etc/passwd".to_owned(), "it is no address"),
        ("".to_owned(), "it is no address"),
        ("ftp://h/x".to_owned(), "it is no address"),
        ("http://".to_owned(), "it is no address"),
        ("x".repeat(100_000), "it is no address"),
    ];
    for (location, expected) in cases {
        registry.heal();
        registry.requests();
        registry.spoil("GET", &image.layer_path(), ALWAYS, to(location.clone()));
        let failure = machine.failure(&registry.name("team/app", "1")).await;
        assert!(failure.contains(expected) && failure.contains(&registry.host), "{location}: {failure}");
        assert!(failure.len() < 1000);
        assert!(registry.count("GET", &image.layer_path()) <= 6);
    }
}

#[tokio::test]
async fn manifests_are_found_by_redirects_too() {
    let image = Image::small("hello");
    let registry = Registry::start().await;
    registry.push("team/app", "1", &image);
    let machine = Machine::new(&[&registry]);
    registry.spoil("GET", "/manifests/2", ALWAYS, to("/v2/team/app/manifests/1".to_owned()));
    registry.spoil("HEAD", "/manifests/2", ALWAYS, to("/v2/team/app/manifests/1".to_owned()));
    assert_eq!(content(&machine.pull(&registry.name("team/app", "2")).await.unwrap()), "hello");
}
