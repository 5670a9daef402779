//! Which call a request over plain HTTP is, as Armada's gateway has it.
//!
//! Invariant: at most one route fits a request. Pure: the server takes what [`route`] says, makes the call's message of the
//! body, of the query and of the fields in the path, in this order, and answers in JSON; what streams is one object a line.

use std::fmt;

/// Methods of HTTP that occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Method {
    /// `DELETE`
    Delete,
    /// `GET`
    Get,
    /// `POST`
    Post,
    /// `PUT`
    Put,
}

impl Method {
    /// The method of this name, in capitals.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "DELETE" => Self::Delete,
            "GET" => Self::Get,
            "POST" => Self::Post,
            "PUT" => Self::Put,
            _ => return None,
        })
    }
}

/// Where the fields of a call's message are, apart from those in the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The body is the message.
    Body,
    /// The query has its fields.
    Query,
}

/// How many messages a call is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Single,
    /// Any number, each as `{"result": message}` on a line of its own.
    Stream,
}

/// One call under one path.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// The method of HTTP.
    pub method: Method,
    /// The path. A segment in braces is any text: the value of the message's field of this name.
    pub template: &'static str,
    /// The service with its package, as in `api.Submit`.
    pub service: &'static str,
    /// The call, as in `SubmitJobs`.
    pub call: &'static str,
    /// Where the message is.
    pub source: Source,
    pub answer: Answer,
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} -> {}/{}", self.method, self.template, self.service, self.call)
    }
}

/// The call that a request's path means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matched {
    pub route: &'static Route,
    /// Fields of the message, as the definition names them, with their values from the path, percent-decoded. They count
    /// more than the body's.
    pub fields: Vec<(&'static str, String)>,
}

/// Every call that has a path.
pub const ROUTES: &[Route] = &[
    body(Method::Post, "/v1/job/submit", SUBMIT, "SubmitJobs"),
    body(Method::Post, "/v1/job/cancel", SUBMIT, "CancelJobs"),
    body(Method::Post, "/v1/jobset/cancel", SUBMIT, "CancelJobSet"),
    body(Method::Post, "/v1/job/reprioritize", SUBMIT, "ReprioritizeJobs"),
    body(Method::Post, "/v1/job/preempt", SUBMIT, "PreemptJobs"),
    body(Method::Post, "/v1/queue", SUBMIT, "CreateQueue"),
    body(Method::Put, "/v1/queue/{name}", SUBMIT, "UpdateQueue"),
    query(Method::Delete, "/v1/queue/{name}", SUBMIT, "DeleteQueue"),
    query(Method::Get, "/v1/queue/{name}", SUBMIT, "GetQueue"),
    body(Method::Post, "/v1/batched/create_queues", SUBMIT, "CreateQueues"),
    body(Method::Put, "/v1/batched/update_queues", SUBMIT, "UpdateQueues"),
    stream(query(Method::Get, "/v1/batched/queues", SUBMIT, "GetQueues")),
    body(Method::Post, "/v1/retry-policy", RETRY_POLICIES, "CreateRetryPolicy"),
    body(Method::Put, "/v1/retry-policy/{name}", RETRY_POLICIES, "UpdateRetryPolicy"),
    query(Method::Delete, "/v1/retry-policy/{name}", RETRY_POLICIES, "DeleteRetryPolicy"),
    query(Method::Get, "/v1/retry-policy/{name}", RETRY_POLICIES, "GetRetryPolicy"),
    query(Method::Get, "/v1/retry-policies", RETRY_POLICIES, "GetRetryPolicies"),
    stream(body(Method::Post, "/v1/job-set/{queue}/{id}", "api.Event", "GetJobSetEvents")),
    body(Method::Post, "/v1/job/status", JOBS, "GetJobStatus"),
    body(Method::Post, "/v1/job/statusUsingExternalJobUri", JOBS, "GetJobStatusUsingExternalJobUri"),
    body(Method::Post, "/v1/job/details", JOBS, "GetJobDetails"),
    body(Method::Post, "/v1/job/errors", JOBS, "GetJobErrors"),
    body(Method::Post, "/v1/run/details", JOBS, "GetJobRunDetails"),
    body(Method::Post, "/v1/queues/active", JOBS, "GetActiveQueues"),
    body(Method::Put, "/v1/executor_settings/{name}", EXECUTOR, "UpsertExecutorSettings"),
    body(Method::Delete, "/v1/executor_settings/{name}", EXECUTOR, "DeleteExecutorSettings"),
    body(Method::Post, "/v1/executor/preempt/{name}", EXECUTOR, "PreemptOnExecutor"),
    body(Method::Post, "/v1/executor/cancel/{name}", EXECUTOR, "CancelOnExecutor"),
    body(Method::Delete, "/v1/executors/{name}", EXECUTOR, "DeleteExecutor"),
    body(Method::Post, "/v1/node/preempt/{name}", "api.Node", "PreemptOnNode"),
    body(Method::Post, "/v1/node/cancel/{name}", "api.Node", "CancelOnNode"),
    query(Method::Get, "/v1/scheduling-report", REPORTING, "GetSchedulingReport"),
    query(Method::Get, "/v1/queue/{queue_name}/scheduler-report", REPORTING, "GetQueueReport"),
    query(Method::Get, "/v1/job/{job_id}/scheduler-report", REPORTING, "GetJobReport"),
    body(Method::Post, "/v1/binoculars/log", "binoculars.Binoculars", "Logs"),
    body(Method::Post, "/v1/binoculars/cordon", "binoculars.Binoculars", "Cordon"),
];

const SUBMIT: &str = "api.Submit";
const RETRY_POLICIES: &str = "api.RetryPolicyService";
const JOBS: &str = "api.Jobs";
const EXECUTOR: &str = "api.Executor";
const REPORTING: &str = "schedulerobjects.SchedulerReporting";

/// The call of a request; nothing where there is none under this method and path. `method` is in capitals and `path` as in
/// the request line, without the query.
#[must_use]
pub fn route(method: &str, path: &str) -> Option<Matched> {
    let method = Method::parse(method)?;
    ROUTES
        .iter()
        .filter(|route| route.method == method)
        .find_map(|route| Some(Matched { route, fields: fields(route.template, path)? }))
}

const fn body(method: Method, template: &'static str, service: &'static str, call: &'static str) -> Route {
    Route { method, template, service, call, source: Source::Body, answer: Answer::Single }
}

const fn query(method: Method, template: &'static str, service: &'static str, call: &'static str) -> Route {
    Route { source: Source::Query, ..body(method, template, service, call) }
}

const fn stream(route: Route) -> Route {
    Route { answer: Answer::Stream, ..route }
}

/// The fields in a path that is of the template; nothing where it is not.
fn fields(template: &'static str, path: &str) -> Option<Vec<(&'static str, String)>> {
    let (mut wanted, mut given) = (template.split('/'), path.split('/'));
    let mut fields = Vec::new();
    loop {
        match (wanted.next(), given.next()) {
            (Some(wanted), Some(given)) => match field(wanted) {
                Some(name) if !given.is_empty() => fields.push((name, decode(given)?)),
                None if wanted == given => {}
                _ => return None,
            },
            (None, None) => return Some(fields),
            _ => return None,
        }
    }
}

/// The field that a segment of a template is.
fn field(segment: &'static str) -> Option<&'static str> {
    segment.strip_prefix('{')?.strip_suffix('}')
}

/// A segment without percent signs; nothing where they are wrong.
fn decode(segment: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(segment.len());
    let mut bytes = segment.bytes();
    while let Some(byte) = bytes.next() {
        let byte = if byte == b'%' { hex(bytes.next()?)? << 4 | hex(bytes.next()?)? } else { byte };
        decoded.push(byte);
    }
    String::from_utf8(decoded).ok()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Armada's definitions say.
    const FACTS: &str = include_str!("../tests/armada-fields.txt");
    /// Calls without a path: upstream has none for them.
    const WITHOUT: &[&str] = &[
        "api.QueueService/",
        "api.Submit/Health(",
        "api.Event/Watch(",
        "api.Event/Health(",
        "api.BidRetrieverService/",
    ];

    fn found(method: &str, path: &str) -> Option<(&'static str, Vec<(&'static str, String)>)> {
        route(method, path).map(|matched| (matched.route.call, matched.fields))
    }

    #[test]
    fn requests_find_their_call() {
        let name = |name: &str| vec![("name", name.to_owned())];
        assert_eq!(found("POST", "/v1/job/submit"), Some(("SubmitJobs", vec![])));
        assert_eq!(found("GET", "/v1/queue/a"), Some(("GetQueue", name("a"))));
        assert_eq!(found("DELETE", "/v1/queue/a%2Fb%20%c3%a9"), Some(("DeleteQueue", name("a/b é"))));
        assert_eq!(
            found("GET", "/v1/queue/q/scheduler-report"),
            Some(("GetQueueReport", vec![("queue_name", "q".to_owned())]))
        );
        let matched = route("POST", "/v1/job-set/q/s:1").expect("matches");
        assert_eq!(matched.fields, [("queue", "q".to_owned()), ("id", "s:1".to_owned())]);
        assert_eq!((matched.route.service, matched.route.answer), ("api.Event", Answer::Stream));
        assert_eq!(route("DELETE", "/v1/executors/e").expect("matches").route.source, Source::Body);
        assert_eq!(route("DELETE", "/v1/queue/q").expect("matches").route.source, Source::Query);
    }

    #[test]
    fn other_requests_find_none() {
        for (method, path) in [
            ("GET", "/v1/job/submit"),
            ("PATCH", "/v1/queue/a"),
            ("get", "/v1/queue/a"),
            ("GET", "/v1/queue"),
            ("GET", "/v1/queue/"),
            ("GET", "/v1/queue/a/"),
            ("GET", "/v1/queue/a/b"),
            ("GET", "v1/queue/a"),
            ("GET", ""),
            ("GET", "/v1/queue/%"),
            ("GET", "/v1/queue/%4"),
            ("GET", "/v1/queue/%+1"),
            ("GET", "/v1/queue/%ff"),
        ] {
            assert_eq!(route(method, path), None, "{method} {path}");
        }
    }

    #[test]
    fn every_route_is_found_by_its_own_template() {
        for route in ROUTES {
            let method = format!("{:?}", route.method).to_uppercase();
            let matched = super::route(&method, &route.template.replace(['{', '}'], "")).expect("matches");
            assert_eq!(matched.route, route);
            assert!(matched.fields.iter().all(|(name, value)| name == value), "{route:?}");
        }
    }

    #[test]
    fn routes_are_of_the_calls_and_fields_that_there_are() {
        for route in ROUTES {
            let call = format!("{}/{}(", route.service, route.call);
            let (request, answer) = FACTS
                .lines()
                .find_map(|line| line.strip_prefix(call.as_str())?.split_once(")returns("))
                .unwrap_or_else(|| panic!("{route:?}"));
            assert_eq!(answer.starts_with("stream "), route.answer == Answer::Stream, "{route:?}");
            for name in route.template.split('/').filter_map(field) {
                let fact = format!("{request}.{name}=");
                assert!(FACTS.lines().any(|line| line.starts_with(&fact) && line.ends_with(":string")), "{fact}");
            }
        }
        let calls = FACTS.lines().filter_map(|line| line.split_once('(')).map(|(call, _)| call);
        for call in calls {
            let has_path = ROUTES.iter().any(|route| format!("{}/{}", route.service, route.call) == call);
            let excused = WITHOUT.iter().any(|prefix| format!("{call}(").starts_with(prefix));
            assert!(has_path != excused, "{call}");
        }
    }
}
