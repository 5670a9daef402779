//! What a tenant's pods are, whatever their user tries: the ways of `pumice-realkube` and more of this API server, each shown to
//! succeed before there is a Tenant, and held when there is one.

mod endpoints;
mod machine;
mod ways;

use pumice_realkube::tenant_attempts::Attempts;
use pumice_realkube::tenant_ways::{LAWFUL, WAYS};
use pumice_testkit::{Clients, Platform, Setup, eventually};
use serde_json::{Value, json};

use ways::{MORE, Try};

/// More than a tenant's user has, so that rules hold and not rights. A robot of hers has them as well.
const RIGHTS: &str = r#"---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: edits, namespace: alice},
 roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice},
 {kind: ServiceAccount, name: default, namespace: alice}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: more, namespace: alice}, rules: [
 {apiGroups: [""], resources: [pods/ephemeralcontainers, pods/status, pods/binding, bindings, events, pods], verbs: ["*"]},
 {apiGroups: [apps], resources: [daemonsets], verbs: ["*"]}, {apiGroups: [events.k8s.io], resources: [events], verbs: ["*"]},
 {apiGroups: [batch.volcano.sh, scheduling.volcano.sh], resources: ["*"], verbs: ["*"]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: more, namespace: alice},
 roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: more}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: own-namespace}, rules: [
 {apiGroups: [""], resources: [namespaces, namespaces/status], resourceNames: [alice], verbs: ["*"]},
 {apiGroups: [""], resources: [namespaces], verbs: [create]},
 {apiGroups: [pumice.sh], resources: [tenants], resourceNames: [alice], verbs: [get, delete]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: own-namespace},
 roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: own-namespace}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]}
---
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: fast}, provisioner: none.example.com}
---
{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: other}, spec: {weight: 1}}
---
{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: team}, spec: {weight: 1}}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: home-of-bob}, spec: {storageClassName: "", capacity: {storage: 1Gi},
 accessModes: [ReadWriteOnce], hostPath: {path: /srv/home/bob}}}
"#;

/// As the ways of `pumice-realkube` expect it.
const ALICE: &str = r#"---
{apiVersion: pumice.sh/v1alpha1, kind: Tenant, metadata: {name: alice}, spec: {user: alice, uid: 4001, gid: 4002,
 groups: [5000, 5001], namespace: alice, queues: [default, team], devices: [nvidia.com/gpu],
 hostPaths: [{path: /data/alice}, {path: /data/shared, readOnly: true}], home: {mountPath: /home/alice, persistentVolume: home},
 volumes: [{mountPath: /team, hostPath: /srv/team, readOnly: true}]}}
---
{apiVersion: pumice.sh/v1alpha1, kind: Tenant, metadata: {name: bob}, spec: {user: bob, uid: 4009, gid: 4009, namespace: bob,
 home: {mountPath: /home/bob, persistentVolume: home-of-bob}}}
"#;

/// Ways that another part of the platform holds, or this one otherwise than a cluster's policies do.
const ELSEWHERE: [&str; 5] = [
    // Admission of Tenants.
    "tenant-deleted",
    // Nothing makes their pods here.
    "daemon-set",
    "replication-controller",
    // No annotation of a namespace changes with its status here.
    "namespace-with-status",
    // It would close the queue of all others here; `command-to-a-queue` is the same for none.
    "command-for-a-queue",
];

/// A namespace as its controller makes it, but for the rights.
pub(crate) fn make_namespace(platform: &Platform, name: &str, labels: &Value) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
    platform.kubectl_with_input(["create", "-f", "-"], &namespace.to_string()).ok();
    let account = ["get", "serviceaccount", "default", "-n", name];
    eventually("there is a service account", || match platform.kubectl(account).code {
        0 => Ok(()),
        _ => Err(String::new()),
    });
}

/// Makes Tenants of a namespace that is there.
fn make_tenants(platform: &Platform, manifests: &str) {
    platform.kubectl(["label", "namespace", "alice", "pumice.sh/tenant=alice"]).ok();
    platform.kubectl_with_input(["create", "-f", "-"], manifests).ok();
}

#[test]
fn every_way_round_a_tenants_identity_is_held() {
    tried_and_held(&Platform::start(Setup { flags: vec!["--without-pods".to_owned()] }));
}

/// Where Volcano's rules are another program's, a tenant's pods are the tenant's all the same.
#[test]
fn every_way_is_held_where_the_server_has_no_other_admission() {
    tried_and_held(&Platform::start(Setup {
        flags: ["--without-pods", "--admission=false"].map(str::to_owned).to_vec(),
    }));
}

/// Once more, as long as somebody else has changed the pod meanwhile.
fn again(attempt: impl Fn() -> Option<String>) -> Option<String> {
    let is_faster = |told: &Option<String>| told.as_ref().is_some_and(|told| told.contains("has been modified"));
    (0..5).map(|_| attempt()).find(|told| !is_faster(told)).unwrap_or_else(&attempt)
}

fn tried_and_held(platform: &Platform) {
    make_namespace(platform, "alice", &json!({}));
    platform.kubectl_with_input(["create", "-f", "-"], RIGHTS).ok();
    let tenant = Clients::new(&platform.kubeconfig_without_rights("alice"), platform.scratch());
    let attempts = |round| Attempts { tenant: tenant.clone(), administrator: platform, round };
    let ways: Vec<_> = WAYS.iter().filter(|way| !ELSEWHERE.contains(&way.name)).collect();

    let open = attempts("open");
    open.make_base().expect("a pod");
    // Nobody but a component or an administrator says whose a namespace is, so without that rule it is one who does.
    let administrators = Attempts { tenant: (**platform).clone(), administrator: platform, round: "open" };
    let is_link = |name: &str| name.starts_with("namespace-");
    let by = |name: &str| if is_link(name) { &administrators } else { &open };
    let mut failed: Vec<String> = ways.iter().filter_map(|way| again(|| by(way.name).unsuccessful(way))).collect();
    let more = |name: &str| {
        let tenant = if is_link(name) { &administrators.tenant } else { &tenant };
        Try { tenant, administrator: platform, round: "open" }
    };
    failed.extend(MORE.iter().filter_map(|way| again(|| more(way.name()).unsuccessful(way))));
    assert_eq!(failed, Vec::<String>::new(), "ways that lead nowhere anyhow");

    make_tenants(platform, ALICE);
    let held = attempts("held");
    held.make_base().expect("a pod");
    let mut unheld: Vec<String> = ways.iter().filter_map(|way| again(|| held.unheld(way))).collect();
    let more = Try { tenant: &tenant, administrator: platform, round: "held" };
    unheld.extend(MORE.iter().filter_map(|way| again(|| more.unheld(way))));
    let tried = ways.len() + MORE.len();
    println!("{tried} tried, {tried} succeed without a Tenant, {} held with one", tried - unheld.len());
    assert_eq!(unheld, Vec::<String>::new(), "{} ways are open", unheld.len());
    let refused: Vec<String> = LAWFUL
        .iter()
        .filter_map(|(name, request)| held.send(name, *request).err().map(|told| format!("{name}: {told}")))
        .collect();
    assert_eq!(refused, Vec::<String>::new(), "lawful requests are refused");
}

#[test]
fn a_suspended_tenant_and_one_that_is_gone_get_no_new_work() {
    let platform = Platform::new();
    make_namespace(&platform, "alice", &json!({}));
    platform.kubectl_with_input(["create", "-f", "-"], RIGHTS).ok();
    let tenant = Clients::new(&platform.kubeconfig_without_rights("alice"), platform.scratch());
    make_tenants(&platform, ALICE);
    let pod = |name: &str| {
        let manifest = format!(
            "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{containers: [{{name: main, image: none}}]}}}}"
        );
        // By an administrator, since a suspended tenant's user has no rights left.
        platform.kubectl_with_input(["create", "-n", "alice", "-f", "-"], &manifest)
    };
    let attempts = Attempts { tenant, administrator: &platform, round: "before" };
    attempts.make_base().expect("a pod");
    let suspend = |yes: bool| {
        let patch = json!({"spec": {"suspended": yes}}).to_string();
        platform.kubectl(["patch", "tenant", "alice", "--type=merge", "-p", &patch]).ok();
    };
    suspend(true);
    let told = pod("suspended");
    assert!(told.code != 0 && told.stderr.contains("pumice tenant resume alice"), "{told:?}");
    suspend(false);
    pod("resumed").ok();
    suspend(true);
    platform.kubectl(["delete", "tenant", "alice"]).ok();
    let told = pod("gone");
    assert!(told.code != 0 && told.stderr.contains("labelled for tenant alice, which is not there"), "{told:?}");
    platform.kubectl(["label", "namespace", "alice", "pumice.sh/tenant-", "pod-security.kubernetes.io/enforce-"]).ok();
    pod("nobodys").ok();
}

/// A webhook of an administrator that makes every pod another user's.
const UNDOES: &str = r#"
import base64, http.server, json, ssl, sys
PATCH = [{"op": "add", "path": "/spec/securityContext", "value": {"runAsUser": 0, "supplementalGroups": [0]}},
         {"op": "add", "path": "/spec/containers/0/securityContext", "value": {"privileged": True, "runAsUser": 0}},
         {"op": "add", "path": "/spec/hostPID", "value": json.loads(sys.argv[3])}]
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        patch = base64.b64encode(json.dumps(PATCH).encode()).decode()
        answer = {"uid": asked["request"]["uid"], "allowed": True, "patchType": "JSONPatch", "patch": patch}
        body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}).encode()
        self.send_response(200); self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
    def log_message(self, *words): pass
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER); context.load_cert_chain(sys.argv[1], sys.argv[2])
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True); server.serve_forever()
"#;

#[test]
fn what_a_webhook_undoes_is_forced_again_or_refused() {
    use std::io::BufRead as _;
    let platform = Platform::new();
    make_namespace(&platform, "alice", &json!({}));
    make_namespace(&platform, "ops", &json!({}));
    make_tenants(&platform, ALICE);
    let (certificate, key, authority) = platform.certificate_files(&platform.scratch().join("webhook"));
    let script = platform.file("webhook.py", UNDOES);
    let authority = platform.run(std::path::Path::new("base64"), ["-w0", authority.to_str().unwrap()], None).ok();
    for (round, host_pid) in ["false", "true"].into_iter().enumerate() {
        let mut server = std::process::Command::new("python3")
            .arg(&script)
            .args([&certificate, &key])
            .arg(host_pid)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut port = String::new();
        std::io::BufReader::new(server.stdout.take().unwrap()).read_line(&mut port).unwrap();
        let hook = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "undoes"},
            "webhooks": [{"name": "undoes.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "clientConfig": {"url": format!("https://127.0.0.1:{}/", port.trim()), "caBundle": authority.trim()},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]}],
        });
        platform.kubectl_with_input(["create", "-f", "-"], &hook.to_string()).ok();
        let make = |namespace: &str| {
            let pod = format!(
                "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: p{round}}}, spec: {{containers: [{{name: main, image: none}}]}}}}"
            );
            platform.kubectl_with_input(["create", "-n", namespace, "-o", "json", "-f", "-"], &pod)
        };
        let undone: Value = serde_json::from_str(&make("ops").ok()).unwrap();
        assert_eq!(undone["spec"]["containers"][0]["securityContext"]["privileged"], true, "{undone}");
        let made = make("alice");
        platform.kubectl(["delete", "mutatingwebhookconfiguration", "undoes"]).ok();
        server.kill().unwrap();
        server.wait().unwrap();
        if host_pid == "true" {
            assert!(made.code != 0 && made.stderr.contains("spec.hostPID"), "{made:?}");
            continue;
        }
        let pod: Value = serde_json::from_str(&made.ok()).unwrap();
        assert_eq!(pod["spec"]["securityContext"]["runAsUser"], 4001, "{pod}");
        assert_eq!(pod["spec"]["securityContext"]["supplementalGroups"], json!([5000, 5001]));
        let confined = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
        assert_eq!(pod["spec"]["containers"][0]["securityContext"], confined);
    }
}
