//! An entry as a server sends it.

use std::collections::HashMap;

use ldap3::asn1::{PL, StructureTag};

/// An entry with its attributes; the name of an attribute is in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub dn: String,
    attributes: HashMap<String, Vec<Vec<u8>>>,
}

/// Values of an attribute that come in several answers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub values: Vec<String>,
    /// Where the next ones begin; nothing after the last.
    pub next: Option<u32>,
}

impl Record {
    /// Reads an entry; nothing if it is none. The library's own reading panics then.
    pub fn of(tag: StructureTag) -> Option<Record> {
        let mut parts = inner(tag)?.into_iter();
        let dn = String::from_utf8(bytes(parts.next()?)?).ok()?;
        let mut attributes: HashMap<String, Vec<Vec<u8>>> = HashMap::new();
        for attribute in inner(parts.next()?)? {
            let mut parts = inner(attribute)?.into_iter();
            let name = String::from_utf8(bytes(parts.next()?)?).ok()?.to_ascii_lowercase();
            let values: Option<Vec<Vec<u8>>> = inner(parts.next()?)?.into_iter().map(bytes).collect();
            attributes.entry(name).or_default().extend(values?);
        }
        Some(Record { dn, attributes })
    }

    /// The first value of an attribute, as it is.
    pub fn bytes(&self, attribute: &str) -> Option<&[u8]> {
        self.values(attribute).first().map(Vec::as_slice)
    }

    /// The first value that is text.
    pub fn text(&self, attribute: &str) -> Option<&str> {
        self.texts(attribute).next()
    }

    /// All values that are text.
    pub fn texts(&self, attribute: &str) -> impl Iterator<Item = &str> {
        self.values(attribute).iter().filter_map(|value| std::str::from_utf8(value).ok())
    }

    /// A number; nothing where it is none.
    pub fn number(&self, attribute: &str) -> Option<i64> {
        self.text(attribute)?.trim().parse().ok()
    }

    /// The part of an attribute that came with a range, as Active Directory sends what is long: `member;range=0-1499`.
    pub fn range(&self, attribute: &str) -> Option<Range> {
        let prefix = format!("{};range=", attribute.to_ascii_lowercase());
        let (end, values) = self.attributes.iter().find_map(|(name, values)| {
            let (_, end) = name.strip_prefix(&prefix)?.split_once('-')?;
            Some((end, values))
        })?;
        let next = match end {
            "*" => None,
            number => Some(number.parse::<u32>().ok()?.checked_add(1)?),
        };
        let values = values.iter().filter_map(|value| String::from_utf8(value.clone()).ok()).collect();
        Some(Range { values, next })
    }

    fn values(&self, attribute: &str) -> &[Vec<u8>] {
        self.attributes.get(&attribute.to_ascii_lowercase()).map(Vec::as_slice).unwrap_or_default()
    }
}

fn inner(tag: StructureTag) -> Option<Vec<StructureTag>> {
    match tag.payload {
        PL::C(inner) => Some(inner),
        PL::P(_) => None,
    }
}

fn bytes(tag: StructureTag) -> Option<Vec<u8>> {
    match tag.payload {
        PL::P(bytes) => Some(bytes),
        PL::C(_) => None,
    }
}

#[cfg(test)]
impl Record {
    /// A record for tests.
    pub fn with(dn: &str, attributes: &[(&str, &[&str])]) -> Record {
        let values = |values: &[&str]| values.iter().map(|value| value.as_bytes().to_vec()).collect();
        let attributes = attributes.iter().map(|(name, all)| (name.to_ascii_lowercase(), values(all))).collect();
        Record { dn: dn.to_owned(), attributes }
    }

    /// The same with one more attribute of bytes.
    pub fn with_bytes(mut self, name: &str, value: &[u8]) -> Record {
        self.attributes.insert(name.to_ascii_lowercase(), vec![value.to_vec()]);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_whatever_their_case() {
        let record = Record::with("cn=a", &[("uidNumber", &["4001"]), ("cn", &["a", "b"]), ("bad", &["x1"])]);
        assert_eq!(
            (record.number("UIDNUMBER"), record.text("CN"), record.number("bad")),
            (Some(4001), Some("a"), None)
        );
        assert_eq!(record.texts("cn").collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(record.text("none"), None);
    }

    #[test]
    fn ranges_say_where_they_go_on() {
        let range = |name: &str| Record::with("cn=a", &[(name, &["x"])]).range("member");
        assert_eq!(range("member;range=0-1499").unwrap().next, Some(1500));
        assert_eq!(range("Member;Range=1500-*").unwrap(), Range { values: vec!["x".into()], next: None });
        for other in ["member", "member;range=0", "members;range=0-1", "member;range=0-x", "member;range=0-4294967295"]
        {
            assert_eq!(range(other), None, "{other}");
        }
    }

    #[test]
    fn what_is_no_entry_is_none() {
        let text = StructureTag { class: ldap3::asn1::TagClass::Universal, id: 4, payload: PL::P(vec![0xFF]) };
        let list = |inner| StructureTag { class: ldap3::asn1::TagClass::Universal, id: 16, payload: PL::C(inner) };
        assert_eq!(Record::of(text.clone()), None);
        assert_eq!(Record::of(list(vec![])), None);
        assert_eq!(Record::of(list(vec![text.clone(), list(vec![])])), None);
        let name = StructureTag { payload: PL::P(b"cn=a".to_vec()), ..text };
        assert_eq!(Record::of(list(vec![name.clone(), list(vec![text])])), None);
        assert!(Record::of(list(vec![name, list(vec![])])).is_some());
    }
}
