//! Names and uids as the engine is given them and gives them out, each of a type of its own: a group's uid can't stand
//! where a pod's is asked for. They are read, written, hashed and shown as the text they hold, and are made from any.
//!
//! Inside, tables find rows by the bare text and go by dense ids from there on.

use std::borrow::Borrow;
use std::fmt::{self, Debug, Display, Formatter};
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// The bare text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Debug for $name {
            fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
                Debug::fmt(&self.0, f)
            }
        }

        impl Display for $name {
            fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
                Display::fmt(&self.0, f)
            }
        }

        impl Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }

        impl From<&Arc<str>> for $name {
            fn from(text: &Arc<str>) -> Self {
                Self(text.as_ref().to_owned())
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                self.0 == other
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                self.0 == *other
            }
        }
    )+};
}

names! {
    /// The uid of a pod: two pods of one name that follow each other have different ones.
    PodUid,
    /// The uid of a PodGroup; empty where none is known, as of groups that are made of bare pods.
    GroupUid,
    /// The name of a node, the same for as long as the cluster has it.
    NodeName,
    /// An object of a namespace, as `namespace/name`; empty where there is none.
    ObjectName,
}

crate::save::saved_inside!(NodeName);

impl ObjectName {
    /// The object of that name in a namespace.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self([namespace, "/", name].concat())
    }

    /// Namespace and name, the first of which has no slash; none where it is empty.
    pub fn parts(&self) -> Option<(&str, &str)> {
        self.0.split_once('/')
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use super::*;

    #[test]
    fn a_name_is_read_written_shown_and_found_as_its_text() {
        let uid = PodUid::from("a-1");
        assert_eq!(serde_json::to_string(&uid).unwrap(), r#""a-1""#);
        assert_eq!(serde_json::from_str::<PodUid>(r#""a-1""#).unwrap(), uid);
        assert_eq!((format!("{uid}"), format!("{uid:?}")), ("a-1".to_owned(), r#""a-1""#.to_owned()));
        assert_eq!(HashMap::from([(uid.clone(), 1)]).get("a-1"), Some(&1));
        assert_eq!(BTreeMap::from([(uid.clone(), 1)]).get("a-1"), Some(&1));
        assert_eq!(String::from(uid), "a-1");
    }

    #[test]
    fn an_object_is_named_by_namespace_and_name() {
        let object = ObjectName::new("ns", "a");
        assert_eq!((object.as_str(), object.parts()), ("ns/a", Some(("ns", "a"))));
        assert_eq!(ObjectName::default().parts(), None);
    }
}
