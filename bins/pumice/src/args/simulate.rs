//! Flags of `pumice scheduler simulate`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use pumice_lab::simulate::{Delays, Looks, Request, swf};

/// How the answer is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// For people
    Table,
    /// For programs
    Json,
    /// A picture
    Svg,
}

/// Of what the jobs of an SWF log are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Parts {
    /// As few pods as the cores of one node allow
    Nodes,
    /// A pod for each processor
    Cores,
}

/// `pumice scheduler simulate`.
#[derive(Debug, Args)]
pub struct SimulateArgs {
    /// What is run: a log (.swf), a trace of jobs (.jsonl), a workload of Armada's simulator (.yaml), or a model
    /// (lublin, farm, ml) with its parameters, such as farm:days=7,load=0.9
    #[arg(long, value_name = "TRACE")]
    trace: String,
    /// The nodes, such as 100x16cpu,64Gi+4x64cpu,512Gi,8gpu, or a file of Node objects or of clusters of Armada's
    /// simulator [default: what the log or the model says]
    #[arg(long, value_name = "NODES")]
    nodes: Option<String>,
    /// The scheduler's configuration [default: the built-in one]
    #[arg(long, value_name = "FILE")]
    conf: Option<PathBuf>,
    /// Another configuration, to compare with it
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// Also run fifo, easy, conservative, or volcano (the configuration without reservations); repeatable
    #[arg(long, value_name = "POLICY", value_delimiter = ',')]
    against: Vec<String>,
    /// Of what the jobs of a log are made
    #[arg(long, value_name = "PARTS", value_enum, default_value_t = Parts::Nodes)]
    pods: Parts,
    /// Leave out what was submitted in so many days at the beginning
    #[arg(long, value_name = "DAYS", default_value_t = 0)]
    skip: u32,
    /// Take only what was submitted in so many days after that [default: all]
    #[arg(long, value_name = "DAYS")]
    days: Option<u32>,
    /// The first part of the time, 0 to 1, that utilisation and unfairness leave out
    #[arg(long, value_name = "PART", default_value_t = 0.01)]
    warm_up: f64,
    /// Seconds from an eviction until the pod is gone
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    grace: u32,
    /// Also ask of each job when it will start, and say how starts came beside that
    #[arg(long)]
    forecasts: bool,
    /// Also ask of each job how long it will run, and say how runs came beside that
    #[arg(long)]
    predictors: bool,
    /// How the answer is printed
    #[arg(short, long, value_enum, default_value_t = Form::Table)]
    pub output: Form,
    /// What is logged to standard error, such as info or pumice_scheduler=debug
    #[arg(long, value_name = "FILTER", default_value = "warn")]
    pub log: String,
}

impl SimulateArgs {
    /// What is asked for.
    pub fn request(&self) -> Request {
        Request {
            trace: self.trace.clone(),
            nodes: self.nodes.clone(),
            config: self.conf.clone(),
            compare: self.compare.clone(),
            against: self.against.clone(),
            parts: match self.pods {
                Parts::Nodes => swf::Parts::Nodes,
                Parts::Cores => swf::Parts::Cores,
            },
            skip_days: self.skip,
            days: self.days,
            warm_up: self.warm_up,
            looks: Looks { forecasts: self.forecasts, predictors: self.predictors, series: self.output == Form::Svg },
            delays: Delays { grace_ms: i64::from(self.grace) * 1_000, ..Delays::default() },
        }
    }
}
