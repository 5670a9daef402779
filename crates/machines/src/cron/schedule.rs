//! When: five fields in a time zone, or a fixed distance.
//!
//! Invariant: a time is a whole second; reading looks at no clock and at no file, the time zone is handed in.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Zoned};
use pumice_units::GoDuration;

/// Longest text of a schedule.
const TEXT_MAX: usize = 256;

/// The times of a CronJob.
#[derive(Clone, Debug)]
pub struct Schedule {
    times: Times,
    zone: TimeZone,
}

#[derive(Clone, Debug)]
enum Times {
    /// Boxed: hundreds of bytes of bits.
    Cron(Box<Cron>),
    /// So far apart, from the last one or from the creation on.
    Every(SignedDuration),
}

/// Why a schedule can't be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// The text is no schedule.
    #[error(
        "schedule {text:?} can't be read: {reason}; write five fields such as \"*/5 * * * *\", @hourly or @every 10m"
    )]
    Unparseable {
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Nobody knows the time zone.
    #[error("time zone {0:?} is unknown; write a name of the IANA database such as Europe/Berlin")]
    UnknownZone(String),
}

impl ScheduleError {
    /// Volcano's word for it.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unparseable { .. } => "UnParseableCronJobSchedule",
            Self::UnknownZone(_) => "InvalidTimeZone",
        }
    }
}

/// The time zone that a schedule is in: the CronJob's, else one before the fields (`TZ=Asia/Tokyo 0 6 * * *`).
pub fn zone_name<'a>(schedule: &'a str, time_zone: Option<&'a str>) -> Option<&'a str> {
    time_zone.or_else(|| split_zone(schedule).0)
}

fn split_zone(schedule: &str) -> (Option<&str>, &str) {
    let schedule = schedule.trim();
    let named = schedule.strip_prefix("CRON_TZ=").or_else(|| schedule.strip_prefix("TZ="));
    match named.map(|rest| rest.split_once(char::is_whitespace).unwrap_or((rest, ""))) {
        Some((zone, fields)) => (Some(zone), fields.trim()),
        None => (None, schedule),
    }
}

impl Schedule {
    /// Reads a schedule in a time zone.
    ///
    /// # Errors
    /// [`ScheduleError::Unparseable`].
    pub fn read(text: &str, zone: TimeZone) -> Result<Self, ScheduleError> {
        let unparseable = |reason: String| ScheduleError::Unparseable { text: text.chars().take(80).collect(), reason };
        if text.len() > TEXT_MAX {
            return Err(unparseable(format!("it is longer than {TEXT_MAX} bytes")));
        }
        let (_, fields) = split_zone(text);
        if let Some(distance) = fields.strip_prefix("@every ") {
            let distance: GoDuration = distance.trim().parse().map_err(|_| unparseable("no duration".to_owned()))?;
            let seconds = distance.as_millis() / 1000;
            if seconds < 1 {
                return Err(unparseable("less than a second".to_owned()));
            }
            return Ok(Self { times: Times::Every(SignedDuration::from_secs(seconds)), zone });
        }
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).sloppy_ranges(true);
        let cron = parser.build().parse(fields).map_err(|error| unparseable(error.to_string()))?;
        Ok(Self { times: Times::Cron(Box::new(cron)), zone })
    }

    /// Whether a minute may have several times.
    pub fn is_dense(&self) -> bool {
        matches!(self.times, Times::Every(distance) if distance.as_secs() < 60)
    }

    /// The first time after `now`. A distance is counted from `base`, the last time that was served or the creation.
    pub fn next(&self, base: Timestamp, now: Timestamp) -> Option<Timestamp> {
        match &self.times {
            Times::Cron(cron) => cron.find_next_occurrence(&self.zoned(now), false).ok().map(|next| next.timestamp()),
            Times::Every(distance) => along(base, *distance, passed(base, now, *distance).saturating_add(1).max(1)),
        }
    }

    /// The last time after `base`, up to `now`.
    pub fn newest(&self, base: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let newest = match &self.times {
            Times::Cron(cron) => floor(cron.find_previous_occurrence(&self.zoned(now), true).ok()?.timestamp()),
            Times::Every(distance) => along(base, *distance, passed(base, now, *distance))?,
        };
        (newest > base).then_some(newest)
    }

    /// How many times there are after `base` up to `until`, counted up to `bound`.
    pub fn count(&self, base: Timestamp, until: Timestamp, bound: usize) -> usize {
        let mut at = base;
        for count in 0..bound {
            match self.next(at, at) {
                Some(next) if next <= until => at = next,
                _ => return count,
            }
        }
        bound
    }

    /// A time as people of the zone write it, RFC 3339.
    pub fn in_time_zone(&self, at: Timestamp) -> String {
        let zoned = self.zoned(at);
        zoned.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
    }

    fn zoned(&self, at: Timestamp) -> Zoned {
        at.to_zoned(self.zone.clone())
    }
}

/// Whole distances from `base` to `now`.
fn passed(base: Timestamp, now: Timestamp, distance: SignedDuration) -> i64 {
    now.as_second().saturating_sub(floor(base).as_second()).div_euclid(distance.as_secs().max(1))
}

fn along(base: Timestamp, distance: SignedDuration, times: i64) -> Option<Timestamp> {
    let seconds = distance.as_secs().checked_mul(times)?.checked_add(floor(base).as_second())?;
    Timestamp::from_second(seconds).ok()
}

/// The start of the second that `at` is in, also before 1970.
fn floor(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second().saturating_sub(i64::from(at.subsec_nanosecond() < 0))).unwrap_or(at)
}
