//! What a cluster needs before the components can run on it, as manifests for kubectl.
//!
//! Invariant: what is printed is what our own API server goes by: the definitions of `api`, the rights of `auth`.

use anyhow::{Context as _, Result};
use pumice_auth::{Component, Identities, installation};
use serde_json::Value;

use crate::args::install::RolesArgs;
use crate::output;

/// `pumice crds`.
pub fn definitions() -> Result<()> {
    print(&pumice_api::crds::all())
}

/// `pumice roles`.
pub fn roles(args: &RolesArgs) -> Result<()> {
    let identities = if args.users { Identities::Users } else { Identities::ServiceAccounts };
    let named: Vec<Component> = args.components.iter().map(|component| component.component()).collect();
    let components = if named.is_empty() { &Component::ALL[..] } else { &named };
    print(&installation(components, &args.namespace, identities))
}

/// Prints manifests, one document each.
fn print(objects: &[Value]) -> Result<()> {
    let text = manifests(objects)?;
    output::print(&text)
}

fn manifests(objects: &[Value]) -> Result<String> {
    let mut text = String::new();
    for object in objects {
        text.push_str("---\n");
        text.push_str(serde_saphyr::to_string(object).context("write a manifest")?.trim_end());
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_what_was_meant() {
        let roles = installation(&Component::ALL, "volcano-system", Identities::ServiceAccounts);
        for objects in [pumice_api::crds::all(), roles] {
            let text = manifests(&objects).unwrap();
            let read: Vec<Value> =
                text.split("---\n").skip(1).map(|document| serde_saphyr::from_str(document).unwrap()).collect();
            assert_eq!(read, objects);
        }
    }

    #[test]
    fn manifests_are_for_people_too() {
        let roles = installation(&[Component::Admission], "volcano-system", Identities::ServiceAccounts);
        insta::assert_snapshot!(manifests(&roles).unwrap());
    }
}
