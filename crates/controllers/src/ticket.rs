//! A Command on its way: to whom it is for and back, to be deleted.

use pumice_api::bus::Action;

/// A Command that is being carried out: an action, and what to say when it is done.
#[derive(Debug)]
pub(crate) struct Wish {
    pub action: Action,
    pub ticket: Ticket,
}

/// Stands for a Command that must be deleted once it was carried out.
#[derive(Debug)]
#[cfg_attr(test, derive(Default))]
pub(crate) struct Ticket {
    pub key: CommandKey,
    pub namespace: String,
    pub name: String,
    pub uid: Option<String>,
}

/// What a Command is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(test, derive(Default))]
pub(crate) struct CommandKey {
    pub kind: Kind,
    /// The Command's own namespace; empty for a queue, whose Commands may come from any.
    pub namespace: String,
    pub name: String,
}

/// What Commands are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(test, derive(Default))]
pub(crate) enum Kind {
    #[cfg_attr(test, default)]
    Job,
    Queue,
}
