//! Bodies put together by hand: what encoders never write, and the forms of zeros.

use serde_json::json;

use super::*;

const TABLE: &str = "\
group example.com/v1 e.v1
message e.v1.Thing
1 name string
2 size int32?
3 tags []string~
4 numbers []int64!
5 words {}string~
6 . e.v1.Part
7 child e.v1.Thing?
8 free JSON?
9 port IntOrString?
10 at MicroTime
11 limit Quantity?
12 choice e.v1.Choice?
13 permit e.v1.Flag?
message e.v1.Part
1 flag bool~
2 weight double?
union e.v1.Choice
2 many []string~
1 one string
union e.v1.Flag
1 flag bool~
message meta.v1.DeleteOptions
1 gracePeriodSeconds int64?
";

fn types() -> Types {
    Types::parse(TABLE).expect("table")
}

fn varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn number(field: u64, number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    varint(field << 3, &mut out);
    varint(number, &mut out);
    out
}

fn bytes(field: u64, bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    varint(field << 3 | 2, &mut out);
    varint(bytes.as_ref().len() as u64, &mut out);
    out.extend_from_slice(bytes.as_ref());
    out
}

fn body_of(version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let meta = [bytes(1, version), bytes(2, kind)].concat();
    [MAGIC.to_vec(), bytes(1, meta), bytes(2, raw)].concat()
}

fn decode(raw: &[u8]) -> Result<Value> {
    types().decode(&body_of("example.com/v1", "Thing", raw)).map(|mut object| {
        let fields = object.as_object_mut().expect("object");
        fields.remove("apiVersion");
        fields.remove("kind");
        object
    })
}

#[test]
fn values_and_zeros_are_those_of_gos_json() {
    let empty = json!({"name": "", "numbers": null, "at": null});
    let with = |name: &str, value: Value| {
        let mut object = empty.clone();
        object[name] = value;
        object
    };
    let cases = [
        (vec![], empty.clone()),
        (number(2, 0), with("size", json!(0))),
        (number(2, u64::MAX), with("size", json!(-1))),
        ([bytes(3, "a"), bytes(3, "")].concat(), with("tags", json!(["a", ""]))),
        ([number(4, 1), bytes(4, [2, 3])].concat(), with("numbers", json!([1, 2, 3]))),
        (bytes(5, [bytes(1, "k"), bytes(2, "v")].concat()), with("words", json!({"k": "v"}))),
        (bytes(5, []), with("words", json!({"": ""}))),
        (bytes(6, number(1, 1)), with("flag", json!(true))),
        (bytes(6, number(1, 0)), empty.clone()),
        (bytes(6, [vec![0x11], 2.5_f64.to_le_bytes().to_vec()].concat()), with("weight", json!(2.5))),
        (bytes(6, [vec![0x11], 3_f64.to_le_bytes().to_vec()].concat()), with("weight", json!(3))),
        ([bytes(7, bytes(1, "a")), bytes(7, number(2, 4))].concat(), {
            let mut child = empty.clone();
            (child["name"], child["size"]) = (json!("a"), json!(4));
            with("child", child)
        }),
        (bytes(8, bytes(1, r#"{"a":[null]}"#)), with("free", json!({"a": [null]}))),
        (bytes(8, []), with("free", Value::Null)),
        (bytes(9, number(2, 80)), with("port", json!(80))),
        (bytes(9, [number(1, 1), bytes(3, "http")].concat()), with("port", json!("http"))),
        (bytes(10, [number(1, 0), number(2, 1_999)].concat()), with("at", json!("1970-01-01T00:00:00.000001Z"))),
        (bytes(11, []), with("limit", json!("0"))),
        (bytes(12, bytes(1, "x")), with("choice", json!("x"))),
        (bytes(12, [bytes(1, "x"), bytes(2, "y")].concat()), with("choice", json!(["y"]))),
        (bytes(13, number(1, 1)), with("permit", json!(true))),
        (bytes(13, number(1, 0)), with("permit", json!(false))),
        (bytes(13, []), with("permit", json!(false))),
        (number(99, 1), empty.clone()),
    ];
    for (raw, wanted) in cases {
        assert_eq!(decode(&raw).expect("decodes"), wanted, "{raw:x?}");
    }
}

#[test]
fn options_of_a_deletion_are_of_any_group() {
    let body = body_of("apps/v1", "DeleteOptions", &number(1, 0));
    let wanted = json!({"apiVersion": "apps/v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
    assert_eq!(types().decode(&body), Ok(wanted));
}

#[test]
fn broken_bodies_say_where() {
    let mut deep = Vec::new();
    for _ in 0..200 {
        deep = bytes(7, deep);
    }
    let nested = format!("{}{}", "[".repeat(100), "]".repeat(100));
    for (raw, text) in [
        (bytes(1, [0xff]), "name: text is not valid UTF-8"),
        (number(1, 1), "name: the value is of another type"),
        (vec![0x0a, 5, b'a'], "it breaks off"),
        (vec![0x08], "it breaks off"),
        (vec![0xff; 11], "a number or a tag is malformed"),
        (vec![0x0b], "malformed"),
        (vec![0x00, 0x00], "malformed"),
        (bytes(7, bytes(9, number(1, 7))), "child.port: "),
        (bytes(8, bytes(1, "{")), "free: not valid JSON within"),
        (bytes(8, bytes(1, &nested)), "free: nested deeper"),
        (bytes(10, number(1, u64::MAX / 2)), "at: no such time"),
        (deep, "nested deeper than 96 levels"),
        (bytes(7, []).repeat(100_000), "more than 1000000 fields"),
    ] {
        let error = decode(&raw).expect_err(text).to_string();
        assert!(error.contains(text), "{error} is not {text}");
    }
    let types = types();
    assert_eq!(types.decode(b"{}"), Err(Cause::Magic.into()));
    for (version, kind) in [("example.com/v1", "Other"), ("v1", "Thing"), ("", "")] {
        let error = types.decode(&body_of(version, kind, &[])).expect_err("no such kind").to_string();
        assert!(error.contains("send JSON"), "{error}");
    }
    let packed = [MAGIC.to_vec(), bytes(3, "gzip")].concat();
    assert!(types.decode(&packed).expect_err("packed").to_string().contains("gzip"));
}

#[test]
fn broken_tables_are_refused() {
    for text in ["1 a string", "message a\n1 b c", "message a\nmessage a", "message a\nx b string", "odd"] {
        assert!(Types::parse(text).is_err(), "{text}");
    }
}

proptest::proptest! {
    #[test]
    fn no_body_panics(raw in proptest::collection::vec(proptest::num::u8::ANY, 0..120)) {
        let _ = (decode(&raw), types().decode(&raw), types().decode(&[MAGIC, &raw].concat()));
    }

    /// Tags that the table has, so that more of the decoder is reached.
    #[test]
    fn no_fields_panic(fields in proptest::collection::vec((1_u64..14, proptest::collection::vec(0_u8..40, 0..30)), 0..12)) {
        let raw: Vec<u8> = fields.iter().flat_map(|(field, content)| bytes(*field, content)).collect();
        let _ = decode(&raw);
    }
}
