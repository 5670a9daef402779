//! Files that are taken or not, and headers, right and wrong.

use std::error::Error as _;
use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const TOKEN: &str = "9f2c7d5e-a-long-random-token";

/// As few iterations as are taken.
fn quick(secret: &str) -> String {
    hash::hash_slowly(secret, *b"sixteen of salt.", NonZeroU32::new(hash::ITERATIONS_MIN).unwrap())
}

fn users(users: Value) -> Result<Users, UsersError> {
    Users::new(serde_json::from_value(json!({ "users": users })).expect("it has the form of a file"))
}

fn lab() -> Users {
    users(json!([
        {"name": "ada", "groups": ["staff"], "password": quick("pass:word"), "token": hash_token(TOKEN)},
        {"name": "börje", "password": quick("lösenord")},
        {"name": "system:robot", "groups": ["robots"], "token": hash_token("r2-d2")},
        {"name": "empty", "password": quick(""), "token": hash_token("")},
    ]))
    .expect("it is a good file")
}

fn basic(credentials: impl AsRef<[u8]>) -> String {
    format!("Basic {}", STANDARD.encode(credentials))
}

#[test]
fn headers_are_somebodys_or_refused_and_the_same_from_memory() {
    let ada = basic("ada:pass:word");
    let credentials = &ada["Basic ".len()..];
    let huge = basic(format!("ada:{}", "x".repeat(HEADER_BYTES_MAX)));
    let users = lab();
    for (header, expected) in [
        (ada.clone(), Ok("ada")),
        (format!("  bAsIC   {credentials} "), Ok("ada")),
        (basic("börje:lösenord"), Ok("börje")),
        (format!("Bearer {TOKEN}"), Ok("ada")),
        (format!("bearer  {TOKEN} "), Ok("ada")),
        ("Bearer r2-d2".to_owned(), Ok("system:robot")),
        (basic("ada:pass"), Err(Denied::Password)),
        (basic("ada:pass:word "), Err(Denied::Password)),
        (basic("Ada:pass:word"), Err(Denied::Password)),
        (basic("nobody:pass:word"), Err(Denied::Password)),
        (basic("system:robot:r2-d2"), Err(Denied::Password)),
        (basic(format!("ada:{TOKEN}")), Err(Denied::Password)),
        (basic("ada"), Err(Denied::Password)),
        (basic("ada:"), Err(Denied::Password)),
        (basic(":pass:word"), Err(Denied::Password)),
        (basic("empty:"), Err(Denied::Password)),
        (basic(""), Err(Denied::Password)),
        (basic(b"ada:\xff\xfe"), Err(Denied::Password)),
        (basic(b"\xff:pass:word"), Err(Denied::Password)),
        ("Basic ada:pass:word".to_owned(), Err(Denied::Password)),
        (format!("Basic {}", credentials.trim_end_matches('=')), Err(Denied::Password)),
        ("Basic ä".to_owned(), Err(Denied::Password)),
        ("basic".to_owned(), Err(Denied::Password)),
        ("Bearer ".to_owned(), Err(Denied::Token)),
        ("Bearer".to_owned(), Err(Denied::Token)),
        ("Bearer x".to_owned(), Err(Denied::Token)),
        (format!("Bearer {}", hash_token(TOKEN)), Err(Denied::Token)),
        (String::new(), Err(Denied::Scheme)),
        (" ".to_owned(), Err(Denied::Scheme)),
        (TOKEN.to_owned(), Err(Denied::Scheme)),
        ("Negotiate YII".to_owned(), Err(Denied::Scheme)),
        (huge, Err(Denied::Scheme)),
    ] {
        let found = users.check(&header);
        assert_eq!(found.as_ref().map(|known| known.name.as_str()), expected.as_ref().map(|name| *name), "{header:?}");
        assert_eq!(users.check(&header), found, "{header:?} a second time");
        assert_eq!(users.known(&header).ok().flatten(), found.clone().ok(), "{header:?} from memory");
        if let Ok(quickly) = users.known(&header) {
            assert_eq!(quickly, found.ok(), "{header:?} is only left to the slow way");
        }
    }
}

#[test]
fn who_is_known_is_in_their_groups() {
    let ada = Known { name: "ada".to_owned(), groups: ["staff".to_owned()].into() };
    let users = lab();
    assert_eq!(users.check(&basic("ada:pass:word")), Ok(ada.clone()));
    assert_eq!(users.known(&format!("Bearer {TOKEN}")), Ok(Some(ada)));
}

#[test]
fn only_what_was_right_is_remembered_and_one_login_for_each_user() {
    let users = lab();
    let remembered = || users.logins.values().filter(|login| login.right.lock().unwrap().is_some()).count();
    let ada = basic("ada:pass:word");
    assert_eq!(users.known(&ada), Ok(None), "nothing was checked yet");
    for guess in 0..3 {
        let wrong = basic(format!("ada:{guess}"));
        assert_eq!(users.check(&wrong), Err(Denied::Password));
        assert_eq!((users.known(&wrong), remembered()), (Ok(None), 0));
    }
    for spelling in ["Basic ", "BASIC ", "basic  "] {
        users.check(&ada.replace("Basic ", spelling)).unwrap();
        assert_eq!(remembered(), 1);
    }
    users.check(&basic("börje:lösenord")).unwrap();
    assert_eq!(remembered(), 2);
    assert_eq!(users.known(&basic("ada:lösenord")), Ok(None));
    assert_eq!(lab().known(&ada), Ok(None), "who reads the file anew starts without logins");
}

#[test]
fn refusals_cost_what_the_slowest_password_costs() {
    assert_eq!(lab().iterations_max, hash::ITERATIONS_MIN);
    let slow = hash::hash_slowly("x", [0; 16], NonZeroU32::new(20_000).unwrap());
    let users = users(json!([{"name": "a", "password": slow}, {"name": "b", "password": quick("x")}])).unwrap();
    assert_eq!(users.iterations_max, 20_000);
    assert_eq!(users.check(&basic("b:y")), Err(Denied::Password));
}

#[test]
fn a_file_is_refused_with_the_users_name_and_what_is_wrong() {
    let of = |password: &str| json!([{"name": "ada", "password": password}]);
    let (good, salt, hash) = (quick("x"), STANDARD.encode([1; 16]), STANDARD.encode([1; 32]));
    let mut refusals = String::new();
    for file in [
        json!([{"name": "ada", "token": hash_token("t")}, {"token": hash_token("u")}]),
        json!([{"name": "a:b", "password": good}]),
        json!([{"name": "a\nb", "token": hash_token("t")}]),
        json!([{"name": "ada", "groups": [""], "password": good}]),
        json!([{"name": "ada", "password": good}, {"name": "ada", "token": hash_token("t")}]),
        json!([{"name": "ada"}]),
        json!([{"name": "ada", "token": hash_token("t")}, {"name": "bob", "token": hash_token("t")}]),
        json!([{"name": "ada", "token": "secret"}]),
        json!([{"name": "ada", "token": good}]),
        json!([{"name": "ada", "token": "sha256$secret!"}]),
        of("secret"),
        of(&hash_token("t")),
        of(&format!("{good}$")),
        of(&format!("pbkdf2-sha256$9999${salt}${hash}")),
        of(&format!("pbkdf2-sha256$10000001${salt}${hash}")),
        of(&format!("pbkdf2-sha256$-1${salt}${hash}")),
        of(&format!("pbkdf2-sha256$600000$secret!${hash}")),
        of(&format!("pbkdf2-sha256$600000$${hash}")),
        of(&format!("pbkdf2-sha256$600000${salt}$secret!")),
        of(&format!("pbkdf2-sha256$600000${salt}${salt}")),
    ] {
        let error = users(file).expect_err("it is refused");
        let source = error.source().map(|source| format!(": {source}")).unwrap_or_default();
        refusals += &format!("{error}{source}\n");
    }
    assert!(!refusals.contains("secret"), "{refusals}");
    insta::assert_snapshot!(refusals);
}

#[test]
fn a_file_is_written_as_it_is_read_and_shows_no_secret() {
    let text = json!({"users": [{"name": "ada", "groups": ["staff"], "password": quick("x")}]});
    let file: UsersFile = serde_json::from_value(text.clone()).unwrap();
    assert_eq!(serde_json::to_value(&file).unwrap(), text);
    let shown = format!("{file:?} {:?}", Users::new(file.clone()));
    assert!(shown.contains("ada") && !shown.contains("pbkdf2"), "{shown}");
    assert!(serde_json::from_value::<UsersFile>(json!({"users": [{"name": "ada", "pasword": ""}]})).is_err());
}

#[test]
fn a_password_is_hashed_as_others_hash_it() {
    // By Python: hashlib.pbkdf2_hmac("sha256", b"password", bytes(range(16)), 600_000).
    let hash = hash_password("password", std::array::from_fn(|index| index as u8));
    assert_eq!(hash, "pbkdf2-sha256$600000$AAECAwQFBgcICQoLDA0ODw==$O8NxGOYlCT6bee0Ikw6nr3OJWRIz/dkt3fNpNx5g28A=");
    // By coreutils: printf t | sha256sum.
    assert_eq!(hash_token("t"), "sha256$47mKTaMaEn1L3m5DAz9muidMqw636xxw7EFAK/YnPdg=");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn no_header_panics_or_is_let_in(
        header in "\\PC{0,60}",
        scheme in prop_oneof!["[bB]asic", "[bB]earer", "\\PC{0,8}"],
        name in prop_oneof![Just("ada".to_owned()), "\\PC{0,8}"],
        secret in proptest::collection::vec(any::<u8>(), 0..80),
    ) {
        static LAB: LazyLock<Users> = LazyLock::new(lab);
        let credentials = STANDARD.encode([name.as_bytes(), b":", &secret].concat());
        for header in [header.clone(), format!("{scheme} {header}"), format!("{scheme} {credentials}")] {
            prop_assert!(LAB.check(&header).is_err());
            prop_assert!(LAB.known(&header).ok().flatten().is_none());
        }
    }
}
