//! Commands typed by hand: words separated by blanks, with quotes and escapes as in a shell.
//!
//! Words are unescaped in place: the result is never longer than its source, so arguments stay
//! ranges of the reader's buffer.

use crate::arguments::Span;

/// Splits `buffer[start..end]` into words and appends their ranges of `buffer` to `words`. Returns
/// false if a quote is not closed, or is followed by something other than a blank.
pub(crate) fn split(buffer: &mut [u8], start: usize, end: usize, words: &mut Vec<Span>) -> bool {
    let mut at = start;
    loop {
        while at < end && is_blank(buffer[at]) {
            at += 1;
        }
        if at >= end {
            return true;
        }
        let word = at;
        let mut write = at;
        while at < end && !ends_word(buffer[at]) {
            let next = match buffer[at] {
                b'"' => double_quoted(buffer, at + 1, end, &mut write),
                b'\'' => single_quoted(buffer, at + 1, end, &mut write),
                byte => {
                    buffer[write] = byte;
                    write += 1;
                    at += 1;
                    continue;
                }
            };
            match next {
                Some(next) => at = next,
                None => return false,
            }
            // A closing quote ends the word.
            break;
        }
        words.push(Span::new(word, write));
    }
}

/// Returns true for what may be in front of a word and behind a quote.
fn is_blank(byte: u8) -> bool {
    ends_word(byte) || matches!(byte, 0x0b | 0x0c)
}

/// Returns true for what ends a word outside of quotes. As in Redis, two of the blanks do not.
fn ends_word(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0)
}

/// Returns the position after a closing quote at `at - 1`, if a blank or the end follows the quote.
fn closed(buffer: &[u8], at: usize, end: usize) -> Option<usize> {
    (at >= end || is_blank(buffer[at])).then_some(at)
}

fn double_quoted(buffer: &mut [u8], mut at: usize, end: usize, write: &mut usize) -> Option<usize> {
    while at < end {
        let (byte, next) = match buffer[at] {
            b'"' => return closed(buffer, at + 1, end),
            b'\\' if at + 1 < end => escape(buffer, at, end),
            byte => (byte, at + 1),
        };
        buffer[*write] = byte;
        *write += 1;
        at = next;
    }
    None
}

fn escape(buffer: &[u8], at: usize, end: usize) -> (u8, usize) {
    if buffer[at + 1] == b'x' && at + 3 < end {
        let digits = (hex(buffer[at + 2]), hex(buffer[at + 3]));
        if let (Some(high), Some(low)) = digits {
            return (high * 16 + low, at + 4);
        }
    }
    let byte = match buffer[at + 1] {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    };
    (byte, at + 2)
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

fn single_quoted(buffer: &mut [u8], mut at: usize, end: usize, write: &mut usize) -> Option<usize> {
    while at < end {
        let (byte, next) = match buffer[at] {
            b'\'' => return closed(buffer, at + 1, end),
            b'\\' if at + 1 < end && buffer[at + 1] == b'\'' => (b'\'', at + 2),
            byte => (byte, at + 1),
        };
        buffer[*write] = byte;
        *write += 1;
        at = next;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: Option<&[&[u8]]>) {
        let mut buffer = line.as_bytes().to_vec();
        let mut words = Vec::new();
        let end = buffer.len();
        let fine = split(&mut buffer, 0, end, &mut words);
        match expected {
            None => assert!(!fine, "{line}"),
            Some(expected) => {
                assert!(fine, "{line}");
                let got: Vec<&[u8]> = words.iter().map(|word| word.of(&buffer)).collect();
                assert_eq!(got, expected, "{line}");
            }
        }
    }

    #[test]
    fn words_are_split_and_unescaped_as_in_a_shell() {
        check("", Some(&[]));
        check("  set  a\tb ", Some(&[b"set", b"a", b"b"]));
        check(r#"set "a b" 'c d'"#, Some(&[b"set", b"a b", b"c d"]));
        check(r#""\x41\n\q\xzz" '\'\n'"#, Some(&[b"A\nqxzz", b"'\\n"]));
        check(r#"'' """#, Some(&[b"", b""]));
        check(r#"ab"cd" e"#, Some(&[b"abcd", b"e"]));
        // These two are blanks in front of a word and behind a quote, but end no word.
        check("\x0b\x0ca\x0bb c\x0c", Some(&[b"a\x0bb", b"c\x0c"]));
        check("'a'\x0b\"b\"\x0cc", Some(&[b"a", b"b", b"c"]));
        check(r#""abc"#, None);
        check(r#""abc"d"#, None);
        check("'abc", None);
        check(r#""\"#, None);
    }
}
