//! A World as bytes, and back: all that decisions depend on, with ids and free places, so that equal later input gives
//! equal plans. Caches (the finder, the backlog, the network's tree) are not in it: they come of themselves.
//!
//! Invariant: what is saved is loaded by the same version only; each row carries a mark of its fields, so that anything
//! else is refused instead of misread. Bytes of any kind give an error or a World, never a panic. Used by recordings, to
//! begin in the middle of a history.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::Arc;

use fixedbitset::FixedBitSet;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::{Array, SmallVec};

use crate::config::{Config, Sharding};
use crate::facts::{
    BudgetFacts, CsiNodeFacts, DeviceClaimFacts, DeviceClassFacts, DeviceName, DeviceSliceFacts, GroupPhase,
    GroupStatus, HostPort, HyperNodeFacts, LabelSelector, NodeGroupAffinity, NodeTerm, NodeUsage, NumaFacts, Operator,
    OwnerFacts, PodClaims, PodSelector, PodTemplate, QueueState, QuotaFacts, ShardFacts, StorageClassFacts,
    SubGroupPolicy, Taint, Toleration, TopologySpec, VolumeClaimFacts, VolumeFacts,
};
use crate::ids::{ClassId, DimId, GroupId, NamespaceId, NodeId, QueueId, TaskId, TimeMs};
use crate::plugins::Registry;
use crate::reasons::{Reason, Stage};
use crate::world::World;

/// Why bytes are no World.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// They end too early.
    #[error("the saved World ends too early")]
    End,
    /// A row has other fields than this version's.
    #[error("the saved World is of another version: its {row} differs")]
    Row {
        /// Which.
        row: &'static str,
    },
    /// A value can't be.
    #[error("the saved World holds a value that can't be: {what}")]
    Value {
        /// Of what.
        what: &'static str,
    },
    /// There are bytes behind its end.
    #[error("the saved World has {bytes} bytes too many")]
    Rest {
        /// How many.
        bytes: usize,
    },
}

/// What can be saved.
pub(crate) trait Save: Sized {
    fn save(&self, out: &mut Vec<u8>);

    fn load(from: &mut &[u8]) -> Result<Self, LoadError>;
}

impl World {
    /// All that decisions depend on. Between cycles only. O(all there is).
    pub fn save(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.tables.save(&mut out);
        self.policy.memory().save(&mut out);
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
    pub fn load(config: Config, registry: Registry, mut bytes: &[u8]) -> Result<Self, LoadError> {
        let mut world = Self::with_plugins(config, registry);
        world.tables = Save::load(&mut bytes)?;
        let memory: Vec<Vec<u8>> = Save::load(&mut bytes)?;
        world.policy.remember(&memory);
        world.now = Save::load(&mut bytes)?;
        if bytes.is_empty() { Ok(world) } else { Err(LoadError::Rest { bytes: bytes.len() }) }
    }
}

/// A mark of a row's fields: FNV-1a of its name and theirs.
pub(crate) const fn mark(text: &str) -> u32 {
    let (bytes, mut hash, mut at) = (text.as_bytes(), 0x811c_9dc5_u32, 0);
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    hash
}

/// Saves a struct field by field: all must be named, in any order. What is derived or empty between cycles is left out
/// with what it is then: `Row { a, b } except { cache: Cache::default() }`.
macro_rules! saved {
    ($($row:ident { $($field:ident),* $(,)? } $(except { $($left:ident : $fresh:expr),* $(,)? })?);+ $(;)?) => {$(
        impl crate::save::Save for $row {
            fn save(&self, out: &mut Vec<u8>) {
                const MARK: u32 = crate::save::mark(concat!(stringify!($row) $(, " ", stringify!($field))*));
                let Self { $($field,)* $($($left: _,)*)? } = self;
                crate::save::Save::save(&MARK, out);
                $(crate::save::Save::save($field, out);)*
            }

            fn load(from: &mut &[u8]) -> Result<Self, crate::save::LoadError> {
                const MARK: u32 = crate::save::mark(concat!(stringify!($row) $(, " ", stringify!($field))*));
                if <u32 as crate::save::Save>::load(from)? != MARK {
                    return Err(crate::save::LoadError::Row { row: stringify!($row) });
                }
                $(let $field = crate::save::Save::load(from)?;)*
                Ok(Self { $($($left: $fresh,)*)? $($field,)* })
            }
        }
    )+};
}
pub(crate) use saved;

/// The same for a struct with parameters: `[T: Save] Row<T> { a, b }`.
macro_rules! saved_generic {
    ([$($bounds:tt)+] $row:ident<$($of:ident),+> { $($field:ident),* $(,)? }
        $(except { $($left:ident : $fresh:expr),* $(,)? })?) => {
        impl<$($bounds)+> Save for $row<$($of),+> {
            fn save(&self, out: &mut Vec<u8>) {
                let Self { $($field,)* $($($left: _,)*)? } = self;
                $($field.save(out);)*
            }

            fn load(from: &mut &[u8]) -> Result<Self, crate::save::LoadError> {
                $(let $field = Save::load(from)?;)*
                Ok(Self { $($($left: $fresh,)*)? $($field,)* })
            }
        }
    };
}
pub(crate) use saved_generic;

/// Saves structs of one nameless field.
macro_rules! saved_inside {
    ($($row:ident),+ $(,)?) => {$(
        impl crate::save::Save for $row {
            fn save(&self, out: &mut Vec<u8>) {
                crate::save::Save::save(&self.0, out);
            }

            fn load(from: &mut &[u8]) -> Result<Self, crate::save::LoadError> {
                Ok(Self(crate::save::Save::load(from)?))
            }
        }
    )+};
}
pub(crate) use saved_inside;

/// Saves enums without fields as the place of their variant.
macro_rules! saved_enum {
    ($($kind:ident { $($variant:ident),+ $(,)? })+) => {$(
        impl crate::save::Save for $kind {
            fn save(&self, out: &mut Vec<u8>) {
                const ALL: &[&str] = &[$(stringify!($variant)),+];
                let name = match self {
                    $(Self::$variant => stringify!($variant),)+
                };
                let place = ALL.iter().position(|other| *other == name).and_then(|place| u8::try_from(place).ok());
                out.push(place.expect("a kind has few variants"));
            }

            fn load(from: &mut &[u8]) -> Result<Self, crate::save::LoadError> {
                const ALL: &[fn() -> $kind] = &[$(|| $kind::$variant),+];
                let make = ALL.get(usize::from(<u8 as crate::save::Save>::load(from)?));
                make.map(|make| make()).ok_or(crate::save::LoadError::Value { what: stringify!($kind) })
            }
        }
    )+};
}
pub(crate) use saved_enum;

fn take<'a>(from: &mut &'a [u8], length: usize) -> Result<&'a [u8], LoadError> {
    let (taken, rest) = from.split_at_checked(length).ok_or(LoadError::End)?;
    *from = rest;
    Ok(taken)
}

macro_rules! numbers {
    ($($number:ident),+) => {$(
        impl Save for $number {
            fn save(&self, out: &mut Vec<u8>) {
                out.extend(self.to_le_bytes());
            }

            fn load(from: &mut &[u8]) -> Result<Self, LoadError> {
                let bytes = take(from, size_of::<Self>())?;
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

    fn load(from: &mut &[u8]) -> Result<Self, LoadError> {
        Self::try_from(u64::load(from)?).map_err(|_| LoadError::Value { what: "a size" })
    }
}

impl Save for bool {
    fn save(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn load(from: &mut &[u8]) -> Result<Self, LoadError> {
        match u8::load(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(LoadError::Value { what: "yes or no" }),
        }
    }
}

impl Save for () {
    fn save(&self, _: &mut Vec<u8>) {}

    fn load(_: &mut &[u8]) -> Result<Self, LoadError> {
        Ok(())
    }
}

fn save_text(text: &str, out: &mut Vec<u8>) {
    text.len().save(out);
    out.extend(text.as_bytes());
}

fn load_text<'a>(from: &mut &'a [u8]) -> Result<&'a str, LoadError> {
    let length = usize::load(from)?;
    std::str::from_utf8(take(from, length)?).map_err(|_| LoadError::Value { what: "a text" })
}

impl Save for String {
    fn save(&self, out: &mut Vec<u8>) {
        save_text(self, out);
    }

    fn load(from: &mut &[u8]) -> Result<Self, LoadError> {
        load_text(from).map(str::to_owned)
    }
}

impl Save for Arc<str> {
    fn save(&self, out: &mut Vec<u8>) {
        save_text(self, out);
    }

    fn load(from: &mut &[u8]) -> Result<Self, LoadError> {
        load_text(from).map(Self::from)
    }
}

impl<T: Save> Save for Arc<T> {
    fn save(&self, out: &mut Vec<u8>) {
        T::save(self, out);
    }

    fn load(from: &mut &[u8]) -> Result<Self, LoadError> {
        T::load(from).map(Self::new)
    }
}

impl<T: Save> Save for Box<T> {
    fn save(&self, out: &mut Vec<u8>) {
        T::save(self, out);
    }

    fn load(from: &mut &[u8]) -> Result<Self, LoadError> {
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

    fn load(from: &mut &[u8]) -> Result<Self, LoadError> {
        if bool::load(from)? { T::load(from).map(Some) } else { Ok(None) }
    }
}

fn save_all<'t, T: Save + 't>(all: impl ExactSizeIterator<Item = &'t T>, out: &mut Vec<u8>) {
    all.len().save(out);
    all.for_each(|one| one.save(out));
}

/// A length of bytes that can't be there makes no room for them.
fn load_all<T: Save, C: Default + Extend<T>>(from: &mut &[u8]) -> Result<C, LoadError> {
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

            fn load(from: &mut &[u8]) -> Result<Self, LoadError> {
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

    fn load(from: &mut &[u8]) -> Result<Self, LoadError> {
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

    fn load(from: &mut &[u8]) -> Result<Self, LoadError> {
        load_all(from)
    }
}

impl<T: Save, const N: usize> Save for [T; N] {
    fn save(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|one| one.save(out));
    }

    fn load(from: &mut &[u8]) -> Result<Self, LoadError> {
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

    fn load(from: &mut &[u8]) -> Result<Self, LoadError> {
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

    fn load(from: &mut &[u8]) -> Result<Self, LoadError> {
        load_all(from)
    }
}

impl<T: Save + Ord + Hash> Save for FxHashSet<T> {
    fn save(&self, out: &mut Vec<u8>) {
        let mut all: Vec<&T> = self.iter().collect();
        all.sort_unstable();
        save_all(all.into_iter(), out);
    }

    fn load(from: &mut &[u8]) -> Result<Self, LoadError> {
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

            fn load(from: &mut &[u8]) -> Result<Self, LoadError> {
                Ok(($($part::load(from)?,)+))
            }
        }
    )+};
}

tuples!((A B) (A B C) (A B C D));

impl<T> Save for PhantomData<T> {
    fn save(&self, _: &mut Vec<u8>) {}

    fn load(_: &mut &[u8]) -> Result<Self, LoadError> {
        Ok(Self)
    }
}

impl Save for FixedBitSet {
    fn save(&self, out: &mut Vec<u8>) {
        self.len().save(out);
        self.ones().collect::<Vec<usize>>().save(out);
    }

    fn load(from: &mut &[u8]) -> Result<Self, LoadError> {
        /// As many as there are ids.
        const BITS_MAX: usize = u32::MAX as usize;
        let bits = usize::load(from)?;
        let ones: Vec<usize> = Save::load(from)?;
        if bits > BITS_MAX || ones.iter().any(|one| *one >= bits) {
            return Err(LoadError::Value { what: "a set" });
        }
        let mut set = Self::with_capacity(bits);
        set.extend(ones);
        Ok(set)
    }
}

/// Facts and what of the plan is kept are saved as their JSON: they have it anyway.
macro_rules! saved_as_json {
    ($($kind:ident),+ $(,)?) => {
        $(
            impl Save for $kind {
                fn save(&self, out: &mut Vec<u8>) {
                    let json = serde_json::to_vec(self).expect("facts have text keys only");
                    json.len().save(out);
                    out.extend(json);
                }

                fn load(from: &mut &[u8]) -> Result<Self, LoadError> {
                    let length = usize::load(from)?;
                    let json = take(from, length)?;
                    serde_json::from_slice(json).map_err(|_| LoadError::Value { what: stringify!($kind) })
                }
            }
        )+
    };
}

saved_as_json!(
    BudgetFacts,
    CsiNodeFacts,
    DeviceClaimFacts,
    DeviceClassFacts,
    DeviceName,
    DeviceSliceFacts,
    GroupPhase,
    GroupStatus,
    HostPort,
    HyperNodeFacts,
    LabelSelector,
    NodeGroupAffinity,
    NodeTerm,
    NodeUsage,
    NumaFacts,
    Operator,
    OwnerFacts,
    PodClaims,
    PodSelector,
    PodTemplate,
    QueueState,
    QuotaFacts,
    Reason,
    ShardFacts,
    Stage,
    StorageClassFacts,
    SubGroupPolicy,
    Taint,
    Toleration,
    TopologySpec,
    VolumeClaimFacts,
    VolumeFacts,
);

saved_inside!(ClassId, DimId, GroupId, NamespaceId, NodeId, QueueId, TaskId, TimeMs);
saved! { Sharding { hard, name } }
