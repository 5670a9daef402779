//! Rules of people's own: policies, and rules of definitions.

use super::*;
use crate::wire::map;

/// The policy of the page for administrators, as it stands there.
fn documented() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/admission-rules.md");
    let page = std::fs::read_to_string(path).expect("the page");
    let (_, rest) = page.split_once("```yaml\n").expect("a manifest");
    rest.split_once("```").expect("its end").0.to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_policy_refuses_large_jobs() {
    let cluster = furnished().await;
    let kubectl = Kubectl(&cluster);
    kubectl.fed("apply -f -", &documented()).await.ok("apply");
    // What the server fills in within lists makes kubectl send a patch each time: one that changes nothing.
    let revision = "get validatingadmissionpolicy small-jobs -o jsonpath={.metadata.resourceVersion}";
    let before = kubectl.ok(revision).await;
    kubectl.fed("apply -f -", &documented()).await.ok("apply");
    assert_eq!(kubectl.ok(revision).await, before);
    let mut large = job("large");
    large["spec"]["tasks"][0]["replicas"] = json!(11);
    kubectl.apply(&large).await;
    kubectl.ok("delete vcjob large --wait=false").await;
    kubectl.ok("label namespace default tier=test").await;
    large["metadata"]["name"] = json!("refused");
    let err = kubectl.fed("create -f -", &large.to_string()).await.fails("create");
    let wanted = "ValidatingAdmissionPolicy 'small-jobs' with binding 'small-jobs-in-test' denied request: a job in a test \
                  namespace has at most 10 pods";
    assert!(err.contains(wanted), "{err}");
    kubectl.ok("patch validatingadmissionpolicybinding small-jobs-in-test --type=merge -p '{\"spec\":{\"validationActions\":[\"Warn\"]}}'").await;
    let warned = kubectl.fed("create --dry-run=server -f -", &large.to_string()).await;
    assert!(warned.code == 0 && warned.err.contains("Warning: Validation failed"), "{}", warned.err);
    let listed = kubectl.ok("get validatingadmissionpolicies,validatingadmissionpolicybindings").await;
    assert!(listed.contains("small-jobs") && listed.contains("small-jobs-in-test"), "{listed}");
    kubectl.ok("delete validatingadmissionpolicy small-jobs").await;
    kubectl.fed("create -f -", &large.to_string()).await.ok("create");
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_of_a_definition_are_named_to_people() {
    let cluster = furnished().await;
    let kubectl = Kubectl(&cluster);
    let definition = |rule: &str| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": "cakes.kitchen.example" },
            "spec": { "group": "kitchen.example", "scope": "Namespaced", "names": { "plural": "cakes", "kind": "Cake" },
                "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": {
                    "type": "object", "properties": { "spec": { "type": "object",
                        "properties": { "eggs": { "type": "integer" }, "flour": { "type": "integer" } },
                        "x-kubernetes-validations": [{ "rule": rule, "messageExpression": "'flour must be ' + string(self.eggs * 100)" }],
            } } } } }] },
        })
        .to_string()
    };
    let err = kubectl.fed("create -f -", &definition("self.eggz > 0")).await.fails("create");
    assert!(err.contains("compilation failed: undefined field 'eggz'"), "{err}");
    kubectl.fed("create -f -", &definition("self.flour == self.eggs * 100")).await.ok("create");
    let cake = |flour: i64| {
        json!({ "apiVersion": "kitchen.example/v1", "kind": "Cake", "metadata": { "name": "c" },
            "spec": { "eggs": 3, "flour": flour } })
        .to_string()
    };
    let err = kubectl.fed("apply -f -", &cake(200)).await.fails("apply");
    assert!(err.contains("The Cake \"c\" is invalid: spec: Invalid value: \"object\": flour must be 300"), "{err}");
    kubectl.fed("apply -f -", &cake(300)).await.ok("apply");
    let err = kubectl.run("patch cake c --type=merge -p '{\"spec\":{\"eggs\":4}}'").await.fails("patch");
    assert!(err.contains("flour must be 400"), "{err}");
    kubectl.fed("apply -f -", &map("free").to_string()).await.ok("apply");
}
