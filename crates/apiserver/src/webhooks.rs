//! Webhooks: where one is, whom it must be, and one question to it. Used by admission and by conversions.

mod callee;
mod client;
mod envelope;
mod service;

pub(crate) use callee::Callee;
pub(crate) use client::Client;
pub(crate) use envelope::response;
