//! What runs beside requests: each worker looks at the store and changes it.
//!
//! Invariant: a worker decides from what is stored, so a missed event costs a look. Started and stopped by the server.

pub(crate) mod disruption;
pub(crate) mod ended_access;
pub(crate) mod endpoints;
pub(crate) mod event_expiry;
pub(crate) mod gc;
pub(crate) mod quota_status;
pub(crate) mod service_accounts;
pub(crate) mod volumes;
pub(crate) mod watch_trigger;
