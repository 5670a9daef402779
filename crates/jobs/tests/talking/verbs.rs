//! What cancels, suspends, resumes, retries and picks jobs, and sums up their loads, against scripted answers.

use pumice_jobs::Exit;
use pumice_jobs::cluster::resource_usage;
use pumice_jobs::job::JobEnd;
use pumice_jobs::lifecycle::{Deleted, DesiredState, Removal, StateChange, delete, set_desired_state};
use pumice_jobs::lookup::{JobFilter, find};
use pumice_jobs::platform::{next_command, user};
use pumice_jobs::submit::retry;
use serde_json::{Value, json};

use super::{Answer, Script, event, job, job_ref, list, status};

#[tokio::test]
async fn cancelling_waits_for_the_end_and_repeats_a_command_lost_in_a_restart() {
    let script = Script::default()
        .on(
            "GET /apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs/j",
            [Answer::Json(200, job(4, "Restarting", 0))],
        )
        .on("/commands", [Answer::Json(201, json!({})), Answer::Json(201, json!({}))])
        .on("/jobs?limit", [list(5, vec![job(5, "Restarting", 0)])])
        .on(
            "/jobs?watch",
            [Answer::Open(vec![
                event("MODIFIED", job(6, "Pending", 0)),
                event("MODIFIED", job(7, "Terminating", 1)),
                event("MODIFIED", job(8, "Terminated", 0)),
            ])],
        );
    let outcome = set_desired_state(&script.connection(), &job_ref(), DesiredState::Cancel, true).await.unwrap();
    assert_eq!(outcome, StateChange::Ended(JobEnd::Terminated));
    let bodies = script.bodies.lock().unwrap();
    assert_eq!(bodies.len(), 2, "{bodies:?}");
    assert_eq!(bodies[0]["action"], "TerminateJob");
    assert_eq!(bodies[0]["target"]["name"], "j");
}

#[tokio::test]
async fn an_ended_job_is_not_cancelled() {
    let script = Script::default().on("/jobs/j", [Answer::Json(200, job(4, "Completed", 0))]);
    let outcome = set_desired_state(&script.connection(), &job_ref(), DesiredState::Cancel, true).await.unwrap();
    assert_eq!(outcome, StateChange::AlreadyEnded(JobEnd::Completed));
}

#[tokio::test]
async fn a_resume_that_came_while_the_job_was_being_suspended_is_given_again() {
    let script = Script::default()
        .on("GET /apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs/j", [Answer::Json(200, job(4, "Aborting", 1))])
        .on("/commands", [Answer::Json(201, json!({})), Answer::Json(201, json!({}))])
        .on("/jobs?limit", [list(5, vec![job(5, "Aborting", 0)])])
        .on(
            "/jobs?watch",
            [Answer::Open(vec![event("MODIFIED", job(6, "Aborted", 0)), event("MODIFIED", job(7, "Restarting", 0))])],
        );
    let outcome = set_desired_state(&script.connection(), &job_ref(), DesiredState::Resume, true).await.unwrap();
    assert_eq!(outcome, StateChange::GoesOn);
    let bodies = script.bodies.lock().unwrap();
    let actions: Vec<&Value> = bodies.iter().map(|body| &body["action"]).collect();
    assert_eq!(actions, ["ResumeJob", "ResumeJob"]);
}

/// What each verb does to a job in each phase, where nobody waits: the action of its Command, if it gives one, and what it says.
#[tokio::test]
async fn every_verb_in_every_phase() {
    use JobEnd::{Aborted, Completed, Failed, Terminated};
    let (asked, ended) =
        (|action| (Some(action), StateChange::Requested), |end| (None, StateChange::AlreadyEnded(end)));
    let (ending, goes_on) = ((None, StateChange::AlreadyEnding), (None, StateChange::AlreadyGoesOn));
    let [cancel, suspend, resume] = ["TerminateJob", "AbortJob", "ResumeJob"].map(asked);
    for (phase, cancelled, suspended, resumed) in [
        (None, cancel, suspend, goes_on),
        (Some("Pending"), cancel, suspend, goes_on),
        (Some("Running"), cancel, suspend, goes_on),
        (Some("Restarting"), cancel, suspend, goes_on),
        (Some("Aborting"), cancel, (None, StateChange::Requested), resume),
        (Some("Aborted"), cancel, ended(Aborted), resume),
        (Some("Terminating"), ending, ending, ending),
        (Some("Completing"), ending, ending, ending),
        (Some("Terminated"), ended(Terminated), ended(Terminated), ended(Terminated)),
        (Some("Completed"), ended(Completed), ended(Completed), ended(Completed)),
        (Some("Failed"), ended(Failed), ended(Failed), ended(Failed)),
    ] {
        for (wish, (action, acted)) in
            [(DesiredState::Cancel, cancelled), (DesiredState::Suspend, suspended), (DesiredState::Resume, resumed)]
        {
            let mut now = job(4, "", 0);
            now["status"]["state"] = phase.map_or(json!({}), |phase| json!({"phase": phase}));
            let script = Script::default()
                .on("GET /apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs/j", [Answer::Json(200, now)])
                .on("/commands", action.map(|_| Answer::Json(201, json!({}))));
            let outcome = set_desired_state(&script.connection(), &job_ref(), wish, false).await.unwrap();
            assert_eq!(outcome, acted, "{wish:?} {phase:?}");
            let bodies = script.bodies.lock().unwrap();
            let given: Vec<&Value> = bodies.iter().map(|body| &body["action"]).collect();
            assert_eq!(given, action.iter().collect::<Vec<_>>(), "{wish:?} {phase:?}");
        }
    }
}

/// The answers about a Command that the controllers take away at once.
fn a_command_taken_away(script: Script) -> Script {
    let made = json!({"metadata": {"name": "j-terminatejob-x", "namespace": "default"}});
    script.on("POST /apis/bus", [Answer::Json(201, made)]).on("GET /apis/bus", [list(6, vec![])])
}

#[tokio::test]
async fn a_suspended_job_is_cancelled() {
    let script = a_command_taken_away(Script::default())
        .on(
            "GET /apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs/j",
            [Answer::Json(200, job(4, "Aborted", 0)), Answer::Json(200, job(6, "Terminating", 0))],
        )
        .on("/jobs?limit", [list(5, vec![job(5, "Aborted", 0)])])
        .on("/jobs?watch", [Answer::Open(vec![event("MODIFIED", job(7, "Terminated", 0))])]);
    let outcome = set_desired_state(&script.connection(), &job_ref(), DesiredState::Cancel, true).await.unwrap();
    assert_eq!(outcome, StateChange::Ended(JobEnd::Terminated));
}

#[tokio::test]
async fn controllers_that_do_not_end_a_suspended_job_are_named() {
    let script = a_command_taken_away(Script::default())
        .on(
            "GET /apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs/j",
            [Answer::Json(200, job(4, "Aborted", 0)), Answer::Json(200, job(4, "Aborted", 0))],
        )
        .on("/jobs?limit", [list(5, vec![job(4, "Aborted", 0)])])
        .on("/jobs?watch", [Answer::Open(vec![])]);
    let error = set_desired_state(&script.connection(), &job_ref(), DesiredState::Cancel, true).await.unwrap_err();
    assert_eq!(error.exit(), Exit::Conflict);
    assert_eq!(next_command(&error, None).as_deref(), Some("jobctl delete --force j"));
}

#[tokio::test]
async fn a_resume_takes_back_what_the_job_itself_says() {
    let annotated = json!({"pumice.sh/suspend": "true"});
    for (field, annotations, patch) in [
        (json!(true), json!(null), Some(json!({"spec": {"suspend": false}}))),
        (json!(null), annotated.clone(), Some(json!({"metadata": {"annotations": {"pumice.sh/suspend": null}}}))),
        (json!(false), annotated, None),
        (json!(null), json!(null), None),
    ] {
        let mut suspended = job(4, "Aborted", 0);
        suspended["spec"]["suspend"] = field;
        suspended["metadata"]["annotations"] = annotations;
        let script = Script::default()
            .on("PATCH", [Answer::Json(200, json!({}))])
            .on("/commands", [Answer::Json(201, json!({}))])
            .on("/jobs/j", [Answer::Json(200, suspended)]);
        set_desired_state(&script.connection(), &job_ref(), DesiredState::Resume, false).await.unwrap();
        let bodies = script.bodies.lock().unwrap();
        assert_eq!(bodies.last().unwrap()["action"], "ResumeJob");
        let before = if bodies.len() > 1 { bodies.first() } else { None };
        assert_eq!(before, patch.as_ref());
    }
}

/// Which jobs a delete removes, and that it removes the one it has looked at.
#[tokio::test]
async fn a_delete_removes_what_has_ended_and_the_rest_by_force() {
    for (phase, ended) in [
        ("Pending", false),
        ("Running", false),
        ("Restarting", false),
        ("Aborting", false),
        ("Aborted", false),
        ("Terminating", false),
        ("Completing", false),
        ("Terminated", true),
        ("Completed", true),
        ("Failed", true),
    ] {
        for force in [false, true] {
            let script = Script::default()
                .on(
                    "GET /apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs/j",
                    [Answer::Json(200, job(4, phase, 0))],
                )
                .on("DELETE /apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs/j", [Answer::Json(200, json!({}))]);
            let outcome = delete(&script.connection(), &job_ref(), Removal { force, wait: false }).await;
            let bodies = script.bodies.lock().unwrap();
            if ended || force {
                assert_eq!(outcome.unwrap(), Deleted::Requested, "{phase}");
                assert_eq!(bodies[0]["preconditions"]["uid"], "u", "{phase}");
                assert_eq!(bodies[0]["propagationPolicy"], "Foreground", "{phase}");
            } else {
                let error = outcome.unwrap_err();
                assert_eq!(
                    (error.exit(), next_command(&error, None).as_deref()),
                    (Exit::Conflict, Some("jobctl cancel j"))
                );
                assert!(bodies.is_empty(), "{phase}");
            }
        }
    }
}

#[tokio::test]
async fn a_delete_waits_until_the_job_is_gone() {
    let gone = event("DELETED", job(9, "Completed", 0));
    let other = json!({"metadata": {"name": "j", "namespace": "default", "uid": "another"}, "spec": {}});
    for (deleted, listed, watched, waits) in [
        (Answer::Json(200, json!({})), vec![job(8, "Completed", 0)], vec![gone.clone()], true),
        (Answer::Json(200, json!({})), vec![], vec![], true),
        (Answer::Json(200, json!({})), vec![other], vec![], true),
        (status(404, "NotFound"), vec![], vec![], false),
        (status(409, "Conflict"), vec![], vec![], false),
    ] {
        let script = Script::default()
            .on(
                "GET /apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs/j",
                [Answer::Json(200, job(4, "Completed", 0))],
            )
            .on("DELETE", [deleted])
            .on("/jobs?limit", [list(8, listed)])
            .on("/jobs?watch", [Answer::Open(watched)]);
        let outcome = delete(&script.connection(), &job_ref(), Removal { force: false, wait: true }).await.unwrap();
        assert_eq!(outcome, Deleted::Gone);
        assert_eq!(script.seen.lock().unwrap().iter().any(|line| line.contains("/jobs?limit")), waits);
    }
}

#[tokio::test]
async fn a_pattern_is_looked_for_on_every_page() {
    let page = |names: &[&str], going_on: &str| {
        let job = |name: &&str| json!({"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {}, "status": {}});
        let items: Vec<Value> = names.iter().map(job).collect();
        Answer::Json(200, json!({"metadata": {"resourceVersion": "1", "continue": going_on}, "items": items}))
    };
    let script =
        Script::default().on("/jobs?limit", [page(&["sweep-1", "other"], "a b"), page(&["sweep-2", "last"], "")]);
    let filter = JobFilter::one(&"sweep-*".parse().unwrap());
    let matches = find(&script.connection(), &filter, jiff::Timestamp::UNIX_EPOCH).await.unwrap();
    let names: Vec<&str> = matches.iter().map(|job| job.name.as_str()).collect();
    assert_eq!(names, ["sweep-1", "sweep-2"]);
    assert!(script.seen.lock().unwrap()[1].contains("continue=a%20b"));

    let script = Script::default();
    let names = JobFilter {
        selectors: vec!["a".parse().unwrap(), "b".parse().unwrap(), "a".parse().unwrap()],
        ..JobFilter::default()
    };
    let matches = find(&script.connection(), &names, jiff::Timestamp::UNIX_EPOCH).await.unwrap();
    assert_eq!(matches.len(), 2, "names alone ask for no list, and each is meant once");
}

#[tokio::test]
async fn whose_jobs_are_mine_is_asked_by_a_job_that_is_not_kept() {
    let kept =
        |annotations: Value| Answer::Json(201, json!({"metadata": {"name": "who-x", "annotations": annotations}}));
    let script = Script::default().on("/jobs?dryRun=All", [kept(json!({"pumice.sh/user": "ada"})), kept(json!(null))]);
    assert_eq!(user::of(&script.connection()).await.unwrap(), "ada");
    let unknown = user::of(&script.connection()).await.unwrap_err();
    assert_eq!((unknown.exit(), next_command(&unknown, None).as_deref()), (Exit::Usage, Some("jobctl list")));
    assert!(script.seen.lock().unwrap().iter().all(|line| line.starts_with("POST") && line.contains("dryRun=All")));
}

#[tokio::test]
async fn a_retry_takes_the_first_free_name() {
    let made = json!({"metadata": {"name": "j-r3", "namespace": "default"}});
    let script = Script::default()
        .on("GET /apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs/j", [Answer::Json(200, job(4, "Failed", 0))])
        .on("POST", [status(409, "AlreadyExists"), Answer::Json(201, made)]);
    assert_eq!(retry(&script.connection(), &job_ref()).await.unwrap().name, "j-r3");
    let bodies = script.bodies.lock().unwrap();
    let names: Vec<&Value> = bodies.iter().map(|body| &body["metadata"]["name"]).collect();
    assert_eq!(names, ["j-r2", "j-r3"]);
}

#[tokio::test]
async fn a_retry_shares_what_its_pods_mount_and_the_old_job_brought_along() {
    let volumes = json!([{"configMap": {"name": "script"}}, {"configMap": {"name": "settings"}}, {"emptyDir": {}}]);
    let mut old = job(4, "Failed", 0);
    let key = json!({"name": "PUMICE_RUN_KEY", "valueFrom": {"secretKeyRef": {"name": "run-key-1", "key": "key"}}});
    let containers = json!([{"env": [key]}]);
    old["spec"]["tasks"] =
        json!([{"replicas": 1, "template": {"spec": {"volumes": volumes, "containers": containers}}}]);
    let owner = |uid: &str| json!({"kind": "Job", "uid": uid});
    let map = |owner: Value| json!({"metadata": {"resourceVersion": "5", "ownerReferences": [owner]}});
    let made = json!({"apiVersion": "batch.volcano.sh/v1alpha1", "metadata": {"name": "j-r2", "uid": "new"}});
    let script = || {
        Script::default()
            .on("GET /apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs/j", [Answer::Json(200, old.clone())])
            .on("POST", [Answer::Json(201, made.clone())])
            .on("GET /api/v1/namespaces/default/configmaps/script", [Answer::Json(200, map(owner("u")))])
            .on("GET /api/v1/namespaces/default/configmaps/settings", [Answer::Json(200, map(owner("other")))])
            .on("GET /api/v1/namespaces/default/secrets/run-key-1", [Answer::Json(200, map(owner("u")))])
    };
    let told = script().on("PATCH", [Answer::Json(200, json!({})), Answer::Json(200, json!({}))]);
    retry(&told.connection(), &job_ref()).await.unwrap();
    let bodies = told.bodies.lock().unwrap().clone();
    assert_eq!(bodies.len(), 3, "the settings of somebody else are left alone: {bodies:?}");
    for body in &bodies[1..] {
        let owners = &body["metadata"]["ownerReferences"];
        assert_eq!(
            (&owners[0]["uid"], &owners[1]["uid"], &owners[1]["name"]),
            (&"u".into(), &"new".into(), &"j-r2".into())
        );
    }

    let refused = script().on("PATCH", [status(403, "Forbidden")]).on("DELETE", [Answer::Json(200, json!({}))]);
    assert!(retry(&refused.connection(), &job_ref()).await.is_err());
    assert!(refused.seen.lock().unwrap().last().unwrap().contains("DELETE"), "a job without its script is taken back");
}

#[tokio::test]
async fn usage_that_nobody_measures_is_none() {
    let script = Script::default().on("/apis/metrics.k8s.io", [status(404, "NotFound")]);
    assert_eq!(resource_usage::usage(&script.connection(), None).await.unwrap(), None);
    let measured = json!({"metadata": {"name": "p", "namespace": "n"}, "containers": [{"usage": {"cpu": "12345678n", "memory": "20Mi"}}]});
    let script = Script::default().on("/apis/metrics.k8s.io", [list(1, vec![measured])]);
    let usage = resource_usage::usage(&script.connection(), Some("n")).await.unwrap().unwrap();
    assert_eq!(
        usage[&("n".to_owned(), "p".to_owned())],
        resource_usage::Amounts { cpu_milli: 13, memory_bytes: 20 << 20 }
    );
}
