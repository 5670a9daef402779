//! Frames of SPDY/3.1, as bytes.

use bytes::{Buf, Bytes, BytesMut};

use crate::streams::spdy::SpdyError;

/// Largest frame that is taken, in bytes of what follows its head.
pub(crate) const FRAME_BYTES_MAX: usize = 1 << 20;
/// Bytes of a frame's head.
const HEAD_BYTES: usize = 8;
/// The bit of a control frame.
const CONTROL: u8 = 0x80;
/// The version, in a control frame.
const VERSION: u16 = 3;
/// The flag that a side says nothing more on a stream.
const FIN: u8 = 1;
/// Types of control frames.
const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;
/// Why a stream was ended: it was refused.
const REFUSED_STREAM: u32 = 3;

/// One frame of the peer's.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A stream begins. Its headers are still compressed.
    Begin { stream: u32, headers: Bytes, end: bool },
    /// Headers that say nothing to us, but belong to the compressed stream.
    Headers { headers: Bytes },
    /// A stream has broken off.
    Reset { stream: u32 },
    /// To be sent back.
    Ping { id: u32 },
    /// No more streams will begin.
    GoAway,
    /// Bytes of a stream.
    Data { stream: u32, bytes: Bytes, end: bool },
    /// Settings and windows, which nobody who speaks SPDY to a kubelet keeps to.
    Other,
}

/// Takes the next whole frame off the buffer, if there is one.
pub(crate) fn take(buffer: &mut BytesMut) -> Result<Option<Frame>, SpdyError> {
    let Some(&[a, b, c, d, flags, e, f, g]) = buffer.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
    let length = u32::from_be_bytes([0, e, f, g]) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(SpdyError::Frame("a frame is too large"));
    }
    if buffer.len() < HEAD_BYTES + length {
        return Ok(None);
    }
    let mut body = buffer.split_to(HEAD_BYTES + length).freeze();
    body.advance(HEAD_BYTES);
    let end = flags & FIN != 0;
    if a & CONTROL == 0 {
        return Ok(Some(Frame::Data { stream: u32::from_be_bytes([a, b, c, d]), bytes: body, end }));
    }
    if u16::from_be_bytes([a & !CONTROL, b]) != VERSION {
        return Err(SpdyError::Frame("another version than 3"));
    }
    let mut number = || match body.len() {
        4.. => Ok(body.get_u32() & !(1 << 31)),
        _ => Err(SpdyError::Frame("a frame is cut short")),
    };
    Ok(Some(match u16::from_be_bytes([c, d]) {
        SYN_STREAM => {
            let (stream, _) = (number()?, number()?);
            // Priority and slot.
            if body.len() < 2 {
                return Err(SpdyError::Frame("a frame is cut short"));
            }
            body.advance(2);
            Frame::Begin { stream, headers: body, end }
        }
        SYN_REPLY | HEADERS => {
            number()?;
            Frame::Headers { headers: body }
        }
        RST_STREAM => Frame::Reset { stream: number()? },
        PING => Frame::Ping { id: number()? },
        GOAWAY => Frame::GoAway,
        _ => Frame::Other,
    }))
}

/// Says yes to a stream.
pub(crate) fn reply(stream: u32, headers: &[u8]) -> Vec<u8> {
    control(SYN_REPLY, &[&stream.to_be_bytes(), headers])
}

/// Ends a stream that is not wanted.
pub(crate) fn refuse(stream: u32) -> Vec<u8> {
    control(RST_STREAM, &[&stream.to_be_bytes(), &REFUSED_STREAM.to_be_bytes()])
}

/// The answer to the ping with this number.
pub(crate) fn pong(id: u32) -> Vec<u8> {
    control(PING, &[&id.to_be_bytes()])
}

/// Bytes of a stream, at most [`FRAME_BYTES_MAX`].
pub(crate) fn data(stream: u32, bytes: &[u8], end: bool) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEAD_BYTES + bytes.len());
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(&length(bytes.len(), u8::from(end) * FIN));
    frame.extend_from_slice(bytes);
    frame
}

fn control(kind: u16, parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    let mut frame = (VERSION | u16::from(CONTROL) << 8).to_be_bytes().to_vec();
    frame.extend_from_slice(&kind.to_be_bytes());
    frame.extend_from_slice(&length(body.len(), 0));
    frame.extend_from_slice(&body);
    frame
}

/// Flags and length share a word.
fn length(length: usize, flags: u8) -> [u8; 4] {
    ((length as u32) | u32::from(flags) << 24).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn taken(bytes: &[u8]) -> Result<Option<Frame>, SpdyError> {
        take(&mut BytesMut::from(bytes))
    }

    #[test]
    fn frames_are_read_as_they_stand_in_the_draft() {
        let begin = [0x80, 3, 0, 1, 1, 0, 0, 12, 0, 0, 0, 5, 0, 0, 0, 0, 0x40, 0, b'h', b'b'];
        let headers = Bytes::from_static(b"hb");
        assert_eq!(taken(&begin).expect("a frame"), Some(Frame::Begin { stream: 5, headers, end: true }));
        let cases = [
            (vec![0x80, 3, 0, 3, 0, 0, 0, 8, 0, 0, 0, 5, 0, 0, 0, 1], Frame::Reset { stream: 5 }),
            (vec![0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 9], Frame::Ping { id: 9 }),
            (vec![0x80, 3, 0, 7, 0, 0, 0, 8, 0, 0, 0, 5, 0, 0, 0, 0], Frame::GoAway),
            (vec![0x80, 3, 0, 4, 0, 0, 0, 4, 0, 0, 0, 0], Frame::Other),
            (vec![0, 0, 0, 7, 1, 0, 0, 0], Frame::Data { stream: 7, bytes: Bytes::new(), end: true }),
        ];
        for (bytes, frame) in cases {
            assert_eq!(taken(&bytes).expect("a frame"), Some(frame), "{bytes:?}");
            assert_eq!(taken(&bytes[..bytes.len() - 1]).expect("a part"), None);
        }
        let two = [data(1, b"a", false), data(3, b"", true)].concat();
        let mut buffer = BytesMut::from(&two[..]);
        let first = Frame::Data { stream: 1, bytes: Bytes::from_static(b"a"), end: false };
        assert_eq!(take(&mut buffer).expect("a frame"), Some(first));
        assert_eq!(
            take(&mut buffer).expect("a frame"),
            Some(Frame::Data { stream: 3, bytes: Bytes::new(), end: true })
        );
    }

    #[test]
    fn our_frames_are_those_of_the_draft() {
        assert_eq!(reply(5, b"hb"), [0x80, 3, 0, 2, 0, 0, 0, 6, 0, 0, 0, 5, b'h', b'b']);
        assert_eq!(refuse(5), [0x80, 3, 0, 3, 0, 0, 0, 8, 0, 0, 0, 5, 0, 0, 0, 3]);
        assert_eq!(pong(9), [0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 9]);
        assert_eq!(data(7, b"x", true), [0, 0, 0, 7, 1, 0, 0, 1, b'x']);
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        for bytes in [
            &[0x80, 2, 0, 1, 0, 0, 0, 0][..],
            &[0x80, 3, 0, 1, 0, 0, 0, 4, 0, 0, 0, 1],
            &[0x80, 3, 0, 6, 0, 0, 0, 0],
            &[0, 0, 0, 1, 0, 0xff, 0xff, 0xff],
        ] {
            assert!(taken(bytes).is_err(), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_frames_or_refused(bytes: Vec<u8>) {
            let mut buffer = BytesMut::from(&bytes[..]);
            while let Ok(Some(_)) = take(&mut buffer) {}
            prop_assert!(buffer.len() <= bytes.len());
        }

        #[test]
        fn data_comes_back(stream in 0_u32..1 << 31, bytes: Vec<u8>, end: bool) {
            let frame = taken(&data(stream, &bytes, end)).expect("a frame").expect("a whole one");
            prop_assert_eq!(frame, Frame::Data { stream, bytes: bytes.into(), end });
        }
    }
}
