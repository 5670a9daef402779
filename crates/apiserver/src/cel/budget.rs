//! What evaluations may cost.
//!
//! Invariant: within [`Budget::lend`] every loop, conversion and growing function spends, and once nothing is left all of them
//! fail. Cost is counted, so that a verdict does not depend on the machine; the clock only ends what the count misjudges.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::Instant;

/// Most steps: values made, loops taken, and 16 bytes of text.
const STEPS: u64 = 2_000_000;
/// Longest time that the evaluations which share a budget may take together.
const TIME: Duration = Duration::from_secs(2);
/// Bytes of text that cost as much as a value.
pub(super) const BYTES_PER_STEP: usize = 16;

#[derive(Clone, Copy, Debug)]
struct Fuel {
    left: u64,
    until: Option<Instant>,
}

const NONE: Fuel = Fuel { left: 0, until: None };

thread_local! {
    static FUEL: Cell<Fuel> = const { Cell::new(NONE) };
}

/// What the evaluations for one write may cost together.
#[derive(Clone, Debug)]
pub(crate) struct Budget(Fuel);

impl Budget {
    /// As much as one write may cost; time runs from now.
    pub(crate) fn new() -> Self {
        Self(Fuel { left: STEPS, until: Some(Instant::now() + TIME) })
    }

    /// Whether nothing is left.
    pub(crate) fn is_spent(&self) -> bool {
        self.0.left == 0
    }

    /// Takes something that was done beside an evaluation.
    pub(crate) fn take(&mut self, steps: u64) {
        self.0.left = self.0.left.saturating_sub(steps);
    }

    /// Does work that may spend.
    pub(super) fn lend<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let before = FUEL.replace(self.0);
        let done = work();
        self.0 = FUEL.replace(before);
        done
    }
}

/// Spends; false when there is nothing left. Looks at the clock.
pub(super) fn spend(steps: u64) -> bool {
    let mut fuel = FUEL.get();
    let is_late = fuel.until.is_some_and(|until| Instant::now() >= until);
    fuel.left = if is_late { 0 } else { fuel.left.saturating_sub(steps) };
    FUEL.set(fuel);
    fuel.left > 0
}
