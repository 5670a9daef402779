//! `configurations: - name: reservation`: room that is kept for the groups that are next. On where nothing is said of it.

use super::{Argument, Config};

pub(crate) const NAME: &str = "reservation";
const ENABLE: &str = "enable";
const AFTER: &str = "after";
const AGE_BOUND: &str = "ageBound";
const MOST: &str = "max";

/// How room is reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reserving {
    /// How long a group is next before it gets a reservation.
    pub(crate) after_ms: i64,
    /// How old a reservation is when it turns hard.
    pub(crate) age_bound_ms: i64,
    /// Reservations at a time; one in a queue.
    pub(crate) most: usize,
}

impl Default for Reserving {
    fn default() -> Self {
        Self { after_ms: 1_000, age_bound_ms: 600_000, most: 8 }
    }
}

/// Whether the value of an argument means something, and what it must be.
pub(crate) fn judge(name: &str, value: &Argument) -> Option<(bool, &'static str)> {
    match name {
        ENABLE => Some((matches!(value, Argument::Bool(_)), "true or false")),
        AFTER | AGE_BOUND => Some((value.as_millis().is_some(), "a duration such as 10m")),
        MOST => Some((matches!(value, Argument::Int(most) if *most >= 0), "a number of reservations such as 8")),
        _ => None,
    }
}

impl Config {
    /// How room is reserved; nothing where it is not.
    pub(crate) fn reserving(&self) -> Option<Reserving> {
        let shipped = Reserving::default();
        let Some(arguments) = self.configurations.get(NAME) else { return Some(shipped) };
        let time = |name: &str, default: i64| arguments.get(name).and_then(Argument::as_millis).unwrap_or(default);
        let reserving = Reserving {
            after_ms: time(AFTER, shipped.after_ms),
            age_bound_ms: time(AGE_BOUND, shipped.age_bound_ms),
            most: usize::try_from(self.action_int(NAME, MOST, shipped.most as i64)).unwrap_or(0),
        };
        (self.action_bool(NAME, ENABLE, true) && reserving.most > 0).then_some(reserving)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(arguments: &[(&str, Argument)]) -> Option<Reserving> {
        let arguments = arguments.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        Config { configurations: [(NAME.to_owned(), arguments)].into(), ..Config::default() }.reserving()
    }

    #[test]
    fn it_is_on_until_it_is_turned_off() {
        let shipped = Some(Reserving::default());
        assert_eq!(Config::default().reserving(), shipped);
        assert_eq!(of(&[]), shipped);
        assert_eq!(of(&[(ENABLE, Argument::Bool(false))]), None);
        assert_eq!(of(&[(MOST, Argument::Int(0))]), None);
        let times = [(AFTER, Argument::Text("0s".into())), (AGE_BOUND, Argument::Text("1h".into()))];
        assert_eq!(of(&times), Some(Reserving { after_ms: 0, age_bound_ms: 3_600_000, most: 8 }));
        assert_eq!(of(&[(AGE_BOUND, Argument::Text("soon".into()))]), shipped, "a file that says so is refused");
    }
}
