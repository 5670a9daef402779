//! How many calls run at once: grows while the API server answers, halves when it is slow or asks to slow down.
//!
//! Invariant: between `LIMIT_MIN` and `LIMIT_MAX`; halved at most once for the calls that were under way together.

/// Calls at the start.
const LIMIT_FIRST: usize = 32;
const LIMIT_MIN: usize = 4;
const LIMIT_MAX: usize = 512;

/// How many calls a component has under way, and how many it may have.
#[derive(Debug)]
pub struct Window {
    limit: usize,
    in_flight: usize,
    /// Answers since the limit last grew.
    good: usize,
    /// Answers to wait for before it may be halved again.
    settling: usize,
}

impl Default for Window {
    fn default() -> Self {
        Self { limit: LIMIT_FIRST, in_flight: 0, good: 0, settling: 0 }
    }
}

impl Window {
    /// Whether another call may start.
    pub fn has_room(&self) -> bool {
        self.in_flight < self.limit
    }

    /// Calls that were begun and are not answered yet.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Calls that may be under way at once.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// A call was started.
    pub fn started(&mut self) {
        self.in_flight += 1;
    }

    /// A call was answered; `overloaded` if the server had no time for it.
    pub fn answered(&mut self, overloaded: bool) {
        let was_full = self.in_flight >= self.limit;
        self.in_flight = self.in_flight.saturating_sub(1);
        let settled = self.settling == 0;
        self.settling = self.settling.saturating_sub(1);
        if !overloaded {
            self.good += 1;
            // One more for each whole window that was answered and was used.
            if was_full && self.good >= self.limit {
                self.limit = (self.limit + self.limit / 4 + 1).min(LIMIT_MAX);
                self.good = 0;
            }
        } else if settled {
            self.limit = (self.limit / 2).max(LIMIT_MIN);
            self.good = 0;
            self.settling = self.in_flight;
            tracing::warn!(limit = self.limit, "the API server is overloaded: fewer calls at once");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(window: &mut Window) {
        while window.has_room() {
            window.started();
        }
    }

    #[test]
    fn grows_while_all_goes_well_and_is_used() {
        let mut window = Window::default();
        for _ in 0..10_000 {
            full(&mut window);
            window.answered(false);
        }
        assert_eq!(window.limit, LIMIT_MAX);
        let mut idle = Window::default();
        for _ in 0..10_000 {
            idle.started();
            idle.answered(false);
        }
        assert_eq!(idle.limit, LIMIT_FIRST, "an unused window does not grow");
    }

    #[test]
    fn one_burst_of_refusals_halves_once() {
        let mut window = Window::default();
        full(&mut window);
        for _ in 0..LIMIT_FIRST {
            window.answered(true);
        }
        assert_eq!(window.limit, LIMIT_FIRST / 2);
        for _ in 0..100 {
            full(&mut window);
            for _ in 0..window.limit {
                window.answered(true);
            }
        }
        assert_eq!(window.limit, LIMIT_MIN);
    }
}
