//! Errands without a leader: the test is the leader, and the executors.

use std::time::Duration;

use tonic::Code;

use super::*;

/// Nothing comes in it.
const MOMENT: Duration = Duration::from_millis(20);

fn cordon(node: &str) -> wire::errand::Errand {
    wire::errand::Errand::CordonNode(wire::CordonNode { node: node.to_owned(), ..wire::CordonNode::default() })
}

fn answer(errand_id: u64) -> wire::ErrandAnswer {
    wire::ErrandAnswer { errand_id, answer: Some(Answer::Cordoned(wire::NodeCordoned {})) }
}

#[test]
fn answers_go_to_whoever_waits_and_come_from_the_cluster_that_was_asked() {
    let mut under_way = UnderWay::default();
    assert_eq!(under_way.begin("east", 1, "ada"), Ok(()));
    assert_eq!(under_way.begin("west", 1, "bob"), Err(NotBegun::Taken));
    assert_eq!(under_way.begin("west", 2, "bob"), Ok(()));
    for (cluster, id, waiter) in [
        ("west", 1, None),
        ("east", 3, None),
        ("east", 1, Some("ada")),
        ("east", 1, None),
        ("west", 2, Some("bob")),
        ("west", 2, None),
    ] {
        assert_eq!(under_way.answered(cluster, id), waiter, "{cluster} {id}");
    }
    assert!(under_way.errands.is_empty() && under_way.counts.is_empty());
}

#[test]
fn a_cluster_has_so_many_errands_and_takes_no_room_from_others() {
    let mut under_way = UnderWay::default();
    let max = u64::try_from(UNDER_WAY_MAX).unwrap();
    for id in 0..max {
        assert_eq!(under_way.begin("east", id, ()), Ok(()));
    }
    assert_eq!(under_way.begin("east", max, ()), Err(NotBegun::Full));
    assert_eq!(under_way.begin("west", max, ()), Ok(()));
    // Whoever gives up makes room, once.
    assert_eq!((under_way.end(0), under_way.end(0)), (Some(()), None));
    assert_eq!(under_way.begin("east", max + 1, ()), Ok(()));
    assert_eq!(under_way.begin("east", max + 2, ()), Err(NotBegun::Full));
}

#[tokio::test]
async fn an_errand_is_carried_by_the_leader_and_answered_beside_it() {
    let (inputs, mut leader) = mpsc::channel(4);
    let errands = ExecutorCommands::new(inputs);
    let executor = async {
        let Some(Input::Errand { cluster, errand, sent }) = leader.recv().await else { panic!("no errand") };
        assert_eq!((cluster.as_str(), errand.errand), ("east", Some(cordon("node-1"))));
        assert!(errand.limit_ms > 0 && errand.limit_ms < u64::try_from(LIMIT.as_millis()).unwrap());
        sent.send(Ok(())).unwrap();
        // Another cluster can't answer in its place.
        errands.answered("west", answer(errand.errand_id));
        assert_eq!(locked(&errands.under_way).errands.len(), 1);
        errands.answered("east", answer(errand.errand_id));
    };
    let (answered, ()) = tokio::join!(errands.run("east", cordon("node-1")), executor);
    assert_eq!(answered.unwrap(), Answer::Cordoned(wire::NodeCordoned {}));
    assert!(locked(&errands.under_way).errands.is_empty());
}

#[tokio::test]
async fn what_can_not_be_sent_says_why() {
    let (inputs, mut leader) = mpsc::channel(4);
    let errands = ExecutorCommands::new(inputs);
    for (unreached, code, said) in [
        (Some(Unreached::Away), Code::Unavailable, "cluster east: its executor has no session"),
        (Some(Unreached::Old("1.0".to_owned())), Code::Unimplemented, "1.0"),
        (Some(Unreached::Slow), Code::ResourceExhausted, "try again"),
        (None, Code::Unavailable, "this server does not lead; try again, or another one"),
    ] {
        let carry = async {
            let Some(Input::Errand { sent, .. }) = leader.recv().await else { panic!("no errand") };
            // Dropping it is what a server does that does not lead.
            unreached.map(|unreached| sent.send(Err(unreached)));
        };
        let (answered, ()) = tokio::join!(errands.run("east", cordon("n")), carry);
        let status = answered.unwrap_err();
        assert!(status.code() == code && status.message().contains(said), "{status:?}");
        assert!(locked(&errands.under_way).errands.is_empty());
    }
}

#[tokio::test]
async fn refusals_keep_their_meaning() {
    use wire::ErrandProblem as Problem;
    for (problem, code) in [
        (Problem::NotFound, Code::NotFound),
        (Problem::NotStarted, Code::FailedPrecondition),
        (Problem::Invalid, Code::InvalidArgument),
        (Problem::Denied, Code::PermissionDenied),
        (Problem::Failed, Code::Unavailable),
    ] {
        let status = refused("east", wire::ErrandRefusal { problem: problem.into(), message: "so".to_owned() });
        assert_eq!((status.code(), status.message()), (code, "cluster east: so"));
    }
}

#[tokio::test]
async fn an_executor_that_says_nothing_is_not_waited_for_for_ever() {
    let (inputs, mut leader) = mpsc::channel(4);
    let errands = ExecutorCommands::new(inputs);
    let carry = async {
        let Some(Input::Errand { errand, sent, .. }) = leader.recv().await else { panic!("no errand") };
        sent.send(Ok(())).unwrap();
        errand.errand_id
    };
    let (answered, id) = tokio::join!(errands.run_within(MOMENT, "east", cordon("n")), carry);
    assert_eq!(answered.unwrap_err().code(), Code::DeadlineExceeded);
    assert!(locked(&errands.under_way).errands.is_empty());
    errands.answered("east", answer(id));
    // Who hangs up before makes room, too.
    let hung_up = timeout(MOMENT, errands.run("east", cordon("n"))).await;
    assert!(hung_up.is_err() && locked(&errands.under_way).errands.is_empty());
}
