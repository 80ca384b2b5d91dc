//! The words of a line, with the quoting rules of redis.conf.

/// Splits a line; `None` if quotes are not balanced, or a word is no text.
///
/// In double quotes `\n`, `\r`, `\t`, `\b`, `\a`, `\xHH` are characters, and any other one behind a
/// backslash is itself; in single quotes only `\'` is. Behind a closing quote a word ends.
pub(crate) fn split(line: &str) -> Option<Vec<String>> {
    let mut bytes = line.as_bytes();
    let mut words = Vec::new();
    loop {
        bytes = bytes.trim_ascii_start();
        if bytes.is_empty() {
            return Some(words);
        }
        let (word, rest) = first_word(bytes)?;
        words.push(String::from_utf8(word).ok()?);
        bytes = rest;
    }
}

fn first_word(mut bytes: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    loop {
        match bytes {
            [] => return Some((word, bytes)),
            [byte, rest @ ..] if byte.is_ascii_whitespace() => return Some((word, rest)),
            [b'"', rest @ ..] => return ended(word, double_quoted(rest)?),
            [b'\'', rest @ ..] => return ended(word, single_quoted(rest)?),
            [byte, rest @ ..] => {
                word.push(*byte);
                bytes = rest;
            }
        }
    }
}

/// Appends what was quoted; what is behind it must be blank.
fn ended(mut word: Vec<u8>, quoted: (Vec<u8>, &[u8])) -> Option<(Vec<u8>, &[u8])> {
    let (text, rest) = quoted;
    word.extend(text);
    match rest.first() {
        Some(byte) if !byte.is_ascii_whitespace() => None,
        _ => Some((word, rest)),
    }
}

fn double_quoted(mut bytes: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut text = Vec::new();
    loop {
        bytes = match bytes {
            [] | [b'\\'] => return None,
            [b'"', rest @ ..] => return Some((text, rest)),
            [b'\\', b'x', high, low, rest @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                let byte = digit(high)? * 16 + digit(low)?;
                text.push(u8::try_from(byte).ok()?);
                rest
            }
            [b'\\', byte, rest @ ..] => {
                text.push(match byte {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    byte => *byte,
                });
                rest
            }
            [byte, rest @ ..] => {
                text.push(*byte);
                rest
            }
        };
    }
}

fn single_quoted(mut bytes: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut text = Vec::new();
    loop {
        bytes = match bytes {
            [] => return None,
            [b'\'', rest @ ..] => return Some((text, rest)),
            [b'\\', b'\'', rest @ ..] => {
                text.push(b'\'');
                rest
            }
            [byte, rest @ ..] => {
                text.push(*byte);
                rest
            }
        };
    }
}

/// Returns `word` so that [`split`] reads it again: in quotes, if it needs any.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"\"'\\#".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    let mut text = String::from("\"");
    for c in word.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            c if c.is_ascii_control() => text.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => text.push(c),
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoting_follows_redis() {
        let is = |line, words: &[&str]| assert_eq!(split(line).unwrap(), words, "{line}");
        is("", &[]);
        is("  save  900\t1 \r\n", &["save", "900", "1"]);
        is(r#"save """#, &["save", ""]);
        is(r#"a"b c" 'd e'"#, &["ab c", "d e"]);
        is(r#""\x41\n\q\"" 'it\'s \n'"#, &["A\nq\"", "it's \\n"]);
        is("a'b'", &["ab"]);
        for wrong in ["\"a", "'a", "\"a\"b", "'a'b", "\"a\\", "\"\\xff\""] {
            assert_eq!(split(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn quoted_words_are_read_again() {
        for word in [
            "",
            "a",
            "a b",
            "\"",
            "'",
            "\\",
            "#x",
            "\n\r\t\u{7}\u{0}",
            "ü ß",
            "a\\x41",
        ] {
            let line = format!("k {}", quoted(word));
            assert_eq!(split(&line).unwrap(), ["k", word], "{line}");
            assert!(!line.contains('\n'));
        }
    }
}
