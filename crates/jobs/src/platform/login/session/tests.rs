//! Files of a login, who refreshes it, and how it ends, with an issuer that answers from a script.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;

const NOW: Timestamp = Timestamp::constant(1_764_000_000, 0);

fn now() -> Timestamp {
    NOW
}

/// An issuer that takes each refresh token once, as strict ones do.
struct Home {
    url: String,
    good: Arc<Mutex<String>>,
    refreshes: Arc<AtomicUsize>,
    revoked: Arc<AtomicUsize>,
    _serving: JoinSet<()>,
}

impl Home {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let good = Arc::new(Mutex::new("r0".to_owned()));
        let (refreshes, revoked) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let script = (url.clone(), Arc::clone(&good), Arc::clone(&refreshes), Arc::clone(&revoked));
        let serving = JoinSet::from_iter([async move {
            let mut connections = JoinSet::new();
            while let Ok((mut socket, _)) = listener.accept().await {
                let script = script.clone();
                connections.spawn(async move {
                    let mut text = Vec::new();
                    while let Ok(1..) = socket.read_buf(&mut text).await {
                        let request = String::from_utf8_lossy(&text).into_owned();
                        if is_whole(&request) {
                            let (status, body) = answer(&request, &script);
                            let answer = format!(
                                "HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                                body.len()
                            );
                            let _ = socket.write_all(answer.as_bytes()).await;
                            return;
                        }
                    }
                });
            }
        }]);
        Self { url, good, refreshes, revoked, _serving: serving }
    }

    fn session(&self, expires: i64) -> Session {
        let method = OidcMethod {
            issuer: self.url.clone(),
            client_id: "pumice".to_owned(),
            scopes: vec!["openid".to_owned()],
            certificate_authority: None,
        };
        let tokens = Tokens {
            id_token: "first".to_owned(),
            refresh_token: Some("r0".to_owned()),
            issued: Timestamp::from_second(NOW.as_second() - 600).unwrap(),
            expires: Timestamp::from_second(NOW.as_second() + expires).unwrap(),
            subject: "ada".to_owned(),
        };
        let pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        Session::new(&Server::new("127.0.0.1:1").unwrap(), &Authority::from_pem(pem).unwrap(), Some(&method), tokens)
    }
}

fn is_whole(request: &str) -> bool {
    let Some((head, body)) = request.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ").map(str::to_owned));
    length.is_none_or(|length| body.len() >= length.parse().unwrap())
}

type Script = (String, Arc<Mutex<String>>, Arc<AtomicUsize>, Arc<AtomicUsize>);

fn answer(request: &str, (url, good, refreshes, revoked): &Script) -> (u16, String) {
    if request.starts_with("GET /.well-known/") {
        let document = json!({ "issuer": url, "authorization_endpoint": format!("{url}/a"),
            "token_endpoint": format!("{url}/t"), "revocation_endpoint": format!("{url}/r") });
        return (200, document.to_string());
    }
    if request.starts_with("POST /r ") {
        revoked.fetch_add(1, Ordering::SeqCst);
        return (200, String::new());
    }
    let mut good = good.lock().unwrap();
    if !request.contains(&format!("refresh_token={good}")) {
        return (400, json!({ "error": "invalid_grant", "error_description": "it was used before" }).to_string());
    }
    let number = refreshes.fetch_add(1, Ordering::SeqCst) + 1;
    *good = format!("r{number}");
    let claims =
        json!({ "iss": url, "aud": "pumice", "sub": "ada", "iat": NOW.as_second(), "exp": NOW.as_second() + 600 });
    let token = format!("e30.{}.{number}", URL_SAFE_NO_PAD.encode(claims.to_string()));
    (200, json!({ "id_token": token, "refresh_token": *good }).to_string())
}

fn written(home: &Home, expires: i64) -> (tempfile::TempDir, Files) {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::new(folder.path(), "farm");
    home.session(expires).write(&files, Path::new("/usr/bin/jobctl"), Some("ada")).unwrap();
    (folder, files)
}

#[tokio::test]
async fn a_token_that_is_good_is_not_replaced() {
    let home = Home::new().await;
    let (_folder, files) = written(&home, 300);
    assert_eq!(fresh(&files, now).await.unwrap().token, "first");
    assert_eq!(home.refreshes.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn of_many_at_once_one_refreshes_and_all_get_the_token() {
    let home = Home::new().await;
    let (_folder, files) = written(&home, 10);
    let all = futures::future::join_all((0..8).map(|_| fresh(&files, now))).await;
    let tokens: Vec<String> = all.into_iter().map(|one| one.unwrap().token).collect();
    assert!(tokens.iter().all(|token| *token == tokens[0] && token.ends_with(".1")), "{tokens:?}");
    assert_eq!(home.refreshes.load(Ordering::SeqCst), 1, "a second one would have ended the login");
    assert_eq!(std::fs::read_to_string(files.token()).unwrap(), tokens[0]);
}

#[tokio::test]
async fn a_login_that_was_ended_says_so_and_one_whose_issuer_is_away_goes_on_while_it_can() {
    let mut home = Home::new().await;
    let (_folder, files) = written(&home, 10);
    *home.good.lock().unwrap() = "another".to_owned();
    let error = fresh(&files, now).await.unwrap_err();
    assert!(matches!(&error, LoginError::Ended { reason, .. } if reason.contains("used before")), "{error}");
    home._serving.shutdown().await;
    assert_eq!(fresh(&files, now).await.unwrap().token, "first", "it is good for ten seconds");
    let late = || Timestamp::constant(1_764_000_011, 0);
    assert!(matches!(fresh(&files, late).await, Err(LoginError::Unreachable { .. })));
}

#[tokio::test]
async fn files_are_for_the_user_alone_and_a_kubeconfig_has_no_secrets() {
    let home = Home::new().await;
    let (_folder, files) = written(&home, 300);
    for path in [files.session().to_owned(), files.token(), files.kubeconfig()] {
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "{path:?}");
    }
    assert_eq!(std::fs::metadata(files.session().parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
    let text = std::fs::read_to_string(files.kubeconfig()).unwrap();
    assert!(!text.contains("first") && !text.contains("r0"));
    let mut kubeconfig = Kubeconfig::read_from(files.kubeconfig()).unwrap();
    let found = login_of(&mut kubeconfig, &KubeConfigOptions::default()).unwrap();
    assert_eq!(found, files);
    let user = kubeconfig.auth_infos[0].auth_info.as_ref().unwrap();
    assert_eq!(user.token_file.as_deref(), files.token().to_str());
    assert_eq!(Session::read(&files).unwrap().unwrap(), home.session(300));
}

#[tokio::test]
async fn a_logout_revokes_and_removes_though_the_platform_is_away() {
    let home = Home::new().await;
    let (folder, files) = written(&home, 300);
    let left = logout(&files).await.unwrap();
    assert_eq!((left.len(), home.revoked.load(Ordering::SeqCst)), (1, 1), "nobody answers at the platform's address");
    assert_eq!(std::fs::read_dir(folder.path().join("logins")).unwrap().count(), 0);
    assert!(matches!(fresh(&files, now).await, Err(LoginError::NoLogin(_))));
}

#[test]
fn of_other_kubeconfigs_nothing_is_changed() {
    let other = json!({ "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "contexts": [{ "name": "x", "context": { "cluster": "x", "user": "x" } }],
        "users": [{ "name": "x", "user": { "exec": { "command": "aws", "args": ["eks", "get-token"] } } }] });
    let mut kubeconfig = Kubeconfig::from_yaml(&other.to_string()).unwrap();
    assert!(login_of(&mut kubeconfig, &KubeConfigOptions::default()).is_none());
    assert!(kubeconfig.auth_infos[0].auth_info.as_ref().unwrap().exec.is_some());
}
