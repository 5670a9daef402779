//! How many pods of a job must stay, or may go, as annotations say it.

use pumice_api::names::{JDB_MAX_UNAVAILABLE, JDB_MIN_AVAILABLE};

/// What is wrong with the budget in these annotations, in Volcano's words.
pub(crate) fn refusal<'a>(annotation: impl Fn(&str) -> Option<&'a str>) -> Option<String> {
    let keys = [JDB_MIN_AVAILABLE, JDB_MAX_UNAVAILABLE];
    let mut given = 0;
    for key in keys {
        let Some(value) = annotation(key) else { continue };
        given += 1;
        if let Some(reason) = refused(key, value) {
            return Some(reason);
        }
    }
    if given < keys.len() {
        return None;
    }
    Some(format!("not allow configure multiple annotations <[{}]> at same time", keys.join(" ")))
}

/// A number of pods, or a share of them in percent.
fn refused(key: &str, value: &str) -> Option<String> {
    let (number, percent) = match value.strip_suffix('%') {
        Some(number) => (number, true),
        None => (value, false),
    };
    match number.parse::<i32>() {
        Err(_) => Some(format!("invalid value strconv.Atoi: parsing {number:?}: invalid syntax for {key}")),
        Ok(number) if percent && !(1..=99).contains(&number) => {
            Some(format!("invalid value <{value:?}> for {key}, it must be a valid percentage which between 1% ~ 99%"))
        }
        Ok(number) if !percent && number <= 0 => {
            Some(format!("invalid value <{value:?}> for {key}, it must be a positive integer"))
        }
        Ok(_) => None,
    }
}
