//! Any files in the place of a recording, a saved World and a case: refused, or read up to where they are whole.
//!
//! The first byte says where the rest goes: a segment from its first byte on, what follows a good header, lines or a saved
//! World in blocks whose lengths and checksums are right. Segments are folders' files, so a folder in memory would be best.

#![no_main]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use pumice_scheduler::plugins;
use pumice_recording::{Case, FORMAT, Range, Recording, replay};

/// One for each process.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("pumice-fuzz-recording-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    folder
});

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 })
    })
}

/// A block whose bytes are stored as they are, which deflate allows; inputs are short.
fn block(plain: &[u8]) -> Vec<u8> {
    let length = u16::try_from(plain.len()).unwrap_or(u16::MAX);
    let plain = &plain[..usize::from(length)];
    let packed = [&[1][..], &length.to_le_bytes(), &(!length).to_le_bytes(), plain].concat();
    let word = |number: usize| u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes();
    [&word(packed.len())[..], &word(plain.len()), &crc32(&packed).to_le_bytes(), &packed].concat()
}

fn head() -> Vec<u8> {
    [&b"PUMICE record\n"[..], &FORMAT.to_le_bytes()].concat()
}

fn of_blocks(header: &str, blocks: &[&[u8]]) -> Vec<u8> {
    let mut file = [head(), block(header.as_bytes())].concat();
    blocks.iter().filter(|plain| !plain.is_empty()).for_each(|plain| file.extend(block(plain)));
    // A block of no bytes ends it.
    file.extend([0; 12]);
    file
}

fn read(folder: &Path) {
    if let Ok(recording) = Recording::open(folder) {
        match replay(&recording, &plugins(), Range::default()) {
            Ok(told) => assert!(told.breaks.iter().all(|what| !what.to_string().is_empty())),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    if let Ok(case) = Case::read(&folder.join("a.case")) {
        let _ = case.run(&plugins());
    }
}

fuzz_target!(|bytes: &[u8]| {
    let [kind, rest @ ..] = bytes else { return };
    let nothing = of_blocks("{}", &[]);
    let (segment, start, case) = match kind % 4 {
        0 => (rest.to_vec(), rest.to_vec(), rest.to_vec()),
        1 => ([head(), rest.to_vec()].concat(), nothing, [head(), rest.to_vec()].concat()),
        2 => {
            let begin: &[u8] = b"{\"begin\":{}}\n";
            (of_blocks("{}", &[begin, rest]), nothing, of_blocks("{\"case\":{}}", &[b"{}\n", begin, rest]))
        }
        _ => {
            let header = format!("{{\"case\":{{\"worldBytes\":{}}}}}", rest.len());
            let cycle: &[u8] = b"{\"cycle\":{\"at\":1,\"digest\":\"0\"}}\n";
            (
                of_blocks("{\"continues\":true}", &[cycle]),
                of_blocks("{}", &[b"{}\n", rest]),
                of_blocks(&header, &[b"{}\n", rest, cycle]),
            )
        }
    };
    let folder = &*FOLDER;
    for (name, file) in [("00000001.record", segment), ("00000001.start", start), ("a.case", case)] {
        fs::write(folder.join(name), file).expect("a folder that can be written");
    }
    read(folder);
});
