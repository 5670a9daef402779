//! Header blocks of SPDY/3.1 (section 2.6.10 of its draft): names and values, compressed with zlib over the whole connection, whose
//! window begins with a dictionary that both sides know.

use std::sync::OnceLock;

use miniz_oxide::inflate::stream::{InflateState, inflate};
use miniz_oxide::{DataFormat, MZError, MZFlush, MZStatus};

use crate::streams::spdy::SpdyError;

/// Largest block, in bytes, as it was before it was compressed.
const BLOCK_BYTES_MAX: usize = 64 << 10;
/// Made at a time, in bytes.
const STEP_BYTES: usize = 4 << 10;
/// Adler-32 of the dictionary, by which a stream says that it uses it.
const DICTIONARY_ID: u32 = 0xe3c6_a7c2;
/// What a zlib stream begins with: method and window, then flags.
const ZLIB_HEAD: [u8; 2] = [0x78, 0x01];
/// The flag of a stream that begins with a dictionary's number.
const WITH_DICTIONARY: u8 = 0x20;
/// A block of bytes as they are: not the last one, then how many, and that inverted.
const STORED: u8 = 0;

/// Words of the dictionary, which stand in it with their lengths before them.
const WORDS: &str = "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age \
    allow authorization cache-control connection content-base content-encoding content-language content-length \
    content-location content-md5 content-range content-type date etag expect expires from host if-match \
    if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma \
    proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade \
    user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url public set-cookie \
    keep-alive origin";
/// What follows the words.
const TAIL: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 \
    Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not \
    Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec \
    00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,\
    application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,\
    utf-,*,enq=0.";

fn dictionary() -> &'static [u8] {
    static DICTIONARY: OnceLock<Vec<u8>> = OnceLock::new();
    DICTIONARY.get_or_init(|| {
        let mut bytes = Vec::new();
        for word in WORDS.split_whitespace().map(|word| word.replace('_', " ")) {
            bytes.extend_from_slice(&(word.len() as u32).to_be_bytes());
            bytes.extend_from_slice(word.as_bytes());
        }
        bytes.extend_from_slice(TAIL.as_bytes());
        bytes
    })
}

/// Names in lower case, and values.
pub(crate) type Headers = Vec<(String, String)>;

/// Reads the blocks of one connection, which must come in order.
pub(crate) struct HeaderReader {
    state: Box<InflateState>,
    begun: bool,
}

impl HeaderReader {
    pub(crate) fn new() -> HeaderReader {
        HeaderReader { state: InflateState::new_boxed(DataFormat::Raw), begun: false }
    }

    /// Reads the next block of the connection: each is compressed with what all before it have said.
    pub(crate) fn read(&mut self, mut compressed: &[u8]) -> Result<Headers, SpdyError> {
        if !self.begun {
            compressed = self.begin(compressed)?;
        }
        let mut block = Vec::new();
        self.inflate(compressed, &mut block)?;
        parse(&block).ok_or(SpdyError::Headers("a header block is cut short"))
    }

    /// Looks at the head of the stream, and fills the window as it says.
    fn begin<'a>(&mut self, compressed: &'a [u8]) -> Result<&'a [u8], SpdyError> {
        let ([_, flags], mut rest) = compressed.split_first_chunk().ok_or(SpdyError::Headers("no zlib stream"))?;
        if flags & WITH_DICTIONARY != 0 {
            let (id, after) = rest.split_first_chunk().ok_or(SpdyError::Headers("no zlib stream"))?;
            if u32::from_be_bytes(*id) != DICTIONARY_ID {
                return Err(SpdyError::Headers("an unknown dictionary"));
            }
            rest = after;
            // A block of bytes as they are leaves them in the window, which is what a dictionary is.
            self.inflate(&stored(dictionary()), &mut Vec::new())?;
        }
        self.begun = true;
        Ok(rest)
    }

    fn inflate(&mut self, mut input: &[u8], output: &mut Vec<u8>) -> Result<(), SpdyError> {
        let mut step = [0; STEP_BYTES];
        loop {
            let done = inflate(&mut self.state, input, &mut step, MZFlush::None);
            input = input.get(done.bytes_consumed..).unwrap_or_default();
            output.extend_from_slice(&step[..done.bytes_written]);
            match done.status {
                _ if output.len() > BLOCK_BYTES_MAX => return Err(SpdyError::Headers("a header block is too large")),
                Ok(MZStatus::Ok) if done.bytes_written > 0 || !input.is_empty() => {}
                // Nothing is left to do until more comes.
                Ok(MZStatus::Ok) | Err(MZError::Buf) => return Ok(()),
                Ok(_) => return Err(SpdyError::Headers("the zlib stream has ended")),
                Err(_) => return Err(SpdyError::Headers("no zlib stream")),
            }
        }
    }
}

/// Writes the blocks of one connection: as they are, for they are all but empty.
#[derive(Default)]
pub(crate) struct HeaderWriter {
    begun: bool,
}

impl HeaderWriter {
    /// Writes the next block of the connection: each is compressed with what all before it have said.
    pub(crate) fn write(&mut self, headers: &[(&str, &str)]) -> Vec<u8> {
        let mut block = (headers.len() as u32).to_be_bytes().to_vec();
        for text in headers.iter().flat_map(|(name, value)| [name, value]) {
            block.extend_from_slice(&(text.len() as u32).to_be_bytes());
            block.extend_from_slice(text.as_bytes());
        }
        let head: &[u8] = if self.begun { &[] } else { &ZLIB_HEAD };
        self.begun = true;
        // An empty one after it: Go hands nothing on before it has seen where a flush ends.
        [head, &stored(&block), &stored(&[])].concat()
    }
}

/// A block of deflate with bytes as they are: at most 64 KiB less one.
fn stored(bytes: &[u8]) -> Vec<u8> {
    let count = bytes.len() as u16;
    let mut block = vec![STORED];
    block.extend_from_slice(&count.to_le_bytes());
    block.extend_from_slice(&(!count).to_le_bytes());
    block.extend_from_slice(bytes);
    block
}

fn parse(mut block: &[u8]) -> Option<Headers> {
    let number = |block: &mut &[u8]| {
        let (bytes, rest) = block.split_first_chunk()?;
        *block = rest;
        Some(u32::from_be_bytes(*bytes) as usize)
    };
    let text = |block: &mut &[u8]| {
        let length = number(block)?;
        let (bytes, rest) = block.split_at_checked(length)?;
        *block = rest;
        Some(String::from_utf8_lossy(bytes).into_owned())
    };
    let count = number(&mut block)?;
    // Each takes eight bytes at least, so that a wrong count ends soon.
    (0..count).map(|_| Some((text(&mut block)?.to_ascii_lowercase(), text(&mut block)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Python's zlib makes of two blocks with the dictionary, flushed after each: `streamtype: error`, then
    /// `streamtype: stdin`, `port: 80`.
    const FIRST: &str = "78f9e3c6a7c202a62346703a2b294a4dcc851625aca9a08006000000ffff";
    const SECOND: &str = "02651c4ca9e21260768194d845a0d4cd646100000000ffff";

    fn bytes(hex: &str) -> Vec<u8> {
        hex.as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).expect("ascii"), 16).expect("hex"))
            .collect()
    }

    fn adler32(bytes: &[u8]) -> u32 {
        let (mut low, mut high) = (1_u32, 0_u32);
        for byte in bytes {
            low = (low + u32::from(*byte)) % 65_521;
            high = (high + low) % 65_521;
        }
        high << 16 | low
    }

    #[test]
    fn the_dictionary_is_that_of_the_protocol() {
        assert_eq!((dictionary().len(), adler32(dictionary())), (1423, DICTIONARY_ID));
    }

    #[test]
    fn blocks_of_others_are_read_in_order() {
        let mut reader = HeaderReader::new();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(reader.read(&bytes(FIRST)).expect("a block"), [pair("streamtype", "error")]);
        let second = reader.read(&bytes(SECOND)).expect("a block");
        assert_eq!(second, [pair("streamtype", "stdin"), pair("port", "80")]);
    }

    #[test]
    fn our_blocks_are_read_back() {
        let (mut reader, mut writer) = (HeaderReader::new(), HeaderWriter::default());
        for headers in [&[][..], &[("a", "1"), ("b", "")]] {
            let read = reader.read(&writer.write(headers)).expect("a block");
            assert_eq!(read.iter().map(|(name, value)| (&**name, &**value)).collect::<Vec<_>>(), headers);
        }
    }

    #[test]
    fn what_is_no_block_is_refused() {
        let first = bytes(FIRST);
        let mut other = first.clone();
        other[2] ^= 1;
        for block in [&[][..], &[0x78], &first[..4], &other, &first[..first.len() - 9], &[0x78, 1, 0xff, 0xff]] {
            assert!(HeaderReader::new().read(block).is_err(), "{block:?}");
        }
        // A few bytes that would be very many.
        let mut writer = HeaderWriter::default();
        let large = "x".repeat(60_000);
        let block = writer.write(&[("a", &large)]);
        let mut reader = HeaderReader::new();
        reader.read(&block).expect("a large block");
        let twice = [stored(large.as_bytes()), stored(large.as_bytes())].concat();
        assert!(matches!(reader.read(&twice), Err(SpdyError::Headers("a header block is too large"))));
    }
}
