//! `configurations: - name: reservation`: room that is kept for the groups that are next. On where nothing is said of it.

use pumice_units::GoDuration;

use super::{Argument, Config};

pub(super) const NAME: &str = "reservation";
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
pub(super) fn judge(name: &str, value: &Argument) -> Option<(bool, &'static str)> {
    let is_time = |value: &Argument| matches!(value, Argument::Text(text) if time_ms(text).is_some());
    match name {
        ENABLE => Some((matches!(value, Argument::Bool(_)), "true or false")),
        AFTER | AGE_BOUND => Some((is_time(value), "a duration such as 10m")),
        MOST => Some((matches!(value, Argument::Int(most) if *most >= 0), "a number of reservations such as 8")),
        _ => None,
    }
}

/// A time of zero or more.
fn time_ms(text: &str) -> Option<i64> {
    text.parse::<GoDuration>().ok().map(GoDuration::as_millis).filter(|time| *time >= 0)
}

impl Config {
    /// How room is reserved; nothing where it is not.
    pub(crate) fn reserving(&self) -> Option<Reserving> {
        let shipped = Reserving::default();
        let Some(arguments) = self.configurations.get(NAME) else { return Some(shipped) };
        let time = |name: &str, default: i64| match arguments.get(name) {
            Some(Argument::Text(text)) => time_ms(text).unwrap_or(default),
            _ => default,
        };
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
