//! What can be done with every kind alike: list, show one, dump, tell why it waits.
//!
//! Invariant: tables, and `No resources found` in place of an empty one, are Volcano's. Called by the binary and by the
//! modules of the kinds.

use pumice_jobs::json::text_at;
use pumice_jobs::platform::call::Pages;
use serde_json::Value;

use crate::error::Error;
use crate::kinds::Kind;
use crate::list::Form;
use crate::list::{ListWriter, print_one};
use crate::session::{NamespacedName, Scope, Session};
use crate::table::{Column, Table, Visibility};

/// What Volcano prints in place of an empty table.
pub const NOTHING: &str = "No resources found";

/// Which objects are listed, and how.
#[derive(Clone, Copy)]
pub struct Listing<'l> {
    pub kind: Kind,
    pub columns: &'l [Column],
    pub scope: &'l Scope,
    /// Which of them are meant.
    pub keep: &'l dyn Fn(&Value) -> bool,
}

/// Lists objects page by page, as a table or each as a whole.
pub async fn list(session: &mut Session<'_>, listing: Listing<'_>, form: Form) -> Result<(), Error> {
    let path = listing.kind.collection(listing.scope.namespace())?;
    let connection = session.connection.clone();
    let mut pages = Pages::new(&connection, &path, "", &format!("list {}", listing.kind.plural));
    let columns = columns_of(listing.columns, form, *listing.scope == Scope::All);
    let mut table = Table::new(columns.iter().map(|column| (column.head, column.width)).collect());
    let mut whole = ListWriter::new(listing.kind, form);
    while let Some(mut page) = pages.next().await? {
        for object in items(&mut page).filter(|object| (listing.keep)(object)) {
            match form {
                Form::Table | Form::Wide => {
                    table.push(columns.iter().map(|column| (column.cell)(&object, session.now)));
                }
                Form::Json | Form::Yaml | Form::Name => whole.item(object, session.out)?,
            }
        }
    }
    match form {
        Form::Table | Form::Wide => print_table(session, &table, 0),
        Form::Json | Form::Yaml | Form::Name => whole.end(session.out),
    }
}

/// Shows one object: a table of one row, or the object itself.
pub async fn get(
    session: &mut Session<'_>,
    kind: Kind,
    columns: &[Column],
    object: NamespacedName<'_>,
    form: Form,
) -> Result<(), Error> {
    let object = session.get(kind, object.namespace, object.name).await?;
    show(session, kind, columns, object, form)
}

/// Shows an object that was read.
pub fn show(session: &mut Session<'_>, kind: Kind, columns: &[Column], object: Value, form: Form) -> Result<(), Error> {
    match form {
        Form::Table | Form::Wide => {
            let columns = columns_of(columns, form, false);
            let mut table = Table::new(columns.iter().map(|column| (column.head, column.width)).collect());
            table.push(columns.iter().map(|column| (column.cell)(&object, session.now)));
            print_table(session, &table, 0)
        }
        Form::Json | Form::Yaml | Form::Name => print_one(kind, object, form, session.out),
    }
}

/// Dumps the object of a name, or without one all of the namespace.
pub async fn describe(
    session: &mut Session<'_>,
    kind: Kind,
    columns: &[Column],
    namespace: &str,
    name: Option<&str>,
    form: Form,
) -> Result<(), Error> {
    match name {
        Some(name) => get(session, kind, columns, NamespacedName { namespace, name }, form).await,
        None => {
            let scope = Scope::Namespace(namespace.to_owned());
            list(session, Listing { kind, columns, scope: &scope, keep: &|_| true }, form).await
        }
    }
}

/// Prints why a queue's work waits, or why a node takes no more: the scheduler's own text, or the whole answer as data. `kind` is
/// one of those whose objects the scheduler makes.
pub async fn why(session: &mut Session<'_>, kind: Kind, name: &str, form: Form) -> Result<(), Error> {
    let told = session.get(kind, "", name).await?;
    match form {
        Form::Table | Form::Wide => session.say(text_at(&told, "/text")),
        _ => print_one(kind, told, form, session.out),
    }
}

/// The columns that are shown.
pub fn columns_of(columns: &[Column], form: Form, all_namespaces: bool) -> Vec<Column> {
    let visibility = |column: &&Column| match column.visibility {
        Visibility::Always => true,
        Visibility::Wide => form == Form::Wide,
        Visibility::AllNamespaces => all_namespaces,
    };
    columns.iter().filter(visibility).copied().collect()
}

/// Prints a table in the order of its first `sorted_by` cells, or what stands in place of an empty one.
pub fn print_table(session: &mut Session<'_>, table: &Table, sorted_by: usize) -> Result<(), Error> {
    if table.is_empty() {
        return session.say(NOTHING);
    }
    table.write(sorted_by, session.out).map_err(Error::Output)
}

/// The items of a page, which is emptied.
pub fn items(page: &mut Value) -> impl Iterator<Item = Value> + use<> {
    let items = match page.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    };
    items.into_iter()
}
