//! A case's configuration as the text of a configuration file, so that the scheduler's own parser reads it.
//!
//! In a case a switch that is not named is off and every argument is printed as text; both are undone here.

use pumice_engine::Switch;
use serde_json::{Map, Value, json};

use super::file::CaseConfig;

/// The file. JSON is YAML.
pub(super) fn text(config: &CaseConfig) -> Result<String, String> {
    let mut tiers = Vec::new();
    for tier in &config.tiers {
        let mut plugins = Vec::new();
        for plugin in tier {
            plugins.push(plugin_value(&plugin.name, &plugin.on, &plugin.arguments)?);
        }
        // Volcano's tests go round the rule that these two can't share a tier.
        let apart = plugins.iter().any(|plugin| plugin["name"] == "drf" && plugin[Switch::Hierarchy.key()] == true);
        let (proportion, others) = plugins.into_iter().partition(|plugin| apart && plugin["name"] == "proportion");
        tiers.extend([others, proportion].into_iter().filter(|tier: &Vec<_>| !tier.is_empty()).map(tier_value));
    }
    // A stub that no tier names comes last, with all it can do.
    let named = |name: &String| config.tiers.iter().flatten().any(|plugin| plugin.name == *name);
    for stub in config.test_only_plugins.iter().filter(|name| !named(name)) {
        tiers.push(tier_value(vec![json!({ "name": stub })]));
    }
    let configurations = config.configurations.iter().map(|item| {
        let arguments = typed(&item.arguments);
        json!({ "name": item.name, "arguments": arguments })
    });
    let file = json!({
        "actions": config.actions.join(", "),
        "tiers": tiers,
        "configurations": configurations.collect::<Vec<_>>(),
    });
    Ok(file.to_string())
}

fn tier_value(plugins: Vec<Value>) -> Value {
    json!({ "plugins": plugins })
}

fn plugin_value(name: &str, on: &[String], arguments: &Map<String, Value>) -> Result<Value, String> {
    let mut plugin = Map::new();
    plugin.insert("name".to_owned(), name.into());
    for switch in Switch::ALL {
        plugin.insert(switch.key().to_owned(), on.iter().any(|key| key == switch.key()).into());
    }
    if let Some(unknown) = on.iter().find(|key| !Switch::ALL.iter().any(|switch| switch.key() == key.as_str())) {
        return Err(format!("plugin {name} has no switch {unknown}"));
    }
    plugin.insert("arguments".to_owned(), Value::Object(typed(arguments)));
    Ok(Value::Object(plugin))
}

fn typed(arguments: &Map<String, Value>) -> Map<String, Value> {
    arguments.iter().map(|(key, value)| (key.clone(), value.as_str().map_or_else(|| value.clone(), scalar))).collect()
}

/// Text that prints a number, a boolean, or a map or list as Go prints them.
fn scalar(text: &str) -> Value {
    if text.starts_with("map[") || text.starts_with('[') {
        let mut rest = text;
        if let Some(value) = printed(&mut rest, 0)
            && rest.is_empty()
        {
            return value;
        }
    }
    word(text)
}

fn word(text: &str) -> Value {
    if let Ok(number) = text.parse::<i64>() {
        return number.into();
    }
    if let Ok(truth) = text.parse::<bool>() {
        return truth.into();
    }
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && text.contains('.') => number.into(),
        _ => text.into(),
    }
}

/// How deep a printed map may go.
const DEPTH_MAX: usize = 16;

/// `map[key:value key:value]`, `[value value]` or a word that ends at a blank or a bracket.
fn printed(rest: &mut &str, depth: usize) -> Option<Value> {
    if depth > DEPTH_MAX {
        return None;
    }
    if let Some(inside) = rest.strip_prefix("map[") {
        *rest = inside;
        let mut map = Map::new();
        while !end(rest) {
            let (key, value) = rest.split_once(':')?;
            *rest = value;
            map.insert(key.to_owned(), printed(rest, depth + 1)?);
        }
        return Some(Value::Object(map));
    }
    if let Some(inside) = rest.strip_prefix('[') {
        *rest = inside;
        let mut list = Vec::new();
        while !end(rest) {
            list.push(printed(rest, depth + 1)?);
        }
        return Some(Value::Array(list));
    }
    let stop = rest.find([' ', ']'])?;
    let (text, after) = rest.split_at(stop);
    *rest = after;
    Some(word(text))
}

/// Skips blanks; takes a closing bracket.
fn end(rest: &mut &str) -> bool {
    *rest = rest.trim_start_matches(' ');
    if let Some(after) = rest.strip_prefix(']') {
        *rest = after;
        return true;
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_get_their_types_back() {
        for (text, value) in [
            ("10", json!(10)),
            ("1.2", json!(1.2)),
            ("true", json!(true)),
            ("3m", json!("3m")),
            ("nan", json!("nan")),
            ("a,b", json!("a,b")),
            ("map[cpu:map[type:Most weight:1] b:map[]]", json!({"cpu": {"type": "Most", "weight": 1}, "b": {}})),
            ("[a 2 map[x:y]]", json!(["a", 2, {"x": "y"}])),
            ("map[broken", json!("map[broken")),
            ("map[a:b] c", json!("map[a:b] c")),
        ] {
            assert_eq!(scalar(text), value, "{text}");
        }
        assert_eq!(scalar(&"[".repeat(100_000)), json!("[".repeat(100_000)));
    }
}
