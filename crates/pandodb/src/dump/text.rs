//! Bytes as printable ASCII: printable characters stand for themselves, a backslash is doubled, and
//! every other byte is a backslash and two hexadecimal digits, as in the printable dumps of
//! Berkeley DB.

/// The byte that separates the fields of a row.
pub(super) const FIELD_END: u8 = b'\t';
/// The byte that ends a line.
pub(super) const LINE_END: u8 = b'\n';
const ESCAPE: u8 = b'\\';
const DIGITS: &[u8; 16] = b"0123456789abcdef";

fn is_plain(byte: u8) -> bool {
    (b' '..=b'~').contains(&byte) && byte != ESCAPE
}

/// Appends `bytes` to `out` as text.
pub(super) fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let plain = rest.iter().position(|byte| !is_plain(*byte));
        let (plain, others) = rest.split_at(plain.unwrap_or(rest.len()));
        out.extend_from_slice(plain);
        let special = others.iter().position(|byte| is_plain(*byte));
        let (special, behind) = others.split_at(special.unwrap_or(others.len()));
        for byte in special {
            match *byte {
                ESCAPE => out.extend([ESCAPE, ESCAPE]),
                byte => {
                    let digit = |of: u8| DIGITS[usize::from(of & 15)];
                    out.extend([ESCAPE, digit(byte >> 4), digit(byte)]);
                }
            }
        }
        rest = behind;
    }
}

/// What ends a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldEnd {
    /// Another field follows in the line.
    Field,
    /// It was the last one of its line.
    Line,
}

/// Turns text back into bytes, piece by piece: an escape may lie in two pieces.
#[derive(Debug, Default)]
pub(super) struct Unescape {
    /// What came of an escape so far: nothing, the backslash, or its first digit as well.
    begun: Begun,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Begun {
    #[default]
    Nothing,
    Backslash,
    Digit(u8),
}

impl Unescape {
    /// Appends to `out` the bytes that `text` stands for, up to the end of the field. Returns how
    /// much of `text` it took, the end with it, and which one that was, if it came.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub(super) fn take(
        &mut self,
        text: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, Option<FieldEnd>), String> {
        let mut at = 0;
        while let Some(byte) = text.get(at).copied() {
            if self.begun != Begun::Nothing {
                self.go_on(byte, out)?;
                at += 1;
                continue;
            }
            let plain = text[at..].iter().position(|byte| !is_plain(*byte));
            let end = plain.map_or(text.len(), |plain| at + plain);
            out.extend_from_slice(&text[at..end]);
            at = end;
            match text.get(at) {
                None => break,
                Some(&FIELD_END) => return Ok((at + 1, Some(FieldEnd::Field))),
                Some(&LINE_END) => return Ok((at + 1, Some(FieldEnd::Line))),
                Some(&ESCAPE) => self.begun = Begun::Backslash,
                Some(other) => {
                    return Err(format!(
                        "there is a byte {other:02x}, which belongs there as '\\{other:02x}'"
                    ));
                }
            }
            at += 1;
        }
        Ok((text.len(), None))
    }

    /// Takes the next character of an escape.
    fn go_on(&mut self, byte: u8, out: &mut Vec<u8>) -> Result<(), String> {
        let digit = DIGITS.iter().position(|digit| *digit == byte);
        let digit = digit.and_then(|digit| u8::try_from(digit).ok());
        self.begun = match (self.begun, digit) {
            (Begun::Backslash, Some(digit)) => Begun::Digit(digit),
            (Begun::Digit(first), Some(digit)) => {
                out.push(first << 4 | digit);
                Begun::Nothing
            }
            (Begun::Backslash, None) if byte == ESCAPE => {
                out.push(ESCAPE);
                Begun::Nothing
            }
            _ => {
                return Err(format!(
                    "behind a backslash is '{}', not a backslash or two of the digits 0 to 9 and a \
                     to f",
                    byte.escape_ascii()
                ));
            }
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        escape(bytes, &mut out);
        out
    }

    /// Returns the fields of a line that comes in pieces of `step` bytes.
    fn unescaped(text: &[u8], step: usize) -> Result<Vec<Vec<u8>>, String> {
        let (mut fields, mut field, mut unescape) = (vec![], vec![], Unescape::default());
        for mut piece in text.chunks(step) {
            while !piece.is_empty() {
                let (taken, end) = unescape.take(piece, &mut field)?;
                piece = &piece[taken..];
                if end.is_some() {
                    fields.push(std::mem::take(&mut field));
                }
            }
        }
        Ok(fields)
    }

    #[test]
    fn every_byte_comes_back_however_the_text_is_cut() {
        let all: Vec<u8> = (0..=255).collect();
        let mut text = escaped(&all);
        assert!(text.iter().all(|byte| (b' '..=b'~').contains(byte)));
        text.push(FIELD_END);
        text.extend(escaped(b"a\\b\tc"));
        text.push(LINE_END);
        assert!(text.ends_with(b"a\\\\b\\09c\n"));
        for step in 1..text.len() {
            let fields = unescaped(&text, step).unwrap();
            assert_eq!(fields, [&all[..], b"a\\b\tc"], "{step}");
        }
    }

    #[test]
    fn what_is_no_text_of_a_dump_is_refused() {
        for (text, why) in [
            (&b"a\\xb\n"[..], "is 'x', not a backslash"),
            (b"a\\0\n", "is '\\n', not a backslash"),
            (b"a\\0A\n", "is 'A', not a backslash"),
            (b"a\\0\\\\\n", "is '\\\\', not a backslash"),
            (b"a\r\n", "there is a byte 0d"),
            (b"\xc3\xa9\n", "there is a byte c3"),
        ] {
            let refused = unescaped(text, 9).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }
}
