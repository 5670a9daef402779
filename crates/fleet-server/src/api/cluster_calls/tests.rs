//! Whose log it is and which part of it is meant, before any cluster is asked.

use pumice_ledger::{NodeRef, PodRef, TimeMs};
use serde_json::{Value, json};

use super::*;
use crate::api::tests::{by, home as server, queue, who};

const NOW_MS: i64 = 1_764_000_000_000;
const SECOND_NS: i64 = 1_000_000_000;

fn request(message: Value) -> LogRequest {
    serde_json::from_value(message).expect("a request")
}

#[test]
fn what_is_wanted_of_a_log_is_read_or_refused() {
    let all = ReadLog { bytes_max: LOG_BYTES_MAX, ..ReadLog::default() };
    for (message, read) in [
        (json!({}), all.clone()),
        (json!({"logOptions": {}}), all.clone()),
        // It is never followed, and times are there always.
        (json!({"logOptions": {"follow": true, "timestamps": false}}), all.clone()),
        (
            json!({"logOptions": {"container": "main", "previous": true, "tailLines": 7, "limitBytes": 100}}),
            ReadLog {
                container: "main".to_owned(),
                previous: true,
                tail_lines: Some(7),
                bytes_max: 100,
                ..all.clone()
            },
        ),
        (json!({"logOptions": {"tailLines": 0}}), ReadLog { tail_lines: Some(0), ..all.clone() }),
        (json!({"logOptions": {"limitBytes": 999999999999_i64}}), all.clone()),
        (
            json!({"sinceTime": "1970-01-01T00:00:01.000000002Z", "logOptions": {"sinceSeconds": 5}}),
            ReadLog { since_ns: SECOND_NS + 2, ..all.clone() },
        ),
        (
            json!({"logOptions": {"sinceTime": "1970-01-01T00:00:03Z"}}),
            ReadLog { since_ns: 3 * SECOND_NS, ..all.clone() },
        ),
        (
            json!({"logOptions": {"sinceSeconds": 60}}),
            ReadLog { since_ns: (NOW_MS / 1000 - 60) * SECOND_NS, ..all.clone() },
        ),
        (json!({"sinceTime": "1900-01-01T00:00:00Z"}), all),
    ] {
        assert_eq!(wanted(&request(message.clone()), NOW_MS).expect("is good"), read, "{message}");
    }
    for (message, said) in [
        (json!({"sinceTime": "yesterday"}), "sinceTime: it is no time as in"),
        (json!({"logOptions": {"tailLines": -1}}), "logOptions.tailLines: have it at least 0"),
        (json!({"logOptions": {"limitBytes": 0}}), "logOptions.limitBytes: have it above 0"),
        (json!({"logOptions": {"sinceSeconds": 0}}), "logOptions.sinceSeconds: have it above 0"),
        (json!({"logOptions": {"container": "x".repeat(5_000)}}), "logOptions.container: it has 5000 bytes"),
    ] {
        let refused = wanted(&request(message), NOW_MS).expect_err("is refused").to_string();
        assert!(refused.starts_with(said), "{refused}");
    }
}

fn row(attempt: u32, state: RunState) -> RunRow {
    RunRow {
        run: RunId { job: JobId(1), attempt },
        state,
        at: NodeRef { cluster: format!("c{attempt}"), node: "n".to_owned() },
        pool: String::new(),
        leased: TimeMs(0),
        pending: None,
        started: None,
        finished: None,
        holds: false,
        pod: Some(PodRef::default()),
        preempted: None,
        error: None,
        ingress: [].into(),
        away: None,
        places: Vec::new(),
    }
}

#[test]
fn the_last_run_is_meant_or_the_one_of_the_number() {
    let rows = [row(1, RunState::Failed), row(2, RunState::Running)];
    for (number, exactly, attempt) in [(0, None, 2), (1, None, 2), (0, Some(0), 1), (1, Some(0), 1), (0, Some(1), 2)] {
        let run = run_of(JobId(1), number, exactly, &rows).expect("a run").run;
        assert_eq!(run.attempt, attempt, "{number} {exactly:?}");
    }
    let leased = [row(1, RunState::Failed), row(2, RunState::Leased)];
    for (number, rows, said) in [
        (0, &[][..], "has not started, so that there is no log yet; /v1/job/"),
        (2, &rows[..], "has no pod 2: 1 is its last one"),
        (-1, &rows[..], "has no pod -1: they count from 0"),
        (0, &leased[..], "has no pod yet: cluster c2 is to make it on n"),
    ] {
        let refused = run_of(JobId(1), number, None, rows).expect_err("none").to_string();
        assert!(refused.contains(said), "{refused}");
    }
}

#[test]
fn a_node_is_the_one_of_its_name_or_has_to_be_named_with_its_cluster() {
    let homes = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    for (cluster, found, meant) in [
        (None, homes(&["east"]), Ok("east")),
        (Some("west"), homes(&["east", "west"]), Ok("west")),
        (
            None,
            homes(&["east", "west"]),
            Err("nodes of the name n are in the clusters east, west: say which, as in east/n"),
        ),
        (None, homes(&[]), Err("no cluster has a node n")),
        (Some("north"), homes(&["east", "west"]), Err("no cluster has a node north/n")),
    ] {
        let home = home(cluster, "n", found).map_err(|error| error.to_string());
        assert_eq!(home, meant.map(str::to_owned).map_err(str::to_owned));
    }
}

#[test]
fn who_cordoned_a_node_is_a_label_that_kubernetes_takes() {
    for (name, label) in [
        ("ada", "ada"),
        ("ada@example.com", "ada_example.com"),
        ("pumice:administrator", "pumice_administrator"),
        ("-x-", "x"),
        ("日本", ""),
        (&"x".repeat(100), &"x".repeat(LABEL_MAX)),
    ] {
        let [reason, user] = cordon_labels(name);
        assert_eq!(reason, ("armadaproject.io/cordon-reason".to_owned(), "binoculars".to_owned()));
        assert_eq!(user, ("armadaproject.io/cordon-user".to_owned(), label.to_owned()));
    }
}

#[tokio::test]
async fn who_may_watch_the_queue_may_read_its_logs_and_cordoning_takes_its_permission() {
    use pumice_wire::api::submit_server::Submit as _;

    let home = server().await;
    let (_, ada) = queue(&home.api).await;
    let resources = json!({"cpu": "1", "memory": "1Gi"});
    let resources = json!({"requests": resources, "limits": resources});
    let item = json!({"namespace": "lab", "podSpecs": [{"containers": [{"name": "c", "image": "i", "resources": resources}]}]});
    let submission = json!({"queue": "q", "jobSetId": "set", "jobRequestItems": [item]});
    let answer = home.api.submit_jobs(by(&ada, submission)).await.expect("submitted").into_inner();
    let id = answer.job_response_items[0].job_id.clone();
    let ask = async |who: &Who, id: &str| home.api.log_of(who, request(json!({"jobId": id})), None).await;
    let mut stranger = (*who("eve", &[])).clone();
    stranger.groups.clear();
    assert!(matches!(ask(&stranger, &id).await, Err(Error::Denied { .. })));
    // It has no run yet, and that is what they are told who may watch.
    stranger.permissions.insert(Permission::WatchAllEvents);
    for who in [&ada, &who("bob", &[]), &stranger.into()] {
        assert!(matches!(ask(who, &id).await, Err(Error::NoPod { .. })), "{who:?}");
    }
    assert!(matches!(ask(&ada, &JobId(7).to_string()).await, Err(Error::NoJob(JobId(7)))));
    assert!(matches!(ask(&ada, "x").await, Err(Error::Id { field: "jobId", .. })));
    assert!(matches!(ask(&ada, "").await, Err(Error::Missing { field: "jobId" })));

    let refused = home.api.node_to_cordon(&ada, "n").expect_err("she may not");
    assert!(refused.to_string().contains("ada may not cordon nodes: the permission cordon_nodes allows it"));
    let operator = who("op", &[Permission::CordonNodes]);
    assert_eq!(home.api.node_to_cordon(&operator, "n").expect("may"), (None, "n"));
    assert_eq!(home.api.node_to_cordon(&operator, "east/n").expect("may"), (Some("east"), "n"));
    assert!(matches!(home.api.node_to_cordon(&operator, ""), Err(Error::Missing { field: "nodeName" })));
}
