//! `pumice scheduler`: the scheduler by itself on a cluster, and its tools for one who has no cluster at hand.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use pumice_lab::check::{Counts, Outcome, check, check_recorded};
use pumice_recording::is_case;
use pumice_scheduler::{Options, plugins};

use crate::args::SchedulerCommand;
use crate::args::record::RecordCommand;
use crate::args::scheduler::RunArgs;
use crate::args::simulate::{Form, SimulateArgs};
use crate::output;
use crate::standalone;

mod record;

/// A case failed, or a plan came out otherwise.
const FAILED: u8 = 1;
/// Volcano's port of the scheduler's metrics.
const METRICS_PORT: u16 = 8080;
/// There was nothing to check, to simulate, or to run.
const UNREADABLE: u8 = 2;

pub fn run(command: &SchedulerCommand) -> ExitCode {
    let file = match command {
        SchedulerCommand::Check { file } => file,
        SchedulerCommand::Replay(args) => {
            return match record::run_again(args) {
                Ok(true) => ExitCode::SUCCESS,
                Ok(false) => ExitCode::from(FAILED),
                Err(error) => output::fail(&error, UNREADABLE),
            };
        }
        SchedulerCommand::Record(RecordCommand::Cut(args)) => {
            return match record::cut_out(args) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => output::fail(&error, UNREADABLE),
            };
        }
        SchedulerCommand::Run(args) => {
            return match run_alone(args) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => output::fail(&error, FAILED),
            };
        }
        SchedulerCommand::Simulate(args) => {
            return match simulate(args) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => output::fail(&error, UNREADABLE),
            };
        }
    };
    match check_file(file) {
        Ok(counts) if counts.failed == 0 => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(FAILED),
        Err(error) => output::fail(&error, UNREADABLE),
    }
}

/// Schedules until a signal, or until the Lease is lost: whoever runs us starts us again then.
fn run_alone(args: &RunArgs) -> anyhow::Result<()> {
    standalone::run(&args.cluster, async |client, stop| {
        let mut options = Options::new(client);
        options.scheduler_names = args.own.schedulers();
        options.nodes_meet_claims = args.own.own_cluster;
        args.policy.apply(&mut options);
        options.record = args.record.clone().map(|folder| args.keep.options(folder));
        options.lease = args.lease(standalone::identity()).map_err(anyhow::Error::msg)?;
        let scheduler = options.build().context("start the scheduler")?;
        let watched = standalone::watched(&args.serving, METRICS_PORT, scheduler.handle()).await?;
        tokio::select! {
            result = scheduler.run(stop) => result.context("run the scheduler"),
            () = watched => Ok(()),
        }
    })
}

fn simulate(args: &SimulateArgs) -> anyhow::Result<()> {
    crate::logging::start(&args.log, None)?;
    let simulation = pumice_lab::simulate::read(&args.request())?;
    let report = simulation.run(|_, _| {});
    let text = match args.output {
        Form::Table => report.table(),
        Form::Svg => report.svg(),
        Form::Json => serde_json::to_string_pretty(&report).context("print the answer")? + "\n",
    };
    output::print(&text)
}

fn check_file(file: &Path) -> anyhow::Result<Counts> {
    let unread = || format!("{} could not be read", file.display());
    let unchecked = || format!("{} can't be checked", file.display());
    let mut out = std::io::stdout().lock();
    let mut written = Ok(());
    let each = |outcome: &Outcome| {
        if written.is_ok() {
            written = writeln!(out, "{outcome}");
        }
    };
    let counts = if is_case(file).with_context(unread)? {
        check_recorded(file, &plugins(), each).with_context(unchecked)?
    } else {
        check(&std::fs::read_to_string(file).with_context(unread)?, each).with_context(unchecked)?
    };
    output::written(written.and_then(|()| writeln!(out, "{counts}")))?;
    Ok(counts)
}
