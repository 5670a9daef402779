//! Connections to a proxy that passes plain HTTP on: each request names the whole address, as curl sends it. Many proxies open
//! no tunnel (`CONNECT`) but to ports of TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower::{BoxError, Service};

/// Connects to the proxy, whatever the address is.
#[derive(Debug, Clone)]
pub(super) struct Forward {
    proxy: Uri,
    connector: HttpConnector,
}

impl Forward {
    pub(super) fn new(proxy: Uri, connector: HttpConnector) -> Forward {
        Forward { proxy, connector }
    }
}

impl Service<Uri> for Forward {
    type Response = ToProxy;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<ToProxy, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.connector.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, _address: Uri) -> Self::Future {
        self.connector.call(self.proxy.clone()).map(|connected| Ok(ToProxy(connected?))).boxed()
    }
}

/// A connection that makes the client name whole addresses.
#[derive(Debug)]
pub(super) struct ToProxy(TokioIo<TcpStream>);

impl Connection for ToProxy {
    fn connected(&self) -> Connected {
        self.0.connected().proxy(true)
    }
}

impl Read for ToProxy {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl Write for ToProxy {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
