//! A World as bytes, and back: all that decisions depend on, with ids and free places, so that equal later input gives
//! equal plans. Caches (the finder, the pending index, the network's tree) are not in it: they come of themselves.
//!
//! Invariant: what is saved is loaded by the same version only; each row carries a mark of its fields, so that anything
//! else is refused instead of misread. Bytes of any kind give an error or a World, never a panic. Used by recordings, to
//! begin in the middle of a history.

mod values;

/// Why bytes are no World.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// They end too early.
    #[error("the saved World ends too early")]
    End,
    /// A row has other fields than this version's.
    #[error("the saved World is of another version: its {row} differs")]
    Row { row: &'static str },
    /// A value can't be.
    #[error("the saved World holds a value that can't be: {what}")]
    Value { what: &'static str },
    /// There are bytes behind its end.
    #[error("the saved World has {bytes} bytes too many")]
    Rest { bytes: usize },
}

/// Saved bytes that are read, and what becomes of the texts in them.
pub(crate) struct Source<'a> {
    bytes: &'a [u8],
    /// How many there were: no more rows can be in them.
    length: usize,
    texts: Option<&'a mut dyn Texts>,
}

/// Gives the texts of a saved World other words.
pub trait Texts {
    /// What stands for a text.
    fn text(&mut self, text: &str) -> String;

    /// Renames what stands in facts, as serde shows them.
    fn facts(&mut self, facts: &mut serde_json::Value);
}

impl<'a> From<&'a [u8]> for Source<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self { bytes, length: bytes.len(), texts: None }
    }
}

impl<'a> Source<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], LoadError> {
        let (taken, rest) = self.bytes.split_at_checked(length).ok_or(LoadError::End)?;
        self.bytes = rest;
        Ok(taken)
    }

    /// Saved bytes, whose texts are to be other words.
    pub(crate) fn in_words(bytes: &'a [u8], texts: &'a mut dyn Texts) -> Self {
        Self { bytes, length: bytes.len(), texts: Some(texts) }
    }

    /// How many bytes were not read yet.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len()
    }

    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// What can be saved.
pub(crate) trait Save: Sized {
    fn save(&self, out: &mut Vec<u8>);

    fn load(from: &mut Source<'_>) -> Result<Self, LoadError>;
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

/// The name by which a saved World knows a row, a field or a kind: its own, or the one that it had when it was first saved.
macro_rules! saved_name {
    ($name:ident) => {
        stringify!($name)
    };
    ($name:ident $saved:literal) => {
        $saved
    };
}
pub(crate) use saved_name;

/// Saves a struct field by field: all must be named, in any order. What is derived or empty between cycles is left out
/// with what it is then: `Row { a, b } except { cache: Cache::default() }`. What was renamed says its saved name, so that
/// older Worlds can still be read: `Row as "OldRow" { a, b as "old_b" }`.
macro_rules! saved {
    ($($row:ident $(as $row_name:literal)? { $($field:ident $(as $name:literal)?),* $(,)? }
        $(except { $($left:ident : $fresh:expr),* $(,)? })?);+ $(;)?) => {$(
        impl crate::save::Save for $row {
            fn save(&self, out: &mut Vec<u8>) {
                const MARK: u32 = crate::save::mark(concat!(
                    crate::save::saved_name!($row $($row_name)?) $(, " ", crate::save::saved_name!($field $($name)?))*
                ));
                let Self { $($field,)* $($($left: _,)*)? } = self;
                crate::save::Save::save(&MARK, out);
                $(crate::save::Save::save($field, out);)*
            }

            fn load(from: &mut crate::save::Source<'_>) -> Result<Self, crate::save::LoadError> {
                const MARK: u32 = crate::save::mark(concat!(
                    crate::save::saved_name!($row $($row_name)?) $(, " ", crate::save::saved_name!($field $($name)?))*
                ));
                if <u32 as crate::save::Save>::load(from)? != MARK {
                    return Err(crate::save::LoadError::Row { row: crate::save::saved_name!($row $($row_name)?) });
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

            fn load(from: &mut crate::save::Source<'_>) -> Result<Self, crate::save::LoadError> {
                $(let $field = Save::load(from)?;)*
                Ok(Self { $($($left: $fresh,)*)? $($field,)* })
            }
        }
    };
}
pub(crate) use saved_generic;

/// Saves a struct without a mark of its fields: as the tuple that it was when it was first saved.
macro_rules! saved_unmarked {
    ($row:ident { $($field:ident),* $(,)? }) => {
        impl crate::save::Save for $row {
            fn save(&self, out: &mut Vec<u8>) {
                let Self { $($field),* } = self;
                $(crate::save::Save::save($field, out);)*
            }

            fn load(from: &mut crate::save::Source<'_>) -> Result<Self, crate::save::LoadError> {
                $(let $field = crate::save::Save::load(from)?;)*
                Ok(Self { $($field),* })
            }
        }
    };
}
pub(crate) use saved_unmarked;

/// Saves structs of one nameless field.
macro_rules! saved_inside {
    ($($row:ident),+ $(,)?) => {$(
        impl crate::save::Save for $row {
            fn save(&self, out: &mut Vec<u8>) {
                crate::save::Save::save(&self.0, out);
            }

            fn load(from: &mut crate::save::Source<'_>) -> Result<Self, crate::save::LoadError> {
                Ok(Self(crate::save::Save::load(from)?))
            }
        }
    )+};
}
pub(crate) use saved_inside;

/// Saves enums without fields as the index of their variant.
macro_rules! saved_enum {
    ($($kind:ident $(as $kind_name:literal)? { $($variant:ident),+ $(,)? })+) => {$(
        impl crate::save::Save for $kind {
            fn save(&self, out: &mut Vec<u8>) {
                const ALL: &[&str] = &[$(stringify!($variant)),+];
                let name = match self {
                    $(Self::$variant => stringify!($variant),)+
                };
                let index = ALL.iter().position(|other| *other == name).and_then(|index| u8::try_from(index).ok());
                out.push(index.expect("a kind has few variants"));
            }

            fn load(from: &mut crate::save::Source<'_>) -> Result<Self, crate::save::LoadError> {
                const ALL: &[fn() -> $kind] = &[$(|| $kind::$variant),+];
                let make = ALL.get(usize::from(<u8 as crate::save::Save>::load(from)?));
                let what = crate::save::saved_name!($kind $($kind_name)?);
                make.map(|make| make()).ok_or(crate::save::LoadError::Value { what })
            }
        }
    )+};
}
pub(crate) use saved_enum;

/// Reads facts, in other words where the source has them.
pub(crate) fn load_json<T: serde::de::DeserializeOwned>(
    from: &mut Source<'_>,
    what: &'static str,
) -> Result<T, LoadError> {
    let bad = |_| LoadError::Value { what };
    let length = usize::load(from)?;
    let json = from.take(length)?;
    let Some(texts) = &mut from.texts else { return serde_json::from_slice(json).map_err(bad) };
    let mut facts = serde_json::from_slice(json).map_err(bad)?;
    texts.facts(&mut facts);
    serde_json::from_value(facts).map_err(bad)
}

/// Saves facts as their JSON, which they have anyway.
macro_rules! saved_as_json {
    ($($kind:ident $(as $name:literal)?),+ $(,)?) => {$(
        impl crate::save::Save for $kind {
            fn save(&self, out: &mut Vec<u8>) {
                let json = serde_json::to_vec(self).expect("facts have text keys only");
                crate::save::Save::save(&json.len(), out);
                out.extend(json);
            }

            fn load(from: &mut crate::save::Source<'_>) -> Result<Self, crate::save::LoadError> {
                crate::save::load_json(from, crate::save::saved_name!($kind $($name)?))
            }
        }
    )+};
}
pub(crate) use saved_as_json;
