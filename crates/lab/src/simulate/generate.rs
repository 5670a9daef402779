//! Workloads made from models: `lublin:jobs=10000,seed=1,load=0.9`.
//!
//! Invariant: the same words give the same jobs on every machine. Called by the edge that reads traces. Each model is a
//! file of its own; all of them draw from `random`.

use std::collections::HashMap;
use std::sync::Arc;

use super::trace::{JOBS_MAX, Job, Notes, Trace};

mod estimates;
mod farm;
mod lublin;
mod ml;
mod random;

pub(super) use random::Random;

/// Days of a generated farm.
const DAYS_MAX: u32 = 366;
/// Pods a day of it.
const PODS_A_DAY_MAX: u32 = 2_000_000;

/// Why a workload can't be generated.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum GenerateError {
    /// There is no such model.
    #[error("there is no model {0:?}: use lublin, farm or ml")]
    Model(String),
    /// It has no such parameter.
    #[error("{model} has no parameter {name:?}: it has {known}")]
    Parameter { model: &'static str, name: String, known: &'static str },
    /// A parameter is not a number that it may be.
    #[error("{name}={value:?}: between {least} and {most}")]
    Value {
        name: String,
        value: String,
        /// The least that it may be.
        least: f64,
        /// The most.
        most: f64,
    },
}

/// Jobs of a model, in any order, and where they are to run if nobody says.
struct Generated {
    jobs: Vec<Job>,
    queues: Vec<(Arc<str>, i32)>,
    nodes: String,
}

/// Whether a text names a model: what stands before the colon, or all of it, is one's name.
pub fn is_model(text: &str) -> bool {
    MODELS.contains(&text.split(':').next().unwrap_or_default())
}

const MODELS: [&str; 3] = ["lublin", "farm", "ml"];

/// The workload that `text` names, and the nodes it is made for as `--nodes` takes them.
///
/// # Errors
/// When there is no such model, or a parameter is not what it may be.
pub fn generate(text: &str) -> Result<(Trace, String), GenerateError> {
    let (model, words) = text.split_once(':').unwrap_or((text, ""));
    let mut given = Parameters::read(words);
    let generated = match model {
        "lublin" => {
            let (jobs, seed) = (given.jobs()?, given.seed()?);
            let processors = given.take("procs", 256.0, 1.0, 100_000.0)? as u32;
            let load = given.take("load", 0.9, 0.01, 10.0)?;
            given.done("lublin", "jobs, seed, procs and load")?;
            lublin::generate(jobs, processors, load, seed)
        }
        "farm" => {
            let days = given.take("days", 3.0, 1.0, f64::from(DAYS_MAX))? as u32;
            let pods = given.take("pods", 100_000.0, 1.0, f64::from(PODS_A_DAY_MAX))? as u32;
            let (load, seed) = (given.take("load", 0.9, 0.01, 10.0)?, given.seed()?);
            given.done("farm", "days, pods (a day), load and seed")?;
            farm::generate(days, pods, load, seed)
        }
        "ml" => {
            let (jobs, seed) = (given.jobs()?, given.seed()?);
            let machines = given.take("machines", 64.0, 1.0, 10_000.0)? as u32;
            let load = given.take("load", 0.9, 0.01, 10.0)?;
            given.done("ml", "jobs, seed, machines and load")?;
            ml::generate(jobs, machines, load, seed)
        }
        other => return Err(GenerateError::Model(other.to_owned())),
    };
    let trace = Trace::new(generated.jobs, generated.queues.into_iter().collect(), Notes::default());
    // The order in which a model draws its jobs is nothing that anybody did.
    Ok((Trace { notes: Notes::default(), ..trace }, generated.nodes))
}

/// `name=number`, several joined by commas.
struct Parameters {
    left: Vec<(String, String)>,
}

impl Parameters {
    fn read(words: &str) -> Self {
        let words = words.split(',').map(str::trim).filter(|word| !word.is_empty());
        let pair = |word: &str| {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            (name.to_owned(), value.to_owned())
        };
        Self { left: words.map(pair).collect() }
    }

    fn take(&mut self, name: &str, otherwise: f64, least: f64, most: f64) -> Result<f64, GenerateError> {
        let Some(place) = self.left.iter().position(|(given, _)| given == name) else { return Ok(otherwise) };
        let (name, value) = self.left.remove(place);
        let number = value.parse::<f64>().ok().filter(|number| (least..=most).contains(number));
        number.ok_or(GenerateError::Value { name, value, least, most })
    }

    fn jobs(&mut self) -> Result<usize, GenerateError> {
        Ok(self.take("jobs", 10_000.0, 1.0, JOBS_MAX as f64)? as usize)
    }

    fn seed(&mut self) -> Result<u64, GenerateError> {
        Ok(self.take("seed", 1.0, 0.0, 9.0e15)? as u64)
    }

    fn done(self, model: &'static str, known: &'static str) -> Result<(), GenerateError> {
        match self.left.into_iter().next() {
            Some((name, _)) => Err(GenerateError::Parameter { model, name, known }),
            None => Ok(()),
        }
    }
}

fn user(number: usize) -> Arc<str> {
    format!("user{:03}", number + 1).into()
}

/// How long the jobs of each user's kinds typically run, drawn when a kind first comes.
#[derive(Default)]
struct Kinds {
    typical_s: HashMap<(usize, Arc<str>), f64>,
}

/// How far the kinds of one model lie apart, as the deviation of the logarithm.
const KINDS_APART: f64 = 0.8;

impl Kinds {
    fn typical(&mut self, random: &mut Random, user: usize, profile: &Arc<str>, median_s: f64) -> f64 {
        let drawn = random.log_normal(median_s, KINDS_APART);
        self.typical_as(user, profile, drawn)
    }

    /// What was drawn for the kind before, or this.
    fn typical_as(&mut self, user: usize, profile: &Arc<str>, drawn_s: f64) -> f64 {
        *self.typical_s.entry((user, profile.clone())).or_insert(drawn_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::nodes;

    fn load(trace: &Trace, resource: &str, offered: f64) -> f64 {
        let amount = |job: &Job| job.requests.get(resource).copied().unwrap_or(0) as f64 * f64::from(job.pods);
        let work: f64 = trace.jobs.iter().map(|job| amount(job) * job.held_ms() as f64).sum();
        work / (offered * trace.jobs.last().unwrap().submit_ms as f64)
    }

    #[test]
    fn the_same_words_give_the_same_jobs() {
        for words in ["lublin:jobs=500,seed=4", "farm:days=1,pods=5000", "ml:jobs=500,seed=9,load=0.5"] {
            assert!(is_model(words));
            let (trace, text) = generate(words).unwrap();
            assert_eq!(generate(words).unwrap(), (trace.clone(), text.clone()), "{words}");
            let mut fitted = trace.clone();
            fitted.fit(&nodes::parse(&text).unwrap());
            assert_eq!(fitted.jobs.len(), trace.jobs.len(), "{words}: all fit where they are meant to run");
        }
        assert_ne!(generate("lublin:jobs=50,seed=1").unwrap(), generate("lublin:jobs=50,seed=2").unwrap());
    }

    #[test]
    fn lublins_jobs_are_as_published() {
        let (trace, _) = generate("lublin:jobs=20000,load=0.8").unwrap();
        let part = |is: fn(&Job) -> bool| trace.jobs.iter().filter(|job| is(job)).count() as f64 / 20_000.0;
        let serial = part(|job| job.pods == 1);
        assert!((0.24..0.30).contains(&serial), "{serial}");
        let powers = part(|job| job.pods.is_power_of_two());
        // Serial ones are a power of two, and some of the others by chance.
        assert!((0.82..0.90).contains(&powers), "{powers}");
        assert!((0.79..0.81).contains(&load(&trace, "cpu", 256_000.0)));
        // The clock begins with the first job, so that only how hours differ can be told.
        let mut by_hour = [0_u32; 24];
        trace.jobs.iter().for_each(|job| by_hour[(job.submit_ms / 3_600_000 % 24) as usize] += 1);
        let (least, most) = (by_hour.iter().min().unwrap(), by_hour.iter().max().unwrap());
        assert!(most > &(3 * least), "{by_hour:?}");
    }

    #[test]
    fn farms_and_training_are_as_described() {
        let (farm, _) = generate("farm:days=2,pods=20000").unwrap();
        let pods: u64 = farm.jobs.iter().map(|job| u64::from(job.pods)).sum();
        assert!((40_000..60_000).contains(&pods), "{pods}");
        assert_eq!(farm.queues.len(), 2);
        let nodes = |words: &str| nodes::parse(&generate(words).unwrap().1).unwrap().len();
        let (light, heavy) = (nodes("farm:days=2,pods=20000,load=0.3"), nodes("farm:days=2,pods=20000,load=1.2"));
        assert!(light > 3 * heavy && heavy >= 4, "{light} and {heavy} nodes");
        let (ml, _) = generate("ml:jobs=20000").unwrap();
        let mut runs: Vec<i64> = ml.jobs.iter().map(|job| job.run_ms / 1_000).collect();
        runs.sort_unstable();
        assert!((80..500).contains(&runs[10_000]), "{}", runs[10_000]);
        assert!((0.85..0.95).contains(&load(&ml, "nvidia.com/gpu", 512.0)));
    }

    #[test]
    fn wrong_words_are_named() {
        for (words, message) in [
            ("poisson:jobs=1", "there is no model \"poisson\""),
            ("lublin:jbos=1", "lublin has no parameter \"jbos\""),
            ("lublin:jobs=0", "jobs=\"0\": between 1 and"),
            ("lublin:load=NaN", "load=\"NaN\""),
            ("farm:days", "days=\"\""),
            ("ml:seed=-1", "seed=\"-1\""),
        ] {
            let error = generate(words).unwrap_err().to_string();
            assert!(error.starts_with(message), "{words}: {error}");
        }
    }
}
