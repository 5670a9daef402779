//! `GET /containerLogs/{namespace}/{pod}/{container}` as the kubelet serves it; and of ours, for pods that are gone,
//! `GET /retainedLogs/{namespace}/{owner}`, what there is, with `/{uid}/{container}/{restart}` after it for the text of one.
//!
//! Invariant: reads files only, so that a log can be read while a pod runs, after it ended and across
//! restarts of the platform. A slow reader holds up nobody.

use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};

use crate::kubelet_api::{ContainerPath, NodeBody, json, text};
use crate::logs::query::LogQuery;
use crate::logs::reader;
use crate::logs::retained::{RetainedContainer, RetainedLogs};
use crate::pod_index::PodIndex;
use pumice_shim::status::{ContainerStatus, ShimStatus};

/// Why there is no log to show.
#[derive(Debug, thiserror::Error)]
enum LogError {
    #[error("only GET is served here")]
    Method,
    #[error("{0}")]
    Query(String),
    #[error("pod {pod:?} is not on this node")]
    NoSuchPod { pod: String },
    #[error("container {container} is not valid for pod {pod}")]
    NoSuchContainer { pod: String, container: String },
    #[error("container {container:?} in pod {pod:?} is waiting to start: {reason}")]
    Waiting { pod: String, container: String, reason: String },
    #[error("the log of run {restart:?} of container {container:?} of pod {uid:?} is not here any more")]
    NotRetained { uid: String, container: String, restart: String },
    #[error("previous terminated container {container:?} in pod {pod:?} not found")]
    NoPrevious { pod: String, container: String },
}

impl LogError {
    fn code(&self) -> StatusCode {
        match self {
            LogError::NoSuchPod { .. } | LogError::NotRetained { .. } => StatusCode::NOT_FOUND,
            LogError::Method => StatusCode::METHOD_NOT_ALLOWED,
            _ => StatusCode::BAD_REQUEST,
        }
    }
}

/// Answers one request; what is wrong with it is said in the answer.
pub(crate) fn serve<B>(pods: &PodIndex, path: ContainerPath<'_>, request: &Request<B>) -> Response<NodeBody> {
    let query = request.uri().query().unwrap_or_default();
    match open(pods, path, request.method(), query) {
        Ok(source) => Response::new(BodyExt::boxed(StreamBody::new(reader::stream(source)))),
        Err(error) => text(error.code(), &error.to_string()),
    }
}

/// Answers which logs there are of pods that an owner had.
pub(crate) fn retained(logs: &RetainedLogs, namespace: &str, owner: &str) -> Response<NodeBody> {
    match serde_json::to_vec(&logs.of(namespace, owner)) {
        Ok(found) => json(found),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

/// Answers with the log of one run of a pod that is gone.
pub(crate) fn serve_retained<B>(
    logs: &RetainedLogs,
    path: RetainedContainer<'_>,
    restart: &str,
    request: &Request<B>,
) -> Response<NodeBody> {
    let RetainedContainer { uid, container, .. } = path;
    let open = || {
        if request.method() != Method::GET {
            return Err(LogError::Method);
        }
        let query = LogQuery::parse(request.uri().query().unwrap_or_default()).map_err(LogError::Query)?;
        let found = restart.parse().ok().and_then(|attempt| Some((attempt, logs.find(path, attempt)?)));
        let (attempt, dir) = found.ok_or_else(|| LogError::NotRetained {
            uid: uid.to_owned(),
            container: container.to_owned(),
            restart: restart.to_owned(),
        })?;
        Ok(reader::Source { dir, container: container.to_owned(), attempt, query })
    };
    match open() {
        Ok(source) => Response::new(BodyExt::boxed(StreamBody::new(reader::stream(source)))),
        Err(error) => text(error.code(), &error.to_string()),
    }
}

fn open(
    pods: &PodIndex,
    ContainerPath { namespace, pod, container }: ContainerPath<'_>,
    method: &Method,
    query: &str,
) -> Result<reader::Source, LogError> {
    if method != Method::GET {
        return Err(LogError::Method);
    }
    let query = LogQuery::parse(query).map_err(LogError::Query)?;
    let dir = pods.get(namespace, pod).ok_or_else(|| LogError::NoSuchPod { pod: pod.to_owned() })?;
    let named = |reason: &str| LogError::Waiting {
        pod: pod.to_owned(),
        container: container.to_owned(),
        reason: reason.to_owned(),
    };
    let status = ShimStatus::read(&dir).map_err(|_| named("ContainerCreating"))?;
    let found = status
        .container(container)
        .ok_or_else(|| LogError::NoSuchContainer { pod: pod.to_owned(), container: container.to_owned() })?;
    let attempt = attempt(found, query.previous).ok_or_else(|| match query.previous {
        true => LogError::NoPrevious { pod: pod.to_owned(), container: container.to_owned() },
        false => named("PodInitializing"),
    })?;
    Ok(reader::Source { dir, container: container.to_owned(), attempt, query })
}

/// Which run's log is meant; none when there was no such run.
fn attempt(status: &ContainerStatus, previous: bool) -> Option<u32> {
    let began = status.is_running() || status.exit().is_some() || status.last.is_some();
    match previous {
        false => began.then_some(status.restart_count),
        true => status.restart_count.checked_sub(1),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::kubelet_api::NodeService;
    use crate::launcher::Launcher;
    use crate::launcher::ShimProgram;
    use crate::usage::Usage;
    use jiff::Timestamp;
    use pumice_linux::files::Durability;
    use pumice_shim::logs::{LogFile, log_path};
    use pumice_shim::status::{ContainerState, Exit, ShimPhase};

    async fn get(service: &NodeService, uri: &str) -> (u16, String) {
        let response = service.answer(Request::get(uri).body(()).unwrap());
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }

    fn service(dir: &std::path::Path) -> NodeService {
        let at = Timestamp::from_second(1_700_000_000).unwrap();
        let mut status = ShimStatus::new([].into_iter(), ["c", "waiting"].into_iter(), at);
        let exit = Exit {
            code: 0,
            signal: None,
            reason: "Completed".into(),
            message: None,
            started_at: at,
            finished_at: at,
            discarded: None,
        };
        status.phase = ShimPhase::Done;
        status.containers[0].state = ContainerState::Terminated(exit);
        status.write(dir, Durability::Process).unwrap();
        let path = log_path(dir, "c", 0);
        drop(LogFile::open(path.clone(), 1 << 20).unwrap());
        let lines = "2023-11-14T22:13:20.000000000Z stdout F one\n\
                     2023-11-14T22:13:21.000000000Z stderr P tw\n\
                     2023-11-14T22:13:21.500000000Z stderr F o\n\
                     2023-11-14T22:13:22.000000000Z stdout F three\n";
        std::fs::write(path, lines).unwrap();
        let pods = PodIndex::default();
        pods.insert("ns", "p", dir.to_owned(), crate::pod_index::DiskRules::default());
        NodeService::new(
            pods,
            Arc::new(RetainedLogs::open(dir)),
            Launcher::new(ShimProgram { embedded: None, program: "/bin/false".into(), args: Vec::new() }),
            Usage::default(),
        )
    }

    #[tokio::test]
    async fn logs_are_answered_as_the_kubelet_does() {
        let dir = tempfile::tempdir().unwrap();
        let service = service(dir.path());
        let cases = [
            ("", 200, "one\ntwo\nthree\n"),
            ("?follow=true", 200, "one\ntwo\nthree\n"),
            ("?tailLines=1", 200, "three\n"),
            ("?tailLines=2", 200, "two\nthree\n"),
            ("?tailLines=0", 200, ""),
            ("?tailLines=99", 200, "one\ntwo\nthree\n"),
            ("?limitBytes=5", 200, "one\nt"),
            ("?sinceTime=2023-11-14T22:13:22Z", 200, "three\n"),
            ("?timestamps=true&tailLines=1", 200, "2023-11-14T22:13:22.000000000Z three\n"),
            ("?stream=Stdout", 200, "one\nthree\n"),
            ("?stream=Stderr&tailLines=5", 200, "two\n"),
            ("?stream=none", 400, "stream must be All, Stdout or Stderr"),
            ("?tailLines=-1", 400, "tailLines must be a whole number that is not negative"),
            ("?sinceTime=yesterday", 400, "sinceTime must be a time as in RFC 3339"),
            ("?previous=true", 400, "previous terminated container \"c\" in pod \"p\" not found"),
        ];
        for (query, code, text) in cases {
            let found = get(&service, &format!("/containerLogs/ns/p/c{query}")).await;
            assert_eq!(found, (code, text.to_owned()), "{query}");
        }
    }

    #[tokio::test]
    async fn logs_of_pods_that_are_gone_are_told_of_and_given() {
        use crate::networks::pod_network::tests::spec;
        use pumice_shim::spec::{Network, SPEC_FILE, ShimSpec};

        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("pods/u1");
        let path = log_path(&own, "c", 0);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "2023-11-14T22:13:20Z stdout F one\n2023-11-14T22:13:21Z stderr P tw").unwrap();
        let spec = ShimSpec { uid: "u1".into(), owner: Some("job".into()), ..spec(Network::Host) };
        std::fs::write(own.join(SPEC_FILE), serde_json::to_vec(&spec).unwrap()).unwrap();
        let retained = RetainedLogs::open(dir.path());
        retained.take(&own);
        let launcher = Launcher::new(ShimProgram { embedded: None, program: "/bin/false".into(), args: Vec::new() });
        let service = NodeService::new(PodIndex::default(), Arc::new(retained), launcher, Usage::default());
        let (code, list) = get(&service, "/retainedLogs/ns/job").await;
        assert_eq!(code, 200);
        let list: serde_json::Value = serde_json::from_str(&list).unwrap();
        assert_eq!((&list[0]["pod"], &list[0]["runs"][0]["container"]), (&"p".into(), &"c".into()));
        for (path, code, text) in [
            ("ns/other", 200, "[]"),
            ("ns/job/u1/c/0", 200, "one\n"),
            ("ns/job/u1/c/0?follow=true&stream=Stdout", 200, "one\n"),
            ("ns/job/u1/c/0?stream=x", 400, "stream must be All, Stdout or Stderr"),
            ("ns/job/u1/c/1", 404, "the log of run \"1\" of container \"c\" of pod \"u1\" is not here any more"),
            ("ns/other/u1/c/0", 404, "the log of run \"0\" of container \"c\" of pod \"u1\" is not here any more"),
            ("ns/job/u1/c/x", 404, "the log of run \"x\" of container \"c\" of pod \"u1\" is not here any more"),
        ] {
            assert_eq!(get(&service, &format!("/retainedLogs/{path}")).await, (code, text.to_owned()), "{path}");
        }
    }

    #[tokio::test]
    async fn what_is_not_there_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let service = service(dir.path());
        let cases = [
            ("/containerLogs/ns/other/c", 404, "pod \"other\" is not on this node"),
            ("/containerLogs/ns/p/x", 400, "container x is not valid for pod p"),
            (
                "/containerLogs/ns/p/waiting",
                400,
                "container \"waiting\" in pod \"p\" is waiting to start: PodInitializing",
            ),
            ("/stats/ns/p/c", 404, "the server could not find the requested resource"),
        ];
        for (path, code, text) in cases {
            assert_eq!(get(&service, path).await, (code, text.to_owned()), "{path}");
        }
    }
}
