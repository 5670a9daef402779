//! The verbs of stored resources. Each takes a [`crate::context::Call`] and answers it.

pub(crate) mod apply;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod read;
pub(crate) mod update;
pub(crate) mod watch;
pub(crate) mod write;
