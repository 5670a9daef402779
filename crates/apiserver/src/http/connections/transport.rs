//! The bytes of a connection: through TLS, plain, or on this machine.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;
use tokio_util::sync::{CancellationToken, DropGuard, WaitForCancellationFutureOwned};

use super::limits::Seat;

/// How bytes come and go.
#[derive(Debug)]
pub(super) enum Transport {
    /// The larger of the two, apart.
    Tls(Box<TlsStream<TcpStream>>),
    Plain(TcpStream),
    Local(UnixStream),
}

impl Transport {
    /// What the peer showed and TLS has verified.
    pub(super) fn certificate(&self) -> Option<&CertificateDer<'static>> {
        match self {
            Self::Tls(stream) => stream.get_ref().1.peer_certificates().and_then(|chain| chain.first()),
            Self::Plain(_) | Self::Local(_) => None,
        }
    }
}

/// Set on each request: breaks its connection off, also once that has become something else than HTTP. Cancelled, too, when the
/// connection is over.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionEnd(pub(crate) CancellationToken);

/// A connection with its seat, which it keeps when it is taken over.
pub(super) struct Counted {
    transport: Transport,
    _seat: Arc<Seat>,
    broken_off: Pin<Box<WaitForCancellationFutureOwned>>,
    _over: DropGuard,
}

impl Counted {
    pub(super) fn new(transport: Transport, seat: Arc<Seat>, end: &ConnectionEnd) -> Self {
        let ConnectionEnd(end) = end.clone();
        Self { transport, _seat: seat, broken_off: Box::pin(end.clone().cancelled_owned()), _over: end.drop_guard() }
    }
}

/// The same of all transports.
macro_rules! through {
    ($counted:expr, $stream:ident => $call:expr) => {
        match &mut $counted.transport {
            Transport::Tls(tls) => {
                let $stream = Pin::new(&mut **tls);
                $call
            }
            Transport::Plain(tcp) => {
                let $stream = Pin::new(tcp);
                $call
            }
            Transport::Local(local) => {
                let $stream = Pin::new(local);
                $call
            }
        }
    };
}

impl AsyncRead for Counted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // Whoever has the connection reads from it all the time, so that this is enough.
        if self.broken_off.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        through!(self, stream => stream.poll_read(cx, buffer))
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        through!(self, stream => stream.poll_write(cx, bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        through!(self, stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        through!(self, stream => stream.poll_shutdown(cx))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        through!(self, stream => stream.poll_write_vectored(cx, parts))
    }

    fn is_write_vectored(&self) -> bool {
        match &self.transport {
            Transport::Tls(stream) => stream.is_write_vectored(),
            Transport::Plain(stream) => stream.is_write_vectored(),
            Transport::Local(stream) => stream.is_write_vectored(),
        }
    }
}
