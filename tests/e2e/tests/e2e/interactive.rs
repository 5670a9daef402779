//! A person in a pod, through the real binaries on a real platform: programs between pipes and on a terminal, a job that lasts as
//! long as its shell, and a notebook.
//!
//! A real JupyterLab is too large for CI: a stand-in of the same name is started as Jupyter would be, writes the same file about
//! itself into `$JUPYTER_RUNTIME_DIR`, and lets in who has `$JUPYTER_TOKEN`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pumice_testkit::{Platform, Screen, binary, eventually};

/// A job of two pods that wait.
fn hold(platform: &Platform) {
    platform.jobctl(["submit", "--name", "hold", "--replicas", "2", "--", "sleep", "1000"]).ok();
    platform.wait_for_phase("hold", "Running");
    eventually("both pods run", || {
        let pods = platform.kubectl(["get", "pods", "--field-selector", "status.phase=Running", "-o", "name"]).ok();
        if pods.lines().count() == 2 { Ok(()) } else { Err(pods) }
    });
}

#[test]
fn a_program_in_a_pod_has_this_ones_streams_and_gives_its_code() {
    let platform = Platform::new();
    hold(&platform);
    let failed = platform.jobctl(["shell", "hold", "--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!((failed.code, failed.stdout.as_str()), (7, "out\n"), "{failed:?}");
    assert!(failed.stderr.contains("err\n"), "{failed:?}");
    assert!(failed.stderr.contains("in pod hold-main-0; 1 more run"), "{failed:?}");

    let script = "echo index $VC_TASK_INDEX\nexit 3\n";
    for which in
        [&["--index", "1"][..], &["--task", "main", "--index", "1"], &["--pod", "hold-main-1"], &["--pod", "main-1"]]
    {
        let answer = platform.jobctl_with_input([&["shell", "job/hold"], which, &["--", "sh"]].concat(), script);
        assert_eq!((answer.code, answer.stdout.as_str()), (3, "index 1\n"), "{which:?}: {answer:?}");
    }
    let shell =
        platform.jobctl_with_input(["shell", "hold", "--index", "0"], "echo $VC_TASK_INDEX; [ -t 0 ] || echo pipe\n");
    assert_eq!((shell.code, shell.stdout.as_str()), (0, "0\npipe\n"), "{shell:?}");

    // More than any buffer on the way, in both directions.
    let counted = platform.jobctl_with_input(["shell", "hold", "--index", "0", "--", "wc", "-c"], &"x".repeat(1 << 20));
    assert_eq!((counted.code, counted.stdout.trim()), (0, "1048576"), "{counted:?}");
    let long = platform.jobctl([
        "shell",
        "hold",
        "--index",
        "0",
        "--",
        "sh",
        "-c",
        "head -c 1048576 /dev/zero | tr '\\0' x; echo end >&2",
    ]);
    assert_eq!((long.code, long.stdout.len(), long.stderr.as_str()), (0, 1 << 20, "end\n"));

    let missing = platform.jobctl(["shell", "hold", "--index", "0", "--", "no-such-program"]);
    assert_ne!(missing.code, 0, "{missing:?}");
    assert!(missing.stderr.contains("no-such-program"), "{missing:?}");
}

#[test]
fn where_no_shell_can_be_the_next_command_is_told() {
    let platform = Platform::new();
    hold(&platform);
    platform.jobctl(["run", "--name", "over", "--", "true"]).ok();
    platform.jobctl(["submit", "--name", "huge", "--cpu", "100000", "--", "true"]).ok();
    for (args, code, told, next) in [
        (&["shell", "over"][..], 6, "no pod of job over runs: the job is Completed", "jobctl get over"),
        (&["shell", "huge"], 6, "no pod of job huge runs: the job is Pending", "jobctl why huge"),
        (&["shell", "hold", "--index", "7"], 6, "no pod of index 7 of job hold runs", "jobctl why hold"),
        (&["shell", "hold", "--pod", "main-9"], 3, "job hold has no pod hold-main-9", "jobctl logs hold"),
        (
            &["shell", "hold", "-c", "side"],
            3,
            "pod hold-main-0 has no container side; it has main",
            "jobctl shell hold",
        ),
        (&["shell", "nothing"], 3, "no job nothing", "jobctl list"),
        (&["notebook", "over"], 6, "no pod of job over runs", "jobctl get over"),
    ] {
        let refused = platform.jobctl(args);
        assert_eq!(refused.code, code, "{args:?}: {refused:?}");
        assert!(refused.stderr.contains(told), "{args:?}: {refused:?}");
        assert!(refused.stderr.contains(&format!("next:  {next}")), "{args:?}: {refused:?}");
    }
}

/// `jobctl` with these words on a terminal.
fn on_terminal(platform: &Platform, args: &[&str]) -> Screen {
    Screen::start(Command::new(binary("jobctl")).args(args).env("PUMICE_DATA_DIR", platform.data_dir()))
}

/// Tries what a shell's terminal can do, and ends the shell: the user's own is passed through, sizes and Ctrl-C arrive, its code comes back.
pub(crate) fn is_a_real_one(mut shell: Screen) {
    assert!(!shell.is_as_a_shell_has_it());
    shell.resize(40, 120);
    eventually("the new size arrives", || {
        shell.press("echo size $(stty size)\r");
        if shell.text().contains("size 40 120") { Ok(()) } else { Err(shell.text()) }
    });
    // Ctrl-C is for the program.
    shell.press("echo sleep''s; sleep 1000\r");
    shell.shows("sleeps");
    shell.press("\u{3}");
    shell.press("echo woken by $?\r");
    shell.shows("woken by 130");
    shell.press("exit 5\r");
    assert_eq!(shell.end(), 5, "{}", shell.text());
}

#[test]
fn a_terminal_in_a_pod_is_a_real_one_and_the_users_own_comes_back() {
    let platform = Platform::new();
    hold(&platform);
    let mut shell = on_terminal(&platform, &["shell", "hold", "--index", "0"]);
    // What is typed is echoed, so the answers must differ from the questions.
    shell.press("echo size $(stty size) kind $TERM\r");
    shell.shows("size 24 100 kind xterm");
    is_a_real_one(shell);

    for signal in [Signal::SIGTERM, Signal::SIGHUP] {
        let mut shell = on_terminal(&platform, &["shell", "hold", "--index", "0"]);
        shell.press("echo rea''dy\r");
        shell.shows("ready");
        shell.signal(signal);
        assert_eq!(shell.end(), 130, "{signal}");
    }
    platform.wait_for_phase("hold", "Running");
}

#[test]
fn a_new_job_lasts_as_long_as_its_shell() {
    let platform = Platform::new();
    let desk = platform.jobctl(["shell", "--name", "desk", "--", "sh", "-c", "pwd; exit 4"]);
    assert_eq!((desk.code, desk.stdout.trim()), (4, platform.scratch().to_str().unwrap()), "{desk:?}");
    assert!(desk.stderr.contains("job desk terminated"), "{desk:?}");
    platform.wait_for_phase("desk", "Terminated");

    let made_up = platform.jobctl(["shell", "--", "true"]);
    assert_eq!(made_up.code, 0, "{made_up:?}");
    assert!(made_up.stderr.starts_with("job/shell-"), "{made_up:?}");

    let kept = platform.jobctl(["shell", "--keep", "--name", "kept", "--", "true"]);
    assert_eq!(kept.code, 0, "{kept:?}");
    assert!(kept.stderr.contains("jobctl shell kept goes into it again"), "{kept:?}");
    assert!(kept.stderr.contains("next:  jobctl cancel kept"), "{kept:?}");
    platform.wait_for_phase("kept", "Running");
    assert_eq!(platform.jobctl(["shell", "kept", "--", "echo", "again"]).ok(), "again\n");
    let cancelled = platform.jobctl(["cancel", "kept"]);
    assert!(cancelled.stderr.contains("job kept terminated"), "{cancelled:?}");

    // A terminal that is closed takes its job along.
    let mut closed = on_terminal(&platform, &["shell", "--name", "closed"]);
    closed.press("echo rea''dy\r");
    closed.shows("ready");
    closed.signal(Signal::SIGHUP);
    assert_eq!(closed.end(), 130);
    platform.wait_for_phase("closed", "Terminated");
}

#[test]
fn a_lost_connection_leaves_the_terminal_and_the_job_whole() {
    let mut platform = Platform::new();
    let mut shell = on_terminal(&platform, &["shell", "--name", "desk"]);
    shell.press("echo rea''dy\r");
    shell.shows("ready");
    platform.crash();
    assert_eq!(shell.end(), 5);
    shell.shows("the connection to pod desk-main-0 was lost, and its job goes on");
    shell.shows("next:  jobctl shell desk");
    platform.up();
    assert_eq!(platform.jobctl(["shell", "desk", "--", "echo", "back"]).ok(), "back\n");
}

/// Stands in for Jupyter.
const JUPYTER: &str = r#"#!/usr/bin/env python3
import http.server, json, os, sys
if '--version' in sys.argv:
    sys.exit(0 if sys.argv[1] == 'lab' else 1)
token = os.environ['JUPYTER_TOKEN']

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        known = self.path == '/?token=' + token
        body = b'hello from the pod' if known else b'who is there?'
        self.send_response(200 if known else 403)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words):
        print('a request came', flush=True)

server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
about = {'port': server.server_port, 'token': token, 'base_url': '/', 'secure': False}
path = os.path.join(os.environ['JUPYTER_RUNTIME_DIR'], f'jpserver-{os.getpid()}.json')
with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), 'w') as file:
    json.dump(about, file)
print('serving as', ' '.join(sys.argv[1:]), flush=True)
server.serve_forever()
"#;

/// A running `jobctl notebook`, and the URL that it printed.
struct Notebook {
    jobctl: Child,
    url: String,
}

impl Notebook {
    /// Any port of this machine, so that tests don't meet.
    fn start(platform: &Platform, path: &str, args: &[&str]) -> Notebook {
        let mut jobctl = Command::new(binary("jobctl"))
            .args([&["notebook", "--port", "0"], args].concat())
            .env("PUMICE_DATA_DIR", platform.data_dir())
            .env("PATH", path)
            .current_dir(platform.scratch())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut url = String::new();
        BufReader::new(jobctl.stdout.take().unwrap()).read_line(&mut url).unwrap();
        Notebook { jobctl, url: url.trim_end().to_owned() }
    }

    /// The address and the token.
    fn parts(&self) -> (&str, &str) {
        let rest = self.url.strip_prefix("http://").unwrap_or_else(|| panic!("printed {:?}", self.url));
        rest.split_once("/?token=").unwrap()
    }

    fn get(&self, token: &str) -> String {
        let mut stream = TcpStream::connect(self.parts().0).unwrap();
        write!(stream, "GET /?token={token} HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Presses Ctrl-C and gives what was said.
    fn leave(mut self) -> String {
        kill(Pid::from_raw(i32::try_from(self.jobctl.id()).unwrap()), Signal::SIGINT).unwrap();
        self.end(130)
    }

    /// Waits for its end and gives what was said.
    fn end(&mut self, code: i32) -> String {
        let mut said = String::new();
        self.jobctl.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(self.jobctl.wait().unwrap().code(), Some(code), "{said}");
        said
    }
}

impl Drop for Notebook {
    fn drop(&mut self) {
        // One that has ended can't be killed.
        let _ = self.jobctl.kill();
        let _ = self.jobctl.wait();
    }
}

/// This machine's programs, with those of `folder` in front.
fn path_with(folder: &Path) -> String {
    format!("{}:/usr/local/bin:/usr/bin:/bin", folder.display())
}

#[test]
fn a_notebook_is_reached_left_and_come_back_to() {
    let mut platform = Platform::new();
    let programs = platform.scratch().join("programs");
    std::fs::create_dir(&programs).unwrap();
    let jupyter = platform.file("programs/jupyter", JUPYTER);
    std::fs::set_permissions(&jupyter, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = path_with(&programs);

    let notebook = Notebook::start(&platform, &path, &["--name", "paper"]);
    let token = notebook.parts().1.to_owned();
    assert_eq!(token.len(), 48, "{}", notebook.url);
    let answer = notebook.get(&token);
    assert!(answer.contains(" 200 ") && answer.ends_with("hello from the pod"), "{answer}");
    assert!(notebook.get("guess").contains(" 403 "));
    let said = notebook.leave();
    assert!(said.contains("jobctl notebook paper comes back to it"), "{said}");
    assert!(said.contains("next:  jobctl cancel paper"), "{said}");
    assert!(!said.contains(&token), "{said}");

    platform.wait_for_phase("paper", "Running");
    let again = Notebook::start(&platform, &path, &["paper"]);
    assert_eq!(again.parts().1, token, "it is the same server");
    assert!(again.get(&token).ends_with("hello from the pod"));
    platform.crash();
    platform.up();
    assert!(again.get(&token).ends_with("hello from the pod"), "the way goes where the server is now");
    again.leave();

    // The server's words are in the log; the token is nowhere that others can look.
    let log = platform.jobctl(["logs", "paper"]).ok();
    assert!(log.contains("serving as lab") && log.contains("a request came"), "{log}");
    let objects = platform.kubectl(["get", "jobs.batch.volcano.sh,pods,events", "-o", "yaml"]).ok();
    assert!(objects.contains("JUPYTER_TOKEN") && !objects.contains(&token) && !log.contains(&token));
    let folder = "ls -ld /tmp/pumice-notebook-*; ls /tmp/pumice-notebook-*/";
    let kept = platform.jobctl(["shell", "paper", "--", "sh", "-c", folder]).ok();
    assert!(kept.starts_with("drwx------") && kept.contains("jpserver-"), "{kept}");
    platform.jobctl(["cancel", "paper"]).ok();
}

#[test]
fn a_pod_without_jupyter_says_what_to_install() {
    let platform = Platform::new();
    let mut bare = Notebook::start(&platform, "/usr/bin:/bin", &["--name", "bare", "--env", "PATH=/usr/bin:/bin"]);
    let said = bare.end(127);
    assert_eq!(bare.url, "");
    assert!(said.contains("pip install jupyterlab"), "{said}");
}
