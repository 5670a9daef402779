//! The Queue machine: whether a queue takes jobs, and its place in the tree.
//!
//! Invariant: the state follows from the state before, the wish, the parent's state and the groups that have not ended; a queue
//! that is closed because its parent is closed opens with it. A step writes its own queue only: each child finds out by itself
//! when it looks at its parent, so that nothing has to be remembered. Called by the queue controller for each queue something
//! happened to.

use pumice_api::bus::Action;
use pumice_api::names;
use pumice_api::scheduling::{PodGroupPhase, Queue, QueueState, QueueStatus};

/// What a step looks at.
pub struct QueueView<'a> {
    pub queue: &'a Queue,
    /// PodGroups that name it.
    pub groups: GroupCounts,
    /// Whether counts alone are worth a write now.
    pub may_count: bool,
    /// Its parent, if it exists.
    pub parent: Option<&'a Queue>,
    /// A wish, from a Command.
    pub action: Option<&'a Action>,
}

/// One change to make.
#[derive(Clone, Debug, PartialEq)]
pub enum QueueEffect {
    /// Set `spec.parent` to `root`.
    SetParentRoot,
    /// Set `status.state` and the counts of groups.
    WriteStatus(QueueState, GroupCounts),
    /// Set the annotation that says whether it was closed because of its parent.
    MarkClosedByParent(bool),
    /// Record a warning on the queue.
    Warn {
        /// CamelCase word.
        reason: &'static str,
        /// A sentence for people.
        message: String,
    },
}

/// How many PodGroups a queue has, by phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupCounts {
    /// Not admitted.
    pub pending: i32,
    /// Admitted, not running.
    pub inqueue: i32,
    pub running: i32,
    /// A part runs, and the rest can't be placed.
    pub unknown: i32,
    pub completed: i32,
}

impl GroupCounts {
    /// Counts a group that has come into this phase.
    pub fn enter(&mut self, phase: Option<&PodGroupPhase>) {
        let count = self.of(phase);
        *count = count.saturating_add(1);
    }

    /// Counts a group that was in this phase no more.
    pub fn leave(&mut self, phase: Option<&PodGroupPhase>) {
        let count = self.of(phase);
        *count = count.saturating_sub(1);
    }

    /// A group without a phase, or with a word nobody knows, counts as one that waits.
    fn of(&mut self, phase: Option<&PodGroupPhase>) -> &mut i32 {
        match phase {
            Some(PodGroupPhase::Inqueue) => &mut self.inqueue,
            Some(PodGroupPhase::Running) => &mut self.running,
            Some(PodGroupPhase::Unknown) => &mut self.unknown,
            Some(PodGroupPhase::Completed) => &mut self.completed,
            _ => &mut self.pending,
        }
    }

    /// Those that have not ended.
    pub fn unfinished(&self) -> i32 {
        [self.pending, self.inqueue, self.running, self.unknown].into_iter().fold(0, i32::saturating_add)
    }

    /// Whether there are no groups at all.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What a status says.
    pub fn of_status(status: &QueueStatus) -> Self {
        let QueueStatus { pending, inqueue, running, unknown, completed, .. } = *status;
        Self { pending, inqueue, running, unknown, completed }
    }
}

/// Decides what to do about a queue now.
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
        _ => sync(view, &mut effects),
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

fn write_state(view: &QueueView<'_>, action: Option<&Action>, effects: &mut Vec<QueueEffect>) {
    let status = &view.queue.status;
    let next = next_state(status.state.as_ref(), action, view.groups.unfinished());
    if status.state.as_ref() != Some(&next) || (view.may_count && counts_differ(view)) {
        effects.push(QueueEffect::WriteStatus(next, view.groups));
    }
}

/// Whether the status tells other counts than there are.
pub fn counts_differ(view: &QueueView<'_>) -> bool {
    GroupCounts::of_status(&view.queue.status) != view.groups
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
    write_state(view, Some(&Action::OpenQueue), effects);
    unmark(view, effects);
}

fn close(view: &QueueView<'_>, name: &str, effects: &mut Vec<QueueEffect>) {
    if name == names::ROOT_QUEUE {
        let message = "the root queue can't be closed".to_owned();
        effects.push(QueueEffect::Warn { reason: "CloseQueue", message });
        return;
    }
    // Closed for itself: an open parent must not open it.
    if !view.parent.is_some_and(is_shut) {
        unmark(view, effects);
    }
    write_state(view, Some(&Action::CloseQueue), effects);
}

/// The mark is written before the queue closes and taken away after it has opened: a step that is cut short between the two
/// is made up for by the next one.
fn sync(view: &QueueView<'_>, effects: &mut Vec<QueueEffect>) {
    let Some(parent) = view.parent else { return write_state(view, None, effects) };
    match (is_shut(parent), is_shut(view.queue)) {
        (true, false) => {
            if !closed_by_parent(view.queue) {
                effects.push(QueueEffect::MarkClosedByParent(true));
            }
            write_state(view, Some(&Action::CloseQueue), effects);
        }
        (false, true) if closed_by_parent(view.queue) => {
            write_state(view, Some(&Action::OpenQueue), effects);
            unmark(view, effects);
        }
        (false, false) => {
            write_state(view, None, effects);
            unmark(view, effects);
        }
        _ => write_state(view, None, effects),
    }
}

fn unmark(view: &QueueView<'_>, effects: &mut Vec<QueueEffect>) {
    if closed_by_parent(view.queue) {
        effects.push(QueueEffect::MarkClosedByParent(false));
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
        QueueView { queue, groups, may_count: false, parent: None, action }
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

    fn marked(mut queue: Queue, closed: bool) -> Queue {
        queue.metadata.annotations = Some([(names::CLOSED_BY_PARENT.to_owned(), closed.to_string())].into());
        queue
    }

    #[test]
    fn a_queue_closes_and_opens_with_its_parent() {
        use QueueState as S;
        let mark = QueueEffect::MarkClosedByParent;
        let child = |state, is_marked| marked(queue("c", "p", Some(state)), is_marked);
        let (open, close) = (Some(&Action::OpenQueue), Some(&Action::CloseQueue));
        // The parent, the queue, whether it is marked, its groups, the wish, what is done.
        let cases = [
            (S::Closed, S::Open, false, 0, None, vec![mark(true), write(S::Closed)]),
            (S::Closing, S::Open, false, 1, None, vec![mark(true), write(S::Closing)]),
            (S::Closed, S::Open, true, 0, None, vec![write(S::Closed)]),
            (S::Closed, S::Closed, true, 0, None, vec![]),
            (S::Closed, S::Closing, true, 0, None, vec![write(S::Closed)]),
            (S::Open, S::Closed, true, 0, None, vec![write(S::Open), mark(false)]),
            (S::Open, S::Closing, true, 1, None, vec![write(S::Open), mark(false)]),
            (S::Open, S::Closed, false, 0, None, vec![]),
            (S::Open, S::Open, true, 0, None, vec![mark(false)]),
            (S::Open, S::Open, false, 0, close, vec![write(S::Closed)]),
            (S::Open, S::Open, true, 0, close, vec![mark(false), write(S::Closed)]),
            (S::Closed, S::Closed, true, 0, close, vec![]),
            (S::Open, S::Closed, true, 0, open, vec![write(S::Open), mark(false)]),
        ];
        for (parent, state, is_marked, running, action, expected) in cases {
            let (parent, child) = (queue("p", "root", Some(parent)), child(state, is_marked));
            let groups = GroupCounts { running, ..GroupCounts::default() };
            let expected: Vec<_> = expected
                .into_iter()
                .map(|effect| match effect {
                    QueueEffect::WriteStatus(state, _) => QueueEffect::WriteStatus(state, groups),
                    other => other,
                })
                .collect();
            let view = QueueView { parent: Some(&parent), ..view(&child, running, action) };
            assert_eq!(step(&view), expected, "{:?} {:?} {action:?}", parent.status.state, child.status.state);
        }
        let (closed, shut) = (queue("p", "root", Some(S::Closed)), child(S::Closed, true));
        let refused = step(&QueueView { parent: Some(&closed), ..view(&shut, 0, open) });
        assert!(matches!(refused.as_slice(), [QueueEffect::Warn { reason: "OpenQueue", .. }]), "{refused:?}");
    }

    /// After any number of its effects, and whatever was forgotten then.
    #[test]
    fn a_step_cut_short_is_made_up_for() {
        use QueueState as S;
        for parent in [S::Open, S::Closed] {
            for state in [S::Open, S::Closing, S::Closed] {
                for is_marked in [false, true] {
                    let parent = queue("p", "root", Some(parent.clone()));
                    let child = marked(queue("c", "p", Some(state.clone())), is_marked);
                    let run = |mut child: Queue, cut: Option<usize>| {
                        for round in 0..4 {
                            let effects = step(&QueueView { parent: Some(&parent), ..view(&child, 0, None) });
                            let kept = if round == 0 { cut } else { None };
                            for effect in effects.into_iter().take(kept.unwrap_or(usize::MAX)) {
                                match effect {
                                    QueueEffect::WriteStatus(state, _) => child.status.state = Some(state),
                                    QueueEffect::MarkClosedByParent(closed) => child = marked(child, closed),
                                    other => panic!("{other:?}"),
                                }
                            }
                        }
                        child
                    };
                    let whole = run(child.clone(), None);
                    for cut in 0..2 {
                        assert_eq!(run(child.clone(), Some(cut)), whole, "{parent:?} {child:?}");
                    }
                }
            }
        }
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
