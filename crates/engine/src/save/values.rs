//! Numbers, texts, lists and maps as bytes, and back. Used by `save`.
//!
//! Invariant: no length that the bytes claim makes room for what is not there.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::Arc;

use fixedbitset::FixedBitSet;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::{Array, SmallVec};

use super::{LoadError, Save, Source};

macro_rules! numbers {
    ($($number:ident),+) => {$(
        impl Save for $number {
            fn save(&self, out: &mut Vec<u8>) {
                out.extend(self.to_le_bytes());
            }

            fn load(from: &mut Source<'_>) -> Result<Self, LoadError> {
                let bytes = from.take(size_of::<Self>())?;
                Ok(Self::from_le_bytes(bytes.try_into().expect("as many as were taken")))
            }
        }
    )+};
}

numbers!(u8, u16, u32, u64, i32, i64, i128);

impl Save for usize {
    fn save(&self, out: &mut Vec<u8>) {
        (*self as u64).save(out);
    }

    fn load(from: &mut Source<'_>) -> Result<Self, LoadError> {
        Self::try_from(u64::load(from)?).map_err(|_| LoadError::Value { what: "a size" })
    }
}

impl Save for bool {
    fn save(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn load(from: &mut Source<'_>) -> Result<Self, LoadError> {
        match u8::load(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(LoadError::Value { what: "yes or no" }),
        }
    }
}

impl Save for () {
    fn save(&self, _: &mut Vec<u8>) {}

    fn load(_: &mut Source<'_>) -> Result<Self, LoadError> {
        Ok(())
    }
}

fn save_text(text: &str, out: &mut Vec<u8>) {
    text.len().save(out);
    out.extend(text.as_bytes());
}

/// A text as the source has it, or in other words.
fn load_text<'a>(from: &mut Source<'a>) -> Result<Cow<'a, str>, LoadError> {
    let length = usize::load(from)?;
    let text = std::str::from_utf8(from.take(length)?).map_err(|_| LoadError::Value { what: "a text" })?;
    Ok(from.texts.as_mut().map_or(Cow::Borrowed(text), |texts| Cow::Owned(texts.text(text))))
}

impl Save for String {
    fn save(&self, out: &mut Vec<u8>) {
        save_text(self, out);
    }

    fn load(from: &mut Source<'_>) -> Result<Self, LoadError> {
        load_text(from).map(Cow::into_owned)
    }
}

impl Save for Arc<str> {
    fn save(&self, out: &mut Vec<u8>) {
        save_text(self, out);
    }

    fn load(from: &mut Source<'_>) -> Result<Self, LoadError> {
        load_text(from).map(Self::from)
    }
}

impl<T: Save> Save for Arc<T> {
    fn save(&self, out: &mut Vec<u8>) {
        T::save(self, out);
    }

    fn load(from: &mut Source<'_>) -> Result<Self, LoadError> {
        T::load(from).map(Self::new)
    }
}

impl<T: Save> Save for Box<T> {
    fn save(&self, out: &mut Vec<u8>) {
        T::save(self, out);
    }

    fn load(from: &mut Source<'_>) -> Result<Self, LoadError> {
        T::load(from).map(Self::new)
    }
}

impl<T: Save> Save for Option<T> {
    fn save(&self, out: &mut Vec<u8>) {
        self.is_some().save(out);
        if let Some(some) = self {
            some.save(out);
        }
    }

    fn load(from: &mut Source<'_>) -> Result<Self, LoadError> {
        if bool::load(from)? { T::load(from).map(Some) } else { Ok(None) }
    }
}

fn save_all<'t, T: Save + 't>(all: impl ExactSizeIterator<Item = &'t T>, out: &mut Vec<u8>) {
    all.len().save(out);
    all.for_each(|one| one.save(out));
}

/// A length of bytes that can't be there makes no room for them.
fn load_all<T: Save, C: Default + Extend<T>>(from: &mut Source<'_>) -> Result<C, LoadError> {
    let mut all = C::default();
    for _ in 0..usize::load(from)? {
        // Nothing takes no bytes but `()`, of which there are no lists.
        if from.is_empty() {
            return Err(LoadError::End);
        }
        all.extend([T::load(from)?]);
    }
    Ok(all)
}

macro_rules! lists {
    ($($list:ident: $($bound:ident)*),+) => {$(
        impl<T: Save $(+ $bound)*> Save for $list<T> {
            fn save(&self, out: &mut Vec<u8>) {
                save_all(self.iter(), out);
            }

            fn load(from: &mut Source<'_>) -> Result<Self, LoadError> {
                load_all(from)
            }
        }
    )+};
}

lists!(Vec: , VecDeque: , BTreeSet: Ord);

impl<T: Save> Save for Box<[T]> {
    fn save(&self, out: &mut Vec<u8>) {
        save_all(self.iter(), out);
    }

    fn load(from: &mut Source<'_>) -> Result<Self, LoadError> {
        load_all::<T, Vec<T>>(from).map(Self::from)
    }
}

impl<A: Array> Save for SmallVec<A>
where
    A::Item: Save,
{
    fn save(&self, out: &mut Vec<u8>) {
        save_all(self.iter(), out);
    }

    fn load(from: &mut Source<'_>) -> Result<Self, LoadError> {
        load_all(from)
    }
}

impl<T: Save, const N: usize> Save for [T; N] {
    fn save(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|one| one.save(out));
    }

    fn load(from: &mut Source<'_>) -> Result<Self, LoadError> {
        let all: Vec<T> = (0..N).map(|_| T::load(from)).collect::<Result<_, _>>()?;
        Ok(Self::try_from(all).unwrap_or_else(|_| unreachable!("as many as were loaded")))
    }
}

impl<K: Save + Ord, V: Save> Save for BTreeMap<K, V> {
    fn save(&self, out: &mut Vec<u8>) {
        self.len().save(out);
        for (key, value) in self {
            key.save(out);
            value.save(out);
        }
    }

    fn load(from: &mut Source<'_>) -> Result<Self, LoadError> {
        load_all(from)
    }
}

/// In the order of the keys: equal worlds give equal bytes.
impl<K: Save + Ord + Hash, V: Save> Save for FxHashMap<K, V> {
    fn save(&self, out: &mut Vec<u8>) {
        let mut all: Vec<(&K, &V)> = self.iter().collect();
        all.sort_unstable_by(|left, right| left.0.cmp(right.0));
        all.len().save(out);
        for (key, value) in all {
            key.save(out);
            value.save(out);
        }
    }

    fn load(from: &mut Source<'_>) -> Result<Self, LoadError> {
        load_all(from)
    }
}

impl<T: Save + Ord + Hash> Save for FxHashSet<T> {
    fn save(&self, out: &mut Vec<u8>) {
        let mut all: Vec<&T> = self.iter().collect();
        all.sort_unstable();
        save_all(all.into_iter(), out);
    }

    fn load(from: &mut Source<'_>) -> Result<Self, LoadError> {
        load_all(from)
    }
}

macro_rules! tuples {
    ($(($($part:ident)+))+) => {$(
        #[allow(non_snake_case, reason = "a part is named as its type is")]
        impl<$($part: Save),+> Save for ($($part,)+) {
            fn save(&self, out: &mut Vec<u8>) {
                let ($($part,)+) = self;
                $($part.save(out);)+
            }

            fn load(from: &mut Source<'_>) -> Result<Self, LoadError> {
                Ok(($($part::load(from)?,)+))
            }
        }
    )+};
}

tuples!((A B) (A B C) (A B C D));

impl<T> Save for PhantomData<T> {
    fn save(&self, _: &mut Vec<u8>) {}

    fn load(_: &mut Source<'_>) -> Result<Self, LoadError> {
        Ok(Self)
    }
}

impl Save for FixedBitSet {
    fn save(&self, out: &mut Vec<u8>) {
        self.len().save(out);
        self.ones().collect::<Vec<usize>>().save(out);
    }

    fn load(from: &mut Source<'_>) -> Result<Self, LoadError> {
        let bits = usize::load(from)?;
        let ones: Vec<usize> = Save::load(from)?;
        // A bit for each row, and each row takes some bytes: a few of them make no room for a set of billions.
        if bits > from.length || ones.iter().any(|one| *one >= bits) {
            return Err(LoadError::Value { what: "a set" });
        }
        let mut set = Self::with_capacity(bits);
        set.extend(ones);
        Ok(set)
    }
}
