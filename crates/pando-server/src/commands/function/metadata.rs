//! The first line of a library: `#!lua name=mylib`.

use pando_resp::text_of;

use crate::commands::script::words::words;
use crate::data::functions::NAME_BYTES_MAX;

/// Returns the name of the library that `code` is.
///
/// # Errors
/// The text of the error reply.
pub(super) fn library_name(code: &[u8]) -> Result<Vec<u8>, String> {
    if !code.starts_with(b"#!") {
        return Err("ERR Missing library metadata".to_owned());
    }
    // A text of C ends at a zero.
    let end = code.iter().position(|byte| matches!(byte, b'\n' | 0));
    let line = end
        .filter(|end| code[*end] == b'\n')
        .map(|end| &code[..end]);
    let Some(words) = line.and_then(words).filter(|words| !words.is_empty()) else {
        return Err("ERR Invalid library metadata".to_owned());
    };
    let mut name: Option<&[u8]> = None;
    for word in &words[1..] {
        match word.split_at_checked(5) {
            Some((key, _)) if key.eq_ignore_ascii_case(b"name=") && name.is_some() => {
                let text = "ERR Invalid metadata value, name argument was given multiple times";
                return Err(text.to_owned());
            }
            Some((key, value)) if key.eq_ignore_ascii_case(b"name=") => name = Some(value),
            _ => {
                let shown = text_of(word);
                return Err(format!("ERR Invalid metadata value given: {shown}"));
            }
        }
    }
    let name = name.ok_or("ERR Library name was not given")?;
    let is_fine = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    if name.is_empty() || !name.iter().all(is_fine) {
        return Err(
            "ERR Library names can only contain letters, numbers, or underscores(_) and must be \
             at least one character long"
                .to_owned(),
        );
    }
    if name.len() > NAME_BYTES_MAX {
        let text = format!("ERR the name of a library has {NAME_BYTES_MAX} characters at most");
        return Err(text);
    }
    let engine = words[0].get(2..).unwrap_or_default();
    if !engine.eq_ignore_ascii_case(b"lua") {
        let shown = text_of(engine);
        return Err(format!("ERR Engine '{shown}' not found"));
    }
    Ok(name.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_names_the_library() {
        for (code, name) in [
            ("#!lua name=a\nx", "a"),
            ("#!LUA  NAME=a_9 \n", "a_9"),
            ("#!lua name=\"a\"\n", "a"),
            ("#!lua name='a'\n", "a"),
            ("#!lua name=\"\\x61\\b\"\n", "a\u{8}"),
        ] {
            let expected = match name.contains('\u{8}') {
                true => Err("ERR Library names can only contain letters, numbers, or \
                             underscores(_) and must be at least one character long"
                    .to_owned()),
                false => Ok(name.as_bytes().to_vec()),
            };
            assert_eq!(library_name(code.as_bytes()), expected, "{code}");
        }
        let long = format!("#!lua name={}\n", "x".repeat(NAME_BYTES_MAX + 1));
        let refused = library_name(long.as_bytes()).unwrap_err();
        assert!(refused.contains("256 characters at most"), "{refused}");
        for code in [
            "#!lua name='a\n",
            "#!lua name='a'b\n",
            "#!lua name=a\0\n",
            "#!\\x",
        ] {
            let invalid = Err("ERR Invalid library metadata".to_owned());
            assert_eq!(library_name(code.as_bytes()), invalid, "{code:?}");
        }
    }

    #[test]
    fn any_line_ends_in_a_result() {
        let letters = b"#!lua name=\"'\\x6\n\0 ";
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let mut code = b"#!".to_vec();
            code.extend((0..random.usize(..20)).map(|_| letters[random.usize(..letters.len())]));
            code.push(b'\n');
            let _ = library_name(&code);
        }
    }
}
