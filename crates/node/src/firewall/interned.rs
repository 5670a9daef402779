//! Numbers for things, as long as somebody uses them.
//!
//! Invariant: a number never stands for two things, not even one after the other. Pure.

use std::collections::HashMap;
use std::hash::Hash;

/// Numbers by what they stand for, with how many use each.
#[derive(Debug)]
pub(super) struct Interned<K> {
    numbers: HashMap<K, (u32, usize)>,
    next: u32,
}

impl<K> Default for Interned<K> {
    fn default() -> Self {
        // 0 is what the kernel has for nothing.
        Interned { numbers: HashMap::new(), next: 1 }
    }
}

impl<K: Hash + Eq + Clone> Interned<K> {
    /// Counts one more use of `key`; says whether it is the first.
    pub(super) fn acquire(&mut self, key: &K) -> (u32, bool) {
        if let Some((number, uses)) = self.numbers.get_mut(key) {
            *uses += 1;
            return (*number, false);
        }
        let number = self.next;
        self.next = self.next.wrapping_add(1).max(1);
        self.numbers.insert(key.clone(), (number, 1));
        (number, true)
    }

    /// Counts one use less; the number, if that was the last.
    pub(super) fn release(&mut self, key: &K) -> Option<u32> {
        let (number, uses) = self.numbers.get_mut(key)?;
        *uses -= 1;
        if *uses > 0 {
            return None;
        }
        let number = *number;
        self.numbers.remove(key);
        Some(number)
    }

    pub(super) fn number(&self, key: &K) -> Option<u32> {
        self.numbers.get(key).map(|(number, _)| *number)
    }

    /// What is in use, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, u32)> {
        self.numbers.iter().map(|(key, (number, _))| (key, *number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_goes_with_its_last_use_and_never_comes_back() {
        let mut numbers = Interned::default();
        assert_eq!(
            [numbers.acquire(&"a"), numbers.acquire(&"b"), numbers.acquire(&"a")],
            [(1, true), (2, true), (1, false)]
        );
        assert_eq!((numbers.release(&"a"), numbers.number(&"a")), (None, Some(1)));
        assert_eq!((numbers.release(&"a"), numbers.number(&"a"), numbers.release(&"a")), (Some(1), None, None));
        assert_eq!(numbers.acquire(&"a"), (3, true));
        assert_eq!(numbers.iter().count(), 2);
    }
}
