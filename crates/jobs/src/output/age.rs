//! Spans of time as people read them in tables: `45s`, `5m30s`, `3h`, `2d4h`.
//!
//! Invariant: at most two units, never a sign. Called by `job` and `monitor`.

/// A span in whole seconds, shortened the way kubectl does. Negative spans (clocks that differ)
/// print as `0s`.
///
/// ```
/// assert_eq!(pumice_jobs::output::age::short(330), "5m30s");
/// ```
pub fn short(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    let seconds = seconds.max(0);
    match seconds {
        s if s < 2 * MINUTE => format!("{s}s"),
        s if s < 10 * MINUTE => pair(s, MINUTE, "m", 1, "s"),
        s if s < 3 * HOUR => format!("{}m", s / MINUTE),
        s if s < 8 * HOUR => pair(s, HOUR, "h", MINUTE, "m"),
        s if s < 2 * DAY => format!("{}h", s / HOUR),
        s if s < 8 * DAY => pair(s, DAY, "d", HOUR, "h"),
        s => format!("{}d", s / DAY),
    }
}

fn pair(seconds: i64, large: i64, large_name: &str, small: i64, small_name: &str) -> String {
    match (seconds % large) / small {
        0 => format!("{}{large_name}", seconds / large),
        rest => format!("{}{large_name}{rest}{small_name}", seconds / large),
    }
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn spans_read_like_kubectls() {
        for (seconds, text) in [
            (-5, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (330, "5m30s"),
            (600, "10m"),
            (3 * 3600 + 60, "3h1m"),
            (8 * 3600, "8h"),
            (49 * 3600, "2d1h"),
            (30 * 86400, "30d"),
        ] {
            assert_eq!(short(seconds), text, "{seconds}");
        }
    }
}
