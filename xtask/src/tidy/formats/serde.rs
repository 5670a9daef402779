//! The shape of what serde reads and writes.

use super::{case, plain, settings};

/// The fields of a struct; nothing where it is written as another type, or as what it wraps.
pub fn of_struct(item: &syn::ItemStruct, reads: bool) -> Option<String> {
    let container = settings(&item.attrs, &["serde"]);
    if container.contains_key("transparent") || is_another(&container, reads) {
        return None;
    }
    let syn::Fields::Named(named) = &item.fields else { return None };
    let rule = container.get("rename_all").map_or("", String::as_str);
    let shape = fields(named, rule, reads, container.contains_key("default"));
    (!named.named.is_empty()).then(|| format!("fields {shape}"))
}

/// The variants of an enum.
pub fn of_enum(item: &syn::ItemEnum, reads: bool) -> Option<String> {
    let container = settings(&item.attrs, &["serde"]);
    if is_another(&container, reads) {
        return None;
    }
    let rule = container.get("rename_all").map_or("", String::as_str);
    let field_rule = container.get("rename_all_fields").map_or("", String::as_str);
    let untagged = container.contains_key("untagged");
    let variants: Vec<String> = item
        .variants
        .iter()
        .filter_map(|variant| {
            let own = settings(&variant.attrs, &["serde"]);
            if own.contains_key("skip") {
                return None;
            }
            let content = match &variant.fields {
                syn::Fields::Named(named) => {
                    let rule = own.get("rename_all").map_or(field_rule, String::as_str);
                    format!("{{{}}}", fields(named, rule, reads, false))
                }
                syn::Fields::Unnamed(unnamed) => format!("({})", vec!["_"; unnamed.unnamed.len()].join(" ")),
                syn::Fields::Unit => String::new(),
            };
            let name = || case::variant(&plain(&variant.ident), rule);
            let name = if untagged { String::new() } else { own.get("rename").cloned().unwrap_or_else(name) };
            Some(name + &content + &aliases(&own))
        })
        .collect();
    let tag: String =
        ["tag", "content"].iter().filter_map(|key| Some(format!(" {key}={}", container.get(*key)?))).collect();
    Some(format!("variants{tag} {}", variants.join(" ")))
}

/// Whether a type is read or written by way of another, whose names count instead.
fn is_another(container: &std::collections::BTreeMap<String, String>, reads: bool) -> bool {
    container.contains_key("into") || reads && (container.contains_key("from") || container.contains_key("try_from"))
}

fn fields(named: &syn::FieldsNamed, rule: &str, reads: bool, all_optional: bool) -> String {
    let names: Vec<String> = named
        .named
        .iter()
        .filter_map(|field| {
            let own = settings(&field.attrs, &["serde"]);
            if own.contains_key("skip") {
                return None;
            }
            if own.contains_key("flatten") {
                return Some("..".to_owned());
            }
            let ident = plain(field.ident.as_ref()?);
            let name = own.get("rename").cloned().unwrap_or_else(|| case::field(&ident, rule));
            let by_itself = !own.contains_key("deserialize_with") && !own.contains_key("with");
            let optional = all_optional || own.contains_key("default") || by_itself && is_option(&field.ty);
            Some(name + if reads && optional { "?" } else { "" } + &aliases(&own))
        })
        .collect();
    names.join(" ")
}

fn aliases(own: &std::collections::BTreeMap<String, String>) -> String {
    own.get("alias").map(|alias| format!("|{alias}")).unwrap_or_default()
}

fn is_option(of: &syn::Type) -> bool {
    let syn::Type::Path(path) = of else { return false };
    path.path.segments.last().is_some_and(|last| last.ident == "Option")
}
