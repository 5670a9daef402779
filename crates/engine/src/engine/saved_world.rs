//! A World as bytes, and back. What is in them, row by row, is with `save` and the rows themselves.

use super::World;
use crate::config::Config;
use crate::plugin::Registry;
use crate::save::{LoadError, Save, Source, Texts};

impl World {
    /// All that decisions depend on. Between cycles only. O(all there is).
    pub fn save(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.tables.save(&mut out);
        self.policy.memory().save(&mut out);
        self.start_estimates.save(&mut out);
        self.now.save(&mut out);
        out
    }

    /// At least as many as there are pods. O(1).
    pub fn pods_max(&self) -> usize {
        self.tables.tasks.span()
    }

    /// A World as it was saved; `config` and `registry` are to be those that it had. O(all there is).
    ///
    /// # Errors
    /// When the bytes are not what `save` of this version gives.
    pub fn load(config: Config, registry: Registry, bytes: &[u8]) -> Result<Self, LoadError> {
        Self::load_from(config, registry, bytes.into())
    }

    /// The same with other words for its texts. Where these keep their order, the World decides the same.
    ///
    /// # Errors
    /// As `load`; also where a text becomes one that can't be there.
    pub fn load_in_words(
        config: Config,
        registry: Registry,
        bytes: &[u8],
        texts: &mut dyn Texts,
    ) -> Result<Self, LoadError> {
        Self::load_from(config, registry, Source::in_words(bytes, texts))
    }

    fn load_from(config: Config, registry: Registry, mut from: Source<'_>) -> Result<Self, LoadError> {
        let mut world = Self::with_plugins(config, registry);
        world.tables = Save::load(&mut from)?;
        let memory: Vec<Vec<u8>> = Save::load(&mut from)?;
        world.policy.remember(&memory);
        world.start_estimates = Save::load(&mut from)?;
        world.now = Save::load(&mut from)?;
        match from.left() {
            0 => Ok(world),
            bytes => Err(LoadError::Rest { bytes }),
        }
    }
}
