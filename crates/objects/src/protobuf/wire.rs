//! The wire format of protobuf: tags and values, one after the other, read and written.

use super::{Cause, Result};

/// Bytes that are read from their beginning.
pub(super) struct Reader<'b> {
    rest: &'b [u8],
}

/// The value of a field as the wire type has it; what it means is for the table to say.
#[derive(Clone, Copy)]
pub(super) enum Datum<'b> {
    Varint(u64),
    Fixed64(u64),
    Fixed32,
    Bytes(&'b [u8]),
}

impl<'b> Reader<'b> {
    pub(super) fn new(bytes: &'b [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next field: its number and value.
    pub(super) fn next(&mut self) -> Result<Option<(u32, Datum<'b>)>> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).ok().filter(|number| *number > 0).ok_or(Cause::Malformed)?;
        let datum = match tag & 7 {
            0 => Datum::Varint(self.varint()?),
            1 => {
                let bytes = self.take(8)?.try_into().map_err(|_| Cause::Truncated)?;
                Datum::Fixed64(u64::from_le_bytes(bytes))
            }
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Cause::Truncated)?;
                Datum::Bytes(self.take(length)?)
            }
            5 => {
                self.take(4)?;
                Datum::Fixed32
            }
            // Groups, which nothing of Kubernetes has.
            _ => return Err(Cause::Malformed.into()),
        };
        Ok(Some((number, datum)))
    }

    /// The next number of a list that is one value.
    pub(super) fn packed(&mut self) -> Result<Option<u64>> {
        if self.rest.is_empty() { Ok(None) } else { self.varint().map(Some) }
    }

    fn varint(&mut self) -> Result<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or(Cause::Truncated)?;
            self.rest = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Cause::Malformed.into())
    }

    fn take(&mut self, length: usize) -> Result<&'b [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Cause::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }
}

impl<'b> Datum<'b> {
    pub(super) fn varint(self) -> Result<u64> {
        match self {
            Self::Varint(number) => Ok(number),
            _ => Err(Cause::WireType.into()),
        }
    }

    pub(super) fn double(self) -> Result<f64> {
        match self {
            Self::Fixed64(bits) => Ok(f64::from_bits(bits)),
            _ => Err(Cause::WireType.into()),
        }
    }

    pub(super) fn bytes(self) -> Result<&'b [u8]> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(Cause::WireType.into()),
        }
    }

    pub(super) fn text(self) -> Result<&'b str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Cause::Utf8.into())
    }
}

/// A message that is written field by field.
#[derive(Default)]
pub(super) struct Writer {
    pub(super) written: Vec<u8>,
}

impl Writer {
    pub(super) fn varint(&mut self, field: u32, number: u64) {
        self.raw_varint(u64::from(field) << 3);
        self.raw_varint(number);
    }

    pub(super) fn double(&mut self, field: u32, number: f64) {
        self.raw_varint(u64::from(field) << 3 | 1);
        self.written.extend_from_slice(&number.to_bits().to_le_bytes());
    }

    pub(super) fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.raw_varint(u64::from(field) << 3 | 2);
        self.raw_varint(bytes.len() as u64);
        self.written.extend_from_slice(bytes);
    }

    fn raw_varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.written.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.written.push(number.to_le_bytes()[0]);
    }
}
