//! `kubectl attach` and `kubectl run -i`, through the real binaries on a real platform.

use std::process::Command;

use pumice_testkit::{OrdinaryUser, Platform, Registry, Screen, Setup, TestImage, eventually};
use serde_json::json;

use crate::interactive::is_a_real_one;

const ECHO: &str = "while read line; do echo \"<$line>\"; done";

/// A pod of one container that runs `script` with an input, and these fields.
fn create(platform: &Platform, name: &str, script: &str, fields: serde_json::Value) {
    let mut container =
        json!({"name": "main", "image": "pumice.sh/host", "command": ["sh", "-c", script], "stdin": true});
    for (field, value) in fields.as_object().unwrap() {
        container[field] = value.clone();
    }
    let spec = json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
    platform.kubectl_with_input(["create", "-f", "-"], &pod.to_string()).ok();
    platform.kubectl(["wait", "--for=jsonpath={.status.phase}=Running", &format!("pod/{name}"), "--timeout=60s"]).ok();
}

/// `kubectl run -i --rm` of a program.
fn run_words<'a>(name: &'a str, program: &[&'a str]) -> Vec<&'a str> {
    let words = ["run", name, "-i", "--rm", "--quiet", "--restart=Never", "--image=pumice.sh/host", "--command", "--"];
    [&words[..], program].concat()
}

fn kubectl(platform: &Platform, args: &[&str]) -> Command {
    let mut command = platform.command(platform.kubectl_program());
    command.args(args);
    command
}

/// Keys for a shell, which looks at them once its window has a size: that may come after the first keys.
fn sized(keys: &str) -> String {
    format!("until [ \"$(stty size)\" != '0 0' ]; do sleep 0.05; done; {keys}")
}

#[test]
fn run_prints_what_the_program_says_gives_its_code_and_removes_the_pod() {
    let platform = Platform::new();
    let hi = platform.kubectl_with_input(run_words("hi", &["cat"]), "hi\n");
    assert_eq!((hi.code, hi.stdout.as_str()), (0, "hi\n"), "{hi:?}");
    assert!(platform.get("pod", "hi").is_none());

    let failed = platform.kubectl_with_input(run_words("failed", &["sh", "-c", "cat; echo so >&2; exit 7"]), "last\n");
    assert_eq!((failed.code, failed.stdout.as_str()), (7, "last\n"), "{failed:?}");
    assert!(failed.stderr.contains("so\n"), "{failed:?}");

    // It has ended before anybody is attached, so its log is shown.
    let early = platform.kubectl_with_input(run_words("early", &["echo", "early"]), "");
    assert_eq!((early.code, early.stdout.as_str()), (0, "early\n"), "{early:?}");
    assert_eq!(platform.list("pods").len(), 0);
}

/// As older clients have it, and those behind proxies that know no WebSocket.
#[test]
fn spdy_does_as_well() {
    let platform = Platform::new();
    let run = |words: Vec<&str>, input: &str| {
        let mut bash = platform.command("sh".as_ref());
        bash.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false").args(["-c", "printf %s \"$0\" | \"$@\"", input]);
        bash.arg(platform.kubectl_program()).args(words).output().unwrap()
    };
    let hi = run(run_words("hi", &["cat"]), "hi\n");
    assert!(hi.status.success() && hi.stdout == b"hi\n", "{hi:?}");
    create(&platform, "echo", ECHO, json!({}));
    let said = run(vec!["attach", "-i", "--quiet", "echo"], "one\ntwo\n");
    assert!(said.status.success() && said.stdout == b"<one>\n<two>\n", "{said:?}");
}

#[test]
fn images_and_restricted_namespaces_have_terminals_and_inputs() {
    let registry = Registry::start();
    let image = TestImage::busybox().with_config(json!({"Cmd": ["sh"], "User": "app"}));
    let (name, _) = registry.put("team/shell", "1", &image);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("registries.yaml");
    registry.settings(&file);
    let flags = vec!["--images=registry".to_owned(), format!("--registries={}", file.display())];
    let platform = Platform::start(Setup { flags });
    let sent =
        platform.kubectl_with_input(["run", "x", "-i", "--rm", "-q", "--restart=Never", "--image", &name], "id -u\n");
    assert_eq!((sent.code, sent.stdout.as_str()), (0, "1000\n"), "{sent:?}");
    let restricted = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tight",
        "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    platform.kubectl_with_input(["create", "-f", "-"], &restricted.to_string()).ok();
    let overrides = json!({"spec": {"securityContext": {"runAsNonRoot": true, "runAsUser": 1000,
        "seccompProfile": {"type": "RuntimeDefault"}}, "containers": [{"name": "x", "image": name, "stdin": true, "stdinOnce": true,
        "tty": true, "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]}});
    let overrides = format!("--overrides={overrides}");
    let words = ["run", "x", "-n", "tight", "-it", "--rm", "--restart=Never", "--image", &name, &overrides];
    let mut shell = Screen::start(&mut kubectl(&platform, &words));
    shell.press(&sized("echo user $(id -u) at $(tty); stty size\r"));
    shell.shows("user 1000 at /dev/pts/0");
    // The user may open it again, as programs do that ask for passwords.
    shell.press("echo ag''ain >/dev/tty; echo so''o >/dev/stdout; exit 6\r");
    shell.shows("again");
    shell.shows("soo");
    assert_eq!(shell.end(), 6, "{}", shell.text());
}

#[test]
fn a_user_without_root_is_attached_as_well() {
    for user in [OrdinaryUser::default(), OrdinaryUser::with_ids()] {
        if !OrdinaryUser::can_be() {
            return;
        }
        let platform = Platform::start_as(user, Setup::default());
        let hi =
            platform.kubectl_with_input(run_words("hi", &["sh", "-c", "cat; echo so >/dev/stdout; exit 4"]), "hi\n");
        assert_eq!((hi.code, hi.stdout.as_str()), (4, "hi\nso\n"), "{hi:?}");
        let words =
            ["run", "desk", "-it", "--rm", "--restart=Never", "--image=pumice.sh/host", "--command", "--", "sh"];
        let mut shell = Screen::start(&mut kubectl(&platform, &words));
        shell.press(&sized("echo at $(tty) of $(stty size); exit 5\r"));
        shell.shows("at /dev/pts/0 of 24 100");
        assert_eq!(shell.end(), 5, "{}", shell.text());
    }
}

#[test]
fn a_hundred_megabytes_go_through_unharmed() {
    let platform = Platform::new();
    let line = r#"set -o pipefail; head -c 104857600 /dev/urandom | tee >(sha256sum >sent) | "$@" | sha256sum >come
        until [ -s sent ]; do sleep 0.05; done; cmp sent come && cat come"#;
    let mut bash = platform.command("bash".as_ref());
    bash.args(["-c", line, "bash"]).arg(platform.kubectl_program()).args(run_words("much", &["cat"]));
    let done = bash.current_dir(platform.scratch()).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let of_nothing = "e3b0c44298fc1c149afbf4c8996fb924";
    assert!(!String::from_utf8_lossy(&done.stdout).contains(of_nothing), "{done:?}");
}

#[test]
fn run_on_a_terminal_is_a_shell_as_one_knows_it() {
    let platform = Platform::new();
    let words = ["run", "desk", "-it", "--rm", "--restart=Never", "--image=pumice.sh/host", "--command", "--", "sh"];
    let mut shell = Screen::start(&mut kubectl(&platform, &words));
    // The prompt may have come before anybody was attached.
    shell.press(&sized("echo size $(stty size) kind $TERM at $(tty)\r"));
    shell.shows("size 24 100 kind xterm at /dev/pts/0");
    is_a_real_one(shell);
    assert!(platform.get("pod", "desk").is_none());
}

#[test]
fn several_are_attached_also_after_the_platform_was_killed() {
    let mut platform = Platform::new();
    create(&platform, "echo", ECHO, json!({}));
    create(&platform, "terminal", ECHO, json!({"tty": true}));
    for round in ["first", "again"] {
        let seen = platform.scratch().join(round);
        let shows = std::fs::File::create(&seen).unwrap();
        let mut onlooker = kubectl(&platform, &["attach", "echo"]).stdout(shows).spawn().unwrap();
        let said = format!("<{round}>\n");
        eventually("somebody types and the other one sees it", || {
            let typed = platform.kubectl_with_input(["attach", "-i", "--quiet", "echo"], &format!("{round}\n"));
            if (typed.code, &typed.stdout) != (0, &said) {
                return Err(format!("{typed:?}"));
            }
            let seen = std::fs::read_to_string(&seen).unwrap();
            if seen.contains(&said) { Ok(()) } else { Err(seen) }
        });
        onlooker.kill().unwrap();
        onlooker.wait().unwrap();

        let mut screen = Screen::start(&mut kubectl(&platform, &["attach", "-it", "terminal"]));
        screen.shows("try pressing enter");
        screen.press(&format!("{round}\r"));
        screen.shows(&format!("<{round}>"));
        // Whoever leaves, the program goes on.
        drop(screen);
        if round == "first" {
            platform.crash();
            platform.up();
        }
    }
    let log = platform.kubectl(["logs", "echo"]).ok();
    assert!(log.starts_with("<first>\n") && log.ends_with("<again>\n"), "{log}");
    let denied = platform.kubectl(["attach", "-it", "echo", "-c", "none"]);
    assert_ne!(denied.code, 0, "{denied:?}");
}

#[test]
fn containers_that_are_added_have_terminals_and_inputs() {
    let platform = Platform::new();
    create(&platform, "echo", ECHO, json!({}));
    let added = ["--quiet", "--image=pumice.sh/host", "--target=main", "echo", "--"];
    let words = [&["debug", "-it"][..], &added, &["sh"]].concat();
    let mut shell = Screen::start(&mut kubectl(&platform, &words));
    shell.press(&sized("echo at $(tty) of $(stty size) beside $(pgrep -cf 'while read')\r"));
    shell.shows("at /dev/pts/0 of 24 100 beside 1");
    shell.press("exit\r");
    shell.end();
    // `kubectl debug -i` says nothing of once: a client that types no more is let go.
    let words = [&["debug", "-i"][..], &added, &["sh", "-c", ECHO]].concat();
    let said = platform.kubectl_with_input(words, "typed\n");
    assert_eq!((said.code, said.stdout.as_str()), (0, "<typed>\n"), "{said:?}");
}
