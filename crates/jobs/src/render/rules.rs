//! What happens when something happens: more memory, the signal before the end, the end after too long, other jobs first.
//!
//! Each is a text of a flag that becomes an annotation or a number. The server checks rules again; here the flag is named.

use std::time::Duration;

use super::{RenderError, amounts};
use crate::job::ON_OOM_OFF;
use crate::names;

/// Longest grace between the signal and the kill, in seconds: a day.
const GRACE_SECONDS_MAX: u64 = 86_400;
/// The most tries of `--on-oom`, and the largest factor.
const OOM_MAX: f64 = 100.0;
/// The most jobs that one may wait for.
const AFTER_MAX: usize = 100;

/// The annotation that `--on-oom factor=1.5,max=64Gi,tries=3` or `--on-oom off` stands for.
pub(super) fn on_oom(text: &str) -> Result<String, RenderError> {
    const FLAG: &str = "--on-oom";
    let bad = |problem: &str| RenderError::text(FLAG, text, problem);
    if text == ON_OOM_OFF {
        return Ok(ON_OOM_OFF.to_owned());
    }
    let mut found: [Option<&str>; 4] = [None; 4];
    for part in text.split(',') {
        let (word, value) = part.split_once('=').unwrap_or((part, ""));
        let place = ["factor", "step", "max", "tries"].iter().position(|known| *known == word && !value.is_empty());
        let place = place.ok_or_else(|| bad("is no rule; write for example factor=1.5,max=64Gi,tries=3, or off"))?;
        if found[place].replace(value).is_some() {
            return Err(bad(&format!("says {word} twice")));
        }
    }
    let [factor, step, max, tries] = found;
    if factor.is_some() && step.is_some() {
        return Err(bad("has factor and step; leave one out"));
    }
    if factor.is_some_and(|text| !text.parse::<f64>().is_ok_and(|factor| factor > 1.0 && factor <= OOM_MAX)) {
        return Err(bad("needs a factor above 1 and up to 100, such as 1.5"));
    }
    if tries.is_some_and(|text| !text.parse::<u8>().is_ok_and(|tries| (1.0..=OOM_MAX).contains(&f64::from(tries)))) {
        return Err(bad("needs tries from 1 to 100"));
    }
    for amount in [step, max].into_iter().flatten() {
        amounts::memory(FLAG, amount)?;
    }
    let words = [("factor", factor), ("step", step), ("ceiling", max), ("tries", tries)];
    let words = words.into_iter().filter_map(|(word, value)| Some(format!("{word}={}", value?)));
    Ok(words.collect::<Vec<_>>().join(","))
}

/// The time that `--deadline` names, as the scheduler reads it.
pub(super) fn deadline(text: &str) -> Result<String, RenderError> {
    let problem = "is no time; write for example 2026-01-31T18:00:00Z or 2026-01-31T18:00:00+08:00";
    let time = text.trim().parse::<jiff::Timestamp>().map_err(|_| RenderError::text("--deadline", text, problem))?;
    Ok(time.to_string())
}

/// The seconds that `--signal TERM@SECONDS` leaves a pod between the signal and the kill.
pub(super) fn grace_seconds(text: &str) -> Result<i64, RenderError> {
    let bad = |problem: &str| RenderError::text("--signal", text, problem);
    let (signal, seconds) = text.split_once('@').ok_or_else(|| bad("names no time; write for example TERM@120"))?;
    if !matches!(signal, "TERM" | "SIGTERM") {
        return Err(bad("asks for a signal that is never sent: pods are ended with TERM; write for example TERM@120"));
    }
    let seconds = seconds.strip_suffix('s').unwrap_or(seconds).parse::<u64>().ok();
    let seconds = seconds.filter(|seconds| (1..=GRACE_SECONDS_MAX).contains(seconds));
    let seconds = seconds.ok_or_else(|| bad("needs 1 to 86400 seconds, as in TERM@120"))?;
    i64::try_from(seconds).map_err(|_| bad("is too long"))
}

/// The whole seconds after which a pod is ended, rounded up.
pub(super) fn deadline_seconds(timeout: Duration) -> Result<i64, RenderError> {
    let seconds = timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0);
    let fits = i32::try_from(seconds).ok().filter(|seconds| *seconds > 0);
    fits.map(i64::from)
        .ok_or_else(|| RenderError::text("--timeout", &format!("{seconds}s"), "is not within 1 s and 68 years"))
}

/// The annotation for all of `--after ok:JOB,any:JOB`.
pub(super) fn after(texts: &[String]) -> Result<Option<String>, RenderError> {
    let mut rules: Vec<String> = Vec::new();
    for part in texts.iter().flat_map(|text| text.split(',')) {
        let bad = |problem: &str| RenderError::text("--after", part, problem);
        let (when, job) = part.split_once(':').unwrap_or(("", part));
        if !matches!(when, "ok" | "any" | "failed") {
            return Err(bad("does not say when; write ok:JOB, any:JOB or failed:JOB"));
        }
        let job = job.strip_prefix("job/").unwrap_or(job);
        names::check("--after job", job, 63)?;
        let rule = format!("{when}:{job}");
        if !rules.contains(&rule) {
            rules.push(rule);
        }
        if rules.len() > AFTER_MAX {
            return Err(bad("is one too many: a job waits for at most 100"));
        }
    }
    Ok(if rules.is_empty() { None } else { Some(rules.join(",")) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told<T: std::fmt::Debug>(result: &Result<T, RenderError>) -> String {
        match result {
            Ok(value) => format!("{value:?}"),
            Err(error) => format!("error: {error}"),
        }
    }

    #[test]
    fn texts_and_what_becomes_of_them() {
        let mut table = String::new();
        for text in [
            "factor=1.5,max=64Gi",
            "tries=3,step=2Gi",
            "max=1Gi",
            "off",
            "",
            "factor",
            "factor=",
            "factor=1",
            "factor=NaN",
            "factor=2,step=1Gi",
            "max=lots",
            "tries=0",
            "tries=101",
            "factor=2,factor=3",
            "half=1",
        ] {
            table.push_str(&format!("--on-oom {text:?} -> {}\n", told(&on_oom(text))));
        }
        for text in ["TERM@120", "SIGTERM@90s", "TERM", "USR1@60", "TERM@0", "TERM@86401", "TERM@", "TERM@2m", "@5"] {
            table.push_str(&format!("--signal {text:?} -> {}\n", told(&grace_seconds(text))));
        }
        for millis in [0, 1, 1000, 90_500, u64::MAX] {
            let timeout = Duration::from_millis(millis);
            table.push_str(&format!("--timeout {millis}ms -> {}\n", told(&deadline_seconds(timeout))));
        }
        for text in ["ok:a", "ok:a,any:b,failed:job/c,ok:a", "a", "when:a", "ok:", "ok:A_B", "", "ok:a,,any:b"] {
            table.push_str(&format!("--after {text:?} -> {}\n", told(&after(&[text.to_owned()]))));
        }
        for text in ["2026-01-31T18:00:00Z", "2026-01-31T18:00:00+08:00", "tomorrow", "2026-01-31", ""] {
            table.push_str(&format!("--deadline {text:?} -> {}\n", told(&deadline(text))));
        }
        insta::assert_snapshot!(table);
    }
}
