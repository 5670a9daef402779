//! Sharded jobs without a server: from what a user writes to what each pod runs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::{BTreeMap, HashSet};

use jiff::civil::{Date, date};
use proptest::prelude::*;
use pumice_jobs::shards::numbers::Numbers;
use pumice_jobs::shards::params::{NAMES_BYTES_MAX, ROW_BYTES_MAX};
use pumice_jobs::shards::{
    Array, Bundled, Calendar, Days, Format, Group, KeyBy, Kind, Params, Plan, RULE_BYTES_MAX, Record, Row, Shards,
    Template,
};

fn array(text: &str) -> Shards {
    Shards::Numbers(text.parse().unwrap())
}

fn days(range: &str, calendar: Calendar, group: Option<Group>) -> Shards {
    let (from, to) = Days::parse_range(range).unwrap();
    Shards::Days(Days::new(from, to, calendar, group).unwrap())
}

fn keys(shards: &Shards) -> Vec<String> {
    (0..shards.len()).map(|index| shards.key(index).unwrap()).collect()
}

fn read(format: Format, key: KeyBy, text: &str) -> Result<Vec<Row>, String> {
    let rows = Params::open("grid", format, key, text.as_bytes()).and_then(Iterator::collect);
    rows.map_err(|error| error.to_string())
}

fn done(keys: &[&str]) -> HashSet<String> {
    keys.iter().map(|key| (*key).to_owned()).collect()
}

#[test]
fn keys_of_days_and_periods() {
    let day = |range, calendar| keys(&days(range, calendar, None));
    let period = |range, group| keys(&days(range, Calendar::All, Some(group)));
    assert_eq!(day("2024-01-05:2024-01-08", Calendar::Weekdays), ["2024-01-05", "2024-01-08"]);
    assert_eq!(day("2024-03-28:2024-04-01", Calendar::Xnys), ["2024-03-28", "2024-04-01"]);
    assert_eq!(day("2024-02-28:2024-03-01", Calendar::All), ["2024-02-28", "2024-02-29", "2024-03-01"]);
    assert_eq!(period("2024-01-01:2024-02-29", Group::Month), ["2024-01", "2024-02"]);
    assert_eq!(period("2023-12-25:2024-01-07", Group::Week), ["2023-W52", "2024-W01"]);
    assert_eq!(period("2023-01-01:2024-12-31", Group::Year), ["2023", "2024"]);
    // What the range cuts says so: with a wider range it is another record.
    assert_eq!(
        period("2024-01-15:2024-03-10", Group::Month),
        ["2024-01-15..2024-01-31", "2024-02", "2024-03-01..2024-03-10"]
    );
}

#[test]
fn variables_and_words_of_a_record() {
    let shards = days("2024-01-01:2024-02-29", Calendar::Xnys, Some(Group::Month));
    let record = shards.record(1).unwrap();
    let words = ["run", "--month={month}", "{key}-{index}", "{{x}}", "plain"].map(str::to_owned);
    let template = Template::new(&words, &shards.names()).unwrap();
    assert_eq!(template.fill(&record).unwrap(), ["run", "--month=2024-02", "2024-02-1", "{x}", "plain"]);
    let row = Record::from_json(7, "seven", br#"{"learning-rate":0.1,"name":"x y","none":null}"#).unwrap();
    let params = Shards::params(9, vec!["learning-rate".into(), "name".into(), "none".into()]);
    let lines =
        |variables: Vec<(String, String)>| variables.into_iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>();
    insta::assert_yaml_snapshot!([
        lines(shards.env(&record)),
        lines(array("3-9:3").env(&array("3-9:3").record(2).unwrap())),
        lines(params.env(&row))
    ]);
}

#[test]
fn only_names_in_braces_are_places() {
    let shards = array("5");
    let record = shards.record(0).unwrap();
    for (word, filled) in [
        ("{key}{index}", "50"),
        ("$({key})${key}", "$(5)${key}"),
        ("echo ${HOME} {1..3} {a,b}", "echo ${HOME} {1..3} {a,b}"),
        ("awk '{print $1}' {} \\;", "awk '{print $1}' {} \\;"),
        (r#"{"key": {"a": {}}, "n": {key}}"#, r#"{"key": {"a": {}}, "n": 5}"#),
        ("{{key}} {{other}}", "{key} {other}"),
        ("{{{key}}}", "{{key}}"),
        ("{ key }{key", "{ key }{key"),
        ("é{key}}", "é5}"),
    ] {
        let template = Template::new(&[word.to_owned()], &shards.names()).unwrap();
        assert_eq!(template.fill(&record).unwrap(), [filled], "{word}");
    }
}

#[test]
fn rules_are_short_and_stay_as_they_are() {
    let (from, to) = (date(2000, 1, 1), date(2023, 12, 31));
    let listed = Calendar::Listed(
        std::iter::successors(Some(from), |day| day.tomorrow().ok())
            .take_while(|day| *day <= to)
            .filter(|day| Calendar::Xnys.is_open(*day))
            .collect(),
    );
    let months = days("2024-01-01:2024-12-31", Calendar::Xnys, Some(Group::Month));
    let rules: Vec<String> = [
        (array("0-9999"), 10),
        (array("1-10:2,20"), 1),
        (days("2024-01-01:2024-12-31", Calendar::Weekdays, None), 5),
        (months.skip(&done(&["2024-02", "2024-03"])).unwrap(), 1),
        (days("2023-01-01:2023-12-31", listed.clone(), None), 1),
        (Shards::params(100_000, vec!["lr".into(), "seed".into()]), 100),
        (Shards::Bundled(days("2024-01-01:2024-12-31", Calendar::All, None).bundled()), 1),
    ]
    .into_iter()
    .map(|(shards, chunk)| Plan::new(shards, chunk).unwrap().rule().unwrap())
    .collect();
    insta::assert_yaml_snapshot!(rules);
    let years = Plan::new(days("2000-01-01:2023-12-31", listed, None), 1).unwrap();
    assert_eq!(Plan::parse(&years.rule().unwrap()), Ok(years), "24 years of a calendar file fit");
}

#[test]
fn what_does_not_fit_in_a_rule_goes_into_a_bundle() {
    let scattered: Vec<String> = (0..3000u32).map(|n| (n * n).to_string()).collect();
    let plan = Plan::new(array(&scattered.join(",")), 7).unwrap();
    let error = plan.rule().unwrap_err();
    assert!(error.bytes > RULE_BYTES_MAX);
    let bundled = plan.bundled();
    assert_eq!((bundled.pods(), bundled.slice(3)), (plan.pods(), plan.slice(3)));
    assert_eq!(bundled.rule().as_deref(), Ok("v1 chunk=7 bundle=array rows=3000"));
    // The record from the bundle is the one that was computed.
    let shards = days("2024-01-01:2024-12-31", Calendar::Xnys, Some(Group::Week));
    let record = shards.record(5).unwrap();
    let back = Record::from_json(5, &record.key, &record.to_json()).unwrap();
    let sorted = |record: &Record, of: &Shards| of.env(record).into_iter().collect::<BTreeMap<_, _>>();
    assert_eq!(sorted(&back, &Shards::Bundled(shards.bundled())), sorted(&record, &shards));
}

#[test]
fn only_the_missing_run_again() {
    let left = array("0-9").skip(&done(&["0", "1", "5", "99"])).unwrap();
    assert_eq!(keys(&left), ["2", "3", "4", "6", "7", "8", "9"]);
    assert_eq!(Plan::new(left, 2).unwrap().rule().unwrap(), "v1 chunk=2 array=2-4,6-9");
    let week = days("2024-01-01:2024-01-07", Calendar::Weekdays, None);
    let once = week.skip(&done(&["2024-01-03"])).unwrap();
    let twice = once.skip(&done(&["2024-01-01"])).unwrap();
    assert_eq!(keys(&twice), ["2024-01-02", "2024-01-04", "2024-01-05"]);
    assert_eq!(
        array("1").skip(&done(&["1"])).unwrap_err().to_string(),
        "all 1 records are done; there is nothing to run again"
    );
    assert!(Shards::params(3, vec![]).skip(&done(&[])).is_err());
}

#[test]
fn rows_of_both_formats() {
    let csv = "\u{feff}lr,name\r\n0.1,\"a, \"\"b\"\"\nc\"\r\n0.2,\n";
    let rows = read(Format::Csv, KeyBy::Column("lr".into()), csv).unwrap();
    let shown: Vec<_> =
        rows.iter().map(|row| (row.line, row.key.as_str(), std::str::from_utf8(&row.json).unwrap())).collect();
    assert_eq!(shown, [(2, "0.1", r#"{"lr":"0.1","name":"a, \"b\"\nc"}"#), (4, "0.2", r#"{"lr":"0.2","name":""}"#)]);
    let json = "{\"b\":true, \"a\":1.50}\n{\"a\":null,\"b\":\"x\"}";
    let rows = read(Format::JsonLines, KeyBy::Content, json).unwrap();
    assert_eq!(rows[0].json, br#"{"a":1.5,"b":true}"#);
    assert_eq!(rows[1].json, br#"{"a":null,"b":"x"}"#);
    assert_eq!(read(Format::Csv, KeyBy::Content, "a\n\"\"\n").unwrap()[0].json, br#"{"a":""}"#);
    // A key by content is the same in every release and for every order of the columns.
    assert_eq!(rows[0].key.len(), 20);
    let turned = read(Format::JsonLines, KeyBy::Content, "{\"a\":1.5,\"b\":true}").unwrap();
    assert_eq!(turned[0].key, rows[0].key);
    insta::assert_snapshot!(rows[0].key);
}

/// Every way a file of parameters can be wrong, and what is then said.
#[test]
fn bad_rows_are_named() {
    let long = "x".repeat(ROW_BYTES_MAX);
    let many = (0..257).map(|n| format!("c{n}")).collect::<Vec<_>>().join(",");
    let wide = (0..150).map(|n| format!("{}{n}", "c".repeat(60))).collect::<Vec<_>>().join(",");
    assert!(wide.len() > NAMES_BYTES_MAX);
    let csv: Vec<String> = [
        "",
        "a,b\n",
        "a,b\n1\n",
        "a,b\n1,2\n\n3,4\n",
        "a\n1\n\n",
        "a,b\n1,2,3\n",
        "a,b\nx\"y,2\n",
        "a,b\n\"x\"y,2\n",
        "a,b\n1,2\n\"x,2\n3,4\n",
        "a,b\n1,2\r3\n",
        "a,b\n1,2\n1,2\n",
        "a,,b\n",
        "a b\n",
        "index\n1\n",
        "a-b,a_b\n",
        "a,a\n",
        "a;b\n1;2\n",
        "a\nx\0y\n",
        &format!("a\n1\n{long}\n"),
        &format!("a\n1\n\"{long}\n"),
        &many,
        &wide,
    ]
    .iter()
    .map(|text| read(Format::Csv, KeyBy::Content, text).unwrap_err())
    .collect();
    let json: Vec<String> = [
        "",
        "\n",
        "{}{}\n",
        "[1]\n",
        "{\"a\":1}\n\n{\"a\":2}",
        "{\"a\":[1]}",
        "{\"a\":{}}",
        "{\"a\":1,\"a\":2}",
        "{\"a\":1,\"b\":2}\n{\"a\":1}",
        "{\"a\":1}\n{\"a\":2,\"b\":1}",
        "{\"a\":123456789012345678901}",
        "{\"a\":\"x\\u0000\"}",
        "{\"a\":1}\n{\"a\":1.0}\n{\"a\":1}",
        "{\"a\":1",
        "{\"a\":1e999}",
    ]
    .iter()
    .map(|text| read(Format::JsonLines, KeyBy::Content, text).unwrap_err())
    .collect();
    let key = |column: &str, text: &str| read(Format::Csv, KeyBy::Column(column.into()), text).unwrap_err();
    let keyed =
        [key("c", "a,b\n1,2\n"), key("a", "a,b\n1,2\n1,3\n"), key("a", "a,b\n,3\n"), key("a", "a,b\n\"x\ny\",3\n")];
    let bytes = Params::open("grid", Format::Csv, KeyBy::Content, &b"a\n1\nx\xff\n"[..]).unwrap();
    let bytes = bytes.map(|row| row.map_err(|error| error.to_string())).collect::<Result<Vec<_>, _>>().unwrap_err();
    insta::assert_yaml_snapshot!(BTreeMap::from([
        ("csv", csv),
        ("json", json),
        ("key", keyed.to_vec()),
        ("bytes", vec![bytes])
    ]));
}

/// Everything else a user can get wrong, and what is then said.
#[test]
fn bad_words_are_named() {
    let arrays = ["", "5-1", "0-9%0", "x", "0-99999999"].map(|text| text.parse::<Array>().unwrap_err());
    let arrays = arrays.map(|error| error.to_string());
    let range = |text: &str| Days::parse_range(text).unwrap_err().to_string();
    let of = |from: Date, to: Date, calendar| Days::new(from, to, calendar, None).unwrap_err().to_string();
    let dates = [
        range("2024"),
        range("2024-02-30:2024-03-01"),
        of(date(2024, 1, 2), date(2024, 1, 1), Calendar::All),
        of(date(224, 1, 2), date(2024, 1, 1), Calendar::All),
        of(date(1969, 12, 31), date(2024, 1, 1), Calendar::Xnys),
        of(date(2024, 1, 6), date(2024, 1, 7), Calendar::Weekdays),
    ];
    let calendars = ["", "# only\n", "2024-01-02\n2024-1-3\n", "2024-01-02\n# x\n2024-01-02\n", "02/01/2024"];
    let calendars = calendars.map(|text| Calendar::from_text("days.txt", text).unwrap_err().to_string());
    let plan = |shards, chunk| Plan::new(shards, chunk).unwrap_err().to_string();
    let plans = [
        plan(array("0-9_999_999"), 1),
        plan(array("1"), 0),
        plan(Shards::params(0, vec![]), 1),
        plan(Shards::params(10_000_001, vec![]), 100),
    ];
    let template = |word: &str| Template::new(&[word.to_owned()], &array("1").names()).unwrap_err().to_string();
    let templates = ["{x}", "--out={key}/{keys}"].map(template);
    let rules = [
        "",
        "v2 chunk=1 array=1",
        "v1 chunk=1",
        "v1 array=1",
        "v1 chunk=1 array=x",
        "v1 chunk=1 array=3,1",
        "v1 chunk=01 array=1",
        "v1 chunk=1 array=1 x=2",
        "v1 chunk=1 days=2024-01-01:2024-12-31 calendar=XNYS open=251",
        "v1 chunk=1 days=2024-01-01:2024-01-31 calendar=all open=31 keep=31",
        "v1 chunk=1 days=2024-01-01:2024-01-31 calendar=mars open=31",
        "v1 chunk=1 days=0000-01-01:9999-12-31 calendar=weekdays^1 open=31",
        "v1 chunk=1 bundle=params rows=0",
        "v1 chunk=1 bundle=x rows=1",
    ];
    let rules = rules.map(|rule| Plan::parse(rule).unwrap_err().to_string());
    insta::assert_yaml_snapshot!(BTreeMap::from([
        ("arrays", arrays.to_vec()),
        ("days", dates.to_vec()),
        ("calendars", calendars.to_vec()),
        ("plans", plans.to_vec()),
        ("templates", templates.to_vec()),
        ("rules", rules.to_vec()),
    ]));
}

#[test]
fn calendars_of_ones_own() {
    let calendar = Calendar::from_text("days.txt", "# mine\n2024-01-02\r\n\n2024-01-06 # a Saturday\n").unwrap();
    assert_eq!(keys(&days("2024-01-01:2024-12-31", calendar, None)), ["2024-01-02", "2024-01-06"]);
    assert_eq!(Calendar::named("XNYS"), Some(Calendar::Xnys));
    assert_eq!(Calendar::named("holidays.txt"), None);
}

fn any_shards() -> impl Strategy<Value = Shards> {
    let set = proptest::collection::btree_set(0u32..1000, 1..60);
    let numbers = set.prop_map(|set| {
        let text: Vec<String> = set.iter().map(u32::to_string).collect();
        Shards::Numbers(text.join(",").parse::<Numbers>().unwrap())
    });
    let calendar = prop_oneof![
        Just(Calendar::All),
        Just(Calendar::Weekdays),
        Just(Calendar::Xnys),
        proptest::collection::btree_set(0i64..800, 40..80).prop_map(|days| {
            Calendar::Listed(days.into_iter().map(|n| date(2023, 1, 1) + jiff::Span::new().days(n)).collect())
        }),
    ];
    let group = prop_oneof![Just(None), Just(Some(Group::Week)), Just(Some(Group::Month)), Just(Some(Group::Year))];
    let skipped = proptest::collection::btree_set(0u32..40, 0..10);
    let days = (0i64..300, 100i64..400, calendar, group, skipped).prop_filter_map(
        "no days",
        |(at, len, calendar, group, skipped)| {
            let from = date(2023, 1, 1) + jiff::Span::new().days(at);
            let days = Shards::Days(Days::new(from, from + jiff::Span::new().days(len), calendar, group).ok()?);
            let done = skipped.into_iter().filter_map(|index| days.key(index)).collect();
            days.skip(&done).ok()
        },
    );
    let kinds = prop_oneof![Just(Kind::Params), Just(Kind::Array), Just(Kind::Day), Just(Kind::Period(Group::Week))];
    let bundled = (kinds, 1u32..100_000, proptest::collection::vec("[a-z_][a-z0-9_.-]{0,9}", 0..5))
        .prop_map(|(kind, rows, columns)| Shards::Bundled(Bundled { kind, rows, columns }));
    prop_oneof![numbers, days, bundled]
}

proptest! {
    #[test]
    fn a_rule_reads_back_as_its_plan(shards in any_shards(), chunk in 1u32..50) {
        let plan = Plan::new(shards, chunk).unwrap();
        let rule = plan.rule().unwrap();
        prop_assert!(rule.len() <= RULE_BYTES_MAX && !rule.contains('\n'));
        prop_assert_eq!(Plan::parse(&rule).unwrap(), plan);
    }

    #[test]
    fn slices_partition_the_records(shards in any_shards(), chunk in 1u32..2000) {
        let plan = Plan::new(shards, chunk).unwrap();
        let mut next = 0;
        for pod in 0..plan.pods() {
            let slice = plan.slice(pod).unwrap();
            prop_assert!(slice.start == next && slice.end > slice.start && slice.end - slice.start <= chunk);
            prop_assert!(slice.end - slice.start == chunk || pod + 1 == plan.pods());
            next = slice.end;
        }
        prop_assert_eq!(next, plan.shards().len());
        prop_assert_eq!(plan.slice(plan.pods()), None);
        prop_assert_eq!(plan.slice(u32::MAX), None);
    }

    #[test]
    fn keys_are_unique_and_in_order_and_days_are_covered_once(shards in any_shards()) {
        if matches!(shards, Shards::Bundled(_)) {
            return Ok(());
        }
        let keys = keys(&shards);
        prop_assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
        prop_assert_eq!(shards.key(shards.len()), None);
        if let Shards::Days(days) = &shards {
            let covered: Vec<Date> = (0..days.len()).flat_map(|index| days.days(index).unwrap().to_vec()).collect();
            prop_assert!(covered.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }

    #[test]
    fn no_text_makes_a_reader_panic(text in "[v1 chunkarydsbeolXNYSw^=:,0-9{}\\PC-]{0,60}") {
        let _ = Plan::parse(&text);
        let _ = Plan::parse(&format!("v1 chunk=1 {text}"));
        let _ = text.parse::<Array>();
        let _ = Days::parse_range(&text);
        let _ = Calendar::from_text("c", &text);
        let _ = Template::new(std::slice::from_ref(&text), &[]);
        let _ = read(Format::Csv, KeyBy::Content, &format!("a,b\n{text}"));
        let _ = read(Format::JsonLines, KeyBy::Content, &text);
    }
}
