//! A pod as controls look at it, what they find there, and how that is told.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::Value;

/// Lists of containers, in the order in which they are named.
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
/// The first minor version that knows pods by their operating system.
const WINDOWS_SINCE: u32 = 25;
/// The first minor version that takes a user namespace for what others take dropped rights.
const OWN_USERS_SINCE: u32 = 35;

/// A pod, or a template of pods, as of a version of Kubernetes.
pub(super) struct Pod<'a> {
    pub(super) annotations: &'a Value,
    pub(super) spec: &'a Value,
    pub(super) minor: u32,
    /// Whether its user namespace loosens what is asked of it.
    pub(super) has_own_users: bool,
}

impl<'a> Pod<'a> {
    pub(super) fn new(pod: &'a Value, minor: u32) -> Self {
        let spec = &pod["spec"];
        let has_own_users = minor >= OWN_USERS_SINCE && spec["hostUsers"] == false;
        Self { annotations: &pod["metadata"]["annotations"], spec, minor, has_own_users }
    }

    /// Whether it is for Windows, whose pods can't say what `restricted` asks of others.
    pub(super) fn is_windows(&self) -> bool {
        self.minor >= WINDOWS_SINCE && self.spec["os"]["name"] == "windows"
    }

    /// Its containers of every list.
    pub(super) fn containers(&self) -> impl Iterator<Item = (Subject<'a>, &'a Value)> {
        let spec = self.spec;
        CONTAINERS.into_iter().enumerate().flat_map(move |(list, field)| {
            items(&spec[field]).enumerate().map(move |(index, container)| {
                (Subject::Container { list, index, name: text(&container["name"]) }, container)
            })
        })
    }

    /// The security contexts of all its containers.
    pub(super) fn container_contexts(&self) -> impl Iterator<Item = (Subject<'a>, &'a Value)> {
        self.containers().map(|(subject, container)| (subject, &container["securityContext"]))
    }

    /// Its own security context, then those of all its containers.
    pub(super) fn contexts(&self) -> impl Iterator<Item = (Subject<'a>, &'a Value)> {
        [(Subject::Pod, &self.spec["securityContext"])].into_iter().chain(self.container_contexts())
    }

    pub(super) fn volumes(&self) -> impl Iterator<Item = (Subject<'a>, &'a Value)> {
        let volumes = items(&self.spec["volumes"]).enumerate();
        volumes.map(|(index, volume)| (Subject::Volume { index, name: text(&volume["name"]) }, volume))
    }
}

/// What has a forbidden field.
#[derive(Clone, Copy)]
pub(super) enum Subject<'a> {
    Pod,
    Volume { index: usize, name: &'a str },
    Container { list: usize, index: usize, name: &'a str },
    Annotation,
}

/// A forbidden field, or one that is missing.
pub(super) struct Finding<'a> {
    pub(super) subject: Subject<'a>,
    /// Its path below the subject.
    pub(super) field: Cow<'static, str>,
    /// What it says; nothing where it says nothing.
    pub(super) value: Option<Cow<'a, str>>,
}

impl<'a> Finding<'a> {
    pub(super) fn new(
        subject: Subject<'a>,
        field: impl Into<Cow<'static, str>>,
        value: impl Into<Cow<'a, str>>,
    ) -> Self {
        Self { subject, field: field.into(), value: Some(value.into()) }
    }

    /// Of a field that is missing.
    pub(super) fn missing(subject: Subject<'a>, field: &'static str) -> Self {
        Self { subject, field: field.into(), value: None }
    }

    /// Whether the field is there, and not merely missing.
    pub(super) fn is_explicit(&self) -> bool {
        self.value.is_some()
    }

    /// The pod itself goes before its containers, and these go in their order.
    pub(super) fn rank(&self) -> (usize, usize) {
        match self.subject {
            Subject::Container { list, index, .. } => (list + 1, index),
            Subject::Pod | Subject::Volume { .. } | Subject::Annotation => (0, 0),
        }
    }

    /// The path of the field within the spec.
    pub(super) fn path(&self) -> String {
        let field = &self.field;
        match self.subject {
            Subject::Container { list, index, .. } => format!("{}[{index}].{field}", CONTAINERS[list]),
            Subject::Volume { index, .. } => format!("volumes[{index}].{field}"),
            Subject::Pod | Subject::Annotation => field.to_string(),
        }
    }
}

/// The items of a list; nothing where it is none.
pub(super) fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// A text; an empty one where it is none.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// One of two words by number.
pub(super) fn plural(count: usize, one: &'static str, many: &'static str) -> &'static str {
    if count == 1 { one } else { many }
}

/// Names between double quotes, with commas.
pub(super) fn quoted<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
}

/// The values that were found, each once, in order of the alphabet.
pub(super) fn values<'f>(findings: &[&'f Finding<'_>]) -> BTreeSet<&'f str> {
    findings.iter().filter_map(|finding| finding.value.as_deref()).collect()
}

/// The containers that were found, each once, in their order.
pub(super) fn names<'f>(findings: &[&'f Finding<'_>]) -> Vec<&'f str> {
    let found = findings.iter().filter_map(|finding| match finding.subject {
        Subject::Container { name, .. } | Subject::Volume { name, .. } => Some(name),
        Subject::Pod | Subject::Annotation => None,
    });
    unique(found)
}

/// Texts, each once, in their order: the templates of one object may break a control alike.
pub(super) fn unique<'f>(texts: impl Iterator<Item = &'f str>) -> Vec<&'f str> {
    let mut unique = Vec::new();
    for text in texts {
        if !unique.contains(&text) {
            unique.push(text);
        }
    }
    unique
}

/// `container "a"`, or `containers "a", "b"`.
pub(super) fn containers(findings: &[&Finding<'_>]) -> String {
    let names = names(findings);
    format!("{} {}", plural(names.len(), "container", "containers"), quoted(names))
}

/// `container "a" uses host "b"`, by one word and the other for one and for many.
pub(super) fn uses(
    names: &[&str],
    [container, containers]: [&'static str; 2],
    values: &BTreeSet<&str>,
    [value, many]: [&'static str; 2],
) -> String {
    format!(
        "{} {} {} {} {}",
        plural(names.len(), container, containers),
        quoted(names.iter().copied()),
        plural(names.len(), "uses", "use"),
        plural(values.len(), value, many),
        quoted(values.iter().copied())
    )
}

/// As [`containers`], with `pod` before them where its own field was found.
pub(super) fn setters(findings: &[&Finding<'_>]) -> String {
    let mut setters = Vec::new();
    if findings.iter().any(|finding| matches!(finding.subject, Subject::Pod)) {
        setters.push("pod".to_owned());
    }
    if findings.iter().any(|finding| matches!(finding.subject, Subject::Container { .. })) {
        setters.push(containers(findings));
    }
    let annotations = findings.iter().filter(|finding| matches!(finding.subject, Subject::Annotation)).count();
    if annotations > 0 {
        setters.push(plural(annotations, "annotation", "annotations").to_owned());
    }
    setters.join(" and ")
}
