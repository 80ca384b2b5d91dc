//! Numbers and strings as payloads have them: see `input.rs`.

use pando_resp::parse_integer;

/// Appends a length, or a number that is written like one.
pub(crate) fn put_length(out: &mut Vec<u8>, length: u64) {
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
            out.extend_from_slice(&length.to_be_bytes());
        }
    }
}

/// Appends a string.
pub(crate) fn put_string(out: &mut Vec<u8>, text: &[u8]) {
    put_length(out, text.len() as u64);
    out.extend_from_slice(text);
}

/// Appends a string, as a number if it is a small one.
pub(crate) fn put_short_string(out: &mut Vec<u8>, text: &[u8]) {
    /// Digits and sign of the numbers that have a form of their own.
    const DIGITS: usize = 11;
    let number = match text.len() {
        1..=DIGITS => parse_integer(text).and_then(|number| i32::try_from(number).ok()),
        _ => None,
    };
    let Some(number) = number else {
        put_string(out, text);
        return;
    };
    match (i8::try_from(number), i16::try_from(number)) {
        (Ok(number), _) => out.extend_from_slice(&[0xc0, number.cast_unsigned()]),
        (_, Ok(number)) => {
            out.push(0xc1);
            out.extend_from_slice(&number.to_le_bytes());
        }
        _ => {
            out.push(0xc2);
            out.extend_from_slice(&number.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_redis_writes_them() {
        // What DUMP of redis-server 7.0 has behind the type.
        for (text, bytes) in [
            (&b"0"[..], &b"\xc0\0"[..]),
            (b"-128", b"\xc0\x80"),
            (b"128", b"\xc1\x80\0"),
            (b"-32769", b"\xc2\xff\x7f\xff\xff"),
            (b"2147483647", b"\xc2\xff\xff\xff\x7f"),
            (b"2147483648", b"\x0a2147483648"),
            (b"-2147483648", b"\xc2\0\0\0\x80"),
            (b"007", b"\x03007"),
            (b"", b"\0"),
        ] {
            let mut out = Vec::new();
            put_short_string(&mut out, text);
            assert_eq!(out, bytes, "{}", text.escape_ascii());
        }
    }
}
