//! Logs and cordons, from who asks to the executor and back.

use pumice_wire::binoculars::binoculars_server::Binoculars as _;
use pumice_wire::binoculars::{CordonRequest, LogRequest};
use pumice_wire::executor::errand::Errand as Kind;
use pumice_wire::executor::errand_answer::Answer;

use super::*;
use crate::binoculars::Binoculars;
use crate::executor_commands::ExecutorCommands;

/// The next errand of a cluster.
async fn errand(cluster: &mut Cluster) -> wire::Errand {
    let (_, told) = cluster.session.as_mut().expect("a session");
    let next = async {
        loop {
            if let Some(to_executor::Message::Errand(errand)) = told.recv().await.expect("it goes on").message {
                return errand;
            }
        }
    };
    tokio::time::timeout(DEADLINE, next).await.expect("it comes in time")
}

fn answer(errand: &wire::Errand, answer: Answer) -> wire::ErrandAnswer {
    wire::ErrandAnswer { errand_id: errand.errand_id, answer: Some(answer) }
}

#[tokio::test]
async fn logs_and_cordons_reach_the_one_cluster_that_is_meant() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = Arc::new(Database::open(&Location::File(folder.path().join("fleet.db"))).await.expect("a database"));
    let jobs = submit(&log, 1).await;
    let api = Api::new(Arc::clone(&log), Rules::default(), api::Sources::system(), CancellationToken::new());
    let permissions = Permission::ALL.iter().copied().collect();
    let who = Arc::new(Who { name: "ada".to_owned(), permissions, ..Who::default() });
    let read = || asked(&who, LogRequest { job_id: jobs[0].to_string(), ..LogRequest::default() });
    let cordon = |name: &str| asked(&who, CordonRequest { node_name: name.to_owned() });

    let server = Server::start(&log);
    let errands = ExecutorCommands::new(server.inputs.clone());
    let binoculars = Binoculars::new(api.clone(), errands.clone());
    let mut one = Cluster::new("one");
    one.connect(&server, 1).await;
    let all = async {
        while ended(&log, &jobs).await < jobs.len() {
            one.step(&server).await;
        }
    };
    tokio::time::timeout(DEADLINE, all).await.expect("it ends in time");

    let lines = b"2026-01-01T00:00:00.1Z hello world\n2026-01-01T00:00:00.2Z \n".to_vec();
    let executor = async {
        let asked = errand(&mut one).await;
        let Some(Kind::ReadLog(read)) = &asked.errand else { panic!("{asked:?}") };
        let run = format!("{}-1", jobs[0]);
        let pod = format!("armada-{}-0", jobs[0]);
        assert_eq!((&read.run_id, &read.namespace, &read.pod_name), (&run, &"n".to_owned(), &pod));
        errands.answered("one", answer(&asked, Answer::Log(wire::LogPart { lines, more: true, ended: false })));
    };
    let (told, ()) = tokio::join!(binoculars.logs(read()), executor);
    let told = told.expect("lines");
    assert_eq!(told.metadata().get(pumice_wire::LOG_MORE).expect("it says so"), "true");
    assert!(told.metadata().get(pumice_wire::LOG_ENDED).is_none());
    assert_eq!(told.metadata().get(pumice_wire::LOG_POD).expect("it says so"), "0");
    let told: Vec<(String, String)> =
        told.into_inner().log.into_iter().map(|line| (line.timestamp, line.line)).collect();
    let line = |time: &str, text: &str| (time.to_owned(), text.to_owned());
    assert_eq!(told, [line("2026-01-01T00:00:00.1Z", "hello world"), line("2026-01-01T00:00:00.2Z", "")]);
    // Something else than was asked for, and more of it.
    for odd in [Answer::Cordoned(wire::NodeCordoned {}), {
        let lines = vec![b'x'; crate::api::LOG_BYTES_MAX as usize + 2];
        Answer::Log(wire::LogPart { lines, ..wire::LogPart::default() })
    }] {
        let executor = async {
            let asked = errand(&mut one).await;
            errands.answered("one", answer(&asked, odd));
        };
        let (told, ()) = tokio::join!(binoculars.logs(read()), executor);
        assert_eq!(told.expect_err("is refused").code(), tonic::Code::Internal);
    }

    // Two clusters have a node of that name, and one has the other node.
    let mut two = Cluster::new("two");
    two.connect(&server, 2).await;
    let refused = binoculars.cordon(cordon("node-0")).await.expect_err("it is not clear");
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    assert!(refused.message().contains("in the clusters one, two: say which, as in one/node-0"), "{refused}");
    assert_eq!(binoculars.cordon(cordon("node-9")).await.expect_err("none").code(), tonic::Code::NotFound);
    for name in ["two/node-0", "node-1"] {
        let executor = async {
            let asked = errand(&mut two).await;
            let Some(Kind::CordonNode(cordon)) = &asked.errand else { panic!("{asked:?}") };
            assert!(
                name.ends_with(&cordon.node) && cordon.labels["armadaproject.io/cordon-user"] == "ada",
                "{cordon:?}"
            );
            errands.answered("two", answer(&asked, Answer::Cordoned(wire::NodeCordoned {})));
        };
        let (told, ()) = tokio::join!(binoculars.cordon(cordon(name)), executor);
        told.expect("it is cordoned");
    }

    // A cluster that is away, and a server that leads no more.
    let (number, _) = one.session.take().expect("a session");
    server.inputs.send(Input::Closed { name: "one".to_owned(), number }).await.expect("a server");
    let away = binoculars.logs(read()).await.expect_err("nobody is there");
    assert!(away.code() == tonic::Code::Unavailable && away.message().contains("cluster one: its executor has no"));
    drop(server);
    let away = binoculars.logs(read()).await.expect_err("nobody leads here");
    assert!(away.code() == tonic::Code::Unavailable && away.message().contains("does not lead"), "{away}");
    log.close().await;
}
