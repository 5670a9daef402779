//! Nested arguments, read with Volcano's strictness: what does not decode is a [`Fault`] that knows where it stands.
//! Called by the plugins' constructors, which `parse` runs to refuse a file and `Policy` to build the plugins.

use std::collections::BTreeMap;

use pumice_units::Quantity;

use super::{Argument, PluginConfig};
use crate::config::ArgumentError;

/// An argument on which Volcano gives up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Keys and list positions from the plugin's arguments down to the value.
    path: Vec<String>,
    /// What it must be.
    wanted: String,
}

impl From<Fault> for ArgumentError {
    fn from(fault: Fault) -> Self {
        Self { argument: fault.path.join("."), wanted: format!("must be {}", fault.wanted) }
    }
}

impl Fault {
    /// A fault of a top-level argument.
    pub(crate) fn of(argument: &str, wanted: impl Into<String>) -> Self {
        Self { path: vec![argument.to_owned()], wanted: wanted.into() }
    }
}

/// A value and the way to it.
#[derive(Debug, Clone)]
pub(crate) struct Field<'a> {
    path: Vec<String>,
    value: &'a Argument,
}

impl PluginConfig {
    /// A struct-typed argument; `None` where it is absent or empty.
    pub(crate) fn field<'a>(&'a self, name: &str) -> Option<Field<'a>> {
        let value = self.arguments.get(name).filter(|value| **value != Argument::Null)?;
        Some(Field { path: vec![name.to_owned()], value })
    }

    /// A text argument; what is no text is ignored.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        match self.arguments.get(name) {
            Some(Argument::Text(text)) => Some(text),
            _ => None,
        }
    }
}

impl Argument {
    /// A number in thousandths, rounded, saturating.
    fn milli(&self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(value.saturating_mul(1_000)),
            // `as` saturates, and takes what is no number as 0.
            Self::Float(value) => Some((value * 1_000.0).round() as i64),
            _ => None,
        }
    }
}

impl<'a> Field<'a> {
    fn fault(&self, wanted: &str) -> Fault {
        Fault { path: self.path.clone(), wanted: wanted.to_owned() }
    }

    fn inside(&self, step: &str, value: &'a Argument) -> Self {
        let mut path = self.path.clone();
        path.push(step.to_owned());
        Self { path, value }
    }

    /// The entries of a mapping; none for null.
    pub(crate) fn entries(&self) -> Result<BTreeMap<&'a str, Field<'a>>, Fault> {
        match self.value {
            Argument::Map(map) => Ok(map.iter().map(|(key, value)| (key.as_str(), self.inside(key, value))).collect()),
            Argument::Null => Ok(BTreeMap::new()),
            _ => Err(self.fault("a mapping")),
        }
    }

    /// The items of a list; none for null.
    pub(crate) fn items(&self) -> Result<Vec<Field<'a>>, Fault> {
        match self.value {
            Argument::List(list) => {
                Ok(list.iter().enumerate().map(|(at, value)| self.inside(&at.to_string(), value)).collect())
            }
            Argument::Null => Ok(Vec::new()),
            _ => Err(self.fault("a list")),
        }
    }

    pub(crate) fn int(&self) -> Result<i64, Fault> {
        match self.value {
            Argument::Int(value) => Ok(*value),
            Argument::Null => Ok(0),
            _ => Err(self.fault("an integer")),
        }
    }

    /// A number in thousandths, rounded; 0 for null.
    pub(crate) fn milli(&self) -> Result<i64, Fault> {
        match self.value {
            Argument::Null => Ok(0),
            value => value.milli().ok_or_else(|| self.fault("a number")),
        }
    }

    pub(crate) fn bool(&self) -> Result<bool, Fault> {
        match self.value {
            Argument::Bool(value) => Ok(*value),
            Argument::Null => Ok(false),
            _ => Err(self.fault("true or false")),
        }
    }

    pub(crate) fn text(&self) -> Result<&'a str, Fault> {
        match self.value {
            Argument::Text(text) => Ok(text),
            Argument::Null => Ok(""),
            _ => Err(self.fault("text")),
        }
    }

    /// Text, or a number as it would be written.
    pub(crate) fn word(&self) -> Result<String, Fault> {
        match self.value {
            Argument::Text(text) => Ok(text.clone()),
            Argument::Int(value) => Ok(value.to_string()),
            Argument::Bool(value) => Ok(value.to_string()),
            _ => Err(self.fault("text")),
        }
    }

    /// A quantity: milli-cores with `cpu`, else whole units.
    pub(crate) fn quantity(&self, cpu: bool) -> Result<i64, Fault> {
        let quantity: Quantity = self.word()?.parse().map_err(|_| self.fault("a quantity such as 250m or 200Mi"))?;
        Ok(if cpu { quantity.cpu_milli() } else { quantity.value() })
    }
}
