//! Flags of Volcano's command line: its groups, and what they share.
//!
//! Invariant: a name, letter or default of Volcano's `vcctl` means here what it means there; ours (`-o` above all) come on
//! top. In these groups `-n` is the namespace and `-N` the name, but for queues, where `-n` is the name.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use pumice_vcctl::{Form, Scope};

pub mod flow;
pub mod job;
pub mod queue;
pub mod slurm;
pub mod work;

/// The groups of verbs.
#[derive(Debug, Subcommand)]
pub enum Group {
    /// Volcano's Jobs: run, list, view, suspend, resume, delete
    Job {
        #[command(flatten)]
        api: ApiFlags,
        #[command(subcommand)]
        verb: job::Verb,
    },
    /// Queues: create, list, get, operate, delete
    Queue {
        #[command(flatten)]
        api: ApiFlags,
        #[command(subcommand)]
        verb: queue::Verb,
    },
    /// Pods of Jobs: list, get, delete
    Pod {
        #[command(flatten)]
        api: ApiFlags,
        #[command(subcommand)]
        verb: work::PodVerb,
    },
    /// JobFlows: create, list, get, describe, delete
    #[command(name = "jobflow")]
    JobFlow {
        #[command(flatten)]
        api: ApiFlags,
        #[command(subcommand)]
        verb: flow::Verb,
    },
    /// JobTemplates: create, list, get, describe, delete
    #[command(name = "jobtemplate")]
    JobTemplate {
        #[command(flatten)]
        api: ApiFlags,
        #[command(subcommand)]
        verb: flow::Verb,
    },
    /// CronJobs: create, list, get, suspend, resume, delete
    #[command(name = "cronjob")]
    CronJob {
        #[command(flatten)]
        api: ApiFlags,
        #[command(subcommand)]
        verb: work::CronVerb,
    },
    /// Print the version
    Version {
        #[command(flatten)]
        output: Output,
    },
}

/// Which API server.
#[derive(Debug, Default, Args)]
pub struct ApiFlags {
    /// Address of the API server, instead of the kubeconfig's
    #[arg(short = 's', long, global = true, value_name = "URL")]
    pub master: Option<String>,
    /// How to reach the API server [default: $KUBECONFIG, the running pumice up, ~/.kube/config, or the pod's service
    /// account]
    #[arg(short = 'k', long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Volcano's flags of a log; this program writes none.
    #[arg(short = 'v', long = "v", global = true, hide = true)]
    verbosity: Option<String>,
    #[arg(long, global = true, hide = true)]
    vmodule: Option<String>,
    #[arg(long, global = true, hide = true)]
    log_flush_frequency: Option<String>,
}

/// The form of what is printed.
#[derive(Debug, Args)]
pub struct Output {
    /// Form of what is printed
    #[arg(short, long, alias = "format", value_enum, value_name = "FORM")]
    output: Option<FormArg>,
}

impl Output {
    /// The form that was asked for.
    pub fn form(&self) -> Option<Form> {
        self.output.map(|form| match form {
            FormArg::Table => Form::Table,
            FormArg::Wide => Form::Wide,
            FormArg::Json => Form::Json,
            FormArg::Yaml => Form::Yaml,
            FormArg::Name => Form::Name,
        })
    }

    /// The form that was asked for, else a table.
    pub fn or_table(&self) -> Form {
        self.form().unwrap_or(Form::Table)
    }
}

/// How data is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FormArg {
    /// Volcano's columns
    Table,
    /// More columns
    Wide,
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// KIND.GROUP/NAME
    Name,
}

/// A namespace.
#[derive(Debug, Args)]
pub struct Namespace {
    /// Namespace
    #[arg(short = 'n', long, value_name = "NAME", default_value = "default")]
    pub namespace: String,
}

/// One namespace or all of them.
#[derive(Debug, Args)]
pub struct Namespaces {
    #[command(flatten)]
    one: Namespace,
    /// All namespaces
    #[arg(long)]
    all_namespaces: bool,
}

impl Namespaces {
    /// The namespaces that the flags choose: all, or one, or the configured one.
    pub fn scope(&self) -> Scope {
        if self.all_namespaces { Scope::All } else { Scope::Namespace(self.one.namespace.clone()) }
    }
}

/// An object by namespace and name.
#[derive(Debug, Args)]
pub struct Named {
    #[command(flatten)]
    pub namespace: Namespace,
    /// Name
    #[arg(short = 'N', long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub name: String,
}

/// An object by namespace and name, and a form.
#[derive(Debug, Args)]
pub struct NamedAndOutput {
    #[command(flatten)]
    pub named: Named,
    #[command(flatten)]
    pub output: Output,
}

/// A queue or a node, and a form.
#[derive(Debug, Args)]
pub struct NameAndOutput {
    /// Its name
    #[arg(value_name = "NAME")]
    pub name: String,
    #[command(flatten)]
    pub output: Output,
}

/// Objects of one namespace or all of them, and a form.
#[derive(Debug, Args)]
pub struct Listed {
    #[command(flatten)]
    pub namespaces: Namespaces,
    #[command(flatten)]
    pub output: Output,
}

/// Objects of a file.
#[derive(Debug, Args)]
pub struct FromFile {
    /// Manifest, YAML or JSON, any number of documents; `-` is standard input
    #[arg(short = 'f', long, value_name = "FILE")]
    pub file: PathBuf,
    #[command(flatten)]
    pub namespace: Namespace,
    #[command(flatten)]
    pub output: Output,
}
