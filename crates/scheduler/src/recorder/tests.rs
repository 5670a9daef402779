//! Recordings end to end: written by the recorder, read and run again; and what happens to those that are not whole.

use std::path::Path;

use pumice_engine::{
    Config, Delta, GroupFacts, GroupPhase, GroupStatus, NodeFacts, NodeName, PodFacts, PodPhase, PodTemplate,
    QueueFacts, TimeMs, World,
};
use pumice_recording::segment::{Header, SegmentWriter};
use pumice_recording::{
    Beginning, Break, Entry, FORMAT, Feedback, Flags, Range, ReadError, Recording, Replay, ReplayError, replay,
};
use tempfile::TempDir;

use super::*;
use crate::metrics::Metrics;
use crate::plugins;

mod cut;

/// Drives a World as the loop does, and records it.
pub(super) struct Studio {
    pub(super) world: World,
    pub(super) record: RecordSender,
    now: TimeMs,
    jobs: u32,
}

pub(super) fn beginning() -> Beginning {
    let flags = Flags { default_queue: "default".to_owned(), ..Flags::default() };
    Beginning { version: "1".to_owned(), flags, ..Beginning::default() }
}

impl Studio {
    pub(super) fn new(record: RecordSender) -> Self {
        let mut studio = Self { world: World::new(Config::default()), record, now: TimeMs(1_767_225_600_000), jobs: 0 };
        studio.begin();
        studio
    }

    /// A World begins, with four nodes.
    pub(super) fn begin(&mut self) {
        self.world = World::with_plugins(Config::default(), plugins());
        self.record.begin(beginning());
        let amounts = [("cpu".to_owned(), 4_000), ("memory".to_owned(), 8 << 30), ("pods".to_owned(), 110)];
        let queue = QueueFacts { name: "default".to_owned(), weight: 1, ..QueueFacts::default() };
        let mut deltas = vec![Delta::QueueUpsert(queue)];
        deltas.extend((0..4).map(|node| {
            Delta::NodeUpsert(NodeFacts {
                name: format!("n{node}").into(),
                allocatable: amounts.clone().into(),
                ..NodeFacts::default()
            })
        }));
        self.apply(deltas);
    }

    pub(super) fn apply(&mut self, deltas: Vec<Delta>) {
        for delta in &deltas {
            self.world.apply(delta);
        }
        self.record.deltas(deltas);
    }

    pub(super) fn feed_back(&mut self, feedback: Feedback) {
        feedback.apply(&mut self.world);
        self.record.feedback(feedback);
    }

    /// A cycle; what it binds runs, and every third bind fails.
    pub(super) fn cycle(&mut self) -> usize {
        self.now = self.now.plus_ms(1_000);
        if self.record.is_full() {
            self.world.forget();
            self.record.forgot();
        }
        let plan = self.world.cycle(self.now);
        self.record.cycle(self.now, &plan);
        for (index, bind) in plan.binds.iter().enumerate() {
            let error = (index % 3 == 2).then(|| "the node is away".to_owned());
            self.feed_back(Feedback::Bind { uid: bind.uid.clone(), error, at: self.now });
        }
        for group in &plan.groups {
            let (namespace, name) = (group.namespace.clone(), group.name.clone());
            self.feed_back(Feedback::Status { namespace, name, written: true });
        }
        plan.binds.len()
    }

    /// A gang of three pods.
    pub(super) fn job(&mut self) {
        self.jobs += 1;
        let name = format!("job-{}", self.jobs);
        let status = GroupStatus { phase: GroupPhase::Inqueue, ..GroupStatus::default() };
        let mut deltas = vec![Delta::GroupUpsert(Box::new(GroupFacts {
            namespace: "ns".to_owned(),
            name: name.clone(),
            uid: format!("uid-{name}").into(),
            min_member: 3,
            created: self.now,
            status,
            ..GroupFacts::default()
        }))];
        deltas.extend((0..3).map(|index| self.pod(&name, index, None)));
        self.apply(deltas);
    }

    fn pod(&self, job: &str, index: u32, node: Option<NodeName>) -> Delta {
        let requests = [("cpu".to_owned(), 1_500), ("memory".to_owned(), 1 << 30)].into();
        let phase = if node.is_some() { PodPhase::Succeeded } else { PodPhase::Pending };
        Delta::TaskUpsert(Box::new(PodFacts {
            uid: format!("uid-{job}-{index}").into(),
            namespace: "ns".to_owned(),
            name: format!("{job}-{index}"),
            mine: true,
            group: Some(job.to_owned()),
            created: self.now,
            node,
            phase,
            template: PodTemplate { requests, ..PodTemplate::default() }.into(),
            ..PodFacts::default()
        }))
    }

    /// The pods of an early job end, and it is deleted.
    fn end(&mut self, job: u32) {
        let name = format!("job-{job}");
        let mut deltas: Vec<Delta> =
            (0..3).map(|index| self.pod(&name, index, Some(format!("n{index}").into()))).collect();
        deltas.extend((0..3).map(|index| Delta::TaskRemove(format!("uid-{name}-{index}").into())));
        deltas.push(Delta::GroupRemove { namespace: "ns".to_owned(), name, uid: "".into() });
        self.apply(deltas);
    }

    /// Some hours in which jobs come and go.
    pub(super) fn work(&mut self, jobs: u32) -> usize {
        let mut binds = 0;
        for _ in 0..jobs {
            self.job();
            binds += self.cycle();
            if self.jobs > 4 {
                self.end(self.jobs - 4);
            }
            binds += self.cycle();
        }
        binds
    }
}

/// Records what `happens` in a folder, and waits until it is written.
pub(super) fn record(folder: &Path, bytes_max: u64, happens: impl FnOnce(&mut Studio)) {
    let options = RecordOptions { bytes_max, ..RecordOptions::new(folder.to_owned()) };
    let recorder = Recorder::open(options, plugins(), Metrics::default()).unwrap();
    let (record, written) = recorder.start(Metrics::default()).unwrap();
    let mut studio = Studio::new(record);
    happens(&mut studio);
    drop(studio);
    written.blocking_recv().unwrap();
}

pub(super) fn recorded(jobs: u32) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), RecordOptions::BYTES, |studio| {
        studio.work(jobs);
    });
    folder
}

pub(super) fn run(folder: &Path) -> Result<Replay, ReplayError> {
    replay(&Recording::open(folder)?, &plugins(), Range::default())
}

fn segment(folder: &Path, number: u64) -> std::path::PathBuf {
    folder.join(format!("{number:08}.record"))
}

// INV-24
#[test]
fn a_recording_is_replayed_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let mut binds = 0;
    record(folder.path(), RecordOptions::BYTES, |studio| {
        binds += studio.work(20);
        studio.begin();
        binds += studio.work(10);
    });
    let told = run(folder.path()).unwrap();
    assert_eq!((told.difference, told.breaks), (None, vec![]));
    assert_eq!((told.worlds, told.cycles, told.binds), (2, 60, binds as u64));
    assert!(binds > 20, "{binds}");
}

#[test]
fn segments_go_on_where_the_one_before_ends() {
    let folder = long();
    assert!(segment(folder.path(), 3).exists());
    let told = run(folder.path()).unwrap();
    assert_eq!((told.difference, told.breaks, told.cycles), (None, vec![], 600));
    // Without the first one the others have no beginning, and say so once.
    std::fs::remove_file(segment(folder.path(), 1)).unwrap();
    let told = run(folder.path()).unwrap();
    assert_eq!((told.cycles, &told.breaks[..]), (0, &[Break::Missing { segment: 2 }][..]));
}

#[test]
fn the_times_asked_for_are_compared() {
    let folder = recorded(10);
    let whole = run(folder.path()).unwrap();
    let (first, last) = whole.times.unwrap();
    let recording = Recording::open(folder.path()).unwrap();
    let range = Range { from: Some(first.plus_ms(5_000)), to: Some(last) };
    let part = replay(&recording, &plugins(), range).unwrap();
    assert_eq!((part.cycles, part.times), (14, Some((first.plus_ms(5_000), last.plus_ms(-1_000)))));
}

#[test]
fn a_plan_that_comes_out_otherwise_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), RecordOptions::BYTES, |studio| {
        studio.work(2);
        studio.job();
        // A node that the recording does not know of.
        let amounts = [("cpu".to_owned(), 64_000), ("memory".to_owned(), 64 << 30), ("pods".to_owned(), 110)].into();
        studio.world.apply(&Delta::NodeUpsert(NodeFacts {
            name: "zz".into(),
            allocatable: amounts,
            ..NodeFacts::default()
        }));
        studio.job();
        studio.cycle();
    });
    let told = run(folder.path()).unwrap();
    let difference = told.difference.unwrap();
    assert_eq!((difference.cycle, told.cycles), (5, 5));
    let text = difference.to_string();
    assert!(text.contains("binds only in the recording: ns/job-"), "{text}");
}

#[test]
fn a_configuration_that_changes_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let text = "actions: allocate\ntiers:\n- plugins:\n  - name: gang\n  - name: predicates\n  - name: binpack\n";
    record(folder.path(), RecordOptions::BYTES, |studio| {
        studio.work(3);
        studio.world.set_config(Config::parse(text).unwrap().0);
        studio.record.config(text);
        studio.work(5);
    });
    assert_eq!(run(folder.path()).unwrap().difference, None);
}

#[test]
fn what_can_not_be_replayed_says_why() {
    for (config, plugins, wanted) in [
        ("actions: allocate\ntiers:\n- plugins:\n  - name: extender\n", "", "whose answers are not recorded"),
        ("actions: allocate\ntiers:\n- plugins:\n  - name: of-mine\n", "of-mine", "of a third party"),
        ("actions: fly\n", "", "refused by this version"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        record(folder.path(), RecordOptions::BYTES, |studio| {
            let plugins = vec![plugins.to_owned()];
            studio.record.begin(Beginning { config: Some(config.to_owned()), plugins, ..beginning() });
        });
        let Err(ReplayError::Play { source, .. }) = run(folder.path()) else { panic!("{config} was replayed") };
        assert!(source.to_string().contains(wanted), "{source}");
    }
}

#[test]
fn a_folder_without_a_recording_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(run(folder.path()), Err(ReplayError::Read(ReadError::Empty { .. }))));
    let gone = folder.path().join("nowhere");
    assert!(matches!(run(&gone), Err(ReplayError::Read(ReadError::Io { .. }))));
    std::fs::write(folder.path().join("file"), "").unwrap();
    let file = folder.path().join("file");
    assert!(matches!(run(&file), Err(ReplayError::Read(ReadError::NoFolder { .. }))));
    std::fs::write(folder.path().join("notes.txt"), "mine").unwrap();
    assert!(matches!(run(folder.path()), Err(ReplayError::Read(ReadError::Empty { .. }))));
    std::fs::write(segment(folder.path(), 7), "what is this, and why does it end in .record?").unwrap();
    assert!(matches!(run(folder.path()), Err(ReplayError::Read(ReadError::Foreign { .. }))));
}

// INV-61
#[test]
fn another_version_of_the_format_is_named() {
    let folder = recorded(3);
    let path = segment(folder.path(), 1);
    for version in [FORMAT + 1, 0, u32::MAX] {
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[14..18].copy_from_slice(&version.to_le_bytes());
        std::fs::write(&path, bytes).unwrap();
        let Err(ReplayError::Read(error)) = run(folder.path()) else { panic!("version {version} was read") };
        assert!(error.to_string().contains(&format!("format {version}, this version reads {FORMAT}")), "{error}");
    }
}

#[test]
fn one_that_is_cut_off_is_read_up_to_there() {
    let folder = recorded(30);
    let path = segment(folder.path(), 1);
    let whole = std::fs::read(&path).unwrap();
    for length in (0..whole.len()).rev().step_by(211) {
        std::fs::write(&path, &whole[..length]).unwrap();
        let told = run(folder.path()).unwrap();
        assert_eq!((told.difference, told.breaks.len()), (None, 1), "{length} bytes");
        assert!(matches!(told.breaks[0], Break::CutOff { .. } | Break::Open { .. }), "{:?}", told.breaks);
    }
}

#[test]
fn a_flipped_byte_costs_what_comes_after_it_and_no_more() {
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), RecordOptions::BYTES, |studio| {
        studio.work(30);
        studio.begin();
        studio.work(10);
    });
    let path = segment(folder.path(), 1);
    let whole = std::fs::read(&path).unwrap();
    for at in (18..whole.len() - 12).step_by(307) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x20;
        std::fs::write(&path, bytes).unwrap();
        let told = run(folder.path()).unwrap();
        assert_eq!(told.difference, None, "byte {at}");
        assert_eq!(told.breaks.len(), 1, "byte {at}: {:?}", told.breaks);
        assert!(told.cycles >= 20, "the second World is whole");
    }
}

#[test]
fn a_line_that_is_no_entry_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for line in
        [serde_json::json!({"fly": 1}), serde_json::json!(7), serde_json::json!({"cycle": {"at": 1, "digest": "x"}})]
    {
        let path = segment(folder.path(), 1);
        let mut writer = SegmentWriter::create(&path, &Header::default(), 1 << 20).unwrap();
        writer.line(&Entry::Begin(Box::new(beginning()))).unwrap();
        writer.line(&line).unwrap();
        writer.close().unwrap();
        let Err(ReplayError::Read(ReadError::Entry { line: at, .. })) = run(folder.path()) else { panic!("{line}") };
        assert_eq!(at, 2);
    }
}

// INV-25
#[test]
fn a_hole_ends_its_world_and_the_next_one_is_read() {
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), RecordOptions::BYTES, |studio| {
        studio.work(5);
        studio.record.lose(3);
        studio.work(5);
        studio.begin();
        studio.work(4);
    });
    let told = run(folder.path()).unwrap();
    let [Break::Hole { segment: 1, entries }] = told.breaks[..] else { panic!("{:?}", told.breaks) };
    assert!(entries > 3, "what follows is missing, too: {entries}");
    assert_eq!((told.difference, told.cycles), (None, 18));
}

#[test]
fn a_recording_that_ends_in_a_hole_says_so() {
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), RecordOptions::BYTES, |studio| {
        studio.work(5);
        studio.record.lose(7);
    });
    let told = run(folder.path()).unwrap();
    assert_eq!((told.cycles, &told.breaks[..]), (10, &[Break::Hole { segment: 1, entries: 7 }][..]));
}

#[test]
fn two_do_not_record_into_one_folder() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Recorder::open(RecordOptions::new(folder.path().join("a/b")), plugins(), Metrics::default());
    let first = open().unwrap();
    assert!(matches!(open(), Err(RecordError::Taken { .. })));
    drop(first);
    open().unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    let in_file = RecordOptions::new(folder.path().join("file"));
    assert!(matches!(Recorder::open(in_file, plugins(), Metrics::default()), Err(RecordError::Folder { .. })));
}

/// Drops what is too much beside `bytes_max`, as the keeper does when a segment is closed.
fn sweep(folder: &Path, bytes_max: u64) -> Metrics {
    let metrics = Metrics::default();
    let current = (1..).find(|number| !segment(folder, *number).exists()).unwrap() - 1;
    retention::Retention {
        options: RecordOptions { bytes_max, ..RecordOptions::new(folder.to_owned()) },
        registry: plugins(),
        metrics: metrics.clone(),
        stop: std::sync::Arc::default(),
    }
    .run(current);
    metrics
}

fn bytes_in(folder: &Path) -> u64 {
    std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum()
}

/// A recording of several segments of one World.
fn long() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    // Small segments, and so much in all that nothing is dropped yet.
    record_in_segments(folder.path(), |studio| {
        studio.work(300);
    });
    folder
}

fn record_in_segments(folder: &Path, happens: impl FnOnce(&mut Studio)) {
    let options = RecordOptions::new(folder.to_owned());
    let mut recorder = Recorder::open(options, plugins(), Metrics::default()).unwrap();
    recorder.small_segments(8 << 10);
    let (record, written) = recorder.start(Metrics::default()).unwrap();
    let mut studio = Studio::new(record);
    happens(&mut studio);
    drop(studio);
    written.blocking_recv().unwrap();
}

#[test]
fn what_is_left_of_a_recording_goes_on_from_a_saved_world() {
    let folder = long();
    let whole = run(folder.path()).unwrap();
    assert_eq!((whole.difference, &whole.breaks[..]), (None, &[][..]));
    for part in [2, 3] {
        let bytes_max = bytes_in(folder.path()) / part;
        let metrics = sweep(folder.path(), bytes_max);
        assert!(!segment(folder.path(), 1).exists());
        let left = run(folder.path()).unwrap();
        assert_eq!((left.difference, left.breaks, left.worlds), (None, vec![], 1));
        assert!(left.cycles > 50 && left.cycles < whole.cycles, "{} of {}", left.cycles, whole.cycles);
        assert!(metrics.render(&[]).contains("record_deviations_total 0"));
    }
    let bytes = bytes_in(folder.path());
    sweep(folder.path(), u64::MAX);
    assert_eq!(bytes_in(folder.path()), bytes, "what is within the bounds stays");
}

#[test]
fn a_saved_world_that_can_not_be_read_is_named() {
    let folder = long();
    sweep(folder.path(), bytes_in(folder.path()) / 2);
    let start = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path());
    let start = start.into_iter().find(|path| path.extension().is_some_and(|kind| kind == "start")).unwrap();
    let whole = std::fs::read(&start).unwrap();
    let refused = |bytes: &[u8]| {
        std::fs::write(&start, bytes).unwrap();
        let Err(ReplayError::Play { source, .. }) = run(folder.path()) else { panic!("it was read") };
        assert!(source.to_string().contains("holds no World that this version can read"), "{source}");
    };
    refused(b"");
    refused(b"something else");
    refused(&whole[..whole.len() / 2]);
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    refused(&flipped);
}

#[test]
fn a_sweep_finds_plans_that_come_out_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    record_in_segments(folder.path(), |studio| {
        // A node more than the recording knows of.
        let amounts = [("cpu".to_owned(), 64_000), ("memory".to_owned(), 64 << 30), ("pods".to_owned(), 110)].into();
        let facts = NodeFacts { name: "zz".into(), allocatable: amounts, ..NodeFacts::default() };
        studio.world.apply(&Delta::NodeUpsert(facts));
        studio.work(300);
    });
    let metrics = sweep(folder.path(), bytes_in(folder.path()) / 2);
    assert!(metrics.render(&[]).contains("record_deviations_total 1"), "{}", metrics.render(&[]));
    assert!(!segment(folder.path(), 1).exists(), "the bounds are kept all the same");
    assert!(matches!(run(folder.path()).unwrap().breaks[..], [Break::Missing { .. }]));
}

#[test]
fn behind_a_hole_a_saved_world_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), RecordOptions::BYTES, |studio| {
        studio.work(5);
        studio.record.lose(3);
        studio.work(5);
        while !studio.record.wants_world() {
            std::thread::yield_now();
        }
        studio.record.resume(beginning(), studio.world.save());
        studio.work(4);
    });
    let told = run(folder.path()).unwrap();
    assert!(matches!(told.breaks[..], [Break::Hole { segment: 1, .. }]), "{:?}", told.breaks);
    assert_eq!((told.difference, told.cycles), (None, 18));
}
