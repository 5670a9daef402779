//! Volcano's command line against a platform: what each verb prints, and the code it ends with.
//!
//! The transcripts are goldens. What differs from run to run (times, ages, uids, places) is replaced by a word, and runs of
//! spaces by two: the widths of tables have unit tests of their own.

use std::path::Path;
use std::process::Command;

use pumice_testkit::{Output, Platform, Setup, binary, eventually};
use serde_json::Value;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
/// Flags of a Job that runs until it is stopped.
const SLEEPER: &str = "-i pumice.sh/host -c 'sleep 1000' -R cpu=100m,memory=16Mi -L cpu=100m,memory=64Mi";

/// Commands and what they said.
struct Transcript<'p> {
    platform: &'p Platform,
    path: String,
    text: String,
}

impl<'p> Transcript<'p> {
    /// With the names that `pumice links` makes on the path.
    fn new(platform: &'p Platform) -> Self {
        let links = platform.scratch().join("links");
        std::fs::create_dir_all(&links).unwrap();
        platform.run(&binary("pumice"), ["links", "--dir", links.to_str().unwrap()], None).ok();
        let bins = binary("pumice").parent().unwrap().to_owned();
        Transcript { platform, path: format!("{}:{}", links.display(), bins.display()), text: String::new() }
    }

    /// Runs a command without writing it down.
    fn quiet(&self, line: &str) -> Output {
        let script = format!("PATH={}:$PATH; {line}", self.path);
        self.platform.run(Path::new("bash"), ["-c", &script], None)
    }

    /// Runs a command that has to end with `code`, and writes down what it said.
    fn run(&mut self, line: &str, code: i32) -> Output {
        let output = self.quiet(line);
        assert_eq!(output.code, code, "{line}: {output:?}");
        let shown = line.replace(EXAMPLES, "examples").replace(SLEEPER, "SLEEPER");
        self.text.push_str(&format!("$ {shown}\n{}", self.normal(&output.stdout)));
        for line in self.normal(&output.stderr).lines() {
            self.text.push_str(&format!("stderr: {line}\n"));
        }
        if code != 0 {
            self.text.push_str(&format!("exit code {code}\n"));
        }
        output
    }

    fn normal(&self, text: &str) -> String {
        let text = text
            .replace(self.platform.url.trim_end_matches('/'), "URL")
            .replace(self.platform.scratch().to_str().unwrap(), "DIR")
            .replace(EXAMPLES, "examples");
        // Events come when they come.
        let text = text.split_inclusive('\n').take_while(|line| !line.starts_with("Events:"));
        text.map(|line| format!("{}\n", normal_line(line))).collect()
    }

    /// Waits until a command prints `wanted`.
    fn until(&self, line: &str, wanted: &str) {
        eventually(&format!("{line} says {wanted}"), || {
            let output = self.quiet(line);
            if output.stdout.contains(wanted) { Ok(()) } else { Err(format!("{output:?}")) }
        });
    }

    fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.quiet(line).ok()).unwrap()
    }
}

/// A line without what differs from run to run.
fn normal_line(line: &str) -> String {
    let indent = line.len() - line.trim_start_matches(' ').len();
    let mut words = Vec::new();
    for word in line.trim().split("  ").map(str::trim).filter(|word| !word.is_empty()) {
        let heading = words.last().is_some_and(|last: &String| last == "Resource Version:");
        words.push(if heading {
            "N".to_owned()
        } else {
            word.split(' ').map(normal_word).collect::<Vec<_>>().join(" ")
        });
    }
    format!("{}{}", " ".repeat(indent), words.join("  "))
}

fn normal_word(word: &str) -> String {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_age = word.len() > 1 && word.ends_with(['s', 'm', 'h']) && digits(&word[..word.len() - 1]);
    let is_minutes = word.split_once('m').is_some_and(|(m, s)| digits(m) && s.strip_suffix('s').is_some_and(digits));
    let is_uid = word.len() == 36 && word.bytes().filter(|byte| *byte == b'-').count() == 4;
    let is_date = |text: &str| text.len() == 10 && text.split('-').all(digits) && text.matches('-').count() == 2;
    match word {
        _ if is_age || is_minutes => "AGE".to_owned(),
        _ if is_uid => "UID".to_owned(),
        _ if is_date(word) => "DATE".to_owned(),
        _ if word.split_once('T').is_some_and(|(date, _)| is_date(date)) => "TIME".to_owned(),
        _ => word.to_owned(),
    }
}

#[test]
fn jobs_and_their_pods() {
    let platform = Platform::new();
    let mut vcctl = Transcript::new(&platform);
    vcctl.run("vcctl job list", 0);
    vcctl.run(&format!("vcctl job run -N sleeper -r 2 -m 2 {SLEEPER}"), 0);
    platform.wait_for_phase("sleeper", "Running");
    vcctl.until("vcctl job view -N sleeper", "Running=2");
    vcctl.until("vcctl pod list -j sleeper", "Running");
    for line in [
        "vcctl job list",
        "vcctl job list --all-namespaces",
        "vcctl job list -q default -S volcano --selector eep -o wide",
        "vcctl job list --selector nothing-like-it",
        "vcctl job list -q nowhere",
        "vcctl job list -n elsewhere",
        "vcctl job list -o name",
        "vcctl job view -N sleeper",
        "vcctl job view -N sleeper -o table",
        "vcctl job get -N sleeper -o name",
        "vcctl pod list -j sleeper -o name",
        "vcctl pod list -j nobody",
    ] {
        vcctl.run(line, 0);
    }
    let rows = vcctl.quiet("vcctl pod list -q default --all-namespaces -o wide").ok();
    assert!(rows.contains("sleeper-default0-0") && rows.contains("Node") && rows.lines().count() == 3, "{rows}");
    let noted =
        std::fs::read_to_string(format!("{EXAMPLES}/gang.yaml")).unwrap().replace("name: gang\n", "name: noted\n");
    platform.file("noted.yaml", noted.replace("ssh: []", "ssh: [--no-such-flag]"));
    vcctl.quiet("vcctl job run -f noted.yaml").ok();
    vcctl.until("vcctl job view -N noted", "Warning");
    let viewed = vcctl.quiet("vcctl job view -N noted").ok();
    assert!(viewed.contains("Events:\n  Type"), "{viewed}");
    vcctl.quiet("vcctl job delete -N noted").ok();
    vcctl.until("vcctl pod get -N sleeper-default0-1", "Running");
    vcctl.run("vcctl pod get -N sleeper-default0-1", 0);
    vcctl.run("vcctl job suspend -N sleeper", 0);
    platform.wait_for_phase("sleeper", "Aborted");
    vcctl.run("vcctl job resume -N sleeper", 0);
    platform.wait_for_phase("sleeper", "Running");
    vcctl.run("vcctl job suspend -N sleeper -o name | sed 's/-[^-]*$/-NAME/'", 0);
    platform.wait_for_phase("sleeper", "Aborted");
    vcctl.quiet("vcctl job resume -N sleeper").ok();
    vcctl.until("vcctl job view -N sleeper", "Running=2");
    vcctl.run("vcctl pod delete -N sleeper-default0-1", 0);
    vcctl.run("vcctl pod delete -N sleeper-default0-0 -o name", 0);
    // What is deleted is printed whole, as it was.
    let deleted = vcctl.json("vcctl job delete -N sleeper -o json");
    assert_eq!((&deleted["kind"], &deleted["metadata"]["name"]), (&"Job".into(), &"sleeper".into()), "{deleted}");
    eventually("the job is gone", || match vcctl.quiet("vcctl job view -N sleeper").code {
        3 => Ok(()),
        code => Err(format!("exit code {code}")),
    });
    vcctl.run(&format!("vcctl job run -f {EXAMPLES}/gang.yaml -o name"), 0);
    vcctl.run("vcctl job delete -N gang", 0);
    vcctl.run(&format!("vcctl job run -N short {SLEEPER}"), 0);
    vcctl.run("vcctl job delete -N short -o name", 0);
    vcctl.run(
        &format!("cat {EXAMPLES}/gang.yaml | sed 's/name: gang$/name: other/' | vcctl job run -f - -n default"),
        0,
    );
    insta::assert_snapshot!(vcctl.text);
}

#[test]
fn what_goes_wrong_is_said_and_does_not_end_well() {
    let platform = Platform::new();
    let mut vcctl = Transcript::new(&platform);
    platform.file("two.yaml", "apiVersion: v1\nkind: A\n---\napiVersion: v1\nkind: B\n");
    platform.file("other.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n");
    platform.file("broken.yaml", "kind: Job\n  metadata: [\n");
    vcctl.quiet(&format!("vcctl job run -N taken {SLEEPER}")).ok();
    for (line, code) in [
        ("vcctl job run", 2),
        ("vcctl job run -N taken -i pumice.sh/host", 6),
        ("vcctl job run -N bad -m 3 -r 2", 2),
        ("vcctl job run -N bad -R much", 2),
        ("vcctl job run -N bad -c 'echo \"open'", 2),
        ("vcctl job run -f missing.yaml", 2),
        ("vcctl job run -f broken.yaml", 2),
        ("vcctl job run -f two.yaml", 2),
        ("vcctl job run -f other.yaml", 2),
        ("vcctl job view", 2),
        ("vcctl job view -N nobody", 3),
        ("vcctl job view -N ../queues", 2),
        ("vcctl job suspend -N nobody", 3),
        ("vcctl job resume", 2),
        ("vcctl job delete -N nobody", 3),
        ("vcctl job delete", 2),
        ("vcctl pod list -j taken -q nowhere", 2),
        ("vcctl pod list -j nobody -q default", 3),
        ("vcctl pod get -N nobody", 3),
        ("vcctl pod get -N nobody -o json", 3),
        ("vcctl pod delete", 2),
        ("vcctl queue get", 2),
        ("vcctl queue get -n nobody", 3),
        ("vcctl queue create -n default", 6),
        ("vcctl queue operate -n default -a update", 2),
        ("vcctl queue operate -n nobody -a close", 3),
        ("vcctl queue delete -n nobody", 3),
        ("vcctl jobflow create -f missing.yaml", 2),
        ("vcctl jobflow create -f broken.yaml", 2),
        ("vcctl jobflow create -f other.yaml", 2),
        ("vcctl jobflow get -N nobody", 3),
        ("vcctl jobflow describe -N nobody", 3),
        ("vcctl jobtemplate delete", 2),
        ("vcctl jobtemplate delete -N nobody", 3),
        ("vcctl cronjob suspend -N nobody", 3),
        ("vcctl cronjob get", 2),
        ("vsub -c 'sleep 1'", 2),
        ("vjobs -n nobody", 3),
        ("vqueues -n nobody", 3),
        ("vcancel -n nobody", 3),
        ("vcancel", 2),
        ("vsuspend -n nobody -N elsewhere", 3),
        ("vresume", 2),
        ("vcctl job list -k missing", 2),
        ("vcctl job list -s nonsense", 2),
        ("vcctl job list -s https://127.0.0.1:1", 5),
        ("env -u KUBECONFIG -u PUMICE_DATA_DIR -u XDG_DATA_HOME vcctl job list", 2),
    ] {
        let output = vcctl.run(line, code);
        assert_eq!(output.stdout, "", "{line}: only data goes to standard output");
        assert!(!output.stderr.is_empty() && output.stderr.len() < 2500, "{line}: {output:?}");
    }
    insta::assert_snapshot!(vcctl.text);
    for line in ["vcctl", "vcctl job frobnicate", "vcctl job list -o xml", "vcctl queue operate -n default -a explode"]
    {
        let output = vcctl.quiet(line);
        assert_eq!((output.code, output.stdout.as_str()), (2, ""), "{line}: {output:?}");
    }
}

#[test]
fn queues() {
    let platform = Platform::new();
    let mut vcctl = Transcript::new(&platform);
    vcctl.run("vcctl queue create -n research -w 3", 0);
    vcctl.run("vcctl queue create -n shut -S Closed", 0);
    vcctl.run("vcctl queue create -o name", 0);
    vcctl.until("vcctl queue get -n shut", "Closed");
    vcctl.until("vcctl queue get -n research", "Open");
    vcctl.until("vcctl queue get -n test", "Open");
    vcctl.quiet(&format!("vcctl job run -N sleeper {SLEEPER}")).ok();
    platform.wait_for_phase("sleeper", "Running");
    let running = |line: &str, at: usize| {
        eventually(&format!("{line} counts the running group"), || {
            let text = vcctl.quiet(line).ok();
            let row = text.lines().find(|line| line.starts_with("default ")).ok_or("no row")?.to_owned();
            if row.split_whitespace().nth(at) == Some("1") { Ok(()) } else { Err(row) }
        });
    };
    running("vcctl queue list", 6);
    running("vqueues", 5);
    for line in [
        "vcctl queue list",
        "vqueues",
        "vcctl queue list -o name",
        "vcctl queue get -n default",
        "vqueues -n default",
        "vcctl queue operate -n research -a update -w 5",
    ] {
        vcctl.run(line, 0);
    }
    vcctl.run("vcctl queue get -n research", 0);
    eventually("what the running group has is counted", || {
        let wide = vcctl.quiet("vcctl queue list -o wide").ok();
        if wide.contains("Reclaimable") && wide.contains("cpu=") { Ok(()) } else { Err(wide) }
    });
    assert_eq!(vcctl.json("vcctl queue get -n research -o json")["spec"]["weight"], 5);
    vcctl.run("vcctl queue operate -n research -a close", 0);
    vcctl.until("vcctl queue get -n research", "Closed");
    vcctl.run("vcctl queue operate -n research -a open", 0);
    vcctl.until("vcctl queue get -n research", "Open");
    vcctl.run("vcctl queue operate -n research -a close -o name", 0);
    vcctl.until("vcctl queue get -n research", "Closed");
    vcctl.run("vcctl queue delete -n research", 0);
    vcctl.run("vcctl queue create -n other -o wide", 0);
    vcctl.run("vcctl queue create -n third", 0);
    for queue in ["other", "third"] {
        vcctl.until(&format!("vcctl queue get -n {queue}"), "Open");
        vcctl.run(&format!("vcctl queue operate -n {queue} -a close"), 0);
        vcctl.until(&format!("vcctl queue get -n {queue}"), "Closed");
    }
    vcctl.run("vcctl queue delete -n other -o name", 0);
    let deleted = vcctl.quiet("vcctl queue delete -n third -o yaml").ok();
    assert!(deleted.contains("kind: Queue") && deleted.contains("state: Closed"), "{deleted}");
    insta::assert_snapshot!(vcctl.text);
}

#[test]
fn flows_and_templates() {
    let platform = Platform::new();
    let mut vcctl = Transcript::new(&platform);
    vcctl.run("vcctl jobflow list", 0);
    vcctl.run("vcctl jobtemplate list -n elsewhere", 0);
    // The file holds both kinds: those of the other kind fail, and the verb with them.
    vcctl.run(&format!("vcctl jobtemplate create -f {EXAMPLES}/flow.yaml"), 2);
    vcctl.run(&format!("vcctl jobtemplate create -f {EXAMPLES}/flow.yaml"), 6);
    vcctl.run("vcctl jobtemplate list", 0);
    vcctl.run("vcctl jobtemplate get -N train", 0);
    vcctl.run(
        &format!("sed '1,/^---$/d;1,/^---$/d' {EXAMPLES}/flow.yaml > flow.yaml; vcctl jobflow create -f flow.yaml"),
        0,
    );
    vcctl.until("vcctl jobflow get -N nightly", "Succeed");
    for job in ["nightly-prepare", "nightly-train"] {
        vcctl.until("vcctl jobtemplate describe", job);
    }
    for line in [
        "vcctl jobflow list",
        "vcctl jobflow list --all-namespaces -o wide",
        "vcctl jobflow get -N nightly",
        "vcctl jobflow describe -o name",
        "vcctl jobtemplate list -o wide",
    ] {
        vcctl.run(line, 0);
    }
    let described = vcctl.quiet("vcctl jobflow describe -N nightly").ok();
    assert!(described.contains("kind: JobFlow") && described.contains("phase: Succeed"), "{described}");
    let described = vcctl.json("vcctl jobflow describe -N nightly --format json");
    assert_eq!(described["spec"]["flows"].as_array().map(Vec::len), Some(2), "{described}");
    assert_eq!(vcctl.json("vcctl jobtemplate describe -o json")["items"].as_array().map(Vec::len), Some(2));
    vcctl.run("vcctl jobflow delete -f flow.yaml -o name", 0);
    vcctl.run("vcctl jobtemplate delete -N train", 0);
    vcctl.run(&format!("vcctl jobtemplate delete -f {EXAMPLES}/flow.yaml"), 3);
    // Of several documents JSON and YAML are one List, of those that went well.
    let flow = std::fs::read_to_string(format!("{EXAMPLES}/flow.yaml")).unwrap();
    platform.file("two.yaml", flow.split("---\n").take(2).collect::<Vec<_>>().join("---\n"));
    let made = vcctl.json("vcctl jobtemplate create -f two.yaml -o json");
    assert_eq!((&made["kind"], made["items"].as_array().map(Vec::len)), (&"List".into(), Some(2)), "{made}");
    vcctl.run("vcctl jobtemplate delete -N train -o name", 0);
    let half = vcctl.quiet("vcctl jobtemplate delete -f two.yaml -o yaml");
    assert!(half.code == 3 && half.stdout.starts_with("apiVersion: v1\nitems:\n"), "{half:?}");
    assert_eq!(half.stdout.matches("kind: JobTemplate").count(), 1, "{half:?}");
    insta::assert_snapshot!(vcctl.text);
}

#[test]
fn cron_jobs() {
    let platform = Platform::new();
    let mut vcctl = Transcript::new(&platform);
    let manifest = std::fs::read_to_string(format!("{EXAMPLES}/cron.yaml")).unwrap();
    platform.file("cron.yaml", manifest.replace("\"@every 2s\"", "\"0 0 1 1 *\""));
    for line in [
        "vcctl cronjob list",
        "vcctl cronjob create -f cron.yaml",
        "vcctl cronjob list",
        "vcctl cronjob suspend -N tick",
        "vcctl cronjob get -N tick -o wide",
        "vcctl cronjob resume -N tick",
        "vcctl cronjob list --all-namespaces",
        "vcctl cronjob get -N tick -o name",
        "vcctl cronjob delete -N tick -o name",
    ] {
        vcctl.run(line, 0);
    }
    insta::assert_snapshot!(vcctl.text);
}

#[test]
fn the_slurm_like_programs() {
    let platform = Platform::start(Setup { flags: vec!["--cpu".into(), "4".into()] });
    let mut slurm = Transcript::new(&platform);
    slurm.run("vjobs", 0);
    slurm.run(&format!("vsub -n train {SLEEPER}"), 0);
    platform.wait_for_phase("train", "Running");
    slurm.until("vjobs -n train", "Running=1");
    slurm.run("vjobs", 0);
    slurm.run("vjobs --all-namespaces --selector tra -S volcano", 0);
    slurm.run("vjobs -n train -o table", 0);
    slurm.run("vjobs -N elsewhere", 0);
    slurm.run("vsuspend -n train", 0);
    platform.wait_for_phase("train", "Aborted");
    slurm.run("vresume -n train", 0);
    platform.wait_for_phase("train", "Running");
    let asked = slurm.json("vsuspend -n train -o json");
    assert_eq!((&asked["kind"], &asked["action"]), (&"Command".into(), &"AbortJob".into()), "{asked}");
    platform.wait_for_phase("train", "Aborted");
    slurm.run("vresume -n train -o name | sed 's/-[^-]*$/-NAME/'", 0);
    platform.wait_for_phase("train", "Running");
    slurm.run("vcancel -n train", 0);
    slurm.quiet(&format!("vsub -n again {SLEEPER}")).ok();
    slurm.run("vcancel -n again -o name", 0);
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n";
    platform.kubectl_with_input(["create", "-f", "-"], namespace).ok();
    slurm.run(
        "VOLCANO_DEFAULT_IMAGE=pumice.sh/host VOLCANO_DEFAULT_JOB_NAMESPACE=team VOLCANO_SCHEDULER_NAME=pumice \
         vsub -n by-environment -c 'sleep 1000'",
        0,
    );
    let made = slurm.json("vjobs -n by-environment -N team -o json");
    assert_eq!(made["spec"]["schedulerName"], "pumice");
    let container = &made["spec"]["tasks"][0]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "pumice.sh/host");
    assert_eq!(container["command"], serde_json::json!(["sleep", "1000"]));
    slurm.run("pumice version | sed 's/^Version: .*/Version: V/;s/^OS.*/OS/'", 0);
    insta::assert_snapshot!(slurm.text);
}

#[test]
fn lists_of_any_length_are_whole_in_every_form() {
    let platform = Platform::start(Setup { flags: vec!["--local-node=false".into()] });
    let vcctl = Transcript::new(&platform);
    let template = std::fs::read_to_string(format!("{EXAMPLES}/flow.yaml")).unwrap();
    let template = template.split("---\n").next().unwrap();
    // More than two pages.
    let many: Vec<String> = (0..1100).map(|n| template.replace("name: prepare", &format!("name: t{n:04}"))).collect();
    platform.file("many.yaml", many.join("---\n"));
    let made = vcctl.quiet("vcctl jobtemplate create -f many.yaml").ok();
    assert_eq!(made.lines().count(), 1100);
    assert_eq!(vcctl.quiet("vcctl jobtemplate list").ok().lines().count(), 1101);
    let names = vcctl.quiet("vcctl jobtemplate list -o name").ok();
    let names: Vec<&str> = names.lines().collect();
    assert_eq!((names.len(), names[1099]), (1100, "jobtemplate.flow.volcano.sh/t1099"));
    let json = vcctl.json("vcctl jobtemplate list -o json");
    assert_eq!(json["items"].as_array().map(Vec::len), Some(1100));
    assert_eq!(json["items"][0]["kind"], "JobTemplate");
    // What is printed is a manifest again.
    vcctl.quiet("vcctl jobtemplate list -o yaml > dump.yaml").ok();
    let deleted = vcctl.quiet("vcctl jobtemplate delete -f dump.yaml").ok();
    assert_eq!(deleted.lines().count(), 1100);
    assert_eq!(vcctl.quiet("vcctl jobtemplate list").ok(), "No resources found\n");
    // Whoever closes the pipe has what it wanted.
    vcctl.quiet("vcctl jobtemplate create -f many.yaml").ok();
    let first = vcctl.quiet("set -o pipefail; vcctl jobtemplate list -o json | head -n 1").ok();
    assert_eq!(first, "{\n");
}

#[test]
fn the_platform_of_this_machine_is_found_without_a_kubeconfig() {
    let platform = Platform::new();
    let output = Command::new(binary("pumice"))
        .args(["queue", "list", "-o", "name"])
        .env_remove("KUBECONFIG")
        .env("HOME", platform.scratch())
        .env("PUMICE_DATA_DIR", platform.data_dir())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("queue.scheduling.volcano.sh/default"), "{output:?}");
}
