//! What is not served, or wrong, is said in words; kubectl never hangs.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_served_is_refused_cleanly() {
    let cluster = furnished().await;
    let kubectl = Kubectl(&cluster);
    for (line, wanted) in [
        ("patch queue default -p '{\"spec\":{\"weight\":2}}'", "use --type=merge"),
        ("scale vcjob j --replicas=2", "could not find the requested resource"),
        ("top pods", "Metrics API not available"),
        ("top nodes", "Metrics API not available"),
        ("get nothings", "the server doesn't have a resource type \"nothings\""),
        ("get daemonsets", "the server doesn't have a resource type \"daemonsets\""),
        ("rollout status daemonset/x", "the server doesn't have a resource type"),
        ("get pod none", "Error from server (NotFound): pods \"none\" not found"),
        ("get pods -n default none", "pods \"none\" not found"),
        ("logs none", "pods \"none\" not found"),
        ("get pods --field-selector=spec.nothing=1", "field label not supported: spec.nothing"),
        ("get pods -l 'a in (b'", "unable to parse requirement"),
    ] {
        let err = kubectl.run(line).await.fails(line);
        assert!(err.contains(wanted), "{line}: {err}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_named() {
    let cluster = furnished().await;
    let kubectl = Kubectl(&cluster);
    let mut misspelt = pod("x");
    misspelt["spec"]["containers"][0]["comand"] = json!(["a"]);
    let mut greedy = job("x");
    greedy["spec"]["minAvailable"] = json!(9);
    let mut lost = job("x");
    lost["spec"]["queue"] = json!("none");
    let mut wrong = job("x");
    wrong["spec"]["minAvailable"] = json!("three");
    let mut unnamed = pod("x");
    unnamed["metadata"] = json!({});
    for (object, wanted) in [
        (&misspelt, "strict decoding error: unknown field \"spec.containers[0].comand\""),
        (&greedy, "job 'minAvailable' should not be greater than total replicas in tasks"),
        (&lost, "unable to find job queue"),
        (
            &wrong,
            "spec.minAvailable: Invalid value: \"string\": spec.minAvailable in body must be of type integer: \"string\"",
        ),
        (&unnamed, "name"),
    ] {
        let err = kubectl.fed("create -f -", &object.to_string()).await.fails("create");
        assert!(err.contains(wanted), "{wanted}: {err}");
    }
    kubectl.fed("create --validate=false -f -", &misspelt.to_string()).await.ok("create");
    let warned = kubectl
        .fed(
            "apply --validate=warn --dry-run=server -f -",
            &{
                misspelt["metadata"]["name"] = json!("y");
                misspelt
            }
            .to_string(),
        )
        .await;
    assert!(
        warned.code == 0 && warned.err.contains("Warning: unknown field \"spec.containers[0].comand\""),
        "{}",
        warned.err
    );
    for (text, wanted) in [("a: [", "error parsing"), ("", "no objects passed"), ("kind: Pod", "apiVersion not set")] {
        let err = kubectl.fed("create -f -", text).await.fails("create");
        assert!(err.contains(wanted), "{text:?}: {err}");
    }
    let mut large = map("large");
    large["data"]["a"] = json!("x".repeat(10 << 20));
    let err = kubectl.fed("create -f -", &large.to_string()).await.fails("create");
    assert!(err.contains("RequestEntityTooLarge") || err.contains("limit is 3145728"), "{err}");
}
