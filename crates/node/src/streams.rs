//! Streams of a client that attached itself: channels over a WebSocket, or streams of SPDY/3.1 as older clients speak it.
//!
//! Called by exec and port-forward of the node's kubelet API.

pub(crate) mod channels;
pub(crate) mod spdy;
