//! How long texts are kept: as JSON, compressed where that pays.

use lz4_flex::block;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Error;

/// Largest text; a request is far smaller.
const TEXT_BYTES_MAX: usize = 256 << 20;
/// Shorter ones are not compressed.
const WORTH_BYTES: usize = 200;
const PLAIN: u8 = 0;
/// Four bytes of the text's length, then a block of LZ4: most texts are short, and it begins without filling tables.
const LZ4: u8 = 1;
const LENGTH_BYTES: usize = 4;

/// The first byte says how the others are to be read.
pub(super) fn pack(text: &[u8]) -> Vec<u8> {
    if text.len() >= WORTH_BYTES
        && let Ok(length) = u32::try_from(text.len())
    {
        let packed = block::compress(text);
        if packed.len() + LENGTH_BYTES < text.len() {
            return [&[LZ4], length.to_le_bytes().as_slice(), packed.as_slice()].concat();
        }
    }
    [&[PLAIN], text].concat()
}

pub(super) fn unpack(body: &[u8], table: &'static str) -> Result<Vec<u8>, Error> {
    let wrong = || Error::Unreadable { table };
    match body.split_first() {
        Some((&PLAIN, text)) => Ok(text.to_vec()),
        Some((&LZ4, rest)) => {
            let (length, packed) = rest.split_first_chunk::<LENGTH_BYTES>().ok_or_else(wrong)?;
            let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| wrong())?;
            if length > TEXT_BYTES_MAX {
                return Err(wrong());
            }
            let text = block::decompress(packed, length).map_err(|_| wrong())?;
            if text.len() == length { Ok(text) } else { Err(wrong()) }
        }
        _ => Err(wrong()),
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
        let short = [&[LZ4], 200_u32.to_le_bytes().as_slice(), &block::compress(b"short")].concat();
        let huge = [&[LZ4], u32::MAX.to_le_bytes().as_slice(), &[0]].concat();
        for wrong in [&[][..], &[7, 1], &[LZ4, 255, 255], &short, &huge] {
            assert!(matches!(unpack(wrong, "log"), Err(Error::Unreadable { table: "log" })));
        }
    }
}
