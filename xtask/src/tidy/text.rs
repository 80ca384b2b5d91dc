//! Splits Rust source into code and comments.

/// A source file, line by line.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Split {
    /// Code, with strings and characters replaced by one or two blanks.
    pub(crate) code: Vec<String>,
    /// Text of comments.
    pub(crate) comments: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Code,
    LineComment,
    /// Has its nesting depth.
    BlockComment(u32),
    String,
    /// Has the number of hashes that end it.
    RawString(usize),
}

/// Splits `source`. Accepts any text, but only Rust gives a sensible result.
pub(crate) fn split(source: &str) -> Split {
    let mut split = Split::default();
    let mut state = State::Code;
    for line in source.lines() {
        if state == State::LineComment {
            state = State::Code;
        }
        let (mut code, mut comment) = (String::new(), String::new());
        let mut rest = line;
        while let Some(first) = rest.chars().next() {
            let (next, taken) = step(state, rest, code.chars().next_back());
            let ends = next == State::Code;
            match state {
                State::LineComment => comment.push_str(&rest[..taken]),
                State::BlockComment(_) if !ends => comment.push_str(&rest[..taken]),
                State::Code if ends && taken == first.len_utf8() => {
                    code.push(first);
                }
                State::String | State::RawString(_) if !ends => {}
                // The delimiter of a comment counts as comment text.
                State::Code if matches!(next, State::LineComment | State::BlockComment(_)) => {
                    comment.push_str(&rest[..taken]);
                }
                // A border between code and something else, or a literal.
                _ => code.push(' '),
            }
            state = next;
            rest = &rest[taken..];
        }
        split.code.push(code);
        split.comments.push(comment);
    }
    split
}

/// Returns the state after the piece at the start of `rest`, and the length of the piece in bytes.
fn step(state: State, rest: &str, before: Option<char>) -> (State, usize) {
    let one = rest.chars().next().map_or(0, char::len_utf8);
    match state {
        State::Code => code_step(rest, before, one),
        State::LineComment => (state, one),
        State::BlockComment(depth) if rest.starts_with("*/") => match depth {
            1 => (State::Code, 2),
            _ => (State::BlockComment(depth - 1), 2),
        },
        State::BlockComment(depth) if rest.starts_with("/*") => (State::BlockComment(depth + 1), 2),
        State::BlockComment(_) => (state, one),
        State::String if rest.starts_with('\\') => {
            let escaped = rest[1..].chars().next().map_or(0, char::len_utf8);
            (state, 1 + escaped)
        }
        State::String if rest.starts_with('"') => (State::Code, 1),
        State::String => (state, one),
        State::RawString(hashes) => {
            let end = format!("\"{}", "#".repeat(hashes));
            match rest.starts_with(&end) {
                true => (State::Code, end.len()),
                false => (state, one),
            }
        }
    }
}

fn code_step(rest: &str, before: Option<char>, one: usize) -> (State, usize) {
    if rest.starts_with("//") {
        return (State::LineComment, 2);
    }
    if rest.starts_with("/*") {
        return (State::BlockComment(1), 2);
    }
    if rest.starts_with('"') {
        return (State::String, 1);
    }
    let in_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    if let Some(raw) = rest.strip_prefix('r')
        && (!in_word || before == Some('b'))
    {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            return (State::RawString(hashes), hashes + 2);
        }
    }
    if let Some(quoted) = rest.strip_prefix('\'')
        && let Some(taken) = character(quoted)
    {
        return (State::Code, taken + 1);
    }
    (State::Code, one)
}

/// Returns the bytes of a character literal after its first quote; `None` for a lifetime.
fn character(quoted: &str) -> Option<usize> {
    if let Some(escaped) = quoted.strip_prefix('\\') {
        let skip = escaped.chars().next()?.len_utf8();
        return Some(1 + skip + escaped[skip..].find('\'')? + 1);
    }
    let one = quoted.chars().next()?.len_utf8();
    quoted[one..].starts_with('\'').then_some(one + 1)
}

#[cfg(test)]
mod tests {
    use super::split;

    fn check(source: &str, code: &str, comment: &str) {
        let split = split(source);
        let joined = split.code.join("\n");
        assert_eq!(
            joined.split_whitespace().collect::<Vec<_>>().join(" "),
            code
        );
        assert_eq!(split.comments.join("\n").trim_matches('\n'), comment);
    }

    #[test]
    fn comments_strings_and_code_are_told_apart() {
        check("let a = 1; // why", "let a = 1;", "// why");
        check("f(\"// no\", 'x'); /* c */ g()", "f( , ); g()", "/* c ");
        check("let s = \"a\\\"b\"; dbg", "let s = ; dbg", "");
        check("r#\"one \" two\"# end", "end", "");
        check("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}", "");
        check(
            "let c = '\\''; let d = '\"'; x",
            "let c = ; let d = ; x",
            "",
        );
        check("/* a /* b */ c */ d", "d", "/* a /* b */ c ");
        check("\"two\nlines\" end", "end", "");
    }
}
