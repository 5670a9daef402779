//! Spans of time as kubectl shows them: at most two units, coarser the longer they are.

use jiff::{SignedDuration, Timestamp};

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// The time since `then`, or `<unknown>`.
pub fn age(then: Option<Timestamp>, now: Timestamp) -> String {
    then.map_or_else(|| "<unknown>".to_owned(), |then| human_duration(now.duration_since(then)))
}

/// A span like `5m30s` or `3d`; up to a second in the future counts as now, more is `<invalid>`.
pub fn human_duration(span: SignedDuration) -> String {
    let seconds = span.as_secs();
    let (major, major_name, minor, minor_name) = match seconds {
        ..-1 => return "<invalid>".to_owned(),
        -1 => return "0s".to_owned(),
        0..120 => return format!("{seconds}s"),
        120..600 => (seconds / MINUTE, "m", seconds % MINUTE, "s"),
        600..10_800 => (seconds / MINUTE, "m", 0, ""),
        10_800..28_800 => (seconds / HOUR, "h", seconds / MINUTE % 60, "m"),
        28_800..172_800 => (seconds / HOUR, "h", 0, ""),
        172_800..691_200 => (seconds / DAY, "d", seconds / HOUR % 24, "h"),
        691_200..63_072_000 => (seconds / DAY, "d", 0, ""),
        63_072_000..252_288_000 => (seconds / YEAR, "y", seconds / DAY % 365, "d"),
        _ => (seconds / YEAR, "y", 0, ""),
    };
    match minor {
        0 => format!("{major}{major_name}"),
        minor => format!("{major}{major_name}{minor}{minor_name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_shown_as_kubectl_does() {
        for (seconds, text) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (330, "5m30s"),
            (599, "9m59s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (11_000, "3h3m"),
            (28_799, "7h59m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (172_800, "2d"),
            (176_400, "2d1h"),
            (691_199, "7d23h"),
            (691_200, "8d"),
            (63_071_999, "729d"),
            (63_072_000, "2y"),
            (63_158_400, "2y1d"),
            (252_287_999, "7y364d"),
            (252_288_000, "8y"),
            (i64::MAX, "292471208677y"),
        ] {
            assert_eq!(human_duration(SignedDuration::from_secs(seconds)), text, "{seconds}");
        }
        assert_eq!(human_duration(SignedDuration::from_millis(-1_999)), "0s");
        assert_eq!(age(None, Timestamp::UNIX_EPOCH), "<unknown>");
    }
}
