//! The tasks of a group, in the order of their ids. Most groups have one: it needs no room of its own.

use std::collections::BTreeSet;

use crate::ids::TaskId;
use crate::save::{LoadError, Save, Source};

#[derive(Debug, Clone)]
pub(crate) enum Members {
    One(TaskId),
    Others(BTreeSet<TaskId>),
}

impl Default for Members {
    fn default() -> Self {
        Self::Others(BTreeSet::new())
    }
}

impl Members {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &TaskId> {
        let (one, others) = match self {
            Self::One(task) => (Some(task), None),
            Self::Others(tasks) => (None, Some(tasks)),
        };
        one.into_iter().chain(others.into_iter().flatten())
    }

    pub(crate) fn first(&self) -> Option<&TaskId> {
        self.iter().next()
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Others(tasks) => tasks.len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn insert(&mut self, task: TaskId) {
        match self {
            Self::One(one) => *self = Self::Others([*one, task].into()),
            Self::Others(tasks) if tasks.is_empty() => *self = Self::One(task),
            Self::Others(tasks) => drop(tasks.insert(task)),
        }
    }

    pub(crate) fn remove(&mut self, task: TaskId) {
        match self {
            Self::One(one) if *one == task => *self = Self::default(),
            Self::One(_) => {}
            Self::Others(tasks) => drop(tasks.remove(&task)),
        }
    }
}

impl Save for Members {
    fn save(&self, out: &mut Vec<u8>) {
        self.iter().copied().collect::<BTreeSet<TaskId>>().save(out);
    }

    fn load(from: &mut Source<'_>) -> Result<Self, LoadError> {
        let mut members = Self::default();
        BTreeSet::load(from)?.into_iter().for_each(|task| members.insert(task));
        Ok(members)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn they_are_a_set(steps in prop::collection::vec((0..4_usize, any::<bool>()), 0..40)) {
            let (mut members, mut set) = (Members::default(), BTreeSet::new());
            for (task, comes) in steps {
                let task = TaskId::from(task);
                if comes {
                    members.insert(task);
                    set.insert(task);
                } else {
                    members.remove(task);
                    set.remove(&task);
                }
                let mut bytes = Vec::new();
                members.save(&mut bytes);
                let loaded: Members = Save::load(&mut bytes.as_slice().into()).unwrap();
                for members in [&members, &loaded] {
                    prop_assert_eq!(members.iter().collect::<Vec<_>>(), set.iter().collect::<Vec<_>>());
                    prop_assert_eq!((members.first(), members.len()), (set.first(), set.len()));
                }
            }
        }
    }
}
