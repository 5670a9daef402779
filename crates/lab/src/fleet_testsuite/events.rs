//! Kinds of events of jobs, and what all events have.

use std::fmt;

use pumice_wire::api::event_message::Events;

macro_rules! kinds {
    ($($variant:ident = $word:literal,)*) => {
        /// A kind of event.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $($variant,)*
        }

        impl Kind {
            /// Every kind of event that Armada has.
            pub const ALL: &[Kind] = &[$(Kind::$variant,)*];

            /// Its name in JSON.
            pub fn word(self) -> &'static str {
                match self {
                    $(Kind::$variant => $word,)*
                }
            }

            /// The kind of an event.
            pub fn of(event: &Events) -> Kind {
                match event {
                    $(Events::$variant(_) => Kind::$variant,)*
                }
            }
        }

        /// The id of the event's job.
        pub fn job_of(event: &Events) -> &str {
            match event {
                $(Events::$variant(event) => &event.job_id,)*
            }
        }
    };
}

kinds! {
    Submitted = "submitted",
    Queued = "queued",
    Leased = "leased",
    LeaseReturned = "leaseReturned",
    LeaseExpired = "leaseExpired",
    Pending = "pending",
    Running = "running",
    Failed = "failed",
    Succeeded = "succeeded",
    Reprioritized = "reprioritized",
    Cancelling = "cancelling",
    Cancelled = "cancelled",
    Utilisation = "utilisation",
    IngressInfo = "ingressInfo",
    Reprioritizing = "reprioritizing",
    Preempted = "preempted",
    Preempting = "preempting",
}

impl Kind {
    /// The kind of that name, in JSON's form or in that of the definition.
    pub fn parse(name: &str) -> Option<Kind> {
        let name = json_name(name);
        Kind::ALL.iter().copied().find(|kind| kind.word() == name)
    }

    /// Its bit in a set of kinds.
    pub(super) fn bit(self) -> u32 {
        1 << self as u32
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Whether nothing comes after it. Only a run is over with a failure that is tried again; after `preempted` the job fails.
pub fn is_last(event: &Events) -> bool {
    match event {
        Events::Succeeded(_) | Events::Cancelled(_) => true,
        Events::Failed(failed) => !failed.retryable,
        _ => false,
    }
}

/// Where the job runs, as executor and node, where the event says so.
pub fn place_of(event: &Events) -> Option<(&str, &str)> {
    match event {
        Events::Running(event) if !event.node_name.is_empty() => Some((&event.cluster_id, &event.node_name)),
        _ => None,
    }
}

/// How proto3 spells a field in JSON.
pub fn json_name(name: &str) -> String {
    let mut spelled = String::with_capacity(name.len());
    let mut is_start = false;
    for letter in name.chars() {
        match letter {
            '_' => is_start = true,
            letter if is_start => {
                spelled.extend(letter.to_uppercase());
                is_start = false;
            }
            letter => spelled.push(letter),
        }
    }
    spelled
}
