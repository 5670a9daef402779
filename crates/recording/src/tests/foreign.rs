//! Files of all kinds in the place of a recording: an error or what can be read of them, never a panic.

use proptest::prelude::*;

use super::*;
use crate::block::pack;

/// A segment's head without its header's block.
fn head(version: u32) -> Vec<u8> {
    [crate::segment::MAGIC.as_slice(), &version.to_le_bytes()].concat()
}

/// A segment with whole blocks of anything.
fn of_blocks(header: &str, blocks: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = [head(FORMAT), pack(header.as_bytes())].concat();
    blocks.iter().for_each(|block| bytes.extend(pack(block)));
    bytes
}

#[test]
fn lengths_that_can_not_be_take_no_room() {
    let folder = tempfile::tempdir().unwrap();
    let word = |number: u32| number.to_le_bytes();
    for (packed, plain) in [(u32::MAX, u32::MAX), (1, u32::MAX), (72 << 20, 64 << 20), (0, 9), (9, 0), (64, 64 << 20)] {
        for before in [head(FORMAT), of_blocks("{}", &[])] {
            let bytes = [before, word(packed).to_vec(), word(plain).to_vec(), word(7).to_vec(), vec![1; 64]].concat();
            std::fs::write(segment(folder.path(), 1), bytes).unwrap();
            let told = run(folder.path()).unwrap();
            assert_eq!((told.cycles, told.breaks.len()), (0, 1), "{packed} {plain}: {:?}", told.breaks);
        }
    }
}

#[test]
fn a_block_that_unpacks_to_more_than_it_says_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let mut block = pack(&vec![b'\n'; 1 << 20]);
    block[4..8].copy_from_slice(&16_u32.to_le_bytes());
    std::fs::write(segment(folder.path(), 1), [of_blocks("{}", &[]), block].concat()).unwrap();
    assert!(matches!(run(folder.path()).unwrap().breaks[..], [Break::Damaged { .. }]));
}

#[test]
fn segments_of_other_numbers_and_names_are_no_recording() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["x.record", "-1.record", ".record", "99999999999999999999999.record"] {
        std::fs::write(folder.path().join(name), "").unwrap();
    }
    assert!(matches!(run(folder.path()), Err(ReplayError::Read(ReadError::Empty { .. }))));
    std::fs::create_dir(segment(folder.path(), 3)).unwrap();
    assert!(matches!(run(folder.path()), Err(ReplayError::Read(ReadError::Io { .. }))), "a folder is no segment");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_are_refused_or_read(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        lines in proptest::collection::vec("[ -~]{0,60}", 0..5),
        kind in 0..4,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let text = lines.join("\n").into_bytes();
        let file = match kind {
            0 => bytes.clone(),
            1 => [head(FORMAT), bytes.clone()].concat(),
            2 => of_blocks("{\"continues\": false}", &[text, bytes.clone()]),
            _ => of_blocks("{\"continues\": true}", &[]),
        };
        std::fs::write(segment(folder.path(), 1), &file).unwrap();
        std::fs::write(folder.path().join("00000001.start"), of_blocks("{}", &[b"{}".to_vec(), bytes])).unwrap();
        let _ = run(folder.path());
        std::fs::write(folder.path().join("a.case"), &file).unwrap();
        let _ = Case::read(&folder.path().join("a.case")).map(|case| case.run(&Registry::default()));
    }
}
