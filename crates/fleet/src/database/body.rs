//! How long texts are kept: as JSON, compressed where that pays.

use miniz_oxide::deflate::compress_to_vec;
use miniz_oxide::inflate::decompress_to_vec_with_limit;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Error;

/// Largest text; a request is far smaller.
const TEXT_BYTES_MAX: usize = 256 << 20;
/// Shorter ones are not compressed.
const WORTH_BYTES: usize = 200;
/// The quickest: it is done while others wait.
const LEVEL: u8 = 1;
const PLAIN: u8 = 0;
const DEFLATED: u8 = 1;

/// The first byte says how the others are to be read.
pub(super) fn pack(text: &[u8]) -> Vec<u8> {
    if text.len() >= WORTH_BYTES {
        let packed = compress_to_vec(text, LEVEL);
        if packed.len() < text.len() {
            return [&[DEFLATED], packed.as_slice()].concat();
        }
    }
    [&[PLAIN], text].concat()
}

pub(super) fn unpack(body: &[u8], table: &'static str) -> Result<Vec<u8>, Error> {
    let wrong = Error::Unreadable { table };
    match body.split_first() {
        Some((&PLAIN, text)) => Ok(text.to_vec()),
        Some((&DEFLATED, packed)) => decompress_to_vec_with_limit(packed, TEXT_BYTES_MAX).map_err(|_| wrong),
        _ => Err(wrong),
    }
}

pub(super) fn write(value: &impl Serialize) -> Result<Vec<u8>, Error> {
    let text = serde_json::to_vec(value).map_err(|_| Error::Unwritable)?;
    if text.len() > TEXT_BYTES_MAX {
        return Err(Error::Unwritable);
    }
    Ok(pack(&text))
}

pub(super) fn read<T: DeserializeOwned>(body: &[u8], table: &'static str) -> Result<T, Error> {
    serde_json::from_slice(&unpack(body, table)?).map_err(|_| Error::Unreadable { table })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_as_they_were_written() {
        for text in ["", "x", &"many jobs ".repeat(1000)] {
            let body = pack(text.as_bytes());
            assert_eq!(unpack(&body, "log").unwrap(), text.as_bytes());
            assert!(body.len() <= text.len() + 1);
        }
        for wrong in [&[][..], &[7, 1], &[DEFLATED, 255, 255]] {
            assert!(matches!(unpack(wrong, "log"), Err(Error::Unreadable { table: "log" })));
        }
    }
}
