//! `/attach/{namespace}/{pod}/{container}` as the kubelet serves it: the streams of the program that a container runs, as channels of
//! a WebSocket, or as streams of SPDY.
//!
//! Invariant: the container goes on whatever its clients do. How its program ended is not told here but in the pod's status, as with
//! a kubelet: a client that was attached to the end hears of success.

use std::path::PathBuf;
use std::time::Duration;

use http::{Request, Response};
use pumice_units::with_causes;

use crate::container_console::{Console, ConsoleError, Output};
use crate::kubelet_api::container_streams::{
    self, RESIZE, STDERR, STDIN, STDOUT, StreamsError, Wanted, WindowSize, failure, running, success,
};
use crate::kubelet_api::sessions::SessionSlot;
use crate::kubelet_api::{ContainerPath, NodeBody};
use crate::pod_index::PodIndex;
use crate::streams::channels::{ChannelReceiver, ChannelSender, Message, Opening};
use pumice_shim::attach::DATA_BYTES_MAX;
use pumice_shim::ephemeral;
use pumice_shim::spec::ShimSpec;

/// How long output goes on for a client whose input has ended while the container's goes on.
const DETACH_AFTER: Duration = Duration::from_millis(250);

/// What a session needs.
struct Order {
    dir: PathBuf,
    container: String,
    wanted: Wanted,
    input: Input,
}

/// What becomes of what is typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Input {
    /// The container has no input: as with a kubelet, what is typed goes nowhere.
    None,
    /// It goes on without the client, who is detached when he types no more.
    GoesOn,
    /// It ends with the client's.
    Once,
}

/// Agrees to attach a client, and does when the connection is there.
pub(crate) fn serve<B>(
    pods: &PodIndex,
    slot: SessionSlot,
    path: ContainerPath<'_>,
    request: Request<B>,
) -> Response<NodeBody> {
    let order = order(pods, path, request.uri().query().unwrap_or_default());
    container_streams::serve(slot, request, order, session)
}

fn order(pods: &PodIndex, path: ContainerPath<'_>, query: &str) -> Result<Order, StreamsError> {
    let wanted = Wanted::of_query(query)?;
    let dir = running(pods, path)?;
    let spec = ShimSpec::read(&dir).ok();
    let added = ephemeral::read(&dir, path.container).ok().map(|added| added.container);
    let input = match spec.as_ref().and_then(|spec| spec.container(path.container)).or(added.as_ref()) {
        Some(container) if container.stdin && container.stdin_once && !container.terminal => Input::Once,
        Some(container) if container.stdin => Input::GoesOn,
        _ => Input::None,
    };
    Ok(Order { dir, container: path.container.to_owned(), wanted, input })
}

/// How a session went.
enum End {
    /// The container's run has ended, or the client has let go.
    Over,
    /// The client is gone.
    Client,
}

async fn session(opening: Opening, order: Order) {
    let Some((mut sender, mut receiver)) = order.wanted.open(opening).await else { return };
    let status = match run(&order, &mut sender, &mut receiver).await {
        Ok(End::Over) => success(),
        Ok(End::Client) => return,
        Err(error) => failure(&format!("error attaching to container: {}", with_causes(&error))),
    };
    container_streams::end(sender, receiver, status).await;
}

async fn run(order: &Order, sender: &mut ChannelSender, receiver: &mut ChannelReceiver) -> Result<End, ConsoleError> {
    let console = Console::attach(&order.dir, &order.container).await?;
    let types = order.wanted.stdin && order.input != Input::None;
    if types {
        console.write(&[]).await?;
    }
    let outbound = outbound(&console, order.wanted, sender);
    let inbound = async {
        match inbound(&console, order.input, types, receiver).await {
            Ok(End::Over) => tokio::time::sleep(DETACH_AFTER).await,
            Ok(End::Client) => return Ok(End::Client),
            // Why comes from the container's side, behind the rest of its output.
            Err(_) => std::future::pending().await,
        }
        Ok(End::Over)
    };
    tokio::select! {
        end = outbound => end,
        end = inbound => end,
    }
}

/// Carries output until the container's run has ended.
async fn outbound(console: &Console, wanted: Wanted, sender: &mut ChannelSender) -> Result<End, ConsoleError> {
    let mut buffer = Box::new([0; DATA_BYTES_MAX]);
    loop {
        let Output::Written { channel, length } = console.output(&mut buffer).await? else { return Ok(End::Over) };
        let is_wanted = match channel {
            STDOUT => wanted.stdout,
            STDERR => wanted.stderr,
            _ => false,
        };
        if is_wanted && sender.send(channel, &buffer[..length]).await.is_err() {
            return Ok(End::Client);
        }
    }
}

/// Carries what is typed, and the size of the window, until the client has let go or is gone.
async fn inbound(
    console: &Console,
    input: Input,
    types: bool,
    receiver: &mut ChannelReceiver,
) -> Result<End, ConsoleError> {
    // What comes behind the end of the input is not for the container.
    let mut types = types;
    while let Some(Ok(message)) = receiver.next().await {
        match message {
            Message::Data { channel: STDIN, bytes } if types && !bytes.is_empty() => console.write(&bytes).await?,
            Message::Closed { channel: STDIN } if types => match input {
                Input::Once => {
                    types = false;
                    console.end_input().await?;
                }
                Input::GoesOn => return Ok(End::Over),
                Input::None => {}
            },
            Message::Data { channel: RESIZE, bytes } => {
                if let Some(size) = WindowSize::parse(&bytes) {
                    console.resize(size.width, size.height).await?;
                }
            }
            Message::Data { .. } | Message::Closed { .. } => {}
        }
    }
    Ok(End::Client)
}
