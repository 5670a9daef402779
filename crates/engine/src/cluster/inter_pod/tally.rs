//! Counts of pods by domain.
//!
//! `present` counts what takes room now, those on their way out included; `future` what will be there when they are
//! gone and those that wait for their room have come. Kubernetes counts the first for affinity, and pods that are not
//! on their way out for spread.

use super::domains::NONE;

/// What a placement adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Change {
    pub(crate) present: i32,
    pub(crate) future: i32,
}

impl Change {
    pub(crate) fn times(self, times: i32) -> Self {
        Self { present: self.present * times, future: self.future * times }
    }

    pub(crate) fn is_none(self) -> bool {
        self.present == 0 && self.future == 0
    }
}

#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) present: Vec<u32>,
    pub(crate) future: Vec<u32>,
    /// Pods in any domain.
    pub(crate) present_total: u32,
    pub(crate) future_total: u32,
}

impl Tally {
    pub(crate) fn add(&mut self, domain: u32, change: Change) {
        if domain == NONE {
            return;
        }
        add(&mut self.present, domain, change.present);
        add(&mut self.future, domain, change.future);
        self.present_total = shifted(self.present_total, change.present);
        self.future_total = shifted(self.future_total, change.future);
    }
}

fn add(column: &mut Vec<u32>, domain: u32, change: i32) {
    let at = domain as usize;
    if column.len() <= at {
        column.resize(at + 1, 0);
    }
    column[at] = shifted(column[at], change);
}

pub(super) fn shifted(count: u32, change: i32) -> u32 {
    count.checked_add_signed(change).expect("counts follow the tasks' places")
}

/// How many domains have each count, and the least count.
#[derive(Debug, Default)]
pub(crate) struct Levels {
    domains_at: Vec<u32>,
    least: usize,
    pub(crate) domains: u32,
}

impl Levels {
    /// The least count; 0 where there is no domain.
    pub(crate) fn least(&self) -> u32 {
        u32::try_from(self.least).unwrap_or(u32::MAX)
    }

    pub(crate) fn enter(&mut self, count: u32) {
        let at = count as usize;
        if self.domains_at.len() <= at {
            self.domains_at.resize(at + 1, 0);
        }
        self.domains_at[at] += 1;
        self.least = if self.domains == 0 { at } else { self.least.min(at) };
        self.domains += 1;
    }

    pub(crate) fn leave(&mut self, count: u32) {
        self.domains_at[count as usize] -= 1;
        self.domains -= 1;
        if self.domains == 0 {
            self.least = 0;
        }
        while self.domains > 0 && self.domains_at[self.least] == 0 {
            self.least += 1;
        }
    }

    pub(crate) fn shift(&mut self, old: u32, new: u32) {
        self.enter(new);
        self.leave(old);
    }
}

crate::save::saved! {
    Change { present, future };
    Tally { present, future, present_total, future_total };
    Levels { domains_at, least, domains };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_level_follows_the_domains() {
        let mut levels = Levels::default();
        for count in [3, 1, 2] {
            levels.enter(count);
        }
        assert_eq!((levels.least(), levels.domains), (1, 3));
        levels.shift(1, 5);
        assert_eq!(levels.least(), 2);
        levels.leave(2);
        assert_eq!(levels.least(), 3);
        levels.shift(3, 0);
        assert_eq!(levels.least(), 0);
        levels.leave(0);
        levels.leave(5);
        assert_eq!((levels.least(), levels.domains), (0, 0));
    }
}
