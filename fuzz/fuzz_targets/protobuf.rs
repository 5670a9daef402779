//! Any bytes as a protobuf body, with or without an envelope of a kind that has large messages: an object or an error, never a
//! panic.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use pumice_objects::protobuf::Types;

static TYPES: LazyLock<Types> = LazyLock::new(|| {
    Types::parse(include_str!("../../crates/objects/schemas/protobuf.txt")).expect("the committed table is sound")
});

/// Envelopes up to the message, whose length follows.
const ENVELOPES: [&[u8]; 2] = [
    b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod\x12",
    b"k8s\0\x0a\x33\x0a\x17apiextensions.k8s.io/v1\x12\x18CustomResourceDefinition\x12",
];

fuzz_target!(|bytes: &[u8]| {
    let [choice, raw @ ..] = bytes else { return };
    let Some(envelope) = ENVELOPES.get(usize::from(*choice)) else {
        let _ = TYPES.decode(bytes);
        return;
    };
    let mut body = envelope.to_vec();
    let mut length = raw.len();
    while length >= 0x80 {
        body.push(length as u8 | 0x80);
        length >>= 7;
    }
    body.push(length as u8);
    body.extend_from_slice(raw);
    if let Ok(object) = TYPES.decode(&body) {
        assert!(object["kind"].is_string(), "{object}");
    }
});
