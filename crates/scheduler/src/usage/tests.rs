//! Answers of sources, read; and what is asked of them.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::Response;
use http_body_util::Full;
use pumice_cluster::client_over;

use super::*;

fn usage(cpu_per_mille: i64, memory_per_mille: i64, at: i64) -> NodeUsage {
    NodeUsage { cpu_per_mille, memory_per_mille, at: TimeMs(at) }
}

/// A server that gives its answers in turn, and keeps what it was asked.
fn server<const N: usize>(answers: [(u16, &'static str); N]) -> (Client, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (kept, mut answers) = (Arc::clone(&asked), answers.into_iter());
    let service = tower::service_fn(move |request: Request<Body>| {
        kept.lock().unwrap().push(format!("{} {}", request.method(), request.uri()));
        let (status, text) = answers.next().unwrap();
        let answer = Response::builder().status(status).body(Full::new(Bytes::from_static(text.as_bytes()))).unwrap();
        std::future::ready(Ok::<_, Infallible>(answer))
    });
    (client_over(service), asked)
}

#[tokio::test]
async fn prometheus_is_asked_twice_for_all_nodes() {
    let cpu = r#"{"status":"success","data":{"resultType":"vector","result":[
        {"metric":{"instance":"n1:9100"},"value":[1700000000.5,"12.34"]},
        {"metric":{"instance":"n2"},"value":[1700000001,"NaN"]},
        {"metric":{"instance":"n3"},"value":[1700000001,"250"]},
        {"metric":{},"value":[1700000001,"50"]}]}}"#;
    let memory = r#"{"status":"success","data":{"resultType":"vector","result":[
        {"metric":{"instance":"n1:9100"},"value":[1700000002,"50"]},
        {"metric":{"instance":"n3"},"value":[1700000002,"-3"]},
        {"metric":{"instance":"n4"},"value":[1700000002,"50"]}]}}"#;
    let (client, asked) = server([(200, cpu), (200, memory)]);
    let measured = Asker { client, question: Question::Prometheus }.ask().await.unwrap();
    let wanted = [("n1".into(), usage(123, 500, 1_700_000_000_500)), ("n3".into(), usage(1000, 0, 1_700_000_001_000))];
    assert_eq!(measured, wanted, "what is no number, or known by half, is nothing");
    let asked = asked.lock().unwrap();
    assert_eq!(asked.len(), 2);
    assert!(asked[0].starts_with("GET /api/v1/query?query=avg_over_time%28%28100+-+%28avg+by"), "{asked:?}");
}

#[tokio::test]
async fn the_custom_metrics_api_tells_of_nodes() {
    let of = |name: &str, value: &str, at: &str| {
        format!(r#"{{"describedObject":{{"kind":"Node","name":"{name}"}},"timestamp":"{at}","value":"{value}"}}"#)
    };
    let list = |items: &[String]| -> &'static str { format!(r#"{{"items":[{}]}}"#, items.join(",")).leak() };
    let cpu = list(&[of("n1", "250m", "1970-01-01T00:00:10Z"), of("n2", "3", "1970-01-01T00:00:10Z")]);
    let memory = list(&[of("n1", "1", "1970-01-01T00:00:09Z"), of("n2", "0", "1970-01-01T00:00:11Z")]);
    let (client, asked) = server([(200, cpu), (200, memory)]);
    let measured = Asker { client, question: Question::Adaptor }.ask().await.unwrap();
    assert_eq!(measured, [("n1".into(), usage(250, 1000, 9_000)), ("n2".into(), usage(1000, 0, 10_000))]);
    assert_eq!(
        *asked.lock().unwrap(),
        [
            "GET /apis/custom.metrics.k8s.io/v1beta1/nodes/*/node_cpu_usage_avg",
            "GET /apis/custom.metrics.k8s.io/v1beta1/nodes/*/node_memory_usage_avg"
        ]
    );
}

#[tokio::test]
async fn elasticsearch_is_asked_once() {
    let answer = r#"{"aggregations":{"nodes":{"buckets":[
        {"key":"n1","cpu":{"value":0.4215},"memory":{"value":0.9}},
        {"key":"n2","cpu":{"value":null},"memory":{"value":0.9}}]}}}"#;
    let (client, asked) = server([(200, answer)]);
    let question = Question::Elasticsearch { index: "beats".to_owned() };
    let measured = Asker { client, question }.ask().await.unwrap();
    assert_eq!(measured.len(), 1);
    assert_eq!((measured[0].1.cpu_per_mille, measured[0].1.memory_per_mille), (422, 900));
    assert_eq!(*asked.lock().unwrap(), ["POST /beats/_search"]);
}

#[tokio::test]
async fn a_source_that_says_nothing_is_an_error() {
    for (status, text, wanted) in [
        (503, "", "it answered with status 503"),
        (200, "<html>", "the answer can't be read: expected value at line 1 column 1"),
        (200, "{}", "the answer can't be read: missing field `data` at line 1 column 2"),
    ] {
        let (client, _) = server([(status, text), (status, text)]);
        let error = Asker { client, question: Question::Prometheus }.ask().await.unwrap_err();
        assert_eq!(error.to_string(), wanted);
    }
}

#[tokio::test]
async fn an_address_must_be_one() {
    let (cluster, _) = server([]);
    for (address, good) in [("http://prometheus:9090", true), ("", false), ("prometheus:9090", false), ("a b", false)] {
        let source = MetricsSource {
            kind: MetricsKind::Prometheus,
            address: address.to_owned(),
            interval_ms: 30_000,
            insecure: false,
            others: BTreeMap::new(),
        };
        assert_eq!(Asker::new(&cluster, &source).is_ok(), good, "{address:?}");
    }
}
