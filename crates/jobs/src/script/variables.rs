//! What a script uses of Slurm beside its `#SBATCH` lines: variables that Slurm sets, and its programs.
//!
//! Invariant: each name comes once, with the first line that uses it. A name in a comment is not used, and a variable that the
//! script sets by itself is its own. It reads words, not the language of the script. Pure; called by `jobctl`.

use std::collections::BTreeSet;

use super::{AtLine, Warning};

/// Programs of Slurm that scripts call.
const PROGRAMS: &[&str] = &[
    "sacct", "salloc", "sattach", "sbatch", "sbcast", "scancel", "scontrol", "sinfo", "squeue", "srun", "sstat",
    "strigger",
];
/// Programs that start the processes of MPI.
const MPI: &[&str] = &["mpirun", "mpiexec", "mpiexec.hydra", "orterun"];
/// Words that a command may follow.
const BEFORE_COMMANDS: &[&str] = &["time", "exec", "then", "do", "else", "!", "nohup", "eval", "if", "while", "{"];

/// The parts of Slurm that a script needs while it runs. What of them a pod has, `missing` compares.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SlurmUse {
    /// Variables, each with its first line.
    pub variables: Vec<AtLine<String>>,
    /// Programs of Slurm, each with its first line.
    pub programs: Vec<AtLine<&'static str>>,
    /// Whether it starts processes of MPI.
    pub mpi: bool,
}

impl SlurmUse {
    /// Looks through the text of a script.
    pub fn of(text: &str) -> SlurmUse {
        let mut used = SlurmUse::default();
        let mut own = BTreeSet::new();
        let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim_start()));
        for (number, line) in lines.filter(|(_, line)| !line.starts_with('#')) {
            for (name, set) in variables(line) {
                if set {
                    own.insert(name);
                } else if used.variables.iter().all(|known| known.value != name) {
                    used.variables.push(AtLine { line: number, value: name.to_owned() });
                }
            }
            for word in commands(line) {
                if let Some(program) = PROGRAMS.iter().find(|program| **program == word)
                    && used.programs.iter().all(|known| known.value != word)
                {
                    used.programs.push(AtLine { line: number, value: program });
                }
                used.mpi |= MPI.contains(&word);
            }
        }
        used.variables.retain(|name| !own.contains(name.value.as_str()));
        used
    }

    /// Says what is used and not there, where `set` are the variables of the pod and `tasks` is how many tasks the script asks for.
    pub fn missing(&self, set: &[String], tasks: u64) -> Vec<Warning> {
        let unset = self.variables.iter().filter(|name| !set.contains(&name.value)).map(|AtLine { line, value }| {
            Warning { line: *line, text: format!("${value} is not set here{}", instead_of(value)) }
        });
        let programs = self.programs.iter().map(|AtLine { line, value: program }| {
            let instead = match *program {
                "srun" if tasks == 1 => ": with one task leave it out".to_owned(),
                "srun" => {
                    format!(": start the {tasks} processes by `mpirun -n {tasks}`, `xargs -P {tasks}` or the like")
                }
                "scontrol" => "; SLURM_JOB_NODELIST has one name, which needs no taking apart".to_owned(),
                _ => String::new(),
            };
            Warning { line: *line, text: format!("{program} is a program of Slurm and not in the pod{instead}") }
        });
        let mut all: Vec<_> = unset.chain(programs).collect();
        all.sort_by_key(|warning| warning.line);
        all
    }
}

/// What helps where a variable is not set.
fn instead_of(name: &str) -> &'static str {
    match name {
        "SLURM_RESTART_COUNT" => "; PUMICE_ATTEMPT counts the runs, from 1",
        "SLURM_SUBMIT_DIR" => ": the pod has no folder of this machine; --workdir names one of its own",
        "SLURM_ARRAY_TASK_ID"
        | "SLURM_ARRAY_JOB_ID"
        | "SLURM_ARRAY_TASK_COUNT"
        | "SLURM_ARRAY_TASK_MIN"
        | "SLURM_ARRAY_TASK_MAX"
        | "SLURM_ARRAY_TASK_STEP" => ": the job is no array; --array makes it one",
        "SLURM_MEM_PER_NODE" | "SLURM_MEM_PER_CPU" | "SLURM_MEM_PER_GPU" => {
            ": it is set where a line asks for memory so"
        }
        "SLURM_GPUS" | "SLURM_GPUS_ON_NODE" | "SLURM_GPUS_PER_NODE" | "SLURM_GPUS_PER_TASK" => {
            ": the job asks for no GPUs"
        }
        "SLURM_JOB_NODELIST" | "SLURM_NODELIST" => ": /etc/volcano/main.host has the hosts of all pods",
        "SLURM_JOB_GPUS" | "SLURM_STEP_GPUS" => "; CUDA_VISIBLE_DEVICES is set by what gives the pod its GPUs",
        "SLURM_JOB_ACCOUNT" | "SLURM_JOB_QOS" | "SLURM_JOB_RESERVATION" => "; SLURM_JOB_PARTITION has the queue",
        _ => "",
    }
}

/// The variables of Slurm in a line, and whether each is set there.
fn variables(line: &str) -> impl Iterator<Item = (&str, bool)> {
    let starts = line.match_indices("SLURM").map(|(at, _)| at);
    starts.filter_map(move |at| {
        let (before, rest) = (&line[..at], &line[at..]);
        let end =
            rest.find(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        let inside = before.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        let whole = (name.starts_with("SLURM_") || name.starts_with("SLURMD_")) && !name.ends_with('_');
        let set = (after.starts_with('=') && !after.starts_with("==") && !before.ends_with(['$', '{']))
            || before.trim_end().ends_with("unset");
        (whole && !inside).then_some((name, set))
    })
}

/// The words of a line that stand where a shell looks for a command.
fn commands(line: &str) -> impl Iterator<Item = &str> {
    line.split([';', '|', '&', '(', '`']).filter_map(|part| {
        let mut words = part.split_whitespace();
        words.find(|word| !BEFORE_COMMANDS.contains(word) && !is_assignment(word))
    })
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_is_found_with_its_line() {
        for (text, wanted) in [
            ("echo $SLURM_JOB_ID ${SLURM_JOB_ID} ${SLURM_NTASKS:-1}", "1:SLURM_JOB_ID 1:SLURM_NTASKS"),
            ("# $SLURM_JOB_ID\n  # srun x\necho \"$SLURMD_NODENAME\"", "3:SLURMD_NODENAME"),
            ("export SLURM_CPU_BIND=none\necho $SLURM_CPU_BIND", ""),
            ("unset SLURM_JOBID\n[ $SLURM_PROCID == 0 ]", "2:SLURM_PROCID"),
            ("os.environ['SLURM_ARRAY_TASK_ID']", "1:SLURM_ARRAY_TASK_ID"),
            ("env | grep SLURM_; MY_SLURM_JOB_ID=1; echo $SLURMX_A", ""),
            ("A=1 srun -n 2 ./x", "1:srun"),
            ("x=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)", "1:SLURM_JOB_NODELIST 1:scontrol"),
            ("echo srun; ./srun; if squeue; then sacct; fi\ntime mpirun -n 4 x", "1:squeue 1:sacct mpi"),
            ("é$SLURM_JOB_IDé", "1:SLURM_JOB_ID"),
        ] {
            let SlurmUse { variables, programs, mpi } = SlurmUse::of(text);
            let names = variables.iter().map(|AtLine { line, value }| format!("{line}:{value}"));
            let programs = programs.iter().map(|AtLine { line, value }| format!("{line}:{value}"));
            let all: Vec<_> = names.chain(programs).chain(mpi.then(|| "mpi".to_owned())).collect();
            assert_eq!(all.join(" "), wanted, "{text}");
        }
    }
}
