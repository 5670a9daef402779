//! What a rule set has to say about an object: refusals and warnings.
//!
//! Refusals are fragments in Volcano's words, because people search for them; all of them are told at once.

/// Refusals and warnings, in the order they were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Fragments; any of them refuses the object.
    pub refusals: Vec<String>,
    /// Told to the user of an admitted object.
    pub warnings: Vec<String>,
}

/// Most refusals that are kept; an object has to be mended anyway.
const REFUSALS_MAX: usize = 64;

impl Findings {
    /// Refuses the object, for this reason too.
    pub fn refuse(&mut self, fragment: impl Into<String>) {
        if self.refusals.len() < REFUSALS_MAX {
            self.refusals.push(fragment.into());
        }
    }

    /// Tells the user something about an object that may be admitted.
    pub fn warn(&mut self, warning: impl Into<String>) {
        self.warnings.push(warning.into());
    }

    /// The refusals as one sentence; nothing where the object is good.
    pub fn refusal(&self) -> Option<String> {
        (!self.refusals.is_empty()).then(|| self.refusals.join(" "))
    }
}
