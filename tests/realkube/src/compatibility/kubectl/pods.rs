//! Commands that reach processes in pods.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

use pumice_testkit::{Clients, DEADLINE, eventually};

use super::{fails, fed, ok, run as typed, says};

/// A pod that runs a script in a shell.
fn script(name: &str, policy: &str, text: &str) -> String {
    let text = serde_json::Value::from(text);
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, labels: {{app: {name}}}}}\nspec:\n  restartPolicy: {policy}\n  \
         terminationGracePeriodSeconds: 1\n  containers: [{{name: main, image: none, command: [sh, -c, {text}]}}]\n"
    )
}

fn started(clients: &Clients, text: &str) {
    fed(clients, "create -f -", &script("p", "Never", text));
    ok(clients, "wait --for=condition=Ready pod/p --timeout=60s");
}

pub fn run(clients: &Clients) {
    says(clients, "run x --image=none --restart=Never --command -- echo hello", "pod/x created");
    ok(clients, "wait --for=jsonpath={.status.phase}=Succeeded pod/x --timeout=60s");
    assert_eq!(ok(clients, "logs x"), "hello\n");
}

pub fn logs(clients: &Clients) {
    started(clients, "for i in 1 2 3; do echo line $i; done; exec sleep 1000");
    eventually("all is said", || {
        let text = ok(clients, "logs p");
        if text == "line 1\nline 2\nline 3\n" { Ok(()) } else { Err(text) }
    });
    assert_eq!(ok(clients, "logs p --tail=1"), "line 3\n");
    assert_eq!(ok(clients, "logs p --since=1h"), "line 1\nline 2\nline 3\n");
    assert_eq!(ok(clients, "logs -l app=p --prefix").lines().next(), Some("[pod/p/main] line 1"));
    let stamped = ok(clients, "logs p --timestamps");
    assert!(stamped.starts_with("20") && stamped.contains("Z line 1\n"), "{stamped}");
    fails(clients, "logs none", "pods \"none\" not found");
    fails(clients, "logs p -c none", "container none is not valid for pod p");
}

pub fn follow(clients: &Clients) {
    started(clients, "echo first; sleep 2; echo last");
    let mut child = clients
        .command(clients.kubectl_program())
        .args(["logs", "-f", "p"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("kubectl starts");
    let mut out = BufReader::new(child.stdout.take().expect("a pipe was asked for"));
    let mut line = String::new();
    out.read_line(&mut line).expect("text");
    assert_eq!(line, "first\n");
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("text");
    assert_eq!(rest, "last\n");
    assert!(child.wait().expect("kubectl ends").success());
}

pub fn previous(clients: &Clients) {
    fed(clients, "create -f -", &script("p", "Always", "echo run $$; exit 3"));
    eventually("it was started again", || {
        let count = ok(clients, "get pod p -o jsonpath={.status.containerStatuses[0].restartCount}");
        if count.parse().unwrap_or(0) > 0 { Ok(()) } else { Err(count) }
    });
    let text = ok(clients, "logs p --previous");
    assert!(text.starts_with("run "), "{text}");
    says(clients, "describe pod p", "Last State: Terminated Reason: Error Exit Code: 3");
}

pub fn exec(clients: &Clients) {
    started(clients, "exec sleep 1000");
    assert_eq!(ok(clients, "exec p -- echo hello"), "hello\n");
    let output = clients.kubectl_with_input(["exec", "-i", "p", "--", "cat"], "from here");
    assert_eq!((output.code, output.stdout.as_str()), (0, "from here"), "{output:?}");
    let failed = typed(clients, "exec p -- sh -c 'echo bad >&2; exit 7'");
    assert_eq!((failed.code, failed.stderr.lines().next()), (7, Some("bad")), "{failed:?}");
    fails(clients, "exec p -c none -- true", "container none is not valid for pod p");
}

pub fn copy(clients: &Clients) {
    started(clients, "exec sleep 1000");
    std::fs::write(clients.scratch().join("there.txt"), "there and back").expect("a file");
    let place = ok(clients, "exec p -- mktemp -d");
    let place = place.trim();
    ok(clients, &format!("cp there.txt p:{place}/there.txt"));
    ok(clients, &format!("cp p:{place}/there.txt back.txt"));
    ok(clients, &format!("exec p -- rm -r {place}"));
    assert_eq!(std::fs::read_to_string(clients.scratch().join("back.txt")).expect("a file"), "there and back");
}

pub fn port_forward(clients: &Clients) {
    started(clients, "exec python3 -u -m http.server 8642 --bind 127.0.0.1");
    eventually("the pod listens", || {
        let text = ok(clients, "logs p");
        if text.contains("Serving HTTP") { Ok(()) } else { Err(text) }
    });
    let mut child = clients
        .command(clients.kubectl_program())
        .args(["port-forward", "p", ":8642"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("kubectl starts");
    // Kept open: kubectl tells each connection there.
    let mut said = BufReader::new(child.stdout.take().expect("a pipe was asked for"));
    let mut line = String::new();
    said.read_line(&mut line).expect("text");
    // Forwarding from 127.0.0.1:40001 -> 8642
    let port = line.split([':', ' ']).nth(3).and_then(|port| port.parse::<u16>().ok());
    let answer = port.and_then(|port| {
        let mut socket = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
        socket.set_read_timeout(Some(DEADLINE)).ok()?;
        socket.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).ok()?;
        Some(answer)
    });
    let _ = child.kill();
    let ended = child.wait_with_output().expect("kubectl ends");
    assert!(answer.as_deref().is_some_and(|answer| answer.contains("200 OK")), "{line:?} {answer:?} {ended:?}");
}

pub fn attach(clients: &Clients) {
    started(clients, "while :; do echo tick; sleep 0.1; done");
    let mut child = clients
        .command(clients.kubectl_program())
        .args(["attach", "p"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("kubectl starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe was asked for")).read_line(&mut line).expect("text");
    let _ = child.kill();
    let ended = child.wait_with_output().expect("kubectl ends");
    assert_eq!(line, "tick\n", "{ended:?}");
}

pub fn run_and_remove(clients: &Clients) {
    let line = ["run", "x", "-i", "--rm", "--image=none", "--restart=Never", "--command", "--", "cat"];
    let output = clients.kubectl_with_input(line, "hello\n");
    assert!(output.code == 0 && output.stdout.contains("hello"), "{output:?}");
    fails(clients, "get pod x", "NotFound");
}

pub fn debug(clients: &Clients) {
    started(clients, "exec sleep 1000");
    ok(clients, "debug p --image=none --container=looker -- sleep 1000");
    eventually("the container runs", || {
        let state = ok(clients, "get pod p -o jsonpath={.status.ephemeralContainerStatuses[*].state}");
        if state.contains("running") { Ok(()) } else { Err(state) }
    });
}

pub fn top(clients: &Clients) {
    started(clients, "exec sleep 1000");
    for (line, wanted) in [
        ("top pod p", "NAME CPU(cores) MEMORY(bytes) p "),
        ("top node", "NAME CPU(cores) CPU(%) MEMORY(bytes) MEMORY(%)"),
    ] {
        eventually(line, || {
            let output = typed(clients, line);
            // kubectl before 1.33 writes CPU%.
            let found = super::squeeze(&output.stdout).replace("CPU%", "CPU(%)").replace("MEMORY%", "MEMORY(%)");
            if found.contains(wanted) { Ok(()) } else { Err(format!("{output:?}")) }
        });
    }
}
