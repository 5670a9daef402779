//! Parquet, as far as a sheet needs it: every column optional, values plain, nothing compressed.
//!
//! The format is small where nothing is asked of it: pages of values behind each other, and a footer in Thrift's compact
//! protocol that says where they are. See `docs/decisions/0009-parquet.md` for why it is written here. Invariant: what is
//! written is read by every reader of version 1 of the format; a row group's size is bounded, whatever a sheet's. Pure.

use super::sheet::{Cell, Kind, Sheet};

/// Rows of a row group: with texts of 1 KiB in each cell a page stays far below the 2 GiB that it may have.
const GROUP_ROWS: usize = 65_536;
const MAGIC: &[u8] = b"PAR1";

/// Thrift's types, in the compact protocol.
const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

/// Parquet's numbers for what is used of it.
const PHYSICAL_INT64: i64 = 2;
const PHYSICAL_DOUBLE: i64 = 5;
const PHYSICAL_BYTES: i64 = 6;
const OPTIONAL: i64 = 1;
const CONVERTED_UTF8: i64 = 0;
const CONVERTED_MILLIS: i64 = 9;
const PLAIN: i64 = 0;
const RLE: i64 = 3;
const UNCOMPRESSED: i64 = 0;
const DATA_PAGE: i64 = 0;
const VERSION: i64 = 1;

/// A sheet as the bytes of a file.
pub fn file(sheet: &Sheet) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    let groups: Vec<Group> = sheet.rows.chunks(GROUP_ROWS).map(|rows| group(sheet, rows, &mut out)).collect();
    let footer = footer(sheet, &groups);
    out.extend_from_slice(&footer);
    out.extend_from_slice(&(footer.len() as u32).to_le_bytes());
    out.extend_from_slice(MAGIC);
    out
}

/// Where the column chunks of a row group are.
struct Group {
    rows: usize,
    chunks: Vec<Chunk>,
}

struct Chunk {
    at: usize,
    bytes: usize,
}

fn group(sheet: &Sheet, rows: &[Vec<Cell>], out: &mut Vec<u8>) -> Group {
    let chunks = (0..sheet.columns.len()).map(|column| {
        let (at, page) = (out.len(), page(rows, column));
        out.extend(page_header(page.len(), rows.len()));
        out.extend(page);
        Chunk { at, bytes: out.len() - at }
    });
    Group { rows: rows.len(), chunks: chunks.collect() }
}

/// Definition levels, which say of each row whether there is a value, then the values.
fn page(rows: &[Vec<Cell>], column: usize) -> Vec<u8> {
    let mut levels = Vec::new();
    let mut left = rows;
    while let Some(first) = left.first() {
        let there = first[column] != Cell::Nothing;
        let run = left.iter().take_while(|row| (row[column] != Cell::Nothing) == there).count();
        varint(&mut levels, (run as u64) << 1);
        levels.push(u8::from(there));
        left = &left[run..];
    }
    let mut page = (levels.len() as u32).to_le_bytes().to_vec();
    page.extend(levels);
    for row in rows {
        match &row[column] {
            Cell::Nothing => {}
            Cell::Text(text) => {
                page.extend_from_slice(&(text.len() as u32).to_le_bytes());
                page.extend_from_slice(text.as_bytes());
            }
            Cell::Int(number) => page.extend_from_slice(&number.to_le_bytes()),
            Cell::Real(number) => page.extend_from_slice(&number.to_le_bytes()),
            Cell::Time(time) => page.extend_from_slice(&time.as_millisecond().to_le_bytes()),
        }
    }
    page
}

fn page_header(bytes: usize, rows: usize) -> Vec<u8> {
    let mut data = Struct::default();
    data.number(1, I32, rows as i64).number(2, I32, PLAIN).number(3, I32, RLE).number(4, I32, RLE);
    let mut header = Struct::default();
    header.number(1, I32, DATA_PAGE).number(2, I32, bytes as i64).number(3, I32, bytes as i64);
    header.structure(5, data);
    header.end()
}

fn footer(sheet: &Sheet, groups: &[Group]) -> Vec<u8> {
    let mut root = Struct::default();
    root.text(4, "schema").number(5, I32, sheet.columns.len() as i64);
    let schema = std::iter::once(root).chain(sheet.columns.iter().map(|(name, kind)| {
        let mut column = Struct::default();
        column.number(1, I32, physical(*kind)).number(3, I32, OPTIONAL).text(4, name);
        let converted = match kind {
            Kind::Text => Some(CONVERTED_UTF8),
            Kind::Time => Some(CONVERTED_MILLIS),
            Kind::Int | Kind::Real => None,
        };
        if let Some(converted) = converted {
            column.number(6, I32, converted);
        }
        column
    }));
    let mut file = Struct::default();
    file.number(1, I32, VERSION);
    file.list(2, schema.collect());
    file.number(3, I64, sheet.rows.len() as i64);
    file.list(4, groups.iter().map(|group| row_group(sheet, group)).collect());
    file.text(6, concat!("pumice version ", env!("CARGO_PKG_VERSION")));
    file.end()
}

fn row_group(sheet: &Sheet, group: &Group) -> Struct {
    let chunks = group.chunks.iter().zip(&sheet.columns).map(|(chunk, (name, kind))| {
        let mut meta = Struct::default();
        meta.number(1, I32, physical(*kind));
        meta.numbers(2, &[PLAIN, RLE]);
        meta.texts(3, &[name]);
        meta.number(4, I32, UNCOMPRESSED).number(5, I64, group.rows as i64);
        meta.number(6, I64, chunk.bytes as i64).number(7, I64, chunk.bytes as i64).number(9, I64, chunk.at as i64);
        let mut of = Struct::default();
        of.number(2, I64, chunk.at as i64).structure(3, meta);
        of
    });
    let bytes: usize = group.chunks.iter().map(|chunk| chunk.bytes).sum();
    let mut written = Struct::default();
    written.list(1, chunks.collect());
    written.number(2, I64, bytes as i64).number(3, I64, group.rows as i64);
    written
}

fn physical(kind: Kind) -> i64 {
    match kind {
        Kind::Text => PHYSICAL_BYTES,
        Kind::Int | Kind::Time => PHYSICAL_INT64,
        Kind::Real => PHYSICAL_DOUBLE,
    }
}

/// A struct of Thrift's compact protocol; fields go in by rising number.
#[derive(Default)]
struct Struct {
    bytes: Vec<u8>,
    last: u8,
}

impl Struct {
    fn field(&mut self, number: u8, kind: u8) {
        // No two fields that are used are 16 apart.
        self.bytes.push(((number - self.last) << 4) | kind);
        self.last = number;
    }

    fn number(&mut self, number: u8, kind: u8, value: i64) -> &mut Self {
        self.field(number, kind);
        varint(&mut self.bytes, zigzag(value));
        self
    }

    fn text(&mut self, number: u8, text: &str) -> &mut Self {
        self.field(number, BINARY);
        bytes(&mut self.bytes, text);
        self
    }

    fn structure(&mut self, number: u8, value: Struct) -> &mut Self {
        self.field(number, STRUCT);
        self.bytes.extend(value.end());
        self
    }

    fn list(&mut self, number: u8, items: Vec<Struct>) {
        self.head(number, STRUCT, items.len());
        items.into_iter().for_each(|item| self.bytes.extend(item.end()));
    }

    fn numbers(&mut self, number: u8, items: &[i64]) {
        self.head(number, I32, items.len());
        items.iter().for_each(|item| varint(&mut self.bytes, zigzag(*item)));
    }

    fn texts(&mut self, number: u8, items: &[&str]) {
        self.head(number, BINARY, items.len());
        items.iter().for_each(|item| bytes(&mut self.bytes, item));
    }

    fn head(&mut self, number: u8, kind: u8, items: usize) {
        self.field(number, LIST);
        match u8::try_from(items) {
            Ok(few) if few < 15 => self.bytes.push((few << 4) | kind),
            _ => {
                self.bytes.push(0xF0 | kind);
                varint(&mut self.bytes, items as u64);
            }
        }
    }

    fn end(mut self) -> Vec<u8> {
        self.bytes.push(0);
        self.bytes
    }
}

fn bytes(out: &mut Vec<u8>, text: &str) {
    varint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8 & 0x7F) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sheet() -> Sheet {
        let time = |text: &str| Cell::Time(text.parse().unwrap());
        Sheet {
            columns: vec![("name", Kind::Text), ("n", Kind::Int), ("x", Kind::Real), ("at", Kind::Time)],
            rows: vec![
                vec!["é".into(), Cell::Int(-1), Cell::Real(0.5), time("2026-01-02T03:04:05.006Z")],
                vec![Cell::Nothing, Cell::Nothing, Cell::Nothing, Cell::Nothing],
                vec!["b".into(), Cell::Int(1 << 40), Cell::Nothing, time("1969-12-31T23:59:59Z")],
            ],
        }
    }

    /// That others read such a file is tried with pyarrow, in `tests/python/test_history.py`.
    #[test]
    fn the_bytes_are_those_that_other_readers_read() {
        let hex: String = file(&sheet()).iter().map(|byte| format!("{byte:02x}")).collect();
        let lines: Vec<&str> = hex.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
        insta::assert_snapshot!(lines.join("\n"));
    }

    #[test]
    fn a_long_sheet_has_several_groups_and_an_empty_one_none() {
        let rows = |count: usize| Sheet {
            rows: (0..count).map(|n| vec![Cell::Int(n as i64)]).collect(),
            columns: vec![("n", Kind::Int)],
        };
        for (count, groups) in [(0, 0), (1, 1), (GROUP_ROWS, 1), (GROUP_ROWS + 1, 2)] {
            let (sheet, mut out) = (rows(count), Vec::new());
            let made: Vec<usize> =
                sheet.rows.chunks(GROUP_ROWS).map(|rows| group(&sheet, rows, &mut out).rows).collect();
            assert_eq!((made.len(), made.iter().sum::<usize>()), (groups, count));
            let file = file(&sheet);
            assert!(file.starts_with(MAGIC) && file.ends_with(MAGIC));
        }
    }

    #[test]
    fn numbers_are_written_as_thrift_has_them() {
        let written = |value| {
            let mut out = Vec::new();
            varint(&mut out, zigzag(value));
            out
        };
        assert_eq!((written(0), written(-1), written(1), written(150)), (vec![0], vec![1], vec![2], vec![0xAC, 0x02]));
        assert_eq!(written(i64::MIN).len(), 10);
    }
}
