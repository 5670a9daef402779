//! The objects of a file: made or deleted one by one.
//!
//! Invariant: the file is read whole and found well-formed before anything is sent. A document that fails does not keep the
//! others from being tried; each failure is told with its place, and the verb fails in the end. Called by the binary.

use std::io::Read;
use std::path::Path;

use pumice_jobs::json::text_at;
use pumice_jobs::manifest::{self, Object};
use serde_json::Value;

use crate::error::Error;
use crate::kinds::Kind;
use crate::list::Form;
use crate::list::ListWriter;
use crate::session::{NamespacedName, Session};

/// A file of objects that was named on the command line.
pub struct ManifestFile<'f> {
    /// Its path; `-` is standard input.
    pub path: &'f Path,
    /// What is read for `-`.
    pub stdin: &'f mut dyn Read,
}

/// What is done with each document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// Its object is made; printed as `Created Kind: ns/name`, or in the form that was asked for.
    Create,
    /// Its object is deleted; printed as `Deleted Kind: ns/name`, or in the form that was asked for.
    Delete,
}

/// Does `deed` with each document of a file that has to hold objects of `kind`; those that name no namespace are meant for
/// `namespace`. Of several documents JSON and YAML are a `List` of those that did not fail.
pub async fn each(
    session: &mut Session<'_>,
    kind: Kind,
    file: ManifestFile<'_>,
    namespace: &str,
    deed: Deed,
    form: Option<Form>,
) -> Result<(), Error> {
    let objects = manifest::read(file.path, file.stdin)?;
    let all = objects.len();
    let whole = form.filter(|form| all > 1 && matches!(form, Form::Json | Form::Yaml));
    let mut list = whole.map(|form| ListWriter::new(kind, form));
    let (mut failed, mut code) = (0, 0);
    for object in objects {
        let origin = object.origin.clone();
        match one(session, kind, object, namespace, deed, form).await {
            Ok((object, text)) => match &mut list {
                Some(list) => list.item(object, session.out)?,
                None => session.done(kind, object, form, &text)?,
            },
            Err(error) => {
                let verb = if deed == Deed::Delete { "delete" } else { "create" };
                session.note(&format!("Failed to {verb} {} ({origin}): {}", kind.title, error.sentence()));
                failed += 1;
                code = if failed == 1 { error.code() } else { code };
            }
        }
    }
    if let Some(list) = list {
        list.end(session.out)?;
    }
    if failed == 0 { Ok(()) } else { Err(Error::Documents { failed, all, code }) }
}

/// Does it with one document; gives the object and the line that says so.
async fn one(
    session: &Session<'_>,
    kind: Kind,
    mut object: Object,
    namespace: &str,
    deed: Deed,
    form: Option<Form>,
) -> Result<(Value, String), Error> {
    let [title, version] = ["/kind", "/apiVersion"].map(|pointer| text_at(&object.body, pointer));
    if title != kind.title || version != kind.api_version() {
        return Err(Error::usage(format!(
            "the document holds a {title} of {version}; here goes a {} of {}",
            kind.title,
            kind.api_version()
        )));
    }
    let name = text_at(&object.body, "/metadata/name").to_owned();
    let namespace = match text_at(&object.body, "/metadata/namespace") {
        "" => namespace.to_owned(),
        own => own.to_owned(),
    };
    match deed {
        Deed::Create => {
            object.body["metadata"]["namespace"] = namespace.as_str().into();
            let made = session.create(kind, &namespace, &object.body).await?;
            let text = format!("Created {}: {namespace}/{}", kind.title, text_at(&made, "/metadata/name"));
            Ok((made, text))
        }
        Deed::Delete => {
            let deleted = session.delete(kind, &namespace, &name, form).await?;
            Ok((deleted, deleted_text(kind, &namespace, &name)))
        }
    }
}

/// Deletes an object and says so as Volcano does for flows.
pub async fn delete(
    session: &mut Session<'_>,
    kind: Kind,
    object: NamespacedName<'_>,
    form: Option<Form>,
) -> Result<(), Error> {
    let NamespacedName { namespace, name } = object;
    let deleted = session.delete(kind, namespace, name, form).await?;
    session.done(kind, deleted, form, &deleted_text(kind, namespace, name))
}

fn deleted_text(kind: Kind, namespace: &str, name: &str) -> String {
    format!("Deleted {}: {}", kind.title, kind.full_name(namespace, name))
}
