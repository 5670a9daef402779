//! The seam through which other crates change and refuse objects before they are stored.
//!
//! Invariant: admission runs in the process and synchronously, sees the store read-only, and every object it lets
//! through is checked by schema and rules afterwards. Called by the write verbs.

use jiff::Timestamp;
use pumice_auth::Identity;
use pumice_objects::status::Status;
use serde_json::Value;

use crate::admission::tenants::TenantReader;
use crate::stored::ObjectReader;

/// What a request does to the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    /// Changes it, by update or patch.
    Update,
    Delete,
}

/// A write that waits for admission.
pub struct AdmissionRequest<'a> {
    pub operation: Operation,
    pub identity: &'a Identity,
    /// `""` for the core group.
    pub group: &'a str,
    /// Version in the path.
    pub version: &'a str,
    pub resource: &'a str,
    /// Kind of the object.
    pub kind: &'a str,
    /// `""` for the object itself.
    pub subresource: &'a str,
    /// `""` for resources of the cluster.
    pub namespace: &'a str,
    /// The object's name; generated names are final.
    pub name: &'a str,
    /// The stored object; `None` on create. For a status it may be without the fields that its write can't change.
    pub old: Option<&'a Value>,
    /// Whether nothing will be stored.
    pub dry_run: bool,
    pub objects: &'a dyn ObjectReader,
    /// Whose namespaces are.
    pub tenants: &'a dyn TenantReader,
    pub now: Timestamp,
}

/// What comes with the leave to store an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admitted {
    /// Go to the client as `Warning` headers.
    pub warnings: Vec<String>,
    /// Whether the object was left as it is; then it need not be cleaned again.
    pub untouched: bool,
    /// The status that a new object begins with, where its kind has a path of its own for that.
    pub status: Option<Value>,
}

impl Admitted {
    /// A yes without a word or a change.
    pub fn untouched() -> Admitted {
        Admitted { untouched: true, ..Admitted::default() }
    }
}

/// Changes and refuses objects.
pub trait Admission: Send + Sync + 'static {
    /// May change the object, or refuse it. The object has defaults and no unknown fields, and its fields have the
    /// right types, but rules of value are not checked yet. `object` is `None` for a delete. Asked again where a webhook
    /// changed the object afterwards: what it left before, it must leave then.
    fn admit(&self, request: &AdmissionRequest<'_>, object: Option<&mut Value>) -> Result<Admitted, Status>;

    /// Sees the final, valid object and may still refuse it.
    fn validate(&self, _request: &AdmissionRequest<'_>, _object: Option<&Value>) -> Result<Admitted, Status> {
        Ok(Admitted::default())
    }

    /// Whether it says which folders of nodes the pods of tenants may mount. Pod Security leaves that to it then.
    fn judges_tenants(&self) -> bool {
        false
    }
}

/// Admission that changes and refuses nothing: what a server has that was given none.
#[derive(Clone, Copy, Debug, Default)]
pub struct AdmitAll;

impl Admission for AdmitAll {
    fn admit(&self, _request: &AdmissionRequest<'_>, _object: Option<&mut Value>) -> Result<Admitted, Status> {
        Ok(Admitted::untouched())
    }
}
