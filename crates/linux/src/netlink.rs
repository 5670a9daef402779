//! Netlink requests over one blocking socket: build a message, send it, wait for the answer.
//!
//! Invariant: every request is acknowledged by the kernel or is an error that names the operation.
//! No async and no background reader, so the shim can use it between two of its own steps.

use std::io;

use netlink_sys::{Socket, SocketAddr};
use nix::sys::socket::{setsockopt, sockopt};

const HEADER_BYTES: usize = 16;
const REPLY_BYTES_MAX: usize = 64 << 10;
/// Replies read for one request; a dump of all links is far below.
const REPLIES_MAX: usize = 65_536;
/// What fits in a socket as it is made.
const SENT_BYTES: usize = 64 << 10;
const NESTED: u16 = 1 << 15;

/// Why the kernel's network could not be changed.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// No socket: no rights, or no such protocol in this kernel.
    #[error("can't open a netlink socket")]
    Open(#[source] io::Error),
    /// The request or its answer got lost on the way.
    #[error("can't talk to the kernel to {operation}")]
    Exchange {
        /// What was asked for.
        operation: &'static str,
        #[source]
        source: io::Error,
    },
    /// The kernel said no.
    #[error("the kernel refused to {operation}")]
    Refused {
        /// What was asked for.
        operation: &'static str,
        #[source]
        source: io::Error,
    },
}

impl NetlinkError {
    /// A link that was there a moment ago is not.
    pub fn gone(operation: &'static str) -> Self {
        NetlinkError::Refused { operation, source: io::Error::from_raw_os_error(libc::ENODEV) }
    }

    /// The kernel's error number, when it was the kernel that said no.
    pub fn errno(&self) -> Option<i32> {
        match self {
            NetlinkError::Refused { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }
}

/// A message under construction.
#[derive(Debug, Clone)]
pub struct Message {
    bytes: Vec<u8>,
}

impl Message {
    /// A request of `kind` with `flags` beside REQUEST and the fixed part `body`.
    pub fn new(kind: u16, flags: i32, body: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER_BYTES];
        let flags = (flags | libc::NLM_F_REQUEST) as u16;
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(body);
        Message { bytes }
    }

    /// Appends an attribute of this kind, padded to four bytes.
    pub fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        let length = u16::try_from(4 + value.len()).expect("attributes here are some kilobytes at most");
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.pad();
        self
    }

    /// Adds an attribute that is a text with its closing zero.
    pub fn text(self, kind: u16, value: &str) -> Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.attribute(kind, &bytes)
    }

    /// Adds an attribute made of attributes.
    pub fn nest(mut self, kind: u16, inner: impl FnOnce(Message) -> Message) -> Self {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        let mut message = inner(self);
        let length = u16::try_from(message.bytes.len() - start).expect("attributes here are some kilobytes at most");
        message.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        message.bytes[start + 2..start + 4].copy_from_slice(&(kind | NESTED).to_ne_bytes());
        message.pad();
        message
    }

    /// Adds raw bytes: the fixed part of a message within an attribute.
    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self.pad();
        self
    }

    /// What follows its header, as an answer has it.
    pub fn into_payload(mut self) -> Vec<u8> {
        self.bytes.split_off(HEADER_BYTES)
    }

    /// Asks the kernel to say that it has done this.
    pub fn acknowledge(&mut self) {
        self.bytes[6] |= libc::NLM_F_ACK as u8;
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self, sequence: u32) -> Vec<u8> {
        let length = u32::try_from(self.bytes.len()).expect("messages here are some kilobytes at most");
        self.bytes[0..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }
}

/// A socket in the network namespace in which it was opened.
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// Opens a socket of a protocol such as `NETLINK_ROUTE`.
    pub fn open(protocol: i32) -> Result<Self, NetlinkError> {
        let mut socket = Socket::new(protocol as isize).map_err(NetlinkError::Open)?;
        socket.bind_auto().map_err(NetlinkError::Open)?;
        socket.connect(&SocketAddr::new(0, 0)).map_err(NetlinkError::Open)?;
        Ok(Netlink { socket, sequence: 0 })
    }

    /// Sends one request and waits for the kernel to acknowledge it; returns what else it answered.
    pub fn request(&mut self, operation: &'static str, message: Message) -> Result<Vec<Vec<u8>>, NetlinkError> {
        let mut message = message;
        message.acknowledge();
        self.batch(operation, vec![message])
    }

    /// Sends a request whose answer is a list that the kernel ends itself.
    pub fn batch_dump(&mut self, operation: &'static str, message: Message) -> Result<Vec<Vec<u8>>, NetlinkError> {
        self.exchange(operation, vec![message], 1)
    }

    /// Sends several messages as one and waits for the acknowledgement of each that asks for it.
    pub fn batch(&mut self, operation: &'static str, messages: Vec<Message>) -> Result<Vec<Vec<u8>>, NetlinkError> {
        let expected = messages.iter().filter(|message| message.bytes[6] & libc::NLM_F_ACK as u8 != 0).count();
        self.exchange(operation, messages, expected)
    }

    fn exchange(
        &mut self,
        operation: &'static str,
        messages: Vec<Message>,
        mut expected: usize,
    ) -> Result<Vec<Vec<u8>>, NetlinkError> {
        let mut bytes = Vec::new();
        for message in messages {
            self.sequence = self.sequence.wrapping_add(1);
            bytes.extend(message.finish(self.sequence));
        }
        let exchange = |source| NetlinkError::Exchange { operation, source };
        if bytes.len() > SENT_BYTES {
            // As root, whatever the machine's bound is.
            setsockopt(&self.socket, sockopt::SndBufForce, &bytes.len()).map_err(|errno| exchange(errno.into()))?;
        }
        self.socket.send(&bytes, 0).map_err(exchange)?;
        let mut replies = Vec::new();
        let mut buffer = vec![0; REPLY_BYTES_MAX];
        while expected > 0 {
            let read = self.socket.recv(&mut &mut buffer[..], 0).map_err(exchange)?;
            expected -= read_replies(operation, &buffer[..read.min(buffer.len())], &mut replies)?.min(expected);
        }
        Ok(replies)
    }
}

/// Takes one datagram apart: returns how many acknowledgements were in it.
fn read_replies(operation: &'static str, mut rest: &[u8], replies: &mut Vec<Vec<u8>>) -> Result<usize, NetlinkError> {
    let mut acknowledged = 0;
    while let Some(header) = rest.first_chunk::<HEADER_BYTES>() {
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let kind = i32::from(u16::from_ne_bytes([header[4], header[5]]));
        let Some(payload) = rest.get(HEADER_BYTES..length) else { break };
        let code = payload.first_chunk::<4>().map_or(0, |code| i32::from_ne_bytes(*code));
        match kind {
            libc::NLMSG_ERROR | libc::NLMSG_DONE if code < 0 => {
                return Err(NetlinkError::Refused { operation, source: io::Error::from_raw_os_error(-code) });
            }
            libc::NLMSG_ERROR | libc::NLMSG_DONE => acknowledged += 1,
            _ if replies.len() < REPLIES_MAX => replies.push(payload.to_vec()),
            _ => {}
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(acknowledged)
}

/// The attributes in `bytes`, which follow a fixed part of the caller's.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let header = bytes.first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]) & !NESTED;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_read_as_they_were_written() {
        let message = Message::new(16, 0, &[1, 2, 3, 4])
            .text(3, "pm0")
            .nest(18, |inner| inner.text(1, "veth").attribute(2, &[9]))
            .finish(7);
        assert_eq!(message.len() % 4, 0);
        assert_eq!(u32::from_ne_bytes(message[0..4].try_into().unwrap()) as usize, message.len());
        let found: Vec<_> = attributes(&message[HEADER_BYTES + 4..]).collect();
        assert_eq!(found[0], (3, &b"pm0\0"[..]));
        assert_eq!(found[1].0, 18);
        assert_eq!(attributes(found[1].1).collect::<Vec<_>>(), [(1, &b"veth\0"[..]), (2, &[9][..])]);
    }

    #[test]
    fn a_cut_or_lying_answer_is_not_a_panic() {
        let mut replies = Vec::new();
        for length in [0_u32, 3, 15, 16, 17, 4000, u32::MAX] {
            let mut bytes = vec![0; 20];
            bytes[0..4].copy_from_slice(&length.to_ne_bytes());
            let _ = read_replies("test", &bytes, &mut replies);
            let _ = attributes(&bytes).take(100).count();
        }
    }
}
