//! Plays entries into a World, as the loop did when they were recorded.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use pumice_engine::plugin::Registry;
use pumice_engine::{Config, ConfigError, LoadError, Plan, Texts, World};

use crate::entry::{Beginning, Entry};
use crate::segment;

/// Volcano's plugin that asks an HTTP server.
pub const EXTENDER: &str = "extender";

/// Why an entry can't be played.
#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    /// The configuration is refused.
    #[error("the recorded configuration is refused by this version")]
    Config(#[source] ConfigError),
    /// The configuration names a plugin whose answers are not recorded.
    #[error("the recorded configuration has the plugin {plugin}: it asks a server, whose answers are not recorded")]
    Extender { plugin: String },
    /// The configuration names a plugin that is not here.
    #[error("the recorded configuration has the plugin {plugin} of a third party: replay with a program that has it")]
    Plugin { plugin: String },
    /// The recording does not begin with the beginning of a World.
    #[error("an entry comes before the beginning of its World")]
    NoWorld,
    /// A saved World can't be read.
    #[error("{path} holds no World that this version can read: replay it with the version that recorded it")]
    Start {
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: std::io::Error,
    },
    /// A World that a case carries can't be read.
    #[error("the case holds no World that this version can read: run it with version {version}, which cut it")]
    Carried {
        version: String,
        /// What is wrong with it.
        #[source]
        source: LoadError,
    },
    #[error("the engine panicked over {entry}")]
    Panicked {
        /// What it was told.
        entry: &'static str,
    },
}

/// A World that is played to.
pub struct Player<'r> {
    registry: &'r Registry,
    beginning: Beginning,
    world: Option<World>,
}

impl<'r> Player<'r> {
    /// One without a World, whose configuration may name these plugins.
    pub fn new(registry: &'r Registry) -> Self {
        Self { registry, beginning: Beginning::default(), world: None }
    }

    /// Plays one entry; a cycle gives its plan.
    pub fn play(&mut self, entry: &Entry) -> Result<Option<Plan>, PlayError> {
        if let Entry::Begin(beginning) = entry {
            let config = self.config(beginning)?;
            self.world = Some(World::with_plugins(config, self.registry.clone()));
            self.beginning = (**beginning).clone();
            return Ok(None);
        }
        if let Entry::Config(text) = entry {
            self.beginning.config = Some(text.clone());
            let config = self.config(&self.beginning)?;
            self.world.as_mut().ok_or(PlayError::NoWorld)?.set_config(config);
            return Ok(None);
        }
        let world = self.world.as_mut().ok_or(PlayError::NoWorld)?;
        let played = catch_unwind(AssertUnwindSafe(|| match entry {
            Entry::Delta(delta) => {
                world.apply(delta);
                None
            }
            Entry::Feedback(feedback) => {
                feedback.apply(world);
                None
            }
            Entry::Cycle(cycle) => Some(world.cycle(cycle.at)),
            Entry::Forget => {
                world.forget();
                None
            }
            Entry::Begin(_) | Entry::Config(_) | Entry::Hole { .. } | Entry::Panic { .. } => None,
        }));
        if matches!(entry, Entry::Panic { .. }) {
            self.world = None;
        }
        played.map_err(|_| {
            self.world = None;
            PlayError::Panicked {
                entry: match entry {
                    Entry::Delta(_) => "a change of the cluster",
                    Entry::Cycle(_) => "a cycle",
                    _ => "an answer",
                },
            }
        })
    }

    /// Takes a World as it was saved.
    pub fn load(&mut self, path: &Path) -> Result<(), PlayError> {
        let (beginning, world) = saved_world(path, self.registry)?;
        (self.beginning, self.world) = (beginning, Some(world));
        Ok(())
    }

    /// Takes a World that a case carries, with its texts in other words if they are given.
    pub fn carry(
        &mut self,
        beginning: Beginning,
        world: &[u8],
        texts: Option<&mut dyn Texts>,
    ) -> Result<(), PlayError> {
        let (config, registry) = (self.config(&beginning)?, self.registry.clone());
        let loaded = match texts {
            Some(texts) => World::load_in_words(config, registry, world, texts),
            None => World::load(config, registry, world),
        };
        let carried = |source| PlayError::Carried { version: beginning.version.clone(), source };
        self.world = Some(loaded.map_err(carried)?);
        self.beginning = beginning;
        Ok(())
    }

    /// The World, and what it began with; nothing where it was lost.
    pub fn world(&self) -> Option<(&Beginning, &World)> {
        Some((&self.beginning, self.world.as_ref()?))
    }

    /// Forgets the World: what comes next begins another.
    pub fn lose(&mut self) {
        self.world = None;
    }

    fn config(&self, beginning: &Beginning) -> Result<Config, PlayError> {
        config_of(beginning, self.registry)
    }
}

/// The World of a file, and what it began with.
///
/// # Errors
/// When the file holds none that this version can read.
pub fn saved_world(path: &Path, registry: &Registry) -> Result<(Beginning, World), PlayError> {
    let start = |source| PlayError::Start { path: path.to_owned(), source };
    let (beginning, bytes) = segment::read_start(path).map_err(start)?;
    let loaded = World::load(config_of(&beginning, registry)?, registry.clone(), &bytes);
    Ok((beginning, loaded.map_err(|error| start(std::io::Error::other(error)))?))
}

/// The configuration of a World that begins so.
///
/// # Errors
/// When it is refused, or names plugins that can't be replayed.
pub fn config_of(beginning: &Beginning, registry: &Registry) -> Result<Config, PlayError> {
    let flags = &beginning.flags;
    let config = match &beginning.config {
        Some(text) => flags.parse(text, registry).map_err(PlayError::Config)?,
        None => flags.complete(Config::default()),
    };
    for plugin in config.tiers.iter().flatten() {
        if plugin.name == EXTENDER {
            return Err(PlayError::Extender { plugin: plugin.name.clone() });
        }
        if !registry.has(&plugin.name) && beginning.plugins.contains(&plugin.name) {
            return Err(PlayError::Plugin { plugin: plugin.name.clone() });
        }
    }
    Ok(config)
}
