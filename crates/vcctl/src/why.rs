//! Why a queue's work waits, and why a node takes no more: the scheduler's own answer.
//!
//! Invariant: nothing is worked out here; a platform whose scheduler does not answer says so. Called by the binary.

use pumice_jobs::json::text_at;

use crate::error::Error;
use crate::kinds::Kind;
use crate::list::Form;
use crate::list::print_one;
use crate::session::Session;

/// Prints what the scheduler says of a queue or a node: its text, or the whole as data.
pub async fn tell(session: &mut Session<'_>, kind: Kind, name: &str, form: Form) -> Result<(), Error> {
    let told = session.get(kind, "", name).await?;
    match form {
        Form::Table | Form::Wide => session.say(text_at(&told, "/text")),
        _ => print_one(kind, told, form, session.out),
    }
}
