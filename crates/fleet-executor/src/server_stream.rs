//! The stream to the server: one connection, from its opening to its end.

use std::sync::Arc;

use futures::stream;
use pumice_wire::client::connect;
use pumice_wire::executor::executors_client::ExecutorsClient;
use pumice_wire::executor::{ErrandAnswer, FromExecutor, ToExecutor};
use rustls::ClientConfig;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};

/// Messages to the server that wait; when they are more, the session is given up.
const OUTGOING_MAX: usize = 1024;
/// Largest message of the server.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// What a connection says.
#[derive(Debug)]
pub enum LinkEvent {
    /// It is there; what is sent goes to the server, and answers to errands go beside it.
    Opened(Sender<FromExecutor>, Box<Answers>),
    /// The server said something.
    Message(Box<ToExecutor>),
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The server is not there.
    #[error("cannot reach the server")]
    Connect(#[source] tonic::transport::Error),
    /// The server ended it.
    #[error("the server ended the session")]
    Session(#[source] Box<tonic::Status>),
}

/// How a server is reached and told who asks.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// This side of TLS, where the address asks for it.
    pub tls: Option<Arc<ClientConfig>>,
    /// A token or a password.
    pub token: Option<MetadataValue<Ascii>>,
}

/// Takes answers to errands to the server, each in a call of its own: none holds up what is said in the session.
#[derive(Clone, Debug)]
pub struct Answers {
    client: ExecutorsClient<Channel>,
    credentials: Credentials,
}

impl Answers {
    /// Sends one answer to the server that asked; an error where that server does not take it.
    pub async fn give(mut self, answer: ErrandAnswer) -> Result<(), tonic::Status> {
        let request = self.credentials.on(answer);
        self.client.answer(request).await.map(drop)
    }
}

impl Credentials {
    /// A request that says who asks.
    fn on<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        if let Some(token) = self.token.clone() {
            request.metadata_mut().insert("authorization", token);
        }
        request
    }
}

/// Holds one session, until either side ends it. Dropping it ends it.
pub async fn hold(endpoint: Endpoint, credentials: Credentials, events: Sender<LinkEvent>) -> Result<(), LinkError> {
    let channel_to = connect(endpoint, credentials.tls.as_deref()).await.map_err(LinkError::Connect)?;
    let mut client = ExecutorsClient::new(channel_to).max_decoding_message_size(MESSAGE_BYTES_MAX);
    let (sender, receiver) = channel(OUTGOING_MAX);
    // Whoever does not listen has ended.
    let answers = Box::new(Answers { client: client.clone(), credentials: credentials.clone() });
    if events.send(LinkEvent::Opened(sender, answers)).await.is_err() {
        return Ok(());
    }
    let request = credentials.on(stream::unfold(receiver, |mut receiver: Receiver<FromExecutor>| async move {
        receiver.recv().await.map(|message| (message, receiver))
    }));
    let refused = |status| LinkError::Session(Box::new(status));
    let mut answers = client.session(request).await.map_err(refused)?.into_inner();
    while let Some(message) = answers.message().await.map_err(refused)? {
        if events.send(LinkEvent::Message(Box::new(message))).await.is_err() {
            break;
        }
    }
    Ok(())
}
