//! Retry policies, and jobs that grow by them.

use pumice_ledger::{Away, AwayToleration, Failure, Grown, Inbox, JobId, ReportKind, RetryPolicy};
use serde_json::json;

use super::homes::Home;
use super::leading::{Leader, proposals, report, reports};
use super::*;
use crate::database::Error;

laws!(a_policy_stays_while_a_queue_names_it, what_a_job_has_grown_by_outlives_a_leader);

fn policy(name: &str) -> RetryPolicy {
    let memory =
        json!({ "action": "Retry", "onCategory": "oom", "mutate": { "resources": { "memory": { "factor": 2 } } } });
    let policy = json!({ "name": name, "retryLimit": 9, "defaultAction": "Fail", "rules": [memory] });
    serde_json::from_value(policy).unwrap()
}

fn about_none(event: Event) -> Entry {
    Entry { events: vec![event], ..Entry::new(TimeMs(1), "", "") }
}

fn set(name: &str) -> Entry {
    about_none(Event::RetryPolicySet(Box::new(policy(name))))
}

fn remove(name: &str) -> Entry {
    about_none(Event::RetryPolicyRemoved { policy: name.to_owned() })
}

fn naming(names: &[&str]) -> Entry {
    queue_set(Queue { retry_policies: names.iter().map(|name| (*name).to_owned()).collect(), ..Queue::default() })
}

async fn a_policy_stays_while_a_queue_names_it(home: Home) {
    let database = home.open().await;
    let name = || "more".to_owned();
    let refused = database.request(set("more"), Expect::PolicyPresent(name())).await;
    assert!(matches!(refused, Err(Error::NoPolicy(_))), "{refused:?}");
    let needs = || Expect::QueueAbsent { policies: vec![name()] };
    let refused = database.request(naming(&["more"]), needs()).await;
    assert!(matches!(refused, Err(Error::NoPolicy(_))), "{refused:?}");
    assert_eq!(database.request(set("more"), Expect::PolicyAbsent(name())).await.unwrap(), Seq(1));
    let refused = database.request(set("more"), Expect::PolicyAbsent(name())).await;
    assert!(matches!(refused, Err(Error::PolicyExists(_))), "{refused:?}");
    // Together, most likely: whichever comes first, no queue names what is not there.
    let (named, removed) = tokio::join!(
        database.request(naming(&["more"]), needs()),
        database.request(remove("more"), Expect::PolicyPresent(name()))
    );
    match (named, removed) {
        (Ok(_), Err(Error::PolicyInUse { policy, queue })) => assert_eq!((policy, queue), (name(), "q".to_owned())),
        (Err(Error::NoPolicy(_)), Ok(_)) => {
            database.request(set("more"), Expect::Any).await.unwrap();
            database.request(naming(&["more"]), needs()).await.unwrap();
        }
        other => panic!("{other:?}"),
    }
    let leader = Leader::new(&database).await;
    assert_eq!(leader.ledger.policies()["more"], policy("more"));
    database.request(naming(&[]), Expect::QueuePresent { policies: vec![] }).await.unwrap();
    database.request(remove("more"), Expect::PolicyPresent(name())).await.unwrap();
    assert!(database.policies().await.unwrap().is_empty());
    let mut next = Leader::new(&database).await;
    next.commit(&database, 3_000, Inbox::default()).await.unwrap();
    assert!(next.ledger.policies().is_empty());
}

/// The same away from home.
fn away(lease: Proposal) -> Proposal {
    let Proposal::Lease { jobs, pool, .. } = lease else { panic!("it is one") };
    let taint = AwayToleration { key: "gpu".to_owned(), value: None, effect: None };
    let away = Away { way: 0, node_types: vec!["gpu".to_owned()], priority: -7, tolerations: vec![taint] };
    Proposal::Lease { jobs, pool, away: Some(away) }
}

async fn what_a_job_has_grown_by_outlives_a_leader(home: Home) {
    let database = home.open().await;
    database.request(set("more"), Expect::Any).await.unwrap();
    database.request(naming(&["more"]), Expect::Any).await.unwrap();
    let mut submitted = submission("s", vec![job(1, None)]);
    for shape in submitted.shapes.values_mut() {
        shape.requests.insert("memory".to_owned(), 100);
    }
    database.submit(vec![submitted]).await.unwrap();
    let mut leader = Leader::new(&database).await;
    for (attempt, factor, bytes) in [(1, 2.0, 200), (2, 4.0, 400)] {
        let now = 3_000 + i64::from(attempt);
        leader.commit(&database, now, proposals(vec![away(lease(1, "one"))])).await.unwrap();
        let next = Leader::new(&database).await;
        assert_eq!(next.ledger.digest(), leader.ledger.digest());
        let run = next.ledger.runs().next().unwrap().1;
        assert_eq!(run.away.as_ref().map(|away| away.priority), Some(-7));
        leader = next;
        let oom = Failure { category: "oom".to_owned(), ..Failure::default() };
        leader.commit(&database, now, reports(vec![report(1, attempt, ReportKind::Failed(oom))])).await.unwrap();
        let next = Leader::new(&database).await;
        assert_eq!(next.ledger.digest(), leader.ledger.digest());
        leader = next;
        let job = leader.ledger.job(JobId(1)).unwrap();
        assert_eq!(job.grown.as_deref(), Some(&Grown::Factor(factor)));
        assert_eq!(leader.ledger.shape(job).requests["memory"], bytes);
    }
    // The log alone says the same.
    let mut folded = pumice_ledger::Ledger::new(classes());
    for entry in whole(&database).await {
        assert_eq!(folded.fold(&entry), []);
    }
    assert_eq!(folded.digest(), leader.ledger.digest());
}
