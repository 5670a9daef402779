//! A platform that the users of a machine share: who they are by the kernel's word, and who they can't become.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pumice_testkit::{Output, Platform, Setup, binary, eventually};
use serde_json::{Value, json};

/// User ids that no machine gives out.
const ALICE: u32 = 64321;
const BOB: u32 = 64322;
const STRANGER: u32 = 64329;

/// A platform with tenants that are made by hand, its socket, and a `jobctl` that every user may run.
struct Shared {
    platform: Platform,
    folder: tempfile::TempDir,
}

/// None where the test can't be run.
fn shared(flags: &[&str]) -> Option<Shared> {
    shared_by(&[&["--tenants", "objects"], flags].concat())
}

/// The same for tenants of another source.
fn shared_by(flags: &[&str]) -> Option<Shared> {
    if !nix::unistd::Uid::effective().is_root() {
        eprintln!("not run: needs root, to be other users");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::copy(binary("jobctl"), folder.path().join("jobctl")).unwrap();
    let socket = folder.path().join("run/api.sock").display().to_string();
    let flags = ["--socket", &socket].into_iter().chain(flags.iter().copied()).map(str::to_owned);
    let platform = Platform::start(Setup { flags: flags.collect() });
    Some(Shared { platform, folder })
}

impl Shared {
    fn socket(&self) -> PathBuf {
        self.folder.path().join("run/api.sock")
    }

    fn apply(&self, object: &Value) {
        self.platform.kubectl_with_input(["apply", "-f", "-"], &object.to_string()).ok();
    }

    fn tenant(&self, name: &str, spec: &Value) {
        let mut object = json!({"apiVersion": "pumice.sh/v1alpha1", "kind": "Tenant", "metadata": {"name": name},
            "spec": {"gid": 64300, "namespace": name}});
        for (key, value) in spec.as_object().unwrap() {
            object["spec"][key] = value.clone();
        }
        self.apply(&object);
    }

    /// Words as this user, who sees nothing of who runs the test.
    fn command(&self, uid: u32, words: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={uid}"), format!("--regid={uid}")]).args(["--clear-groups", "env", "-i"]);
        command.args(["PATH=/usr/bin:/bin:/usr/sbin", "HOME=/nonexistent"]);
        command.arg(format!("PUMICE_SOCKET={}", self.socket().display())).args(words).current_dir("/");
        command
    }

    fn run(&self, uid: u32, words: &[&str]) -> Output {
        let output = self.command(uid, words).stdin(Stdio::null()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let code = output.status.code().unwrap_or(-1);
        Output { code, stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }

    fn jobctl(&self, uid: u32, words: &[&str]) -> Output {
        let program = self.folder.path().join("jobctl").display().to_string();
        self.run(uid, &[&[program.as_str()], words].concat())
    }

    /// Who these words are when they end with a question over the socket: a user, or why nobody.
    fn answer(&self, uid: u32, front: &[&str], more: &[&str]) -> String {
        let socket = self.socket().display().to_string();
        let url = "http://localhost/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let data = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}"#;
        let curl =
            ["curl", "-sS", "-m", "20", "--unix-socket", &socket, "-H", "content-type: application/json", "-d", data];
        let output = self.run(uid, &[front, &curl, more, &[url]].concat());
        let answer: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{front:?}: {output:?}"));
        let user = answer.pointer("/status/userInfo/username").and_then(Value::as_str);
        user.unwrap_or_else(|| answer["message"].as_str().unwrap_or("no message")).to_owned()
    }
}

#[test]
fn the_kernel_says_who_calls_and_nothing_else_does() {
    let Some(shared) = shared(&[]) else { return };
    shared.tenant("alice", &json!({"user": "alice", "uid": ALICE, "groups": [64400]}));
    shared.tenant("bob", &json!({"user": "bob", "uid": BOB, "suspended": true}));
    // A user of every machine, by his name there.
    shared.tenant("desk", &json!({"members": ["games"], "uid": 64333}));
    let who = |uid| -> Value { serde_json::from_str(&shared.jobctl(uid, &["whoami", "-o", "json"]).ok()).unwrap() };
    let alice = who(ALICE);
    assert_eq!((&alice["user"], &alice["identifiedBy"]), (&json!("alice"), &json!("local socket")));
    assert_eq!(alice["groups"], json!(["pumice:tenants", "system:authenticated"]));
    let tenant = json!({"name": "alice", "namespace": "alice", "uid": "64321", "gid": "64300", "groups": ["64400"]});
    assert_eq!(alice["tenants"], json!([tenant]));
    assert_eq!(who(0)["user"], "pumice:administrator");
    let games = who(5);
    assert_eq!((&games["user"], &games["tenants"][0]["name"]), (&json!("games"), &json!("desk")));
    // Commands go to her own namespace.
    let text = shared.jobctl(ALICE, &["whoami"]).ok();
    assert!(text.contains("namespace      alice") && text.contains("pods run as uid 64321, gid 64300"), "{text}");

    let stranger = shared.jobctl(STRANGER, &["list"]);
    assert_eq!(stranger.code, 4, "{stranger:?}");
    assert!(
        stranger.stderr.contains("user 64329 of this machine is no tenant of this platform: ask its administrator"),
        "{stranger:?}"
    );
    assert!(shared.answer(BOB, &[], &[]).contains("tenant bob is suspended"));
    assert!(shared.answer(65534, &[], &[]).contains("nobody"));
    // What a request says of who sends it is nothing.
    for header in ["X-Remote-User: pumice:administrator", "Authorization: Bearer x", "X-Forwarded-Client-Cert: By=root"]
    {
        assert_eq!(shared.answer(ALICE, &[], &["-H", header]), "alice", "{header}");
    }
    let acting = shared.answer(ALICE, &[], &["-H", "Impersonate-User: bob"]);
    assert!(acting.contains("cannot impersonate"), "{acting}");

    // Suspended while she is connected: the next request of the same connection is refused.
    let python = "import http.client, socket, sys
c = http.client.HTTPConnection('localhost')
c.sock = socket.socket(socket.AF_UNIX)
c.sock.connect(sys.argv[1])
def ask():
    c.request('GET', '/version')
    answer = c.getresponse()
    answer.read()
    print(answer.status, flush=True)
ask()
sys.stdin.readline()
ask()";
    let socket = shared.socket().display().to_string();
    let mut client = shared.command(ALICE, &["python3", "-c", python, &socket]);
    let mut client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(client.stdout.take().unwrap()));
    assert_eq!(lines.next().unwrap().unwrap(), "200");
    shared.tenant("alice", &json!({"user": "alice", "uid": ALICE, "suspended": true}));
    drop(client.stdin.take());
    assert_eq!(lines.next().unwrap().unwrap(), "401");
    client.wait().unwrap();
}

#[test]
fn nobody_becomes_another_over_the_socket() {
    let Some(shared) = shared(&[]) else { return };
    shared.tenant("alice", &json!({"user": "alice", "uid": ALICE}));
    for (front, says) in [
        (&["unshare", "--user", "--map-root-user"][..], "user namespace other than the platform's"),
        (&["unshare", "--user", "--map-root-user", "--mount"], "mount namespace other than the platform's"),
        (&["unshare", "--user", "--map-root-user", "--pid", "--fork"], "process namespace other than the platform's"),
    ] {
        let answer = shared.answer(ALICE, front, &[]);
        assert!(answer.contains(says), "{front:?}: {answer}");
        let answer = shared.answer(STRANGER, front, &[]);
        assert!(answer.contains(says), "{front:?}: {answer}");
    }
    // Of root in other namespaces nobody knows whether it is the machine's.
    assert!(shared.answer(0, &["unshare", "--mount"], &[]).contains("mount namespace"));
    // Whoever may become another is that one, as on the machine.
    assert_eq!(shared.answer(0, &["setpriv", "--reuid=64321", "--clear-groups"], &[]), "alice");

    // A relay is whoever runs it, so one of another user's makes nobody more than that user.
    let relay = "import os, socket, sys, threading
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o666)
server.listen()
print('ready', flush=True)
def pump(a, b):
    while data := a.recv(65536):
        b.sendall(data)
    b.shutdown(socket.SHUT_WR)
while True:
    a, _ = server.accept()
    b = socket.socket(socket.AF_UNIX)
    b.connect(sys.argv[2])
    threading.Thread(target=pump, args=(a, b), daemon=True).start()
    threading.Thread(target=pump, args=(b, a), daemon=True).start()";
    let relays = shared.folder.path().join("relays");
    std::fs::create_dir(&relays).unwrap();
    std::fs::set_permissions(&relays, std::fs::Permissions::from_mode(0o777)).unwrap();
    let socket = shared.socket().display().to_string();
    for (runs, uses, who) in
        [(STRANGER, ALICE, "is no tenant"), (ALICE, STRANGER, "alice"), (STRANGER, 0, "is no tenant")]
    {
        let path = relays.join(format!("{runs}-{uses}.sock")).display().to_string();
        let mut relay = shared.command(runs, &["python3", "-c", relay, &path, &socket]);
        let mut relay = relay.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(relay.stdout.take().unwrap()));
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        let answer = shared.answer(uses, &[], &["--unix-socket", &path]);
        relay.kill().unwrap();
        relay.wait().unwrap();
        assert!(answer.contains(who), "{runs} for {uses}: {answer}");
    }
}

#[test]
fn no_pod_of_any_profile_comes_to_the_socket() {
    let Some(shared) = shared(&[]) else { return };
    let (platform, socket) = (&shared.platform, shared.socket());
    let script = format!("ls {0}; curl -sS -m 5 --unix-socket {0} http://localhost/version; true", socket.display());
    let pod = |profile: &str, name: &str, spec: &Value| {
        let strict = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": true,
            "runAsUser": ALICE, "seccompProfile": {"type": "RuntimeDefault"}});
        let security = if profile == "restricted" { strict } else { json!({}) };
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": profile},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "pumice.sh/host",
                "command": ["sh", "-c", script], "securityContext": security}]}});
        for (key, value) in spec.as_object().unwrap() {
            match key.as_str() {
                "volumeMounts" => pod["spec"]["containers"][0][key] = value.clone(),
                _ => pod["spec"][key] = value.clone(),
            }
        }
        shared.apply(&pod);
    };
    for profile in ["privileged", "baseline", "restricted"] {
        let labels = json!({"pod-security.kubernetes.io/enforce": profile});
        shared
            .apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": profile, "labels": labels}}));
        pod(profile, "looks", &json!({}));
    }
    pod("privileged", "host", &json!({"hostNetwork": true, "hostPID": true}));
    let volume = |path: &Path| json!({"volumes": [{"name": "v", "hostPath": {"path": path}}], "volumeMounts": [{"name": "v", "mountPath": "/v"}]});
    pod("privileged", "mounts", &volume(socket.parent().unwrap()));
    pod("privileged", "mounts-socket", &volume(&socket));
    // A folder around it is mounted without it.
    pod("privileged", "around", &volume(shared.folder.path()));
    let log = |profile: &str, name: &str| {
        eventually(&format!("{profile}/{name} has looked"), || {
            let phase = platform.kubectl(["get", "pod", "-n", profile, name, "-o", "jsonpath={.status.phase}"]).stdout;
            if phase == "Succeeded" { Ok(()) } else { Err(phase) }
        });
        platform.kubectl(["logs", "-n", profile, name]).ok()
    };
    for (profile, name) in [
        ("privileged", "looks"),
        ("baseline", "looks"),
        ("restricted", "looks"),
        ("privileged", "host"),
        ("privileged", "around"),
    ] {
        let text = log(profile, name);
        assert!(!text.contains("gitVersion") && text.contains("No such file"), "{profile}/{name}: {text}");
    }
    for name in ["mounts", "mounts-socket"] {
        eventually(&format!("{name} is refused"), || {
            let events = platform.kubectl(["get", "events", "-n", "privileged", "-o", "json"]).stdout;
            let path = if name == "mounts" { socket.parent().unwrap() } else { &socket };
            let refused = format!("hostPath {} lies in", path.display());
            if events.contains(&refused) && events.contains("the folder of the platform's socket") {
                Ok(())
            } else {
                Err(events)
            }
        });
    }
}

#[test]
fn a_socket_is_one_platforms_and_outlives_no_crash() {
    let Some(mut shared) = shared(&[]) else { return };
    let socket = shared.socket().display().to_string();
    let up = |flags: &[&str]| {
        let data = shared.folder.path().join("another");
        let mut up = Command::new(binary("pumice"));
        up.args(["up", "--port", "0", "--data-dir"]).arg(data).args(flags);
        let output = up.output().unwrap();
        assert!(!output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let refused = up(&["--tenants", "objects", "--socket", &socket]);
    assert!(refused.contains("another platform has the socket"), "{refused}");
    let refused = up(&["--tenants", "objects", "--profile", "open"]);
    assert!(refused.contains("--tenants needs --profile restricted"), "{refused}");
    let other = ["up", "--tenants", "objects"];
    let pumice = shared.folder.path().join("pumice");
    std::fs::copy(binary("pumice"), &pumice).unwrap();
    let refused = shared.run(STRANGER, &[&[pumice.to_str().unwrap()], &other[..]].concat());
    assert!(
        refused.stderr.contains("--tenants needs root, since each pod runs as its tenant's own user"),
        "{refused:?}"
    );
    shared.platform.crash();
    assert!(shared.socket().exists(), "a crash leaves it");
    shared.platform.up();
    assert_eq!(shared.answer(0, &[], &[]), "pumice:administrator");
    assert_eq!(shared.platform.stop(), 0);
    assert!(!shared.socket().exists(), "it goes with the platform");
}

#[test]
fn other_machines_are_served_while_nobody_can_become_administrator() {
    let Some(shared) = shared(&["--listen", "127.0.0.2:0", "--name", "box.example"]) else { return };
    let platform = &shared.platform;
    let status = platform.run(&binary("pumice"), ["status", "-o", "json"], None).ok();
    let status: Value = serde_json::from_str(&status).unwrap();
    let url = status["listen"][0].as_str().unwrap();
    let port = url.rsplit(':').next().unwrap();
    assert!(url.starts_with("https://box.example:") && status["authority"].as_str().unwrap().starts_with("SHA256:"));
    assert_eq!(status["socket"], shared.socket().display().to_string());
    let ca = platform.data_dir().join("pki/ca.crt").display().to_string();
    let to = format!("box.example:{port}:127.0.0.2:{port}");
    let get = |path: &str| {
        let url = format!("{url}{path}");
        platform.run(Path::new("curl"), ["-sS", "-m", "10", "--cacert", &ca, "--connect-to", &to, &url], None)
    };
    assert_eq!(get("/readyz").ok(), "ok");
    assert!(get("/api/v1/pods").ok().contains("Unauthorized"), "who shows nothing has no rights");
    let kubectl = |args: &[&str]| platform.kubectl(args).ok();
    kubectl(&["create", "clusterrolebinding", "oops", "--clusterrole", "cluster-admin", "--group", "pumice:tenants"]);
    eventually("nobody is served", || match get("/readyz") {
        Output { code: 0, stdout, .. } => Err(stdout),
        _ => Ok(()),
    });
    assert!(platform.log().contains("every tenant may * * in all namespaces"), "{}", platform.log());
    kubectl(&["delete", "clusterrolebinding", "oops"]);
    eventually("it is served again", || match get("/readyz") {
        Output { code: 0, .. } => Ok(()),
        other => Err(other.stderr),
    });
}

/// Users and a group of the machine that nobody else has, for as long as a test runs.
struct Accounts {
    group: String,
    users: Vec<String>,
}

impl Accounts {
    /// A group, and this many members of it with homes; none where the machine's files can't be written.
    fn new(members: usize) -> Option<Self> {
        let id = std::process::id();
        let mut accounts = Self { group: format!("pt{id}g"), users: Vec::new() };
        run_quietly("groupadd", &[&accounts.group])?;
        for index in 0..members {
            let user = format!("pt{id}u{index}");
            run_quietly("useradd", &["-m", "-G", &accounts.group, &user])?;
            accounts.users.push(user);
        }
        Some(accounts)
    }
}

impl Drop for Accounts {
    fn drop(&mut self) {
        for user in &self.users {
            let _ = run_quietly("userdel", &["-r", user]);
        }
        let _ = run_quietly("groupdel", &[&self.group]);
    }
}

fn run_quietly(program: &str, words: &[&str]) -> Option<()> {
    let output = Command::new(program).args(words).output().ok()?;
    output.status.success().then_some(())
}

/// The commands of docs/shared-machine.md: members of a group work as themselves, without a login.
#[test]
fn a_member_of_a_group_runs_as_himself_in_his_home() {
    if !nix::unistd::Uid::effective().is_root() {
        eprintln!("not run: needs root, to be other users");
        return;
    }
    let Some(accounts) = Accounts::new(2) else {
        eprintln!("not run: no users can be made on this machine");
        return;
    };
    let flags = ["--tenants", "system", "--group", &accounts.group];
    let shared = shared_by(&flags).expect("root");
    let ids = |user: &str| {
        let entry = Command::new("id").arg(user).output().unwrap();
        String::from_utf8(entry.stdout).unwrap().trim().to_owned()
    };
    let number = |user: &str| -> u32 {
        let uid = Command::new("id").args(["-u", user]).output().unwrap();
        String::from_utf8(uid.stdout).unwrap().trim().parse().unwrap()
    };
    for user in &accounts.users {
        let uid = number(user);
        eventually("the member is a tenant", || match shared.jobctl(uid, &["whoami"]) {
            output if output.code == 0 => Ok(()),
            output => Err(output.stderr),
        });
        let words = format!("id; pwd; echo work > $HOME/{user}.txt");
        let output = shared.jobctl(uid, &["run", "--", "sh", "-c", &words]).ok();
        // As `id USER` says it; the order of groups is the kernel's.
        let wanted = ids(user);
        let (uid_part, rest) = wanted.split_once(' ').unwrap();
        assert!(output.contains(uid_part), "{output} is not {wanted}");
        let mut groups: Vec<&str> = rest.split_once("groups=").unwrap().1.split(',').collect();
        let mut found: Vec<&str> = output.lines().next().unwrap().split_once("groups=").unwrap().1.split(',').collect();
        groups.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, groups, "{output}");
        let file = PathBuf::from(format!("/home/{user}/{user}.txt"));
        assert_eq!(std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&file).unwrap()), uid, "{}", file.display());
    }
    // The second sees nothing of the first, and can't write into his home from a pod.
    let [first, second] = &accounts.users[..] else { panic!("two") };
    let other = shared.jobctl(number(second), &["list", "--namespace", first]);
    assert_ne!(other.code, 0, "{other:?}");
    let write = format!("echo no > /home/{first}/{first}.txt");
    let other = shared.jobctl(number(second), &["run", "--", "sh", "-c", &write]);
    assert_ne!(other.code, 0, "{other:?}");
    assert_eq!(std::fs::read_to_string(format!("/home/{first}/{first}.txt")).unwrap(), "work\n");
}
