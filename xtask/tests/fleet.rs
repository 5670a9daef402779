//! The fleet's definitions against the facts of Armada's API: a name, number or type that changes breaks its clients.

use std::collections::BTreeSet;
use std::path::Path;

use protox::prost_reflect::{Cardinality, DescriptorPool, EnumDescriptor, Kind, MessageDescriptor};

/// What Armada has, a fact a line: fields, values of enums and calls.
const FACTS: &str = include_str!("../../crates/wire/tests/armada-fields.txt");
/// Armada's packages.
const PACKAGES: &[&str] = &["api", "binoculars", "schedulerobjects"];

fn ours() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace");
    let descriptors = xtask::codegen::fleet::descriptors(root).expect("the definitions are sound");
    let pool = DescriptorPool::from_file_descriptor_set(descriptors).expect("the definitions are whole");
    let mut facts = BTreeSet::new();
    for message in pool.all_messages().filter(|message| PACKAGES.contains(&message.package_name())) {
        fields(&message, &mut facts);
    }
    for of in pool.all_enums().filter(|of| PACKAGES.contains(&of.package_name())) {
        values(&of, &mut facts);
    }
    for service in pool.services().filter(|service| PACKAGES.contains(&service.package_name())) {
        for call in service.methods() {
            let stream = |streams: bool| if streams { "stream " } else { "" };
            facts.insert(format!(
                "{}/{}({}{})returns({}{})",
                service.full_name(),
                call.name(),
                stream(call.is_client_streaming()),
                call.input().full_name(),
                stream(call.is_server_streaming()),
                call.output().full_name()
            ));
        }
    }
    facts
}

fn fields(message: &MessageDescriptor, facts: &mut BTreeSet<String>) {
    if message.fields().len() == 0 {
        facts.insert(format!("{}:empty", message.full_name()));
    }
    for field in message.fields() {
        let repeated = if field.cardinality() == Cardinality::Repeated { "repeated " } else { "" };
        let kind = match field.kind() {
            Kind::Message(message) => message.full_name().to_owned(),
            Kind::Enum(of) => of.full_name().to_owned(),
            kind => format!("{kind:?}").to_lowercase(),
        };
        let oneof = field.containing_oneof().map(|oneof| format!(" oneof {}", oneof.name())).unwrap_or_default();
        facts.insert(format!("{}={}:{repeated}{kind}{oneof}", field.full_name(), field.number()));
    }
}

fn values(of: &EnumDescriptor, facts: &mut BTreeSet<String>) {
    facts.extend(of.values().map(|value| format!("{}.{}={}:enum", of.full_name(), value.name(), value.number())));
}

#[test]
fn names_numbers_and_types_are_armadas() {
    let theirs: BTreeSet<String> = FACTS.lines().map(str::to_owned).collect();
    let ours = ours();
    let missing: Vec<_> = theirs.difference(&ours).collect();
    let added: Vec<_> = ours.difference(&theirs).collect();
    assert!(missing.is_empty() && added.is_empty(), "missing {missing:#?}\nadded {added:#?}");
    assert!(theirs.len() > 500, "{} facts", theirs.len());
}
