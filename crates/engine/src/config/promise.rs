//! `configurations: - name: promise`: how long the part of a group's `minResources` is kept for it that no pod asks for yet.

use super::{Argument, Config};

pub(crate) const NAME: &str = "promise";
const TIMEOUT: &str = "timeout";
const SHIPPED_MS: i64 = 600_000;

/// Whether the value of an argument means something, and what it must be.
pub(crate) fn judge(name: &str, value: &Argument) -> Option<(bool, &'static str)> {
    (name == TIMEOUT).then(|| (value.as_millis().is_some(), "a duration such as 10m"))
}

impl Config {
    /// How long after its last new pod a group is promised what its sum has beyond its pods.
    pub(crate) fn promise_ms(&self) -> i64 {
        let arguments = self.configurations.get(NAME);
        arguments.and_then(|arguments| arguments.get(TIMEOUT)?.as_millis()).unwrap_or(SHIPPED_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_minutes_or_what_is_said() {
        let of = |value: &str| {
            let arguments = [(TIMEOUT.to_owned(), Argument::Text(value.to_owned()))].into();
            Config { configurations: [(NAME.to_owned(), arguments)].into(), ..Config::default() }.promise_ms()
        };
        assert_eq!(Config::default().promise_ms(), 600_000);
        assert_eq!((of("0s"), of("90s"), of("soon")), (0, 90_000, 600_000));
    }
}
