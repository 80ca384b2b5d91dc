//! Listpacks: strings and numbers one after the other, in which Redis keeps small collections, and
//! the entries of streams.
//!
//! Four bytes say how long all is, two how many entries there are (65535: more than that), and 255
//! ends it. An entry is its kind and its bytes, and behind them how many these are, for walks
//! backwards: seven bits in a byte, the highest bits first, and the highest bit of all but the
//! first byte set.

use pando_resp::parse_integer;

use super::Put;
use super::input::{Input, Refused};

/// Bytes before the entries.
const HEAD_BYTES: usize = 6;
/// The number of entries that stands for more.
const MANY: u16 = u16::MAX;
const END: u8 = 0xff;

/// An entry as it lies there.
enum Entry<'p> {
    Text(&'p [u8]),
    Number(i64),
}

/// Returns a number of fewer than eight bytes, little-endian, with its sign.
pub(super) fn signed(bytes: &[u8]) -> i64 {
    let all = bytes.iter().rev();
    let number = all.fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    let unused = 64 - 8 * u32::try_from(bytes.len()).unwrap_or(8).min(8);
    number.wrapping_shl(unused).cast_signed() >> unused
}

fn take<'p>(input: &mut Input<'p>, first: u8) -> Result<Entry<'p>, Refused> {
    let low = |bits: u8| usize::from(first & ((1 << bits) - 1));
    let text = |input: &mut Input<'p>, length| Ok(Entry::Text(input.bytes(length)?));
    let number = |input: &mut Input<'p>, bytes| Ok(Entry::Number(signed(input.bytes(bytes)?)));
    match first {
        0..0x80 => Ok(Entry::Number(first.into())),
        0x80..0xc0 => text(input, low(6)),
        0xc0..0xe0 => {
            let value = i64::from(first & 31) << 8 | i64::from(input.byte()?);
            // Thirteen bits with a sign.
            Ok(Entry::Number(value << 51 >> 51))
        }
        0xe0..0xf0 => {
            let length = low(4) << 8 | usize::from(input.byte()?);
            text(input, length)
        }
        0xf0 => {
            let length = u32::from_le_bytes(input.array()?);
            text(input, length as usize)
        }
        0xf1 => number(input, 2),
        0xf2 => number(input, 3),
        0xf3 => number(input, 4),
        0xf4 => number(input, 8),
        0xf5.. => Err(Refused::Damaged),
    }
}

/// Appends how many bytes an entry has. Redis gives the largest numbers that fit into two, three or
/// four bytes one more, whose bits are 0, and finds the next entry by that.
fn put_backwards(out: &mut Vec<u8>, bytes: usize) {
    let behind = match bytes {
        ..=0x7f => 0,
        0x80..0x3fff => 1,
        0x3fff..0x1f_ffff => 2,
        0x1f_ffff..0x0fff_ffff => 3,
        _ => 4,
    };
    let low = |group: u32| (bytes >> (7 * group)).to_le_bytes()[0] & 0x7f;
    out.push(low(behind));
    out.extend((0..behind).rev().map(|group| low(group) | 0x80));
}

/// Has `put` take all entries of a listpack as strings.
pub(super) fn read(listpack: &[u8], put: Put<'_>) -> Result<(), Refused> {
    let mut input = Input::new(listpack, 0);
    let (bytes, count) = (
        u32::from_le_bytes(input.array()?),
        u16::from_le_bytes(input.array()?),
    );
    if bytes as usize != listpack.len() {
        return Err(Refused::Damaged);
    }
    let (mut digits, mut backwards) = (itoa::Buffer::new(), Vec::with_capacity(5));
    let mut found = 0_usize;
    loop {
        let before = input.left();
        let first = input.byte()?;
        if first == END {
            break;
        }
        match take(&mut input, first)? {
            Entry::Text(text) => put(text)?,
            Entry::Number(number) => put(digits.format(number).as_bytes())?,
        }
        backwards.clear();
        put_backwards(&mut backwards, before - input.left());
        if input.bytes(backwards.len())? != backwards {
            return Err(Refused::Damaged);
        }
        found += 1;
    }
    match input.is_empty() && (count == MANY || usize::from(count) == found) {
        true => Ok(()),
        false => Err(Refused::Damaged),
    }
}

/// A listpack that is being written.
#[derive(Debug)]
pub(super) struct Listpack {
    bytes: Vec<u8>,
    count: usize,
}

impl Listpack {
    pub(super) fn new() -> Self {
        Self {
            bytes: vec![0; HEAD_BYTES],
            count: 0,
        }
    }

    /// Number of bytes so far.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends a string, as a number if it is one.
    pub(super) fn push(&mut self, text: &[u8]) {
        match parse_integer(text) {
            Some(number) => self.push_number(number),
            None => self.push_text(text),
        }
    }

    fn push_text(&mut self, text: &[u8]) {
        let start = self.bytes.len();
        let length = u32::try_from(text.len()).expect("a string of a row");
        match u16::try_from(length) {
            Ok(short) if short < 64 => self.bytes.push(0x80 | short.to_le_bytes()[0]),
            Ok(short) if short < 4096 => self.bytes.extend((0xe000 | short).to_be_bytes()),
            _ => {
                self.bytes.push(0xf0);
                self.bytes.extend(length.to_le_bytes());
            }
        }
        self.bytes.extend_from_slice(text);
        self.end(start);
    }

    /// Appends a number of something in memory.
    pub(super) fn push_count(&mut self, count: usize) {
        self.push_number(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Appends a number.
    pub(super) fn push_number(&mut self, number: i64) {
        let (start, bytes) = (self.bytes.len(), number.to_le_bytes());
        match number {
            0..128 => self.bytes.push(bytes[0]),
            -4096..4096 => self.bytes.extend([0xc0 | bytes[1] & 31, bytes[0]]),
            -0x8000..0x8000 => {
                self.bytes.push(0xf1);
                self.bytes.extend(&bytes[..2]);
            }
            -0x80_0000..0x80_0000 => {
                self.bytes.push(0xf2);
                self.bytes.extend(&bytes[..3]);
            }
            -0x8000_0000..0x8000_0000 => {
                self.bytes.push(0xf3);
                self.bytes.extend(&bytes[..4]);
            }
            _ => {
                self.bytes.push(0xf4);
                self.bytes.extend(bytes);
            }
        }
        self.end(start);
    }

    fn end(&mut self, start: usize) {
        let bytes = self.bytes.len() - start;
        put_backwards(&mut self.bytes, bytes);
        self.count += 1;
    }

    /// Writes a number over the entry that begins at `place` and has one byte: so it is from 0 to
    /// 127.
    pub(super) fn set_small(&mut self, place: usize, number: u8) {
        assert!(number < 128, "it has one byte");
        self.bytes[place] = number;
    }

    /// Completes it.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.bytes.push(END);
        let bytes = u32::try_from(self.bytes.len()).expect("it is short");
        let count = u16::try_from(self.count).unwrap_or(MANY);
        self.bytes[..4].copy_from_slice(&bytes.to_le_bytes());
        self.bytes[4..HEAD_BYTES].copy_from_slice(&count.to_le_bytes());
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(listpack: &[u8]) -> Result<Vec<Vec<u8>>, Refused> {
        let mut all = Vec::new();
        read(listpack, &mut |text| {
            all.push(text.to_vec());
            Ok(())
        })?;
        Ok(all)
    }

    #[test]
    fn what_is_written_is_read() {
        let mut texts: Vec<Vec<u8>> = [
            0,
            127,
            128,
            -1,
            4095,
            -4096,
            4096,
            -4097,
            32767,
            -32768,
            32768,
            -32769,
            8_388_607,
            -8_388_608,
            8_388_608,
            -8_388_609,
            2_147_483_647,
            -2_147_483_648,
            2_147_483_648,
            i64::MIN,
            i64::MAX,
        ]
        .iter()
        .map(|number: &i64| number.to_string().into_bytes())
        .collect();
        texts.extend([
            b"".to_vec(),
            b"007".to_vec(),
            b"-0".to_vec(),
            b"1.5".to_vec(),
        ]);
        texts.extend(
            [
                1, 63, 64, 125, 126, 4095, 4096, 16_376, 16_377, 16_378, 70_000,
            ]
            .map(|length| vec![b'x'; length]),
        );
        let mut listpack = Listpack::new();
        texts.iter().for_each(|text| listpack.push(text));
        let bytes = listpack.finish();
        assert_eq!(strings(&bytes), Ok(texts));
    }

    #[test]
    fn they_are_those_of_redis() {
        // RPUSH l 1 -1 ab 300: what DUMP of redis-server 7.0 has.
        let bytes = b"\x14\0\0\0\x04\0\x01\x01\xdf\xff\x02\x82ab\x03\xc1\x2c\x02\xff";
        let bytes = [&[19, 0, 0, 0, 4, 0][..], &bytes[6..]].concat();
        let texts = [&b"1"[..], b"-1", b"ab", b"300"].map(<[u8]>::to_vec);
        assert_eq!(strings(&bytes), Ok(texts.to_vec()));
        let mut listpack = Listpack::new();
        texts.iter().for_each(|text| listpack.push(text));
        assert_eq!(listpack.finish(), bytes);
    }

    #[test]
    fn lengths_behind_entries_are_those_of_redis() {
        for (bytes, behind) in [
            (1, &b"\x01"[..]),
            (0x7f, b"\x7f"),
            (0x80, b"\x01\x80"),
            (0x3ffe, b"\x7f\xfe"),
            (0x3fff, b"\0\xff\xff"),
            (0x4000, b"\x01\x80\x80"),
            (0x1f_fffe, b"\x7f\xff\xfe"),
            (0x1f_ffff, b"\0\xff\xff\xff"),
            (0x0fff_fffe, b"\x7f\xff\xff\xfe"),
            (0x0fff_ffff, b"\0\xff\xff\xff\xff"),
            (0xffff_ffff, b"\x0f\xff\xff\xff\xff"),
        ] {
            let mut out = Vec::new();
            put_backwards(&mut out, bytes);
            assert_eq!(out, behind, "{bytes}");
        }
    }

    #[test]
    fn any_bit_that_is_changed_ends_in_a_result() {
        let mut listpack = Listpack::new();
        for text in [&b"1"[..], b"-70000", &[b'x'; 70], b"abc", b"5000000000"] {
            listpack.push(text);
        }
        let bytes = listpack.finish();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let _any = strings(&damaged);
        }
        for end in 0..bytes.len() {
            assert_eq!(strings(&bytes[..end]), Err(Refused::Damaged));
        }
        let more = [&bytes[..], &[0xff]].concat();
        assert_eq!(strings(&more), Err(Refused::Damaged));
    }
}
