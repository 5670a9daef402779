//! `Shared`: facts that many have alike, such as a template. A copy costs nothing; whoever changes one has his own then.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Facts that many may have. It reads and compares as what it holds, and changing it changes no other copy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Shared<T>(Arc<T>);

impl<T> Shared<T> {
    /// Whether both are one and the same, not only equal.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Where it is, as long as somebody holds a copy of it.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

impl<T> From<T> for Shared<T> {
    fn from(facts: T) -> Self {
        Self(Arc::new(facts))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}

impl<T: Serialize> Serialize for Shared<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Shared<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_the_same_until_it_is_changed() {
        let one = Shared::from(vec![1]);
        let mut other = one.clone();
        assert!(one.is(&other));
        other.push(2);
        assert!(!one.is(&other));
        assert_eq!((&*one, &*other), (&vec![1], &vec![1, 2]));
        assert_eq!(serde_json::to_string(&other).unwrap(), "[1,2]");
        assert_eq!(serde_json::from_str::<Shared<Vec<i32>>>("[1,2]").unwrap(), other);
    }
}
