//! The objects of a file: made or deleted one by one.
//!
//! Invariant: the file is read whole and found well-formed before anything is sent. A document that fails does not keep the
//! others from being tried; each failure is told with its place, and the verb fails in the end. Called by the binary.

use std::io::Read;
use std::path::Path;

use pumice_jobs::call;
use pumice_jobs::manifest::{self, Object};

use crate::error::Error;
use crate::kinds::Kind;
use crate::session::{Form, Session};

/// What is done with each document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// Its object is made; printed in this form, or as `Created Kind: ns/name`.
    Create(Option<Form>),
    /// Its object is deleted; printed as `Deleted Kind: ns/name`.
    Delete,
}

/// Does `deed` with each document of a file that has to hold objects of `kind`; those that name no namespace are meant for
/// `namespace`.
pub async fn each(
    session: &mut Session<'_>,
    kind: Kind,
    (path, stdin): (&Path, &mut dyn Read),
    namespace: &str,
    deed: Deed,
) -> Result<(), Error> {
    let objects = manifest::read(path, stdin)?;
    let all = objects.len();
    let (mut failed, mut code) = (0, 0);
    for object in objects {
        let origin = object.origin.clone();
        match one(session, kind, object, namespace, deed).await {
            Ok(()) => {}
            Err(error @ Error::Output(_)) => return Err(error),
            Err(error) => {
                let verb = if deed == Deed::Delete { "delete" } else { "create" };
                session.note(&format!("Failed to {verb} {} ({origin}): {}", kind.title, error.sentence()));
                failed += 1;
                code = if failed == 1 { error.code() } else { code };
            }
        }
    }
    if failed == 0 { Ok(()) } else { Err(Error::Documents { failed, all, code }) }
}

async fn one(
    session: &mut Session<'_>,
    kind: Kind,
    mut object: Object,
    namespace: &str,
    deed: Deed,
) -> Result<(), Error> {
    let [title, version] = ["/kind", "/apiVersion"].map(|pointer| call::text_at(&object.body, pointer));
    if title != kind.title || version != kind.api_version() {
        return Err(Error::usage(format!(
            "the document holds a {title} of {version}; here goes a {} of {}",
            kind.title,
            kind.api_version()
        )));
    }
    let name = call::text_at(&object.body, "/metadata/name").to_owned();
    let namespace = match call::text_at(&object.body, "/metadata/namespace") {
        "" => namespace.to_owned(),
        own => own.to_owned(),
    };
    match deed {
        Deed::Create(form) => {
            object.body["metadata"]["namespace"] = namespace.as_str().into();
            let made = session.create(kind, &namespace, &object.body).await?;
            let text = format!("Created {}: {namespace}/{}", kind.title, call::text_at(&made, "/metadata/name"));
            session.done(kind, made, form, &text)
        }
        Deed::Delete => delete(session, kind, &namespace, &name).await,
    }
}

/// Deletes an object and says so as Volcano does for flows.
pub async fn delete(session: &mut Session<'_>, kind: Kind, namespace: &str, name: &str) -> Result<(), Error> {
    session.delete(kind, namespace, name).await?;
    session.say(&format!("Deleted {}: {}", kind.title, kind.full_name(namespace, name)))
}
