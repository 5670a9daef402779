//! Tenants from an LDAP server and from the machine's users, on real platforms.

use std::time::{Duration, Instant};

use pumice_testkit::{Platform, Setup, Slapd, eventually, eventually_within, posix_account, posix_group};
use serde_json::{Value, json};

/// Users of the large directory.
const USERS: u32 = 5_000;
/// How long they may take to be tenants where other tests run beside this one. Alone they take some seconds.
const USERS_WITHIN: Duration = Duration::from_secs(240);

fn platform() -> Platform {
    let platform = Platform::start(Setup { flags: vec!["--history=false".into(), "--no-recording".into()] });
    let _ = platform.kubectl(["create", "namespace", "volcano-system"]);
    platform
        .kubectl(["create", "secret", "generic", "ldap", "-n", "volcano-system", "--from-literal=password=secret"])
        .ok();
    platform
}

/// A Directory at that server, read each second.
fn directory(slapd: &Slapd) -> Value {
    json!({"apiVersion": "pumice.sh/v1alpha1", "kind": "Directory", "metadata": {"name": "staff"}, "spec": {
        "intervalSeconds": 1,
        "ldap": {"url": slapd.url(), "ca": slapd.authority(), "userBase": slapd.base(),
            "bindDN": slapd.admin().0, "bindSecret": "ldap"}}})
}

fn apply(platform: &Platform, object: &Value) {
    let file = platform.file("object.json", object.to_string());
    platform.kubectl(["apply", "-f", file.to_str().unwrap()]).ok();
}

/// What of an object there is, as JSON.
fn get(platform: &Platform, kind: &str, name: &str) -> Value {
    serde_json::from_str(&platform.kubectl(["get", kind, name, "-o", "json"]).ok()).unwrap()
}

/// Waits for a status whose message has these words.
fn says(platform: &Platform, name: &str, words: &str) -> Value {
    eventually(&format!("Directory {name} says {words:?}"), || {
        let status = get(platform, "directory", name)["status"].clone();
        let message = status["message"].as_str().unwrap_or_default();
        if !status["readAt"].is_null() | !message.is_empty() && message.contains(words) {
            Ok(status)
        } else {
            Err(status.to_string())
        }
    })
}

/// Waits until a Tenant's spec has this under a pointer.
fn tenant_has(platform: &Platform, name: &str, pointer: &str, wanted: &Value) {
    eventually(&format!("Tenant {name} has {wanted} at {pointer}"), || {
        let output = platform.kubectl(["get", "tenant", name, "-o", "json"]);
        if output.code != 0 {
            return Err(output.stderr);
        }
        let tenant: Value = serde_json::from_str(&output.stdout).unwrap();
        let found = tenant["spec"].pointer(pointer).unwrap_or(&Value::Null);
        if found == wanted { Ok(()) } else { Err(tenant["spec"].to_string()) }
    });
}

/// A list of all of them costs what it measures, so that it is not taken all the time.
fn seldom(seen: usize) -> String {
    std::thread::sleep(Duration::from_millis(500));
    seen.to_string()
}

fn tenants(platform: &Platform) -> usize {
    platform.kubectl(["get", "tenants", "-o", "name"]).ok().lines().count()
}

const ALICE: &str = "dn: uid=alice,ou=people,dc=example,dc=org\n";
const BOB: &str = "dn: uid=bob,ou=people,dc=example,dc=org\n";

#[test]
fn tenants_follow_their_directory_and_nothing_is_ever_deleted() {
    let platform = platform();
    let accounts = posix_account("alice", 4001) + &posix_account("bob", 4002) + &posix_account("daemon", 12);
    let mut slapd = Slapd::start(&(accounts + &posix_group("desk", 5000, &["alice"])));
    apply(&platform, &directory(&slapd));
    tenant_has(&platform, "alice", "/groups", &json!([5000]));
    let spec = get(&platform, "tenant", "alice")["spec"].clone();
    assert_eq!(
        (&spec["user"], &spec["uid"], &spec["namespace"]),
        (&json!("alice"), &json!(4001), &json!("alice")),
        "{spec}"
    );
    assert_eq!(spec["directory"]["name"], "staff", "{spec}");
    let status = says(&platform, "staff", "\"daemon\" is refused");
    assert_eq!((&status["users"], &status["refused"]), (&json!(3), &json!(1)), "{status}");
    assert_eq!(status["conditions"][0]["status"], "True", "{status}");

    // Renamed: uid and namespace stay.
    slapd.change(&format!("{ALICE}changetype: modrdn\nnewrdn: uid=alicia\ndeleteoldrdn: 1\n"));
    tenant_has(&platform, "alice", "/user", &json!("alicia"));
    tenant_has(&platform, "alice", "/uid", &json!(4001));

    // Gone: suspended. Whoever gets the uid gets nothing.
    slapd.change(&format!("{BOB}changetype: delete\n"));
    tenant_has(&platform, "bob", "/suspended", &json!(true));
    tenant_has(&platform, "bob", "/directory/suspended", &json!(true));
    slapd.change(&posix_account("carol", 4002));
    says(&platform, "staff", "\"carol\" is refused: its uid 4002 is Tenant bob's");
    assert_eq!(tenants(&platform), 2);
    let events = platform.kubectl(["get", "events", "-o", "json"]).ok();
    assert!(events.contains("suspended by Directory staff: bob is gone from the directory"), "{events}");

    // Nothing is changed by a directory that is empty, away, or lets nobody in.
    let before = platform.kubectl(["get", "tenants", "-o", "json"]).ok();
    let mut broken = directory(&slapd);
    broken["spec"]["ldap"]["userFilter"] = json!("(uid=nobody-at-all)");
    apply(&platform, &broken);
    let status = says(&platform, "staff", "no users at all");
    assert_eq!(status["conditions"][0]["reason"], "Empty", "{status}");
    platform
        .kubectl(["create", "secret", "generic", "wrong", "-n", "volcano-system", "--from-literal=password=x"])
        .ok();
    let mut locked = directory(&slapd);
    locked["spec"]["ldap"]["bindSecret"] = json!("wrong");
    apply(&platform, &locked);
    says(&platform, "staff", "wrong name or password");
    locked["spec"]["ldap"]["bindSecret"] = json!("not-there");
    apply(&platform, &locked);
    says(&platform, "staff", "Secret not-there in namespace volcano-system can't be read");
    apply(&platform, &directory(&slapd));
    says(&platform, "staff", "\"carol\" is refused");
    slapd.down();
    says(&platform, "staff", "can't be reached over TLS");
    let after = platform.kubectl(["get", "tenants", "-o", "json"]).ok();
    assert_eq!(before, after);

    // It comes back, and bob with it. A Directory that is deleted leaves all as it was.
    slapd.up();
    slapd.change("dn: uid=carol,ou=people,dc=example,dc=org\nchangetype: delete\n");
    says(&platform, "staff", "1 who are gone or disabled stay suspended");
    platform.kubectl(["delete", "directory", "staff"]).ok();
    assert_eq!(tenants(&platform), 2);
}

#[test]
fn five_thousand_users_are_tenants_soon() {
    let platform = platform();
    let accounts: String = (0..USERS).map(|n| posix_account(&format!("u{n}"), 10_000 + n)).collect();
    let slapd = Slapd::start(&accounts);
    let began = Instant::now();
    apply(&platform, &directory(&slapd));
    eventually_within(USERS_WITHIN, "all users are tenants", || match tenants(&platform) {
        number if number == USERS as usize => Ok(()),
        number => Err(seldom(number)),
    });
    eprintln!("{USERS} users have Tenants after {:.1?}", began.elapsed());
    eventually_within(USERS_WITHIN, "the last one can work", || {
        let phases = platform.kubectl(["get", "tenants", "-o", "jsonpath={.items[*].status.phase}"]).ok();
        match phases.split_whitespace().filter(|phase| *phase == "Active").count() {
            number if number == USERS as usize => Ok(()),
            number => Err(seldom(number)),
        }
    });
    let took = began.elapsed();
    eprintln!("{USERS} users can work after {took:.1?}");
    // Ten of them are changed.
    let changes: String = (0..10)
        .map(|n| format!("dn: cn=g{n},dc=example,dc=org\nchangetype: add\nobjectClass: organizationalRole\nobjectClass: posixGroup\ncn: g{n}\ngidNumber: {}\nmemberUid: u{n}\n\n", 5_000 + n))
        .collect();
    slapd.change(&changes);
    let began = Instant::now();
    tenant_has(&platform, "u9", "/groups", &json!([5009]));
    eprintln!("ten changes were seen after {:.1?}, with a reading each second", began.elapsed());
    (0..10).for_each(|n| tenant_has(&platform, &format!("u{n}"), "/groups", &json!([5_000 + n])));

    // All but a few vanish at once: that is no way to leave.
    let mut few = directory(&slapd);
    few["spec"]["ldap"]["userFilter"] = json!("(uid=u1*)");
    apply(&platform, &few);
    let status = says(&platform, "staff", "tenants would be suspended at once");
    assert_eq!(status["conditions"][0]["reason"], "TooManyGone", "{status}");
    let suspended =
        platform.kubectl(["get", "tenants", "-o", "jsonpath={.items[?(@.spec.suspended==true)].metadata.name}"]).ok();
    assert_eq!(suspended.trim(), "");
}

#[test]
fn the_machines_users_are_read_by_their_groups() {
    let platform = platform();
    let spec = json!({"intervalSeconds": 1, "system": {"groups": ["root"]}});
    let mut object =
        json!({"apiVersion": "pumice.sh/v1alpha1", "kind": "Directory", "metadata": {"name": "system"}, "spec": spec});
    apply(&platform, &object);
    // The one member of that group on every machine, whom no tenant may be.
    let status = says(&platform, "system", "\"root\" is refused");
    assert_eq!(status["users"], status["refused"], "{status}");
    object["spec"]["system"]["groups"] = json!(["no-such-group"]);
    apply(&platform, &object);
    says(&platform, "system", "this machine has no group \"no-such-group\"");
    assert_eq!(tenants(&platform), 0);
}
