//! `proportional`: cpu and memory beside idle scarce resources are kept for pods that ask for those.

use crate::config::{Fault, Field};

/// How much a unit of `memory` keeps for one idle scarce resource: a gigabyte.
const MEMORY_UNIT_BYTES: i128 = 1_000_000_000;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Proportional {
    resources: Vec<ScarceResource>,
}

/// What is kept for each idle unit of a scarce resource.
#[derive(Debug, PartialEq, Eq)]
struct ScarceResource {
    name: String,
    /// Cores, in thousandths.
    cpu_milli: i64,
    /// Units of memory, in thousandths.
    memory_milli: i64,
}

impl Proportional {
    /// Nothing where it is not enabled.
    pub(super) fn new(field: Field<'_>) -> Result<Option<Self>, Fault> {
        let fields = field.entries()?;
        let enable = fields.get("enable").map_or(Ok(false), |field| field.bool())?;
        let names = fields.get("resources").map_or(Ok(""), |field| field.text())?;
        let given = fields.get("resourceProportion").map_or_else(|| Ok(Default::default()), |field| field.entries())?;
        let rate = |key: String| {
            let rate = given.get(key.as_str()).map_or(Ok(1_000), |field| field.milli())?;
            Ok(if rate < 0 { 1_000 } else { rate })
        };
        let mut resources = Vec::new();
        for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            resources.push(ScarceResource {
                name: name.to_owned(),
                cpu_milli: rate(format!("{name}.cpu"))?,
                memory_milli: rate(format!("{name}.memory"))?,
            });
        }
        Ok(enable.then_some(Self { resources }))
    }

    /// Whether a node keeps enough: `cpu_milli` and `memory_bytes` are what would be left, `idle` the whole units of a
    /// scarce resource that nobody holds. A pod that asks for one of them may take anything.
    pub(super) fn keeps<'a>(
        &self,
        mut asked: impl Iterator<Item = &'a str>,
        cpu_milli: i64,
        memory_bytes: i64,
        idle: impl Fn(&str) -> i64,
    ) -> bool {
        if asked.any(|name| self.resources.iter().any(|scarce| scarce.name == name)) {
            return true;
        }
        self.resources.iter().all(|scarce| {
            let idle = i128::from(idle(&scarce.name).max(0));
            if idle == 0 {
                return true;
            }
            i128::from(cpu_milli) >= idle * i128::from(scarce.cpu_milli)
                && i128::from(memory_bytes) >= idle * i128::from(scarce.memory_milli) * MEMORY_UNIT_BYTES / 1_000
        })
    }
}
