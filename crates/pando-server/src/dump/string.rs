//! Strings of the RDB format: a length and bytes, a number, or what LZF has compressed.
//!
//! The two upper bits of the first byte say which: 0 a length in the other six, 1 one in fourteen,
//! 2 one in the next four bytes (or eight, if the others say 1), 3 another form, which the others
//! name.

use super::lzf::expand;

/// Appends a string.
pub(crate) fn put_string(out: &mut Vec<u8>, text: &[u8]) {
    let length = text.len();
    match (
        u8::try_from(length),
        u16::try_from(length),
        u32::try_from(length),
    ) {
        (Ok(length), ..) if length < 64 => out.push(length),
        (_, Ok(length), _) if length < 1 << 14 => {
            out.extend_from_slice(&(length | 1 << 14).to_be_bytes());
        }
        (_, _, Ok(length)) => {
            out.push(0x80);
            out.extend_from_slice(&length.to_be_bytes());
        }
        _ => {
            out.push(0x81);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(text);
}

/// A length, or the number of another form.
enum Head {
    Length(usize),
    Form(u8),
}

fn take<'a>(rest: &mut &'a [u8], bytes: usize) -> Option<&'a [u8]> {
    let (taken, behind) = rest.split_at_checked(bytes)?;
    *rest = behind;
    Some(taken)
}

fn take_number(rest: &mut &[u8], bytes: usize) -> Option<usize> {
    let bytes = take(rest, bytes)?;
    let number = bytes
        .iter()
        .fold(0_u64, |all, byte| all << 8 | u64::from(*byte));
    usize::try_from(number).ok()
}

fn take_head(rest: &mut &[u8]) -> Option<Head> {
    let first = take(rest, 1)?[0];
    let low = first & 63;
    Some(match first >> 6 {
        0 => Head::Length(usize::from(low)),
        1 => Head::Length(usize::from(low) << 8 | take_number(rest, 1)?),
        2 if first == 0x80 => Head::Length(take_number(rest, 4)?),
        2 if first == 0x81 => Head::Length(take_number(rest, 8)?),
        2 => return None,
        _ => Head::Form(low),
    })
}

fn take_length(rest: &mut &[u8]) -> Option<usize> {
    match take_head(rest)? {
        Head::Length(length) => Some(length),
        Head::Form(_) => None,
    }
}

/// Takes a string of `most` bytes at most from the front of `rest`; `None` if there is none.
pub(crate) fn take_string(rest: &mut &[u8], most: usize) -> Option<Vec<u8>> {
    let form = match take_head(rest)? {
        Head::Length(length) if length > most => return None,
        Head::Length(length) => return take(rest, length).map(<[u8]>::to_vec),
        Head::Form(form) => form,
    };
    let number = match form {
        0 => i32::from(i8::from_le_bytes(take(rest, 1)?.try_into().ok()?)),
        1 => i32::from(i16::from_le_bytes(take(rest, 2)?.try_into().ok()?)),
        2 => i32::from_le_bytes(take(rest, 4)?.try_into().ok()?),
        3 => {
            let (packed, length) = (take_length(rest)?, take_length(rest)?);
            let packed = take(rest, packed)?;
            return (length <= most).then(|| expand(packed, length))?;
        }
        _ => return None,
    };
    Some(number.to_string().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(mut bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
        let text = take_string(&mut bytes, 1 << 20)?;
        Some((text, bytes.len()))
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
    fn what_is_no_string_is_none() {
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
            b"\xc3\x02\x80\xff\xff\xff\xff\0\0",
            b"\xc3\xc0\x01\x01\0a",
        ] {
            assert_eq!(taken(bytes), None, "{bytes:?}");
        }
        let (mut plain, mut packed) = (&b"\x03abc"[..], &b"\xc3\x04\x04\0a\x20\0"[..]);
        assert_eq!(take_string(&mut plain, 2), None, "too long");
        assert_eq!(take_string(&mut packed, 3), None, "too long");
    }
}
