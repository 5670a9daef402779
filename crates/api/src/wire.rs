//! How Go's JSON habits look in serde: absent = zero value, `null` = absent, open sets of words.
//!
//! Used by every wire type of this crate; nothing here is visible outside.

use serde::{Deserialize, Deserializer};

/// Reads `null` as the type's zero value, as Go's decoder does.
pub(crate) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// Go's `omitempty`: a zero value is not written.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Reads an empty word as absent: Go's string enums have the empty string as their zero value.
pub(crate) fn word<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: From<String>,
{
    let word = Option::<String>::deserialize(deserializer)?;
    Ok(word.filter(|word| !word.is_empty()).map(T::from))
}

/// Schema of a word that upstream does not restrict.
pub(crate) fn any_word(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "string" })
}

/// Schema of Go's plain `int`: no format.
pub(crate) fn plain_integer(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "integer", "minimum": 0 })
}

/// Schema of Go's plain `int` of which upstream says no more.
pub(crate) fn any_integer(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "integer" })
}

/// Schema of a number that may have a fraction.
pub(crate) fn any_number(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "number" })
}

/// Upstream's pattern of a DNS-1123 subdomain.
pub(crate) const DNS_SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// Upstream's pattern of a DNS-1123 label.
pub(crate) const DNS_LABEL: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";

/// Defines an enum over words in which unknown words survive as `Other`.
///
/// `closed` puts the known words into the schema (the API server then refuses others), `open` does not.
macro_rules! word_enum {
    (
        $(#[$meta:meta])*
        $openness:ident pub enum $name:ident { $( $(#[$variant_meta:meta])* $variant:ident = $word:literal ),+ $(,)? }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $( $(#[$variant_meta])* $variant, )+
            /// A word this version does not know, kept as it came.
            Other(String),
        }

        impl $name {
            /// The known words, in upstream's order.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// The word on the wire.
            pub fn as_str(&self) -> &str {
                match self {
                    $( Self::$variant => $word, )+
                    Self::Other(word) => word,
                }
            }
        }

        impl From<&str> for $name {
            fn from(word: &str) -> Self {
                match word {
                    $( $word => Self::$variant, )+
                    other => Self::Other(other.to_owned()),
                }
            }
        }

        impl From<String> for $name {
            fn from(word: String) -> Self {
                Self::from(word.as_str())
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer).map(Self::from)
            }
        }

        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                word_enum!(@schema $openness, Self::WORDS)
            }
        }
    };
    (@schema closed, $words:expr) => { schemars::json_schema!({ "type": "string", "enum": $words }) };
    (@schema open, $words:expr) => { schemars::json_schema!({ "type": "string" }) };
}
