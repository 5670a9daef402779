//! The streams of an exec, as the channels that a WebSocket would have.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use crate::streams::channels::Message;
use crate::streams::spdy::{Event, SpdyReceiver, SpdySender};

/// Types of streams, in the order of the channels' numbers.
const TYPES: [&str; 5] = ["stdin", "stdout", "stderr", "error", "resize"];
/// The header that says what a stream is for.
const TYPE: &str = "streamtype";
/// How long a client may take to begin its streams.
const BEGIN_WITHIN: Duration = Duration::from_secs(30);
/// What a client may say before it has begun all of them, in messages.
const EARLY_MAX: usize = 64;

/// Numbers of the streams, by channel.
type Streams = [Option<u32>; TYPES.len()];

/// Waits until the client has begun the streams of these channels.
pub(crate) async fn open(
    sender: SpdySender,
    mut receiver: SpdyReceiver,
    wanted: &[u8],
) -> io::Result<(Outgoing, Incoming)> {
    let begin = async {
        let (mut streams, mut early) = (Streams::default(), VecDeque::new());
        while wanted.iter().any(|channel| streams.get(usize::from(*channel)).is_some_and(Option::is_none)) {
            let event = receiver.next().await.ok_or(io::ErrorKind::UnexpectedEof)??;
            match event {
                Event::Begin { stream, headers } => {
                    let kind = headers.iter().find(|(name, _)| name == TYPE).map(|(_, value)| value.as_str());
                    match TYPES.iter().position(|known| kind == Some(known)).and_then(|at| streams.get_mut(at)) {
                        Some(slot @ None) => *slot = Some(stream),
                        _ => sender.refuse(stream).await?,
                    }
                }
                other if early.len() < EARLY_MAX => early.extend(message(&streams, other)),
                _ => return Err(io::Error::other("a client that speaks before its streams are there")),
            }
        }
        Ok::<_, io::Error>((streams, early))
    };
    let (streams, early) = tokio::time::timeout(BEGIN_WITHIN, begin).await??;
    let outgoing = Outgoing { sender: sender.clone(), streams };
    Ok((outgoing, Incoming { receiver, sender, streams, early }))
}

/// What an event is on the channels; nothing where it is of a stream that has none.
fn message(streams: &Streams, event: Event) -> Option<Message> {
    let channel = |stream: u32| streams.iter().position(|one| *one == Some(stream)).map(|at| at as u8);
    match event {
        Event::Data { stream, bytes } => Some(Message::Data { channel: channel(stream)?, bytes }),
        Event::End { stream } => Some(Message::Closed { channel: channel(stream)? }),
        Event::Begin { .. } => None,
    }
}

/// The sending half: channels as streams that the client has opened.
pub(crate) struct Outgoing {
    sender: SpdySender,
    streams: Streams,
}

impl Outgoing {
    /// Sends bytes on a channel; nowhere, if the client has no stream for it. Cancel safe.
    pub(crate) async fn send(&self, channel: u8, bytes: &[u8]) -> io::Result<()> {
        match self.streams.get(usize::from(channel)).copied().flatten() {
            Some(stream) => self.sender.send(stream, bytes).await,
            None => Ok(()),
        }
    }

    /// Says that nothing more comes on any.
    pub(crate) async fn close(self) {
        for stream in self.streams.into_iter().flatten() {
            // A client that is gone needs no word.
            let _ = self.sender.end(stream).await;
        }
    }
}

/// The receiving half: streams of the client as channels.
pub(crate) struct Incoming {
    receiver: SpdyReceiver,
    sender: SpdySender,
    streams: Streams,
    early: VecDeque<Message>,
}

impl Incoming {
    /// The next message; none once the client has gone. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<io::Result<Message>> {
        if let Some(message) = self.early.pop_front() {
            return Some(Ok(message));
        }
        loop {
            match self.receiver.next().await? {
                // One more than there is a use for. If it can't be told, the client is gone.
                Ok(Event::Begin { stream, .. }) => drop(self.sender.refuse(stream).await),
                Ok(event) => match message(&self.streams, event) {
                    Some(message) => return Some(Ok(message)),
                    None => continue,
                },
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streams::spdy::tests::pair;
    use bytes::Bytes;

    #[tokio::test]
    async fn streams_are_channels() {
        let (mut client, sender, receiver) = pair();
        for (stream, kind) in [(1, "error"), (3, "stdin"), (5, "video"), (7, "stdin"), (9, "stdout")] {
            client.begin(stream, &[(TYPE, kind)]).await;
            if kind == "stdin" && stream == 3 {
                client.data(3, b"early", false).await;
            }
        }
        client.data(3, b"late", true).await;
        let (outgoing, mut incoming) = open(sender, receiver, &[3, 0, 1]).await.unwrap();
        let data = |bytes: &'static [u8]| Message::Data { channel: 0, bytes: Bytes::from_static(bytes) };
        for wanted in [data(b"early"), data(b"late"), Message::Closed { channel: 0 }] {
            assert_eq!(incoming.next().await.unwrap().unwrap(), wanted);
        }
        for (channel, bytes) in [(1, &b"out"[..]), (2, b"nowhere"), (3, b"{}")] {
            outgoing.send(channel, bytes).await.unwrap();
        }
        outgoing.close().await;
        let refused = |stream| (stream, b"refused".to_vec(), true);
        let said = |stream, bytes: &[u8]| (stream, bytes.to_vec(), false);
        let end = |stream| (stream, Vec::new(), true);
        for wanted in [refused(5), refused(7), said(9, b"out"), said(1, b"{}"), end(3), end(9), end(1)] {
            assert_eq!(client.next().await, Some(wanted));
        }
    }

    #[tokio::test]
    async fn a_client_that_goes_before_its_streams_are_there_ends_it() {
        let (client, sender, receiver) = pair();
        drop(client);
        assert!(open(sender, receiver, &[3]).await.is_err());
    }
}
