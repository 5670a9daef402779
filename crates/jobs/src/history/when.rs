//! Moments as people type them: `2h` or `7d` ago, a date, or a time.
//!
//! Pure; `now` is an argument. Called by `jobctl history` and by Python.

use jiff::{SignedDuration, Timestamp};
use pumice_units::GoDuration;

/// A text that is no moment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no time; try 2h, 7d, 2026-01-31 or 2026-01-31T08:00:00Z")]
pub struct NoMoment(String);

/// Reads a moment: so long ago, the beginning of a day (UTC), or a time.
///
/// # Errors
/// When it is none of these, or too long ago to be one.
pub fn moment(text: &str, now: Timestamp) -> Result<Timestamp, NoMoment> {
    let wrong = || NoMoment(text.chars().take(64).collect());
    let ago = match text.strip_suffix('d').map(str::parse::<i64>) {
        Some(Ok(days)) => days.checked_mul(24 * 3_600_000),
        _ => text.parse::<GoDuration>().ok().map(|duration| duration.as_millis()),
    };
    match ago {
        Some(ago) if ago < 0 => Err(wrong()),
        Some(ago) => now.checked_sub(SignedDuration::from_millis(ago)).map_err(|_| wrong()),
        None => text.parse().or_else(|_| format!("{text}T00:00:00Z").parse()).map_err(|_| wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments() {
        let now: Timestamp = "2026-02-03T12:00:00Z".parse().unwrap();
        for (text, expected) in [
            ("2h", "2026-02-03T10:00:00Z"),
            ("1h30m", "2026-02-03T10:30:00Z"),
            ("7d", "2026-01-27T12:00:00Z"),
            ("0d", "2026-02-03T12:00:00Z"),
            ("2026-01-31", "2026-01-31T00:00:00Z"),
            ("2026-01-31T08:00:00+02:00", "2026-01-31T06:00:00Z"),
        ] {
            assert_eq!(moment(text, now).map(|time| time.to_string()), Ok(expected.to_owned()), "{text}");
        }
        for wrong in ["", "yesterday", "-1d", "-2h", "99999999999999d", "2026-02-30", "d"] {
            assert!(moment(wrong, now).unwrap_err().to_string().contains("try 2h"), "{wrong}");
        }
    }
}
