//! Steps from one format of tables to the next.

/// The format that these steps lead to: each leads from one to the next, and the first makes the tables.
pub fn last_format(steps: &[&str]) -> i64 {
    i64::try_from(steps.len()).unwrap_or(i64::MAX)
}

/// The statements that lead on from format `found`, in order.
pub fn missing_statements<'s>(steps: &[&'s str], found: i64) -> impl Iterator<Item = &'s str> {
    let missing = steps.iter().copied().skip(usize::try_from(found).unwrap_or_default());
    missing.flat_map(|step| step.split(';')).filter(|sql| !sql.trim().is_empty())
}
