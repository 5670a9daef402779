//! The Queue machine: whether a queue takes jobs, and its place in the tree.
//!
//! Invariant: the state follows from the state before, the wish and the groups that have not ended; a queue that is closed
//! because its parent is closed opens with it. Called by the queue controller for each queue something happened to.

mod counts;

pub use counts::GroupCounts;

use pumice_api::bus::Action;
use pumice_api::names;
use pumice_api::scheduling::{Queue, QueueState};

/// What a step looks at.
pub struct QueueView<'a> {
    /// The queue.
    pub queue: &'a Queue,
    /// PodGroups that name it.
    pub groups: GroupCounts,
    /// Whether counts alone are worth a write now.
    pub may_count: bool,
    /// Its parent, if it exists.
    pub parent: Option<&'a Queue>,
    /// The queues that name it as their parent.
    pub children: Vec<&'a Queue>,
    /// A wish, from a Command or from a step of another queue.
    pub action: Option<&'a Action>,
}

/// One change to make.
#[derive(Clone, Debug, PartialEq)]
pub enum QueueEffect {
    /// Set `spec.parent` to `root`.
    SetParentRoot,
    /// Set `status.state` and the counts of groups.
    WriteStatus(QueueState, GroupCounts),
    /// Set the annotation that says whether the queue `name` was closed because of its parent.
    MarkClosedByParent {
        /// The queue: this one or a child.
        name: String,
        /// The annotation's value.
        closed: bool,
    },
    /// Step another queue, or this one again, with a wish.
    Enqueue {
        /// The queue.
        name: String,
        /// The wish.
        action: Action,
    },
    /// Record a warning on the queue.
    Warn {
        /// CamelCase word.
        reason: &'static str,
        /// A sentence for people.
        message: String,
    },
}

/// Decides what to do about a queue now. `O(children)`.
pub fn step(view: &QueueView<'_>) -> Vec<QueueEffect> {
    let mut effects = Vec::new();
    let name = view.queue.metadata.name.as_deref().unwrap_or_default();
    if view.queue.metadata.deletion_timestamp.is_some() {
        return effects;
    }
    if view.queue.spec.parent.is_empty() && name != names::ROOT_QUEUE {
        effects.push(QueueEffect::SetParentRoot);
    }
    match view.action {
        Some(Action::OpenQueue) => open(view, name, &mut effects),
        Some(Action::CloseQueue) => close(view, name, &mut effects),
        _ => sync(view, name, &mut effects),
    }
    effects
}

/// The table of states and actions.
pub fn next_state(state: Option<&QueueState>, action: Option<&Action>, unfinished: i32) -> QueueState {
    let drained = if unfinished == 0 { QueueState::Closed } else { QueueState::Closing };
    match (state, action) {
        (_, Some(Action::OpenQueue)) => QueueState::Open,
        (Some(QueueState::Closed), Some(Action::CloseQueue)) => QueueState::Closed,
        (_, Some(Action::CloseQueue)) => drained,
        (None | Some(QueueState::Open), _) => QueueState::Open,
        (Some(QueueState::Closing), _) => drained,
        (Some(other), _) => other.clone(),
    }
}

fn is_shut(queue: &Queue) -> bool {
    matches!(queue.status.state, Some(QueueState::Closed | QueueState::Closing))
}

fn closed_by_parent(queue: &Queue) -> bool {
    let annotations = queue.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(names::CLOSED_BY_PARENT)).is_some_and(|value| value == "true")
}

fn write_state(view: &QueueView<'_>, effects: &mut Vec<QueueEffect>) {
    let status = &view.queue.status;
    let next = next_state(status.state.as_ref(), view.action, view.groups.unfinished());
    if status.state.as_ref() != Some(&next) || (view.may_count && counts_differ(view)) {
        effects.push(QueueEffect::WriteStatus(next, view.groups));
    }
}

/// Whether the status tells other counts than there are.
pub fn counts_differ(view: &QueueView<'_>) -> bool {
    GroupCounts::told(&view.queue.status) != view.groups
}

fn open(view: &QueueView<'_>, name: &str, effects: &mut Vec<QueueEffect>) {
    if let Some(parent) = view.parent.filter(|parent| is_shut(parent)) {
        let parent = parent.metadata.name.as_deref().unwrap_or_default();
        if parent != names::ROOT_QUEUE {
            let message = format!("queue {name} stays closed: its parent {parent} is closed; open {parent} first");
            effects.push(QueueEffect::Warn { reason: "OpenQueue", message });
            return;
        }
    }
    write_state(view, effects);
    if closed_by_parent(view.queue) {
        effects.push(QueueEffect::MarkClosedByParent { name: name.to_owned(), closed: false });
    }
    for child in view.children.iter().filter(|child| closed_by_parent(child)) {
        let name = child.metadata.name.clone().unwrap_or_default();
        effects.push(QueueEffect::Enqueue { name, action: Action::OpenQueue });
    }
}

fn close(view: &QueueView<'_>, name: &str, effects: &mut Vec<QueueEffect>) {
    if name == names::ROOT_QUEUE {
        let message = "the root queue can't be closed".to_owned();
        effects.push(QueueEffect::Warn { reason: "CloseQueue", message });
        return;
    }
    for child in view.children.iter().filter(|child| !is_shut(child)) {
        let name = child.metadata.name.clone().unwrap_or_default();
        effects.push(QueueEffect::MarkClosedByParent { name: name.clone(), closed: true });
        effects.push(QueueEffect::Enqueue { name, action: Action::CloseQueue });
    }
    write_state(view, effects);
}

fn sync(view: &QueueView<'_>, name: &str, effects: &mut Vec<QueueEffect>) {
    write_state(view, effects);
    let Some(parent) = view.parent else { return };
    if is_shut(parent) && !is_shut(view.queue) {
        effects.push(QueueEffect::MarkClosedByParent { name: name.to_owned(), closed: true });
        effects.push(QueueEffect::Enqueue { name: name.to_owned(), action: Action::CloseQueue });
    } else if !is_shut(parent) && is_shut(view.queue) && closed_by_parent(view.queue) {
        effects.push(QueueEffect::Enqueue { name: name.to_owned(), action: Action::OpenQueue });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(name: &str, parent: &str, state: Option<QueueState>) -> Queue {
        let mut queue = Queue::default();
        queue.metadata.name = Some(name.into());
        queue.spec.parent = parent.into();
        queue.status.state = state;
        queue
    }

    fn view<'a>(queue: &'a Queue, running: i32, action: Option<&'a Action>) -> QueueView<'a> {
        let groups = GroupCounts { running, ..GroupCounts::default() };
        QueueView { queue, groups, may_count: false, parent: None, children: Vec::new(), action }
    }

    fn write(state: QueueState) -> QueueEffect {
        QueueEffect::WriteStatus(state, GroupCounts::default())
    }

    #[test]
    fn every_row_of_the_table() {
        use QueueState as S;
        let (open, close) = (Some(&Action::OpenQueue), Some(&Action::CloseQueue));
        let cases = [
            (None, None, 1, S::Open),
            (None, open, 0, S::Open),
            (None, close, 0, S::Closed),
            (None, close, 1, S::Closing),
            (Some(S::Open), None, 0, S::Open),
            (Some(S::Open), open, 1, S::Open),
            (Some(S::Open), close, 0, S::Closed),
            (Some(S::Open), close, 1, S::Closing),
            (Some(S::Closing), None, 1, S::Closing),
            (Some(S::Closing), None, 0, S::Closed),
            (Some(S::Closing), open, 1, S::Open),
            (Some(S::Closing), close, 1, S::Closing),
            (Some(S::Closing), close, 0, S::Closed),
            (Some(S::Closed), None, 1, S::Closed),
            (Some(S::Closed), open, 0, S::Open),
            (Some(S::Closed), close, 1, S::Closed),
            (Some(S::Unknown), None, 1, S::Unknown),
            (Some(S::Unknown), open, 1, S::Open),
            (Some(S::Unknown), close, 0, S::Closed),
            (Some(S::Unknown), close, 1, S::Closing),
        ];
        for (state, action, groups, expected) in cases {
            assert_eq!(next_state(state.as_ref(), action, groups), expected, "{state:?} {action:?} {groups}");
        }
    }

    #[test]
    fn a_new_queue_is_opened_under_root() {
        let new = queue("q", "", None);
        assert_eq!(step(&view(&new, 0, None)), [QueueEffect::SetParentRoot, write(QueueState::Open)]);
        let settled = queue("q", "root", Some(QueueState::Open));
        assert_eq!(step(&view(&settled, 3, None)), []);
        assert_eq!(step(&view(&queue("root", "", Some(QueueState::Open)), 0, None)), []);
    }

    #[test]
    fn closing_takes_the_children_along_and_opening_brings_them_back() {
        let parent = queue("p", "root", Some(QueueState::Open));
        let child = queue("c", "p", Some(QueueState::Open));
        let close = Action::CloseQueue;
        let closing = QueueView { children: vec![&child], ..view(&parent, 0, Some(&close)) };
        assert_eq!(
            step(&closing),
            [
                QueueEffect::MarkClosedByParent { name: "c".into(), closed: true },
                QueueEffect::Enqueue { name: "c".into(), action: Action::CloseQueue },
                write(QueueState::Closed),
            ]
        );
        let mut shut = queue("c", "p", Some(QueueState::Closed));
        shut.metadata.annotations = Some([(names::CLOSED_BY_PARENT.to_owned(), "true".to_owned())].into());
        let open = Action::OpenQueue;
        let closed = queue("p", "root", Some(QueueState::Closed));
        let opening = QueueView { children: vec![&shut], ..view(&closed, 0, Some(&open)) };
        assert_eq!(
            step(&opening),
            [write(QueueState::Open), QueueEffect::Enqueue { name: "c".into(), action: Action::OpenQueue },]
        );
        let refused = step(&QueueView { parent: Some(&closed), ..view(&shut, 0, Some(&open)) });
        assert!(matches!(refused.as_slice(), [QueueEffect::Warn { reason: "OpenQueue", .. }]), "{refused:?}");
    }

    #[test]
    fn groups_that_ended_hold_no_queue_open() {
        let closing = queue("q", "root", Some(QueueState::Closing));
        let groups = GroupCounts { completed: 3, ..GroupCounts::default() };
        let drained = QueueView { groups, ..view(&closing, 0, None) };
        assert_eq!(step(&drained), [QueueEffect::WriteStatus(QueueState::Closed, groups)]);
    }

    #[test]
    fn counts_are_written_when_they_may_be() {
        use pumice_api::scheduling::PodGroupPhase as P;
        let mut groups = GroupCounts::default();
        for phase in [None, Some(&P::Pending), Some(&P::Inqueue), Some(&P::Running), Some(&P::Completed)] {
            groups.enter(phase);
        }
        groups.leave(Some(&P::Pending));
        let counted = GroupCounts { pending: 1, inqueue: 1, running: 1, unknown: 0, completed: 1 };
        assert_eq!((groups, groups.unfinished()), (counted, 3));
        let mut open = queue("q", "root", Some(QueueState::Open));
        assert_eq!(step(&QueueView { groups, ..view(&open, 0, None) }), []);
        let may = QueueView { groups, may_count: true, ..view(&open, 0, None) };
        assert_eq!(step(&may), [QueueEffect::WriteStatus(QueueState::Open, groups)]);
        open.status = pumice_api::scheduling::QueueStatus {
            pending: 1,
            inqueue: 1,
            running: 1,
            completed: 1,
            ..open.status.clone()
        };
        assert_eq!(step(&QueueView { groups, may_count: true, ..view(&open, 0, None) }), []);
    }

    #[test]
    fn the_root_can_not_be_closed() {
        let root = queue("root", "", Some(QueueState::Open));
        let effects = step(&view(&root, 0, Some(&Action::CloseQueue)));
        assert!(matches!(effects.as_slice(), [QueueEffect::Warn { .. }]), "{effects:?}");
    }
}
