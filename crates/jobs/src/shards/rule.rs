//! The rule of a plan as one line of text, which every pod gets in `PUMICE_SHARDS`.
//!
//! Invariant: equal plans have equal rules, a rule reads back as its plan, and a text that this version would not write the
//! same is refused rather than guessed at. Called with `plan`.
//!
//! ```text
//! v1 chunk=10 array=0-9999
//! v1 chunk=1 days=2024-01-01:2024-12-31 calendar=XNYS open=252 group=month keep=3,7-9
//! v1 chunk=100 bundle=params rows=100000 columns=lr,seed
//! ```

use jiff::civil::Date;

use super::calendar::Calendar;
use super::days::{Days, Group, each_day};
use super::numbers::Numbers;
use super::plan::Plan;
use super::{Bundled, Kind, RULE_BYTES_MAX, Shards};

/// The version that every rule begins with.
const VERSION: &str = "v1";

/// A rule that is too long for a variable of a pod.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the rule takes {bytes} bytes and at most {RULE_BYTES_MAX} fit in a pod; the records must go into a bundle")]
pub struct NoRule {
    /// How long it would be.
    pub bytes: usize,
}

/// A text that is no rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    #[error("the rule takes {bytes} bytes, at most {RULE_BYTES_MAX} are read; submit the job again")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// Written by another version.
    #[error("the rule begins with {found:?} and this version reads {VERSION}; use the version that submitted the job")]
    Version {
        /// Its first word, cut to 20 characters.
        found: String,
    },
    /// A part is wrong.
    #[error("the rule's {field} can't be read; it must be as jobctl wrote it: submit the job again")]
    Field { field: &'static str },
    /// The calendar has changed between versions.
    #[error(
        "the rule counts {recorded} days of its calendar and this version {found}; use the version that submitted the job"
    )]
    Calendar {
        /// As the rule says.
        recorded: u32,
        found: u32,
    },
    /// Read, but not what this version would write.
    #[error("the rule is not as this version writes it; use the version that submitted the job")]
    Spelling,
}

impl Plan {
    /// The rule: deterministic, at most [`RULE_BYTES_MAX`]. `NoRule` means that the records must go into a bundle; the rule of
    /// [`Plan::bundled`] always fits.
    pub fn rule(&self) -> Result<String, NoRule> {
        let rule = format!("{VERSION} chunk={} {}", self.chunk(), records(self.shards()));
        if rule.len() > RULE_BYTES_MAX { Err(NoRule { bytes: rule.len() }) } else { Ok(rule) }
    }

    /// Reads the rule that a pod was told. A rule that this version would not write just so is refused.
    pub fn parse(rule: &str) -> Result<Self, RuleError> {
        if rule.len() > RULE_BYTES_MAX {
            return Err(RuleError::TooLong { bytes: rule.len() });
        }
        let mut words = rule.split(' ');
        let version = words.next().unwrap_or_default();
        if version != VERSION {
            return Err(RuleError::Version { found: version.chars().take(20).collect() });
        }
        let fields: Fields<'_> = Fields(words.filter_map(|word| word.split_once('=')).collect());
        let shards = match (fields.get("array"), fields.get("days")) {
            (Some(numbers), _) => Shards::Numbers(numbers.parse().map_err(|_| RuleError::Field { field: "array" })?),
            (None, Some(range)) => Shards::Days(parse_days(range, &fields)?),
            (None, None) => Shards::Bundled(parse_bundled(&fields)?),
        };
        let plan = Self::new(shards, fields.number("chunk")?).map_err(|_| RuleError::Field { field: "chunk" })?;
        if plan.rule().as_deref() == Ok(rule) { Ok(plan) } else { Err(RuleError::Spelling) }
    }
}

/// The words of a rule after its version, in order.
struct Fields<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Fields<'a> {
    fn get(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }

    fn number(&self, field: &'static str) -> Result<u32, RuleError> {
        self.get(field).and_then(|text| text.parse().ok()).ok_or(RuleError::Field { field })
    }
}

fn records(shards: &Shards) -> String {
    match shards {
        Shards::Numbers(numbers) => format!("array={numbers}"),
        Shards::Days(days) => {
            let (from, to) = days.range();
            let calendar = calendar_text(days);
            let mut text = format!("days={from}:{to} calendar={calendar} open={}", days.open().len());
            if let Some(group) = days.group() {
                text.push_str(&format!(" group={}", group.name()));
            }
            if days.len() < days.periods() {
                text.push_str(&format!(" keep={}", days.selected()));
            }
            text
        }
        Shards::Bundled(Bundled { kind, rows, columns }) => {
            let front = if columns.is_empty() { "" } else { " columns=" };
            format!("bundle={} rows={rows}{front}{}", kind.name(), columns.join(","))
        }
    }
}

/// A named calendar, or by which days of the range, counted from 0, a list differs from weekdays: as a rule just its holidays.
fn calendar_text(days: &Days) -> String {
    match days.calendar() {
        Calendar::All => "all".to_owned(),
        Calendar::Weekdays => "weekdays".to_owned(),
        Calendar::Xnys => "XNYS".to_owned(),
        listed @ Calendar::Listed(_) => {
            let (from, to) = days.range();
            let differs = |day: &Date| listed.is_open(*day) != Calendar::Weekdays.is_open(*day);
            let differing = (0..).zip(each_day(from, to)).filter(|(_, day)| differs(day)).map(|(at, _)| at);
            format!("weekdays^{}", Numbers::from_ascending(&differing.collect::<Vec<u32>>()))
        }
    }
}

fn parse_days(range: &str, fields: &Fields<'_>) -> Result<Days, RuleError> {
    let bad = |field| RuleError::Field { field };
    let (from, to) = Days::parse_range(range).map_err(|_| bad("days"))?;
    let named = fields.get("calendar").ok_or(bad("calendar"))?;
    let calendar = match named.strip_prefix("weekdays^") {
        None => Calendar::named(named).ok_or(bad("calendar"))?,
        Some(differing) => {
            let differing: Numbers = match differing {
                "" => Numbers::default(),
                numbers => numbers.parse().map_err(|_| bad("calendar"))?,
            };
            let is_open =
                |(at, day): &(u32, Date)| Calendar::Weekdays.is_open(*day) != differing.position(*at).is_some();
            // Beyond the years that days may be of, nothing needs to be listed: the range is refused.
            let range = (0..).zip(each_day(from, to)).take(200_000);
            Calendar::Listed(range.filter(is_open).map(|(_, day)| day).collect())
        }
    };
    let group = match fields.get("group") {
        Some(name) => Some(Group::named(name).ok_or(bad("group"))?),
        None => None,
    };
    let days = Days::new(from, to, calendar, group).map_err(|_| bad("days"))?;
    let (recorded, found) = (fields.number("open")?, days.open().len() as u32);
    if recorded != found {
        return Err(RuleError::Calendar { recorded, found });
    }
    match fields.get("keep") {
        None => Ok(days),
        Some(selected) => {
            let selected: Numbers = selected.parse().map_err(|_| bad("keep"))?;
            let within = selected.last().is_some_and(|last| last < days.periods());
            if within { Ok(days.keep(selected)) } else { Err(bad("keep")) }
        }
    }
}

fn parse_bundled(fields: &Fields<'_>) -> Result<Bundled, RuleError> {
    let kind = fields.get("bundle").and_then(Kind::named).ok_or(RuleError::Field { field: "bundle" })?;
    let columns = fields.get("columns").map(|text| text.split(',').map(str::to_owned).collect());
    Ok(Bundled { kind, rows: fields.number("rows")?, columns: columns.unwrap_or_default() })
}
