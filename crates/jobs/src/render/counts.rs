//! How many pods a Job has, how many must run together, and how many must succeed.

use super::RenderError;

/// The counts of a rendered Job, all from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    /// Pods that don't need each other, each of which is to succeed.
    pub one_by_one: bool,
    pub replicas: i32,
    /// Pods that must run together.
    pub min_available: i32,
    /// Successes that complete the job; the controller's own rule if `None`.
    pub min_success: Option<i32>,
    /// The most pods at a time.
    pub max_parallel: Option<i32>,
}

impl Counts {
    /// The job plugins: pods that need each other find each other by name. The names of very many pods have no room.
    pub fn plugins(&self) -> impl Iterator<Item = &'static str> + use<> {
        ["env"].into_iter().chain((!self.one_by_one).then_some("svc"))
    }
}

/// A number within bounds.
pub(super) fn in_range(flag: &'static str, value: u32, min: u32, max: u32) -> Result<i32, RenderError> {
    match i32::try_from(value) {
        Ok(number) if (min..=max).contains(&value) => Ok(number),
        _ => Err(RenderError::Range { flag, value, min, max }),
    }
}

/// The count that a number or a percentage of `replicas` stands for; what is no whole pod is rounded up.
pub(super) fn min_success(text: &str, replicas: i32) -> Result<i32, RenderError> {
    let bad = |problem: String| RenderError::text("--min-success", text, problem);
    let count = match text.strip_suffix('%') {
        None => text.parse::<i64>().ok(),
        Some(percent) => {
            thousandths(percent).filter(|n| *n <= 100_000).map(|n| (i64::from(replicas) * n + 99_999) / 100_000)
        }
    };
    let count =
        count.ok_or_else(|| bad("is no number and no percentage; write for example 950 or 99.5%".to_owned()))?;
    i32::try_from(count)
        .ok()
        .filter(|count| (1..=replicas).contains(count))
        .ok_or_else(|| bad(format!("is {count} of {replicas} pods; it may be 1 to {replicas}")))
}

/// A decimal with at most three places, in thousandths.
fn thousandths(text: &str) -> Option<i64> {
    let (whole, places) = text.split_once('.').unwrap_or((text, "0"));
    let digits =
        |text: &str, max: usize| (1..=max).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    (digits(whole, 3) && digits(places, 3)).then_some(())?;
    let scale = [100, 10, 1].get(places.len() - 1)?;
    Some(whole.parse::<i64>().ok()? * 1000 + places.parse::<i64>().ok()? * scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_become_counts() {
        for (text, replicas, wanted) in [
            ("3", 10, 3),
            ("100%", 7, 7),
            ("50%", 7, 4),
            ("99%", 10_000, 9_900),
            ("99.5%", 1_000, 995),
            ("99.999%", 1_000_000, 999_990),
            ("0.001%", 10, 1),
        ] {
            assert_eq!(min_success(text, replicas), Ok(wanted), "{text} of {replicas}");
        }
    }

    #[test]
    fn what_is_no_count_is_named() {
        let texts = ["", "0", "11", "-1", "0%", "101%", "1e2%", "%", "5.%", "1.2345%", "a lot", "99999999999"];
        let errors = texts.map(|text| min_success(text, 10).unwrap_err().to_string());
        insta::assert_snapshot!(errors.join("\n"));
    }

    proptest::proptest! {
        #[test]
        fn a_percentage_is_the_least_count_that_reaches_it(percent in 1_i64..=100, replicas in 1_i32..=1_000_000) {
            let count = i64::from(min_success(&format!("{percent}%"), replicas).unwrap_or_default());
            let total = i64::from(replicas) * percent;
            proptest::prop_assert!(count * 100 >= total && (count - 1) * 100 < total);
        }
    }
}
