//! What opens a registry, and who gets to see it.

use serde_json::json;

use crate::image::Image;
use crate::machine::{Machine, content, keyring, password};
use crate::redirects::ada;
use crate::server::{Access, Fault, Registry};

const ALWAYS: usize = usize::MAX;

async fn start(access: Access) -> (Registry, Machine, String) {
    let registry = Registry::start().await;
    registry.push("team/app", "1", &Image::small("hello"));
    let access = if let Access::Bearer(_) = access { Access::Bearer(registry.address("/token")) } else { access };
    registry.open_by(access, &[ada(&["team/app"])], &[]);
    let machine = Machine::new(&[&registry]);
    let name = registry.name("team/app", "1");
    (registry, machine, name)
}

fn bearer() -> Access {
    Access::Bearer(String::new())
}

#[tokio::test]
async fn a_password_opens_and_a_wrong_one_is_refused() {
    for access in [Access::Basic, bearer()] {
        let (registry, machine, name) = start(access).await;
        let failure = machine.failure(&name).await;
        let expected = format!("registry {} refuses team/app:1 without credentials", registry.host);
        assert!(failure.contains(&expected) && failure.contains("imagePullSecrets"), "{failure}");
        let failure = machine.failure_as(&name, &password(&registry, "ada", "wrong")).await;
        assert!(
            failure.contains(&registry.host) && failure.contains("with the credentials that there are"),
            "{failure}"
        );
        assert!(!failure.contains("wrong"), "{failure}");
        assert_eq!(registry.count("GET", "/blobs/"), 0);
        assert_eq!(content(&machine.pull_as(&name, &password(&registry, "ada", "secret")).await.unwrap()), "hello");
    }
}

#[tokio::test]
async fn the_right_that_is_wanted_is_to_pull_this_repository() {
    let (registry, machine, name) = start(bearer()).await;
    machine.pull_as(&name, &password(&registry, "ada", "secret")).await.unwrap();
    let requests = registry.requests();
    let tokens: Vec<_> = requests.iter().filter(|request| request.path.starts_with("/token")).collect();
    assert_eq!(tokens.len(), 1, "one for all");
    assert_eq!(tokens[0].path, "/token?service=here&scope=repository%3Ateam%2Fapp%3Apull");
}

#[tokio::test]
async fn an_identity_token_is_sent_in_the_body() {
    let (registry, machine, name) = start(bearer()).await;
    let ring = keyring(&registry.host, &json!({"identitytoken": "identity-ada"}));
    machine.pull_as(&name, &ring).await.unwrap();
    let requests = registry.requests();
    let token = requests.iter().find(|request| request.path.starts_with("/token")).unwrap();
    assert_eq!((token.method.as_str(), token.authorization()), ("POST", None));
    assert!(
        token.body.contains("grant_type=refresh_token") && token.body.contains("scope=repository%3Ateam%2Fapp%3Apull")
    );
    let ring = keyring(&registry.host, &json!({"registrytoken": "token-ada"}));
    machine.pull_as(&name, &ring).await.unwrap();
}

#[tokio::test]
async fn a_token_that_expires_in_the_middle_is_renewed() {
    let (registry, machine, name) = start(bearer()).await;
    let image = Image::large(300_000);
    registry.push("team/app", "1", &image);
    let layer = image.layer_digest().to_string();
    registry.spoil("GET", &layer, 1, Fault::Cut(100_000));
    let challenge = format!("Bearer realm=\"{}\"", registry.address("/token"));
    registry.spoil("GET", &layer, 1, Fault::Answer(401, vec![("WWW-Authenticate", challenge)], Vec::new()));
    machine.pull_as(&name, &password(&registry, "ada", "secret")).await.unwrap();
    assert_eq!(registry.count("GET", "/token"), 2);
    assert_eq!(registry.sent_bytes(), image.layers[0].len() + image.config.len());
    // One that is never taken is no reason to try for ever.
    registry.push("team/app", "2", &Image::small("two"));
    registry.requests();
    let challenge = format!("Bearer realm=\"{}\"", registry.address("/token"));
    registry.spoil(
        "GET",
        "/manifests/2",
        ALWAYS,
        Fault::Answer(401, vec![("WWW-Authenticate", challenge)], Vec::new()),
    );
    let failure = machine.failure_as(&registry.name("team/app", "2"), &password(&registry, "ada", "secret")).await;
    assert!(failure.contains("refuses team/app:2"), "{failure}");
    assert_eq!((registry.count("GET", "/token"), registry.count("GET", "/manifests/2")), (1, 2));
}

#[tokio::test]
async fn a_realm_elsewhere_sees_no_credential_unless_the_settings_name_it() {
    let (registry, mut machine, name) = start(bearer()).await;
    let elsewhere = Registry::start().await;
    elsewhere.open_by(Access::Open, &[ada(&[])], &[]);
    registry.open_by(Access::Bearer(elsewhere.address("/token")), &[ada(&["team/app"])], &[]);
    let secrets = [json!({"username": "ada", "password": "secret"}), json!({"identitytoken": "identity-ada"})];
    for secret in &secrets {
        let failure = machine.failure_as(&name, &keyring(&registry.host, secret)).await;
        let expected = format!("{}: {{tokenHosts: [{}]}}", registry.host, elsewhere.host);
        assert!(failure.contains(&expected), "{failure}");
    }
    assert_eq!(elsewhere.requests().len(), 0);
    machine = Machine::new(&[]);
    machine.set(&registry.host, &format!("plainHttp: true, tokenHosts: ['{}']", elsewhere.host));
    for secret in &secrets {
        machine.pull_as(&name, &keyring(&registry.host, secret)).await.unwrap();
    }
    assert_eq!(elsewhere.requests().len(), 2);
}

#[tokio::test]
async fn whoever_has_no_credential_may_go_elsewhere_for_a_token() {
    let (registry, machine, _) = start(bearer()).await;
    let elsewhere = Registry::start().await;
    registry.push("open", "1", &Image::small("open"));
    registry.open_by(Access::Bearer(elsewhere.address("/token")), &[], &["open"]);
    assert_eq!(content(&machine.pull(&registry.name("open", "1")).await.unwrap()), "open");
    assert_eq!(elsewhere.requests()[0].authorization(), None);
}

#[tokio::test]
async fn a_realm_that_redirects_or_is_none_gives_no_token() {
    let (registry, machine, name) = start(bearer()).await;
    let elsewhere = Registry::start().await;
    elsewhere.open_by(Access::Open, &[ada(&[])], &[]);
    let ring = password(&registry, "ada", "secret");
    registry.spoil("GET", "/token", 1, Fault::Answer(307, vec![("Location", elsewhere.address("/token"))], Vec::new()));
    let failure = machine.failure_as(&name, &ring).await;
    assert!(
        failure.contains(&format!("{0} gives no token for registry {0}: it answers 307", registry.host)),
        "{failure}"
    );
    assert_eq!(elsewhere.requests().len(), 0);
    for realm in ["", "/token", "file:///etc/passwd", "x", "http://"] {
        registry.open_by(Access::Bearer(realm.to_owned()), &[ada(&["team/app"])], &[]);
        let failure = machine.failure_as(&name, &ring).await;
        assert!(failure.contains(&registry.host) && failure.contains("token"), "{realm}: {failure}");
    }
    // The host's own name as a user of another host.
    let trick = format!("http://{}@{}/token", registry.host, elsewhere.host);
    registry.open_by(Access::Bearer(trick), &[ada(&["team/app"])], &[]);
    machine.failure_as(&name, &ring).await;
    assert_eq!(elsewhere.requests().len(), 0);
}

#[tokio::test]
async fn a_token_server_that_is_busy_or_talks_nonsense() {
    for status in [429, 500, 503] {
        let (registry, machine, name) = start(bearer()).await;
        registry.spoil("GET", "/token", 2, Fault::Answer(status, vec![("Retry-After", "0".to_owned())], Vec::new()));
        machine
            .pull_as(&name, &password(&registry, "ada", "secret"))
            .await
            .unwrap_or_else(|error| panic!("{status}: {error:?}"));
    }
    let bodies: [&[u8]; 6] =
        [b"", b"{}", br#"{"token": ""}"#, br#"{"token": 3}"#, br#"{"token": "a\nb"}"#, &[b' '; 2 << 20]];
    for body in bodies {
        let (registry, machine, name) = start(bearer()).await;
        registry.spoil("GET", "/token", ALWAYS, Fault::Body(body.to_vec()));
        let failure = machine.failure_as(&name, &password(&registry, "ada", "secret")).await;
        assert!(failure.contains(&registry.host), "{failure}");
        assert_eq!(registry.count("GET", "/manifests/"), 1);
    }
    let (registry, mut machine, name) = start(bearer()).await;
    machine.hurry();
    registry.spoil("GET", "/token", ALWAYS, Fault::Silence);
    let failure = machine.failure_as(&name, &password(&registry, "ada", "secret")).await;
    assert!(failure.contains("did not answer"), "{failure}");
}

#[tokio::test]
async fn the_second_credential_is_tried_when_the_first_is_refused() {
    for access in [Access::Basic, bearer()] {
        let (registry, machine, name) = start(access).await;
        let mut ring = password(&registry, "ada", "old");
        ring.add(password(&registry, "ada", "secret"));
        machine.pull_as(&name, &ring).await.unwrap();
    }
}

#[tokio::test]
async fn what_a_registry_says_is_shown_as_one_line() {
    let (registry, machine, name) = start(Access::Open).await;
    let body = json!({"errors": [{"code": "DENIED", "message": "pay\n\u{1b}[31mfirst"}]}).to_string();
    registry.spoil("GET", "/manifests/", ALWAYS, Fault::Answer(403, vec![], body.into_bytes()));
    let failure = machine.failure(&name).await;
    assert!(failure.contains("pay[31mfirst") && !failure.contains('\n'), "{failure}");
}

#[tokio::test]
async fn what_is_not_there_is_named() {
    let (registry, machine, _) = start(Access::Open).await;
    let failure = machine.failure(&registry.name("team/app", "9")).await;
    assert!(failure.contains(&format!("team/app:9 is not in registry {}", registry.host)), "{failure}");
}
