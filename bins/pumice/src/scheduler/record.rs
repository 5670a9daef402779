//! `pumice scheduler replay` and `record`: what a recording says when it is run again, and what is cut out of it.

use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;
use pumice_lab::simulate::recorded;
use pumice_lab::simulate::whatif::{Other, what_if};
use pumice_recording::{Beginning, Recording, Replay, config_of, cut, replay, time};
use pumice_scheduler::plugins;
use serde_json::json;

use crate::args::record::{CutArgs, Output, ReplayArgs};
use crate::output;

/// Cuts a case out of a recording.
pub fn cut_out(args: &CutArgs) -> anyhow::Result<()> {
    let recording = Recording::open(&args.folder)?;
    let about = cut(&recording, &plugins(), &args.stretch(), &args.file).context("nothing was cut")?;
    let (cycles, from, to) = (about.cycles, time(about.from), time(about.to));
    let file = args.file.display();
    let text = format!("{file}: {cycles} cycles from {from} to {to}\n");
    output::print(&text)
}

/// Runs a recording's jobs under another configuration, or with other weights of queues.
fn run_otherwise(args: &ReplayArgs) -> anyhow::Result<()> {
    let recording = Recording::open(&args.folder)?;
    let recorded = recorded::read(&recording, args.range.range())?;
    let before = config_of(&recorded.beginning, &plugins()).context("the recording can't be run")?;
    let config = match &args.conf {
        Some(conf) => {
            let text =
                std::fs::read_to_string(conf).with_context(|| format!("{} could not be read", conf.display()))?;
            let other = Beginning { config: Some(text), ..recorded.beginning.clone() };
            let refused = || format!("scheduler configuration {} refused", conf.display());
            config_of(&other, &plugins()).with_context(refused)?
        }
        None => before.clone(),
    };
    let name = |path: &Path| path.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let weights = || {
        let each = args.weight.iter().map(|(queue, weight)| format!("{queue}={weight}"));
        each.collect::<Vec<_>>().join(",")
    };
    let other = Other {
        name: args.conf.as_deref().map_or_else(weights, name),
        config,
        weights: args.weight.iter().cloned().collect(),
    };
    let outcome = what_if(name(&args.folder), recorded, before, other, plugins())?;
    let text = match args.output {
        Output::Table => outcome.table(),
        Output::Json => serde_json::to_string_pretty(&outcome).context("print the outcome")? + "\n",
    };
    output::print(&text)
}

/// Runs a recording again; true if every plan came out as it was recorded.
pub fn run_again(args: &ReplayArgs) -> anyhow::Result<bool> {
    if args.conf.is_some() || !args.weight.is_empty() {
        return run_otherwise(args).map(|()| true);
    }
    #[allow(clippy::disallowed_methods, reason = "how long it takes is told")]
    let started = Instant::now();
    let recording = Recording::open(&args.folder)?;
    let told = replay(&recording, &plugins(), args.range.range()).context("the recording can't be run again")?;
    let seconds = started.elapsed().as_secs_f64();
    let text = match args.output {
        Output::Table => table(&told, seconds),
        Output::Json => format!("{:#}\n", object(&told, seconds)),
    };
    output::print(&text)?;
    Ok(told.difference.is_none())
}

fn table(told: &Replay, seconds: f64) -> String {
    let mut lines = Vec::new();
    let mut line = |name: &str, value: String| lines.push(format!("{name:<10} {value}"));
    if let Some((first, last)) = told.times {
        line("from", time(first));
        line("to", time(last));
    }
    line("days", format!("{:.3}", told.length_ms() as f64 / 86_400_000.0));
    line("cycles", told.cycles.to_string());
    line("binds", told.binds.to_string());
    line("evictions", told.evictions.to_string());
    line("changes", told.changes.to_string());
    line("worlds", told.worlds.to_string());
    if told.panics > 0 {
        line("panics", told.panics.to_string());
    }
    line("seconds", format!("{seconds:.1}"));
    lines.extend(told.breaks.iter().map(|what| format!("break: {what}")));
    let outcome = match &told.difference {
        None if told.cycles == 0 => "no cycle was compared\n".to_owned(),
        None => "bit for bit the same\n".to_owned(),
        Some(difference) => {
            let at = time(difference.recorded.at);
            format!("cycle {} at {at} came out otherwise:\n{difference}", difference.cycle)
        }
    };
    lines.join("\n") + "\n" + &outcome
}

fn object(told: &Replay, seconds: f64) -> serde_json::Value {
    let difference = told.difference.as_ref().map(|difference| {
        json!({ "cycle": difference.cycle, "recorded": difference.recorded, "replayed": difference.replayed })
    });
    json!({
        "from": told.times.map(|(first, _)| time(first)),
        "to": told.times.map(|(_, last)| time(last)),
        "cycles": told.cycles,
        "binds": told.binds,
        "evictions": told.evictions,
        "changes": told.changes,
        "worlds": told.worlds,
        "panics": told.panics,
        "seconds": seconds,
        "breaks": told.breaks.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "same": told.difference.is_none(),
        "difference": difference,
    })
}

#[cfg(test)]
mod tests {
    use pumice_recording::{Bound, Break, Cycle, Difference, TimeMs};

    use super::*;

    #[test]
    fn outcomes_read_well() {
        let at = TimeMs(1_767_225_600_000);
        let bound = |node: &str| Bound { uid: "u1".into(), pod: "ns/job-0".into(), node: node.into() };
        let same = Replay {
            worlds: 1,
            changes: 9_120,
            cycles: 310,
            binds: 42,
            times: Some((at, at.plus_ms(43_200_000))),
            breaks: vec![Break::CutOff { segment: 3, at: 812 }],
            ..Replay::default()
        };
        let difference = Difference {
            cycle: 310,
            recorded: Cycle { at, digest: 1, binds: vec![bound("n1")], ..Cycle::default() },
            replayed: Cycle { at, digest: 2, binds: vec![bound("n2")], ..Cycle::default() },
        };
        let other = Replay { difference: Some(difference), panics: 1, ..same.clone() };
        let texts = [table(&same, 1.26), table(&other, 1.26), table(&Replay::default(), 0.0)];
        insta::assert_snapshot!(texts.join("---\n"));
        insta::assert_snapshot!(format!("{:#}", object(&other, 1.5)));
    }
}
