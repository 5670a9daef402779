//! The options that `sbatch` has, and the words of `#SBATCH` lines read as `sbatch` reads them.
//!
//! `sbatch` puts the words of all lines into one list and gives it to `getopt_long`. So a long option may be shortened as far as it
//! is told from all others, short options may be joined, and a value may stand on the next line. Pure; called by `sbatch`.

use super::WordAt;

/// Whether an option has a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    None,
    /// Only in the same word: `--exclusive=user`.
    Attached,
    Needed,
}
use Value::{Attached, Needed, None as Without};

/// What becomes of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    Taken,
    /// It is not, and why, as the rest of a sentence.
    Left(&'static str),
}
use Meaning::{Left, Taken};

/// An option of `sbatch`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SbatchOption {
    pub long: &'static str,
    short: Option<char>,
    value: Value,
    /// What becomes of it.
    pub meaning: Meaning,
}

const fn option(long: &'static str, short: Option<char>, value: Value, meaning: Meaning) -> SbatchOption {
    SbatchOption { long, short, value, meaning }
}

const FILES: Meaning = Left("`jobctl logs` shows what a job prints");
const MAIL: Meaning = Left("nobody is written to; `jobctl wait JOB` waits for the end");
const NODES: Meaning = Left("the scheduler chooses among all nodes; --zone says where a job may run");
const QUEUES: Meaning = Left("shares of the machines go by queue; --queue names one");
const PLACES: Meaning = Left("how processes lie on the processors of a node is left to the node");
const SHARED: Meaning =
    Left("other pods may run on the same node; --cpu and --memory say what this one needs for itself");
const CLOCKS: Meaning = Left("clock rates are not set");
const STARTS: Meaning = Left("the job starts as soon as there is room");
const WORDS: Meaning = Left("it changes only what sbatch prints");
const DISKS: Meaning = Left("room on disks is not asked for");
const IDENTITY: Meaning = Left("a job is that of whoever submits it");
const NONE: Meaning = Left("it has no meaning here");

/// All options of `sbatch`, also older spellings that it takes.
pub(super) const OPTIONS: &[SbatchOption] = &[
    option("account", Some('A'), Needed, QUEUES),
    option("acctg-freq", None, Needed, NONE),
    option("array", Some('a'), Needed, Taken),
    option("batch", None, Needed, NODES),
    option("bb", None, Needed, DISKS),
    option("bbf", None, Needed, DISKS),
    option("begin", Some('b'), Needed, STARTS),
    option("chdir", Some('D'), Needed, Taken),
    option("cluster", None, Needed, Left("--context names the platform")),
    option("cluster-constraint", None, Needed, NODES),
    option("clusters", Some('M'), Needed, Left("--context names the platform")),
    option("comment", None, Needed, Left("--label KEY=VALUE keeps a note on a job")),
    option("consolidate-segments", None, Without, NODES),
    option("constraint", Some('C'), Needed, NODES),
    option("container", None, Needed, Left("--image names the image")),
    option("container-id", None, Needed, Left("--image names the image")),
    option("context", None, Needed, NONE),
    option("contiguous", None, Without, NODES),
    option("core-spec", Some('S'), Needed, PLACES),
    option("cores-per-socket", None, Needed, PLACES),
    option("cpu-freq", None, Needed, CLOCKS),
    option("cpus-per-gpu", None, Needed, Taken),
    option("cpus-per-task", Some('c'), Needed, Taken),
    option("deadline", None, Needed, Left("--deadline of jobctl takes a time such as 2026-01-31T18:00:00Z")),
    option("delay-boot", None, Needed, NONE),
    option("dependency", Some('d'), Needed, Taken),
    option("distribution", Some('m'), Needed, PLACES),
    option("error", Some('e'), Needed, FILES),
    option("exclude", Some('x'), Needed, NODES),
    option("exclusive", None, Attached, SHARED),
    option("export", None, Needed, Taken),
    option("export-file", None, Needed, Left("--env NAME=VALUE sets a variable")),
    option("external", None, Without, NONE),
    option("extra", None, Needed, NONE),
    option("extra-node-info", Some('B'), Needed, PLACES),
    option("get-user-env", None, Attached, Left("variables don't go along; --env NAME takes one from here")),
    option("gid", None, Needed, IDENTITY),
    option("gpu-bind", None, Needed, PLACES),
    option("gpu-freq", None, Needed, CLOCKS),
    option("gpus", Some('G'), Needed, Taken),
    option("gpus-per-node", None, Needed, Taken),
    option(
        "gpus-per-socket",
        None,
        Needed,
        Left("sockets are not told apart; --gpus-per-node says how many there are in all"),
    ),
    option("gpus-per-task", None, Needed, Taken),
    option("gres", None, Needed, Taken),
    option("gres-flags", None, Needed, PLACES),
    option("help", Some('h'), Without, WORDS),
    option("hint", None, Needed, PLACES),
    option("hold", Some('H'), Without, STARTS),
    option("ignore-pbs", None, Without, Left("lines with #PBS are never read")),
    option("input", Some('i'), Needed, Left("the standard input of a pod is empty; `program < FILE` reads a file")),
    option("job-name", Some('J'), Needed, Taken),
    option("kill-on-invalid-dep", None, Needed, NONE),
    option("licenses", Some('L'), Needed, Left("licences are not counted")),
    option("mail-type", None, Needed, MAIL),
    option("mail-user", None, Needed, MAIL),
    option("mcs-label", None, Needed, NONE),
    option("mem", None, Needed, Taken),
    option("mem-bind", None, Needed, PLACES),
    option("mem-per-cpu", None, Needed, Taken),
    option("mem-per-gpu", None, Needed, Taken),
    option("mem-update", None, Needed, NONE),
    option("mincpus", None, Needed, Left("--cpus-per-task says how many processors there are to be")),
    option("network", None, Needed, NONE),
    option("nice", None, Attached, Left("--priority CLASS puts a job before others or behind them")),
    option("no-kill", Some('k'), Attached, NONE),
    option("no-requeue", None, Without, Left("a pod that is evicted is made again")),
    option("nodefile", Some('F'), Needed, NODES),
    option("nodelist", Some('w'), Needed, NODES),
    option("nodes", Some('N'), Needed, Taken),
    option("ntasks", Some('n'), Needed, Taken),
    option("ntasks-per-core", None, Needed, PLACES),
    option("ntasks-per-gpu", None, Needed, Taken),
    option("ntasks-per-node", None, Needed, Taken),
    option("ntasks-per-socket", None, Needed, PLACES),
    option("ntasks-per-tres", None, Needed, PLACES),
    option("oom-kill-step", None, Attached, NONE),
    option("open-mode", None, Needed, FILES),
    option("output", Some('o'), Needed, FILES),
    option("overcommit", Some('O'), Without, PLACES),
    option("oversubscribe", Some('s'), Without, SHARED),
    option("parsable", None, Without, WORDS),
    option("partition", Some('p'), Needed, Taken),
    option("prefer", None, Needed, NODES),
    option("priority", None, Needed, Left("--priority of jobctl names a priority class")),
    option("profile", None, Needed, NONE),
    option("propagate", None, Attached, Left("limits of this shell don't go along")),
    option("qos", Some('q'), Needed, QUEUES),
    option("quiet", Some('Q'), Without, WORDS),
    option("reboot", None, Without, NODES),
    option("requeue", None, Attached, Taken),
    option("reservation", None, Needed, QUEUES),
    option("resources", None, Needed, NODES),
    option("resv-ports", None, Attached, NONE),
    option("runtime", None, Needed, Left("--image names the image")),
    option("segment", None, Needed, NODES),
    option("signal", None, Needed, Taken),
    option("sockets-per-node", None, Needed, PLACES),
    option("spread-job", None, Without, NODES),
    option("spread-segments", None, Without, NODES),
    option("stepmgr", None, Without, NONE),
    option("switches", None, Needed, NODES),
    option("tasks-per-node", None, Needed, Taken),
    option(
        "test-only",
        None,
        Without,
        Left("the job is submitted all the same; `jobctl submit --dry-run` submits nothing"),
    ),
    option("thread-spec", None, Needed, PLACES),
    option("threads-per-core", None, Needed, PLACES),
    option("time", Some('t'), Needed, Taken),
    option("time-min", None, Needed, Left("--time says how long it may run")),
    option("tmp", None, Needed, DISKS),
    option("tres-bind", None, Needed, PLACES),
    option("tres-per-task", None, Needed, Left("--cpus-per-task and --gpus-per-task say what a task needs")),
    option("uid", None, Needed, IDENTITY),
    option("usage", None, Without, WORDS),
    option("use-min-nodes", None, Without, NODES),
    option("verbose", Some('v'), Without, WORDS),
    option("version", Some('V'), Without, WORDS),
    option("wait", Some('W'), Without, Left("`jobctl run` waits, `jobctl submit` does not")),
    option("wait-all-nodes", None, Needed, NODES),
    option("wckey", None, Needed, QUEUES),
    option("workdir", None, Needed, Taken),
    option("wrap", None, Needed, Left("the script is what runs")),
];

/// An option that a script gives.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Given<'w> {
    /// Its line, from 1.
    pub line: usize,
    /// As it is written, without its value.
    pub written: String,
    /// Which one it is.
    pub option: &'static SbatchOption,
    /// Its value; empty without one.
    pub value: &'w str,
}

/// A word that gives no option.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stray {
    /// Its line, from 1.
    pub line: usize,
    /// As it is written.
    pub written: String,
    /// What is wrong with it, as the rest of a sentence.
    pub problem: String,
}

/// Reads the words of all lines.
pub(super) fn read(words: &[WordAt]) -> Vec<Result<Given<'_>, Stray>> {
    let mut all = Vec::new();
    let mut rest = words.iter();
    while let Some(WordAt { line, text }) = rest.next() {
        let mut next = || rest.next().map(|word| word.text.as_str());
        if let Some(long) = text.strip_prefix("--") {
            all.push(long_option(*line, long, &mut next));
        } else if let Some(letters) = text.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            short_options(*line, letters, &mut next, &mut all);
        } else {
            let problem = "is no option; a word that belongs to one needs quotes".to_owned();
            all.push(Err(Stray { line: *line, written: text.clone(), problem }));
        }
    }
    all
}

fn long_option<'w>(line: usize, text: &'w str, next: &mut impl FnMut() -> Option<&'w str>) -> Result<Given<'w>, Stray> {
    let (name, attached) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
    let written = format!("--{name}");
    let option = match named(name) {
        Ok(option) => option,
        Err(problem) => return Err(Stray { line, written, problem }),
    };
    let value = match (option.value, attached) {
        (Without, Some(_)) => Err("takes no value"),
        (Without | Attached, None) => Ok(""),
        (_, Some(value)) => Ok(value),
        (Needed, None) => next().ok_or("has no value"),
    };
    match value {
        Ok(value) => Ok(Given { line, written, option, value }),
        Err(problem) => Err(Stray { line, written, problem: problem.to_owned() }),
    }
}

/// The option of a name that may be shortened.
fn named(name: &str) -> Result<&'static SbatchOption, String> {
    if let Some(option) = OPTIONS.iter().find(|option| option.long == name) {
        return Ok(option);
    }
    let begun: Vec<_> = OPTIONS.iter().filter(|option| !name.is_empty() && option.long.starts_with(name)).collect();
    match begun.as_slice() {
        [] => Err("is no option of sbatch".to_owned()),
        [option] => Ok(option),
        several => {
            let names: Vec<_> = several.iter().map(|option| format!("--{}", option.long)).collect();
            Err(format!("may mean {}", names.join(", ")))
        }
    }
}

/// `-n4`, `-n 4`, or several of them in one word of which the last may have a value.
fn short_options<'w>(
    line: usize,
    letters: &'w str,
    next: &mut impl FnMut() -> Option<&'w str>,
    all: &mut Vec<Result<Given<'w>, Stray>>,
) {
    let mut rest = letters.chars();
    while let Some(letter) = rest.next() {
        let written = format!("-{letter}");
        let Some(option) = OPTIONS.iter().find(|option| option.short == Some(letter)) else {
            all.push(Err(Stray { line, written, problem: "is no option of sbatch".to_owned() }));
            return;
        };
        if option.value == Without {
            all.push(Ok(Given { line, written, option, value: "" }));
            continue;
        }
        let attached = rest.as_str();
        let value = match (attached, option.value) {
            ("", Needed) => next(),
            (value, _) => Some(value.strip_prefix('=').unwrap_or(value)),
        };
        let problem = || Stray { line, written: written.clone(), problem: "has no value".to_owned() };
        all.push(
            value.map_or_else(|| Err(problem()), |value| Ok(Given { line, written: written.clone(), option, value })),
        );
        return;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_getopt_reads_them() {
        let told = |line: &str| {
            let words: Vec<_> = line.split(' ').map(|text| WordAt { line: 1, text: text.to_owned() }).collect();
            let told = read(&words).into_iter().map(|read| match read {
                Ok(Given { option, value, .. }) => format!("{}={value}", option.long),
                Err(Stray { written, problem, .. }) => format!("{written} {problem}"),
            });
            told.collect::<Vec<_>>().join("; ")
        };
        for (line, wanted) in [
            ("--mem=4G --mem 4G", "mem=4G; mem=4G"),
            ("--cpus-per-t=2 --part gpu", "cpus-per-task=2; partition=gpu"),
            ("--tasks=80", "tasks-per-node=80"),
            ("--exclusive --exclusive=user", "exclusive=; exclusive=user"),
            ("-n4 -c 2 -J=x", "ntasks=4; cpus-per-task=2; job-name=x"),
            ("-HQJ x", "hold=; quiet=; job-name=x"),
            ("--time --mem 3", "time=--mem; 3 is no option; a word that belongs to one needs quotes"),
            ("--gpus-per", "--gpus-per may mean --gpus-per-node, --gpus-per-socket, --gpus-per-task"),
            ("--mpi=pmix -Z", "--mpi is no option of sbatch; -Z is no option of sbatch"),
            ("--parsable=1 --mem", "--parsable takes no value; --mem has no value"),
            ("- --", "- is no option; a word that belongs to one needs quotes; -- is no option of sbatch"),
            ("-k -s", "no-kill=; oversubscribe="),
        ] {
            assert_eq!(told(line), wanted, "{line}");
        }
    }

    #[test]
    fn options_are_in_order_and_no_letter_stands_for_two() {
        assert!(OPTIONS.is_sorted_by_key(|option| option.long));
        let mut letters: Vec<_> = OPTIONS.iter().filter_map(|option| option.short).collect();
        letters.sort_unstable();
        assert!(letters.windows(2).all(|pair| pair[0] != pair[1]), "{letters:?}");
    }
}
