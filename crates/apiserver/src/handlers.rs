//! Handlers: what answers a request once its path is read. [`pipeline`] chooses among them.

mod backup;
pub(crate) mod metrics_api;
mod metrics_page;
mod non_resource;
mod paging;
pub(crate) mod pipeline;
mod request_log;
pub(crate) mod retained_logs;
mod reviews;
mod selectors;
mod subresources;
pub(crate) mod verbs;
mod view;
