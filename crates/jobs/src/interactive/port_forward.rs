//! A port of this machine that leads to one of a pod.
//!
//! Invariant: only this machine's own programs can connect; each connection goes its own way, so that one that breaks takes none
//! with it and the next one tries anew. [`PortForward::next`] is cancellation safe.

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::Portforwarder;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::InteractiveError;
use super::container_choice::RunningContainer;
use crate::error::Error;
use crate::platform::call::{self, CallError, FailureClass};
use crate::platform::connection::Connection;

/// Ports that are tried where none was asked for: Jupyter's own and those after it.
const PORTS: RangeInclusive<u16> = 8888..=8987;
/// Connections carried at the same time; a browser opens a few.
const CARRIED_MAX: usize = 256;
/// Attempts for one connection.
const ATTEMPTS_MAX: u32 = 6;
/// The pause before the second attempt; it doubles with each.
const PAUSE: Duration = Duration::from_millis(200);

/// A port of this machine.
pub struct LocalPort {
    listener: TcpListener,
    pub port: u16,
}

/// Listens on a port of this machine: the one asked for, any for 0, else 8888 or the next free one.
pub async fn listen(wanted_port: Option<u16>) -> Result<LocalPort, InteractiveError> {
    let ports = wanted_port.map_or(PORTS, |port| port..=port);
    let first = *ports.start();
    let mut problem = String::new();
    for port in ports {
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
            Ok(listener) => {
                let port = listener.local_addr().map_or(port, |address| address.port());
                return Ok(LocalPort { listener, port });
            }
            Err(error) => problem = error.to_string(),
        }
    }
    Err(InteractiveError::Port { port: first, detail: problem })
}

/// What became of the way.
#[derive(Debug)]
pub enum ForwardEvent {
    /// A connection could not be carried.
    Lost(Error),
    /// One could, after one that could not.
    Back,
}

/// The way from a port of this machine to one of a pod.
pub struct PortForward {
    connection: Connection,
    running: RunningContainer,
    port: u16,
    local_port: LocalPort,
    carried: JoinSet<Result<(), Error>>,
    lost: bool,
}

impl PortForward {
    /// A way to `port` of the pod. Nothing is carried outside [`PortForward::next`].
    pub fn new(connection: Connection, running: RunningContainer, port: u16, local_port: LocalPort) -> Self {
        PortForward { connection, running, port, local_port, carried: JoinSet::new(), lost: false }
    }

    /// Carries until there is something to tell.
    pub async fn next(&mut self) -> ForwardEvent {
        loop {
            let room = self.carried.len() < CARRIED_MAX;
            tokio::select! {
                accepted = self.local_port.listener.accept(), if room => match accepted {
                    Ok((stream, _)) => {
                        let (connection, running, port) = (self.connection.clone(), self.running.clone(), self.port);
                        self.carried.spawn(async move { carry(&connection, &running, port, stream).await });
                    }
                    // Out of descriptors, say; those that are open will end.
                    Err(_) => tokio::time::sleep(PAUSE).await,
                },
                Some(Ok(ended)) = self.carried.join_next() => match ended {
                    Err(error) => {
                        self.lost = true;
                        return ForwardEvent::Lost(error);
                    }
                    Ok(()) if std::mem::take(&mut self.lost) => return ForwardEvent::Back,
                    Ok(()) => {}
                },
            }
        }
    }
}

/// Carries one connection to its end.
async fn carry(
    connection: &Connection,
    running: &RunningContainer,
    port: u16,
    mut here: TcpStream,
) -> Result<(), Error> {
    let mut forwarder = connect(connection, running, port).await?;
    let (Some(mut there), refused) = (forwarder.take_stream(port), forwarder.take_error(port)) else { return Ok(()) };
    // A browser that goes away, or a pod that does, is no news: the next connection tells.
    let _ = tokio::io::copy_bidirectional(&mut here, &mut there).await;
    // Before the forwarder, which may have the word.
    let refused = refused.and_then(FutureExt::now_or_never).flatten();
    forwarder.abort();
    match refused {
        None => Ok(()),
        Some(detail) => {
            let back = format!("jobctl logs {}{}", running.job.name, running.job.namespace_flag());
            Err(InteractiveError::Lost { pod: running.pod.clone(), back, detail }.into())
        }
    }
}

/// Reaches the pod's port; a server that does not answer is asked again, elsewhere if it moved.
async fn connect(connection: &Connection, running: &RunningContainer, port: u16) -> Result<Portforwarder, Error> {
    let (mut attempt, mut pause, mut moved) = (1, PAUSE, None);
    loop {
        let error = match try_connect(moved.as_ref().unwrap_or(connection), running, port).await {
            Ok(forwarder) => return Ok(forwarder),
            Err(error) => error,
        };
        if error.class() != FailureClass::Unreachable || attempt == ATTEMPTS_MAX {
            let forbidden = InteractiveError::forbidden(&error, "pods/portforward", &running.job.namespace);
            return Err(forbidden.map_or_else(|| error.into(), Error::from));
        }
        tokio::time::sleep(pause).await;
        (attempt, pause) = (attempt + 1, pause * 2);
        moved = connection.moved().await.or(moved);
    }
}

async fn try_connect(
    connection: &Connection,
    running: &RunningContainer,
    port: u16,
) -> Result<Portforwarder, CallError> {
    let pods = Api::<Pod>::namespaced(connection.client().clone(), &running.job.namespace);
    let doing = format!("reach port {port} of pod {}", running.pod);
    match tokio::time::timeout(call::CALL_TIMEOUT, pods.portforward(&running.pod, &[port])).await {
        Ok(opened) => opened.map_err(|error| CallError::new(&doing, connection.url(), &error)),
        Err(_) => Err(CallError::timed_out(&doing, connection.url(), call::CALL_TIMEOUT)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_that_is_taken_is_passed_by_or_told() {
        let any = listen(Some(0))
            .await
            .map(|local_port| (local_port.port, local_port))
            .unwrap_or_else(|error| panic!("{error}"));
        assert_ne!(any.0, 0);
        let taken = listen(Some(any.0)).await.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(taken.starts_with(&format!("cannot listen on 127.0.0.1:{}: ", any.0)), "{taken}");
        let [first, second] = [listen(None).await, listen(None).await];
        let (first, second) =
            (first.map(|local_port| (local_port.port, local_port)), second.map(|local_port| local_port.port));
        let (Ok((first, _open)), Ok(second)) = (first, second) else { panic!("two of a hundred ports are free") };
        assert!(PORTS.contains(&first) && PORTS.contains(&second) && first < second, "{first} {second}");
    }
}
