//! The folder: what makes it one, what breaks it, who races in it.

use std::fs::{self, File};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::executor::block_on;
use pumice_jobs::bundle::{Bundle, ChunkId, Folder, Location, Name, Recorder, RunId, Status, Store, StoreAddress};
use pumice_jobs::error::sentence;

use crate::support::{pack, race, rows, run, slice, told};

#[tokio::test]
async fn a_bundle_is_found_by_its_text() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("new/bundles");
    let store = Arc::new(Folder::make(&folder).unwrap());
    let packed = pack(store, [Bytes::from_static(b"x")], &[]).await.unwrap();
    let location = Location { address: StoreAddress::folder(&folder).unwrap(), root: packed.root, run: Some(run()) };
    let location: Location = location.to_string().parse().unwrap();
    let store = location.address.open(None, 1).await.unwrap();
    assert_eq!(Bundle::open(store, location.root).await.unwrap().record(0).await.unwrap().value, "x");
    assert_eq!(fs::read_dir(folder.join("tmp")).unwrap().count(), 0);
}

#[test]
fn a_checkpoint_is_kept_while_there_is_something_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::make(dir.path()).unwrap();
    let run = RunId::fresh().unwrap();
    let path = folder.make_checkpoint(&run, 7).unwrap();
    assert_eq!(path, dir.path().join(format!("runs/{run}/checkpoints/7")));
    fs::write(path.join("epoch"), "3").unwrap();
    folder.remove_empty_checkpoint(&run, 7).unwrap();
    assert_eq!(folder.make_checkpoint(&run, 7).unwrap(), path, "a second attempt has the same");
    assert_eq!(fs::read(path.join("epoch")).unwrap(), b"3");
    fs::remove_file(path.join("epoch")).unwrap();
    for _ in 0..2 {
        folder.remove_empty_checkpoint(&run, 7).unwrap();
        assert!(!path.exists());
    }
    assert_ne!(run, RunId::fresh().unwrap());
}

#[test]
fn what_a_run_has_left_goes_and_chunks_stay() {
    let dir = tempfile::tempdir().unwrap();
    // Nothing here needs a runtime, so what these futures do is done on this thread.
    let store = Arc::new(Folder::make(dir.path()).unwrap().on_caller());
    let packed = block_on(pack(store.clone(), [Bytes::from_static(b"x")], &[])).unwrap();
    let mut recorder = block_on(Recorder::open(store.clone(), slice(1), 1)).unwrap();
    block_on(recorder.record(0, "0", Status::Succeeded, Bytes::from_static(b"y"))).unwrap();
    assert_eq!(block_on(recorder.flush()).unwrap().recorded, [0]);
    assert!(!store.has_checkpoint(&run(), 0));
    store.make_checkpoint(&run(), 0).unwrap();
    assert!(store.has_checkpoint(&run(), 0) && !store.has_checkpoint(&run(), 1));
    for _ in 0..2 {
        store.remove_run(&run()).unwrap();
        assert_eq!(fs::read_dir(dir.path().join("runs")).unwrap().count(), 0);
    }
    assert_eq!(block_on(rows(store.clone(), 1))[0].outcome, None);
    assert_eq!(block_on(block_on(Bundle::open(store, packed.root)).unwrap().record(0)).unwrap().value, "x");
}

// INV-46
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_racing_attempts_one_records() {
    for _ in 0..5 {
        let dir = tempfile::tempdir().unwrap();
        race(Arc::new(Folder::make(dir.path()).unwrap()), 4, 20).await;
    }
}

#[test]
fn a_folder_that_is_not_one_of_ours_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let text = sentence(&Folder::open(dir.path()).unwrap_err());
    assert!(text.contains("holds no bundles: is the volume mounted here"), "{text}");
    fs::write(dir.path().join("FORMAT"), "pumice bundles, format 2\n").unwrap();
    for tried in [Folder::open(dir.path()), Folder::make(dir.path())] {
        assert!(sentence(&tried.unwrap_err()).contains("use a newer pumice"));
    }
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let text = sentence(&Folder::make(&file).unwrap_err());
    assert!(text.contains("cannot make folder") && text.contains("file/tmp"), "{text}");
}

// INV-45
#[tokio::test]
async fn a_damaged_file_is_named_and_never_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(Folder::make(dir.path()).unwrap());
    let packed = pack(store.clone(), [Bytes::from_static(b"x")], &[]).await.unwrap();
    let name = Name::Chunk(packed.root);
    let path = store.path_of(&name);
    let whole = fs::read(&path).unwrap();
    for damaged in [&whole[..whole.len() - 1], b"", &vec![0; 1 << 20]] {
        fs::write(&path, damaged).unwrap();
        let text = told(Bundle::open(store.clone(), packed.root).await.unwrap_err());
        let shown = dir.path().to_str().unwrap();
        assert!(text.contains(&packed.root.to_string()) && text.contains(shown), "{text}");
        pack(store.clone(), [Bytes::from_static(b"x")], &[]).await.unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), damaged);
    }
    fs::remove_file(&path).unwrap();
    pack(store.clone(), [Bytes::from_static(b"x")], &[]).await.unwrap();
    assert_eq!(fs::read(&path).unwrap(), whole);
    let absent = ChunkId::of(b"absent");
    assert_eq!(store.get(Name::Chunk(absent)).await.unwrap(), None);
}

#[test]
fn what_killed_writers_left_is_swept_away_after_a_day() {
    let dir = tempfile::tempdir().unwrap();
    Folder::make(dir.path()).unwrap();
    let (old, fresh) = (dir.path().join("tmp/old"), dir.path().join("tmp/fresh"));
    let now = File::create(&fresh).unwrap().metadata().unwrap().modified().unwrap();
    File::create(&old).unwrap().set_modified(now - Duration::from_secs(25 * 3600)).unwrap();
    Folder::make(dir.path()).unwrap();
    assert!(fresh.exists() && !old.exists());
}
