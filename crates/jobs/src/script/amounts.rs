//! Amounts as Slurm writes them: memory, times, counts of GPUs.
//!
//! Pure; called for `#SBATCH` lines and for `--mem` of `jobctl`. What is wrong is the rest of a sentence.

/// Longest time that is a limit; a longer one is none.
const SECONDS_MAX: u64 = i32::MAX as u64;

/// Slurm's memory in MiB: a number of MiB, or with K, M, G or T.
pub fn mebibytes(text: &str) -> Result<u64, &'static str> {
    const WRONG: &str = "is no amount of memory such as 4000 (MiB) or 4G";
    let (digits, unit) = text.split_at(text.trim_end_matches(|c: char| !c.is_ascii_digit()).len());
    let number = digits.parse::<u64>().map_err(|_| WRONG)?;
    let (times, parts) = match unit.to_ascii_uppercase().as_str() {
        "K" | "KB" | "KI" => (1, 1024),
        "" | "M" | "MB" | "MI" => (1, 1),
        "G" | "GB" | "GI" => (1 << 10, 1),
        "T" | "TB" | "TI" => (1 << 20, 1),
        _ => return Err(WRONG),
    };
    match number.checked_mul(times).map(|mebibytes| mebibytes.div_ceil(parts)) {
        Some(0) => Err("means all memory of a node, which can't be asked for; say how much the job needs"),
        Some(mebibytes) => Ok(mebibytes),
        None => Err(WRONG),
    }
}

/// Slurm's time limit in seconds; `None` for no limit.
pub(super) fn seconds(text: &str) -> Result<Option<u64>, &'static str> {
    const WRONG: &str = "is no time such as 90 (minutes), 1:30:00 or 2-12:00";
    if matches!(text.to_ascii_uppercase().as_str(), "UNLIMITED" | "INFINITE") {
        return Ok(None);
    }
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (Some(days), rest),
        None => (None, text),
    };
    let number = |text: &str| text.parse::<u32>().map(u64::from).map_err(|_| WRONG);
    let parts = rest.split(':').map(number).collect::<Result<Vec<_>, _>>()?;
    let (hours, minutes, seconds) = match (days, parts.as_slice()) {
        (None, [minutes]) => (0, *minutes, 0),
        (None, [minutes, seconds]) => (0, *minutes, *seconds),
        (Some(_), [hours]) => (*hours, 0, 0),
        (Some(_), [hours, minutes]) => (*hours, *minutes, 0),
        (_, [hours, minutes, seconds]) => (*hours, *minutes, *seconds),
        _ => return Err(WRONG),
    };
    let days = days.map_or(Ok(0), number)?;
    let seconds = ((days * 24 + hours) * 60 + minutes) * 60 + seconds;
    Ok((1..=SECONDS_MAX).contains(&seconds).then_some(seconds))
}

/// A number from 1.
pub(super) fn count(text: &str) -> Result<u64, &'static str> {
    const WRONG: &str = "is no whole number from 1";
    text.parse::<u32>().ok().filter(|count| *count > 0).map(u64::from).ok_or(WRONG)
}

/// The least number of nodes of `4`, `2-4` or `2,4`.
pub(super) fn nodes(text: &str) -> Result<u64, &'static str> {
    const WRONG: &str = "is no number of nodes such as 1 or 2-4";
    let least = text.split(['-', ',', ':']).next().unwrap_or_default();
    count(least).map_err(|_| WRONG)
}

/// GPUs, and whether some model of them is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gpus {
    pub count: u64,
    /// The model, if one is named.
    pub model: Option<String>,
}

/// The GPUs of `2`, `a100:2` or `a100:1,v100:1`.
pub(super) fn gpus(text: &str) -> Result<Gpus, &'static str> {
    const WRONG: &str = "is no number of GPUs such as 2 or a100:2";
    let mut all = Gpus { count: 0, model: None };
    for part in text.split(',') {
        let (model, number) = match part.rsplit_once(':') {
            Some((model, number)) => (Some(model), number),
            None if part.starts_with(|c: char| c.is_ascii_digit()) => (None, part),
            // A model alone is one of it.
            None => (Some(part), "1"),
        };
        let number = number.parse::<u32>().map_err(|_| WRONG)?;
        all.count += u64::from(number);
        if let Some(model) = model {
            if model.is_empty() {
                return Err(WRONG);
            }
            all.model.get_or_insert_with(|| model.to_owned());
        }
    }
    Ok(all)
}

/// The GPUs of `--gres=gpu:a100:2,shard:1`, and the first that is no GPU.
pub(super) fn generic(text: &str) -> Result<(Option<Gpus>, Option<&str>), &'static str> {
    let (mut all, mut other): (Option<Gpus>, _) = (None, None);
    if text.eq_ignore_ascii_case("none") {
        return Ok((all, other));
    }
    for part in text.split(',') {
        // `(S:0-1)` names sockets.
        let part = part.split_once('(').map_or(part, |(front, _)| front);
        let part = part.strip_prefix("gres/").or_else(|| part.strip_prefix("gres:")).unwrap_or(part);
        let (kind, rest) = part.split_once([':', '=']).unwrap_or((part, "1"));
        if kind != "gpu" {
            other.get_or_insert(part);
            continue;
        }
        let found = gpus(rest)?;
        let sum = all.get_or_insert(Gpus { count: 0, model: None });
        sum.count += found.count;
        sum.model = sum.model.take().or(found.model);
    }
    Ok((all, other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_as_slurm_writes_them() {
        for (text, wanted) in [
            ("4000", Ok(4000)),
            ("4G", Ok(4096)),
            ("64Gb", Ok(65536)),
            ("4Gi", Ok(4096)),
            ("1500K", Ok(2)),
            ("2t", Ok(2 << 20)),
            ("1.5G", Err("is no")),
            ("0", Err("means all memory")),
            ("", Err("is no")),
            ("99999999999999T", Err("is no")),
        ] {
            let found = mebibytes(text);
            assert_eq!(found.is_ok(), wanted.is_ok(), "{text}: {found:?}");
            assert_eq!(found.ok(), wanted.ok(), "{text}");
        }
        for (text, wanted) in [
            ("90", Some(Some(5400))),
            ("10:30", Some(Some(630))),
            ("1-12", Some(Some(129_600))),
            ("1-12:30:00", Some(Some(131_400))),
            ("0", Some(None)),
            ("00:00:00", Some(None)),
            ("UNLIMITED", Some(None)),
            ("99999-00:00:00", Some(None)),
            ("soon", None),
            ("2-", None),
            ("1:2:3:4", None),
        ] {
            assert_eq!(seconds(text).ok(), wanted, "{text}");
        }
        let gpu = |count, model: Option<&str>| Gpus { count, model: model.map(str::to_owned) };
        for (text, wanted) in [
            ("2", Some(gpu(2, None))),
            ("0", Some(gpu(0, None))),
            ("a100:2", Some(gpu(2, Some("a100")))),
            ("a100:1,v100:2", Some(gpu(3, Some("a100")))),
            ("tesla", Some(gpu(1, Some("tesla")))),
            (":2", None),
            ("a100:x", None),
            ("", None),
        ] {
            assert_eq!(gpus(text).ok().filter(|found| found.model.as_deref() != Some("")), wanted, "{text}");
        }
        for (text, wanted) in [
            ("gpu", Some((Some(gpu(1, None)), None))),
            ("gpu:2", Some((Some(gpu(2, None)), None))),
            ("gpu:a100:2(S:0-1)", Some((Some(gpu(2, Some("a100"))), None))),
            ("gpu:v100:1,tmp:10G", Some((Some(gpu(1, Some("v100"))), Some("tmp:10G")))),
            ("gres/gpu:2", Some((Some(gpu(2, None)), None))),
            ("none", Some((None, None))),
            ("license:1", Some((None, Some("license:1")))),
            ("gpu:", None),
        ] {
            assert_eq!(generic(text).ok(), wanted, "{text}");
        }
        assert_eq!((nodes("4"), nodes("2-4"), nodes("0").is_err()), (Ok(4), Ok(2), true));
    }
}
