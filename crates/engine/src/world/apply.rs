//! Deltas to tables. Every delta leaves the tables consistent whatever came before it: what is named but not
//! seen yet is a placeholder. Called by `World::apply`, between cycles only.

use std::collections::BTreeMap;
use std::sync::Arc;

use pumice_units::stable_hash;

use crate::cluster::objects::Namespace;
use crate::cluster::table::key_of;
use crate::facts::{Delta, GroupPhase, NodeFacts, NodeName, PodFacts, PodUid};
use crate::ids::{ClassId, GroupId, NamespaceId, NodeId, TaskId, TimeMs};
use crate::world::groups::{GroupRow, MADE_PREFIX};
use crate::world::sub_jobs::REST;
use crate::world::tables::Tables;
use crate::world::tasks::{TaskRow, TaskState, index_of, state_of};

mod groups;

impl Tables {
    /// False if nothing that a cycle reads has changed. Each delta has an arm of its own, so that none is dropped in silence.
    pub(crate) fn apply(&mut self, delta: &Delta) -> bool {
        assert!(!self.journal.is_open(), "deltas come between cycles");
        match delta {
            Delta::NodeUpsert(facts) => return self.upsert_node(facts),
            Delta::NodeUsage { name, usage } => return self.nodes.measure(name, *usage),
            Delta::NodeRemove(name) => self.remove_node(name),
            Delta::AutoscalerSeen(seen) => return self.nodes.see_autoscaler(*seen),
            Delta::TaskUpsert(facts) => return self.upsert_task(facts),
            Delta::TaskRemove(uid) => return self.remove_task(uid),
            Delta::GroupUpsert(facts) => self.upsert_group(facts),
            Delta::GroupRemove { namespace, name, uid } => self.remove_group(namespace, name, uid),
            Delta::ShapeUpsert { owner_uid, tasks, ended } => self.upsert_shape(owner_uid, tasks, *ended),
            Delta::ShapeRemove { owner_uid } => self.remove_shape(owner_uid),
            Delta::RunsLearned { namespace, profile, runs_ms } => {
                let (namespace, profile) = (self.intern_namespace(namespace), profile.as_str().into());
                runs_ms.iter().for_each(|run| self.run_times.learn(namespace, &profile, *run));
            }
            Delta::QueueUpsert(facts) => self.queues.upsert(facts, &mut self.dims),
            Delta::QueueRemove(name) => self.queues.remove(name),
            Delta::PriorityClassUpsert { name, value, global_default } => {
                return self.upsert_priority_class(name, *value, *global_default);
            }
            Delta::PriorityClassRemove(name) => {
                self.priorities.values.remove(name);
                self.resolve_priorities(None);
            }
            Delta::NamespaceUpsert { name, weight, labels, queue } => {
                let queue = queue.as_deref().filter(|queue| !queue.is_empty()).map(Arc::from);
                return self
                    .upsert_namespace(name, &Namespace { weight: (*weight).max(1), labels: labels.clone(), queue });
            }
            Delta::NamespaceRemove(name) => return self.remove_namespace(name),
            Delta::HyperNodeUpsert(facts) => return self.objects.hyper_nodes.upsert(facts.name.clone(), facts),
            Delta::HyperNodeRemove(name) => return self.objects.hyper_nodes.remove(name),
            Delta::NumaUpsert(facts) => {
                let changed = self.objects.numa.upsert(facts.name.as_str().to_owned(), &Arc::new(facts.clone()));
                return self.touch_node(&facts.name, changed);
            }
            Delta::NumaRemove(name) => {
                let changed = self.objects.numa.remove(name);
                return self.touch_node(name, changed);
            }
            Delta::ShardUpsert(facts) => return self.objects.shards.upsert(facts.name.clone(), facts),
            Delta::ShardRemove(name) => return self.objects.shards.remove(name),
            Delta::BudgetUpsert(facts) => {
                return self.objects.budgets.upsert(key_of(&facts.namespace, &facts.name), facts);
            }
            Delta::BudgetRemove { namespace, name } => return self.objects.budgets.remove(&key_of(namespace, name)),
            Delta::QuotaUpsert(facts) => {
                return self.objects.quotas.upsert(key_of(&facts.namespace, &facts.name), facts);
            }
            Delta::QuotaRemove { namespace, name } => return self.objects.quotas.remove(&key_of(namespace, name)),
            Delta::WindowUpsert(facts) => return self.objects.windows.upsert(facts.name.clone(), facts),
            Delta::WindowRemove(name) => return self.objects.windows.remove(name),
            Delta::VolumeClaimUpsert(facts) => return self.storage.upsert_claim(facts),
            Delta::VolumeClaimRemove { namespace, name } => return self.storage.remove_claim(&key_of(namespace, name)),
            Delta::VolumeUpsert(facts) => return self.storage.volumes.upsert(facts.name.clone(), facts),
            Delta::VolumeRemove(name) => return self.storage.volumes.remove(name),
            Delta::StorageClassUpsert(facts) => return self.storage.classes.upsert(facts.name.clone(), facts),
            Delta::StorageClassRemove(name) => return self.storage.classes.remove(name),
            Delta::CsiNodeUpsert(facts) => return self.storage.csi_nodes.upsert(facts.node.as_str().to_owned(), facts),
            Delta::CsiNodeRemove(node) => return self.storage.csi_nodes.remove(node),
            Delta::DeviceClaimUpsert(facts) => return self.devices.upsert_claim(facts),
            Delta::DeviceClaimRemove { namespace, name } => return self.devices.remove_claim(&key_of(namespace, name)),
            Delta::DeviceClassUpsert(facts) => return self.devices.classes.upsert(facts.name.clone(), facts),
            Delta::DeviceClassRemove(name) => return self.devices.classes.remove(name),
            Delta::DeviceSliceUpsert(facts) => return self.devices.slices.upsert(facts.name.clone(), facts),
            Delta::DeviceSliceRemove(name) => return self.devices.slices.remove(name),
        }
        true
    }

    /// What is known of a node beside its facts has changed, if so.
    fn touch_node(&mut self, name: &NodeName, changed: bool) -> bool {
        if changed {
            self.nodes.touch(name);
        }
        changed
    }

    fn upsert_namespace(&mut self, name: &str, facts: &Namespace) -> bool {
        self.inter_pod.namespace_changed(name, Some(&facts.labels));
        let before = self.objects.namespaces.all.get(name).and_then(|namespace| namespace.queue.as_ref());
        self.queues_to_inherit |= before != facts.queue.as_ref();
        self.objects.namespaces.upsert(name.to_owned(), facts)
    }

    fn remove_namespace(&mut self, name: &str) -> bool {
        self.inter_pod.namespace_changed(name, None);
        self.queues_to_inherit |= self.objects.namespaces.all.get(name).is_some_and(|one| one.queue.is_some());
        self.objects.namespaces.remove(name)
    }

    fn upsert_priority_class(&mut self, name: &String, value: i32, global_default: bool) -> bool {
        let before = self.priorities.values.insert(name.clone(), (value, global_default));
        if before == Some((value, global_default)) {
            return false;
        }
        let for_all = global_default || before.is_some_and(|(_, global_default)| global_default);
        self.resolve_priorities(if for_all { None } else { Some(name) });
        true
    }

    fn upsert_node(&mut self, facts: &NodeFacts) -> bool {
        let old = self.nodes.table.find(&facts.name).map(|node| self.nodes.row(node)).filter(|row| row.known);
        self.images.node_changed(old.map_or(&BTreeMap::new(), |row| &row.images), &facts.images);
        let changed = self.nodes.upsert(facts, &mut self.dims);
        if let (true, Some(node)) = (changed, self.nodes.table.find(&facts.name)) {
            self.inter_pod.node_changed(&self.nodes, node);
        }
        changed
    }

    fn remove_node(&mut self, name: &NodeName) {
        let node = self.nodes.table.find(name);
        if let Some(row) = node.map(|node| self.nodes.row(node)).filter(|row| row.known) {
            self.images.node_changed(&row.images, &BTreeMap::new());
        }
        self.nodes.remove(name);
        if let Some(node) = node {
            self.inter_pod.node_changed(&self.nodes, node);
        }
    }

    /// Of the groups of one class, or of all.
    fn resolve_priorities(&mut self, class: Option<&String>) {
        let concerned = |row: &GroupRow| class.is_none_or(|class| *row.priority_class == **class);
        let groups = self.groups.table.iter().filter(|(_, row)| concerned(row)).map(|(id, _)| id);
        let groups: Vec<GroupId> = groups.collect();
        for group in groups {
            let row = self.groups.row_mut(group);
            row.priority = self.priorities.resolve(&row.priority_class);
        }
        self.orders_version += 1;
    }

    fn upsert_task(&mut self, facts: &PodFacts) -> bool {
        let mut state = state_of(facts);
        let ended = matches!(state, TaskState::Succeeded | TaskState::Failed);
        if !facts.mine && (facts.node.is_none() || ended) || ended && facts.refused {
            return self.remove_task(&facts.uid);
        }
        let old = self.tasks.find(&facts.uid);
        let evicting = self.still_evicting(old, facts, state);
        if let (Some(_), TaskState::Bound | TaskState::Running) = (&evicting, state) {
            state = TaskState::Releasing;
        }
        let mut node = facts.node.as_deref().map(|name| self.nodes.intern(name, self.dims.len()));
        if let (Some(old), None) = (old, node) {
            // A bind of ours that this version of the pod does not show yet.
            let row = self.task(old);
            if matches!(row.state, TaskState::Binding | TaskState::Bound | TaskState::Pipelined) {
                node = row.node;
                state = if state == TaskState::Pending { row.state } else { state };
            }
        }
        let class = self.acquire_class(&facts.template);
        let labels = self.inter_pod.labels(&facts.labels);
        self.nodes.widen(self.dims.len());
        let group = if facts.mine { Some(self.group_of(facts)) } else { None };
        let role_name = self.groups.share_name(&facts.role);
        let role = group.map_or(0, |group| self.groups.row_mut(group).role(&role_name));
        let (sub_job, part_labels) = group.map_or((REST, None), |group| self.part_of(group, facts));
        let of_one = group.is_some_and(|group| self.groups.row(group).of_one);
        let device_labels = facts.template.shares_devices().then_some(&facts.labels);
        let same = |old: &TaskRow| {
            (old.group, old.role, old.class, old.state, old.node) == (group, role, class, state, node)
                && old.sub_job == sub_job
                && old.labels == labels
                && old.claims.as_deref().map_or(facts.claims.is_empty(), |old| *old == facts.claims)
                && (old.gated, old.queue_gated, old.created) == (facts.gated, facts.queue_gated, facts.created)
                && (old.started, old.scheduled) == (facts.started, facts.scheduled)
                && (old.preemptable, old.never_preempts) == (facts.preemptable.unwrap_or(true), facts.never_preempts)
                && old.nominated.as_deref() == facts.nominated.as_deref()
                && old.device_labels.as_deref() == device_labels
                && (old.grace_ms, old.evicting.as_deref()) == (facts.grace_ms, evicting.as_ref())
                && old.annotations.as_deref().unwrap_or(&NO_TEXTS) == &facts.annotations
        };
        // A group of one is made of its pod, so that a change of the pod may be one of the group's.
        if !of_one && old.is_some_and(|old| same(self.task(old))) {
            self.release_class(class);
            self.inter_pod.release_labels(&labels);
            return false;
        }
        let kept = old.map(|old| self.detach_task(old));
        let left = kept.as_ref().map(|row| (row.group, row.class, row.node));
        let profile = self.inter_pod.acquire_profile(&facts.namespace, &labels);
        if let Some(old) = &kept {
            self.inter_pod.release_profile(old.profile);
            self.inter_pod.release_labels(&old.labels);
        }
        let had_ended = kept.as_ref().is_some_and(|row| matches!(row.state, TaskState::Succeeded | TaskState::Failed));
        if let Some(group) = group
            && !had_ended
        {
            self.note_run(group, class, state, facts);
        }
        let gate_passed = kept.as_ref().is_some_and(|row| row.gate_passed);
        let (nominated_until, no_nomination_before, spared_until) = kept
            .as_ref()
            .map_or_else(Default::default, |row| (row.nominated_until, row.no_nomination_before, row.spared_until));
        let backfilled_until = kept.as_ref().and_then(|row| row.backfilled_until);
        let (attempts, not_before, bind_error, noticed) = kept.map_or((0, TimeMs::default(), None, None), |row| {
            (row.attempts, row.not_before, row.bind_error, row.noticed)
        });
        let namespace = self.intern_namespace(&facts.namespace);
        let row = TaskRow {
            uid: facts.uid.as_str().into(),
            namespace: self.namespaces.row(namespace.index()).clone(),
            name: facts.name.as_str().into(),
            group,
            role,
            sub_job,
            part_labels,
            class,
            claims: (!facts.claims.is_empty()).then(|| Arc::new(facts.claims.clone())),
            labels,
            profile,
            state,
            node,
            gated: facts.gated,
            queue_gated: facts.queue_gated,
            gate_passed,
            best_effort: self.classes.row(class).demand.is_best_effort(),
            priority: facts.template.priority,
            created: facts.created,
            started: facts.started,
            scheduled: facts.scheduled,
            preemptable: facts.preemptable.unwrap_or(true),
            never_preempts: facts.never_preempts,
            of_daemon_set: facts.of_daemon_set,
            priority_class: some_text(&facts.pod_priority_class),
            nominated: facts.nominated.as_deref().map(Arc::from),
            device_labels: device_labels.map(|labels| Arc::new(labels.clone())),
            annotations: some_texts(&facts.annotations),
            grace_ms: facts.grace_ms,
            nominated_until,
            no_nomination_before,
            spared_until,
            backfilled_until,
            evicting: evicting.map(Box::new),
            in_flight: false,
            index: index_of(&facts.name),
            attempts,
            not_before,
            bind_error,
            noticed,
        };
        let leaves = row.evicting.is_some();
        let task = self.tasks.insert(row);
        self.count_task(task, 1);
        if leaves {
            self.evicting.insert(task);
        }
        if let Some(group) = group {
            let row = self.groups.row_mut(group);
            row.tasks.insert(task);
            row.shape_version += 1;
            self.groups.refresh(group);
        }
        if let Some((group, class, node)) = left {
            self.release(group, class, node);
        }
        true
    }

    /// Remembers how long a pod of the group ran that came to its end, be it its own or its limit.
    fn note_run(&mut self, group: GroupId, class: ClassId, state: TaskState, facts: &PodFacts) {
        let (Some(started), Some(ended)) = (facts.started, facts.ended) else { return };
        let ran = ended.0.saturating_sub(started.0);
        let kind = self.run_kind(group, class);
        if state == TaskState::Succeeded
            || state == TaskState::Failed && kind.limit_ms.is_some_and(|limit| ran >= limit)
        {
            let row = self.groups.row(group);
            let names = [&*row.namespace, row.name(), &*row.uid].map(|name| name.bytes().chain([0]));
            let job = stable_hash(names.into_iter().flatten());
            self.run_times.note(&kind, job, ran);
        }
    }

    /// The group a pod of ours belongs to, made if it is new.
    fn group_of(&mut self, facts: &PodFacts) -> GroupId {
        if let Some(name) = facts.group.as_deref() {
            return self.intern_group(&facts.namespace, &key_of(&facts.namespace, name), None);
        }
        let own = self.own_queue(facts);
        let inherited = if own.is_none() { self.queue_of_namespace(&facts.namespace) } else { None };
        let queue = own.or(inherited.as_deref());
        let key = [&facts.namespace, "/", MADE_PREFIX, &facts.uid].concat();
        let group = self.intern_group(&facts.namespace, &key, queue);
        let priority_class = self.groups.share_name(&facts.priority_class);
        let row = self.groups.row_mut(group);
        if !row.known {
            row.of_one = true;
            row.inherits_queue = own.is_none();
            row.phase = if row.phase == GroupPhase::Pending { GroupPhase::Inqueue } else { row.phase };
            row.set_minimum(1);
            row.created = facts.created;
            row.priority_class = priority_class;
            row.priority = self.priorities.resolve(&facts.priority_class);
            self.set_queue(group, queue);
        }
        group
    }

    /// The group of that key, which is of that namespace; made in that queue, or in the default one, if it is new.
    fn intern_group(&mut self, namespace: &str, key: &str, queue: Option<&str>) -> GroupId {
        if let Some(group) = self.groups.table.find(key) {
            return group;
        }
        let queue = self.queues.intern(queue.unwrap_or(&self.default_queue));
        self.queues.row_mut(queue).groups += 1;
        let namespace = self.intern_namespace(namespace);
        self.groups.insert(namespace, self.namespaces.row(namespace.index()).clone(), key.into(), queue)
    }

    /// Names of namespaces are few, and are kept.
    fn intern_namespace(&mut self, name: &str) -> NamespaceId {
        self.namespaces.find(name).unwrap_or_else(|| {
            let name: Arc<str> = name.into();
            self.namespaces.insert(name)
        })
    }

    /// Takes a task out of everything that counts it. What it named stays until `release`.
    fn detach_task(&mut self, task: TaskId) -> TaskRow {
        self.count_task(task, -1);
        self.evicting.remove(&task);
        let uid = self.task(task).uid.clone();
        let row = self.tasks.remove(&uid).expect("found by its uid");
        if let Some(group) = row.group {
            let group_row = self.groups.row_mut(group);
            group_row.tasks.remove(task);
            group_row.shape_version += 1;
            self.groups.refresh(group);
        }
        row
    }

    /// Frees what only a detached task named.
    fn release(&mut self, group: Option<GroupId>, class: ClassId, node: Option<NodeId>) {
        if let Some(group) = group {
            self.release_group(group);
        }
        self.release_class(class);
        if let Some(node) = node {
            self.nodes.release(node);
        }
    }

    fn remove_task(&mut self, uid: &PodUid) -> bool {
        let Some(task) = self.tasks.find(uid) else { return false };
        let row = self.detach_task(task);
        self.inter_pod.release_profile(row.profile);
        self.inter_pod.release_labels(&row.labels);
        self.release(row.group, row.class, row.node);
        true
    }

    /// The answer to a bind: confirmed, or back to waiting with a backoff.
    pub(crate) fn bind_result(&mut self, uid: &PodUid, result: Result<(), &str>, now: TimeMs) {
        const BACKOFF_FIRST_MS: i64 = 500;
        const BACKOFF_DOUBLINGS_MAX: u32 = 7;
        let Some(task) = self.tasks.find(uid) else { return };
        if self.task(task).state != TaskState::Binding {
            return;
        }
        match result {
            Ok(()) => {
                let node = self.task(task).node;
                self.move_task(task, TaskState::Bound, node);
                let row = self.tasks.row_mut(task.index());
                row.attempts = 0;
                row.bind_error = None;
            }
            Err(message) => {
                let node = self.task(task).node;
                self.move_task(task, TaskState::Pending, None);
                if let Some(node) = node {
                    self.nodes.release(node);
                }
                let row = self.tasks.row_mut(task.index());
                let delay = BACKOFF_FIRST_MS << row.attempts.min(BACKOFF_DOUBLINGS_MAX);
                row.attempts += 1;
                row.backfilled_until = None;
                row.not_before = now.plus_ms(delay);
                row.bind_error = Some(message.chars().take(1024).collect::<String>().into());
            }
        }
    }

    pub(crate) fn node_name(&self, node: NodeId) -> &Arc<str> {
        &self.nodes.row(node).name
    }
}

static NO_TEXTS: BTreeMap<String, String> = BTreeMap::new();

fn some_texts(texts: &BTreeMap<String, String>) -> Option<Arc<BTreeMap<String, String>>> {
    (!texts.is_empty()).then(|| Arc::new(texts.clone()))
}

fn some_text(text: &str) -> Option<Arc<str>> {
    (!text.is_empty()).then(|| text.into())
}
