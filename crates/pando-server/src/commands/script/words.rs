//! The words of a first line: `#!lua name="mylib"`.

/// A byte that separates words.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | 9..=13)
}

/// Takes what is between quotes; `at` is behind the first one. Returns the place behind the second;
/// `None` if there is none.
fn quoted(line: &[u8], mut at: usize, quote: u8, word: &mut Vec<u8>) -> Option<usize> {
    let digit = |at: usize| char::from(*line.get(at)?).to_digit(16);
    loop {
        let byte = *line.get(at)?;
        at += 1;
        if byte == quote {
            return Some(at);
        }
        if byte != b'\\' || at == line.len() {
            word.push(byte);
            continue;
        }
        let escaped = line[at];
        if quote == b'\'' {
            if escaped == quote {
                at += 1;
            }
            word.push(if escaped == quote { quote } else { byte });
            continue;
        }
        at += 1;
        if let (b'x', Some(high), Some(low)) = (escaped, digit(at), digit(at + 1)) {
            word.push(u8::try_from(high << 4 | low).unwrap_or(0));
            at += 2;
            continue;
        }
        word.push(match escaped {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'b' => 8,
            b'a' => 7,
            other => other,
        });
    }
}

/// Returns the words of a line, as Redis splits one; `None` if its quotes do not match.
pub(in crate::commands) fn words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut words, mut at) = (Vec::new(), 0);
    loop {
        while line.get(at).is_some_and(|byte| is_space(*byte)) {
            at += 1;
        }
        if at == line.len() {
            return Some(words);
        }
        let mut word = Vec::new();
        while let Some(byte) = line.get(at).copied().filter(|byte| !is_space(*byte)) {
            at += 1;
            if byte == b'"' || byte == b'\'' {
                at = quoted(line, at, byte, &mut word)?;
                // Nothing may follow at once.
                if line.get(at).is_some_and(|byte| !is_space(*byte)) {
                    return None;
                }
                break;
            }
            word.push(byte);
        }
        words.push(word);
    }
}
