//! Clients that write until the power goes, and say in the model what they ask and what they are told.

use std::sync::{Arc, Mutex};

use http::Method;
use pumice_faulty_disk::FaultyDisk;
use rand::Rng;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::model::{Change, Model};
use super::objects::{Kind, name, revision};
use crate::harness::{Answer, Server};

/// Objects of each kind and writer.
const NAMES: u32 = 3;
/// Most repeats of a token: bodies from some bytes to several pages of the store.
const REPEATS_MAX: usize = 700;
pub const COUNTER: &str = "/api/v1/namespaces/kube-system/configmaps/counter";

/// No answer, or that it failed: whether the change was made is not known.
pub struct Unanswered;

/// A client that writes until the power goes, and notes in the model what it was answered.
pub struct Writer {
    pub server: Server,
    pub model: Arc<Mutex<Model>>,
    pub disk: FaultyDisk,
    pub rng: StdRng,
    pub number: u64,
    /// Whether it writes what may be lost, too.
    pub leases: bool,
    pub life: u64,
    /// Counts what was done.
    pub steps: watch::Sender<u64>,
}

impl Writer {
    /// Writes at most this often.
    pub async fn run(mut self, changes: u64) {
        for step in 0..changes {
            let token = format!("{}-{}-{step};", self.life, self.number);
            let done = match self.rng.gen_range(0..12) {
                0 => self.count().await,
                1 => self.look().await,
                2 => self.rehearse(&token).await,
                _ => self.change(&token).await,
            };
            if done.is_err() {
                return;
            }
            self.steps.send_modify(|steps| *steps += 1);
        }
    }

    /// Sends a request; a failure of the server is excused by the power alone.
    async fn send(&self, method: Method, path: &str, kind: &str, body: &Value) -> Result<Answer, Unanswered> {
        let answer = self.server.raw(method, path, &[("content-type", kind)], body.to_string()).await;
        if answer.code.is_server_error() {
            assert!(!self.disk.has_power(), "{path}: {}", answer.text);
            return Err(Unanswered);
        }
        Ok(answer)
    }

    /// One change of an object that nobody else touches.
    async fn change(&mut self, token: &str) -> Result<(), Unanswered> {
        let kinds = if self.leases { &Kind::ALL[..] } else { &Kind::ALL[..3] };
        let kind = kinds[self.rng.gen_range(0..kinds.len())];
        let name = format!("w{}-{}", self.number, self.rng.gen_range(0..NAMES));
        let settled = self.model.lock().expect("model").settled(kind, &name);
        let Some(settled) = settled else {
            return self.create(kind, &name, token).await;
        };
        match self.rng.gen_range(0..10) {
            0 => self.delete(kind, &name).await,
            1 | 2 if kind.status("").is_some() => self.report(kind, &name, token).await,
            3 if kind == Kind::Pod && settled["spec"]["nodeName"].is_null() => self.bind(&name, token).await,
            _ => self.write(kind, &name, token, settled).await,
        }
    }

    fn begin(&self, kind: Kind, name: &str, change: Change) {
        self.model.lock().expect("model").begin(kind, name, change);
    }

    fn answer(&self, kind: Kind, name: &str, object: Option<&Value>) {
        self.model.lock().expect("model").answer(kind, name, object);
    }

    fn repeats(&mut self) -> usize {
        let most = if self.rng.gen_ratio(1, 4) { REPEATS_MAX } else { 20 };
        self.rng.gen_range(1..most)
    }

    async fn create(&mut self, kind: Kind, name: &str, token: &str) -> Result<(), Unanswered> {
        let object = kind.object(name, token, self.repeats());
        self.begin(kind, name, Change::Main(token.to_owned()));
        let answer = self.send(Method::POST, kind.path(), "application/json", &object).await?.is(201);
        self.answer(kind, name, Some(&answer.body));
        Ok(())
    }

    /// Replaces the main part, in one of the five ways.
    async fn write(&mut self, kind: Kind, name: &str, token: &str, settled: Value) -> Result<(), Unanswered> {
        let repeats = self.repeats();
        let mut path = format!("{}/{name}", kind.path());
        let mut patch = json!({});
        kind.say(&mut patch, token, repeats);
        let (method, content, body) = match self.rng.gen_range(0..5) {
            0 => {
                let mut object = settled;
                kind.say(&mut object, token, repeats);
                (Method::PUT, "application/json", object)
            }
            1 => {
                let mut operations = vec![
                    json!({"op": "test", "path": "/metadata/resourceVersion", "value": revision(&settled).to_string()}),
                    json!({"op": "replace", "path": "/metadata/annotations", "value": patch["metadata"]["annotations"]}),
                ];
                for part in ["data", "spec"].into_iter().filter(|part| !patch[*part].is_null()) {
                    operations.push(json!({"op": "add", "path": format!("/{part}"), "value": patch[part]}));
                }
                (Method::PATCH, "application/json-patch+json", Value::Array(operations))
            }
            2 if kind != Kind::Thing => (Method::PATCH, "application/strategic-merge-patch+json", patch),
            3 => {
                path.push_str("?fieldManager=writer&force=true");
                (Method::PATCH, "application/apply-patch+yaml", kind.object(name, token, repeats))
            }
            _ => (Method::PATCH, "application/merge-patch+json", patch),
        };
        self.begin(kind, name, Change::Main(token.to_owned()));
        let answer = self.send(method, &path, content, &body).await?.is(200);
        self.answer(kind, name, Some(&answer.body));
        Ok(())
    }

    async fn report(&mut self, kind: Kind, name: &str, token: &str) -> Result<(), Unanswered> {
        let patch = kind.status(token).expect("a kind with a status");
        self.begin(kind, name, Change::Status(token.to_owned()));
        let path = format!("{}/{name}/status", kind.path());
        let answer = self.send(Method::PATCH, &path, "application/merge-patch+json", &patch).await?.is(200);
        self.answer(kind, name, Some(&answer.body));
        Ok(())
    }

    async fn bind(&mut self, name: &str, node: &str) -> Result<(), Unanswered> {
        let node = format!("n{}", node.trim_end_matches(';'));
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
        self.begin(Kind::Pod, name, Change::Node(node));
        let path = format!("{}/{name}", Kind::Pod.path());
        self.send(Method::POST, &format!("{path}/binding"), "application/json", &binding).await?.is(201);
        // What a read shows is durable, as much as what a write is answered with.
        let bound = self.send(Method::GET, &path, "application/json", &Value::Null).await?.is(200);
        self.answer(Kind::Pod, name, Some(&bound.body));
        Ok(())
    }

    async fn delete(&mut self, kind: Kind, name: &str) -> Result<(), Unanswered> {
        self.begin(kind, name, Change::Gone);
        let path = format!("{}/{name}?gracePeriodSeconds=0", kind.path());
        self.send(Method::DELETE, &path, "application/json", &json!({})).await?.is(200);
        self.answer(kind, name, None);
        Ok(())
    }

    /// Adds one to what all writers share, by compare and set, as often as others are faster.
    async fn count(&mut self) -> Result<(), Unanswered> {
        loop {
            let mut counter = self.send(Method::GET, COUNTER, "application/json", &Value::Null).await?.is(200).body;
            counter["data"]["n"] = (counted(&counter) + 1).to_string().into();
            self.model.lock().expect("model").counted_perhaps += 1;
            let answer = self.send(Method::PUT, COUNTER, "application/json", &counter).await?;
            let mut model = self.model.lock().expect("model");
            model.counted_perhaps -= 1;
            if answer.code == 409 {
                continue;
            }
            model.counted += 1;
            model.saw(revision(&answer.is(200).body));
            return Ok(());
        }
    }

    /// Reads a whole collection in pages, which are of one moment, none of it older than what was shown before.
    async fn look(&mut self) -> Result<(), Unanswered> {
        let kind = Kind::ALL[self.rng.gen_range(0..3)];
        let floor = self.model.lock().expect("model").revision_seen;
        let (mut next, mut first) = (String::new(), None);
        loop {
            let path = format!("{}?limit=4&labelSelector=!kubernetes.io/none&continue={next}", kind.path());
            let page = self.send(Method::GET, &path, "application/json", &Value::Null).await?.is(200).body;
            let moment = revision(&page);
            assert!(moment >= floor, "a list of {moment} after {floor} was shown");
            assert_eq!(*first.get_or_insert(moment), moment, "pages of two moments");
            for item in page["items"].as_array().expect("items").iter().filter(|item| name(item).starts_with('w')) {
                kind.said(item);
                assert!(revision(item) <= moment, "{item} in a list of {moment}");
            }
            self.model.lock().expect("model").saw(moment);
            next = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
            if next.is_empty() {
                return Ok(());
            }
        }
    }

    /// A dry run: nothing of it may ever be found.
    async fn rehearse(&mut self, token: &str) -> Result<(), Unanswered> {
        let object = Kind::ConfigMap.object(&format!("w{}-dry", self.number), token, 1);
        let path = format!("{}?dryRun=All", Kind::ConfigMap.path());
        self.send(Method::POST, &path, "application/json", &object).await?.is(201);
        Ok(())
    }
}

/// What a counter says.
pub fn counted(counter: &Value) -> u64 {
    counter["data"]["n"].as_str().and_then(|text| text.parse().ok()).expect("a counter")
}
