//! Users from an LDAP server or Active Directory.
//!
//! Invariant: a reading is whole or it is an error. A page that fails, a limit of the server, a group that is named and not
//! there, or an entry without an id are errors; nothing of such a reading is used. Nothing is sent or read without TLS, and
//! referrals are not followed.
//!
//! ```text
//!   connection ──> records ──> groups, users (pure) ──> entries
//! ```

mod connection;
mod dn;
mod error;
mod groups;
mod record;
mod schema;
mod stamp;
#[cfg(test)]
mod tests;
mod users;

use pumice_api::directory::LdapDirectory;
use pumice_machines::directory::Reading;

use connection::Session;
use groups::Groups;
use schema::Schema;

pub use error::LdapReadError;

/// What a look at the server brings.
#[derive(Debug, PartialEq)]
pub(crate) enum Look {
    /// The server says that nothing was written since the last reading.
    Unchanged,
    Whole {
        reading: Reading,
        /// What tells whether something was written since; nothing where the server has no such thing.
        stamp: Option<String>,
    },
}

/// Reads all users. Nothing more than a look is taken where the server's stamp is still `last`.
pub(crate) async fn read(
    directory: &LdapDirectory,
    password: Option<&str>,
    last: Option<&str>,
) -> Result<Look, LdapReadError> {
    connection::connected(directory, password, async |mut session: Session| {
        // Before the rest: what is written meanwhile counts as written later.
        let stamp = stamp::read(&mut session, directory).await?;
        if stamp.is_some() && stamp.as_deref() == last {
            return Ok(Look::Unchanged);
        }
        let schema = Schema::of(directory);
        let groups = Groups::read(&mut session, &schema).await?;
        let reading = users::read(&mut session, &schema, &groups).await?;
        session.end().await;
        Ok(Look::Whole { reading, stamp })
    })
    .await
}
