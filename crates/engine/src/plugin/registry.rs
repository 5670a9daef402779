//! Which plugins there are, by name. `Config::parse` asks it what is known, `Policy` builds from it.
//! A third party adds its own beside Volcano's.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::Plugin;
use crate::config::{ArgumentError, PluginConfig};

/// Makes a plugin from its arguments.
pub type Factory = Arc<dyn Fn(&PluginConfig) -> Result<Box<dyn Plugin>, ArgumentError> + Send + Sync>;

/// One plugin that can be named.
#[derive(Clone)]
struct Entry {
    arguments: Vec<String>,
    /// Its arguments begin with names of the user's own.
    prefixes: Vec<String>,
    factory: Factory,
    /// It is of this crate.
    ours: bool,
}

/// The plugins that a configuration may name.
#[derive(Clone)]
pub struct Registry(BTreeMap<String, Entry>);

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Registry {
    /// No plugin at all.
    pub(crate) fn empty() -> Self {
        Self(BTreeMap::new())
    }

    /// All that are in it are of this crate.
    pub(crate) fn are_ours(&mut self) {
        self.0.values_mut().for_each(|entry| entry.ours = true);
    }

    /// Adds a plugin, or replaces the one of that name. An argument that ends in `*` stands for all that begin so.
    pub fn add(
        &mut self,
        name: &str,
        arguments: &[&str],
        factory: impl Fn(&PluginConfig) -> Result<Box<dyn Plugin>, ArgumentError> + Send + Sync + 'static,
    ) {
        let (prefixes, exact): (Vec<&str>, Vec<&str>) = arguments.iter().partition(|name| name.ends_with('*'));
        let entry = Entry {
            arguments: exact.into_iter().map(str::to_owned).collect(),
            prefixes: prefixes.into_iter().map(|name| name.trim_end_matches('*').to_owned()).collect(),
            factory: Arc::new(factory),
            ours: false,
        };
        self.0.insert(name.to_owned(), entry);
    }

    /// The names of all plugins, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Whether a plugin has that name.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Whether the plugin of that name is one of this crate, not of a third party.
    pub(crate) fn is_ours(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|entry| entry.ours)
    }

    /// Whether the plugin reads the argument.
    pub fn reads(&self, plugin: &str, argument: &str) -> bool {
        self.0.get(plugin).is_some_and(|entry| {
            entry.arguments.iter().any(|name| name == argument)
                || entry.prefixes.iter().any(|prefix| argument.starts_with(prefix.as_str()))
        })
    }

    /// The plugin of that name; nothing if there is none.
    ///
    /// # Errors
    /// When its arguments are of no use.
    pub fn build(&self, config: &PluginConfig) -> Result<Option<Box<dyn Plugin>>, ArgumentError> {
        self.0.get(&config.name).map(|entry| (entry.factory)(config)).transpose()
    }
}
