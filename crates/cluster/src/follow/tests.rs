//! Lists, watches and failures as a scripted server tells them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request as HttpRequest, Response, StatusCode};
use http_body_util::Full;
use serde_json::json;
use tokio::sync::Notify;

use super::*;

/// Answers requests in order; keeps what was asked.
#[derive(Clone, Default)]
struct Server {
    /// Told when there is no answer left.
    exhausted: Arc<Notify>,
    answers: Arc<Mutex<VecDeque<(StatusCode, String)>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn follower(answers: &[(u16, String)], version: Option<&str>) -> (Self, Follower) {
        let server = Self::default();
        let answers = answers.iter().map(|(code, text)| (StatusCode::from_u16(*code).unwrap(), text.clone()));
        *server.answers.lock().unwrap() = answers.collect();
        let collection = Collection {
            client: crate::client_over(tower::service_fn({
                let server = server.clone();
                move |request| server.clone().answer(request)
            })),
            path: "/api/v1/pods".into(),
            metadata_only: false,
            scope: WatchScope::labels("a=b"),
            page: 2,
            kind: "test",
        };
        let mut follower = Follower::new(collection, version.map(str::to_owned));
        follower.pauses.backoff.first = Duration::from_millis(1);
        (server, follower)
    }

    async fn answer(
        self,
        request: HttpRequest<kube::client::Body>,
    ) -> Result<Response<Full<Bytes>>, std::convert::Infallible> {
        self.asked.lock().unwrap().push(request.uri().to_string());
        let answer = self.answers.lock().unwrap().pop_front();
        let Some((code, text)) = answer else {
            self.exhausted.notify_one();
            return std::future::pending().await;
        };
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = code;
        Ok(response)
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// Keeps the texts of objects, whose version is their number.
#[derive(Default)]
struct Texts(Vec<String>);

impl Objects for Texts {
    fn read_page(&mut self, text: &str) -> serde_json::Result<PageEnd> {
        let page: Value = serde_json::from_str(text)?;
        self.0.extend(page["items"].as_array().unwrap().iter().map(Value::to_string));
        serde_json::from_value(page["metadata"].clone())
    }

    fn read_one(&mut self, text: &str) -> serde_json::Result<String> {
        let object: u32 = serde_json::from_str(text)?;
        self.0.push(text.to_owned());
        Ok(object.to_string())
    }
}

fn page(items: &[u32], version: &str, next: &str) -> (u16, String) {
    (200, json!({"items": items, "metadata": {"resourceVersion": version, "continue": next}}).to_string())
}

fn status(code: u16) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "message": "no"})
}

/// What is told until the server has no answer left.
async fn told(server: &Server, follower: &mut Follower, texts: &mut Texts) -> Vec<Step> {
    let mut told = Vec::new();
    loop {
        tokio::select! {
            step = follower.next(texts) => told.push(step),
            () = server.exhausted.notified() => return told,
        }
    }
}

#[tokio::test]
async fn a_list_is_read_by_pages_and_watched_from_its_version() {
    let events = [
        r#"{"type":"ADDED","object":10}"#,
        r#"{ "object": 11, "type": "MODIFIED" }"#,
        r#"{"type":"DELETED","object":12}"#,
        r#"{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"13"},"spec":{"containers":null}}}"#,
        r#"{"type":"ADDED","object":14"#,
    ];
    let answers = [page(&[1, 2], "9", "more"), page(&[3], "9", ""), (200, events.join("\n"))];
    let (server, mut follower) = Server::follower(&answers, None);
    let mut texts = Texts::default();
    let expected = [
        Step::ListBegins,
        Step::Listed,
        Step::Listed,
        Step::ListEnds { version: "9".into() },
        Step::Applied,
        Step::Applied,
        Step::Deleted,
        Step::Quiet { version: "13".into() },
    ];
    assert_eq!(told(&server, &mut follower, &mut texts).await, expected);
    assert_eq!(texts.0, ["1", "2", "3", "10", "11", "12"], "half a line counts for nothing");
    let watch =
        "/api/v1/pods?&watch=true&timeoutSeconds=290&labelSelector=a%3Db&allowWatchBookmarks=true&resourceVersion=";
    let expected = [
        "/api/v1/pods?&labelSelector=a%3Db&limit=2".to_owned(),
        "/api/v1/pods?&labelSelector=a%3Db&limit=2&continue=more".to_owned(),
        format!("{watch}9"),
        format!("{watch}13"),
    ];
    assert_eq!(server.asked(), expected);
}

#[tokio::test]
async fn a_version_that_is_gone_means_another_list() {
    let error = format!("{}\n", json!({"type": "ERROR", "object": status(410)}));
    for gone in [(410, status(410).to_string()), (200, error)] {
        let (server, mut follower) = Server::follower(&[gone, page(&[1], "20", "")], Some("5"));
        // What is listed late misses what goes meanwhile: the first time there is no pause.
        follower.pauses.backoff.first = PAUSE_MAX;
        let expected = [Step::ListBegins, Step::Listed, Step::ListEnds { version: "20".into() }];
        assert_eq!(told(&server, &mut follower, &mut Texts::default()).await, expected);
    }
}

#[tokio::test]
async fn a_kind_that_goes_away_is_told_as_missing_until_it_is_back() {
    let none = || (404, status(404).to_string());
    let (server, mut follower) = Server::follower(&[none(), none(), page(&[], "7", "")], Some("5"));
    let expected =
        [Step::ListBegins, Step::Missing, Step::ListBegins, Step::Listed, Step::ListEnds { version: "7".into() }];
    assert_eq!(told(&server, &mut follower, &mut Texts::default()).await, expected);
}

#[tokio::test]
async fn other_failures_are_tried_again_where_they_happened() {
    let broken = || (500, "a proxy's page".to_owned());
    let answers = [broken(), (200, "not JSON".into()), page(&[1], "3", ""), broken(), (200, String::new())];
    let (server, mut follower) = Server::follower(&answers, None);
    let lists = [Step::ListBegins, Step::ListBegins, Step::ListBegins, Step::Listed];
    let told = told(&server, &mut follower, &mut Texts::default()).await;
    assert_eq!(told[..4], lists);
    assert_eq!(told[4..], [Step::ListEnds { version: "3".into() }]);
    let watched = |asked: &&String| asked.contains("watch=true") && asked.ends_with("resourceVersion=3");
    assert_eq!(server.asked().iter().filter(watched).count(), 3, "{:?}", server.asked());
}

#[tokio::test]
async fn who_falls_behind_goes_on_at_once_and_who_is_told_nothing_new_pauses() {
    let event = |version: u32| (200, json!({"type": "ADDED", "object": version}).to_string() + "\n");
    for (watches, pauses) in [
        (vec![event(10), event(11), event(12)], 0),
        (vec![(200, String::new()), event(10), event(10), (200, String::new())], 3),
    ] {
        let (server, mut follower) = Server::follower(&watches, Some("9"));
        told(&server, &mut follower, &mut Texts::default()).await;
        assert_eq!(follower.pauses.failures, pauses, "{watches:?}");
    }
}

#[tokio::test]
async fn an_object_that_can_not_be_read_is_left_out() {
    let events = "{\"type\":\"ADDED\",\"object\":\"strange\"}\nnot JSON\n{\"type\":\"ADDED\",\"object\":8}\n";
    let (server, mut follower) = Server::follower(&[(200, events.into())], Some("5"));
    assert_eq!(told(&server, &mut follower, &mut Texts::default()).await, [Step::Applied]);
    assert!(server.asked()[1].ends_with("resourceVersion=8"));
}

#[test]
fn pauses_double_up_to_a_limit_and_are_forgotten() {
    let mut pauses = Pauses::default();
    let start = Instant::now();
    for least in [800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000] {
        let pause = pauses.next(start).as_millis();
        assert!((least..=2 * least).contains(&pause), "{pause} ms where {least} ms are the least");
    }
    let later = start + PAUSE_FORGOTTEN + Duration::from_millis(1);
    assert!(pauses.next(later) <= 2 * PAUSE_FIRST);
}
