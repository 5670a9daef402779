//! A job whose results are marked: where its key goes, and what becomes of a job that can't have one.

use pumice_jobs::Exit;
use pumice_jobs::bundle::ChunkId;
use pumice_jobs::error::sentence;
use pumice_jobs::manifest::Object;
use pumice_jobs::submit::marked;
use serde_json::{Value, json};

use super::{Answer, Script, status};

fn job() -> Object {
    let env = json!([{"name": "PUMICE_BUNDLE", "value": "folder:/b#r/run"}]);
    let pod = json!({"containers": [{"name": "main", "env": env}]});
    let body = json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"generateName": "map-"},
                      "spec": {"tasks": [{"replicas": 1, "template": {"spec": pod}}]}});
    Object { body, origin: "job".to_owned() }
}

fn made() -> Answer {
    let metadata = json!({"name": "map-1", "namespace": "default", "uid": "u"});
    Answer::Json(201, json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": metadata}))
}

fn key() -> String {
    ChunkId::of(b"key").to_string()
}

#[tokio::test]
async fn the_key_is_in_a_secret_of_the_job_and_nowhere_else() {
    let script = Script::default().on("/jobs", [made()]).on("/secrets", [Answer::Json(201, json!({}))]);
    let submitted = marked::submit(&script.connection(), &job(), &key()).await.unwrap();
    assert_eq!(submitted.name(), "map-1");
    let seen = script.seen.lock().unwrap().clone();
    let seen: Vec<_> = seen.iter().map(|line| line.split('?').next().unwrap()).collect();
    let wanted =
        ["POST /apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs", "POST /api/v1/namespaces/default/secrets"];
    assert_eq!(seen, wanted, "one request more than a job without a key takes");
    let bodies = script.bodies.lock().unwrap().clone();
    let [job, secret] = bodies.as_slice() else { panic!("{bodies:?}") };
    assert!(!job.to_string().contains(&key()));
    let variable = job.pointer("/spec/tasks/0/template/spec/containers/0/env/1").unwrap();
    let name = secret.pointer("/metadata/name").unwrap();
    let source = json!({"secretKeyRef": {"name": name, "key": "key"}});
    assert_eq!(*variable, json!({"name": "PUMICE_RUN_KEY", "valueFrom": source}));
    assert_eq!(secret.pointer("/metadata/ownerReferences/0/uid"), Some(&json!("u")));
    assert_eq!(secret["immutable"], true);
}

#[tokio::test]
async fn a_job_that_can_have_no_key_is_taken_back() {
    for (code, reason, exit, said) in [
        (
            403,
            "Forbidden",
            Exit::Denied,
            "the right to create Secrets in namespace default; ask for that right, or submit",
        ),
        (500, "InternalError", Exit::Unreachable, "cannot create the Secret of job map-1"),
    ] {
        let gone = Answer::Json(200, json!({}));
        let script =
            Script::default().on("POST /apis", [made()]).on("/secrets", [status(code, reason)]).on("DELETE", [gone]);
        let error = marked::submit(&script.connection(), &job(), &key()).await.unwrap_err();
        let text = sentence(&error);
        assert_eq!((error.exit(), text.contains(said)), (exit, true), "{text}");
        assert!(!text.contains(&key()), "{text}");
        let seen = script.seen.lock().unwrap();
        assert!(
            seen.last().unwrap().starts_with("DELETE /apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs/map-1")
        );
    }
}

#[tokio::test]
async fn what_is_no_key_is_refused_before_anything_is_sent() {
    let script = Script::default();
    for wrong in [String::new(), "key".to_owned(), key().to_uppercase(), format!("{}0", key())] {
        let error = marked::submit(&script.connection(), &job(), &wrong).await.unwrap_err();
        assert_eq!(error.exit(), Exit::Usage);
        assert_eq!(sentence(&error), "the key of a run has 64 hexadecimal digits, in lower case");
    }
    assert_eq!(script.seen.lock().unwrap().len(), 0);
    let bodies: &[Value] = &script.bodies.lock().unwrap();
    assert!(bodies.is_empty());
}
