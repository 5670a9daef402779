//! What components that run by themselves say of themselves: `/metrics` and `/healthz`, on ports that the system chooses.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use pumice_testkit::{Platform, Process, Setup, binary, eventually};

/// `pumice ARGS` against a platform, and where it says that it serves.
struct Component {
    process: Process,
    addresses: Vec<String>,
}

impl Component {
    fn start(platform: &Platform, name: &str, args: &[&str], listeners: usize) -> Component {
        let mut command = Command::new(binary("pumice"));
        command.args(args).arg("--kubeconfig").arg(platform.data_dir().join("kubeconfig"));
        command.args(["--healthz-address=127.0.0.1:0", "--enable-healthz"]);
        let mut process = Process::start(name, &mut command, platform.scratch());
        let addresses = eventually("it says where it serves", || {
            assert_eq!(process.ended(), None, "{}", process.tail());
            let log = process.log();
            let served = log.lines().filter(|line| line.contains("metrics and health are served"));
            let found: Vec<String> = served.filter_map(|line| line.split("address=").nth(1)).map(first_word).collect();
            if found.len() == listeners { Ok(found) } else { Err(process.tail()) }
        });
        Component { process, addresses }
    }

    /// Code and body of an answer.
    fn get(&self, listener: usize, path: &str) -> (u16, String) {
        let mut socket = TcpStream::connect(&self.addresses[listener]).unwrap();
        write!(socket, "GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    fn says(&self, lines: &[&str]) {
        eventually("the metrics say so", || {
            let (code, page) = self.get(0, "/metrics");
            assert_eq!(code, 200, "{page}");
            let missing: Vec<_> = lines.iter().filter(|line| !page.lines().any(|there| there == **line)).collect();
            if missing.is_empty() { Ok(()) } else { Err(format!("{missing:?} are not there: {page}")) }
        });
    }

    fn ends(mut self) {
        assert_eq!(self.process.stop(), 0, "{}", self.process.tail());
    }
}

fn first_word(text: &str) -> String {
    text.split_whitespace().next().unwrap_or_default().to_owned()
}

#[test]
fn each_component_tells_how_it_does() {
    let platform = Platform::start(Setup { flags: vec!["--local-node=false".into()] });
    let lease = "kind: Namespace\napiVersion: v1\nmetadata: {name: volcano-system}\n";
    platform.kubectl_with_input(["create", "-f", "-"], lease);

    let metrics = ["--enable-metrics", "--listen-address=127.0.0.1:0"];
    let scheduler = [&["scheduler", "run", "--scheduler-name=nobody"], &metrics[..]].concat();
    let scheduler = Component::start(&platform, "scheduler", &scheduler, 2);
    scheduler.says(&["pumice_scheduler_leads 1", "volcano_queue_weight{queue_name=\"default\"} 1"]);
    assert_eq!(scheduler.get(1, "/healthz"), (200, "ok".to_owned()));
    assert_eq!(scheduler.get(1, "/metrics").0, 404, "the second is for health alone");

    // The other instance leads when the first one has ended, and is watched before.
    let controllers = [&["controllers", "run", "--controllers=cronjob-controller"], &metrics[..]].concat();
    let first = Component::start(&platform, "controllers", &controllers, 2);
    first.says(&["pumice_controllers_leads 1", "pumice_controllers_waiting{controller=\"cronjob\"} 0"]);
    let second = Component::start(&platform, "standby", &controllers, 2);
    second.says(&["pumice_controllers_leads 0", "pumice_controllers_calls 0"]);
    assert_eq!((first.get(1, "/healthz").0, second.get(1, "/healthz").0), (200, 200));
    first.ends();
    second.says(&["pumice_controllers_leads 1"]);
    second.ends();
    scheduler.ends();

    // Our own API server has no webhooks: admission waits for them, and says so.
    let admission = ["admission", "run", "--listen-address=127.0.0.1", "--port=0", "--webhook-url=https://127.0.0.1:1"];
    let admission = Component::start(&platform, "admission", &admission, 1);
    admission.says(&["pumice_admission_reviews_total{path=\"/jobs/validate\",outcome=\"admitted\"} 0"]);
    eventually("it can judge", || match admission.get(0, "/healthz") {
        (200, body) if body == "ok" => Ok(()),
        other => Err(format!("{other:?}")),
    });
    admission.ends();
}
