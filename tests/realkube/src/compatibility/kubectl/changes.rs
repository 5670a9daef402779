//! Commands that make, change and delete.

use pumice_testkit::{Clients, eventually, words};

use super::{fails, fed, map, object, ok, run, says, unplaced, waiting_job};

pub fn create(clients: &Clients) {
    let both = format!("{}---\n{}", map("m", "1"), waiting_job("j"));
    assert_eq!(fed(clients, "create -f -", &both), "configmap/m created\njob.batch.volcano.sh/j created\n");
    let again = clients.kubectl_with_input(["create", "-f", "-"], &map("m", "1"));
    assert!(again.code != 0 && again.stderr.contains("(AlreadyExists)"), "{again:?}");
    let generated = "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: gen-}\n";
    let name = fed(clients, "create -o name -f -", generated);
    assert!(name.starts_with("configmap/gen-"), "{name}");
    let greedy = waiting_job("greedy").replace("minAvailable: 1", "minAvailable: 9");
    let refused = clients.kubectl_with_input(["create", "-f", "-"], &greedy);
    assert!(refused.stderr.contains("should not be greater than total replicas"), "{refused:?}");
}

pub fn create_by_words(clients: &Clients) {
    for (line, wanted) in [
        ("create configmap lit --from-literal=k=v", "configmap/lit created"),
        ("create secret generic s --from-literal=k=v", "secret/s created"),
        ("create serviceaccount sa", "serviceaccount/sa created"),
        ("create role r --verb=get --resource=pods", "role.rbac.authorization.k8s.io/r created"),
        ("create rolebinding rb --role=r --serviceaccount=x:sa", "rolebinding.rbac.authorization.k8s.io/rb created"),
        ("create quota q --hard=pods=5", "resourcequota/q created"),
        ("create poddisruptionbudget b --selector=a=b --min-available=1", "poddisruptionbudget.policy/b created"),
        ("create deployment d --image=none --replicas=0", "deployment.apps/d created"),
        ("create job j --image=none --dry-run=server", "job.batch/j created (server dry run)"),
        ("create cronjob c --image=none --schedule='0 0 1 1 *'", "cronjob.batch/c created"),
    ] {
        says(clients, line, wanted);
    }
    assert_eq!(object(clients, "secret", "s")["data"]["k"], "dg==");
}

pub fn apply(clients: &Clients) {
    assert_eq!(fed(clients, "apply -f -", &map("m", "1")), "configmap/m created\n");
    assert_eq!(fed(clients, "apply -f -", &map("m", "1")), "configmap/m unchanged\n");
    ok(clients, "label cm m theirs=1");
    let changed = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m, labels: {ours: \"1\"}}\ndata: {z: \"2\"}\n";
    assert_eq!(fed(clients, "apply -f -", changed), "configmap/m configured\n");
    let found = object(clients, "cm", "m");
    assert_eq!(found["data"], serde_json::json!({"z": "2"}), "what was left out goes");
    assert_eq!(found["metadata"]["labels"], serde_json::json!({"ours": "1", "theirs": "1"}), "what others wrote stays");
    assert_eq!(fed(clients, "apply -f -", &waiting_job("j")), "job.batch.volcano.sh/j created\n");
    fed(clients, "apply -f -", &waiting_job("j"));
    // Lists merge by their keys.
    let service = |ports: &str| {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: s}}\nspec: {{clusterIP: None, selector: {{a: b}}, ports: [{ports}]}}\n"
        )
    };
    fed(clients, "apply -f -", &service("{name: one, port: 1}, {name: two, port: 2}"));
    ok(clients, "patch service s -p '{\"spec\":{\"ports\":[{\"name\":\"theirs\",\"port\":9}]}}'");
    fed(clients, "apply -f -", &service("{name: two, port: 2}, {name: three, port: 3}"));
    assert_eq!(ok(clients, "get service s -o jsonpath={.spec.ports[*].name}"), "theirs two three");
}

pub fn apply_on_the_server(clients: &Clients) {
    let applied = |manager: &str, value: &str, more: &str| {
        clients.kubectl_with_input(
            words(&format!("apply --server-side --field-manager={manager} {more} -f -")),
            &map("m", value),
        )
    };
    assert_eq!(applied("one", "1", "").ok(), "configmap/m serverside-applied\n");
    assert_eq!(applied("one", "2", "").ok(), "configmap/m serverside-applied\n");
    let refused = applied("two", "3", "");
    assert!(refused.code != 0 && refused.stderr.contains("conflict with \"one\": .data.a"), "{refused:?}");
    applied("two", "3", "--force-conflicts").ok();
    assert_eq!(ok(clients, "get cm m -o jsonpath={.data.a}"), "3");
    let text = ok(clients, "get cm m -o yaml --show-managed-fields");
    assert!(text.contains("manager: one") && text.contains("manager: two"), "{text}");
    fed(clients, "apply --server-side -f -", &waiting_job("j"));
    fed(clients, "apply --server-side -f -", &waiting_job("j").replace("minAvailable: 1", "minAvailable: 0"));
    assert_eq!(ok(clients, "get vcjob j -o jsonpath={.spec.minAvailable}"), "0");
}

pub fn kustomization(clients: &Clients) {
    let folder = clients.scratch().join("base");
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::write(folder.join("m.yaml"), map("m", "1")).expect("a manifest");
    std::fs::write(folder.join("kustomization.yaml"), "namePrefix: dev-\nresources: [m.yaml]\n")
        .expect("a kustomization");
    says(clients, "apply -k base", "configmap/dev-m created");
    says(clients, "delete -k base", "configmap \"dev-m\" deleted");
}

pub fn dry_run(clients: &Clients) {
    let said = fed(clients, "apply --dry-run=server -f -", &waiting_job("j"));
    assert_eq!(said, "job.batch.volcano.sh/j created (server dry run)\n");
    fails(clients, "get vcjob j", "NotFound");
    says(clients, "run x --image=none --dry-run=server -o yaml", "restartPolicy: Always");
}

pub fn validate(clients: &Clients) {
    let misspelt = unplaced("p").replace("image:", "imagee: x, image:");
    let strict = clients.kubectl_with_input(["create", "-f", "-"], &misspelt);
    let wanted = "strict decoding error: unknown field \"spec.containers[0].imagee\"";
    assert!(strict.code != 0 && strict.stderr.contains(wanted), "{strict:?}");
    let warned = clients.kubectl_with_input(["create", "--validate=warn", "--dry-run=server", "-f", "-"], &misspelt);
    assert!(warned.code == 0 && warned.stderr.contains("unknown field \"spec.containers[0].imagee\""), "{warned:?}");
    let ignored = clients.kubectl_with_input(["create", "--validate=ignore", "-f", "-"], &misspelt);
    assert!(ignored.code == 0 && ignored.stderr.is_empty(), "{ignored:?}");
}

pub fn diff(clients: &Clients) {
    differs(clients, "");
}

pub fn diff_on_the_server(clients: &Clients) {
    differs(clients, "--server-side");
}

fn differs(clients: &Clients, more: &str) {
    fed(clients, &format!("apply {more} -f -"), &map("m", "1"));
    assert_eq!(fed(clients, &format!("diff {more} -f -"), &map("m", "1")), "");
    let changed = clients.kubectl_with_input(words(&format!("diff {more} -f -")), &map("m", "2"));
    assert_eq!(changed.code, 1, "{changed:?}");
    assert!(changed.stdout.contains("-  a: \"1\"\n+  a: \"2\""), "{changed:?}");
    assert_eq!(ok(clients, "get cm m -o jsonpath={.data.a}"), "1", "nothing is changed");
}

pub fn edit(clients: &Clients) {
    fed(clients, "create -f -", &map("m", "1"));
    fed(clients, "create -f -", &waiting_job("j"));
    for (what, change) in [("cm m", "s/^  a: .*/  a: \"7\"/"), ("vcjob j", "s/minAvailable: 1/minAvailable: 0/")] {
        let script = clients.scratch().join("editor");
        std::fs::write(&script, format!("sed -i '{change}' \"$1\"\n")).expect("write an editor");
        let editor = format!("sh {}", script.display());
        let edited = clients.clone().with("KUBE_EDITOR", editor).kubectl(words(&format!("edit {what}")));
        assert!(edited.code == 0 && edited.stdout.contains("edited"), "{what}: {edited:?}");
    }
    assert_eq!(object(clients, "cm", "m")["data"]["a"], "7");
}

pub fn patch_strategic(clients: &Clients) {
    fed(clients, "create -f -", &unplaced("p"));
    let patch = "patch pod p -p '{\"spec\":{\"containers\":[{\"name\":\"main\",\"image\":\"other\"}]}}'";
    says(clients, patch, "pod/p patched");
    assert_eq!(ok(clients, "get pod p -o jsonpath={.spec.containers[*].image}"), "other");
    fed(clients, "create -f -", &waiting_job("j"));
    fails(
        clients,
        "patch vcjob j -p '{\"spec\":{\"minAvailable\":0}}'",
        "application/strategic-merge-patch+json is not supported by",
    );
}

pub fn patch_merge(clients: &Clients) {
    fed(clients, "create -f -", &waiting_job("j"));
    says(clients, "patch vcjob j --type=merge -p '{\"spec\":{\"minAvailable\":0}}'", "job.batch.volcano.sh/j patched");
    assert_eq!(ok(clients, "get vcjob j -o jsonpath={.spec.minAvailable}"), "0");
    fed(clients, "create -f -", &map("m", "1"));
    ok(clients, "patch cm m --type=merge -p '{\"data\":{\"a\":null,\"b\":\"2\"}}'");
    assert_eq!(object(clients, "cm", "m")["data"], serde_json::json!({"b": "2"}));
}

pub fn patch_json(clients: &Clients) {
    fed(clients, "create -f -", &map("m", "1"));
    ok(
        clients,
        "patch cm m --type=json -p '[{\"op\":\"test\",\"path\":\"/data/a\",\"value\":\"1\"},{\"op\":\"move\",\"from\":\"/data/a\",\"path\":\"/data/b\"}]'",
    );
    assert_eq!(object(clients, "cm", "m")["data"], serde_json::json!({"b": "1"}));
    fails(
        clients,
        "patch cm m --type=json -p '[{\"op\":\"test\",\"path\":\"/data/b\",\"value\":\"9\"}]'",
        "The request is invalid",
    );
}

pub fn patch_status(clients: &Clients) {
    fed(clients, "create -f -", &unplaced("p"));
    ok(clients, "patch pod p --subresource=status --type=merge -p '{\"status\":{\"message\":\"hello\"}}'");
    says(clients, "get pod p --subresource=status -o jsonpath={.status.message}", "hello");
    ok(clients, "patch pod p --type=merge -p '{\"status\":{\"message\":\"ignored\"}}'");
    assert_eq!(object(clients, "pod", "p")["status"]["message"], "hello");
}

pub fn replace(clients: &Clients) {
    fed(clients, "create -f -", &map("m", "1"));
    assert_eq!(fed(clients, "replace -f -", &map("m", "2")), "configmap/m replaced\n");
    let before = object(clients, "cm", "m")["metadata"]["uid"].clone();
    fed(clients, "replace --force -f -", &map("m", "3"));
    assert_ne!(object(clients, "cm", "m")["metadata"]["uid"], before);
    let old = map("m", "4").replace("name: m,", "name: m, resourceVersion: \"1\",");
    let refused = clients.kubectl_with_input(["replace", "-f", "-"], &old);
    assert!(refused.code != 0 && refused.stderr.contains("(Conflict)"), "{refused:?}");
}

pub fn label(clients: &Clients) {
    fed(clients, "create -f -", &map("m", "1"));
    fed(clients, "create -f -", &waiting_job("j"));
    says(clients, "label cm m colour=red", "configmap/m labeled");
    fails(clients, "label cm m colour=blue", "already has a value");
    says(clients, "label cm m colour=blue --overwrite", "configmap/m labeled");
    says(clients, "label cm m colour-", "configmap/m unlabeled");
    ok(clients, "annotate vcjob j a.b/c=d");
    assert_eq!(object(clients, "vcjob", "j")["metadata"]["annotations"]["a.b/c"], "d");
    ok(clients, "annotate vcjob j a.b/c-");
}

pub fn taint(clients: &Clients) {
    // Other behaviours run beside this one: nobody is placed on a node of its own.
    let name = format!("taint-{}", super::namespace(clients));
    fed(clients, "create -f -", &format!("apiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\n"));
    let node = |line: &str| line.replace("NODE", &name);
    says(clients, &node("taint node NODE a=b:NoSchedule"), "tainted");
    says(clients, &node("taint node NODE a-"), "untainted");
    says(clients, &node("cordon NODE"), "cordoned");
    says(clients, &node("get node NODE"), "SchedulingDisabled");
    says(clients, &node("uncordon NODE"), "uncordoned");
    ok(clients, &node("delete node NODE"));
}

pub fn delete(clients: &Clients) {
    for name in ["a", "b", "c"] {
        fed(clients, "create -f -", &map(name, "1"));
    }
    fed(clients, "create -f -", &unplaced("p"));
    says(clients, "delete cm a", "configmap \"a\" deleted");
    assert_eq!(ok(clients, "delete cm -l tier=x").lines().count(), 2);
    says(clients, "delete pod p --force --grace-period=0", "pod \"p\" force deleted");
    fails(clients, "delete pod p", "Error from server (NotFound)");
    says(clients, "delete pod p --ignore-not-found", "");
    fed(clients, "create -f -", &waiting_job("j"));
    ok(clients, "delete vcjob j --timeout=30s");
    assert_eq!(ok(clients, "get vcjob -o name"), "");
}

pub fn cascade(clients: &Clients) {
    for (how, kept) in [("background", false), ("foreground", false), ("orphan", true)] {
        ok(clients, &format!("create deployment {how} --image=none --replicas=0"));
        let sets = format!("get rs -l app={how} -o name");
        eventually("it has a ReplicaSet", || {
            let sets = ok(clients, &sets);
            if sets.is_empty() { Err(sets) } else { Ok(()) }
        });
        ok(clients, &format!("delete deployment {how} --cascade={how} --timeout=30s"));
        match kept {
            true => assert!(!ok(clients, &sets).is_empty(), "an orphan stays"),
            false => eventually("the ReplicaSet goes", || {
                let sets = ok(clients, &sets);
                if sets.is_empty() { Ok(()) } else { Err(sets) }
            }),
        }
    }
}

pub fn namespace(clients: &Clients) {
    let name = format!("{}-gone", super::namespace(clients));
    ok(clients, &format!("create namespace {name}"));
    fed(clients, &format!("create -n {name} -f -"), &map("m", "1"));
    fed(clients, &format!("create -n {name} -f -"), &unplaced("p"));
    ok(clients, &format!("delete namespace {name} --timeout=60s"));
    fails(clients, &format!("get namespace {name}"), "NotFound");
    assert_eq!(run(clients, &format!("get cm,pods -n {name} -o name")).stdout, "");
}

pub fn reconcile(clients: &Clients) {
    let namespace = super::namespace(clients);
    let role = |verbs: &str| {
        format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {{name: r, namespace: {namespace}}}\nrules: [{{apiGroups: [\"\"], resources: [pods], verbs: [{verbs}]}}]\n"
        )
    };
    for verbs in ["get", "get, list"] {
        let said = fed(clients, "auth reconcile -f -", &role(verbs));
        assert!(said.contains("role.rbac.authorization.k8s.io/r reconciled"), "{said}");
    }
    says(clients, "describe role r", "[get list]");
}
