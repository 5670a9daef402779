//! The local socket of a platform that is shared by the users of a machine: no address and no credentials, the kernel says who calls.
//!
//! Invariant: who listens is root or the user himself, so that nobody else is taken for the platform. Called by `connection`.

use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::Uri;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::client::middleware::BaseUriLayer;
use kube::client::{Body, ClientBuilder};
use tokio::net::UnixStream;
use tower::Service;

/// Where `pumice up --tenants` has it unless it is told otherwise.
pub const DEFAULT_SOCKET: &str = "/run/pumice/api.sock";
/// How long it may take until somebody listens.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// What requests are addressed to, since HTTP wants a host.
const HOST: &str = "http://localhost";

/// Whether a path is a socket's.
pub(crate) fn is_socket(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

/// A socket as messages name it.
pub(crate) fn url(path: &Path) -> String {
    format!("unix:{}", path.display())
}

/// A client over the socket at `path`. Nothing is sent.
pub(crate) fn client(path: &Path, namespace: &str) -> kube::Client {
    let over_socket = Client::builder(TokioExecutor::new()).build::<_, Body>(Connector { path: path.to_owned() });
    ClientBuilder::new(over_socket, namespace).with_layer(&BaseUriLayer::new(Uri::from_static(HOST))).build()
}

/// Opens the socket, whatever host a request is for.
#[derive(Clone)]
struct Connector {
    path: PathBuf,
}

impl Service<Uri> for Connector {
    type Response = TokioIo<UnixStream>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let path = self.path.clone();
        let connected = async move {
            let stream = tokio::time::timeout(CONNECT_WITHIN, UnixStream::connect(&path)).await??;
            let (listens, own) = (stream.peer_cred()?.uid(), own_uid()?);
            if listens != 0 && listens != own {
                let text =
                    format!("user {listens} listens at {}, who is not root: ask the administrator", path.display());
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
            }
            Ok(TokioIo::new(stream))
        };
        Box::pin(connected) as Pin<Box<_>>
    }
}

fn own_uid() -> io::Result<u32> {
    Ok(std::fs::metadata("/proc/self")?.uid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_is_told_from_a_file_and_asked() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("api.sock");
        assert!(!is_socket(&path) && !is_socket(folder.path()));
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        assert!(is_socket(&path));
        let answering = async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 4096];
            let length = stream.read(&mut request).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
            String::from_utf8_lossy(&request[..length]).into_owned()
        };
        let request = http::Request::get("/version").body(Vec::new()).unwrap();
        let client = client(&path, "default");
        let (answer, request) = tokio::join!(client.request_text(request), answering);
        assert_eq!(answer.unwrap(), "{}");
        assert!(
            request.starts_with("GET /version HTTP/1.1\r\n") && request.contains("host: localhost\r\n"),
            "{request}"
        );
    }
}
