//! From what has happened to what to do: lifecycle policies.
//!
//! Invariant: task policies come before the job's, the first rule that matches wins, and an internal event matches nothing.
//! Delays count from when the event was observed in the objects, so they survive the controller. Called once per step.

pub(super) mod events;
pub(super) mod job_updated;
pub(super) mod pending_events;

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use pumice_api::batch::{JobSpec, LifecyclePolicy};
use pumice_api::bus::{Action, Event};
use pumice_units::GoDuration;

use crate::job::plan::Effect;
use crate::job::policy::events::Signal;

/// An action to take, and why.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Order {
    pub action: Action,
    /// What the action is about; nothing for Commands.
    pub cause: Option<Signal>,
}

impl Order {
    pub fn command(action: Action) -> Self {
        Self { action, cause: None }
    }

    pub fn command_message(&self) -> String {
        format!(
            "Start to execute command {}, and clean it up to make sure executed not more than once.",
            self.action.as_str()
        )
    }

    /// Volcano's text, with the cause behind it.
    pub fn execute_message(&self) -> String {
        let action = self.action.as_str();
        match &self.cause {
            Some(cause) => format!("Start to execute action {action}: {}", describe(cause)),
            None => format!("Start to execute action {action}"),
        }
    }
}

/// The outcome of looking at all signals.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Judgement {
    /// Actions that are due, the one to take first.
    pub due: Vec<Order>,
    /// When the next delayed action is due.
    pub wake_at: Option<Timestamp>,
    /// Events about actions that wait.
    pub waiting: Vec<Effect>,
}

/// An order whose time has come.
struct Due {
    at: Timestamp,
    /// Of its event, among those of the same second.
    rank: u8,
    order: Order,
}

/// What an action that is not due yet waits for. In order of what is said about it.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Waiting<'a> {
    event: &'a str,
    task: Option<&'a str>,
    action: String,
    delay: GoDuration,
}

/// Finds the actions that are due. The first of them is taken; the others join it, wait, or fall away with their cause.
/// Signals of an unknown time count from `unknown`.
pub(super) fn judge(spec: &JobSpec, signals: &[Signal], unknown: Timestamp, now: Timestamp) -> Judgement {
    let mut due: Vec<Due> = Vec::new();
    let mut judgement = Judgement::default();
    // One Event for all pods of a task that wait for the same.
    let mut waiting = BTreeSet::new();
    for signal in signals {
        let Some((action, delay)) = matching(spec, signal) else { continue };
        if action == Action::SyncJob {
            continue;
        }
        let since = signal.at.unwrap_or(unknown);
        let at = since.checked_add(SignedDuration::from_nanos(delay.as_nanos())).unwrap_or(Timestamp::MAX);
        // A delay runs by the clock; without one, clocks that disagree must not hold the action back.
        if at <= now || delay <= GoDuration::ZERO {
            let order = Order { action, cause: Some(signal.clone()) };
            due.push(Due { at, rank: rank(&signal.event), order });
        } else {
            judgement.wake_at = judgement.wake_at.into_iter().chain([at]).min();
            waiting.insert(Waiting {
                event: signal.event.as_str(),
                task: signal.task.as_deref(),
                action: action.as_str().to_owned(),
                delay,
            });
        }
    }
    due.sort_by(|a, b| {
        let place = |order: &Order| order.cause.as_ref().map(|cause| (cause.task.clone(), cause.index));
        (a.at, a.rank, place(&a.order)).cmp(&(b.at, b.rank, place(&b.order)))
    });
    judgement.due = due.into_iter().map(|due| due.order).collect();
    if judgement.due.is_empty() {
        judgement.waiting = waiting.into_iter().map(tell).collect();
    }
    judgement
}

/// Order of events of the same second: success before the failures that it causes elsewhere.
fn rank(event: &Event) -> u8 {
    match event {
        Event::TaskCompleted => 0,
        Event::OomKilled => 1,
        Event::PodFailed => 2,
        Event::TaskFailed => 3,
        Event::PodEvicted => 4,
        _ => 5,
    }
}

/// What the policies ask for, now or later, beyond what the controller does anyway.
pub(super) fn answer(spec: &JobSpec, signal: &Signal) -> Option<Action> {
    matching(spec, signal).map(|(action, _)| action).filter(|action| *action != Action::SyncJob)
}

/// The first rule for a signal: the task's, then the job's.
fn matching(spec: &JobSpec, signal: &Signal) -> Option<(Action, GoDuration)> {
    let task = signal.task.as_ref().and_then(|name| spec.tasks.iter().find(|task| &task.name == name));
    let rules = task.map(|task| task.policies.as_slice()).unwrap_or_default().iter().chain(&spec.policies);
    rules.filter_map(|rule| matched(rule, signal)).next()
}

fn matched(rule: &LifecyclePolicy, signal: &Signal) -> Option<(Action, GoDuration)> {
    // `oom` has looked at these; where it can do nothing, they are not there.
    if rule.action == Some(Action::ScaleUpMemory) {
        return None;
    }
    // A timeout that can't be read makes the rule void: acting at once is the opposite of what it asks for.
    let delay = match &rule.timeout {
        Some(text) => Some(text.parse::<GoDuration>().ok()?),
        None => None,
    };
    let mut events = rule.event.iter().chain(&rule.events);
    // Volcano does not know these, and a manifest made for it means the same here.
    let any = |event: &Event| *event == Event::Any && !matches!(signal.event, Event::JobUpdated | Event::OomKilled);
    let by_event = events.any(|event| *event == signal.event || any(event))
        && (signal.event != Event::PodPending || delay.is_some());
    let by_code = rule.exit_code.is_some_and(|code| signal.exit_codes.contains(&code));
    if !by_event && !by_code {
        return None;
    }
    let action = rule.action.clone().unwrap_or(Action::SyncJob);
    Some((action, delay.unwrap_or(GoDuration::ZERO)))
}

fn tell(Waiting { event, task, action, delay }: Waiting<'_>) -> Effect {
    let task = task.map(|task| format!(" of task {task}")).unwrap_or_default();
    Effect::normal("ExecuteAction", format!("Execute action {action} after {delay}: {event}{task}"))
}

fn describe(signal: &Signal) -> String {
    let mut text = signal.event.as_str().to_owned();
    if let Some(task) = &signal.task {
        text += &format!(" of task {task}");
    }
    if let Some(index) = signal.index {
        text += &format!(", pod {index}");
    }
    match signal.exit_codes.as_slice() {
        [] => {}
        [code] => text += &format!(", exit code {code}"),
        codes => {
            let codes: Vec<String> = codes.iter().map(i32::to_string).collect();
            text += &format!(", exit codes {}", codes.join(", "));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use pumice_api::batch::TaskSpec;
    use serde_json::{Value, json};

    fn spec(task_policies: Value, job_policies: Value) -> JobSpec {
        let task = TaskSpec {
            name: "w".into(),
            policies: serde_json::from_value(task_policies).unwrap(),
            ..TaskSpec::default()
        };
        JobSpec { tasks: vec![task], policies: serde_json::from_value(job_policies).unwrap(), ..JobSpec::default() }
    }

    fn signal(event: Event, exit_codes: &[i32]) -> Signal {
        let at = Timestamp::from_second(1000).ok();
        Signal { event, at, task: Some("w".into()), index: Some(0), exit_codes: exit_codes.to_vec() }
    }

    fn action(spec: &JobSpec, signal: &Signal) -> Option<String> {
        matching(spec, signal).map(|(action, delay)| format!("{} {delay}", action.as_str()))
    }

    #[test]
    fn rules_are_matched_in_order_the_tasks_first() {
        let failed = |code| signal(Event::PodFailed, &[code]);
        let evicted = signal(Event::PodEvicted, &[]);
        let pending = signal(Event::PodPending, &[]);
        let completed = signal(Event::TaskCompleted, &[]);
        let cases: Vec<(&str, Value, Value, Signal, Option<&str>)> = vec![
            (
                "event",
                json!([]),
                json!([{"event": "PodFailed", "action": "RestartJob"}]),
                failed(1),
                Some("RestartJob 0s"),
            ),
            (
                "another event",
                json!([]),
                json!([{"event": "PodFailed", "action": "RestartJob"}]),
                evicted.clone(),
                None,
            ),
            (
                "events",
                json!([]),
                json!([{"events": ["PodEvicted", "PodFailed"], "action": "AbortJob"}]),
                evicted.clone(),
                Some("AbortJob 0s"),
            ),
            ("any", json!([]), json!([{"event": "*", "action": "TerminateJob"}]), completed, Some("TerminateJob 0s")),
            (
                "any, pending needs a delay",
                json!([]),
                json!([{"event": "*", "action": "TerminateJob"}]),
                pending.clone(),
                None,
            ),
            (
                "any, pending with a delay",
                json!([]),
                json!([{"event": "*", "action": "TerminateJob", "timeout": "1m"}]),
                pending,
                Some("TerminateJob 1m0s"),
            ),
            (
                "exit code",
                json!([]),
                json!([{"exitCode": 3, "action": "RestartTask"}]),
                failed(3),
                Some("RestartTask 0s"),
            ),
            ("another exit code", json!([]), json!([{"exitCode": 3, "action": "RestartTask"}]), failed(4), None),
            ("exit code without one", json!([]), json!([{"exitCode": 3, "action": "RestartTask"}]), evicted, None),
            (
                "task first",
                json!([{"event": "PodFailed", "action": "RestartPod"}]),
                json!([{"event": "PodFailed", "action": "AbortJob"}]),
                failed(1),
                Some("RestartPod 0s"),
            ),
            (
                "falls through to the job",
                json!([{"event": "PodEvicted", "action": "RestartPod"}]),
                json!([{"event": "PodFailed", "action": "AbortJob"}]),
                failed(1),
                Some("AbortJob 0s"),
            ),
            (
                "first wins",
                json!([]),
                json!([{"exitCode": 1, "action": "AbortJob"}, {"event": "PodFailed", "action": "RestartJob"}]),
                failed(1),
                Some("AbortJob 0s"),
            ),
            (
                "unreadable timeout voids",
                json!([]),
                json!([{"event": "PodFailed", "action": "AbortJob", "timeout": "soon"}]),
                failed(1),
                None,
            ),
        ];
        for (name, task, job, signal, expected) in cases {
            assert_eq!(action(&spec(task, job), &signal).as_deref(), expected, "{name}");
        }
    }

    fn actions(judgement: &Judgement) -> Vec<Action> {
        judgement.due.iter().map(|order| order.action.clone()).collect()
    }

    #[test]
    fn a_delay_counts_from_the_event() {
        let spec = spec(json!([]), json!([{"event": "PodFailed", "action": "RestartJob", "timeout": "30s"}]));
        let signals = [signal(Event::PodFailed, &[1])];
        let early = judge(&spec, &signals, Timestamp::MIN, Timestamp::from_second(1029).unwrap());
        assert_eq!(early.due, []);
        assert_eq!(early.wake_at, Timestamp::from_second(1030).ok());
        assert_eq!(early.waiting.len(), 1);
        let due = judge(&spec, &signals, Timestamp::MIN, Timestamp::from_second(1030).unwrap());
        assert_eq!(actions(&due), [Action::RestartJob]);
        assert!(due.waiting.is_empty());
    }

    #[test]
    fn many_pods_that_wait_for_the_same_are_told_of_once() {
        let spec = spec(json!([]), json!([{"event": "PodPending", "action": "RestartJob", "timeout": "10m"}]));
        let pending = |index| Signal { index: Some(index), ..signal(Event::PodPending, &[]) };
        let signals: Vec<Signal> = (0..1_000).map(pending).collect();
        let judgement = judge(&spec, &signals, Timestamp::MIN, Timestamp::from_second(1001).unwrap());
        let text = "Execute action RestartJob after 10m0s: PodPending of task w".to_owned();
        assert_eq!(judgement.waiting, [Effect::normal("ExecuteAction", text)]);
    }

    #[test]
    fn success_goes_before_the_failure_of_the_same_second() {
        let spec = spec(
            json!([{"event": "TaskCompleted", "action": "CompleteJob"}]),
            json!([{"event": "PodFailed", "action": "RestartJob"}]),
        );
        let signals = [signal(Event::PodFailed, &[1]), signal(Event::TaskCompleted, &[])];
        let verdict = judge(&spec, &signals, Timestamp::MIN, Timestamp::from_second(1001).unwrap());
        assert_eq!(actions(&verdict), [Action::CompleteJob, Action::RestartJob]);
    }

    #[test]
    fn an_event_from_a_clock_ahead_of_ours_is_not_held_back() {
        let spec = spec(json!([]), json!([{"event": "PodFailed", "action": "RestartJob"}]));
        let verdict =
            judge(&spec, &[signal(Event::PodFailed, &[1])], Timestamp::MIN, Timestamp::from_second(900).unwrap());
        assert_eq!(actions(&verdict), [Action::RestartJob]);
    }
}
