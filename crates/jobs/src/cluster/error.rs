//! How a queue or a node can't be found.

use crate::error::{Failure, Remedy};
use crate::exit_code::Exit;

/// An object that is no job does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no {what} {name}")]
pub struct Missing {
    /// Its kind, such as `queue`.
    pub what: &'static str,
    /// The name looked for.
    pub name: String,
}

impl Failure for Missing {
    fn exit(&self) -> Exit {
        Exit::NotFound
    }

    fn remedy(&self) -> Remedy {
        Remedy::Do(format!("jobctl {} list", self.what))
    }
}
