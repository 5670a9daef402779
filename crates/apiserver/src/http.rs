//! HTTP: connections, requests as they are read, answers as they are written.
//!
//! Nothing here knows of kinds, rights or the store. The bottom layer of the server, with `json_scan` and `stored`.

pub(crate) mod body;
pub(crate) mod connections;
pub(crate) mod decode;
pub(crate) mod flow;
mod log_pause;
pub(crate) mod negotiate;
pub(crate) mod query;
pub(crate) mod request;
pub(crate) mod request_metrics;
pub(crate) mod respond;
pub(crate) mod websocket;
