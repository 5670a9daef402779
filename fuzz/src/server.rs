//! An API server in the process, for targets that ask it.
//!
//! Invariant: an answer has a valid code, comes within [`PATIENCE`], and its body is bounded. The server is made anew when it
//! was asked much or holds much, so that memory tells of leaks alone.

use std::cell::RefCell;
use std::time::Duration;

use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use pumice_apiserver::ApiServer;
use pumice_auth::{Identity, MASTERS, Policy, built_in};
use pumice_store::{Options, Store};
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};
use tower::Service;

use crate::kinds;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a stream is listened to: long enough for what is there already.
const LISTENING: Duration = Duration::from_millis(1);
/// Inputs that one server sees.
const INPUTS_MAX: u32 = 512;
/// Largest answer.
const ANSWER_BYTES_MAX: usize = 64 << 20;

thread_local! {
    static SERVER: RefCell<Option<Server>> = const { RefCell::new(None) };
}

/// A server with its own runtime.
pub struct Server {
    runtime: Runtime,
    api: ApiServer,
    inputs: u32,
}

/// Runs `work` on the server of this thread.
pub fn with(work: impl FnOnce(&Server)) {
    SERVER.with_borrow_mut(|kept| {
        if kept.as_ref().is_some_and(|server| server.inputs >= INPUTS_MAX)
            && let Some(Server { runtime, api, .. }) = kept.take()
        {
            runtime.block_on(api.stop());
        }
        let server = kept.get_or_insert_with(Server::new);
        server.inputs += 1;
        work(server);
    });
}

impl Server {
    fn new() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let store = Store::in_memory(Options::default()).expect("a store");
        let api = runtime.block_on(ApiServer::builder(store, Policy::new(built_in())).build()).expect("a server");
        let server = Self { runtime, api, inputs: 0 };
        for kind in 0..kinds::PATCHED.len() {
            let object = kinds::good(kind);
            if kind == 3 {
                let definition = kinds::definition(&kinds::structural());
                server.make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition);
            }
            let path = ["/api/v1", "/api/v1", "/api/v1", "/apis/fuzz.io/v1"][kind];
            let plural = ["configmaps", "pods", "services", "things"][kind];
            server.make(&format!("{path}/namespaces/default/{plural}"), &object);
        }
        server
    }

    fn make(&self, path: &str, object: &Value) {
        let (code, body) = self.json(Method::POST, path, "application/json", object);
        assert_eq!(code, StatusCode::CREATED, "{path}: {body}");
    }

    /// Sends JSON as the administrator.
    pub fn json(&self, method: Method, path: &str, content_type: &str, body: &Value) -> (StatusCode, Value) {
        let request = Request::builder().method(method).uri(path).header("content-type", content_type);
        let (code, answer) = self.ask(request.body(Full::new(body.to_string().into())).expect("a request"));
        (code, serde_json::from_slice(&answer).unwrap_or_default())
    }

    /// Sends any request as the administrator.
    pub fn ask(&self, request: Request<Full<bytes::Bytes>>) -> (StatusCode, Vec<u8>) {
        let told = format!("{} {}", request.method(), request.uri());
        let mut service = self.api.client_service(Identity::new("admin", [MASTERS]));
        self.runtime.block_on(async {
            let answer = tokio::time::timeout(PATIENCE, service.call(request)).await;
            let answer = answer.unwrap_or_else(|_| panic!("{told}: no answer")).expect("infallible");
            let code = answer.status();
            assert!((100..600).contains(&code.as_u16()), "{told}: {code}");
            let mut body = answer.into_body();
            let mut read = Vec::new();
            while let Ok(Some(frame)) = tokio::time::timeout(LISTENING, body.frame()).await {
                let Ok(frame) = frame else { break };
                read.extend_from_slice(frame.data_ref().map_or(&[], |data| data.as_ref()));
                assert!(read.len() <= ANSWER_BYTES_MAX, "{told}: an answer without end");
            }
            (code, read)
        })
    }
}
