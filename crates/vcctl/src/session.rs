//! What every verb gets: the connection, the time, and where to write.
//!
//! Invariant: a request's failure says what was being done to which object. Called by all verbs.

use std::io::Write;

use jiff::Timestamp;
use pumice_jobs::Connection;
use pumice_jobs::json::text_at;
use pumice_jobs::platform::call::{self, CallError};
use serde_json::{Value, json};

use crate::error::Error;
use crate::kinds::Kind;
use crate::list::{self, Form};

/// Where objects are looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// In all namespaces, or where there are none.
    All,
    Namespace(String),
}

impl Scope {
    /// The namespace, if it is one.
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Scope::All => None,
            Scope::Namespace(name) => Some(name),
        }
    }
}

/// The namespace and the name of one object. Of kinds without namespaces the namespace does not matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamespacedName<'n> {
    pub namespace: &'n str,
    pub name: &'n str,
}

/// One command's connection, time and outputs.
pub struct Session<'s> {
    /// The way to the API.
    pub connection: Connection,
    /// The time, for ages.
    pub now: Timestamp,
    /// For data: standard output.
    pub out: &'s mut dyn Write,
    /// For everything else: standard error.
    pub notes: &'s mut dyn Write,
}

impl Session<'_> {
    /// Prints a line of data.
    pub fn say(&mut self, line: &str) -> Result<(), Error> {
        writeln!(self.out, "{line}").map_err(Error::Output)
    }

    /// Says something that is no data.
    pub fn note(&mut self, line: &str) {
        // There is nowhere left to report a failure to.
        let _ = writeln!(self.notes, "{line}");
    }

    /// Reads one object. Of kinds without namespaces the namespace does not matter.
    pub async fn get(&self, kind: Kind, namespace: &str, name: &str) -> Result<Value, Error> {
        let path = kind.object(namespace, name)?;
        Ok(call::get(&self.connection, &path, &format!("get {} {name}", kind.word)).await?)
    }

    /// Makes an object in a namespace, and gives it as the server has it then.
    pub async fn create(&self, kind: Kind, namespace: &str, object: &Value) -> Result<Value, Error> {
        let path = kind.collection(Some(namespace))?;
        let name = ["/metadata/name", "/metadata/generateName"].map(|pointer| text_at(object, pointer));
        let name = if name[0].is_empty() { name[1] } else { name[0] };
        Ok(call::create(&self.connection, &path, object, &format!("create {} {name}", kind.word)).await?)
    }

    /// Deletes an object. Gives as much of it as `form` shows: its name, or the whole as it was read before; a server says
    /// of some objects only that they are gone.
    pub async fn delete(&self, kind: Kind, namespace: &str, name: &str, form: Option<Form>) -> Result<Value, Error> {
        let path = kind.object(namespace, name)?;
        let doing = format!("delete {} {name}", kind.word);
        let object = match form {
            Some(Form::Json | Form::Yaml) => call::get(&self.connection, &path, &doing).await?,
            _ => json!({"metadata": {"name": name}}),
        };
        call::delete(&self.connection, &path, &doing).await?;
        Ok(object)
    }

    /// Merges `patch` into an object.
    pub async fn merge(&self, kind: Kind, namespace: &str, name: &str, patch: &Value) -> Result<Value, Error> {
        let path = kind.object(namespace, name)?;
        Ok(call::merge(&self.connection, &path, patch, &format!("change {} {name}", kind.word)).await?)
    }

    /// Prints an object that was made, changed or deleted: `text`, or the object in the form asked for.
    pub fn done(&mut self, kind: Kind, object: Value, form: Option<Form>, text: &str) -> Result<(), Error> {
        match form {
            None | Some(Form::Table | Form::Wide) => self.say(text),
            Some(form) => list::print_one(kind, object, form, self.out),
        }
    }

    /// An answer that has another shape than it should.
    pub(crate) fn unreadable(&self, doing: &str, detail: &str) -> Error {
        CallError::unreadable(doing, self.connection.url(), detail).into()
    }
}
