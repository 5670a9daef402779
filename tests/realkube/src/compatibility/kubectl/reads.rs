//! Commands that look.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use pumice_testkit::{Clients, eventually};

use super::{fails, fed, map, namespace, object, ok, run, says, squeeze, unplaced, waiting_job};

pub fn get(clients: &Clients) {
    fed(clients, "create -f -", &unplaced("p"));
    fed(clients, "create -f -", &waiting_job("j"));
    says(clients, "get pod p", "NAME READY STATUS RESTARTS AGE p 0/1 Pending 0");
    says(clients, "get pods p --show-labels", "tier=x");
    says(clients, "get pod/p -o name", "pod/p");
    says(clients, "get vcjob j", "NAME STATUS MINAVAILABLE");
    says(clients, "get queue default", "NAME PARENT");
    fails(clients, "get pod none", "Error from server (NotFound): pods \"none\" not found");
    says(clients, "get pod none --ignore-not-found", "");
    fails(clients, "get nothings", "the server doesn't have a resource type \"nothings\"");
    says(clients, "get all -o name", "pod/p");
}

pub fn wide(clients: &Clients) {
    fed(clients, "create -f -", &unplaced("p"));
    let wanted = "NAME READY STATUS RESTARTS AGE IP NODE NOMINATED NODE READINESS GATES p 0/1 Pending 0";
    says(clients, "get pods -o wide", wanted);
    says(
        clients,
        "get nodes -o wide",
        "NAME STATUS ROLES AGE VERSION INTERNAL-IP EXTERNAL-IP OS-IMAGE KERNEL-VERSION CONTAINER-RUNTIME",
    );
}

pub fn yaml(clients: &Clients) {
    fed(clients, "create -f -", &map("m", "1"));
    let text = ok(clients, "get cm m -o yaml");
    assert!(text.starts_with("apiVersion: v1\ndata:\n  a: \"1\"\nkind: ConfigMap\nmetadata:\n"), "{text}");
    assert!(!text.contains("managedFields"), "{text}");
    assert_eq!(object(clients, "cm", "m")["metadata"]["labels"]["tier"], "x");
}

pub fn jsonpath(clients: &Clients) {
    for (name, value) in [("a", "2"), ("b", "1")] {
        fed(clients, "create -f -", &map(name, value));
    }
    let of_ours = "get cm -l tier=x --sort-by=.data.a";
    assert_eq!(ok(clients, &format!("{of_ours} -o jsonpath={{.items[*].metadata.name}}")), "b a");
    let columns = ok(clients, &format!("{of_ours} -o custom-columns=NAME:.metadata.name,A:.data.a"));
    assert_eq!(squeeze(&columns), "NAME A b 1 a 2");
    assert_eq!(ok(clients, "get cm a -o go-template={{.data.a}}"), "2");
}

pub fn selected(clients: &Clients) {
    for name in ["a", "b"] {
        fed(clients, "create -f -", &map(name, "1"));
    }
    ok(clients, "label cm b tier=y --overwrite");
    assert_eq!(ok(clients, "get cm -l 'tier in (y, z)' -o name"), "configmap/b\n");
    assert_eq!(ok(clients, "get cm -l tier,tier!=y -o name"), "configmap/a\n");
    assert_eq!(ok(clients, "get cm --field-selector=metadata.name=a -o name"), "configmap/a\n");
    fed(clients, "create -f -", &unplaced("p"));
    assert_eq!(ok(clients, "get pods --field-selector=status.phase=Pending,spec.nodeName= -o name"), "pod/p\n");
    says(clients, "get cm -A --field-selector=metadata.name=b", "NAMESPACE NAME DATA AGE");
    fails(clients, "get pods --field-selector=spec.nothing=1", "field label not supported: spec.nothing");
    fails(clients, "get pods -l 'a in (b'", "unable to parse requirement");
}

pub fn watched(clients: &Clients) {
    let mut command = clients.command(clients.kubectl_program());
    command.args(["get", "cm", "-l", "tier=x", "-w", "--output-watch-events", "--no-headers"]).stdout(Stdio::piped());
    let mut child = command.spawn().expect("kubectl starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe was asked for")).lines();
    let mut next = || {
        let line = lines.next().expect("an event").expect("text");
        line.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
    };
    fed(clients, "create -f -", &map("m", "1"));
    assert_eq!(next(), "ADDED m");
    fed(clients, "replace -f -", &map("m", "2"));
    assert_eq!(next(), "MODIFIED m");
    ok(clients, "delete cm m");
    assert_eq!(next(), "DELETED m");
    child.kill().expect("kubectl is killed");
    child.wait().expect("kubectl ends");
}

pub fn chunks(clients: &Clients) {
    let list: Vec<String> = (0..25).map(|number| map(&format!("m{number:02}"), "1")).collect();
    fed(clients, "create -f -", &list.join("---\n"));
    let found = run(clients, "get cm -l tier=x --chunk-size=7 -o name -v=6");
    assert_eq!(found.stdout.lines().count(), 25, "{found:?}");
    assert_eq!(found.stderr.matches("continue=").count(), 3, "{found:?}");
}

pub fn describe(clients: &Clients) {
    fed(clients, "create -f -", &unplaced("p"));
    fed(clients, "create -f -", &waiting_job("j"));
    fed(clients, "create -f -", &map("m", "1"));
    says(clients, "describe pod p", "Status: Pending");
    says(clients, "describe pod p", "Node-Selectors: nowhere=at-all");
    says(clients, "describe vcjob j", "API Version: batch.volcano.sh/v1alpha1");
    says(clients, "describe queue default", "Weight:");
    says(clients, "describe cm m", "Data ==== a: ---- 1");
    says(clients, "describe nodes", "Allocatable:");
    eventually("the reason for waiting is told", || {
        let text = ok(clients, "describe pod p");
        if text.contains("FailedScheduling") { Ok(()) } else { Err(text) }
    });
}

pub fn explain(clients: &Clients) {
    for (line, wanted) in [
        ("explain pods.spec.containers", "image <string>"),
        ("explain pod --recursive", "terminationGracePeriodSeconds <integer>"),
        ("explain deployment.spec.strategy", "rollingUpdate"),
        ("explain vcjob.spec", "minAvailable <integer>"),
        ("explain queue", "KIND: Queue"),
    ] {
        says(clients, line, wanted);
    }
    fails(clients, "explain vcjob.nothing", "does not exist");
}

pub fn resources(clients: &Clients) {
    let resources = ok(clients, "api-resources --no-headers");
    let lines: Vec<String> = resources.lines().map(squeeze).collect();
    for wanted in [
        "pods po v1 true Pod",
        "jobs vcjob,vj batch.volcano.sh/v1alpha1 true Job",
        "deployments deploy apps/v1 true Deployment",
    ] {
        assert!(lines.iter().any(|line| line == wanted), "no {wanted:?} in {resources}");
    }
    says(clients, "api-resources --api-group=bus.volcano.sh -o name", "commands.bus.volcano.sh");
    says(clients, "api-versions", "batch.volcano.sh/v1alpha1");
}

pub fn about(clients: &Clients) {
    says(clients, "version -o json", "\"gitVersion\": \"v1.");
    says(clients, "cluster-info", "is running at");
    says(clients, "get --raw /readyz", "ok");
    says(clients, "get --raw /api/v1/namespaces", "\"kind\":\"NamespaceList\"");
}

pub fn events(clients: &Clients) {
    fed(clients, "create -f -", &unplaced("p"));
    eventually("the scheduler tells why the pod waits", || {
        let text = ok(clients, "events --for pod/p");
        if text.contains("FailedScheduling") { Ok(()) } else { Err(text) }
    });
    says(clients, "get events", "LAST SEEN TYPE REASON OBJECT MESSAGE");
    says(clients, "get events.events.k8s.io --field-selector=regarding.name=p", "pod/p");
}

pub fn can_i(clients: &Clients) {
    says(clients, "auth can-i create vcjobs", "yes");
    ok(clients, "create serviceaccount sa");
    let account = format!("--as=system:serviceaccount:{}:sa", namespace(clients));
    let refused = run(clients, &format!("auth can-i list pods {account}"));
    assert_eq!((refused.code, refused.stdout.trim()), (1, "no"), "{refused:?}");
    ok(clients, "create role reader --verb=get,list --resource=pods");
    ok(clients, &format!("create rolebinding readers --role=reader --serviceaccount={}:sa", namespace(clients)));
    eventually("the binding counts", || {
        let asked = run(clients, &format!("auth can-i list pods {account}"));
        if asked.code == 0 { Ok(()) } else { Err(asked.stdout) }
    });
    says(clients, &format!("auth can-i --list {account}"), "pods [] [] [get list]");
}

pub fn who_am_i(clients: &Clients) {
    says(clients, "auth whoami", "Groups [system:masters system:authenticated]");
}

pub fn token(clients: &Clients) {
    ok(clients, "create serviceaccount sa");
    let token = ok(clients, "create token sa");
    let kubeconfig = clients.scratch().join("token.kubeconfig");
    let flat =
        ok(clients, "config view --raw --minify -o jsonpath='{.clusters[0].cluster.certificate-authority-data}'");
    let server = ok(clients, "config view --raw --minify -o jsonpath={.clusters[0].cluster.server}");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: '{server}', \
         certificate-authority-data: {flat}}}}}]\nusers: [{{name: u, user: {{token: {token}}}}}]\ncontexts: [{{name: c, context: {{cluster: c, \
         user: u, namespace: {}}}}}]\n",
        namespace(clients)
    );
    std::fs::write(&kubeconfig, text).expect("write a kubeconfig");
    let theirs = Clients::new(&kubeconfig, clients.scratch()).with_kubectl(clients.kubectl_program());
    fails(&theirs, "get pods", "Error from server (Forbidden): pods is forbidden: User \"system:serviceaccount:");
    ok(clients, &format!("create rolebinding viewers --clusterrole=view --serviceaccount={}:sa", namespace(clients)));
    eventually("the binding counts", || {
        let asked = run(&theirs, "get pods");
        if asked.code == 0 { Ok(()) } else { Err(asked.stderr) }
    });
    fails(&theirs, "get secrets", "Forbidden");
}
