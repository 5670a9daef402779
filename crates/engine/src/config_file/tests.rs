//! Cases of the configuration file.

use crate::config::*;

const VOLCANO_DEFAULT: &str = r#"
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
    enablePreemptable: false
  - name: predicates
  - name: proportion
  - name: nodeorder
    arguments:
      leastrequested.weight: 3
      mostrequested.weight: "4"
"#;

#[test]
fn volcanos_default_file_loads() {
    let (config, warnings) = Config::parse(VOLCANO_DEFAULT).unwrap();
    assert_eq!(config.actions, [Action::Enqueue, Action::Allocate, Action::Backfill]);
    assert_eq!(config.tiers.len(), 2);
    let gang = &config.tiers[0][1];
    assert!(!gang.switches.has(Switch::Preemptable) && gang.switches.has(Switch::JobReady));
    assert!(!gang.switches.has(Switch::Hierarchy) && !gang.switches.has(Switch::ClusterOrder));
    let nodeorder = &config.tiers[1][4];
    assert_eq!(nodeorder.int("leastrequested.weight", 1), 3);
    assert_eq!(nodeorder.int("mostrequested.weight", 0), 0, "a quoted number is no number");
    let lines: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(lines, ["line 18: argument mostrequested.weight of plugin nodeorder is ignored: it must be an integer"]);
}

#[test]
fn what_volcano_refuses_is_refused_with_its_line() {
    for (name, text, line, part) in [
        ("unknown action", "tiers: []\nactions: \"allocate, fly\"\n", 2, "\"fly\""),
        ("empty file", "", 0, "names no action"),
        ("no actions", "tiers: []\n", 1, "names no action"),
        ("empty actions", "actions: \"\"\n", 1, "names no action"),
        ("broken YAML", "actions: \"allocate\"\ntiers: [\n", 2, "line 2: unclosed bracket '['"),
        ("list of actions", "actions:\n- allocate\n", 2, "actions must be text"),
        ("tier is no mapping", "actions: allocate\ntiers:\n- gang\n", 3, "a tier must be a mapping"),
        (
            "switch is no bool",
            "actions: allocate\ntiers:\n- plugins:\n  - name: gang\n    enableJobOrder: 7\n",
            5,
            "true or false",
        ),
        (
            "hierarchy with proportion",
            "actions: allocate\ntiers:\n- plugins:\n  - name: proportion\n  - name: drf\n    enableHierarchy: true\n",
            5,
            "remove one",
        ),
    ] {
        let error = Config::parse(text).expect_err(name);
        assert!(error.to_string().contains(part), "{name}: {error}");
        // An empty document stands on no line or on the first, as the parser likes.
        assert!(error.line() == Some(line) || (line == 0 && error.line() <= Some(1)), "{name}: {:?}", error.line());
    }
}

#[test]
fn what_volcano_ignores_warns() {
    let text = "actions: allocate\nspeed: fast\ntiers:\n- plugins:\n  - name: warp\n  - name: gang\n    enableMagic: true\n  - name: nodeorder\n    arguments: {mystery.weight: 1}\nconfigurations:\n- name: allocate\n  arguments: {predicateErrorCacheEnable: true}\nmetrics: {type: abacus}\n";
    let (config, warnings) = Config::parse(text).unwrap();
    assert_eq!(config.actions, [Action::Allocate]);
    assert_eq!(config.configurations["allocate"]["predicateErrorCacheEnable"], Argument::Bool(true));
    let found: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "line 2: nothing reads the key speed",
            "line 5: no plugin is called warp",
            "line 7: nothing reads the key enableMagic",
            "line 9: plugin nodeorder has no argument mystery.weight",
            "line 13: type \"abacus\" of metrics is ignored: it must be prometheus, prometheus_adaptor or elasticsearch",
        ]
    );
}

#[test]
fn limits_hold() {
    assert!(matches!(Config::parse(&" ".repeat(2 << 20)), Err(ConfigError::ReadLimit { .. })));
    let deep = format!("actions: allocate\nx: {}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(Config::parse(&deep).is_err());
}

/// Files that are refused, told apart by what stands behind `---`, and what is said of each.
#[test]
fn refusals_name_the_line_at_fault() {
    const FILES: &str = include_str!("tests/refused.yaml");
    let mut told = String::new();
    for file in FILES.split("--- ").skip(1) {
        let (name, text) = file.split_once('\n').expect("a name and a file");
        let error = Config::parse(text).expect_err(name);
        told.push_str(&format!("{name}: {error}\n"));
    }
    insta::assert_snapshot!(told);
}

#[test]
fn every_plugin_action_and_switch_of_volcano_is_known() {
    const PLUGINS: &[&str] = &[
        "drf",
        "gang",
        "deviceshare",
        "predicates",
        "priority",
        "nodeorder",
        "conformance",
        "binpack",
        "resource-strategy-fit",
        "tdm",
        "overcommit",
        "sla",
        "task-topology",
        "numa-aware",
        "cdp",
        "rescheduling",
        "usage",
        "pdb",
        "nodegroup",
        "network-topology-aware",
        "proportion",
        "capacity",
        "extender",
        "resourcequota",
    ];
    let switches: String = Switch::ALL.iter().map(|switch| format!("    {}: false\n", switch.key())).collect();
    for plugin in PLUGINS {
        let text = format!(
            "actions: enqueue, allocate, backfill, preempt, reclaim, gangpreempt, gangreclaim, shuffle\n\
             tiers:\n- plugins:\n  - name: {plugin}\n{switches}"
        );
        let (config, warnings) = Config::parse(&text).unwrap();
        assert_eq!(config.tiers[0][0].switches, Switches::none(), "{plugin}");
        let unknown = warnings.iter().filter(|warning| !matches!(warning.kind, WarningKind::NotInThisVersion { .. }));
        assert_eq!(unknown.count(), 0, "{plugin}: {warnings:?}");
    }
}

#[test]
fn values_of_another_type_have_no_effect_and_warn() {
    for (plugin, arguments, ignored) in [
        ("nodeorder", "{leastrequested.weight: 1.5}", 1),
        ("nodeorder", "{leastrequested.weight: 2}", 0),
        ("binpack", "{binpack.resources: [a], binpack.resources.a: '1', binpack.cpu: 2}", 2),
        ("overcommit", "{overcommit-factor: '1.2'}", 1),
        ("overcommit", "{overcommit-factor: 2}", 0),
        ("predicates", "{predicate.CacheEnable: 'true'}", 0),
        ("predicates", "{predicate.CacheEnable: yes please}", 1),
        ("nodegroup", "{strict: 0}", 1),
        ("usage", "{cpu.weight: null}", 0),
    ] {
        let text = format!("actions: allocate\ntiers:\n- plugins:\n  - name: {plugin}\n    arguments: {arguments}\n");
        let (_, warnings) = Config::parse(&text).unwrap();
        let ignoring = |warning: &&Warning| matches!(warning.kind, WarningKind::IgnoredValue { .. });
        assert_eq!(warnings.iter().filter(ignoring).count(), ignored, "{plugin} {arguments}: {warnings:?}");
    }
}

#[test]
fn the_source_of_measurements_is_read() {
    let parse = |section: &str| {
        let (config, warnings) = Config::parse(&format!("actions: allocate\nmetrics:\n{section}")).unwrap();
        (config.metrics, warnings.len())
    };
    let (source, warnings) = parse(
        "  type: elasticsearch\n  address: https://es\n  interval: 1m\n  tls.insecureSkipVerify: \"true\"\n  elasticsearch.index: 5\n",
    );
    let others = [("elasticsearch.index".to_owned(), "5".to_owned())].into();
    let address = "https://es".to_owned();
    let expected =
        MetricsSource { kind: MetricsKind::Elasticsearch, address, interval_ms: 60_000, insecure: true, others };
    assert_eq!((source, warnings), (Some(expected), 0));
    let (source, warnings) = parse("  type: prometheus\n  interval: soon\n");
    assert_eq!((source.map(|source| source.interval_ms), warnings), (Some(30_000), 1));
    assert_eq!(parse("  address: x\n"), (None, 1));
}
