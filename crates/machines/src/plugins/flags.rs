//! Arguments of plugins, read as Go's `flag` package reads a command line.
//!
//! Invariant: reading stops at the first thing that is not a known flag, and what was read before it counts. Volcano's own
//! tests pass flags that don't exist, so this never fails; what was not read is returned.

use std::collections::BTreeMap;

/// A flag that a plugin knows.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Name without dashes.
    pub name: &'static str,
    pub kind: Kind,
}

/// What a flag takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing, or `=true` or `=false`.
    Bool,
    Text,
    /// A whole number.
    Int,
}

/// Values by flag name; `true` and `false` for booleans.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values {
    values: BTreeMap<&'static str, String>,
    /// The argument at which reading stopped.
    pub stopped_at: Option<String>,
}

impl Values {
    /// The text of a flag.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// The text of a flag, or `default`.
    pub fn text_or(&self, name: &str, default: &str) -> String {
        self.text(name).unwrap_or(default).to_owned()
    }

    /// A port, or `default` where none is given that can be one.
    pub fn port_or(&self, name: &str, default: u16) -> u16 {
        self.text(name).and_then(|text| text.parse().ok()).filter(|port| *port != 0).unwrap_or(default)
    }

    /// A boolean, or `default`.
    pub fn bool_or(&self, name: &str, default: bool) -> bool {
        self.text(name).map_or(default, |text| text == "true")
    }
}

/// Reads the arguments of a plugin as Go's package `flag` does, up to the first that it can't read.
pub fn parse(arguments: &[String], known: &[Flag]) -> Values {
    let mut out = Values::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let body = match argument.strip_prefix("--").or_else(|| argument.strip_prefix('-')) {
            Some(body) if !body.is_empty() && !body.starts_with(['-', '=']) => body,
            _ => {
                out.stopped_at = Some(argument.clone());
                return out;
            }
        };
        let (name, given) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (body, None),
        };
        let flag = known.iter().find(|flag| flag.name == name);
        let value = flag.and_then(|flag| match (flag.kind, given) {
            (Kind::Bool, None) => Some("true".to_owned()),
            (Kind::Bool, Some(text)) => parse_bool(text).map(|value| value.to_string()),
            (Kind::Text, given) => given.or_else(|| rest.next().map(String::as_str)).map(str::to_owned),
            (Kind::Int, given) => {
                let text = given.or_else(|| rest.next().map(String::as_str))?;
                text.parse::<i64>().ok().map(|value| value.to_string())
            }
        });
        match (flag, value) {
            (Some(flag), Some(value)) => out.values.insert(flag.name, value),
            _ => {
                out.stopped_at = Some(argument.clone());
                return out;
            }
        };
    }
    out
}

fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[Flag] = &[
        Flag { name: "quick", kind: Kind::Bool },
        Flag { name: "path", kind: Kind::Text },
        Flag { name: "port", kind: Kind::Int },
    ];

    #[test]
    fn arguments_are_read_as_go_reads_them() {
        type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], Option<&'a str>);
        let cases: &[Case<'_>] = &[
            (&[], &[], None),
            (&["--quick"], &[("quick", "true")], None),
            (&["-quick=0"], &[("quick", "false")], None),
            (&["--quick=maybe"], &[], Some("--quick=maybe")),
            (&["--path=/a"], &[("path", "/a")], None),
            (&["-path", "/a", "--port", "7"], &[("path", "/a"), ("port", "7")], None),
            (&["--path"], &[], Some("--path")),
            (&["--port=x"], &[], Some("--port=x")),
            (&["--path=/a", "--no-root", "--quick"], &[("path", "/a")], Some("--no-root")),
            (&["word", "--quick"], &[], Some("word")),
            (&["--"], &[], Some("--")),
            (&["-"], &[], Some("-")),
            (&["---quick"], &[], Some("---quick")),
            (&["--=x"], &[], Some("--=x")),
            (&["--path="], &[("path", "")], None),
        ];
        for (arguments, expected, stopped_at) in cases {
            let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
            let read = parse(&arguments, KNOWN);
            let expected: BTreeMap<&str, String> = expected.iter().map(|(k, v)| (*k, (*v).to_owned())).collect();
            assert_eq!(read.values, expected, "{arguments:?}");
            assert_eq!(read.stopped_at.as_deref(), *stopped_at, "{arguments:?}");
        }
    }
}
