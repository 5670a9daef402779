//! The generated messages and services do what clients count on: JSON in the forms that they send, and streams both ways.

use std::pin::Pin;

use futures::{Stream, StreamExt as _, stream};
use pumice_wire::executor::executors_client::ExecutorsClient;
use pumice_wire::executor::executors_server::{Executors, ExecutorsServer};
use pumice_wire::executor::{
    ErrandAnswer, ErrandAnswered, FromExecutor, Hello, ToExecutor, Welcome, from_executor, to_executor,
};
use pumice_wire::{api, rest};
use serde_json::{Value, json};
use tonic::{Request, Response, Status, Streaming};

#[test]
fn json_is_read_in_each_form() {
    let camel = json!({ "queue": "q", "jobSetId": "s", "jobRequestItems": [{ "priority": 1.5, "clientId": "c",
        "podSpecs": [{ "containers": [{ "name": "a" }] }], "externalJobUri": "u", "unheardOf": 1,
        "ingress": [{ "ports": [80], "useClusterIP": true }], "services": [{ "type": "Headless", "ports": [81] }] }] });
    let snake = json!({ "queue": "q", "job_set_id": "s", "job_request_items": [{ "priority": 1.5, "client_id": "c",
        "pod_specs": [{ "containers": [{ "name": "a" }] }], "external_job_uri": "u",
        "ingress": [{ "ports": ["80"], "use_clusterIP": true }], "services": [{ "type": 1, "ports": [81] }] }] });
    let camel: api::JobSubmitRequest = serde_json::from_value(camel).expect("reads");
    let snake: api::JobSubmitRequest = serde_json::from_value(snake).expect("reads");
    assert_eq!(camel, snake);
    let item = &camel.job_request_items[0];
    assert!(item.ingress[0].use_cluster_ip);
    assert_eq!(item.services[0].r#type(), api::ServiceType::Headless);
    assert_eq!(item.pod_specs[0].to_json().expect("decodes")["containers"][0]["name"], "a");
}

#[test]
fn json_is_written_with_names_of_enums_and_keys_as_text() {
    let details = api::JobRunDetails {
        run_id: "r".into(),
        state: api::JobRunState::RunsStateLeaseReturned.into(),
        ingress_addresses: [(80, "a:1".to_owned())].into(),
        ..api::JobRunDetails::default()
    };
    let written = serde_json::to_value(&details).expect("writes");
    assert_eq!(
        written,
        json!({ "runId": "r", "state": "RUNS_STATE_LEASE_RETURNED", "ingressAddresses": { "80": "a:1" } })
    );
    assert_eq!(serde_json::from_value::<api::JobRunDetails>(written).expect("reads"), details);
    let event = api::EventMessage {
        events: Some(api::event_message::Events::Failed(api::JobFailedEvent {
            cause: api::Cause::Oom.into(),
            ..api::JobFailedEvent::default()
        })),
    };
    assert_eq!(serde_json::to_value(&event).expect("writes"), json!({ "failed": { "cause": "OOM" } }));
}

/// What the path, the query and the body say comes together in one message.
#[test]
fn a_request_over_plain_http_becomes_a_message() {
    let matched = rest::route("POST", "/v1/job-set/q/s").expect("a call");
    let mut message = json!({ "watch": true, "queue": "another", "fromMessageId": "1:2:3:true" });
    for (name, value) in matched.fields {
        message[name] = Value::String(value);
    }
    let request: api::JobSetRequest = serde_json::from_value(message).expect("reads");
    assert_eq!((request.queue.as_str(), request.id.as_str(), request.watch), ("q", "s", true));
}

/// Welcomes everybody and repeats the number of what comes next.
struct Greeter;

#[tonic::async_trait]
impl Executors for Greeter {
    type SessionStream = Pin<Box<dyn Stream<Item = Result<ToExecutor, Status>> + Send>>;

    async fn session(
        &self,
        request: Request<Streaming<FromExecutor>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let answers = request.into_inner().map(|message| {
            let message = message?;
            let answer = match message.message {
                Some(from_executor::Message::Hello(_)) => {
                    to_executor::Message::Welcome(Welcome { heartbeat_ms: 5_000 })
                }
                _ => return Err(Status::failed_precondition("a session begins with hello")),
            };
            Ok(ToExecutor { sequence: message.sequence, message: Some(answer) })
        });
        Ok(Response::new(answers.boxed()))
    }

    async fn answer(&self, _: Request<ErrandAnswer>) -> Result<Response<ErrandAnswered>, Status> {
        Err(Status::unimplemented("it has no errands"))
    }
}

#[tokio::test]
async fn a_session_streams_both_ways() {
    let hello = Hello { executor: "e".into(), session_id: "1".into(), format_version: 1, ..Default::default() };
    let messages = [
        FromExecutor { sequence: 1, message: Some(from_executor::Message::Hello(hello)) },
        FromExecutor { sequence: 2, message: None },
    ];
    let mut client = ExecutorsClient::new(ExecutorsServer::new(Greeter));
    let mut answers = client.session(stream::iter(messages)).await.expect("a session").into_inner();
    let first = answers.message().await.expect("goes on").expect("an answer");
    assert_eq!(first.sequence, 1);
    assert!(matches!(first.message, Some(to_executor::Message::Welcome(Welcome { heartbeat_ms: 5_000 }))));
    assert_eq!(answers.message().await.expect_err("refused").code(), tonic::Code::FailedPrecondition);
}
