//! As much of Go as the types of Kubernetes' API need: structs with tagged fields, names for other types, imports.
//!
//! Invariant: what is read is gofmt's form, one field a line. Called by `protobuf`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context as _;

/// The types of one package.
#[derive(Default)]
pub struct Package {
    /// Its name in the table, as `core.v1`.
    name: String,
    /// Its API group, if it is one.
    pub group: Option<String>,
    /// Fields by struct.
    pub structs: BTreeMap<String, Vec<Field>>,
    /// What other types are, by name.
    pub aliases: BTreeMap<String, String>,
    /// Names in the table by the names that the files import packages under.
    imports: BTreeMap<String, String>,
}

/// One field of a struct.
pub struct Field {
    /// Its type as it is written.
    pub go_type: String,
    tags: String,
}

/// The name that the table has for the package at a path: `core.v1` of `api/core/v1`, `types` of `apimachinery/pkg/types`.
pub fn short(path: &str) -> String {
    let segments: Vec<&str> = path.split('/').collect();
    match segments.as_slice() {
        [.., group, version @ "v1"] => format!("{group}.{version}"),
        [.., last] => (*last).to_owned(),
        [] => String::new(),
    }
}

impl Package {
    /// Reads the files of a folder that people wrote.
    pub fn read(folder: &Path) -> anyhow::Result<Self> {
        let mut package = Self { name: short(&folder.to_string_lossy()), ..Self::default() };
        for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let generated = name.starts_with("zz_") || name.starts_with("generated") || name.ends_with("_test.go");
            if name.ends_with(".go") && !generated {
                package.file(&fs::read_to_string(&path)?);
            }
        }
        Ok(package)
    }

    fn file(&mut self, text: &str) {
        let mut open: Option<String> = None;
        for line in text.lines() {
            if let Some(name) = &open {
                if line == "}" {
                    open = None;
                } else if let Some(field) = Field::parse(line) {
                    self.structs.entry(name.clone()).or_default().push(field);
                }
            } else if let Some(declared) = line.strip_prefix("type ") {
                match declared.split_whitespace().collect::<Vec<_>>().as_slice() {
                    [name, "struct{}"] => {
                        self.structs.insert((*name).to_owned(), Vec::new());
                    }
                    [name, "struct", "{"] => open = Some((*name).to_owned()),
                    [name, other] => {
                        self.aliases.insert((*name).to_owned(), (*other).to_owned());
                    }
                    _ => {}
                }
            } else if let Some(group) = line.strip_prefix("const GroupName = ") {
                self.group = Some(group.trim_matches('"').to_owned());
            } else {
                self.import(line);
            }
        }
    }

    /// `v1 "k8s.io/api/core/v1"`, with or without the name.
    fn import(&mut self, line: &str) {
        let line = line.trim().trim_start_matches("import ");
        let Some((name, path)) = line.split_once('"') else { return };
        let Some(path) = path.strip_prefix("k8s.io/").and_then(|path| path.strip_suffix('"')) else { return };
        let last = path.rsplit('/').next().unwrap_or_default();
        let name = Some(name.trim()).filter(|name| !name.is_empty()).unwrap_or(last);
        self.imports.insert(name.to_owned(), short(path));
    }

    /// Structs that are kinds of their own and no lists.
    pub fn kinds(&self) -> impl Iterator<Item = &str> {
        let is_kind = |fields: &Vec<Field>| fields.iter().any(|field| field.go_type == "metav1.TypeMeta");
        let kinds = self.structs.iter().filter(move |(name, fields)| is_kind(fields) && !name.ends_with("List"));
        kinds.map(|(name, _)| name.as_str())
    }

    /// The table's name of a type that this package names so.
    pub fn qualified(&self, name: &str) -> anyhow::Result<String> {
        let Some((import, name)) = name.split_once('.') else { return Ok(format!("{}.{name}", self.name)) };
        let package = self.imports.get(import).with_context(|| format!("{import} is not imported"))?;
        Ok(format!("{package}.{name}"))
    }
}

impl Field {
    fn parse(line: &str) -> Option<Self> {
        let line = line.trim();
        let (declared, rest) = line.split_once('`').filter(|_| !line.starts_with("//"))?;
        let (tags, _) = rest.split_once('`')?;
        let go_type = declared.split_whitespace().last()?.to_owned();
        Some(Self { go_type, tags: tags.to_owned() })
    }

    /// The value of a tag.
    pub fn tag(&self, name: &str) -> Option<&str> {
        let (_, rest) = self.tags.split_once(&format!("{name}:\""))?;
        rest.split('"').next()
    }

    /// Its number in the message.
    pub fn number(&self) -> Option<u32> {
        self.tag("protobuf")?.split(',').nth(1)?.parse().ok()
    }

    /// Its name in JSON; that in the message where there is no other.
    pub fn json_name(&self) -> Option<&str> {
        match self.tag("json") {
            Some(tag) => tag.split(',').next().filter(|name| !name.is_empty() && *name != "-"),
            None => self.tag("protobuf")?.split(',').find_map(|part| part.strip_prefix("name=")),
        }
    }

    /// What stands behind the name in JSON.
    pub fn json_options(&self) -> impl Iterator<Item = &str> {
        self.tag("json").unwrap_or_default().split(',').skip(1)
    }

    /// Whether its fields are those of the struct around it.
    pub fn is_inline(&self) -> bool {
        self.json_options().any(|option| option == "inline")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r#"package v1
import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)
const GroupName = "apps"
type Words map[string]string
type Empty struct{}
// A Thing.
type Thing struct {
	metav1.TypeMeta `json:",inline"`
	// Not a field `json:"not"`
	Replicas *int32 `json:"replicas,omitempty" protobuf:"varint,1,opt,name=replicas"` // how many
	corev1.PodSpec `json:",inline" protobuf:"bytes,2,opt,name=podSpec"`
	Port intstr.IntOrString `protobuf:"bytes,3,opt,name=port"`
}
type ThingList struct {
	metav1.TypeMeta `json:",inline"`
}
"#;

    #[test]
    fn what_the_table_needs_is_read() {
        let mut package = Package { name: "apps.v1".to_owned(), ..Package::default() };
        package.file(SOURCE);
        assert_eq!(package.group.as_deref(), Some("apps"));
        assert_eq!(package.kinds().collect::<Vec<_>>(), ["Thing"]);
        assert_eq!(package.aliases["Words"], "map[string]string");
        assert!(package.structs["Empty"].is_empty());
        let fields = &package.structs["Thing"][1..];
        let read: Vec<_> =
            fields.iter().map(|one| (one.go_type.as_str(), one.number(), one.json_name(), one.is_inline())).collect();
        assert_eq!(
            read,
            [
                ("*int32", Some(1), Some("replicas"), false),
                ("corev1.PodSpec", Some(2), None, true),
                ("intstr.IntOrString", Some(3), Some("port"), false),
            ]
        );
        assert_eq!(package.qualified("corev1.PodSpec").expect("imported"), "core.v1.PodSpec");
        assert_eq!(package.qualified("Words").expect("its own"), "apps.v1.Words");
        assert!(package.qualified("other.X").is_err());
    }
}
