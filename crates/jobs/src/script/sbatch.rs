//! `#SBATCH` lines as flags of `jobctl submit`.
//!
//! What Slurm means by an option that is not here can't be told from its name, so it is a warning and not a guess.

use super::{Header, Line};
use crate::names;

/// Longest stem of a name.
const STEM_MAX: usize = 35;

/// Options that are read: short form, long form.
const OPTIONS: &[(char, &str)] = &[
    ('J', "job-name"),
    ('n', "ntasks"),
    ('c', "cpus-per-task"),
    (' ', "mem"),
    (' ', "mem-per-cpu"),
    ('t', "time"),
    ('p', "partition"),
    ('a', "array"),
    ('d', "dependency"),
    (' ', "gres"),
    ('o', "output"),
    ('e', "error"),
    ('D', "chdir"),
    ('N', "nodes"),
    (' ', "signal"),
    (' ', "requeue"),
];
/// The one option of those that takes no value.
const REQUEUE: &str = "requeue";

/// Reads the lines of one script: memory for each CPU is known only after all of them.
#[derive(Debug, Default)]
pub(super) struct Translator {
    cpus: Option<u64>,
    mebibytes_per_cpu: Option<(usize, u64)>,
}

impl Translator {
    /// Reads the words of a line.
    pub fn line(&mut self, number: usize, words: &[String], header: &mut Header) {
        let mut flags = Vec::new();
        let mut words = words.iter().map(String::as_str).peekable();
        while let Some(word) = words.next() {
            let (name, attached) = split(word);
            let long = OPTIONS.iter().find(|(short, long)| name == *long || name.strip_prefix(*short) == Some(""));
            let Some((_, long)) = long.filter(|_| word.starts_with('-')) else {
                header.warnings.push(format!("line {number}: #SBATCH {word} is not known here and is ignored"));
                // Its value, if it has one.
                while words.next_if(|word| !word.starts_with('-')).is_some() {}
                continue;
            };
            let value = match attached {
                _ if *long == REQUEUE => Some(""),
                Some(value) => Some(value),
                None => words.next(),
            };
            match value.map_or_else(|| Err("has no value".to_owned()), |value| self.option(number, long, value)) {
                Ok(words) => flags.extend(words),
                Err(problem) => header.warnings.push(format!("line {number}: #SBATCH {word} {problem}")),
            }
        }
        if !flags.is_empty() {
            header.lines.push(Line { number, words: flags });
        }
    }

    /// Says what only all lines together say.
    pub fn finish(self, header: &mut Header) {
        if let Some((number, each)) = self.mebibytes_per_cpu {
            let all = each.saturating_mul(self.cpus.unwrap_or(1));
            header.lines.push(Line { number, words: flag("--memory", format!("{all}Mi")) });
        }
    }

    /// The words for an option, or why there are none.
    fn option(&mut self, number: usize, name: &str, value: &str) -> Result<Vec<String>, String> {
        let whole = || value.parse::<u64>().ok().filter(|n| *n > 0).ok_or("needs a whole number above 0; ignored");
        Ok(match name {
            "job-name" => flag("--name-stem", names::from_text(value, STEM_MAX)),
            // One task is what a job has anyway, also a job of an array.
            "ntasks" if value == "1" => Vec::new(),
            "ntasks" => flag("--replicas", whole()?.to_string()),
            "cpus-per-task" => {
                self.cpus = Some(whole()?);
                flag("--cpu", value.to_owned())
            }
            "mem" => flag("--memory", format!("{}Mi", mebibytes(value)?)),
            "mem-per-cpu" => {
                self.mebibytes_per_cpu = Some((number, mebibytes(value)?));
                Vec::new()
            }
            "time" => seconds(value)?.map_or_else(Vec::new, |seconds| flag("--timeout", format!("{seconds}s"))),
            "partition" if value.contains(',') => {
                return Err("names several partitions; a job has one queue: say --queue".to_owned());
            }
            "partition" => flag("--queue", value.to_owned()),
            "array" => flag("--array", value.to_owned()),
            "dependency" => flag("--after", dependency(value)?),
            "gres" => flag("--gpu", gpus(value)?.to_string()),
            "output" | "error" => {
                return Err("is ignored: `jobctl logs` shows what a job prints".to_owned());
            }
            "chdir" => flag("--workdir", value.to_owned()),
            "nodes" if value == "1" => Vec::new(),
            "nodes" => {
                return Err("is ignored: pods go where there is room; say --replicas for more of them".to_owned());
            }
            "signal" => flag("--signal", value.strip_prefix("B:").unwrap_or(value).to_owned()),
            _ => vec!["--requeue".to_owned()],
        })
    }
}

/// The name and the value of `--name=value`, `--name`, `-nVALUE` or `-n`; a word that is no option is its own name.
fn split(word: &str) -> (&str, Option<&str>) {
    if let Some(long) = word.strip_prefix("--") {
        return long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
    }
    let Some(short) = word.strip_prefix('-') else { return (word, None) };
    let first = short.chars().next().map_or(0, char::len_utf8);
    let (name, value) = short.split_at(first);
    (name, Some(value.strip_prefix('=').unwrap_or(value)).filter(|value| !value.is_empty()))
}

fn flag(name: &str, value: String) -> Vec<String> {
    vec![name.to_owned(), value]
}

/// Slurm's memory: a number of MiB, or with K, M, G or T.
fn mebibytes(text: &str) -> Result<u64, String> {
    const WRONG: &str = "is no amount of memory such as 4G; ignored";
    let (digits, unit) = text.split_at(text.trim_end_matches(|c: char| !c.is_ascii_digit()).len());
    let number = digits.parse::<u64>().map_err(|_| WRONG)?;
    let (times, parts) = match unit.to_ascii_uppercase().as_str() {
        "K" | "KB" => (1, 1024),
        "" | "M" | "MB" => (1, 1),
        "G" | "GB" => (1024, 1),
        "T" | "TB" => (1024 * 1024, 1),
        _ => return Err(WRONG.to_owned()),
    };
    match number.checked_mul(times).map(|mebibytes| mebibytes.div_ceil(parts)) {
        Some(0) => Err("means all memory of a node, which can't be asked for; ignored".to_owned()),
        Some(mebibytes) => Ok(mebibytes),
        None => Err(WRONG.to_owned()),
    }
}

/// Slurm's time limit in seconds; `None` for no limit.
fn seconds(text: &str) -> Result<Option<u64>, String> {
    const WRONG: &str = "is no time such as 90 (minutes), 1:30:00 or 2-12:00; ignored";
    if matches!(text.to_ascii_uppercase().as_str(), "0" | "UNLIMITED" | "INFINITE") {
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
        _ => return Err(WRONG.to_owned()),
    };
    let days = days.map_or(Ok(0), number)?;
    Ok(Some(((days * 24 + hours) * 60 + minutes) * 60 + seconds))
}

/// `afterok:A:B,afterany:C` as `ok:A,ok:B,any:C`.
fn dependency(text: &str) -> Result<String, String> {
    let mut rules = Vec::new();
    for part in text.split(',') {
        let (when, jobs) = part.split_once(':').unwrap_or((part, ""));
        let when = match when {
            "afterok" => "ok",
            "afterany" => "any",
            "afternotok" => "failed",
            _ => return Err(format!("waits by {when:?}, which is not known here; ignored")),
        };
        rules.extend(jobs.split(':').map(|job| format!("{when}:{job}")));
    }
    Ok(rules.join(","))
}

/// The GPUs of `gpu`, `gpu:2` or `gpu:a100:2`.
fn gpus(text: &str) -> Result<u32, String> {
    const WRONG: &str = "asks for what is no GPU; ignored";
    match text.split(':').collect::<Vec<_>>().as_slice() {
        ["gpu"] => Ok(1),
        ["gpu", .., count] => count.parse().map_err(|_| WRONG.to_owned()),
        _ => Err(WRONG.to_owned()),
    }
}
