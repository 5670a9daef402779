//! Tokens of an issuer: those that are right, and everything that may be wrong with one.
#![allow(clippy::unwrap_used)] // a test may panic

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use jiff::Timestamp;
use pumice_auth::{Identity, OidcError, OidcKeys, OidcRules, OidcToken, Verified};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};

const NOW: Timestamp = Timestamp::constant(1_764_000_000, 0);

fn rules() -> OidcRules {
    OidcRules {
        issuer: "https://login.example.com".to_owned(),
        audience: "fleet".to_owned(),
        username_claim: "sub".to_owned(),
        groups_claim: "groups".to_owned(),
        username_prefix: String::new(),
        groups_prefix: String::new(),
        id_tokens_only: false,
    }
}

fn part(value: &Value) -> String {
    BASE64.encode(value.to_string())
}

/// An issuer with a key for ES256 and one for EdDSA.
struct Issuer {
    ec: EcdsaKeyPair,
    ed: Ed25519KeyPair,
}

impl Issuer {
    fn new() -> Self {
        let random = SystemRandom::new();
        let ec = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let ec = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, ec.as_ref(), &random).unwrap();
        let ed = Ed25519KeyPair::from_pkcs8(Ed25519KeyPair::generate_pkcs8(&random).unwrap().as_ref()).unwrap();
        Self { ec, ed }
    }

    fn jwks(&self) -> Value {
        let point = self.ec.public_key().as_ref();
        let (x, y) = (BASE64.encode(&point[1..33]), BASE64.encode(&point[33..]));
        json!({ "keys": [
            { "kty": "oct", "k": "AAAA", "kid": "hmac" },
            { "kty": "EC", "crv": "P-256", "kid": "ec", "use": "sig", "x": x, "y": y },
            { "kty": "OKP", "crv": "Ed25519", "kid": "ed", "alg": "EdDSA", "x": BASE64.encode(self.ed.public_key()) },
            { "kty": "EC", "crv": "P-256", "kid": "enc", "use": "enc", "x": x, "y": y },
        ] })
    }

    fn keys(&self) -> OidcKeys {
        OidcKeys::read(self.jwks().to_string().as_bytes()).unwrap()
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let signed = format!("{}.{}", part(header), part(claims));
        let signature = if header["alg"] == "EdDSA" {
            self.ed.sign(signed.as_bytes()).as_ref().to_vec()
        } else {
            self.ec.sign(&SystemRandom::new(), signed.as_bytes()).unwrap().as_ref().to_vec()
        };
        format!("{signed}.{}", BASE64.encode(signature))
    }

    fn verified(&self, claims: &Value, rules: &OidcRules) -> Result<Verified, OidcError> {
        let token = self.sign(&es256(), claims);
        OidcToken::read(&token)?.verify(&self.keys(), rules, NOW)
    }

    fn told(&self, header: &Value, claims: &Value) -> Result<Identity, OidcError> {
        let token = self.sign(header, claims);
        OidcToken::read(&token)?.verify(&self.keys(), &rules(), NOW).map(|verified| verified.identity)
    }
}

fn es256() -> Value {
    json!({ "alg": "ES256", "kid": "ec" })
}

/// Right claims, with some of them replaced.
fn claims(other: Value) -> Value {
    let mut claims = json!({ "iss": "https://login.example.com", "aud": ["other", "fleet"], "sub": "ada",
        "groups": ["research", "pumice:administrators", "system:masters", ""],
        "exp": 1_764_003_600, "iat": 1_763_999_900.5, "nbf": 1_764_000_030 });
    claims.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
    claims
}

#[test]
fn a_token_that_is_right_names_somebody_and_no_reserved_groups() {
    let issuer = Issuer::new();
    let ada = Identity::new("ada", ["research"]);
    assert_eq!(issuer.told(&es256(), &claims(json!({}))), Ok(ada.clone()));
    assert_eq!(issuer.told(&json!({ "alg": "EdDSA", "kid": "ed" }), &claims(json!({}))), Ok(ada.clone()));
    assert_eq!(issuer.told(&json!({ "alg": "ES256" }), &claims(json!({ "aud": "fleet" }))), Ok(ada), "the only key");
    let nobody: [&str; 0] = [];
    assert_eq!(issuer.told(&es256(), &claims(json!({ "groups": 7 }))), Ok(Identity::new("ada", nobody)));
}

#[test]
fn what_is_wrong_is_named() {
    let issuer = Issuer::new();
    let name = || OidcError::Name("sub".to_owned());
    for (other, error) in [
        (json!({ "iss": "https://login.example.com/" }), OidcError::Issuer),
        (json!({ "iss": null }), OidcError::Issuer),
        (json!({ "aud": "another" }), OidcError::Audience),
        (json!({ "aud": [] }), OidcError::Audience),
        (json!({ "aud": { "fleet": true } }), OidcError::Audience),
        (json!({ "exp": 1_763_999_940 }), OidcError::Expired),
        (json!({ "exp": null }), OidcError::Form),
        (json!({ "exp": "never" }), OidcError::Form),
        (json!({ "nbf": 1_764_000_061 }), OidcError::Early),
        (json!({ "iat": 1_764_000_061 }), OidcError::Early),
        (json!({ "sub": "" }), name()),
        (json!({ "sub": 7 }), name()),
        (json!({ "sub": "pumice:administrators" }), name()),
        (json!({ "sub": "a\nb" }), name()),
        (json!({ "sub": "a".repeat(600) }), name()),
        (json!({ "groups": vec!["g"; 1_001] }), OidcError::Groups),
    ] {
        assert_eq!(issuer.told(&es256(), &claims(other.clone())), Err(error), "{other}");
    }
    let mut endless = claims(json!({}));
    endless.as_object_mut().unwrap().remove("exp");
    assert_eq!(issuer.told(&es256(), &endless), Err(OidcError::Expired));
}

#[test]
fn only_keys_of_the_issuer_sign_and_only_as_they_may() {
    let (issuer, other) = (Issuer::new(), Issuer::new());
    let token = other.sign(&es256(), &claims(json!({})));
    let verify =
        |token: &str| OidcToken::read(token)?.verify(&issuer.keys(), &rules(), NOW).map(|verified| verified.identity);
    assert_eq!(verify(&token), Err(OidcError::Signature));
    for alg in ["none", "HS256", "None", ""] {
        let header = json!({ "alg": alg, "kid": "ec" });
        let unsigned = format!("{}.{}.", part(&header), part(&claims(json!({}))));
        assert_eq!(verify(&unsigned), Err(OidcError::Algorithm(alg.to_owned())));
    }
    // A key's kind says how it signs, whatever the token wants.
    let confused = issuer.sign(&json!({ "alg": "RS256", "kid": "ec" }), &claims(json!({})));
    assert_eq!(verify(&confused), Err(OidcError::Signature));
    for kid in ["gone", "enc", "hmac"] {
        let unknown = issuer.sign(&json!({ "alg": "ES256", "kid": kid }), &claims(json!({})));
        assert_eq!(verify(&unknown), Err(OidcError::Key), "{kid}");
    }
    let critical = issuer.sign(&json!({ "alg": "ES256", "kid": "ec", "crit": ["x"] }), &claims(json!({})));
    assert_eq!(verify(&critical), Err(OidcError::Form));
    let token = issuer.sign(&es256(), &claims(json!({})));
    assert!(verify(&token).is_ok());
    let (head, rest) = token.split_once('.').unwrap();
    let changed = format!("{head}.{}.{}", part(&claims(json!({ "sub": "eve" }))), rest.split_once('.').unwrap().1);
    assert_eq!(verify(&changed), Err(OidcError::Signature));
}

#[test]
fn rsa_signs_too() {
    let all: Value = serde_json::from_str(include_str!("oidc_rsa.json")).unwrap();
    let keys = OidcKeys::read(json!({ "keys": [all["jwk"]] }).to_string().as_bytes()).unwrap();
    for alg in ["RS256", "RS512", "PS256"] {
        let text = all[alg].as_str().unwrap();
        assert!(OidcToken::is_one(text));
        let token = OidcToken::read(text).unwrap();
        let verified = token.verify(&keys, &rules(), NOW).unwrap();
        assert_eq!(verified.identity, Identity::new("ada", ["research"]), "{alg}");
        let text = text.replace(&text[text.len() - 8..], "AAAAAAAA");
        let token = OidcToken::read(&text).unwrap();
        assert_eq!(token.verify(&keys, &rules(), NOW), Err(OidcError::Signature), "{alg}");
    }
}

#[test]
fn garbage_is_no_token_and_no_keys() {
    let long = format!("eyJ{}.a.b", "a".repeat(20_000));
    for text in ["", ".", "..", "a.b.c", "eyJhbGciOiJFUzI1NiJ9..", "eyJhbGciOiJFUzI1NiJ9.W10.", long.as_str()] {
        assert_eq!(OidcToken::read(text).map(|_| ()), Err(OidcError::Form), "{text:.40}");
    }
    for text in ["", "[]", "{}", "{\"keys\":7}"] {
        assert_eq!(OidcKeys::read(text.as_bytes()), Err(OidcError::Keys), "{text}");
    }
    let odd = json!({ "keys": [7, {}, { "kty": "EC", "crv": "P-256", "x": "AA", "y": "AA" }, { "kty": "RSA" }] });
    assert!(OidcKeys::read(odd.to_string().as_bytes()).unwrap().is_empty());
}

#[test]
fn of_id_tokens_only_those_for_the_client_itself_are_taken() {
    let issuer = Issuer::new();
    let strict = OidcRules { id_tokens_only: true, ..rules() };
    let take = |other: Value| issuer.verified(&claims(other), &strict).map(|verified| verified.identity.user);
    for (other, twin) in [
        (json!({ "aud": ["other", "fleet"] }), json!({ "aud": ["other", "fleet"], "azp": "fleet" })),
        (json!({ "aud": "fleet", "azp": "other" }), json!({ "aud": "fleet", "azp": "fleet" })),
        (json!({ "aud": "fleet", "azp": 7 }), json!({ "aud": ["fleet"] })),
    ] {
        assert_eq!(take(other.clone()), Err(OidcError::Party), "{other}");
        assert_eq!(take(twin.clone()), Ok("ada".to_owned()), "{twin}");
    }
    let logout = json!({ "aud": "fleet", "events": { "http://schemas.openid.net/event/backchannel-logout": {} } });
    assert_eq!(take(logout), Err(OidcError::Kind));
    for (kind, result) in [("at+jwt", Err(OidcError::Kind)), ("logout+jwt", Err(OidcError::Kind)), ("jwt", Ok(()))] {
        let header = json!({ "alg": "ES256", "kid": "ec", "typ": kind });
        let token = issuer.sign(&header, &claims(json!({ "aud": "fleet" })));
        let verified = OidcToken::read(&token).unwrap().verify(&issuer.keys(), &strict, NOW);
        assert_eq!(verified.map(|_| ()), result, "{kind}");
    }
}

#[test]
fn prefixes_stand_before_names_and_reserved_names_stay_reserved() {
    let issuer = Issuer::new();
    let prefixed = OidcRules { username_prefix: "oidc:".to_owned(), groups_prefix: "oidc:".to_owned(), ..rules() };
    let verified = issuer.verified(&claims(json!({ "sub": "system:admin" })), &prefixed).unwrap();
    assert_eq!(verified.identity.user, "oidc:system:admin");
    assert!(verified.identity.is_in("oidc:research") && verified.identity.is_in("oidc:system:masters"));
    assert!(!verified.identity.is_in("system:masters") && !verified.identity.is_in("oidc:"));
    let unlucky = OidcRules { username_prefix: "system:".to_owned(), ..rules() };
    assert_eq!(issuer.verified(&claims(json!({})), &unlucky), Err(OidcError::Name("sub".to_owned())));
}

#[test]
fn names_that_look_like_others_are_others_and_what_is_unseen_is_refused() {
    let issuer = Issuer::new();
    let user = |name: &str| issuer.told(&es256(), &claims(json!({ "sub": name }))).map(|identity| identity.user);
    // A Cyrillic letter, a composed and a decomposed one, a wide one: nobody of these is another of them.
    let alike = ["alice", "\u{430}lice", "Alice", "\u{e9}va", "e\u{301}va", "\u{ff53}ystem:masters"];
    for name in alike {
        assert_eq!(user(name).as_deref(), Ok(name));
    }
    for name in ["ali\u{200b}ce", "\u{202e}ecila", "alice\u{feff}", "alice ", " alice", "al\u{ad}ice", "alice\u{0}"] {
        assert_eq!(user(name), Err(OidcError::Name("sub".to_owned())), "{name:?}");
    }
}

#[test]
fn an_address_that_the_issuer_does_not_vouch_for_names_nobody() {
    let issuer = Issuer::new();
    let rules = OidcRules { username_claim: "email".to_owned(), ..rules() };
    let user = |verified: Value| {
        let mut claims = claims(json!({ "email": "ada@example.com" }));
        if !verified.is_null() {
            claims["email_verified"] = verified;
        }
        issuer.verified(&claims, &rules).map(|verified| verified.identity.user)
    };
    for good in [json!(true), Value::Null] {
        assert_eq!(user(good).as_deref(), Ok("ada@example.com"));
    }
    for bad in [json!(false), json!("true"), json!(1)] {
        assert_eq!(user(bad.clone()), Err(OidcError::Email), "{bad}");
    }
}

#[test]
fn groups_may_be_a_text_and_nothing_nested_counts() {
    let issuer = Issuer::new();
    let groups =
        |value: Value| issuer.told(&es256(), &claims(json!({ "groups": value }))).map(|identity| identity.groups);
    let only = |names: &[&str]| Identity::new("ada", names.iter().copied()).groups;
    assert_eq!(groups(json!("research")), Ok(only(&["research"])));
    assert_eq!(groups(json!(["research", ["system:masters"], { "name": "x" }, 7, null])), Ok(only(&["research"])));
    assert_eq!(groups(json!({ "research": true })), Ok(only(&[])));
    assert_eq!(groups(json!(vec!["g"; 1_000])).map(|groups| groups.len()), Ok(1_001));
    let many: Vec<String> = (0..10_000).map(|number| format!("g{number}")).collect();
    assert_eq!(groups(json!(many)), Err(OidcError::Form), "longer than a token may be");
}

#[test]
fn tokens_of_one_login_have_one_session() {
    let issuer = Issuer::new();
    let session = |other: Value| issuer.verified(&claims(other), &rules()).unwrap().session;
    let first = session(json!({ "sid": "s1", "jti": "1" }));
    assert_eq!(first, session(json!({ "sid": "s1", "jti": "2" })));
    for other in [json!({ "sid": "s2" }), json!({ "sid": "s1", "sub": "bob" }), json!({ "auth_time": "s1" })] {
        assert_ne!(first, session(other.clone()), "{other}");
    }
    assert_eq!(session(json!({ "auth_time": 7, "jti": "1" })), session(json!({ "auth_time": 7, "jti": "2" })));
    assert_ne!(session(json!({ "jti": "1" })), session(json!({ "jti": "2" })), "without either each is one");
}
