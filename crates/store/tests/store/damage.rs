//! Files that are not what the store wrote: a typed error that names the file, never a panic.

use std::fs;
use std::path::{Path, PathBuf};

use pumice_store::{LogError, OpenError, Options, Store};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use redb::{Database, TableDefinition};

use crate::support::{block_on, create, pod, value};

const OBJECTS: usize = 40;

/// A closed store with some objects; returns its file.
fn filled(directory: &Path) -> PathBuf {
    let store = Store::open(directory, Options::default()).unwrap();
    block_on(async {
        for number in 0..OBJECTS {
            let body = format!("\"{}\"", "x".repeat(200 + number));
            store.apply(create(&pod(&format!("p{number:02}")), &body)).await.unwrap();
        }
        store.close().await.unwrap();
    });
    directory.join("store.redb")
}

/// Opens a store that may be damaged: either all of it is right or the error names the file.
fn opens_right_or_says_why(directory: &Path, file: &Path) -> bool {
    match Store::open(directory, Options::default()) {
        Ok(store) => {
            let items = store.list("pods", None).items;
            assert_eq!(items.len(), OBJECTS);
            for (number, object) in items.iter().enumerate() {
                assert_eq!(value(object).len(), 202 + number);
            }
            block_on(store.close()).unwrap();
            true
        }
        Err(OpenError::Log(error)) => {
            let text = error.to_string();
            assert!(text.contains(&file.display().to_string()), "{text}");
            false
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn garbage_truncation_and_foreign_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = filled(dir.path());
    let good = fs::read(&file).unwrap();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("empty", Vec::new()),
        ("text", b"hello".to_vec()),
        ("zeros", vec![0; good.len()]),
        ("noise", (0..good.len()).map(|at| (at * 31 + at / 7) as u8).collect()),
        ("cut in the header", good[..100].to_vec()),
        ("cut after the header", good[..4096].to_vec()),
        ("cut in half", good[..good.len() / 2].to_vec()),
        ("header, then zeros", [&good[..4096], &vec![0; good.len() - 4096]].concat()),
    ];
    for (case, bytes) in cases {
        fs::write(&file, &bytes).unwrap();
        assert!(!opens_right_or_says_why(dir.path(), &file), "{case} was accepted");
        assert_eq!(fs::read(&file).unwrap().is_empty(), bytes.is_empty(), "{case} was overwritten");
    }
    fs::write(&file, &good).unwrap();
    assert!(opens_right_or_says_why(dir.path(), &file));
}

#[test]
fn flipped_bytes_never_change_an_object_unnoticed() {
    let dir = tempfile::tempdir().unwrap();
    let file = filled(dir.path());
    let good = fs::read(&file).unwrap();
    // Most of the file is unused: damage where there is something.
    let used: Vec<usize> = (0..good.len()).filter(|at| good[*at] != 0).collect();
    let mut rng = StdRng::seed_from_u64(7);
    let mut refused = 0;
    for _ in 0..150 {
        let mut damaged = good.clone();
        for _ in 0..rng.gen_range(1..4) {
            damaged[used[rng.gen_range(0..used.len())]] ^= 1 << rng.gen_range(0..8);
        }
        fs::write(&file, &damaged).unwrap();
        refused += u32::from(!opens_right_or_says_why(dir.path(), &file));
    }
    assert!(refused > 20, "only {refused} of 150 were noticed");
}

// INV-61
#[test]
fn a_newer_format_and_another_programs_file_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = filled(dir.path());
    let numbers: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");
    let database = Database::open(&file).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(numbers).unwrap().insert("format", 999).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let error = Store::open(dir.path(), Options::default()).unwrap_err();
    assert!(matches!(error, OpenError::Log(LogError::NewerFormat { found: 999, .. })), "{error}");

    fs::remove_file(&file).unwrap();
    let database = Database::create(&file).unwrap();
    let transaction = database.begin_write().unwrap();
    let other: TableDefinition<'_, u64, u64> = TableDefinition::new("other");
    transaction.open_table(other).unwrap().insert(1, 2).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let error = Store::open(dir.path(), Options::default()).unwrap_err();
    assert!(matches!(error, OpenError::Log(LogError::Corrupt { .. })), "{error}");
}

#[test]
fn a_directory_in_the_files_place_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("store.redb")).unwrap();
    let error = Store::open(dir.path(), Options::default()).unwrap_err();
    assert!(error.to_string().contains("store.redb"), "{error}");
}
