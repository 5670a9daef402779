//! A registry whose answers are spoiled by rule, and which remembers what it was sent.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pumice_images::digest::Digest;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufStream};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::image::Image;

/// What a client begins with that speaks TLS.
const TLS: u8 = 22;

/// What is done to an answer.
#[derive(Debug, Clone)]
pub enum Fault {
    /// Another answer: its status, headers and body.
    Answer(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// The connection ends after so many bytes of the body.
    Cut(usize),
    /// All bytes come, whatever range was wanted.
    NoRange,
    /// All bytes come and the connection ends after so many of them.
    NoRangeAndCut(usize),
    /// The range is another than the one that was wanted.
    WrongRange,
    /// Other bytes.
    Body(Vec<u8>),
    /// Nothing more comes after so many bytes of the body.
    Stall(usize),
    /// Nothing comes at all.
    Silence,
    /// A byte comes, then a pause.
    Drip(Duration),
    EndlessBody,
    EndlessHead,
    /// A header is missing.
    Without(&'static str),
    /// The connection ends after so many bytes of what the client sends.
    CutRequest(usize),
}

struct Rule {
    method: &'static str,
    /// A part of the path.
    path: String,
    times: usize,
    fault: Fault,
}

impl Rule {
    fn fits(&self, request: &Request) -> bool {
        self.times > 0 && self.method == request.method && request.path.contains(&self.path)
    }
}

/// What a registry was sent.
#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub headers: BTreeMap<String, String>,
    /// What is no text is replaced.
    pub body: String,
    pub bytes: Vec<u8>,
}

impl Request {
    pub fn authorization(&self) -> Option<&str> {
        self.headers.get("authorization").map(String::as_str)
    }

    async fn read(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<Option<Request>> {
        let mut stream = BufStream::with_capacity(1, 1, stream);
        if stream.fill_buf().await?.first() == Some(&TLS) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(None);
        }
        let mut words = line.split_whitespace().map(str::to_owned);
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).await?;
            let Some((name, value)) = line.trim().split_once(':') else { break };
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        Ok(Some(Request { method, path, headers, body: String::new(), bytes: Vec::new() }))
    }

    async fn read_body(
        &mut self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
        most: Option<usize>,
    ) -> io::Result<()> {
        let length = self.headers.get("content-length").map_or(0, |length| length.parse().unwrap());
        let mut bytes = vec![0; most.map_or(length, |most| most.min(length))];
        stream.read_exact(&mut bytes).await?;
        (self.body, self.bytes) = (String::from_utf8_lossy(&bytes).into_owned(), bytes);
        Ok(())
    }
}

/// Somebody whom a registry knows.
#[derive(Debug, Clone)]
pub struct User {
    pub name: &'static str,
    pub password: &'static str,
    /// What may be pulled and pushed to.
    pub repositories: Vec<&'static str>,
}

/// How a registry finds out who it is.
#[derive(Debug, Clone, Default)]
pub enum Access {
    #[default]
    Open,
    Basic,
    /// By tokens from this address.
    Bearer(String),
}

#[derive(Default)]
struct State {
    access: Mutex<Access>,
    users: Mutex<Vec<User>>,
    public: Mutex<Vec<&'static str>>,
    /// By repository and tag or digest: kind and content.
    manifests: Mutex<BTreeMap<String, (String, Vec<u8>)>>,
    /// By repository and digest.
    blobs: Mutex<BTreeMap<String, Vec<u8>>>,
    rules: Mutex<Vec<Rule>>,
    requests: Mutex<Vec<Request>>,
    /// Bytes of blobs that were sent.
    sent_bytes: Mutex<usize>,
}

/// A registry at a free port, until it is dropped.
pub struct Registry {
    /// Host and port.
    pub host: String,
    pub scheme: &'static str,
    state: Arc<State>,
    _tasks: JoinSet<()>,
}

struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    is_blob: bool,
}

impl Answer {
    fn new(status: u16, headers: Vec<(&'static str, String)>, body: impl Into<Vec<u8>>) -> Answer {
        Answer { status, headers, body: body.into(), is_blob: false }
    }
}

impl Registry {
    pub async fn start() -> Registry {
        Registry::start_at("127.0.0.1:0".parse().unwrap(), None).await
    }

    /// With TLS; its certificate is written to the file.
    pub async fn start_tls(authority: &Path) -> Registry {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        std::fs::write(authority, made.cert.pem()).unwrap();
        let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.unwrap().with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key.into());
        let tls = TlsAcceptor::from(Arc::new(config.unwrap()));
        Registry::start_at("127.0.0.1:0".parse().unwrap(), Some(tls)).await
    }

    async fn start_at(address: SocketAddr, tls: Option<TlsAcceptor>) -> Registry {
        let listener = TcpListener::bind(address).await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let state = Arc::new(State::default());
        let served = Arc::clone(&state);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (state, tls) = (Arc::clone(&served), tls.clone());
                connections.spawn(async move {
                    // A client that goes away is no failure.
                    let _ = match tls {
                        None => serve(&state, stream).await,
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => serve(&state, stream).await,
                            Err(error) => Err(error),
                        },
                    };
                });
            }
        });
        Registry { host, scheme, state, _tasks: tasks }
    }

    pub fn address(&self, path: &str) -> String {
        format!("{}://{}{path}", self.scheme, self.host)
    }

    /// The full name of an image here.
    pub fn name(&self, repository: &str, version: &str) -> String {
        let joint = if version.starts_with("sha256:") { '@' } else { ':' };
        format!("{}/{repository}{joint}{version}", self.host)
    }

    pub fn push(&self, repository: &str, tag: &str, image: &Image) {
        self.push_manifest(repository, tag, image.kind, &image.manifest);
        self.push_blob(repository, &image.config);
        for layer in &image.layers {
            self.push_blob(repository, layer);
        }
    }

    pub fn push_manifest(&self, repository: &str, tag: &str, kind: &str, content: &[u8]) {
        let mut manifests = self.state.manifests.lock().unwrap();
        for version in [tag.to_owned(), Digest::of(content).to_string()] {
            manifests.insert(format!("{repository}/{version}"), (kind.to_owned(), content.to_vec()));
        }
    }

    pub fn push_blob(&self, repository: &str, content: &[u8]) {
        self.push_blob_as(repository, &Digest::of(content), content);
    }

    /// Content by a digest that need not be its own.
    pub fn push_blob_as(&self, repository: &str, digest: &Digest, content: &[u8]) {
        self.state.blobs.lock().unwrap().insert(format!("{repository}/{digest}"), content.to_vec());
    }

    /// Spoils so many answers for paths with this part.
    pub fn spoil(&self, method: &'static str, path: &str, times: usize, fault: Fault) {
        self.state.rules.lock().unwrap().push(Rule { method, path: path.to_owned(), times, fault });
    }

    pub fn heal(&self) {
        self.state.rules.lock().unwrap().clear();
    }

    pub fn open_by(&self, access: Access, users: &[User], public: &[&'static str]) {
        *self.state.access.lock().unwrap() = access;
        *self.state.users.lock().unwrap() = users.to_vec();
        *self.state.public.lock().unwrap() = public.to_vec();
    }

    /// What came since the last call of this.
    pub fn requests(&self) -> Vec<Request> {
        std::mem::take(&mut self.state.requests.lock().unwrap())
    }

    /// Requests with this method and part of a path, since the last call of [`Registry::requests`].
    pub fn count(&self, method: &str, path: &str) -> usize {
        let requests = self.state.requests.lock().unwrap();
        requests.iter().filter(|request| request.method == method && request.path.contains(path)).count()
    }

    pub fn manifest(&self, repository: &str, version: &str) -> Option<(String, Vec<u8>)> {
        self.state.manifests.lock().unwrap().get(&format!("{repository}/{version}")).cloned()
    }

    pub fn blob(&self, repository: &str, digest: &Digest) -> Option<Vec<u8>> {
        self.state.blobs.lock().unwrap().get(&format!("{repository}/{digest}")).cloned()
    }

    /// Forgets a blob of a repository.
    pub fn remove_blob(&self, repository: &str, digest: &Digest) {
        self.state.blobs.lock().unwrap().remove(&format!("{repository}/{digest}"));
    }

    /// Bytes of blobs that were sent since the last call of this.
    pub fn sent_bytes(&self) -> usize {
        std::mem::take(&mut self.state.sent_bytes.lock().unwrap())
    }
}

impl State {
    fn answer(&self, request: &Request) -> Answer {
        let path = request.path.split('?').next().unwrap_or_default();
        if path == "/token" {
            return self.token(request);
        }
        let Some(rest) = path.strip_prefix("/v2/") else { return Answer::new(404, vec![], "") };
        let parts = rest.split_once("/manifests/").or(rest.split_once("/blobs/"));
        let Some((repository, version)) = parts else { return Answer::new(404, vec![], "") };
        if let Some(refusal) = self.refusal(request, repository) {
            return refusal;
        }
        if matches!(request.method.as_str(), "POST" | "PUT") {
            return self.take(request, repository, version, rest.contains("/manifests/"));
        }
        let key = format!("{repository}/{version}");
        if rest.contains("/manifests/") {
            let manifests = self.manifests.lock().unwrap();
            let Some((kind, content)) = manifests.get(&key) else { return missing("MANIFEST_UNKNOWN") };
            let digest = Digest::of(content).to_string();
            let headers = vec![("Content-Type", kind.clone()), ("Docker-Content-Digest", digest)];
            return Answer::new(200, headers, content.clone());
        }
        let Some(content) = self.blobs.lock().unwrap().get(&key).cloned() else { return missing("BLOB_UNKNOWN") };
        let mut answer = match range(request) {
            None => Answer::new(200, vec![], content),
            Some(from) if from >= content.len() => Answer::new(416, vec![], ""),
            Some(from) => {
                let range = format!("bytes {from}-{}/{}", content.len() - 1, content.len());
                Answer::new(206, vec![("Content-Range", range)], &content[from..])
            }
        };
        answer.is_blob = true;
        answer
    }

    /// What a client brings.
    fn take(&self, request: &Request, repository: &str, version: &str, is_manifest: bool) -> Answer {
        let query = request.path.split_once('?').map_or("", |(_, query)| query);
        let value = |name: &str| {
            let mut pairs = form_urlencoded::parse(query.as_bytes());
            pairs.find_map(|(key, value)| (key == name).then(|| value.into_owned()))
        };
        let mut blobs = self.blobs.lock().unwrap();
        if is_manifest {
            let kind = request.headers.get("content-type").cloned().unwrap_or_default();
            let digest = Digest::of(&request.bytes).to_string();
            let mut manifests = self.manifests.lock().unwrap();
            for version in [version, &digest] {
                manifests.insert(format!("{repository}/{version}"), (kind.clone(), request.bytes.clone()));
            }
            return Answer::new(201, vec![("Docker-Content-Digest", digest)], "");
        }
        if request.method == "POST" {
            let source = value("from").zip(value("mount"));
            let found =
                source.and_then(|(from, digest)| Some((blobs.get(&format!("{from}/{digest}"))?.clone(), digest)));
            if let Some((content, digest)) = found {
                blobs.insert(format!("{repository}/{digest}"), content);
                return Answer::new(201, vec![], "");
            }
            return Answer::new(202, vec![("Location", format!("/v2/{repository}/blobs/uploads/7?state=x"))], "");
        }
        let digest = value("digest").unwrap_or_default();
        if digest != Digest::of(&request.bytes).to_string() {
            return Answer::new(
                400,
                vec![],
                json!({"errors": [{"code": "DIGEST_INVALID", "message": "bad"}]}).to_string(),
            );
        }
        blobs.insert(format!("{repository}/{digest}"), request.bytes.clone());
        Answer::new(201, vec![], "")
    }

    fn refusal(&self, request: &Request, repository: &str) -> Option<Answer> {
        let access = self.access.lock().unwrap().clone();
        let is_written = matches!(request.method.as_str(), "POST" | "PUT");
        let (user, challenge) = match &access {
            Access::Open => return None,
            Access::Basic => (self.user_of_password(request), "Basic realm=\"here\"".to_owned()),
            Access::Bearer(realm) => {
                let user = self.user_of_token(request).map(|user| match user.strip_suffix("+push") {
                    Some(user) => user.to_owned(),
                    // A token to pull with opens nothing to write to.
                    None if is_written => "anonymous".to_owned(),
                    None => user,
                });
                let scope = format!("repository:{repository}:pull,push");
                (user, format!("Bearer realm=\"{realm}\",service=\"here\",scope=\"{scope}\""))
            }
        };
        let may = |name: &str| {
            self.users.lock().unwrap().iter().any(|user| user.name == name && user.repositories.contains(&repository))
        };
        let is_public = self.public.lock().unwrap().contains(&repository) && !is_written;
        match user {
            Some(name) if is_public || may(&name) => None,
            None if is_public && matches!(access, Access::Basic) => None,
            Some(name) if name != "anonymous" => Some(denied(403, vec![])),
            _ => Some(denied(401, vec![("WWW-Authenticate", challenge)])),
        }
    }

    fn user_of_password(&self, request: &Request) -> Option<String> {
        let encoded = request.authorization()?.strip_prefix("Basic ")?;
        let text = String::from_utf8(STANDARD.decode(encoded).ok()?).ok()?;
        let (name, password) = text.split_once(':')?;
        let users = self.users.lock().unwrap();
        users.iter().find(|user| user.name == name && user.password == password).map(|user| user.name.to_owned())
    }

    fn user_of_token(&self, request: &Request) -> Option<String> {
        request.authorization()?.strip_prefix("Bearer token-").map(str::to_owned)
    }

    fn token(&self, request: &Request) -> Answer {
        let identity = request.body.split('&').find_map(|pair| pair.strip_prefix("refresh_token=identity-"));
        let user = match (request.method.as_str(), identity, request.authorization()) {
            ("POST", Some(name), None) => Some(name.to_owned()),
            ("GET", None, None) => Some("anonymous".to_owned()),
            ("GET", None, Some(_)) => self.user_of_password(request),
            _ => None,
        };
        let Some(user) = user else { return denied(401, vec![]) };
        let scopes = format!("{}{}", request.path, request.body);
        let token = format!("token-{user}{}", if scopes.contains("%3Apull%2Cpush") { "+push" } else { "" });
        let field = if request.method == "POST" { "access_token" } else { "token" };
        Answer::new(200, vec![], json!({ field: token }).to_string())
    }

    /// After how many bytes of what it sends a client is cut off.
    fn cut_of(&self, request: &Request) -> Option<usize> {
        let mut rules = self.rules.lock().unwrap();
        rules.iter_mut().filter(|rule| rule.fits(request)).find_map(|rule| {
            let Fault::CutRequest(most) = rule.fault else { return None };
            rule.times -= 1;
            Some(most)
        })
    }

    fn fault(&self, request: &Request) -> Option<Fault> {
        let mut rules = self.rules.lock().unwrap();
        let rule = rules.iter_mut().find(|rule| rule.fits(request))?;
        rule.times -= 1;
        Some(rule.fault.clone())
    }
}

fn range(request: &Request) -> Option<usize> {
    request.headers.get("range")?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
}

fn missing(code: &str) -> Answer {
    Answer::new(404, vec![], json!({"errors": [{"code": code}]}).to_string())
}

fn denied(status: u16, headers: Vec<(&'static str, String)>) -> Answer {
    Answer::new(status, headers, json!({"errors": [{"code": "DENIED", "message": "not for you"}]}).to_string())
}

async fn serve(state: &State, mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    loop {
        let mut request = match Request::read(&mut stream).await {
            Ok(Some(request)) => request,
            Ok(None) => break,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await?;
                stream.shutdown().await?;
                return tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.map(|_| ());
            }
            Err(error) => return Err(error),
        };
        let most = state.cut_of(&request);
        request.read_body(&mut stream, most).await?;
        state.requests.lock().unwrap().push(request.clone());
        if most.is_some() {
            break;
        }
        if !write(state, &mut stream, &request).await? {
            break;
        }
    }
    stream.shutdown().await
}

/// Whether the connection goes on.
async fn write(state: &State, stream: &mut (impl AsyncWrite + Unpin), request: &Request) -> io::Result<bool> {
    let fault = state.fault(request);
    let mut answer = match &fault {
        Some(Fault::Answer(status, headers, body)) => Answer::new(*status, headers.clone(), body.clone()),
        Some(Fault::NoRange | Fault::NoRangeAndCut(_)) => {
            let mut whole = request.clone();
            whole.headers.remove("range");
            state.answer(&whole)
        }
        _ => state.answer(request),
    };
    match &fault {
        Some(Fault::Body(body)) => answer.body.clone_from(body),
        Some(Fault::WrongRange) => answer.headers = vec![("Content-Range", "bytes 1-2/3".to_owned())],
        Some(Fault::Without(name)) => answer.headers.retain(|(header, _)| header != name),
        Some(Fault::Silence) => std::future::pending().await,
        Some(Fault::EndlessHead) => {
            stream.write_all(b"HTTP/1.1 200 OK\r\n").await?;
            loop {
                stream.write_all(format!("X-More: {}\r\n", "x".repeat(1000)).as_bytes()).await?;
            }
        }
        Some(Fault::EndlessBody) => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await?;
            loop {
                stream.write_all(format!("1000\r\n{}\r\n", "x".repeat(0x1000)).as_bytes()).await?;
            }
        }
        _ => {}
    }
    let headers = answer.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect::<String>();
    let head = format!("HTTP/1.1 {} X\r\n{headers}Content-Length: {}\r\n\r\n", answer.status, answer.body.len());
    stream.write_all(head.as_bytes()).await?;
    let has_body = request.method != "HEAD";
    let end = match &fault {
        Some(Fault::Cut(end) | Fault::NoRangeAndCut(end) | Fault::Stall(end)) => (*end).min(answer.body.len()),
        _ => answer.body.len(),
    };
    if has_body {
        if answer.is_blob {
            *state.sent_bytes.lock().unwrap() += end;
        }
        if let Some(Fault::Drip(pause)) = fault {
            for byte in &answer.body[..end] {
                stream.write_all(&[*byte]).await?;
                stream.flush().await?;
                tokio::time::sleep(pause).await;
            }
        } else {
            stream.write_all(&answer.body[..end]).await?;
        }
    }
    stream.flush().await?;
    match fault {
        Some(Fault::Stall(_)) => std::future::pending().await,
        Some(Fault::Cut(_) | Fault::NoRangeAndCut(_)) => Ok(false),
        _ => Ok(true),
    }
}
