//! Cases of the configuration file.

use super::*;

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
fn volcanos_default_file_loads_without_a_warning() {
    let (config, warnings) = Config::parse(VOLCANO_DEFAULT).unwrap();
    assert_eq!(config.actions, [Action::Enqueue, Action::Allocate, Action::Backfill]);
    assert_eq!(config.tiers.len(), 2);
    let gang = &config.tiers[0][1];
    assert!(!gang.switches.has(Switch::Preemptable) && gang.switches.has(Switch::JobReady));
    assert!(!gang.switches.has(Switch::Hierarchy) && !gang.switches.has(Switch::ClusterOrder));
    let nodeorder = &config.tiers[1][4];
    assert_eq!(nodeorder.int("leastrequested.weight", 1), 3);
    assert_eq!(nodeorder.int("mostrequested.weight", 0), 0, "a quoted number is no number");
    assert_eq!(warnings, []);
}

#[test]
fn what_volcano_refuses_is_refused_with_its_line() {
    for (name, text, line, part) in [
        ("unknown action", "tiers: []\nactions: \"allocate, fly\"\n", 2, "\"fly\""),
        ("empty file", "", 0, "no action"),
        ("no actions", "tiers: []\n", 1, "no action"),
        ("empty actions", "actions: \"\"\n", 1, "no action"),
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
    let text = "actions: allocate, gangpreempt\nspeed: fast\ntiers:\n- plugins:\n  - name: warp\n  - name: gang\n    enableMagic: true\n  - name: nodeorder\n    arguments: {mystery.weight: 1}\nconfigurations:\n- name: allocate\n  arguments: {predicateErrorCacheEnable: true}\nmetrics: {type: prometheus}\n";
    let (config, warnings) = Config::parse(text).unwrap();
    assert_eq!(config.actions, [Action::Allocate]);
    assert_eq!(config.configurations["allocate"]["predicateErrorCacheEnable"], Argument::Bool(true));
    let found: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "line 1: action gangpreempt is not in this version and has no effect",
            "line 2: nothing reads the key speed",
            "line 5: no plugin is called warp",
            "line 7: nothing reads the key enableMagic",
            "line 8: plugin nodeorder has no argument mystery.weight",
            "line 13: metrics is not in this version and has no effect",
        ]
    );
}

#[test]
fn limits_hold() {
    assert!(matches!(Config::parse(&" ".repeat(2 << 20)), Err(ConfigError::ReadLimit { .. })));
    let deep = format!("actions: allocate\nx: {}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(Config::parse(&deep).is_err());
}
