//! Bytes of a payload, from which numbers and strings are taken one after the other.
//!
//! A length is in the six lower bits of a byte, in fourteen bits, or in the next four or eight
//! bytes: the two upper bits of the first byte say which (0, 1, 2). If they are 3, it is a string
//! of another form, which the lower bits name: a number of one, two or four bytes, or what LZF has
//! compressed.

use std::borrow::Cow;

use super::lzf::expand;

/// Why a payload is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It is nothing that Redis writes.
    Damaged,
    /// What it holds takes more memory than it may.
    TooLong,
}

/// What is left of a payload.
#[derive(Debug)]
pub(crate) struct Input<'p> {
    rest: &'p [u8],
    /// Bytes of memory that what is taken may still have: a small payload may be a hundred times
    /// larger when it is expanded.
    room: usize,
}

/// A length, or the number of another form.
enum Head {
    Length(usize),
    Form(u8),
}

impl<'p> Input<'p> {
    /// Returns one of `rest`, of which `room` bytes of memory are made at most.
    pub(crate) fn new(rest: &'p [u8], room: usize) -> Self {
        Self { rest, room }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Number of bytes that are left.
    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    /// Takes some of the room.
    pub(super) fn make_room(&mut self, bytes: usize) -> Result<(), Refused> {
        self.room = self.room.checked_sub(bytes).ok_or(Refused::TooLong)?;
        Ok(())
    }

    /// Takes so many bytes.
    pub(super) fn bytes(&mut self, count: usize) -> Result<&'p [u8], Refused> {
        let taken = self.rest.split_at_checked(count);
        let (taken, behind) = taken.ok_or(Refused::Damaged)?;
        self.rest = behind;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Refused> {
        let taken = self.rest.split_first_chunk();
        let (taken, behind) = taken.ok_or(Refused::Damaged)?;
        self.rest = behind;
        Ok(*taken)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Refused> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    /// Takes a number of eight bytes, little-endian.
    pub(super) fn fixed(&mut self) -> Result<u64, Refused> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn head(&mut self) -> Result<Head, Refused> {
        let first = self.byte()?;
        let low = usize::from(first & 63);
        let long = match first {
            0..0x40 => return Ok(Head::Length(low)),
            0x40..0x80 => return Ok(Head::Length(low << 8 | usize::from(self.byte()?))),
            0x80 => u32::from_be_bytes(self.array()?).into(),
            0x81 => u64::from_be_bytes(self.array()?),
            0x82..0xc0 => return Err(Refused::Damaged),
            0xc0.. => return Ok(Head::Form(first & 63)),
        };
        usize::try_from(long).map_or(Err(Refused::Damaged), |long| Ok(Head::Length(long)))
    }

    /// Takes a length, or any number that is written like one.
    pub(super) fn length(&mut self) -> Result<usize, Refused> {
        match self.head()? {
            Head::Length(length) => Ok(length),
            Head::Form(_) => Err(Refused::Damaged),
        }
    }

    /// Takes a number that is written like a length.
    pub(super) fn number(&mut self) -> Result<u64, Refused> {
        Ok(self.length()? as u64)
    }

    /// Takes a string.
    pub(crate) fn string(&mut self) -> Result<Cow<'p, [u8]>, Refused> {
        let form = match self.head()? {
            Head::Length(length) => return Ok(Cow::Borrowed(self.bytes(length)?)),
            Head::Form(form) => form,
        };
        let number = match form {
            0 => i32::from(i8::from_le_bytes(self.array()?)),
            1 => i32::from(i16::from_le_bytes(self.array()?)),
            2 => i32::from_le_bytes(self.array()?),
            3 => {
                let (packed, length) = (self.length()?, self.length()?);
                let packed = self.bytes(packed)?;
                self.make_room(length)?;
                return expand(packed, length).map_or(Err(Refused::Damaged), |all| Ok(all.into()));
            }
            _ => return Err(Refused::Damaged),
        };
        Ok(Cow::Owned(number.to_string().into_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::output::put_string;
    use super::*;

    fn taken(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
        let mut input = Input::new(bytes, 1 << 20);
        let text = input.string().ok()?.into_owned();
        Some((text, input.rest.len()))
    }

    #[test]
    fn strings_of_all_lengths_are_read_as_they_were_written() {
        for length in [0, 1, 63, 64, 16383, 16384, 70000] {
            let text = vec![b'x'; length];
            let mut out = Vec::new();
            put_string(&mut out, &text);
            out.push(1);
            assert_eq!(taken(&out), Some((text, 1)), "{length}");
        }
    }

    #[test]
    fn strings_have_the_forms_of_redis() {
        for (bytes, text) in [
            (&b"\xc0\xfb"[..], "-5"),
            (b"\xc1\x00\x01", "256"),
            (b"\xc2\xff\xff\xff\x7f", "2147483647"),
            (b"\xc3\x04\x04\0a\x20\0", "aaaa"),
            (b"\x81\0\0\0\0\0\0\0\x01z", "z"),
        ] {
            assert_eq!(taken(bytes), Some((text.as_bytes().to_vec(), 0)), "{text}");
        }
    }

    #[test]
    fn any_bytes_end_in_a_result() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let first = random.choice([0x03, 0x40, 0x80, 0x81, 0xc0, 0xc1, 0xc2, 0xc3]);
            let mut bytes = vec![first.unwrap_or(0)];
            bytes.extend((0..random.usize(..20)).map(|_| random.u8(..)));
            if let Some((text, _)) = taken(&bytes) {
                assert!(text.len() <= 1 << 20);
            }
        }
    }

    #[test]
    fn what_is_no_string_is_refused() {
        for bytes in [
            &b""[..],
            b"\x05ab",
            b"\x40",
            b"\x80\xff\xff\xff\xff",
            b"\x81\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\x82",
            b"\xc0",
            b"\xc2\0",
            b"\xc4",
            b"\xc3\x02\x05\0\0",
            b"\xc3\xc0\x01\x01\0a",
        ] {
            let refused = Input::new(bytes, 1 << 20).string();
            assert_eq!(refused, Err(Refused::Damaged), "{bytes:?}");
        }
        let long = Input::new(b"\xc3\x04\x04\0a\x20\0", 3).string();
        assert_eq!(long, Err(Refused::TooLong));
        let huge = Input::new(b"\xc3\x02\x80\xff\xff\xff\xff\0\0", 1 << 20).string();
        assert_eq!(huge, Err(Refused::TooLong));
    }
}
