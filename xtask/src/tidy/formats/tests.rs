//! How types, macros and migrations stand in the list, and what the check says of renames.

use super::*;
use crate::tidy::source;

fn shapes_of(text: &str) -> Vec<String> {
    let files = [File { path: "crates/x/src/a.rs".into(), text: text.into() }];
    list(&files, &source::parse(&files)).lines().map(str::to_owned).collect()
}

#[test]
fn each_type_is_spelled_as_others_see_it() {
    for (text, shape) in [
        (
            "#[derive(Serialize, Deserialize)] #[serde(rename_all = \"camelCase\")] struct A { job_set: u8, \
             #[serde(rename = \"told\", default)] updates: u8, at: Option<u8>, r#type: u8, #[serde(flatten)] rest: B }",
            "fields jobSet told? at? type ..",
        ),
        ("#[derive(serde::Serialize)] struct A { at: Option<u8>, #[serde(skip)] b: u8 }", "fields at"),
        ("#[derive(Deserialize)] struct A { #[serde(alias = \"c\", rename = \"b\")] a: u8 }", "fields b|c"),
        (
            "#[derive(Deserialize)] #[serde(tag = \"code\", rename_all = \"kebab-case\")] enum A { NotReady, B(u8), C { a_b: u8 } }",
            "variants tag=code not-ready b(_) c{a_b}",
        ),
        ("#[derive(Deserialize)] #[serde(untagged)] enum A { One(u8), Many { a: u8 } }", "variants (_) {a}"),
        ("fn f() { #[derive(Deserialize)] struct A { a: u8 } }", "fields a"),
        (
            "#[derive(clap::Args)] struct A { #[arg(long, short)] job_name: String, #[arg(long = \"all\")] every: bool, \
             #[command(flatten)] more: B, file: PathBuf, #[arg(short = 'q', value_name = \"QUEUE\")] queue: Option<String> }",
            "flags --job-name|-j=JOB_NAME --all FILE -q=QUEUE",
        ),
        (
            "#[derive(Subcommand)] enum A { ListAll(B), #[command(name = \"rm\", alias = \"del\")] C }",
            "commands list-all rm|del",
        ),
        ("#[derive(ValueEnum)] enum A { Json, WideTable }", "values json wide-table"),
        ("words! { /// A job's.\n State { Queued = \"queued\", #[doc = \"x\"] Out = \"left\" } }", "words queued left"),
        ("saved! { Row { a, b } except { c: C::new() }; }", "saved row Row a b"),
        ("saved! { Node as \"Row\" { one as \"a\", b } except { c: 1 }; }", "saved row Row a b"),
        ("saved_enum!(Gate { Admission, Nodes });", "saved word Admission Nodes"),
    ] {
        assert_eq!(shapes_of(text), [shape], "{text}");
    }
}

#[test]
fn what_spells_nothing_is_not_listed() {
    for text in [
        "struct A { a: u8 }",
        "#[derive(Serialize)] struct A(u8);",
        "#[derive(Serialize)] #[serde(transparent)] struct A { a: u8 }",
        "#[derive(Deserialize)] #[serde(from = \"B\")] struct A { a: u8 }",
        "#[derive(Args)] struct A { #[command(flatten)] b: B }",
        "macro_rules! a { () => { x = \"b\" } }",
    ] {
        assert!(shapes_of(text).is_empty(), "{text}");
    }
}

#[test]
fn a_migration_is_listed_by_its_statements() {
    let files = [File {
        path: "crates/x/migrations/1.sql".into(),
        text: "CREATE TABLE a (\n  b TEXT\n);\nDROP TABLE c;\n".into(),
    }];
    assert_eq!(list(&files, &[]), "sql CREATE TABLE a ( b TEXT )\nsql DROP TABLE c\n");
}

#[test]
fn a_rename_is_found_and_one_that_keeps_its_spelling_is_not() {
    let found = |text: &str| {
        let files = [
            File { path: "crates/x/src/a.rs".into(), text: text.into() },
            File { path: FILE.into(), text: "fields held\n".into() },
        ];
        check(&files, &source::parse(&files)).len()
    };
    assert_eq!(found("#[derive(Serialize)] struct A { held: u8 }"), 0);
    assert_eq!(found("#[derive(Serialize)] struct B { #[serde(rename = \"held\")] capacity: u8 }"), 0);
    assert_eq!(
        found("#[derive(Serialize)] struct B { capacity: u8 }"),
        2,
        "the new shape, and the old one that is gone"
    );
}

#[test]
fn an_enum_that_messages_show_by_debug_stays_as_it_is_listed() {
    let found = |text: &str| {
        let files = [
            File { path: "crates/x/src/a.rs".into(), text: text.into() },
            File { path: FILE.into(), text: "debug Open Closed\n".into() },
        ];
        let sources = source::parse(&files);
        (check(&files, &sources).len(), list(&files, &sources))
    };
    assert_eq!(
        found("#[derive(Debug)] enum A { Open, Closed } #[derive(Debug)] enum B { C }"),
        (0, "debug Open Closed\n".into())
    );
    assert_eq!(found("#[derive(Debug)] enum A { Open, Shut }"), (1, String::new()));
}
