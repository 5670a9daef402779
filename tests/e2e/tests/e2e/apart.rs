//! The platform in processes of its own: API server, scheduler, controllers, admission and node, each with the rights that it
//! has in `pumice up`, each killed and started again while a job runs.

use std::path::{Path, PathBuf};
use std::process::Command;

use pumice_testkit::{Clients, Process, binary, eventually};
use serde_json::Value;
use tempfile::TempDir;

/// All components, each a process.
struct Apart {
    directory: TempDir,
    clients: Clients,
    port: String,
    processes: Vec<Process>,
}

impl Apart {
    fn start() -> Apart {
        let directory = tempfile::Builder::new().prefix("pumice-test-").tempdir().unwrap();
        let data = directory.path().join("data");
        let clients = Clients::new(&data.join("kubeconfig"), directory.path()).with("PUMICE_DATA_DIR", data.clone());
        let mut apart = Apart { directory, clients, port: "0".to_owned(), processes: Vec::new() };
        apart.run("apiserver");
        apart.port = apart.url().rsplit(':').next().unwrap().to_owned();
        for component in ["scheduler", "controllers", "node"] {
            apart.run(component);
        }
        apart.status(&["--wait"]).ok();
        apart
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// The words of a component's command line.
    fn words(&self, component: &str) -> Vec<String> {
        let data = self.data().display().to_string();
        let kubeconfig = format!("{data}/kubeconfigs/{component}");
        let health = "--healthz-address=127.0.0.1:0";
        let line = match component {
            "apiserver" => format!("apiserver --data-dir {data} --port {} --node other", self.port),
            "node" => format!("node run --data-dir {data} --port 0 --kubeconfig {kubeconfig} --cpu 16"),
            "scheduler" => format!("scheduler run --own-cluster --kubeconfig {kubeconfig} --enable-healthz {health}"),
            other => format!("{other} run --own-cluster --kubeconfig {kubeconfig}"),
        };
        // A crash must not be waited for as long as Volcano's defaults say.
        let lease =
            " --leader-elect-lease-duration=3s --leader-elect-renew-deadline=2s --leader-elect-retry-period=200ms";
        let lease = if matches!(component, "scheduler" | "controllers") { lease } else { "" };
        format!("{line}{lease}").split_whitespace().map(str::to_owned).collect()
    }

    fn run(&mut self, component: &str) {
        let mut command = Command::new(binary("pumice"));
        command.args(self.words(component));
        let ready = |process: &Process| process.log().matches("pumice is up at").count();
        let before = self.log_of(component).matches("pumice is up at").count();
        let mut process = Process::start(component, &mut command, self.directory.path());
        if component == "apiserver" {
            eventually("the API server is up", || {
                assert_eq!(process.ended(), None, "{}", process.tail());
                if ready(&process) > before { Ok(()) } else { Err(process.tail()) }
            });
        }
        self.processes.push(process);
    }

    fn log_of(&self, component: &str) -> String {
        std::fs::read_to_string(self.directory.path().join(format!("{component}.log"))).unwrap_or_default()
    }

    fn url(&self) -> String {
        let log = self.log_of("apiserver");
        log.split_whitespace().find(|word| word.starts_with("https://")).unwrap().to_owned()
    }

    /// Kills a component as a crash would, and starts it again.
    fn crash(&mut self, component: &str) {
        let at = self.processes.iter().position(|process| process.name() == component).unwrap();
        self.processes.remove(at).crash();
        self.run(component);
    }

    /// Starts again who has ended, as a supervisor would: who leads and can't renew its lease in time gives up and ends,
    /// which an API server that is slow to come back may bring about.
    fn revive(&mut self) {
        let ended = |process: &mut Process| process.ended().is_some();
        while let Some(at) = self.processes.iter_mut().position(ended) {
            let process = self.processes.remove(at);
            self.run(process.name());
        }
    }

    fn pumice(&self, args: &[&str]) -> pumice_testkit::Output {
        self.clients.run(&binary("pumice"), args, None)
    }

    fn status(&self, args: &[&str]) -> pumice_testkit::Output {
        let data = self.data().display().to_string();
        self.pumice(&[&["status", "--data-dir", &data], args].concat())
    }

    fn submit(&self, name: &str, script: &str, pods: u32) {
        let pods = pods.to_string();
        let args = ["submit", "--name", name, "--replicas", &pods, "--cpu", "100m", "--"];
        self.clients.run(&binary("jobctl"), [&args[..], &["sh", "-c", script]].concat(), None).ok();
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.processes.iter().for_each(|process| eprintln!("{}", process.tail()));
        }
        // The API server last: the others have something to say at their end.
        while let Some(mut process) = self.processes.pop() {
            process.stop();
        }
        let data = self.data().display().to_string();
        let _ = Command::new(binary("pumice")).args(["down", "--now", "--data-dir", &data]).output();
    }
}

fn phase(clients: &Clients, job: &str) -> String {
    let job = clients.get("jobs.batch.volcano.sh", job).unwrap_or(Value::Null);
    job["status"]["state"]["phase"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn five_processes_run_a_job_and_each_may_die() {
    let mut apart = Apart::start();
    let report: Value = serde_json::from_str(&apart.status(&["-o", "json"]).ok()).unwrap();
    assert_eq!((&report["ready"], &report["nodes"]["ready"]), (&true.into(), &1.into()), "{report:#}");
    let names: Vec<&str> =
        report["components"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["store", "store-writes", "store-room", "scheduler", "controllers"]);

    apart.submit("first", "echo said; sleep 1000", 1);
    apart.clients.wait_for_phase("first", "Running");
    let pod = apart.clients.list("pods")[0]["metadata"]["name"].as_str().unwrap().to_owned();
    eventually("its log is there", || {
        let log = apart.clients.kubectl(["logs", &pod]);
        if log.stdout == "said\n" { Ok(()) } else { Err(format!("{log:?}")) }
    });
    let exec = apart.clients.kubectl(["exec", &pod, "--", "sh", "-c", "echo in $((40+2)); exit 3"]);
    assert_eq!((exec.code, exec.stdout.as_str()), (3, "in 42\n"), "{exec:?}");

    for component in ["scheduler", "controllers", "node", "apiserver"] {
        let name = format!("across-{component}");
        // Some of it waits when the component dies: more than there is room for.
        apart.submit(&name, "sleep 2; echo done", 4);
        eventually("it has begun", || match phase(&apart.clients, &name).as_str() {
            "" => Err("no phase".to_owned()),
            _ => Ok(()),
        });
        apart.crash(component);
        eventually("it completes", || {
            apart.revive();
            match phase(&apart.clients, &name).as_str() {
                "Completed" => Ok(()),
                other => Err(other.to_owned()),
            }
        });
    }
    assert_eq!(phase(&apart.clients, "first"), "Running", "what ran through all of it still runs");
    let restarts = &apart.clients.get("pod", &pod).unwrap()["status"]["containerStatuses"][0]["restartCount"];
    assert_eq!(*restarts, 0);
    assert_eq!(apart.clients.kubectl(["logs", &pod]).ok(), "said\n", "of an agent that has adopted it");
}

// INV-58
#[test]
fn each_component_is_a_user_of_its_own_with_its_own_rights() {
    let apart = Apart::start();
    let of = |component: &str| {
        let kubeconfig = apart.data().join("kubeconfigs").join(component);
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&kubeconfig).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
        Clients::new(&kubeconfig, apart.directory.path())
    };
    let node = apart.clients.list("nodes")[0]["metadata"]["name"].as_str().unwrap().to_owned();
    for component in ["scheduler", "controllers", "admission", "node"] {
        let whoami = of(component).kubectl(["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"]).ok();
        let user =
            if component == "node" { format!("system:node:{node}") } else { format!("system:pumice:{component}") };
        assert_eq!(whoami, user);
        let secrets = of(component).kubectl(["auth", "can-i", "delete", "secrets", "-A"]);
        assert!(component == "controllers" || secrets.code != 0, "{component}: {secrets:?}");
        assert_ne!(of(component).kubectl(["get", "--raw", "/metrics"]).code, 0);
    }
    // A node reads what its own pods need while they run, and another one never.
    apart.clients.kubectl(["create", "secret", "generic", "s", "--from-literal=a=b"]).ok();
    let reads = |component: &str| of(component).kubectl(["get", "secret", "s", "-o", "jsonpath={.data.a}"]).code == 0;
    assert!(!reads("node") && !reads("node-other"));
    let pod = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "needs"}, "spec": {
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": "pumice.sh/host", "command": ["sleep", "1000"], "envFrom": [{"secretRef": {"name": "s"}}]}],
    }});
    apart.clients.kubectl_with_input(["create", "-f", "-"], &pod.to_string()).ok();
    eventually("the pod runs", || {
        let found = apart.clients.get("pods", "needs").unwrap_or(Value::Null);
        if found["status"]["phase"] == "Running" { Ok(()) } else { Err(found.to_string()) }
    });
    assert!(reads("node") && !reads("node-other"));
    apart.clients.kubectl(["delete", "pod", "needs"]).ok();
    assert!(!reads("node") && !reads("node-other"));
    // The agent answers the API server and nobody else.
    let node = &apart.clients.list("nodes")[0];
    let port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64().unwrap();
    let address = node["status"]["addresses"][0]["address"].as_str().unwrap();
    let url = format!("https://{address}:{port}/stats/summary");
    let curl = |args: &[&str]| {
        let args = [&["-ksS", "-o", "/dev/null", "-w", "%{http_code}", &url], args].concat();
        apart.clients.run(Path::new("curl"), args, None)
    };
    assert_ne!(curl(&[]).code, 0, "no certificate");
    let (certificate, key) = (apart.directory.path().join("crt"), apart.directory.path().join("key"));
    for (part, file) in [("client-certificate-data", &certificate), ("client-key-data", &key)] {
        let path = format!("jsonpath={{.users[0].user.{part}}}");
        let data = of("scheduler").kubectl(["config", "view", "--raw", "-o", &path]).ok();
        let decoded = apart.clients.run(Path::new("base64"), ["-d"], Some(&data)).ok();
        std::fs::write(file, decoded).unwrap();
    }
    let scheduler = curl(&["--cert", certificate.to_str().unwrap(), "--key", key.to_str().unwrap()]);
    assert_eq!(scheduler.stdout, "403", "{scheduler:?}");
    // What is to do when it is gone is to start what was started, not the whole platform.
    let mut apart = apart;
    let at = apart.processes.iter().position(|process| process.name() == "apiserver").unwrap();
    apart.processes[at].crash();
    let advice = apart.clients.run(&binary("jobctl"), ["list"], None);
    assert!(advice.stderr.contains("next:  pumice apiserver"), "{advice:?}");
    let status = apart.status(&[]);
    assert!(status.stderr.contains("`pumice apiserver --data-dir"), "{status:?}");
    // A second agent on the same directory is refused, and so is one without a certificate.
    let second = apart.pumice(&apart.words("node").iter().map(String::as_str).collect::<Vec<_>>());
    assert!(second.code != 0 && second.stderr.contains("be the only node agent here"), "{second:?}");
}

/// Components and nodes come to know another authority by themselves, and what they have is renewed.
#[test]
fn the_authority_is_rotated_under_all_five() {
    let mut apart = Apart::start();
    let data = apart.data().display().to_string();
    let rotate =
        |apart: &Apart, flags: &[&str]| apart.pumice(&[&["ca", "rotate", "--data-dir", &data], flags].concat());
    let node = apart.data().join("kubeconfigs/node");
    let authorities = |text: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix("certificate-authority-data: ")).unwrap();
        apart.clients.run(Path::new("base64"), ["-d"], Some(line)).ok().matches("BEGIN").count()
    };
    // As on another machine, where only the agent itself writes it.
    let own = apart.directory.path().join("own");
    std::fs::copy(&node, &own).unwrap();
    let at = apart.processes.iter().position(|process| process.name() == "node").unwrap();
    let mut agent = apart.processes.remove(at);
    agent.stop();
    let words: Vec<String> = apart
        .words("node")
        .into_iter()
        .map(|word| word.replace(node.to_str().unwrap(), own.to_str().unwrap()))
        .collect();
    let mut command = Command::new(binary("pumice"));
    command.args(words);
    let agent = Process::start("node", &mut command, apart.directory.path());
    apart.processes.push(agent);
    rotate(&apart, &[]).ok();
    eventually("the agent has both authorities", || {
        let text = std::fs::read_to_string(&own).unwrap();
        if authorities(&text) == 2 { Ok(()) } else { Err(text) }
    });
    eventually("the old authority is dropped", || {
        let finished = rotate(&apart, &["--finish"]);
        if finished.code == 0 { Ok(()) } else { Err(finished.stderr) }
    });
    eventually("the agent has the new authority alone", || {
        let text = std::fs::read_to_string(&own).unwrap();
        if authorities(&text) == 1 { Ok(()) } else { Err(text) }
    });
    apart.revive();
    apart.submit("after", "echo went on", 2);
    eventually("a job runs", || {
        let phase = phase(&apart.clients, "after");
        if phase == "Completed" { Ok(()) } else { Err(phase) }
    });
    // Logs come from the agent, which the API server and the agent believe each other of.
    let logs = apart.clients.run(&binary("jobctl"), ["logs", "after"], None).ok();
    assert!(logs.contains("went on"), "{logs}");
}
