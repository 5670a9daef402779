//! Volcano's configuration file into a `Config`. What Volcano refuses is refused, naming the line; what it ignores warns.

use std::collections::BTreeMap;

use crate::builtin_plugins::NOT_YET;
use crate::config::{Action, Argument, Config, ConfigError, PluginConfig, Switch, Switches, Warning, WarningKind};
use crate::config::{autoscaling, fairness, promise, reservation};
use crate::plugin::Registry;

mod metrics;
#[cfg(test)]
mod tests;
mod tree;

use tree::{Tree, Value};

/// In bytes; a longer configuration is refused.
const BYTES_MAX: usize = 1 << 20;

impl Config {
    /// Reads Volcano's configuration file.
    ///
    /// # Errors
    /// Where Volcano refuses the file: it is not YAML, it names no action or one that does not exist, or a tier
    /// combines drf's hierarchy with proportion. The error names the line.
    pub fn parse(text: &str) -> Result<(Config, Vec<Warning>), ConfigError> {
        Self::parse_with(text, &Registry::default())
    }

    /// Reads a configuration file that may name the plugins of `registry`.
    ///
    /// # Errors
    /// As `parse`.
    pub fn parse_with(text: &str, registry: &Registry) -> Result<(Config, Vec<Warning>), ConfigError> {
        if text.len() > BYTES_MAX {
            return Err(ConfigError::ReadLimit { bytes: text.len(), bytes_max: BYTES_MAX });
        }
        let tree = Tree::read(text).map_err(|error| ConfigError::Syntax {
            line: error.location().map_or(0, |location| location.line()),
            message: error.without_snippet().to_string().split(" at line ").next().unwrap_or_default().to_owned(),
        })?;
        let mut reader = Reader { warnings: Vec::new(), registry };
        let config = reader.config(&tree)?;
        Ok((config, reader.warnings))
    }
}

struct Reader<'r> {
    warnings: Vec<Warning>,
    registry: &'r Registry,
}

impl Reader<'_> {
    fn warn(&mut self, line: u64, kind: WarningKind) {
        self.warnings.push(Warning { line, kind });
    }

    fn config(&mut self, tree: &Tree) -> Result<Config, ConfigError> {
        let mut config =
            Config { actions: Vec::new(), tiers: Vec::new(), configurations: BTreeMap::new(), ..Config::default() };
        let mut actions_line = None;
        for (key, value) in map(tree, "the file")? {
            match key.as_str() {
                "actions" => {
                    actions_line = Some(value.line);
                    config.actions = self.actions(value)?;
                }
                "tiers" => {
                    for tier in list(value, "tiers")? {
                        config.tiers.push(self.tier(tier)?);
                    }
                }
                "configurations" => {
                    for item in list(value, "configurations")? {
                        self.configuration(item, &mut config)?;
                    }
                }
                "metrics" => {
                    config.metrics = metrics::read(value, |line, kind| self.warn(line, kind))?;
                }
                _ => self.warn(value.line, WarningKind::UnknownKey { key: key.clone() }),
            }
        }
        match actions_line {
            Some(_) => Ok(config),
            None => Err(ConfigError::NoAction { line: tree.line }),
        }
    }

    fn actions(&mut self, tree: &Tree) -> Result<Vec<Action>, ConfigError> {
        let text = text(tree, "actions")?;
        if text.trim().is_empty() {
            return Err(ConfigError::NoAction { line: tree.line });
        }
        let mut actions = Vec::new();
        for name in text.split(',').map(str::trim) {
            match Action::from_name(name) {
                Some(action) => actions.push(action),
                None => return Err(ConfigError::UnknownAction { line: tree.line, action: name.to_owned() }),
            }
        }
        Ok(actions)
    }

    fn tier(&mut self, tree: &Tree) -> Result<Vec<PluginConfig>, ConfigError> {
        let mut configs = Vec::new();
        for (key, value) in map(tree, "a tier")? {
            if key != "plugins" {
                self.warn(value.line, WarningKind::UnknownKey { key: key.clone() });
                continue;
            }
            for item in list(value, "plugins")? {
                configs.push((self.plugin(item)?, item.line));
            }
        }
        let hierarchy =
            configs.iter().find(|(config, _)| config.name == "drf" && config.switches.has(Switch::Hierarchy));
        let proportion = configs.iter().any(|(config, _)| config.name == "proportion");
        match hierarchy {
            Some((_, line)) if proportion => Err(ConfigError::HierarchyWithProportion { line: *line }),
            _ => Ok(configs.into_iter().map(|(config, _)| config).collect()),
        }
    }

    fn plugin(&mut self, tree: &Tree) -> Result<PluginConfig, ConfigError> {
        let mut config =
            PluginConfig { name: String::new(), switches: Switches::default(), arguments: BTreeMap::new() };
        let mut arguments: &[(String, Tree)] = &[];
        for (key, value) in map(tree, "a plugin")? {
            if key == "name" {
                config.name = text(value, "name")?.to_owned();
            } else if key == "arguments" {
                arguments = map(value, "arguments")?;
                config.arguments = self.arguments(value)?;
            } else if let Some(switch) = Switch::ALL.iter().find(|switch| switch.key() == key) {
                match &value.value {
                    Value::Scalar(Argument::Bool(on)) => config.switches.set(*switch, *on),
                    Value::Scalar(Argument::Null) => {}
                    _ => {
                        return Err(ConfigError::WrongType {
                            line: value.line,
                            what: key.clone(),
                            wanted: "true or false",
                        });
                    }
                }
            } else {
                self.warn(value.line, WarningKind::UnknownKey { key: key.clone() });
            }
        }
        if self.registry.has(&config.name) {
            self.check_arguments(tree.line, &config, arguments)?;
        } else if NOT_YET.contains(&config.name.as_str()) {
            self.warn(tree.line, WarningKind::NotInThisVersion { what: format!("plugin {}", config.name) });
        } else {
            self.warn(tree.line, WarningKind::UnknownPlugin { plugin: config.name.clone() });
        }
        Ok(config)
    }

    /// Builds the plugin to see whether it takes its arguments, and warns of those that have no effect.
    fn check_arguments(
        &mut self,
        line: u64,
        config: &PluginConfig,
        arguments: &[(String, Tree)],
    ) -> Result<(), ConfigError> {
        let plugin = &config.name;
        for (name, value) in arguments {
            if !self.registry.reads(plugin, name) {
                let (plugin, argument) = (plugin.clone(), name.clone());
                self.warn(value.line, WarningKind::UnknownArgument { plugin, argument });
            } else if let Some(wanted) = ignored(plugin, name, &Argument::from(&value.value)) {
                let what = format!("argument {name} of plugin {plugin}");
                self.warn(value.line, WarningKind::IgnoredValue { what, wanted });
            }
        }
        self.registry.build(config).map(drop).map_err(|error| ConfigError::BadArgument {
            line: line_of(arguments, &error.argument).unwrap_or(line),
            plugin: plugin.clone(),
            error,
        })
    }

    fn configuration(&mut self, tree: &Tree, config: &mut Config) -> Result<(), ConfigError> {
        let (mut name, mut arguments) = (String::new(), BTreeMap::new());
        for (key, value) in map(tree, "a configuration")? {
            match key.as_str() {
                "name" => name = text(value, "name")?.to_owned(),
                "arguments" => arguments = self.arguments(value)?,
                _ => self.warn(value.line, WarningKind::UnknownKey { key: key.clone() }),
            }
        }
        if let Some(judge) = judge_of(&name) {
            self.judge(&name, judge, tree.line, &arguments)?;
        }
        config.configurations.insert(name, arguments);
        Ok(())
    }

    /// Ours, and not Volcano's: a value that means nothing is refused.
    fn judge(
        &mut self,
        of: &str,
        judge: Judge,
        line: u64,
        arguments: &BTreeMap<String, Argument>,
    ) -> Result<(), ConfigError> {
        for (name, value) in arguments {
            match judge(name, value) {
                None => self.warn(line, WarningKind::UnknownKey { key: name.clone() }),
                Some((false, wanted)) => {
                    return Err(ConfigError::WrongType { line, what: format!("{name} of {of}"), wanted });
                }
                Some((true, _)) => {}
            }
        }
        Ok(())
    }

    fn arguments(&mut self, tree: &Tree) -> Result<BTreeMap<String, Argument>, ConfigError> {
        Ok(map(tree, "arguments")?.iter().map(|(key, value)| (key.clone(), Argument::from(&value.value))).collect())
    }
}

/// Whether an argument's value means something, and what it must be; nothing for an argument that there is not.
type Judge = fn(&str, &Argument) -> Option<(bool, &'static str)>;

fn judge_of(name: &str) -> Option<Judge> {
    match name {
        autoscaling::NAME => Some(autoscaling::judge),
        fairness::NAME => Some(fairness::judge),
        promise::NAME => Some(promise::judge),
        reservation::NAME => Some(reservation::judge),
        _ => None,
    }
}

/// The line of the value at `path`, a way of keys and list positions joined by dots, which keys may hold, too.
fn line_of(entries: &[(String, Tree)], path: &str) -> Option<u64> {
    entries.iter().find_map(|(key, value)| line_in(value, path.strip_prefix(key.as_str())?))
}

fn line_in(tree: &Tree, rest: &str) -> Option<u64> {
    if rest.is_empty() {
        return Some(tree.line);
    }
    let rest = rest.strip_prefix('.')?;
    match &tree.value {
        Value::Map(entries) => line_of(entries, rest),
        Value::List(items) => {
            let (at, rest) = rest.find('.').map_or((rest, ""), |dot| rest.split_at(dot));
            line_in(items.get(at.parse::<usize>().ok()?)?, rest)
        }
        Value::Scalar(_) => None,
    }
}

/// What one of Volcano's strict getters takes: a value of another type has no effect there, and none here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ArgumentKind {
    Int,
    /// An integer counts as one, too.
    Number,
    /// The words true and false, too.
    Bool,
    Text,
}

/// Plugin, argument (one that ends in `*` stands for all that begin so, one that begins with it for all that end so).
const ARGUMENT_KINDS: &[(&str, &str, ArgumentKind)] = &[
    ("nodeorder", "*.weight", ArgumentKind::Int),
    ("binpack", "binpack.resources", ArgumentKind::Text),
    ("binpack", "binpack.spared", ArgumentKind::Text),
    ("binpack", "binpack.*", ArgumentKind::Int),
    ("overcommit", "overcommit-factor", ArgumentKind::Number),
    ("predicates", "*Enable", ArgumentKind::Bool),
    ("predicates", "volumebinding.weight", ArgumentKind::Int),
    ("nodegroup", "*", ArgumentKind::Bool),
    ("usage", "*.weight", ArgumentKind::Int),
    ("numa-aware", "weight", ArgumentKind::Int),
    ("deviceshare", "*Enable", ArgumentKind::Bool),
    ("deviceshare", "deviceshare.ScheduleWeight", ArgumentKind::Int),
    ("network-topology-aware", "weight", ArgumentKind::Int),
    ("network-topology-aware", "hypernode.binpack.cpu", ArgumentKind::Int),
    ("network-topology-aware", "hypernode.binpack.memory", ArgumentKind::Int),
    ("network-topology-aware", "hypernode.binpack.normal-pod.enable", ArgumentKind::Bool),
    ("capacity", "ancestorReclaimLevel", ArgumentKind::Int),
    ("task-topology", "task-topology.weight", ArgumentKind::Int),
];

/// What the argument must be to have an effect, where `value` is something else.
fn ignored(plugin: &str, argument: &str, value: &Argument) -> Option<&'static str> {
    let is = |pattern: &str| match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(end), _) => argument.ends_with(end),
        (None, Some(start)) => argument.starts_with(start),
        (None, None) => argument == pattern,
    };
    let (.., kind) = ARGUMENT_KINDS.iter().find(|(name, pattern, _)| *name == plugin && is(pattern))?;
    match (kind, value) {
        (_, Argument::Null)
        | (ArgumentKind::Int | ArgumentKind::Number, Argument::Int(_))
        | (ArgumentKind::Number, Argument::Float(_))
        | (ArgumentKind::Bool, Argument::Bool(_))
        | (ArgumentKind::Text, Argument::Text(_)) => None,
        (ArgumentKind::Bool, Argument::Text(text)) if text.parse::<bool>().is_ok() => None,
        (ArgumentKind::Int, _) => Some("an integer"),
        (ArgumentKind::Number, _) => Some("a number"),
        (ArgumentKind::Bool, _) => Some("true or false"),
        (ArgumentKind::Text, _) => Some("text"),
    }
}

impl From<&Value> for Argument {
    fn from(value: &Value) -> Self {
        match value {
            Value::Scalar(scalar) => scalar.clone(),
            Value::List(items) => Self::List(items.iter().map(|item| Self::from(&item.value)).collect()),
            Value::Map(entries) => {
                Self::Map(entries.iter().map(|(key, value)| (key.clone(), Self::from(&value.value))).collect())
            }
        }
    }
}

fn map<'a>(tree: &'a Tree, what: &str) -> Result<&'a [(String, Tree)], ConfigError> {
    match &tree.value {
        Value::Map(entries) => Ok(entries),
        Value::Scalar(Argument::Null) => Ok(&[]),
        _ => Err(ConfigError::WrongType { line: tree.line, what: what.to_owned(), wanted: "a mapping" }),
    }
}

fn list<'a>(tree: &'a Tree, what: &str) -> Result<&'a [Tree], ConfigError> {
    match &tree.value {
        Value::List(items) => Ok(items),
        Value::Scalar(Argument::Null) => Ok(&[]),
        _ => Err(ConfigError::WrongType { line: tree.line, what: what.to_owned(), wanted: "a list" }),
    }
}

fn text<'a>(tree: &'a Tree, what: &str) -> Result<&'a str, ConfigError> {
    match &tree.value {
        Value::Scalar(Argument::Text(text)) => Ok(text),
        Value::Scalar(Argument::Null) => Ok(""),
        _ => Err(ConfigError::WrongType { line: tree.line, what: what.to_owned(), wanted: "text" }),
    }
}
