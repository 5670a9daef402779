//! The cards of one node and what is taken of them.
//!
//! Invariant: what a card has in use is the sum over the grants it was charged with. Amounts saturate.

use crate::ids::GroupId;
use crate::plugin::score::{FULL, POINT};

/// Whether the node's cards are shared by software or cut in hardware.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Mode {
    #[default]
    Software,
    Hardware,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Pool {
    pub(super) mode: Mode,
    pub(super) cards: Vec<Card>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Card {
    /// Its uuid, or its index for cards that have none.
    pub(super) id: String,
    pub(super) kind: String,
    /// Most pods at a time.
    pub(super) sharers_max: i64,
    pub(super) memory: i64,
    pub(super) healthy: bool,
    pub(super) used_memory: i64,
    pub(super) used_cores: i64,
    pub(super) holders: Vec<Holder>,
}

/// Who has a part of a card.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Holder {
    pub(super) group: Option<GroupId>,
    /// Exclusive rules it matches, a bit each.
    pub(super) rules: u64,
}

/// A part of one card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) memory: i64,
    pub(super) cores: i64,
}

/// What a pod has, container after container.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Grant {
    pub(super) containers: Vec<Vec<Part>>,
    /// The score of the choice, in thousandths of a point.
    pub(super) score: i64,
}

impl Grant {
    pub(super) fn is_empty(&self) -> bool {
        self.containers.iter().all(Vec::is_empty)
    }

    pub(super) fn parts(&self) -> impl Iterator<Item = &Part> {
        self.containers.iter().flatten()
    }

    /// The score in whole points, rounded.
    pub(super) fn points(&self) -> i64 {
        self.score.saturating_add(POINT / 2).div_euclid(POINT)
    }
}

impl Pool {
    /// Takes what `grant` says from the cards that it names; cards that are gone count no more.
    pub(super) fn charge(&mut self, grant: &Grant, holder: &Holder) {
        for part in grant.parts() {
            if let Some(card) = self.cards.iter_mut().find(|card| card.id == part.id) {
                card.charge(part, holder.clone());
            }
        }
    }
}

impl Card {
    pub(super) fn charge(&mut self, part: &Part, holder: Holder) {
        self.used_memory = self.used_memory.saturating_add(part.memory);
        self.used_cores = self.used_cores.saturating_add(part.cores);
        self.holders.push(holder);
    }

    pub(super) fn sharers(&self) -> i64 {
        self.holders.len() as i64
    }

    pub(super) fn free_memory(&self) -> i64 {
        self.memory.saturating_sub(self.used_memory)
    }

    /// How full the card is, out of [`FULL`].
    pub(super) fn fullness(&self) -> i64 {
        crate::plugin::score::ratio(self.used_memory, self.memory, FULL)
    }
}
