//! The days on which the New York Stock Exchange trades, by its rules, from 1970 to 2100.
//!
//! Invariant: pure arithmetic, no table but the closures nobody could foresee. Days with a short session count as trading
//! days. A closure decided after this release is not known: see `docs/sharding.md`. Called by `calendar`.

use jiff::civil::{Date, Weekday, date};

/// The first and the last year whose rules are known.
pub const YEARS: std::ops::RangeInclusive<i16> = 1970..=2100;

/// Closures by event: elections, funerals, a blackout, storms and the attacks of 2001.
const CLOSURES: &[Date] = &[
    date(1972, 11, 7),
    date(1972, 12, 28),
    date(1973, 1, 25),
    date(1976, 11, 2),
    date(1977, 7, 14),
    date(1980, 11, 4),
    date(1985, 9, 27),
    date(1994, 4, 27),
    date(2001, 9, 11),
    date(2001, 9, 12),
    date(2001, 9, 13),
    date(2001, 9, 14),
    date(2004, 6, 11),
    date(2007, 1, 2),
    date(2012, 10, 29),
    date(2012, 10, 30),
    date(2018, 12, 5),
    date(2025, 1, 9),
];

/// Whether the exchange trades on this day; a day outside of [`YEARS`] is judged by today's rules.
pub fn is_open(day: Date) -> bool {
    !matches!(day.weekday(), Weekday::Saturday | Weekday::Sunday) && !is_holiday(day) && !CLOSURES.contains(&day)
}

/// Of a working day: whether a holiday is kept on it.
fn is_holiday(day: Date) -> bool {
    let year = day.year();
    let nth = |week: i8, weekday: Weekday| day.weekday() == weekday && (day.day() - 1) / 7 == week - 1;
    match day.month() {
        1 => falls_on(day, 1, false) || (year >= 1998 && nth(3, Weekday::Monday)),
        2 => {
            if year <= 1970 {
                falls_on(day, 22, true)
            } else {
                nth(3, Weekday::Monday)
            }
        }
        // In 1970 it was kept by its date, a Saturday, and Friday was a trading day.
        5 => year > 1970 && day.weekday() == Weekday::Monday && day.day() > 24,
        6 => year >= 2022 && falls_on(day, 19, true),
        7 => falls_on(day, 4, true),
        9 => nth(1, Weekday::Monday),
        11 => nth(4, Weekday::Thursday),
        12 => falls_on(day, 25, true),
        3 | 4 => (day.month(), day.day()) == good_friday(year),
        _ => false,
    }
}

/// Whether the holiday of a date of this month is kept on this day: on a Sunday it moves to Monday, on a Saturday to Friday.
/// New Year's Day on a Saturday is not kept, as Friday is the end of the year.
fn falls_on(day: Date, holiday: i8, friday_too: bool) -> bool {
    match day.weekday() {
        Weekday::Monday => day.day() == holiday || day.day() == holiday + 1,
        Weekday::Friday => day.day() == holiday || (friday_too && day.day() + 1 == holiday),
        _ => day.day() == holiday,
    }
}

/// Month and day of the Friday before Easter, by the Gregorian computus (Meeus, Jones, Butcher).
fn good_friday(year: i16) -> (i8, i8) {
    let year = i32::from(year);
    let (golden, century, of_century) = (year % 19, year / 100, year % 100);
    let correction = (century - (century + 8) / 25 + 1) / 3;
    let epact = (19 * golden + century - century / 4 - correction + 15) % 30;
    let weekday = (32 + 2 * (century % 4) + 2 * (of_century / 4) - epact - of_century % 4) % 7;
    let late = (golden + 11 * epact + 22 * weekday) / 451;
    // Easter as a day of March, which may be beyond 31; two days before it is Good Friday.
    let day = (epact + weekday - 7 * late + 22 - 2) as i8;
    if day > 31 { (4, day - 31) } else { (3, day) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shards::days::each_day;

    /// Trading days of a year; also checked by hand, day by day, against two independent Python packages for 1970 to 2100.
    #[test]
    fn trading_days_of_each_year() {
        let count = |year: i16| each_day(date(year, 1, 1), date(year, 12, 31)).filter(|day| is_open(*day)).count();
        let counts = |first: i16| (first..first + 10).map(count).collect::<Vec<_>>();
        assert_eq!(counts(1970), [254, 253, 251, 252, 253, 253, 253, 252, 252, 253]);
        assert_eq!(counts(1980), [253, 253, 253, 253, 253, 252, 253, 253, 253, 252]);
        assert_eq!(counts(1990), [253, 253, 254, 253, 252, 252, 254, 253, 252, 252]);
        assert_eq!(counts(2000), [252, 248, 252, 252, 252, 252, 251, 251, 253, 252]);
        assert_eq!(counts(2010), [252, 252, 250, 252, 252, 252, 252, 251, 251, 252]);
        assert_eq!(counts(2020), [253, 252, 251, 250, 252, 250, 251, 251, 251, 251]);
        assert_eq!((2030..=2100).map(count).sum::<usize>(), 17824);
    }

    #[test]
    fn days_that_rules_alone_get_wrong() {
        for (day, open, why) in [
            (date(1970, 2, 23), false, "Washington's birthday by its date, a Sunday"),
            (date(1970, 5, 29), true, "Memorial Day by its date, a Saturday: the Friday was a trading day"),
            (date(1971, 12, 31), true, "New Year's Day on a Saturday is not kept"),
            (date(1997, 1, 20), true, "before Martin Luther King's day was kept"),
            (date(1998, 1, 19), false, "its first"),
            (date(2001, 9, 14), false, "the attacks"),
            (date(2001, 9, 17), true, "the opening after them"),
            (date(2010, 12, 31), true, "New Year's Day on a Saturday is not kept"),
            (date(2012, 10, 30), false, "the second day of a hurricane"),
            (date(2018, 12, 5), false, "a president's funeral"),
            (date(2021, 6, 18), true, "before Juneteenth was kept"),
            (date(2021, 12, 24), false, "Christmas on a Saturday is kept on Friday"),
            (date(2022, 6, 20), false, "Juneteenth on a Sunday is kept on Monday"),
            (date(2024, 3, 29), false, "Good Friday in March"),
            (date(2025, 1, 9), false, "a president's funeral"),
            (date(2038, 4, 23), false, "the latest Good Friday there is"),
        ] {
            assert_eq!(is_open(day), open, "{day}: {why}");
        }
    }
}
