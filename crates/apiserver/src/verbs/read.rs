//! get and list.

use std::sync::Arc;

use http::StatusCode;
use pumice_objects::status::{Status, StatusCause, StatusDetails, StatusReason};
use pumice_store::{Listing, Object, WatchError};

use crate::pipeline::{Answer, Call};
use crate::query::{ReadOptions, RevisionMatch, RevisionWish};
use crate::render::View;
use crate::selecting::Matcher;

/// The stored object of a request, or 404.
pub(crate) fn fetch(call: &Call) -> Result<Arc<Object>, Status> {
    let name = &call.request.name;
    call.state
        .store
        .find(&call.descriptor.storage, call.stored_namespace(), name)
        .ok_or_else(|| Status::not_found(call.resource(), name))
}

/// Answers a get.
pub(crate) fn get(call: &Call) -> Answer {
    let view = View::of(call)?;
    let options = ReadOptions::parse(&call.query)?;
    if let RevisionWish::At(wanted) = options.revision {
        not_ahead(wanted, call.state.store.revision())?;
    }
    Ok(view.one(StatusCode::OK, &*fetch(call)?))
}

/// Answers a list. Always the whole of it: `limit` is a wish, and a list without `continue` is complete.
pub(crate) fn list(call: &Call) -> Answer {
    let view = View::of(call)?;
    let options = ReadOptions::parse(&call.query)?;
    let matcher = Matcher::new(&call.descriptor, &options)?;
    let listing = snapshot(call, &options)?;
    Ok(view.list(select(listing.items, &matcher), listing.revision))
}

/// The objects that a selector names.
pub(crate) fn select(items: Vec<Arc<Object>>, matcher: &Matcher) -> Vec<Arc<Object>> {
    if matcher.is_everything() {
        return items;
    }
    items.into_iter().filter(|object| matcher.matches(object)).collect()
}

/// The snapshot that the revision parameters ask for.
fn snapshot(call: &Call, options: &ReadOptions) -> Result<Listing, Status> {
    if options.continues {
        return Err(Status::expired(
            "The provided continue parameter is too old to display a consistent list result. You must start a new list \
             without the continue parameter.",
        ));
    }
    if options.initial_events.is_some() {
        return Err(Status::bad_request("sendInitialEvents is forbidden for list"));
    }
    let (store, resource) = (&call.state.store, &call.descriptor.storage);
    match (options.revision, options.revision_match) {
        (RevisionWish::Latest, Some(_)) => {
            Err(Status::bad_request("resourceVersionMatch is forbidden unless resourceVersion is provided"))
        }
        (RevisionWish::Any, Some(RevisionMatch::Exact)) => {
            Err(Status::bad_request("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""))
        }
        (RevisionWish::At(wanted), Some(RevisionMatch::Exact)) => {
            store.list_at(resource, call.namespace(), wanted).map_err(|error| watch_status(&error))
        }
        (RevisionWish::At(wanted), _) => {
            not_ahead(wanted, store.revision())?;
            Ok(store.list(resource, call.namespace()))
        }
        _ => Ok(store.list(resource, call.namespace())),
    }
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
