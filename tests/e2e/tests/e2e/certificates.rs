//! Another certificate authority takes the place of the first one while jobs run.

use std::process::Stdio;

use pumice_testkit::{Clients, Platform, Setup, binary, eventually};
use serde_json::json;

/// Calls the API again and again, each time over a new connection, as a program in a pod does: for each call the code, and how many
/// authorities the pod trusts.
const CALLS: &str = r#"cd /var/run/secrets/kubernetes.io/serviceaccount
while :; do
  curl -sS -o /dev/null -w '%{http_code} ' --max-time 10 --cacert ca.crt -H "Authorization: Bearer $(cat token)" \
    "https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT/api" || echo failed
  grep -c BEGIN ca.crt
  sleep 0.05
done"#;

fn pumice(platform: &Platform, args: &[&str]) -> pumice_testkit::Output {
    let data = platform.data_dir().display().to_string();
    platform.run(&binary("pumice"), [args, &["--data-dir", &data]].concat(), None)
}

/// Waits until the pod's last call was answered while it trusted so many authorities; all of its calls were answered.
fn pod_trusts(platform: &Platform, authorities: u32) {
    let wanted = format!("200 {authorities}");
    eventually(&format!("the pod trusts {authorities}"), || {
        let log = platform.kubectl(["logs", "caller"]);
        if log.code != 0 {
            // It is about to start.
            return Err(log.stderr);
        }
        let log = log.stdout;
        let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let other = whole.lines().find(|line| !["200 1", "200 2"].contains(line));
        assert_eq!(other, None, "every call is answered");
        if whole.lines().last() == Some(&wanted) { Ok(()) } else { Err(log) }
    });
}

#[test]
fn the_authority_is_rotated_while_pods_call_the_api() {
    let mut platform = Platform::start(Setup::default());
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "caller"}, "spec": {
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": true,
        "containers": [{"name": "c", "image": "pumice.sh/host", "command": ["sh", "-c", CALLS]}],
    }});
    platform.kubectl_with_input(["create", "-f", "-"], &pod.to_string()).ok();
    pod_trusts(&platform, 1);
    let old = platform.scratch().join("old.kubeconfig");
    std::fs::copy(platform.data_dir().join("kubeconfig"), &old).unwrap();
    let with_old = Clients::new(&old, platform.scratch());
    let refused = pumice(&platform, &["ca", "rotate", "--finish"]);
    assert!(refused.code != 0 && refused.stderr.contains("no rotation is under way"), "{refused:?}");

    let began = pumice(&platform, &["ca", "rotate"]).ok();
    assert!(began.contains("both are trusted since") && began.contains("next: `pumice ca rotate --finish`"), "{began}");
    let again = pumice(&platform, &["ca", "rotate"]);
    assert!(again.code != 0 && again.stderr.contains("another authority has been trusted since"), "{again:?}");
    pod_trusts(&platform, 2);
    // Whoever has not heard of it works on, and so does whoever has.
    with_old.kubectl(["get", "pods"]).ok();
    platform.kubectl(["get", "pods"]).ok();
    let mut watch = with_old.command(with_old.kubectl_program());
    let mut watch = watch.args(["get", "pods", "-w"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();

    eventually("the old authority is dropped", || {
        let finished = pumice(&platform, &["ca", "rotate", "--finish"]);
        if finished.code == 0 { Ok(()) } else { Err(finished.stderr) }
    });
    assert_ne!(with_old.kubectl(["get", "pods"]).code, 0, "what the old authority issued is refused");
    eventually("a watch of before ends", || match watch.try_wait().unwrap() {
        Some(_) => Ok(()),
        None => Err("it goes on".to_owned()),
    });
    platform.kubectl(["get", "pods"]).ok();
    pod_trusts(&platform, 1);
    let shown = pumice(&platform, &["ca", "show"]).ok();
    assert!(shown.contains("tokens of pods from before the rotation count until"), "{shown}");
    let metrics = platform.kubectl(["get", "--raw", "/metrics"]).ok();
    assert!(
        metrics.contains("pumice_certificate_expiry_timestamp_seconds{certificate=\"administrator\"}"),
        "{metrics}"
    );

    // It is the same after a crash.
    platform.crash();
    platform.up();
    platform.kubectl(["get", "pods"]).ok();
    assert_ne!(with_old.kubectl(["get", "pods"]).code, 0);
}
