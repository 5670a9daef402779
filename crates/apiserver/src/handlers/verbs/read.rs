//! get and list.

use std::sync::Arc;

use http::StatusCode;
use pumice_objects::status::{Status, StatusCause, StatusDetails, StatusReason};
use pumice_store::{Object, WatchError};

use crate::context::Call;
use crate::handlers::paging;
use crate::handlers::selectors::Matcher;
use crate::handlers::view::View;
use crate::http::query::{ReadOptions, RevisionWish};
use crate::http::respond::Answer;
use crate::kinds::conversion;

/// The stored object of a request, or 404.
pub(crate) fn fetch(call: &Call) -> Result<Arc<Object>, Status> {
    let name = &call.request.name;
    call.store()
        .find(&call.descriptor.storage, call.stored_namespace(), name)
        .ok_or_else(|| Status::not_found(call.resource(), name))
}

/// The object of a request in the version that is asked for, or 404.
pub(crate) async fn served(call: &Call) -> Result<Arc<Object>, Status> {
    conversion::served_one(&call.state.storage.webhooks, &call.descriptor, fetch(call)?).await
}

pub(crate) async fn get(call: &Call) -> Answer {
    let view = View::of(call)?;
    let options = ReadOptions::parse(&call.query)?;
    if let RevisionWish::At(wanted) = options.revision {
        not_ahead(wanted, call.store().revision())?;
    }
    Ok(view.one(StatusCode::OK, &*served(call).await?))
}

pub(crate) async fn list(call: &Call) -> Answer {
    let view = View::of(call)?;
    let options = ReadOptions::parse(&call.query)?;
    let matcher = Matcher::new(&call.descriptor, &options)?;
    let page = paging::page(call, &options, &matcher)?;
    let items = conversion::served(&call.state.storage.webhooks, &call.descriptor, page.items).await?;
    Ok(view.list(paging::Page { items, ..page }))
}

/// 504 when a client asks for what has not happened yet.
pub(crate) fn not_ahead(wanted: u64, current: u64) -> Result<(), Status> {
    if wanted <= current {
        return Ok(());
    }
    let message = format!("Too large resource version: {wanted}, current: {current}");
    let cause = StatusCause {
        reason: "ResourceVersionTooLarge".to_owned(),
        message: "Too large resource version".to_owned(),
        field: String::new(),
    };
    let details = StatusDetails { causes: vec![cause], retry_after_seconds: 1, ..StatusDetails::default() };
    Err(Status::new(StatusReason::Timeout, message).with_details(details))
}

/// What a client is told when the store can't go back, or forward, to a revision.
pub(crate) fn watch_status(error: &WatchError) -> Status {
    match error {
        WatchError::Expired { requested, oldest } => {
            Status::expired(format!("too old resource version: {requested} ({oldest})"))
        }
        WatchError::Ahead { requested, current } => {
            not_ahead(*requested, *current).err().unwrap_or_else(|| Status::internal_error(error))
        }
        WatchError::Closed => Status::service_unavailable("the server is shutting down"),
    }
}
