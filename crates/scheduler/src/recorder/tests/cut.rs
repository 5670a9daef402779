//! What is cut from a recording runs by itself, also with pseudonyms, and names nobody.

use pumice_engine::{OwnerFacts, Resources};
use pumice_recording::segment::{Next, SegmentReader};
use pumice_recording::{About, Case, CaseError, CutError, ENTRIES_MAX, Entry, Stretch, cut};

use super::*;

/// All names in the world of [`named`]: none is part of a word that stays.
const NAMES: &[&str] = &[
    "aurora",
    "borealis",
    "calypso",
    "dorado",
    "eridanus",
    "fornax",
    "gemini",
    "hydrae",
    "indus",
    "lacerta",
    "mensa",
    "norma",
    "ophiuchus",
    "pegasus",
    "quasar",
];

fn amounts(cpu_milli: i64) -> Resources {
    [("cpu".to_owned(), cpu_milli), ("memory".to_owned(), 8 << 30), ("pods".to_owned(), 110)].into()
}

/// Two users' jobs on nodes with labels, one of which waits and is told why.
fn named(folder: &Path) {
    record(folder, RecordOptions::BYTES, |studio| {
        let beginning = Beginning {
            flags: Flags { default_queue: "aurora".to_owned(), ..Flags::default() },
            schedulers: vec!["borealis".to_owned()],
            ..beginning()
        };
        let config = Config { default_queue: "aurora".to_owned(), ..Config::default() };
        studio.world = World::with_plugins(config, plugins());
        studio.record.begin(beginning);
        let text = |text: &str| text.to_owned();
        let queue = |name: &str| {
            Delta::QueueUpsert(QueueFacts {
                name: text(name),
                uid: text("calypso"),
                weight: 1,
                ..QueueFacts::default()
            })
        };
        let mut deltas = vec![queue("aurora"), queue("dorado")];
        deltas.extend(["eridanus-2", "eridanus-10", "fornax"].map(|name| {
            let labels = [
                (text("kubernetes.io/hostname"), text(name)),
                (text("gemini.example/hydrae"), text("indus")),
                (text("zone"), text(&name[..1])),
            ];
            let images = [(text("lacerta.example/mensa:1.2"), 1 << 30)];
            let facts =
                NodeFacts { name: name.into(), labels: labels.into(), images: images.into(), ..NodeFacts::default() };
            Delta::NodeUpsert(NodeFacts { allocatable: amounts(4_000), ..facts })
        }));
        studio.apply(deltas);
        for round in 0..12 {
            for (namespace, job, cpu_milli) in [("norma", "ophiuchus", 900), ("quasar", "pegasus-of-norma", 2_500)] {
                submit(studio, namespace, &format!("{job}-{round}"), cpu_milli);
                studio.cycle();
            }
        }
    });
}

fn submit(studio: &mut Studio, namespace: &str, name: &str, cpu_milli: i64) {
    let status = GroupStatus { phase: GroupPhase::Inqueue, ..GroupStatus::default() };
    let owner = OwnerFacts { kind: "Job".to_owned(), name: name.to_owned(), uid: format!("uid-{name}") };
    let group = GroupFacts {
        namespace: namespace.to_owned(),
        name: format!("{name}-uid-{name}"),
        queue: if cpu_milli > 1_000 { "dorado" } else { "aurora" }.to_owned(),
        min_member: 2,
        owner: Some(owner),
        status,
        ..GroupFacts::default()
    };
    let mut deltas = vec![Delta::GroupUpsert(Box::new(group.clone()))];
    deltas.extend((0..2).map(|index| {
        let template = PodTemplate {
            requests: [("cpu".to_owned(), cpu_milli)].into(),
            images: vec!["lacerta.example/mensa:1.2".to_owned()],
            node_selector: [("gemini.example/hydrae".to_owned(), "indus".to_owned())].into(),
            ..PodTemplate::default()
        };
        Delta::TaskUpsert(Box::new(PodFacts {
            uid: format!("pod-{namespace}-{name}-{index}").into(),
            namespace: namespace.to_owned(),
            name: format!("{name}-main-{index}"),
            mine: true,
            group: Some(group.name.clone()),
            template: template.into(),
            ..PodFacts::default()
        }))
    }));
    studio.apply(deltas);
}

fn stretch(folder: &Path, from: i64, to: i64) -> Stretch {
    let first = run(folder).unwrap().times.unwrap().0;
    let at = |cycle: i64| Some(first.plus_ms(cycle * 1_000));
    Stretch { range: Range { from: at(from), to: at(to) }, ..Stretch::default() }
}

fn cut_out(folder: &Path, stretch: &Stretch) -> Result<Case, CutError> {
    let file = folder.join("a.case");
    cut(&Recording::open(folder)?, &plugins(), stretch, &file)?;
    Ok(Case::read(&file).unwrap())
}

fn plain(folder: &Path) -> String {
    let (mut reader, header) = SegmentReader::open(&folder.join("a.case")).unwrap();
    let mut plain = serde_json::to_vec(&header).unwrap();
    while let Next::Block(_, bytes) = reader.next_block().unwrap() {
        plain.extend(bytes);
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[test]
fn a_stretch_runs_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    named(folder.path());
    for (from, to) in [(0, 24), (7, 20), (23, 24)] {
        let case = cut_out(folder.path(), &stretch(folder.path(), from, to)).unwrap();
        assert_eq!(case.about.cycles, (to - from) as u64);
        assert_eq!(case.world.is_empty(), from == 0, "the first stretch begins with its World");
        assert_eq!(case.run(&plugins()).unwrap(), None);
    }
    assert!(matches!(cut_out(folder.path(), &stretch(folder.path(), 50, 60)), Err(CutError::Nothing)));
}

#[test]
fn without_times_it_is_the_whole_of_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), RecordOptions::BYTES, |studio| {
        studio.work(4);
        studio.begin();
        studio.work(3);
    });
    let case = cut_out(folder.path(), &Stretch::default()).unwrap();
    assert_eq!((case.about.cycles, case.run(&plugins()).unwrap()), (14, None));
}

#[test]
fn a_job_is_cut_from_its_submission_to_its_last_start() {
    let folder = tempfile::tempdir().unwrap();
    named(folder.path());
    let of = |namespace: &str, name: &str| Some((namespace.to_owned(), name.to_owned()));
    let wanted = Stretch { job: of("norma", "ophiuchus-3"), ..Stretch::default() };
    let case = cut_out(folder.path(), &wanted).unwrap();
    assert_eq!((case.about.cycles, case.about.job.as_deref()), (1, Some("norma/ophiuchus-3")));
    let is_made =
        |entry: &Entry| matches!(entry, Entry::Delta(Delta::GroupUpsert(of)) if of.name.starts_with("ophiuchus-3"));
    assert!(case.entries.iter().any(is_made));
    assert_eq!(case.run(&plugins()).unwrap(), None);
    let gone = Stretch { job: of("norma", "ophiuchus-99"), ..Stretch::default() };
    assert!(matches!(cut_out(folder.path(), &gone), Err(CutError::NoJob { .. })));
    let redacted = cut_out(folder.path(), &Stretch { redact: true, ..wanted }).unwrap();
    assert!(redacted.name(Path::new("a.case")).ends_with("-3)"), "{}", redacted.name(Path::new("a.case")));
}

// INV-26
#[test]
fn a_redacted_stretch_decides_the_same_and_names_nobody() {
    let folder = tempfile::tempdir().unwrap();
    named(folder.path());
    for (from, to) in [(0, 24), (2, 24)] {
        let wanted = stretch(folder.path(), from, to);
        let open = cut_out(folder.path(), &wanted).unwrap();
        let text = plain(folder.path());
        let there = NAMES.iter().filter(|name| text.contains(*name)).count();
        assert!(there > 9, "the names are looked for where they can be found: {there}");
        let case = cut_out(folder.path(), &Stretch { redact: true, ..wanted }).unwrap();
        let text = plain(folder.path());
        for name in NAMES {
            assert!(!text.contains(name), "{name} in {}", &text[text.find(name).unwrap().saturating_sub(200)..][..300]);
        }
        assert!(text.contains("kubernetes.io/hostname") && text.contains("\"cpu\":900"), "amounts and words stay");
        assert_eq!(case.run(&plugins()).unwrap(), None);
        let binds = |case: &Case| -> Vec<(TimeMs, usize)> {
            let cycles = case.entries.iter().filter_map(|entry| match entry {
                Entry::Cycle(cycle) => Some((cycle.at, cycle.binds.len())),
                _ => None,
            });
            cycles.collect()
        };
        assert_eq!(binds(&open), binds(&case));
        assert!(binds(&case).iter().any(|(_, binds)| *binds > 0));
    }
}

// INV-26
#[test]
fn a_recording_that_comes_out_otherwise_is_not_cut() {
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), RecordOptions::BYTES, |studio| {
        studio.work(2);
        let facts = NodeFacts { name: "zz".into(), allocatable: amounts(64_000), ..NodeFacts::default() };
        studio.world.apply(&Delta::NodeUpsert(facts));
        studio.work(2);
    });
    assert!(matches!(cut_out(folder.path(), &Stretch::default()), Err(CutError::Deviates { .. })));
    assert!(!folder.path().join("a.case").exists());
}

#[test]
fn a_case_shows_what_comes_out_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    named(folder.path());
    let mut case = cut_out(folder.path(), &Stretch::default()).unwrap();
    let first = case.entries.iter_mut().find_map(|entry| match entry {
        Entry::Cycle(cycle) if !cycle.binds.is_empty() => Some(cycle),
        _ => None,
    });
    first.unwrap().digest ^= 1;
    assert!(case.run(&plugins()).unwrap().is_some());
}

#[test]
fn what_is_no_whole_case_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    named(folder.path());
    cut_out(folder.path(), &stretch(folder.path(), 3, 9)).unwrap();
    let path = folder.path().join("a.case");
    let whole = std::fs::read(&path).unwrap();
    let read = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        Case::read(&path)
    };
    for length in (0..whole.len()).step_by(97) {
        assert!(read(&whole[..length]).is_err(), "{length} bytes");
    }
    for at in (18..whole.len()).step_by(53) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        assert!(read(&bytes).is_err(), "byte {at}");
    }
    let mut newer = whole;
    newer[14] = 9;
    assert!(matches!(read(&newer), Err(CaseError::Version(9))));
    assert!(matches!(read(b"schemaVersion: 1\ncases: []\n"), Err(CaseError::Foreign)));
    assert!(matches!(Case::read(&segment(folder.path(), 1)), Err(CaseError::Foreign)), "a segment is no case");
    assert!(matches!(Case::read(folder.path()), Err(CaseError::Io(_))));
    let huge = |about: About, entries: usize| {
        let header = Header { case: Some(about), ..Header::default() };
        let mut writer = SegmentWriter::create(&path, &header, u64::MAX).unwrap();
        writer.line(&beginning()).unwrap();
        writer.long(b"").unwrap();
        (0..entries).for_each(|_| writer.line(&Entry::Forget).unwrap());
        writer.close().unwrap();
        Case::read(&path)
    };
    let far = About { world_bytes: u64::MAX, ..About::default() };
    assert!(matches!(huge(far, 0), Err(CaseError::TooMuch { .. })));
    assert!(matches!(huge(About { world_bytes: 9, ..About::default() }, 0), Err(CaseError::CutOff)));
    assert!(matches!(huge(About::default(), ENTRIES_MAX + 1), Err(CaseError::TooMuch { .. })));
    assert!(huge(About::default(), 3).is_ok());
}
