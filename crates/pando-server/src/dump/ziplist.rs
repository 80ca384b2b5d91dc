//! Ziplists, which versions of Redis before 7.0 had where later ones have listpacks.
//!
//! Four bytes say how long all is, four where the last entry begins, two how many there are (65535:
//! more than that), and 255 ends it. An entry is the length of the one before it (a byte, or 254
//! and four), its kind, and its bytes. Lengths in kinds are big-endian, all else little-endian.

use super::Put;
use super::input::{Input, Refused};
use super::listpack::signed;

/// The number of entries that stands for more.
const MANY: u16 = u16::MAX;
const END: u8 = 0xff;
/// Precedes a length of four bytes.
const LONG: u8 = 0xfe;

enum Entry<'p> {
    Text(&'p [u8]),
    Number(i64),
}

fn take<'p>(input: &mut Input<'p>) -> Result<Entry<'p>, Refused> {
    let first = input.byte()?;
    let low = usize::from(first & 63);
    let length = match first {
        0..0x40 => low,
        0x40..0x80 => low << 8 | usize::from(input.byte()?),
        0x80 => u32::from_be_bytes(input.array()?) as usize,
        0xc0 => return Ok(Entry::Number(signed(input.bytes(2)?))),
        0xd0 => return Ok(Entry::Number(signed(input.bytes(4)?))),
        0xe0 => return Ok(Entry::Number(signed(input.bytes(8)?))),
        0xf0 => return Ok(Entry::Number(signed(input.bytes(3)?))),
        0xfe => return Ok(Entry::Number(signed(input.bytes(1)?))),
        0xf1..=0xfd => return Ok(Entry::Number(i64::from(first & 15) - 1)),
        _ => return Err(Refused::Damaged),
    };
    Ok(Entry::Text(input.bytes(length)?))
}

/// Has `put` take all entries of a ziplist as strings.
pub(super) fn read(ziplist: &[u8], put: Put<'_>) -> Result<(), Refused> {
    let mut input = Input::new(ziplist, 0);
    let (bytes, _last) = (input.array()?, input.array::<4>()?);
    let count = u16::from_le_bytes(input.array()?);
    if u32::from_le_bytes(bytes) as usize != ziplist.len() {
        return Err(Refused::Damaged);
    }
    let mut digits = itoa::Buffer::new();
    let (mut found, mut bytes_before) = (0_usize, 0);
    loop {
        let start = input.left();
        let before = match input.byte()? {
            END => break,
            LONG => u32::from_le_bytes(input.array()?) as usize,
            short => short.into(),
        };
        if before != bytes_before {
            return Err(Refused::Damaged);
        }
        match take(&mut input)? {
            Entry::Text(text) => put(text)?,
            Entry::Number(number) => put(digits.format(number).as_bytes())?,
        }
        bytes_before = start - input.left();
        found += 1;
    }
    match input.is_empty() && (count == MANY || usize::from(count) == found) {
        true => Ok(()),
        false => Err(Refused::Damaged),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(ziplist: &[u8]) -> Result<Vec<Vec<u8>>, Refused> {
        let mut all = Vec::new();
        read(ziplist, &mut |text| {
            all.push(text.to_vec());
            Ok(())
        })?;
        Ok(all)
    }

    /// Returns a ziplist of entries that are given without the length of the one before.
    fn ziplist(entries: &[&[u8]]) -> Vec<u8> {
        let (mut bytes, mut before) = (vec![0; 10], 0);
        for entry in entries {
            let start = bytes.len();
            bytes[4..8].copy_from_slice(&u32::try_from(start).unwrap().to_le_bytes());
            match u8::try_from(before) {
                Ok(short) if short < LONG => bytes.push(short),
                _ => {
                    bytes.push(LONG);
                    bytes.extend(u32::try_from(before).unwrap().to_le_bytes());
                }
            }
            bytes.extend_from_slice(entry);
            before = bytes.len() - start;
        }
        bytes.push(END);
        let length = u32::try_from(bytes.len()).unwrap();
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        bytes[8..10].copy_from_slice(&u16::try_from(entries.len()).unwrap().to_le_bytes());
        bytes
    }

    #[test]
    fn entries_of_all_kinds_are_read() {
        let long = [&[0x80, 0, 0, 0x40, 0][..], &[b'y'; 16384]].concat();
        let middle = [&[0x41, 0x2c][..], &[b'z'; 300]].concat();
        let entries = [
            &b"\x02hi"[..],
            b"\xf1",
            b"\xfd",
            b"\xfe\x80",
            b"\xc0\x2c\x01",
            b"\xf0\x70\x11\xff",
            b"\xd0\xff\xff\xff\x7f",
            b"\xe0\0\0\0\0\0\0\0\x80",
            &middle,
            &long,
            b"\0",
        ];
        let read = strings(&ziplist(&entries)).unwrap();
        let texts: [&[u8]; 11] = [
            b"hi",
            b"0",
            b"12",
            b"-128",
            b"300",
            b"-61072",
            b"2147483647",
            b"-9223372036854775808",
            &[b'z'; 300],
            &[b'y'; 16384],
            b"",
        ];
        assert_eq!(read, texts);
    }

    #[test]
    fn what_is_cut_or_changed_ends_in_a_result() {
        let bytes = ziplist(&[b"\x02hi", b"\xf5", b"\xc0\x2c\x01", b"\x03abc"]);
        for end in 0..bytes.len() {
            assert_eq!(strings(&bytes[..end]), Err(Refused::Damaged), "{end}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let _any = strings(&damaged);
        }
    }
}
