//! A container's environment: defaults, the image map's, `envFrom`, `env`, in that order; and `$(VAR)` in commands, arguments and
//! values.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EnvVarSource, Pod};

use crate::downward_api::{self, Placement};
use crate::pod_spec::resolve::ResolveError;
use crate::pod_spec::sources::Sources;

/// An environment in order; a later value replaces an earlier one.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Environment {
    variables: Vec<(String, String)>,
}

impl Environment {
    /// Sets a variable; one that is there keeps its turn in the order.
    pub(crate) fn set(&mut self, name: &str, value: String) {
        match self.variables.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = value,
            None => self.variables.push((name.to_owned(), value)),
        }
    }

    /// The value of a variable.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// All variables in order.
    pub(crate) fn into_variables(self) -> Vec<(String, String)> {
        self.variables
    }
}

/// Adds what the pod's spec says to `environment`.
pub(crate) fn add(
    environment: &mut Environment,
    pod: &Pod,
    container: &Container,
    sources: &Sources,
    placement: &Placement,
) -> Result<(), ResolveError> {
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        if let Some(from) = &source.config_map_ref {
            let keys = needed("ConfigMap", &from.name, sources.config_map(&from.name), from.optional)?;
            add_all(environment, prefix, keys);
        }
        if let Some(from) = &source.secret_ref {
            let keys = needed("Secret", &from.name, sources.secret(&from.name), from.optional)?;
            add_all(environment, prefix, keys);
        }
    }
    for variable in container.env.iter().flatten() {
        let value = match (&variable.value, &variable.value_from) {
            (_, Some(source)) => from_source(source, pod, container, sources, placement)?,
            (value, None) => Some(expand(value.as_deref().unwrap_or_default(), |name| environment.get(name))),
        };
        if let Some(value) = value {
            environment.set(&variable.name, value);
        }
    }
    Ok(())
}

fn add_all(environment: &mut Environment, prefix: &str, keys: BTreeMap<String, Vec<u8>>) {
    for (key, value) in keys {
        environment.set(&format!("{prefix}{key}"), String::from_utf8_lossy(&value).into_owned());
    }
}

/// The value of a reference; none when it is optional and not there.
fn from_source(
    source: &EnvVarSource,
    pod: &Pod,
    container: &Container,
    sources: &Sources,
    placement: &Placement,
) -> Result<Option<String>, ResolveError> {
    if let Some(from) = &source.config_map_key_ref {
        return key("ConfigMap", &from.name, &from.key, sources.config_map(&from.name), from.optional);
    }
    if let Some(from) = &source.secret_key_ref {
        return key("Secret", &from.name, &from.key, sources.secret(&from.name), from.optional);
    }
    if let Some(from) = &source.field_ref {
        let value = downward_api::field(pod, placement, &from.field_path);
        return value.map(Some).ok_or_else(|| ResolveError::Field { path: from.field_path.clone() });
    }
    if let Some(from) = &source.resource_field_ref {
        let value = downward_api::resource(container, placement, from);
        return value.map(Some).ok_or_else(|| ResolveError::Field { path: from.resource.clone() });
    }
    Err(ResolveError::Unsupported { what: "this source of an environment variable".into() })
}

/// An object's keys, or none of them when it is optional and not there.
pub(crate) fn needed(
    kind: &'static str,
    name: &str,
    found: Option<BTreeMap<String, Vec<u8>>>,
    optional: Option<bool>,
) -> Result<BTreeMap<String, Vec<u8>>, ResolveError> {
    match found {
        Some(keys) => Ok(keys),
        None if optional == Some(true) => Ok(BTreeMap::new()),
        None => Err(ResolveError::Missing { kind, name: name.to_owned() }),
    }
}

fn key(
    kind: &'static str,
    name: &str,
    key: &str,
    found: Option<BTreeMap<String, Vec<u8>>>,
    optional: Option<bool>,
) -> Result<Option<String>, ResolveError> {
    let mut keys = needed(kind, name, found, optional)?;
    match keys.remove(key) {
        Some(value) => Ok(Some(String::from_utf8_lossy(&value).into_owned())),
        None if optional == Some(true) => Ok(None),
        None => Err(ResolveError::MissingKey { kind, name: name.to_owned(), key: key.to_owned() }),
    }
}

/// Replaces each `$(NAME)` that `lookup` knows; `$$` stands for `$` and keeps what follows as it is.
pub(crate) fn expand<'a>(text: &str, lookup: impl Fn(&str) -> Option<&'a str>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(escaped) = after.strip_prefix('$') {
            out.push('$');
            rest = escaped;
        } else if let Some((name, behind)) = after.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match lookup(name) {
                Some(value) => out.push_str(value),
                None => out.push_str(&rest[at..rest.len() - behind.len()]),
            }
            rest = behind;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn environment(container: Value) -> Result<Vec<(String, String)>, String> {
        let sources = Sources::of(vec![
            json!({"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": "v", "l": "w"}}),
            json!({"kind": "Secret", "metadata": {"name": "s"}, "data": {"p": "c2VjcmV0"}}),
        ]);
        let pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {"containers": []}})).unwrap();
        let mut out = Environment::default();
        out.set("BASE", "base".into());
        let container = serde_json::from_value(container).unwrap();
        add(&mut out, &pod, &container, &sources, &downward_api::placement()).map_err(|error| error.to_string())?;
        Ok(out.into_variables())
    }

    #[test]
    fn later_values_win_and_earlier_ones_expand() {
        let found = environment(json!({"name": "c",
            "envFrom": [{"configMapRef": {"name": "c"}, "prefix": "X_"}, {"configMapRef": {"name": "none", "optional": true}}],
            "env": [
                {"name": "A", "value": "$(BASE)/$(X_k)/$(LATER)"},
                {"name": "X_l", "value": "mine"},
                {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "p"}}},
                {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "O", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "no", "optional": true}}},
                {"name": "E"},
                {"name": "LATER", "value": "later"},
            ]}))
        .unwrap();
        let text: Vec<_> = found.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(
            text,
            ["BASE=base", "X_k=v", "X_l=mine", "A=base/v/$(LATER)", "S=secret", "N=p", "E=", "LATER=later"]
        );
    }

    #[test]
    fn what_is_missing_is_named() {
        let reference = |kind: &str, name: &str, key: &str| json!({"name": "c", "env": [{"name": "A", "valueFrom": {kind: {"name": name, "key": key}}}]});
        let cases = [
            (reference("configMapKeyRef", "none", "k"), "ConfigMap \"none\" not found"),
            (reference("configMapKeyRef", "c", "none"), "couldn't find key none in ConfigMap \"c\""),
            (reference("secretKeyRef", "none", "k"), "Secret \"none\" not found"),
        ];
        for (container, expected) in cases {
            assert_eq!(environment(container).unwrap_err(), expected);
        }
    }

    #[test]
    fn expansion_follows_kubernetes() {
        let lookup = |name: &str| match name {
            "A" => Some("a"),
            "B" => Some("$(A)"),
            "" => Some("empty"),
            _ => None,
        };
        let cases = [
            ("x$(A)y", "xay"),
            ("$(A)$(A)", "aa"),
            ("$(B)", "$(A)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$a"),
            ("$(MISSING)", "$(MISSING)"),
            ("$(A", "$(A"),
            ("$A ${A} $", "$A ${A} $"),
            ("$()", "empty"),
            ("é$(A)é", "éaé"),
            ("", ""),
        ];
        for (text, expected) in cases {
            assert_eq!(expand(text, lookup), expected, "{text}");
        }
    }
}
