//! Where a database is.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use sqlx::postgres::PgConnectOptions;

/// Where a database is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A file of SQLite, which is made if it is not there. One process at a time writes it.
    File(PathBuf),
    /// A database of Postgres, as `postgres://USER@HOST/NAME`. The password is in `$PGPASSWORD` or the file `$PGPASSFILE`.
    Postgres(String),
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::File(path) => path.display().fmt(f),
            // What follows may be anything that libpq knows, secrets among it.
            Location::Postgres(url) => f.write_str(url.split('?').next().unwrap_or_default()),
        }
    }
}

/// Why an address of Postgres is not taken. Neither repeats the address, which may have a secret in it.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// No database has such an address.
    #[error("the address of the database can't be read")]
    Unreadable(#[source] sqlx::Error),
    /// The address has a password in it.
    #[error("the address of the database has a password")]
    Password,
}

/// Options to connect to an address. Others can read the arguments of a process: an address with a password is refused.
///
/// # Errors
/// When it is no address, or has a password in it.
pub fn postgres_options(url: &str) -> Result<PgConnectOptions, AddressError> {
    let authority = url.split_once("://").map_or(url, |(_, rest)| rest).split('/').next().unwrap_or_default();
    let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
    if user.contains(':') || url.contains("password=") {
        return Err(AddressError::Password);
    }
    PgConnectOptions::from_str(url).map_err(AddressError::Unreadable)
}
