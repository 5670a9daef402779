//! `#SBATCH` lines as flags of `jobctl submit`.
//!
//! Slurm runs a batch script once, on the first node that it gives to a job. So does `jobctl`: the script has one pod, and the pod
//! gets what that node was to give: the processors of all tasks there, its memory and its GPUs.
//!
//! Invariant: each option becomes a flag or a warning with its line. Only what Slurm refuses, too, refuses the script.

use super::amounts::{self, Gpus};
use super::options::{self, Given, Meaning};
use super::{AtLine, Header, Line, SlurmHeader, Warning, WordAt};
use crate::names;
use crate::shards::Array;

/// Longest stem of a name.
const STEM_MAX: usize = 35;
/// Seconds between a signal and the end where a script names none.
const SIGNAL_SECONDS: u64 = 60;
/// Most seconds between a signal and the end.
const SIGNAL_SECONDS_MAX: u64 = 86_400;

/// Memory, by what it is said of.
#[derive(Debug, Clone, Copy)]
enum Memory {
    Node(u64),
    EachCpu(u64),
    EachGpu(u64),
}

/// What all lines together say of the pod.
#[derive(Debug, Default)]
struct Wishes {
    nodes: Option<AtLine<u64>>,
    tasks: Option<AtLine<u64>>,
    tasks_per_node: Option<AtLine<u64>>,
    tasks_per_gpu: Option<AtLine<u64>>,
    cpus_per_task: Option<AtLine<u64>>,
    cpus_per_gpu: Option<AtLine<u64>>,
    memory: Option<AtLine<Memory>>,
    gpus: Option<AtLine<u64>>,
    gpus_per_node: Option<AtLine<u64>>,
    gpus_per_task: Option<AtLine<u64>>,
    seconds: Option<AtLine<u64>>,
    signal_seconds: Option<AtLine<u64>>,
}

/// A line that Slurm refuses, too.
pub(super) struct Refused {
    pub line: usize,
    pub problem: String,
}

/// Reads the words of all lines. `variable` tells the value of a variable of this process.
pub(super) fn translate(
    words: &[WordAt],
    variable: &dyn Fn(&str) -> Option<String>,
    header: &mut Header,
) -> Result<(), Refused> {
    let mut translator = Translator { wishes: Wishes::default(), job_name: None, partition: None, variable, header };
    for read in options::read(words) {
        match read {
            Ok(given) => translator.option(&given)?,
            Err(stray) => translator.warn(stray.line, format!("#SBATCH {} {}", stray.written, stray.problem)),
        }
    }
    translator.finish();
    Ok(())
}

struct Translator<'a> {
    wishes: Wishes,
    job_name: Option<String>,
    partition: Option<AtLine<String>>,
    variable: &'a dyn Fn(&str) -> Option<String>,
    header: &'a mut Header,
}

impl Translator<'_> {
    fn warn(&mut self, line: usize, text: String) {
        self.header.warnings.push(Warning { line, text });
    }

    fn flag(&mut self, line: usize, flag: &str, value: impl std::fmt::Display) {
        self.header.lines.push(Line { number: line, words: vec![format!("{flag}={value}")] });
    }

    fn option(&mut self, given: &Given<'_>) -> Result<(), Refused> {
        let Given { line, written, option, value } = given;
        if let Meaning::Left(why) = option.meaning {
            self.warn(*line, format!("#SBATCH {written} is not used: {why}"));
            return Ok(());
        }
        if option.long == "array" {
            // sbatch takes it in brackets, too.
            let array = value.replace(['[', ']'], "");
            let read = array.parse::<Array>();
            read.map_err(|error| Refused { line: *line, problem: error.to_string() })?;
            self.flag(*line, "--array", array);
            return Ok(());
        }
        if let Err(problem) = self.take(*line, option.long, value) {
            let shown: String = value.chars().take(80).collect();
            self.warn(*line, format!("#SBATCH {written} is not used: {shown:?} {problem}"));
        }
        Ok(())
    }

    /// Takes an option, or says why it can't be taken.
    fn take(&mut self, line: usize, name: &str, value: &str) -> Result<(), String> {
        match name {
            "job-name" => {
                self.job_name = Some(value.to_owned());
                self.flag(line, "--name-stem", names::from_text(value, STEM_MAX));
            }
            "nodes" => self.wishes.nodes = Some(AtLine { line, value: amounts::nodes(value)? }),
            "ntasks" => self.wishes.tasks = Some(AtLine { line, value: amounts::count(value)? }),
            "ntasks-per-node" | "tasks-per-node" => {
                self.wishes.tasks_per_node = Some(AtLine { line, value: amounts::count(value)? })
            }
            "ntasks-per-gpu" => self.wishes.tasks_per_gpu = Some(AtLine { line, value: amounts::count(value)? }),
            "cpus-per-task" => self.wishes.cpus_per_task = Some(AtLine { line, value: amounts::count(value)? }),
            "cpus-per-gpu" => self.wishes.cpus_per_gpu = Some(AtLine { line, value: amounts::count(value)? }),
            "mem" => self.wishes.memory = Some(AtLine { line, value: Memory::Node(amounts::mebibytes(value)?) }),
            "mem-per-cpu" => {
                self.wishes.memory = Some(AtLine { line, value: Memory::EachCpu(amounts::mebibytes(value)?) })
            }
            "mem-per-gpu" => {
                self.wishes.memory = Some(AtLine { line, value: Memory::EachGpu(amounts::mebibytes(value)?) })
            }
            "gpus" => self.wishes.gpus = Some(AtLine { line, value: self.gpus(line, amounts::gpus(value)?) }),
            "gpus-per-node" => {
                self.wishes.gpus_per_node = Some(AtLine { line, value: self.gpus(line, amounts::gpus(value)?) })
            }
            "gpus-per-task" => {
                self.wishes.gpus_per_task = Some(AtLine { line, value: self.gpus(line, amounts::gpus(value)?) })
            }
            "gres" => self.generic(line, value)?,
            "time" => self.wishes.seconds = amounts::seconds(value)?.map(|value| AtLine { line, value }),
            "signal" => self.signal(line, value)?,
            "partition" => self.partition(line, value)?,
            "dependency" => {
                let rules = dependency(value)?;
                self.flag(line, "--after", rules);
            }
            "export" => self.export(line, value),
            "chdir" | "workdir" => self.flag(line, "--workdir", value),
            "requeue" => self.header.lines.push(Line { number: line, words: vec!["--requeue".to_owned()] }),
            // The table of options and this list name the same ones; a test holds them together.
            other => return Err(format!("belongs to {other}, which is not known")),
        }
        Ok(())
    }

    /// How many there are; a model of them can't be had.
    fn gpus(&mut self, line: usize, gpus: Gpus) -> u64 {
        if let Some(model) = gpus.model {
            let text = format!(
                "#SBATCH asks for the GPU {model}, and any model will do here: --zone says where a job may run"
            );
            self.warn(line, text);
        }
        gpus.count
    }

    fn generic(&mut self, line: usize, value: &str) -> Result<(), String> {
        let (gpus, other) = amounts::generic(value)?;
        if let Some(other) = other {
            self.warn(line, format!("#SBATCH --gres={other} is not used: it is no GPU"));
        }
        if let Some(gpus) = gpus {
            self.wishes.gpus_per_node = Some(AtLine { line, value: self.gpus(line, gpus) });
        }
        Ok(())
    }

    /// `[B:]SIGNAL[@SECONDS]`: whom `B:` names, the script, is who gets it here.
    fn signal(&mut self, line: usize, value: &str) -> Result<(), String> {
        let (_, rest) = value.rsplit_once(':').unwrap_or(("", value));
        let (signal, seconds) = rest.split_once('@').unwrap_or((rest, ""));
        let seconds = match seconds {
            "" => SIGNAL_SECONDS,
            text => text.parse().map_err(|_| "names no time; write for example B:TERM@120".to_owned())?,
        };
        let seconds = seconds.clamp(1, SIGNAL_SECONDS_MAX);
        let bare = signal.to_ascii_uppercase();
        let bare = bare.strip_prefix("SIG").unwrap_or(&bare);
        if !matches!(bare, "TERM" | "15") {
            self.warn(
                line,
                format!(
                    "#SBATCH --signal={value}: {signal} is never sent; TERM comes instead, {seconds} s before the end, so handle \
                     TERM as you do {signal}"
                ),
            );
        }
        self.wishes.signal_seconds = Some(AtLine { line, value: seconds });
        Ok(())
    }

    fn partition(&mut self, line: usize, value: &str) -> Result<(), String> {
        if value.contains(',') {
            return Err("are several partitions, and a job has one queue; say --queue NAME".to_owned());
        }
        if names::check("queue", value, names::QUEUE_CHARACTERS_MAX).is_err() {
            return Err(
                "can't be the name of a queue, so the job goes to the queue default; say --queue NAME".to_owned()
            );
        }
        self.flag(line, "--queue", value);
        self.partition = Some(AtLine { line, value: value.to_owned() });
        Ok(())
    }

    fn export(&mut self, line: usize, value: &str) {
        for part in value.split(',') {
            match part.split_once('=') {
                Some((name, _)) if is_variable(name) => self.flag(line, "--env", part),
                None if matches!(part, "NONE" | "NIL" | "") => {}
                None if part == "ALL" => {
                    let text = "#SBATCH --export=ALL: of this shell's variables only PATH goes along; name those that the script \
                                needs, as --export=NAME or --env NAME";
                    self.warn(line, text.to_owned());
                }
                None if is_variable(part) => match (self.variable)(part) {
                    Some(value) => self.flag(line, "--env", format!("{part}={value}")),
                    None => {
                        self.warn(line, format!("#SBATCH --export={part} is not used: there is no such variable here"))
                    }
                },
                _ => self.warn(line, format!("#SBATCH --export={part} is not used: it names no variable")),
            }
        }
    }

    /// Says what only all lines together say.
    fn finish(mut self) {
        let wishes = std::mem::take(&mut self.wishes);
        let nodes = wishes.nodes_in_all();
        let gpus_known = wishes.gpus_per_node.or_else(|| Some(wishes.gpus?.of_each(nodes)));
        let tasks = wishes.tasks_here(nodes, gpus_known);
        let one_task = AtLine { line: 0, value: 1 };
        let gpus = gpus_known.or_else(|| Some(wishes.gpus_per_task?.times(tasks.unwrap_or(one_task))));
        let gpus = gpus.filter(|gpus| gpus.value > 0);
        let cpus = match (wishes.cpus_per_gpu, gpus) {
            (Some(each), Some(gpus)) => Some(each.times(gpus)),
            (Some(each), None) => {
                self.warn(each.line, "#SBATCH --cpus-per-gpu is not used: no line asks for GPUs".to_owned());
                None
            }
            (None, _) if tasks.is_none() && wishes.cpus_per_task.is_none() => None,
            (None, _) => Some(wishes.cpus_per_task.unwrap_or(one_task).times(tasks.unwrap_or(one_task))),
        };
        if let Some(cpus) = cpus {
            self.flag(cpus.line, "--cpu", cpus.value);
        }
        if let Some(gpus) = gpus {
            self.flag(gpus.line, "--gpu", gpus.value);
        }
        let memory = wishes.memory.and_then(|AtLine { line, value }| match value {
            Memory::Node(all) => Some(AtLine { line, value: all }),
            Memory::EachCpu(each) => Some(AtLine { line, value: each }.times(cpus.unwrap_or(one_task))),
            Memory::EachGpu(each) => gpus.map(|gpus| AtLine { line, value: each }.times(gpus)),
        });
        match (wishes.memory, memory) {
            (_, Some(mebibytes)) => self.flag(mebibytes.line, "--memory", format!("{}Mi", mebibytes.value)),
            (Some(asked), None) => {
                self.warn(asked.line, "#SBATCH --mem-per-gpu is not used: no line asks for GPUs".to_owned());
            }
            (None, None) => {}
        }
        if let Some(AtLine { line, value: seconds }) = wishes.seconds {
            // The limit is when Slurm kills; `--timeout` is when the signal comes.
            let early = wishes.signal_seconds.map_or(0, |early| early.value);
            let until = if seconds > early { seconds - early } else { seconds };
            self.flag(line, "--timeout", format!("{until}s"));
        }
        if let Some(seconds) = wishes.signal_seconds {
            self.flag(seconds.line, "--signal", format!("TERM@{}", seconds.value));
        }
        if let Some(AtLine { line, value: nodes }) = nodes
            && nodes > 1
        {
            self.warn(
                line,
                format!(
                    "#SBATCH asks for {nodes} nodes: the script runs once, in one pod, with what one of them was to give, and \
                     srun and mpirun start nothing on others. --replicas {nodes} runs the whole script in each of {nodes} pods, \
                     which find each other by /etc/volcano/main.host"
                ),
            );
        }
        let tasks = tasks.map_or(1, |tasks| tasks.value);
        self.header.slurm = Some(SlurmHeader { job_name: self.job_name, tasks, partition: self.partition });
    }
}

impl Wishes {
    /// Nodes that Slurm would give, where lines say it.
    fn nodes_in_all(&self) -> Option<AtLine<u64>> {
        if self.nodes.is_some() {
            return self.nodes;
        }
        let tasks_per_node = self.tasks_per_node?;
        Some(self.tasks?.of_each(Some(tasks_per_node)))
    }

    /// Tasks on one node.
    fn tasks_here(&self, nodes: Option<AtLine<u64>>, gpus: Option<AtLine<u64>>) -> Option<AtLine<u64>> {
        self.tasks
            .map(|tasks| tasks.of_each(nodes))
            .or(self.tasks_per_node)
            .or_else(|| Some(self.tasks_per_gpu?.times(gpus?)))
    }
}

/// What two lines make together stands at the later one.
impl AtLine<u64> {
    /// What each of some parts gets of it, rounded up; all of it where no line names parts.
    fn of_each(self, parts: Option<AtLine<u64>>) -> AtLine<u64> {
        match parts {
            Some(parts) => AtLine { line: self.line.max(parts.line), value: self.value.div_ceil(parts.value.max(1)) },
            None => self,
        }
    }

    fn times(self, count: AtLine<u64>) -> AtLine<u64> {
        AtLine { line: self.line.max(count.line), value: self.value.saturating_mul(count.value) }
    }
}

fn is_variable(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// What `--after` takes for a list of Slurm's dependencies: `ok:A,ok:B,any:C` for `afterok:A:B,afterany:C`.
fn dependency(text: &str) -> Result<String, String> {
    let mut rules = Vec::new();
    for part in text.split(',') {
        let (when, jobs) = part.split_once(':').unwrap_or((part, ""));
        let when = match when {
            "afterok" => "ok",
            "afterany" => "any",
            "afternotok" => "failed",
            _ => return Err(format!("waits by {when:?}, which is not known here; --after ok:JOB waits for a job")),
        };
        for job in jobs.split(':') {
            if job.bytes().all(|byte| byte.is_ascii_digit())
                || names::check("job", job, names::JOB_CHARACTERS_MAX).is_err()
            {
                return Err("names no job of this platform; --after ok:JOB waits for one".to_owned());
            }
            rules.push(format!("{when}:{job}"));
        }
    }
    Ok(rules.join(","))
}
