//! Who is let in, and who is told what.

use std::sync::Arc;

use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use pumice_auth::Ca;
use pumice_fleet_model::submission::Rules;
use tokio_util::sync::CancellationToken;
use tonic::Code;

use super::*;
use crate::api::Sources;
use crate::database::{Database, Location};

struct Home {
    front: Gateway,
    gate: Arc<Gate>,
    ca: Ca,
    _directory: tempfile::TempDir,
}

async fn home(users: Vec<User>, permissions: PermissionGroups) -> Home {
    let directory = tempfile::tempdir().unwrap();
    let log = Arc::new(Database::open(&Location::File(directory.path().join("fleet.db"))).await.unwrap());
    let api = Api::new(log, Rules::default(), Sources::system(), CancellationToken::new());
    let users = Users::new(UsersFile { users }).unwrap();
    let gate = Arc::new(Gate::new(Access { users, permissions, issuer: None, reports: ReportsFor::default() }));
    let front = Gateway::new(api, mpsc::channel(1).0, Arc::clone(&gate));
    let ca = Ca::passing(jiff::Timestamp::constant(1_764_000_000, 0)).unwrap();
    Home { front, gate, ca, _directory: directory }
}

impl Home {
    fn peer(&self, name: &str, groups: &[&str]) -> Peer {
        let issued = self.ca.issue_client(name, groups, jiff::Timestamp::constant(1_764_000_000, 0)).unwrap();
        self.front.peer(Some(&issued.certificate)).unwrap()
    }

    async fn grpc(&self, peer: Peer, path: &str, authorization: Option<&str>) -> Code {
        let authorization = authorization.map(|authorization| ("authorization", authorization));
        // An empty message: whoever is let in is told what is missing in it.
        self.call(peer, path, authorization.as_slice(), &[0; 5]).await
    }

    async fn call(&self, peer: Peer, path: &str, headers: &[(&str, &str)], message: &[u8]) -> Code {
        let mut request = Request::post(path).header("content-type", "application/grpc").header("te", "trailers");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::copy_from_slice(message))).unwrap();
        let response = self.front.clone().answer(peer, request).await;
        assert_eq!(response.status(), StatusCode::OK);
        let head = response.headers().get("grpc-status").cloned();
        let collected = response.into_body().collect().await.unwrap();
        let trailer = collected.trailers().and_then(|trailers| trailers.get("grpc-status").cloned());
        Code::from_bytes(head.or(trailer).expect("a status").as_bytes())
    }

    async fn http(&self, peer: Peer, method: Method, path: &str) -> StatusCode {
        let request = Request::builder().method(method).uri(path).body(Full::new(Bytes::new())).unwrap();
        self.front.clone().answer(peer, request).await.status()
    }
}

#[tokio::test]
async fn strangers_may_ask_for_health_and_nothing_else() {
    let home = home(Vec::new(), PermissionGroups::new()).await;
    for (path, code) in [
        ("/api.Submit/Health", Code::Ok),
        ("/api.Event/Health", Code::Ok),
        ("/api.Submit/GetQueue", Code::Unauthenticated),
        ("/api.QueueService/CreateQueue", Code::Unauthenticated),
        ("/api.Jobs/GetJobStatus", Code::Unauthenticated),
        ("/api.Event/GetJobSetEvents", Code::Unauthenticated),
        ("/pumice.fleet.v1.Executors/Session", Code::Unauthenticated),
        ("/schedulerobjects.SchedulerReporting/GetSchedulingReport", Code::Unauthenticated),
        ("/api.Nothing/Call", Code::Unimplemented),
    ] {
        assert_eq!(home.grpc(Peer::default(), path, None).await, code, "{path}");
    }
    assert_eq!(home.http(Peer::default(), Method::GET, "/health").await, StatusCode::OK);
    assert_eq!(home.http(Peer::default(), Method::GET, "/v1/queue/a").await, StatusCode::UNAUTHORIZED);
}

/// Every call of `armadactl` at Armada's commit 207cc9e, but for those about retry policies.
const OF_ARMADACTL: [&str; 24] = [
    "api.Submit/SubmitJobs",
    "api.Submit/CancelJobs",
    "api.Submit/CancelJobSet",
    "api.Submit/ReprioritizeJobs",
    "api.Submit/PreemptJobs",
    "api.Submit/CreateQueue",
    "api.Submit/UpdateQueue",
    "api.Submit/DeleteQueue",
    "api.Submit/GetQueue",
    "api.Submit/GetQueues",
    "api.QueueService/CordonQueue",
    "api.QueueService/UncordonQueue",
    "api.QueueService/CancelOnQueue",
    "api.QueueService/PreemptOnQueue",
    "api.Event/GetJobSetEvents",
    "api.Executor/UpsertExecutorSettings",
    "api.Executor/DeleteExecutor",
    "api.Executor/CancelOnExecutor",
    "api.Executor/PreemptOnExecutor",
    "api.Node/CancelOnNode",
    "api.Node/PreemptOnNode",
    "schedulerobjects.SchedulerReporting/GetSchedulingReport",
    "schedulerobjects.SchedulerReporting/GetQueueReport",
    "schedulerobjects.SchedulerReporting/GetJobReport",
];

#[tokio::test]
async fn every_call_of_armadactl_is_served() {
    let home = home(Vec::new(), PermissionGroups::new()).await;
    for call in OF_ARMADACTL {
        // Who is nobody is told so by calls that there are.
        assert_eq!(home.grpc(Peer::default(), &format!("/{call}"), None).await, Code::Unauthenticated, "{call}");
    }
}

/// Nothing, as gzip packs it.
const PACKED: [u8; 20] = [31, 139, 8, 0, 0, 0, 0, 0, 0, 255, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0];

#[tokio::test]
async fn every_call_of_armadactl_is_taken_compressed() {
    let home = home(Vec::new(), PermissionGroups::new()).await;
    let [length, packed] = [&[1, 0, 0, 0, 20][..], &PACKED];
    for call in OF_ARMADACTL {
        let plain = home.grpc(home.peer("root", &[ADMINISTRATORS]), &format!("/{call}"), None).await;
        let peer = home.peer("root", &[ADMINISTRATORS]);
        let found =
            home.call(peer, &format!("/{call}"), &[("grpc-encoding", "gzip")], &[length, packed].concat()).await;
        assert_eq!(found, plain, "{call}");
    }
}

#[tokio::test]
async fn certificates_say_who_it_is() {
    let permissions = PermissionGroups::from([(Permission::CreateQueue, ["ops".to_owned()].into())]);
    let home = home(Vec::new(), permissions).await;
    let (create, session) = ("/api.Submit/CreateQueue", "/pumice.fleet.v1.Executors/Session");
    // A queue without a name is refused to those who may make one.
    for (groups, path, code) in [
        (&[][..], create, Code::PermissionDenied),
        (&["ops"], create, Code::InvalidArgument),
        (&[ADMINISTRATORS], create, Code::InvalidArgument),
        (&[EXECUTORS], create, Code::PermissionDenied),
        (&["ops"], session, Code::PermissionDenied),
        // There is no leader here to take the stream.
        (&[EXECUTORS], session, Code::Unavailable),
    ] {
        let peer = home.peer("ann", groups);
        assert_eq!(home.grpc(peer, path, None).await, code, "{groups:?} {path}");
    }
}

#[tokio::test]
async fn what_a_request_says_counts_more_than_the_certificate() {
    let token = "a-long-and-random-token";
    let user = User {
        name: "bob".to_owned(),
        groups: ["ops".to_owned()].into(),
        password: None,
        token: Some(hash_token(token).into()),
    };
    let permissions = PermissionGroups::from([(Permission::CreateQueue, ["ops".to_owned()].into())]);
    let home = home(vec![user], permissions).await;
    let administrator = || home.peer("root", &[ADMINISTRATORS]);
    let path = "/api.Submit/DeleteQueue";
    let bearer = format!("Bearer {token}");
    assert_eq!(home.grpc(administrator(), path, Some(&bearer)).await, Code::PermissionDenied);
    assert_eq!(home.grpc(administrator(), path, Some("Bearer another")).await, Code::Unauthenticated);
    assert_eq!(home.grpc(Peer::default(), "/api.Submit/CreateQueue", Some(&bearer)).await, Code::InvalidArgument);
    let request = Request::get("/v1/queue/a").header("authorization", "Basic x").body(Full::new(Bytes::new())).unwrap();
    let response = home.front.clone().answer(administrator(), request).await;
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
}

// INV-34
#[tokio::test]
async fn the_message_of_a_stranger_is_not_read() {
    let home = home(Vec::new(), PermissionGroups::new()).await;
    // Of ten bytes one comes, and then nothing more.
    let stuck = || {
        let first = futures::stream::iter([Ok::<_, BoxError>(http_body::Frame::data(Bytes::from_static(&[
            0, 0, 0, 0, 10, 1,
        ])))]);
        http_body_util::StreamBody::new(futures::StreamExt::chain(first, futures::stream::pending()))
    };
    for path in [
        "/api.Submit/SubmitJobs",
        "/api.QueueService/CreateQueue",
        "/schedulerobjects.SchedulerReporting/GetQueueReport",
    ] {
        let request = Request::post(path).header("content-type", "application/grpc").body(stuck()).unwrap();
        let answer = home.front.clone().answer(Peer::default(), request).await;
        assert_eq!(
            Status::from_header_map(answer.headers()).expect("a status").code(),
            Code::Unauthenticated,
            "{path}"
        );
    }
    // Nor is more read for health than that needs.
    let large = http_body_util::StreamBody::new(futures::stream::repeat_with(|| {
        Ok::<_, BoxError>(http_body::Frame::data(Bytes::from_static(&[255; 1024])))
    }));
    let request = Request::post("/api.Submit/Health").header("content-type", "application/grpc").body(large).unwrap();
    let answer = home.front.clone().answer(Peer::default(), request).await;
    assert_ne!(Status::from_header_map(answer.headers()).expect("a status").code(), Code::Ok);
}

#[tokio::test]
async fn what_the_gate_comes_to_counts_for_connections_that_are_there() {
    let user = |name: &str, token: &str| User {
        name: name.to_owned(),
        groups: ["ops".to_owned()].into(),
        token: Some(hash_token(token).into()),
        ..User::default()
    };
    let permissions = || PermissionGroups::from([(Permission::CreateQueue, ["ops".to_owned()].into())]);
    let home = home(vec![user("old", "secret-one")], permissions()).await;
    let ada = home.peer("ada", &["ops"]);
    let path = "/api.Submit/CreateQueue";
    assert_eq!(home.grpc(ada.clone(), path, None).await, Code::InvalidArgument, "it may, and names no queue");
    assert_eq!(home.grpc(Peer::default(), path, Some("Bearer secret-one")).await, Code::InvalidArgument);
    let users = Users::new(UsersFile { users: vec![user("new", "secret-two")] }).unwrap();
    home.gate.replace(Access {
        users,
        permissions: PermissionGroups::new(),
        issuer: None,
        reports: ReportsFor::default(),
    });
    assert_eq!(home.grpc(ada, path, None).await, Code::PermissionDenied);
    assert_eq!(home.grpc(Peer::default(), path, Some("Bearer secret-one")).await, Code::Unauthenticated);
    assert_eq!(home.grpc(Peer::default(), path, Some("Bearer secret-two")).await, Code::PermissionDenied);
}

#[tokio::test]
async fn pages_of_the_origins_that_are_named_may_ask_and_no_others() {
    let mut home = home(Vec::new(), PermissionGroups::new()).await;
    let page = "https://lookout.example.com";
    home.front = home.front.allowing(Origins::new(&[page.to_owned()]).unwrap());
    let asked = async |method: Method, origin: &str, preflight: bool| {
        let mut request = Request::builder().method(method).uri("/v1/queue/a").header("origin", origin);
        if preflight {
            request = request.header("access-control-request-method", "GET");
        }
        let request = request.body(Full::new(Bytes::new())).unwrap();
        home.front.clone().answer(Peer::default(), request).await.into_parts().0
    };
    // Nobody is known where a browser asks before.
    let before = asked(Method::OPTIONS, page, true).await;
    assert_eq!(before.status, StatusCode::OK);
    assert_eq!(before.headers["access-control-allow-methods"], "GET,HEAD,POST,PUT,DELETE");
    assert_eq!(before.headers["access-control-allow-headers"], "Content-Type,Accept,Authorization");
    // An answer, also that nobody is known, is for the page to read.
    let answer = asked(Method::GET, page, false).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    for headers in [before.headers, answer.headers] {
        assert_eq!(
            (&headers["access-control-allow-origin"], &headers["vary"]),
            (&page.parse().unwrap(), &"Origin".parse().unwrap())
        );
        assert_eq!(headers["access-control-allow-credentials"], "true");
    }
    for origin in ["https://evil.example.com", "https://lookout.example.com.evil.com", "null"] {
        for preflight in [true, false] {
            let answer = asked(Method::OPTIONS, origin, preflight).await;
            assert!(!answer.status.is_success(), "{origin} {:?}", answer.status);
            assert!(!answer.headers.contains_key("access-control-allow-origin"), "{origin}");
        }
    }
    assert!(!asked(Method::OPTIONS, page, false).await.status.is_success());
}
