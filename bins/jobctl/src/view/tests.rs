//! Screens of the live view, and what keys do.

use super::draw::draw;
use super::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::json;

fn jobs(names: &[(&str, &str, i32)]) -> Vec<JobRow> {
    let job = |(name, phase, ok): &(&str, &str, i32)| {
        json!({"metadata": {"name": name, "namespace": "team", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
               "spec": {"queue": "night", "tasks": [{"replicas": 100}]},
               "status": {"state": {"phase": phase}, "succeeded": ok, "running": 5, "failed": 1,
                          "conditions": [{"status": "Running", "lastTransitionTime": "2026-01-01T00:01:00Z"}]}})
    };
    serde_json::from_value(names.iter().map(job).collect()).unwrap()
}

fn screen(view: &View, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let now = "2026-01-01T00:10:00Z".parse().unwrap();
    terminal.draw(|frame| draw(view, frame, now, false)).unwrap();
    terminal.backend().to_string()
}

fn reference(name: &str) -> JobRef {
    JobRef { namespace: "team".into(), name: name.into() }
}

#[test]
fn screens() {
    let mut view = View::new(Some("team"));
    let mut screens = vec![screen(&view, 60, 8)];
    view.take(jobs(&[("sweep", "Running", 71), ("other", "Failed", 2), ("third", "Pending", 0)]));
    assert_eq!(view.press(Key::Down), Some(Request::Detail(reference("other"))));
    let failures = vec!["pod other-t-1 ended with exit code 7".to_owned()];
    let events = vec!["2m  MemoryRaised  task t\u{1b}[2J, pod 0".to_owned()];
    view.learn(reference("other"), Detail { why: "no room".into(), failures, events });
    screens.push(screen(&view, 80, 16));
    assert_eq!(view.press(Key::Logs), Some(Request::Log(reference("other"))));
    view.read(reference("other"), (0..50).map(|line| format!("line {line}")).collect());
    screens.push(screen(&view, 80, 12));
    view.lost = true;
    screens.push(screen(&view, 40, 8));
    let mut many = View::new(None);
    let names: Vec<String> = (0..1000).map(|index| format!("job-{index}")).collect();
    many.take(jobs(&names.iter().map(|name| (name.as_str(), "Running", 0)).collect::<Vec<_>>()));
    many.press(Key::Bottom);
    screens.push(screen(&many, 80, 12));
    insta::assert_snapshot!(screens.join("\n"));
    // Nothing is too small.
    for (width, height) in [(1, 1), (3, 2), (200, 3)] {
        screen(&view, width, height);
    }
}

#[test]
fn the_chosen_job_stays_chosen() {
    let mut view = View::new(Some("team"));
    assert_eq!(view.press(Key::Down), None, "there is none yet");
    view.take(jobs(&[("a", "Running", 0), ("b", "Running", 0), ("c", "Running", 0)]));
    let chosen = |view: &View| view.chosen().map(|job| job.metadata.name.clone()).unwrap_or_default();
    assert_eq!(chosen(&view), "a");
    for (key, name) in [
        (Key::Down, "b"),
        (Key::Bottom, "c"),
        (Key::Down, "c"),
        (Key::Up, "b"),
        (Key::Top, "a"),
        (Key::Up, "a"),
        (Key::Down, "b"),
    ] {
        view.press(key);
        assert_eq!(chosen(&view), name, "{key:?}");
    }
    view.take(jobs(&[("new", "Running", 0), ("a", "Running", 0), ("b", "Running", 0)]));
    assert_eq!(chosen(&view), "b");
    view.take(jobs(&[("new", "Running", 0)]));
    assert_eq!(chosen(&view), "new");
}

#[test]
fn only_a_second_key_cancels() {
    let mut view = View::new(Some("team"));
    view.take(jobs(&[("a", "Running", 0)]));
    assert_eq!(view.press(Key::Yes), None);
    assert_eq!(view.press(Key::Cancel), None);
    assert_eq!(view.press(Key::Other), None);
    assert_eq!(view.press(Key::Yes), None, "the question is over");
    view.press(Key::Cancel);
    assert_eq!(view.press(Key::Yes), Some(Request::Cancel(reference("a"))));
    view.press(Key::Cancel);
    assert_eq!(view.press(Key::Interrupt), Some(Request::Quit));
    view.press(Key::Logs);
    assert_eq!(view.press(Key::Quit), Some(Request::Detail(reference("a"))), "back first");
    assert_eq!(view.press(Key::Quit), Some(Request::Quit));
}
