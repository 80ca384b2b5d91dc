//! Zipmaps, which Redis had for small hashes until 2.6.
//!
//! A byte says how many fields there are (254: more than that), and 255 ends it. Field and value
//! follow each other, each behind its length: a byte, or 254 and four bytes. Between the length of
//! a value and its bytes lies how many unused bytes are behind these.

use super::Put;
use super::input::{Input, Refused};

/// Precedes a length of four bytes; as the number of fields, that there are more.
const LONG: u8 = 0xfe;
const END: u8 = 0xff;

/// Has `put` take all fields and values of a zipmap in turns.
pub(super) fn read(zipmap: &[u8], put: Put<'_>) -> Result<(), Refused> {
    let mut input = Input::new(zipmap, 0);
    let count = input.byte()?;
    let mut found = 0_usize;
    loop {
        let field = match input.byte()? {
            END => break,
            first => length(first, &mut input)?,
        };
        put(input.bytes(field)?)?;
        let first = input.byte()?;
        let value = length(first, &mut input)?;
        let unused = input.byte()?;
        put(input.bytes(value)?)?;
        input.bytes(unused.into())?;
        found += 1;
    }
    match input.is_empty() && (count >= LONG || usize::from(count) == found) {
        true => Ok(()),
        false => Err(Refused::Damaged),
    }
}

fn length(first: u8, input: &mut Input<'_>) -> Result<usize, Refused> {
    match first {
        LONG => Ok(u32::from_le_bytes(input.array()?) as usize),
        END => Err(Refused::Damaged),
        short => Ok(short.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_values_are_read() {
        let long = vec![b'v'; 300];
        let head = b"\x02\x03foo\x03\x02bar\0\0\x01k\xfe\x2c\x01\0\0\0";
        let bytes = [&head[..], &long, &[END]].concat();
        let mut all = Vec::new();
        let read_all = read(&bytes, &mut |text| {
            all.push(text.to_vec());
            Ok(())
        });
        assert_eq!(read_all, Ok(()));
        assert_eq!(all, [&b"foo"[..], b"bar", b"k", &long]);
        for end in 0..bytes.len() {
            let cut = read(&bytes[..end], &mut |_| Ok(()));
            assert_eq!(cut, Err(Refused::Damaged), "{end}");
        }
    }
}
