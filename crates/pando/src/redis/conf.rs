//! A redis.conf: one directive a line.

use std::fs;
use std::io;
use std::path::Path;

use super::words;
use crate::failure::{Code, Failure};

/// How deep files may include each other.
const INCLUDES_MAX: usize = 16;

/// A directive, from a file or from a flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Directive {
    /// In lower case.
    pub(crate) name: String,
    pub(crate) words: Vec<String>,
    /// Where it is, for people.
    pub(crate) origin: String,
}

/// Returns the directives of the file at `path`, and of those that it includes, in their order.
pub(super) fn read(path: &Path) -> Result<Vec<Directive>, Failure> {
    let mut directives = Vec::new();
    add(path, INCLUDES_MAX, &mut directives)?;
    Ok(directives)
}

/// Returns the directives that come through standard input, and those of included files.
pub(super) fn read_input() -> Result<Vec<Directive>, Failure> {
    let shown = "standard input";
    let mut directives = Vec::new();
    add_text(
        &text(io::read_to_string(io::stdin()), shown)?,
        shown,
        INCLUDES_MAX,
        &mut directives,
    )?;
    Ok(directives)
}

fn add(path: &Path, depth: usize, into: &mut Vec<Directive>) -> Result<(), Failure> {
    let shown = path.display().to_string();
    if depth == 0 {
        return Err(Failure::usage(format!("{shown}: files include each other")));
    }
    add_text(
        &text(fs::read_to_string(path), &shown)?,
        &shown,
        depth,
        into,
    )
}

fn text(read: io::Result<String>, shown: &str) -> Result<String, Failure> {
    read.map_err(|error| Failure::new(Code::Usage, format!("{shown}: {error}")))
}

fn add_text(
    text: &str,
    shown: &str,
    depth: usize,
    into: &mut Vec<Directive>,
) -> Result<(), Failure> {
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let origin = format!("{shown}, line {}", number + 1);
        let words = words::split(line);
        let mut words = words
            .ok_or_else(|| Failure::usage(format!("{origin}: unbalanced quotes")))?
            .into_iter();
        let name = words.next().unwrap_or_default().to_ascii_lowercase();
        let words: Vec<String> = words.collect();
        if name != "include" {
            into.push(Directive {
                name,
                words,
                origin,
            });
            continue;
        }
        let [included] = words.as_slice() else {
            return Err(Failure::usage(format!("{origin}: include needs one file")));
        };
        if included.contains(['*', '?', '[']) {
            let text = format!("{origin}: include '{included}': patterns are not supported");
            return Err(Failure::usage(text));
        }
        add(Path::new(included), depth - 1, into)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_come_in_their_order_with_those_of_included_files() {
        let directory = tempfile::tempdir().unwrap();
        let (outer, inner) = (directory.path().join("a"), directory.path().join("b"));
        let text = format!(
            "# x\nPORT 1\n\n  include {}\nbind \"a b\" c\n",
            inner.display()
        );
        fs::write(&outer, text).unwrap();
        fs::write(&inner, "save ''\n").unwrap();
        let found = read(&outer).unwrap();
        let shown: Vec<String> = found
            .iter()
            .map(|of| format!("{} {}", of.name, of.words.join("|")))
            .collect();
        assert_eq!(shown, ["port 1", "save ", "bind a b|c"]);
        assert!(found[2].origin.ends_with("a, line 5"));
        let error = |text: &str| {
            fs::write(&inner, text).unwrap();
            read(&outer).unwrap_err().text
        };
        assert!(error(&format!("include {}\n", outer.display())).contains("include each other"));
        assert!(error("requirepass \"x\n").contains("b, line 1: unbalanced quotes"));
        assert!(error("include x*\n").contains("patterns"));
        assert!(error("include nosuch\n").contains("nosuch"));
    }
}
