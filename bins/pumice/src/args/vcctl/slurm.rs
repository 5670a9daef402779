//! Programs by the name they are called: `vcctl`, and Volcano's Slurm-like ones.
//!
//! In the Slurm-like ones `-n` is the name and `-N` the namespace, the reverse of `vcctl`'s groups.

use std::ffi::OsStr;
use std::path::Path;

use clap::{Args, Parser, Subcommand};
use pumice_vcctl::links::NAMES;

use super::job::{FilterArgs, Size};
use super::{ApiFlags, Group, Output};

/// What a link to this program does, by its name.
#[derive(Debug, Parser)]
#[command(multicall = true, version)]
pub struct Called {
    /// Which one.
    #[command(subcommand)]
    pub program: Program,
}

/// Whether a program called like this is one of them.
pub fn is_known(called: &OsStr) -> bool {
    Path::new(called).file_name().and_then(OsStr::to_str).is_some_and(|name| NAMES.contains(&name))
}

/// The programs.
#[derive(Debug, Subcommand)]
pub enum Program {
    /// Volcano's command line: jobs, queues, pods, flows, schedules
    #[command(arg_required_else_help = true)]
    Vcctl {
        #[command(subcommand)]
        group: Group,
    },
    /// Submit a Job
    Vsub(SubArgs),
    /// Show Jobs, or one
    Vjobs(JobsArgs),
    /// Show queues, or one
    Vqueues(QueuesArgs),
    /// Delete a Job and its pods
    Vcancel(OneArgs),
    /// End a Job's pods; it can be resumed
    Vsuspend(OneArgs),
    /// Let a suspended Job go on
    Vresume(OneArgs),
}

/// Flags of `vsub`.
#[derive(Debug, Args)]
pub struct SubArgs {
    #[command(flatten)]
    pub api: ApiFlags,
    /// Name of the Job
    #[arg(short = 'n', long, default_value = "", hide_default_value = true)]
    pub name: String,
    /// Namespace [default: $VOLCANO_DEFAULT_JOB_NAMESPACE, else default]
    #[arg(short = 'N', long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Image of its pods [default: $VOLCANO_DEFAULT_IMAGE, else busybox]
    #[arg(short = 'i', long)]
    pub image: Option<String>,
    /// Scheduler [default: $VOLCANO_SCHEDULER_NAME, else volcano]
    #[arg(short = 'S', long, value_name = "NAME")]
    pub scheduler: Option<String>,
    #[command(flatten)]
    pub size: Size,
    #[command(flatten)]
    pub output: Output,
}

/// A Job the Slurm way.
#[derive(Debug, Args)]
pub struct JobName {
    /// Name of the Job
    #[arg(short = 'n', long, default_value = "", hide_default_value = true)]
    pub name: String,
    /// Namespace
    #[arg(short = 'N', long, value_name = "NAME", default_value = "default")]
    pub namespace: String,
}

/// Flags of `vcancel`, `vsuspend` and `vresume`.
#[derive(Debug, Args)]
pub struct OneArgs {
    #[command(flatten)]
    pub api: ApiFlags,
    #[command(flatten)]
    pub job: JobName,
    #[command(flatten)]
    pub output: Output,
}

/// Flags of `vjobs`.
#[derive(Debug, Args)]
pub struct JobsArgs {
    #[command(flatten)]
    pub api: ApiFlags,
    #[command(flatten)]
    pub job: JobName,
    /// All namespaces
    #[arg(long)]
    pub all_namespaces: bool,
    #[command(flatten)]
    pub filter: FilterArgs,
    #[command(flatten)]
    pub output: Output,
}

/// Flags of `vqueues`.
#[derive(Debug, Args)]
pub struct QueuesArgs {
    #[command(flatten)]
    pub api: ApiFlags,
    /// Name of the queue [default: all of them]
    #[arg(short = 'n', long, default_value = "", hide_default_value = true)]
    pub name: String,
    #[command(flatten)]
    pub output: Output,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::CommandFactory;

    #[test]
    fn the_command_lines_are_consistent() {
        Called::command().debug_assert();
        Cli::command().debug_assert();
    }

    #[test]
    fn programs_go_by_their_name_wherever_they_are() {
        for (called, known) in [
            ("vsub", true),
            ("/usr/local/bin/vqueues", true),
            ("./vcctl", true),
            ("pumice", false),
            ("/srv/vsub/pumice", false),
            ("", false),
        ] {
            assert_eq!(is_known(OsStr::new(called)), known, "{called}");
        }
    }

    #[test]
    fn volcanos_command_lines_are_taken() {
        for line in [
            "vcctl job run -N a -n team -i busybox -m 2 -r 3 -R cpu=1 -L cpu=2 -S volcano -s https://h -k /k",
            "vcctl job run --name a --namespace b --image c --min 1 --replicas 1 --requests cpu=1 --limits cpu=1 --scheduler s",
            "vcctl job run -f job.yaml -v 4 --vmodule=a=1 --log-flush-frequency 5s",
            "vcctl job -k /k list --all-namespaces -q default -S volcano --selector train",
            "vcctl job view -N a -n b",
            "vcctl job suspend --name a --namespace b",
            "vcctl job resume -N a",
            "vcctl job delete -N a --kubeconfig /k --master https://h",
            "vcctl queue create",
            "vcctl queue create -n q -w 3 -S Closed",
            "vcctl queue create --name q --weight 3 --state closed",
            "vcctl queue delete -n q",
            "vcctl queue operate -n q -a update -w 2",
            "vcctl queue operate --name q --action close",
            "vcctl queue list",
            "vcctl queue get -n q",
            "vcctl jobflow create -f flow.yaml",
            "vcctl jobflow list --all-namespaces",
            "vcctl jobflow get -N f -n team",
            "vcctl jobflow describe -N f -o json",
            "vcctl jobflow describe --format yaml",
            "vcctl jobflow delete -f flow.yaml",
            "vcctl jobtemplate list -n team",
            "vcctl jobtemplate delete -N t",
            "vcctl pod list --all-namespaces -j a -q q",
            "vcctl cronjob suspend -N c",
            "vcctl version",
            "vsub -n a -N team -i busybox -m 1 -r 2 -R cpu=1 -L cpu=1 -S volcano -c hostname",
            "vjobs",
            "vjobs -n a -N team",
            "vjobs -S volcano --all-namespaces --selector a",
            "vqueues -n q",
            "vcancel -n a -N team",
            "vsuspend -n a -k /k",
            "vresume --name a --namespace b",
        ] {
            Called::try_parse_from(line.split_whitespace()).unwrap_or_else(|error| panic!("{line}: {error}"));
            // The groups are of the whole program, too.
            if let Some(rest) = line.strip_prefix("vcctl ") {
                let words = std::iter::once("pumice").chain(rest.split_whitespace());
                Cli::try_parse_from(words).unwrap_or_else(|error| panic!("pumice {rest}: {error}"));
            }
        }
    }

    /// Every verb there is, but those that print a version.
    #[test]
    fn every_verb_takes_every_form() {
        let mut verbs = Vec::new();
        for program in Called::command().get_subcommands() {
            let groups: Vec<_> = program.get_subcommands().collect();
            for group in &groups {
                let all =
                    group.get_subcommands().map(|verb| (format!("{} {}", group.get_name(), verb.get_name()), verb));
                verbs.extend(all.map(|(line, verb)| (line, verb.clone())));
            }
            if groups.is_empty() {
                verbs.push((program.get_name().to_owned(), program.clone()));
            }
        }
        assert_eq!(verbs.len(), 37, "{:?}", verbs.iter().map(|(line, _)| line).collect::<Vec<_>>());
        for (line, verb) in verbs {
            let output = verb.get_arguments().find(|arg| arg.get_short() == Some('o'));
            let output = output.unwrap_or_else(|| panic!("{line} has no -o"));
            let forms: Vec<_> = output.get_possible_values().iter().map(|form| form.get_name().to_owned()).collect();
            assert_eq!(forms, ["table", "wide", "json", "yaml", "name"], "{line}");
        }
    }

    #[test]
    fn wrong_command_lines_are_refused() {
        for line in [
            "vcctl job frobnicate",
            "vcctl job list -o xml",
            "vcctl queue create -S Maybe",
            "vcctl queue operate -n q",
            "vcctl queue operate -n q -a explode",
            "vcctl jobflow create",
            "vsub -r many",
            "vcancel a",
        ] {
            let error = Called::try_parse_from(line.split_whitespace()).err();
            assert_eq!(error.unwrap_or_else(|| panic!("{line} was accepted")).exit_code(), 2, "{line}");
        }
    }
}
