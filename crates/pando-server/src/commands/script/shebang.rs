//! The first line of a script, if it begins with `#!`: `#!lua flags=no-writes,allow-stale`.

use pando_resp::text_of;

use super::words::words;
use crate::lua::until_zero;

/// What the first line says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Shebang {
    /// Number of bytes of the first line, without its end; 0 if it says nothing.
    pub(super) bytes: usize,
    pub(super) no_writes: bool,
}

/// Flags that make no difference here: there are no replicas and no cluster, and a script that
/// cannot be written for lack of disk is refused when it writes.
const WITHOUT_MEANING: [&str; 4] = [
    "allow-oom",
    "allow-stale",
    "no-cluster",
    "allow-cross-slot-keys",
];

/// Reads the first line of a script.
///
/// # Errors
/// The text of the error reply.
pub(super) fn parse(source: &[u8]) -> Result<Shebang, String> {
    if !source.starts_with(b"#!") {
        return Ok(Shebang::default());
    }
    let Some(bytes) = source.iter().position(|byte| *byte == b'\n') else {
        return Err("ERR Invalid script shebang".to_owned());
    };
    // A text of C ends at a zero.
    let words = words(until_zero(&source[..bytes]));
    let Some((engine, words)) = words.as_deref().and_then(<[_]>::split_first) else {
        return Err("ERR Invalid engine in script shebang".to_owned());
    };
    if engine != b"#!lua" {
        let engine = text_of(engine);
        return Err(format!("ERR Unexpected engine in script shebang: {engine}"));
    }
    let mut shebang = Shebang {
        bytes,
        ..Shebang::default()
    };
    for word in words {
        let word = text_of(word);
        let Some(flags) = word.strip_prefix("flags=") else {
            return Err(format!("ERR Unknown lua shebang option: {word}"));
        };
        for flag in flags.split(',').filter(|_| !flags.is_empty()) {
            if flag == "no-writes" {
                shebang.no_writes = true;
            } else if !WITHOUT_MEANING.contains(&flag) {
                return Err(format!("ERR Unexpected flag in script shebang: {flag}"));
            }
        }
    }
    Ok(shebang)
}

/// Returns true if the first line says that the script does not write.
pub(crate) fn only_reads(source: &[u8]) -> bool {
    parse(source).is_ok_and(|shebang| shebang.no_writes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_says_how_a_script_runs() {
        assert_eq!(parse(b"return 1"), Ok(Shebang::default()));
        let both = parse(b"#!lua  flags=no-writes,allow-stale\nreturn 1");
        let expected = Shebang {
            bytes: 34,
            no_writes: true,
        };
        assert_eq!(both, Ok(expected));
        assert!(parse(b"#!lua flags=\n").is_ok());
        // Words are those of Redis, with quotes.
        let quoted = parse(b"#!lua 'flags=no-writes' \"flags=allow\\x2doom\"\nreturn 1");
        assert!(quoted.is_ok_and(|shebang| shebang.no_writes));
        assert!(parse(b"#!lua\n").is_ok_and(|shebang| !shebang.no_writes));
        for (source, problem) in [
            ("#!lua", "ERR Invalid script shebang"),
            ("#!lua 'x\n", "ERR Invalid engine in script shebang"),
            ("#!lua 'a'b\n", "ERR Invalid engine in script shebang"),
            ("#!js\n", "ERR Unexpected engine in script shebang: #!js"),
            ("#!lua name=x\n", "ERR Unknown lua shebang option: name=x"),
            (
                "#!lua flags=x\n",
                "ERR Unexpected flag in script shebang: x",
            ),
            // Two commas have a flag without a name between them.
            (
                "#!lua flags=no-writes,,allow-oom\n",
                "ERR Unexpected flag in script shebang: ",
            ),
            (
                "#!lua flags=no-writes,\n",
                "ERR Unexpected flag in script shebang: ",
            ),
        ] {
            assert_eq!(parse(source.as_bytes()), Err(problem.to_owned()));
        }
    }
}
