//! Flags, commands and values of a command line.

use super::{case, plain, settings};

/// The flags and arguments of a group; nothing where it has none of its own.
pub fn of_struct(item: &syn::ItemStruct) -> Option<String> {
    let names: Vec<String> = item.fields.iter().filter_map(argument).collect();
    (!names.is_empty()).then(|| format!("flags {}", names.join(" ")))
}

/// The names of commands, or of a flag's values.
pub fn of_enum(item: &syn::ItemEnum, are_values: bool) -> Vec<String> {
    let container = settings(&item.attrs, &["command", "value", "clap"]);
    let rule = container.get("rename_all").map_or("kebab-case", String::as_str);
    let mut shapes = Vec::new();
    let mut names = Vec::new();
    for variant in &item.variants {
        let own = settings(&variant.attrs, &["command", "value", "clap"]);
        if own.contains_key("flatten") || own.contains_key("skip") {
            continue;
        }
        let mut name = own.get("name").cloned().unwrap_or_else(|| case::variant(&plain(&variant.ident), rule));
        for key in ["alias", "visible_alias", "aliases", "visible_aliases"] {
            if let Some(alias) = own.get(key) {
                name = format!("{name}|{alias}");
            }
        }
        let flags: Vec<String> = match &variant.fields {
            syn::Fields::Named(named) => named.named.iter().filter_map(argument).collect(),
            _ => Vec::new(),
        };
        if !flags.is_empty() {
            shapes.push(format!("flags {}", flags.join(" ")));
        }
        names.push(name);
    }
    shapes.push(format!("{} {}", if are_values { "values" } else { "commands" }, names.join(" ")));
    shapes
}

/// `--long|-s` of a flag, `NAME` of an argument.
fn argument(field: &syn::Field) -> Option<String> {
    let own = settings(&field.attrs, &["arg", "command", "clap"]);
    if ["flatten", "subcommand", "skip"].iter().any(|key| own.contains_key(*key)) {
        return None;
    }
    let ident = plain(field.ident.as_ref()?);
    let id = own.get("id").unwrap_or(&ident);
    let or = |value: &str, otherwise: String| if value.is_empty() { otherwise } else { value.to_owned() };
    let long = own.get("long").map(|long| format!("--{}", or(long, case::field(id, "kebab-case"))));
    let short = own.get("short").map(|short| format!("-{}", or(short, id.chars().take(1).collect())));
    let value = own.get("value_name").cloned().or_else(|| {
        let positional = long.is_none() && short.is_none();
        let takes_none = matches!(&field.ty, syn::Type::Path(path) if path.path.is_ident("bool"));
        (positional || !takes_none).then(|| case::field(id, "SCREAMING_SNAKE_CASE"))
    });
    let alias = own.get("alias").map(|alias| format!("--{alias}"));
    let parts: Vec<String> = [long, short, alias].into_iter().flatten().collect();
    Some(match value {
        Some(value) if parts.is_empty() => value,
        Some(value) => format!("{}={value}", parts.join("|")),
        None => parts.join("|"),
    })
}
