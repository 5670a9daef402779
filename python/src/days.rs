//! `days`: the days of a calendar, as `jobctl --days` knows them.

use pumice_jobs::shards::{Calendar, Days};
use pyo3::prelude::*;

use crate::errors::misuse;

/// The days from `first` to `last`, both included, that count by a calendar: `all`, `weekdays` or `XNYS`.
#[pyfunction]
#[pyo3(signature = (first, last, calendar="weekdays"))]
pub fn days(py: Python<'_>, first: &str, last: &str, calendar: &str) -> PyResult<Vec<String>> {
    let refused = |error: &dyn std::fmt::Display| misuse(py, &error.to_string());
    let (first, last) = Days::parse_range(&format!("{first}:{last}")).map_err(|error| refused(&error))?;
    let calendar = Calendar::named(calendar)
        .ok_or_else(|| misuse(py, &format!("there is no calendar {calendar:?}; there are all, weekdays and XNYS")))?;
    let days = Days::new(first, last, calendar, None).map_err(|error| refused(&error))?;
    Ok((0..days.len()).filter_map(|index| days.key(index)).collect())
}
