//! Requests by service, call and code, as gRPC's own metrics have them. A call over HTTP counts as the call that it is.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pumice_metrics::{Counts, Histogram, Page};
use pumice_wire::rest;
use tonic::Code;

/// Seconds that an answer may take.
const SECONDS: [f64; 12] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// The name of everything that is not served here.
const UNKNOWN: &str = "unknown";
/// What is served here.
const SERVICES: [&str; 10] = [
    "api.Submit",
    "api.QueueService",
    "api.Event",
    "api.Jobs",
    "api.Executor",
    "api.Node",
    "pumice.job_sets.v1.JobSets",
    "schedulerobjects.SchedulerReporting",
    "binoculars.Binoculars",
    "pumice.fleet.v1.Executors",
];
/// Calls whose answers go on; their times are those to the beginning of the answer.
const STREAMS: [&str; 4] = ["GetJobSetEvents", "Watch", "GetQueues", "Session"];

/// What a request asks for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CallKey {
    service: &'static str,
    call: String,
}

impl CallKey {
    /// The call under a path of gRPC, or under a method and a path of HTTP.
    pub(crate) fn of(is_grpc: bool, method: &str, path: &str) -> Self {
        let (service, call) = if is_grpc {
            let (service, call) = path.trim_start_matches('/').split_once('/').unwrap_or((path, UNKNOWN));
            (service, call.to_owned())
        } else {
            match rest::route(method, path) {
                Some(matched) => (matched.route.service, matched.route.call.to_owned()),
                None => return Self::page(path),
            }
        };
        match SERVICES.iter().find(|known| **known == service) {
            Some(service) => Self { service, call },
            None => Self { service: UNKNOWN, call: UNKNOWN.to_owned() },
        }
    }

    fn page(path: &str) -> Self {
        let page = ["/metrics", "/health"].into_iter().find(|known| *known == path);
        Self {
            service: page.map_or(UNKNOWN, |_| "http"),
            call: page.unwrap_or(UNKNOWN).trim_start_matches('/').to_owned(),
        }
    }
}

/// All that were answered.
#[derive(Debug)]
pub(super) struct Requests {
    handled: Counts<4>,
    seconds: Mutex<BTreeMap<CallKey, Arc<Histogram>>>,
}

impl Default for Requests {
    fn default() -> Self {
        let labels = ["grpc_type", "grpc_service", "grpc_method", "grpc_code"];
        Self { handled: Counts::new(labels), seconds: Mutex::default() }
    }
}

impl Requests {
    pub(super) fn count(&self, mut call_key: CallKey, code: Code, took: Duration) {
        // Strangers, and whoever asks for what is not there, may write anything into a path.
        if matches!(code, Code::Unimplemented | Code::Unauthenticated) {
            call_key.call = UNKNOWN.to_owned();
        }
        self.handled.add([kind(&call_key), call_key.service, &call_key.call, word(code)]);
        let mut seconds = self.seconds.lock().unwrap_or_else(PoisonError::into_inner);
        let times = seconds.entry(call_key).or_insert_with(|| Arc::new(Histogram::in_seconds(&SECONDS)));
        times.observe(took);
    }

    pub(super) fn write(&self, page: &mut Page) {
        let help = "Total number of RPCs completed on the server, regardless of success or failure.";
        page.counts("grpc_server_handled_total", help, &self.handled);
        let name = "grpc_server_handling_seconds";
        let help = "Response latency of gRPC that had been application-level handled by the server; of streams, to the \
            beginning of the answer.";
        page.head(name, "histogram", help);
        let seconds = self.seconds.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (call_key, histogram) in &seconds {
            let labels = [
                ("grpc_type", kind(call_key)),
                ("grpc_service", call_key.service),
                ("grpc_method", call_key.call.as_str()),
            ];
            page.classes(name, &labels, histogram);
        }
    }
}

fn kind(call_key: &CallKey) -> &'static str {
    match call_key.call.as_str() {
        "Session" => "bidi_stream",
        call if STREAMS.contains(&call) => "server_stream",
        _ => "unary",
    }
}

/// As Go's gRPC writes it.
fn word(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}
