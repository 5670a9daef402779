//! What a pod's programs may ask of the kernel, and what they see of the machine.

use pumice_testkit::{Platform, Setup, eventually};
use serde_json::{Value, json};

/// Runs a shell script in a pod with this security context, and gives what it wrote when it has ended.
fn output(platform: &Platform, name: &str, context: Value, script: &str) -> String {
    let container = json!({"name": "main", "image": "pumice.sh/host", "command": ["/bin/sh", "-c", script], "securityContext": context});
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    });
    platform.kubectl_with_input(["create", "-f", "-"], &pod.to_string()).ok();
    eventually(&format!("pod {name} has ended"), || {
        let pod = platform.get("pod", name).unwrap_or_default();
        match pod["status"]["phase"].as_str() {
            Some("Succeeded" | "Failed") => Ok(()),
            _ => Err(pod["status"].to_string()),
        }
    });
    platform.kubectl(["logs", name]).ok()
}

/// A pod that names no limit does not take the machine's memory beyond what the node has for pods.
#[test]
fn without_a_limit_there_is_as_much_memory_as_the_node_has() {
    let platform = Platform::start(Setup { flags: vec!["--memory".into(), "128Mi".into()] });
    let script = "head -c 400000000 /dev/zero | tail -c 300000000 | wc -c; echo ended";
    let found = output(&platform, "large", json!({}), script);
    // The shell may say that it was killed before the count comes.
    assert!(found.lines().any(|line| line == "0"), "what held the bytes was killed: {found}");
    let pod = platform.get("pod", "large").unwrap();
    let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
    assert!(ended["message"].as_str().is_some_and(|message| message.contains("killed for memory")), "{ended}");
}

/// Whether this process is filtered, and whether it may call `unshare`.
const FILTERED: &str = "grep -E '^(Seccomp|NoNewPrivs):' /proc/self/status; unshare -m true 2>&1; echo $?; id -u";

#[test]
fn calls_are_filtered_as_the_profile_says() {
    let platform = Platform::new();
    let folder = platform.data_dir().join("seccomp");
    std::fs::create_dir(&folder).unwrap();
    let no_mkdir = json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
        {"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38},
    ]});
    std::fs::write(folder.join("no-mkdir.json"), no_mkdir.to_string()).unwrap();
    let profile = |kind: &str| json!({"seccompProfile": {"type": kind}});
    let admin = json!({"capabilities": {"add": ["SYS_ADMIN"]}});
    for (name, context, status, unshared) in [
        ("plain", json!({}), "2", false),
        ("default", profile("RuntimeDefault"), "2", false),
        ("user", json!({"runAsUser": 1000}), "2", false),
        ("admin", admin, "2", true),
        (
            "unconfined",
            json!({"seccompProfile": {"type": "Unconfined"}, "capabilities": {"add": ["SYS_ADMIN"]}}),
            "0",
            true,
        ),
        ("privileged", json!({"privileged": true}), "0", true),
    ] {
        let found = output(&platform, name, context, FILTERED);
        assert!(found.contains(&format!("Seccomp:\t{status}")), "{name}: {found}");
        assert!(found.contains("NoNewPrivs:\t0"), "{name}: programs may gain rights as before: {found}");
        assert_eq!(found.contains("Operation not permitted"), !unshared, "{name}: {found}");
        assert!(found.trim_end().ends_with(if name == "user" { "1000" } else { "0" }), "{name}: {found}");
    }
    let local =
        json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "no-mkdir.json"}, "runAsUser": 1000});
    let found = output(&platform, "local", local, "mkdir /tmp/a; unshare -U true && echo shared");
    assert!(found.contains("Function not implemented") && found.contains("shared"), "{found}");
}

#[test]
fn a_profile_that_is_not_there_or_can_not_be_used_is_told() {
    let platform = Platform::new();
    let folder = platform.data_dir().join("seccomp");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("notify.json"), json!({"defaultAction": "SCMP_ACT_NOTIFY"}).to_string()).unwrap();
    for (name, file, wanted) in [
        ("missing", "none.json", "can't read the profile"),
        ("unsupported", "notify.json", "defaultAction: \"SCMP_ACT_NOTIFY\""),
    ] {
        let context = json!({"seccompProfile": {"type": "Localhost", "localhostProfile": file}});
        let container =
            json!({"name": "main", "image": "pumice.sh/host", "command": ["true"], "securityContext": context});
        let pod =
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}});
        platform.kubectl_with_input(["create", "-f", "-"], &pod.to_string()).ok();
        eventually(&format!("pod {name} says why it waits"), || {
            let pod = platform.get("pod", name).unwrap_or_default();
            let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
            let is_told = waiting["reason"] == "CreateContainerError"
                && waiting["message"].as_str().is_some_and(|message| message.contains(wanted));
            if is_told { Ok(()) } else { Err(pod["status"].to_string()) }
        });
    }
}

#[test]
fn what_the_kernel_shows_of_the_machine_is_empty_or_can_be_read_only() {
    let platform = Platform::new();
    let script = "wc -c < /proc/interrupts; wc -c < /proc/keys; ls -A /sys/firmware /proc/acpi 2>/dev/null | grep -v : | wc -w
        for file in /proc/sysrq-trigger /proc/sys/kernel/core_pattern /proc/irq/default_smp_affinity; do
            ( : >> $file ) 2>/dev/null && echo \"$file can be written\"
        done
        ls /dev/fuse /dev/kmsg /dev/mem 2>/dev/null; grep CapBnd /proc/self/status; grep -c . /proc/self/mounts > /dev/null
        cat /proc/sys/net/ipv4/ping_group_range";
    let found = output(&platform, "plain", json!({}), script);
    let lines: Vec<&str> = found.lines().collect();
    assert_eq!(lines[..3], ["0", "0", "0"], "{found}");
    // Docker's rights without those to packets of any kind and to device nodes.
    assert_eq!(lines[3], "CapBnd:\t00000000a00405fb", "{found}");
    assert_eq!(lines[4].split_whitespace().collect::<Vec<_>>(), ["0", "2147483647"], "{found}");
}

/// A pod that `restricted` lets in.
fn unprivileged(name: &str, script: &str) -> Value {
    let context = json!({
        "runAsNonRoot": true, "runAsUser": 1234, "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
    });
    let container = json!({"name": "main", "image": "pumice.sh/host", "command": ["/bin/sh", "-c", script], "securityContext": context});
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "team"},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    })
}

#[test]
fn pods_of_a_restricted_namespace_see_programs_of_the_host_and_no_files_of_its_people() {
    let platform = Platform::new();
    platform.kubectl(["create", "namespace", "team"]).ok();
    platform.kubectl(["label", "namespace", "team", "pod-security.kubernetes.io/enforce=restricted"]).ok();
    let scratch = platform.scratch().display().to_string();
    let script = format!(
        "ls {scratch}; ls /etc/shadow /etc/machine-id; python3 -c 'print(6 * 7)'; echo a > /tmp/a && cat /tmp/a; id -u"
    );
    platform.kubectl_with_input(["create", "-f", "-"], &unprivileged("p", &script).to_string()).ok();
    let ended = |pod: &Value| matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    eventually("the pod has ended", || {
        let text = platform.kubectl(["get", "pod", "p", "-n", "team", "-o", "json"]).ok();
        let pod: Value = serde_json::from_str(&text).unwrap();
        if ended(&pod) { Ok(()) } else { Err(pod["status"].to_string()) }
    });
    let log = platform.kubectl(["logs", "p", "-n", "team"]).ok();
    assert_eq!(log.matches("No such file or directory").count(), 3, "{log}");
    assert!(log.ends_with("42\na\n1234\n"), "{log}");
}

#[test]
fn a_platform_has_a_profile_for_namespaces_that_say_nothing() {
    let platform = Platform::start(Setup { flags: vec!["--profile".into(), "baseline".into()] });
    let mut pod = unprivileged("p", "true");
    pod["metadata"]["namespace"] = "default".into();
    pod["spec"]["hostPID"] = true.into();
    let refused = platform.kubectl_with_input(["create", "-f", "-"], &pod.to_string());
    assert!(
        refused.stderr.contains("violates PodSecurity \"baseline:latest\": host namespaces (hostPID=true)"),
        "{refused:?}"
    );
    platform.kubectl(["label", "namespace", "default", "pod-security.kubernetes.io/enforce=privileged"]).ok();
    platform.kubectl_with_input(["create", "-f", "-"], &pod.to_string()).ok();
}

/// Fields of a pod as `kubectl` gives them: what they say is so, or they are refused where it is known first.
#[test]
fn fields_of_a_pods_security_do_what_they_say() {
    let platform = Platform::new();
    let container = |name: &str, script: &str| json!({"name": name, "image": "pumice.sh/host", "command": ["/bin/sh", "-c", script]});
    let pod = |name: &str, spec: Value| {
        let mut pod =
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"restartPolicy": "Never"}});
        pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        pod.to_string()
    };
    let create = |pod: &str| platform.kubectl_with_input(["create", "-f", "-"], pod);
    let look = "until grep -qa '^sleep.3601' /proc/[0-9]*/cmdline; do sleep 0.05; done; cat /proc/sys/net/ipv4/tcp_fin_timeout";
    let spec = json!({
        "shareProcessNamespace": true,
        "securityContext": {"sysctls": [{"name": "net.ipv4.tcp_fin_timeout", "value": "17"}]},
        "containers": [container("main", look), container("other", "exec sleep 3601")],
    });
    create(&pod("shared", spec)).ok();
    eventually("the other container has been seen", || {
        match platform.kubectl(["logs", "shared", "-c", "main"]).stdout {
            log if log == "17\n" => Ok(()),
            log => Err(log),
        }
    });

    let conflict = pod(
        "conflict",
        json!({"hostPID": true, "shareProcessNamespace": true, "containers": [container("main", "true")]}),
    );
    let refused = create(&conflict);
    assert!(
        refused.code != 0 && refused.stderr.contains("ShareProcessNamespace and HostPID cannot both be enabled"),
        "{refused:?}"
    );

    let spec = json!({"hostUsers": false, "containers": [container("main", "cat /proc/self/uid_map")]});
    create(&pod("apart", spec)).ok();
    eventually("the pod has shown its users", || {
        let log = platform.kubectl(["logs", "apart"]).stdout;
        let words: Vec<&str> = log.split_whitespace().collect();
        if matches!(words[..], ["0", first, "65536"] if first != "0") { Ok(()) } else { Err(log) }
    });
}

/// A pod that goes on when the platform ends, and the platform's own ways to start pods.
#[test]
fn a_platform_that_enforces_restricted_has_pods_with_users_of_their_own() {
    let mut platform = Platform::start(Setup { flags: vec!["--profile".into(), "restricted".into()] });
    let mut pod = unprivileged("p", "cat /proc/self/uid_map; touch /claim/a; echo up; exec sleep 600");
    pod["metadata"]["namespace"] = "default".into();
    pod["spec"]["volumes"] = json!([{"name": "claim", "emptyDir": {}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "claim", "mountPath": "/claim"}]);
    let mut root = pod.clone();
    root["metadata"]["name"] = "root".into();
    root["spec"]["containers"][0]["securityContext"] = json!({});
    let refused = platform.kubectl_with_input(["create", "-f", "-"], &root.to_string());
    assert!(refused.stderr.contains("violates PodSecurity \"restricted:latest\""), "{refused:?}");
    platform.kubectl_with_input(["create", "-f", "-"], &pod.to_string()).ok();
    let users = |platform: &Platform| {
        let log = platform.kubectl(["logs", "p"]).stdout;
        if log.ends_with("up\n") { Ok(log) } else { Err(log) }
    };
    eventually("the pod is up", || users(&platform).map(drop));
    let before = users(&platform).unwrap();
    let words: Vec<&str> = before.split_whitespace().collect();
    assert!(matches!(words[..], ["0", first, "65536", "up"] if first != "0"), "{before}");
    platform.crash();
    platform.up();
    eventually("the pod is there", || {
        let found = platform.kubectl(["exec", "p", "--", "cat", "/proc/self/uid_map"]);
        if before.starts_with(&found.stdout) && found.code == 0 { Ok(()) } else { Err(format!("{found:?}")) }
    });
    let copy = platform.scratch().join("copy");
    platform.kubectl(["cp", "p:/etc/hostname", &copy.display().to_string()]).ok();
    assert_eq!(std::fs::read_to_string(copy).unwrap(), "p\n");
    platform.kubectl(["delete", "pod", "p", "--grace-period=1"]).ok();

    // What `jobctl` submits has the folder of its user and says nothing of rights: it is refused, and who asks hears why.
    platform.jobctl(["submit", "--name", "j", "--", "id"]).ok();
    eventually("it is told why the job has no pods", || {
        let why = platform.jobctl(["why", "j"]).stdout;
        let is_told = why.contains("pods can't be made") && why.contains("violates PodSecurity \"restricted:latest\"");
        if is_told { Ok(()) } else { Err(why) }
    });
}
