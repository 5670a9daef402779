//! Logins at a real issuer, through its own pages in a headless browser, from a home that knows nothing of the platform.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use pumice_testkit::{Clients, OidcIssuer, Output, Platform, Process, Setup, binary, eventually, eventually_within};
use serde_json::{Value, json};

/// A person's machine: a home with nothing in it, and a browser.
struct Laptop {
    clients: Clients,
    home: PathBuf,
}

impl Laptop {
    fn new(platform: &Platform, user: &str) -> Laptop {
        let home = platform.scratch().join(format!("laptop-of-{user}"));
        std::fs::create_dir(&home).unwrap();
        let browser = OidcIssuer::browser_of(user, &home);
        let clients = Clients::new(Path::new("/dev/null"), &home).with("BROWSER", browser);
        let clients = clients.with("XDG_CONFIG_HOME", home.join(".config")).with("PUMICE_AUTOSTART", "off");
        Laptop { clients, home }
    }

    fn jobctl(&self, args: &[&str]) -> Output {
        self.clients.run(&binary("jobctl"), args, None)
    }

    fn logins(&self) -> PathBuf {
        self.home.join(".config/pumice/logins")
    }

    fn session(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.logins().join("farm.json")).unwrap()).unwrap()
    }

    fn token(&self) -> String {
        self.session()["idToken"].as_str().unwrap().to_owned()
    }

    /// Runs kubectl with the login's kubeconfig.
    fn kubectl(&self, args: &[&str]) -> Output {
        self.clients
            .kubectl([&["--kubeconfig", self.logins().join("farm.kubeconfig").to_str().unwrap()], args].concat())
    }

    /// A kubectl that goes on.
    fn goes_on(&self, name: &str, args: &[&str]) -> Process {
        let mut command = self.clients.command(self.clients.kubectl_program());
        command.arg("--kubeconfig").arg(self.logins().join("farm.kubeconfig")).args(args);
        Process::start(name, &mut command, &self.home)
    }

    /// Logs in, under the name `farm`, with the fingerprint that the platform says and that is taken on trust here.
    fn login(&self, platform: &Platform) {
        let refused = self.jobctl(&["login", &platform.url, "--name", "farm"]);
        let found = refused.stderr.split_whitespace().find(|word| word.starts_with("SHA256:"));
        let found = found.unwrap_or_else(|| panic!("it says no fingerprint: {refused:?}")).to_owned();
        let output = self.jobctl(&["login", &platform.url, "--name", "farm", "--fingerprint", &found]);
        assert!(output.code == 0, "{output:?}");
    }
}

fn platform(issuer: &OidcIssuer, more: &[&str]) -> Platform {
    let flags = issuer.flags().into_iter().chain(more.iter().map(|flag| (*flag).to_owned())).collect();
    let platform = Platform::start(Setup { flags });
    platform.kubectl(["create", "rolebinding", "research", "--clusterrole=edit", "--group=research"]).ok();
    platform
}

/// One that runs no pods.
const WITHOUT_NODES: [&str; 2] = ["--local-node", "false"];

fn code_of(platform: &Platform, token: &str) -> String {
    let url = format!("{}/api/v1/namespaces/default/configmaps", platform.url);
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--insecure", "--output", "/dev/null", "--write-out", "%{http_code}"]);
    let output = curl.arg("--header").arg(format!("Authorization: Bearer {token}")).arg(url).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_login_in_the_browser_is_good_for_jobctl_and_kubectl_until_the_logout() {
    let issuer = OidcIssuer::start(600);
    let platform = platform(&issuer, &WITHOUT_NODES);
    let laptop = Laptop::new(&platform, "alice");
    let unconfirmed = laptop.jobctl(&["login", &platform.url]);
    assert!(unconfirmed.code == 2 && unconfirmed.stderr.contains("was not confirmed"), "{unconfirmed:?}");
    let other = format!("SHA256:{}", "A".repeat(43));
    let refused = laptop.jobctl(&["login", &platform.url, "--fingerprint", &other]);
    assert!(refused.code == 4 && refused.stderr.contains("somebody else answers"), "{refused:?}");
    assert!(!laptop.logins().exists(), "nothing is stored of whom nobody vouched for");

    laptop.login(&platform);
    laptop.jobctl(&["submit", "--name", "mine", "--", "true"]).ok();
    assert!(laptop.jobctl(&["list"]).ok().contains("mine"));
    let job = platform.get("jobs.batch.volcano.sh", "mine").unwrap();
    assert_eq!(job["metadata"]["annotations"]["pumice.sh/user"], "alice");
    let who = laptop.kubectl(&["auth", "whoami", "-o", "json"]).ok();
    let who: Value = serde_json::from_str(&who).unwrap();
    assert_eq!(
        who["status"]["userInfo"],
        json!({ "username": "alice", "groups": ["research", "system:authenticated"] })
    );
    // What the platform gives to nobody from outside, the issuer's word or not.
    assert_ne!(laptop.kubectl(&["get", "secrets", "-n", "kube-system"]).code, 0);

    // The authority is pinned: nobody is asked again.
    laptop.jobctl(&["login", &platform.url, "--name", "farm"]).ok();
    let (token, session) = (laptop.token(), laptop.session());
    assert_eq!(code_of(&platform, &token), "200");
    laptop.jobctl(&["logout"]).ok();
    assert_eq!(code_of(&platform, &token), "401");
    assert_eq!(std::fs::read_dir(laptop.logins()).unwrap().count(), 0);
    let refresh = session["refreshToken"].as_str().unwrap();
    let fields = ["grant_type=refresh_token", "client_id=pumice", &format!("refresh_token={refresh}")].join("&");
    let output = Command::new("curl").args(["--silent", "--data", &fields, &format!("{}/token", issuer.url)]).output();
    assert!(String::from_utf8(output.unwrap().stdout).unwrap().contains("invalid_grant"), "it was revoked");
    // The browser's session goes on at the issuer, and the next login from it is good.
    std::thread::sleep(Duration::from_millis(1100));
    laptop.login(&platform);
    laptop.jobctl(&["list"]).ok();
}

#[test]
fn a_login_by_a_code_needs_no_browser_on_this_machine() {
    let issuer = OidcIssuer::start(600);
    let platform = platform(&issuer, &WITHOUT_NODES);
    let laptop = Laptop::new(&platform, "bob");
    // The file of the authority in place of its fingerprint.
    let authority = platform.file("ca.pem", authority(&platform));
    let mut command = laptop.clients.command(&binary("jobctl"));
    command.args(["login", &platform.url, "--name", "farm", "--device", "--ca"]).arg(authority);
    let mut login = Process::start("login", &mut command, &laptop.home);
    let address = eventually("an address is printed", || {
        let log = login.log();
        let address = log.lines().find_map(|line| line.strip_prefix("or open  ")).map(str::to_owned);
        address.ok_or(log)
    });
    assert_eq!(login.ended(), None, "it waits");
    let browser = OidcIssuer::browser_of("bob", platform.scratch());
    assert!(Command::new(browser).arg(&address).stdin(Stdio::null()).status().unwrap().success());
    eventually("the login is complete", || login.ended().filter(|code| *code == 0).map(drop).ok_or(login.log()));
    laptop.jobctl(&["list"]).ok();
}

fn authority(platform: &Platform) -> String {
    let kubeconfig: Value =
        serde_json::from_str(&platform.kubectl(["config", "view", "--raw", "--flatten", "-o", "json"]).ok()).unwrap();
    let data = kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"].as_str().unwrap();
    let mut base64 =
        Command::new("base64").arg("--decode").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(base64.stdin.as_mut().unwrap(), data.as_bytes()).unwrap();
    String::from_utf8(base64.wait_with_output().unwrap().stdout).unwrap()
}

#[test]
fn tokens_are_refreshed_by_one_of_many_at_once() {
    let issuer = OidcIssuer::start(6);
    let platform = platform(&issuer, &WITHOUT_NODES);
    let laptop = Laptop::new(&platform, "carol");
    laptop.login(&platform);
    let before = laptop.session();
    eventually("the token has expired", || {
        let expires: jiff::Timestamp = before["expires"].as_str().unwrap().parse().unwrap();
        if jiff::Timestamp::now() > expires { Ok(()) } else { Err(format!("it expires at {expires}")) }
    });
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..6).map(|_| scope.spawn(|| laptop.jobctl(&["list"]))).collect();
        for one in all {
            one.join().unwrap().ok();
        }
    });
    let after = laptop.session();
    assert_ne!(before["refreshToken"], after["refreshToken"], "a token of this issuer is good once");
    laptop.kubectl(&["get", "configmaps"]).ok();
}

/// What goes on of a user who is suspended ends, and what runs of him does not.
#[test]
fn a_suspended_user_loses_requests_and_streams_and_no_pod() {
    let issuer = OidcIssuer::start(600);
    let platform = platform(&issuer, &[]);
    let (alice, bob) = (Laptop::new(&platform, "alice"), Laptop::new(&platform, "bob"));
    for laptop in [&alice, &bob] {
        laptop.login(&platform);
    }
    let tenant = |suspended: bool| {
        json!({ "apiVersion": "pumice.sh/v1alpha1", "kind": "Tenant", "metadata": { "name": "alice" },
            "spec": { "user": "alice", "uid": 54001, "gid": 54001, "namespace": "of-alice", "suspended": suspended } })
        .to_string()
    };
    platform.kubectl_with_input(["apply", "-f", "-"], &tenant(false)).ok();
    alice.jobctl(&["submit", "--name", "long", "--", "sleep", "1000"]).ok();
    platform.wait_for_phase("long", "Running");
    let pod = platform.list("pods")[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let streams = |laptop: &Laptop| {
        [
            laptop.goes_on("watch", &["get", "pods", "--watch"]),
            laptop.goes_on("logs", &["logs", "--follow", &pod]),
            laptop.goes_on("exec", &["exec", &pod, "--", "sh", "-c", "echo here; sleep 1000"]),
            laptop.goes_on("forward", &["port-forward", &pod, ":80"]),
        ]
    };
    let (mut of_alice, mut of_bob) = (streams(&alice), streams(&bob));
    for all in [&of_alice, &of_bob] {
        eventually("the streams are there", || {
            let begun =
                [all[0].log().contains(&pod), all[2].log().contains("here"), all[3].log().contains("Forwarding")];
            if begun == [true; 3] { Ok(()) } else { Err(format!("{begun:?}")) }
        });
    }
    platform.kubectl_with_input(["apply", "-f", "-"], &tenant(true)).ok();
    eventually_within(Duration::from_secs(60), "all of alice's streams end", || {
        let left: Vec<String> =
            of_alice.iter_mut().filter_map(|one| one.ended().is_none().then(|| one.name().to_owned())).collect();
        if left.is_empty() { Ok(()) } else { Err(left.join(", ")) }
    });
    let refused = alice.jobctl(&["list"]);
    assert!(refused.code == 4 && refused.stderr.contains("the tenant is suspended"), "{refused:?}");
    assert!(of_bob.iter_mut().all(|one| one.ended().is_none()), "bob is no part of it");
    bob.jobctl(&["list"]).ok();
    assert_eq!(platform.get("pod", &pod).unwrap()["status"]["phase"], "Running");
    platform.kubectl_with_input(["apply", "-f", "-"], &tenant(false)).ok();
    alice.jobctl(&["cancel", "long"]).ok();
}

#[test]
fn a_login_by_password_is_for_users_of_tenants() {
    let program = tempfile::tempdir().unwrap();
    let check = program.path().join("check");
    let script = "#!/bin/sh\n[ \"$(/usr/bin/tr '\\0' '|')\" = 'alice|right horse|' ]\n";
    std::fs::write(&check, script).unwrap();
    std::fs::set_permissions(&check, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let flags = WITHOUT_NODES.into_iter().chain(["--password-command", check.to_str().unwrap()]);
    let platform = Platform::start(Setup { flags: flags.map(str::to_owned).collect() });
    platform.kubectl(["create", "rolebinding", "tenants", "--clusterrole=edit", "--group=pumice:tenants"]).ok();
    let laptop = Laptop::new(&platform, "alice");
    let authority = platform.file("ca.pem", authority(&platform));
    let login = |password: &str| {
        let args = ["login", &platform.url, "--name", "farm", "--user", "alice", "--ca", authority.to_str().unwrap()];
        laptop.clients.run(&binary("jobctl"), args, Some(password))
    };
    let refused = login("right horse\n");
    assert!(refused.code == 4 && refused.stderr.contains("or the user has no tenant here"), "{refused:?}");
    let tenant = json!({ "apiVersion": "pumice.sh/v1alpha1", "kind": "Tenant", "metadata": { "name": "alice" },
        "spec": { "user": "alice", "uid": 54001, "gid": 54001, "namespace": "of-alice" } });
    platform.kubectl_with_input(["apply", "-f", "-"], &tenant.to_string()).ok();
    let wrong = login("wrong horse\n");
    assert!(wrong.code == 4 && wrong.stderr.contains("or the user has no tenant here"), "{wrong:?}");
    login("right horse\n").ok();
    laptop.jobctl(&["submit", "--name", "mine", "--", "true"]).ok();
    let token = laptop.token();
    assert_eq!(code_of(&platform, &token), "200");
    assert!(!platform.log().contains("horse") && !platform.log().contains(&token));
    laptop.jobctl(&["logout"]).ok();
    assert_eq!(code_of(&platform, &token), "401");
}
