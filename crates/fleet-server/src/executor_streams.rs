//! The streams of executors, as inputs of the leader.

use std::pin::Pin;

use futures::{Stream, StreamExt as _};
use pumice_wire::executor::{ErrandAnswer, ErrandAnswered, FromExecutor, ToExecutor, executors_server::Executors};
use tokio::sync::{mpsc, oneshot};
use tonic::{Request, Response, Status, Streaming};

use crate::executor_commands::ExecutorCommands;
use crate::leader::{Input, OUT_MAX};

/// Who an executor is, as the listener found out: its certificate's or token's name.
#[derive(Debug, Clone)]
pub struct ExecutorName(pub String);

/// Hands streams to the leader.
#[derive(Debug, Clone)]
pub struct ExecutorStreams {
    inputs: mpsc::Sender<Input>,
    commands: ExecutorCommands,
}

impl ExecutorStreams {
    /// Streams for a leader; answers to errands go to whoever waits for them.
    pub fn new(inputs: mpsc::Sender<Input>, commands: ExecutorCommands) -> Self {
        Self { inputs, commands }
    }
}

#[tonic::async_trait]
impl Executors for ExecutorStreams {
    type SessionStream = Pin<Box<dyn Stream<Item = Result<ToExecutor, Status>> + Send>>;

    async fn session(
        &self,
        request: Request<Streaming<FromExecutor>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let who = request.extensions().get::<ExecutorName>().map(|name| name.0.clone());
        let mut messages = request.into_inner();
        let first = messages.message().await?.ok_or_else(|| Status::invalid_argument("the stream has no message"))?;
        let (out, told) = mpsc::channel(OUT_MAX);
        let (answer, opened) = oneshot::channel();
        let away = || Status::unavailable("this server does not lead; try again, or another one");
        self.inputs.send(Input::Open { first, who, out, answer }).await.map_err(|_| away())?;
        let (name, number) =
            opened.await.map_err(|_| away())?.map_err(|error| Status::failed_precondition(error.to_string()))?;
        let inputs = self.inputs.clone();
        let incoming = async move {
            while let Ok(Some(message)) = messages.message().await {
                if inputs.send(Input::Message { name: name.clone(), number, message }).await.is_err() {
                    return;
                }
            }
            // The leader may be gone; then nobody has to know.
            let _ = inputs.send(Input::Closed { name, number }).await;
        };
        Ok(Response::new(Box::pin(both(told, incoming))))
    }

    async fn answer(&self, request: Request<ErrandAnswer>) -> Result<Response<ErrandAnswered>, Status> {
        let who = request.extensions().get::<ExecutorName>().cloned();
        let ExecutorName(cluster) = who.ok_or_else(|| Status::unauthenticated("an answer is some executor's"))?;
        self.commands.answered(&cluster, request.into_inner());
        Ok(Response::new(ErrandAnswered {}))
    }
}

/// The answer's stream, in which both directions live: who drops it ends them. It ends with the leader's end of the session,
/// so that the executor opens another, and with what comes in.
fn both<F>(told: mpsc::Receiver<ToExecutor>, incoming: F) -> impl Stream<Item = Result<ToExecutor, Status>> + Send
where
    F: Future<Output = ()> + Send,
{
    let outgoing = futures::stream::unfold(told, async |mut told: mpsc::Receiver<ToExecutor>| {
        told.recv().await.map(|message| (Some(Ok(message)), told))
    });
    let outgoing = outgoing.chain(futures::stream::once(std::future::ready(None)));
    let incoming = futures::stream::once(incoming).map(|()| None);
    let until_the_first_end = |message: &Option<_>| std::future::ready(message.is_some());
    futures::stream::select(outgoing, incoming).take_while(until_the_first_end).filter_map(std::future::ready)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    #[tokio::test]
    async fn a_stream_ends_with_either_of_its_directions() {
        let (out, told) = mpsc::channel(2);
        out.send(ToExecutor { sequence: 1, message: None }).await.expect("there is room");
        drop(out);
        let mut stream = pin!(both(told, std::future::pending()));
        assert_eq!(stream.next().await.expect("a message").expect("no error").sequence, 1);
        assert!(stream.next().await.is_none(), "the leader has ended the session");

        let (_out, told) = mpsc::channel(2);
        let mut stream = pin!(both(told, std::future::ready(())));
        assert!(stream.next().await.is_none(), "the executor has gone");
    }
}
