//! What a source file may contain.

use super::text::{Split, split};

const LINE_COLUMNS_MAX: usize = 100;
const CODE_LINES_WARN: usize = 600;
const CODE_LINES_MAX: usize = 1000;

/// Crates with unsafe code; all others forbid it.
const UNSAFE_CRATES: [&str; 4] = [
    "crates/pando-device/",
    "crates/pando-lua/",
    "crates/pando-sync/",
    "peers/native/",
];
/// Only `pando-sync` may name these, so that a model checker can replace them.
const SYNC_ONLY: [&str; 5] = [
    "std::sync",
    "core::sync",
    "std::thread",
    "UnsafeCell",
    "Instant::now",
];
/// Files that may name one of them nevertheless, and why.
const EXCEPTIONS: [(&str, &str, &str); 2] = [
    (
        "crates/pando-wal/src/parking.rs",
        "std::sync",
        "std::task::Wake takes this Arc, under loom too",
    ),
    (
        "crates/pando-server/tests/it/fixture.rs",
        "std::thread",
        "asks whether the test panics, which no model knows",
    ),
];
/// Paths of somebody's machine. Split into two pieces, since this file is checked, too.
const FOREIGN_PATHS: [&str; 5] = [
    concat!("../sha", "red"),
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/Us", "ers/"),
];

/// What is wrong with a file.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// They fail the check. Each begins with the file.
    pub(crate) problems: Vec<String>,
    /// They are printed, and fail nothing.
    pub(crate) warnings: Vec<String>,
}

/// Applies the rules for every text file.
pub(crate) fn check_any(file: &str, content: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for (index, line) in content.lines().enumerate() {
        for path in FOREIGN_PATHS {
            if line.contains(path) {
                problems.push(format!("{file}:{}: path '{path}'", index + 1));
            }
        }
    }
    problems
}

/// Applies the rules for Rust files.
pub(crate) fn check_rust(file: &str, content: &str) -> Findings {
    let mut findings = Findings::default();
    let split = split(content);
    if !content.starts_with("//!") {
        let what = format!("{file}:1: does not begin with '//!' saying what it owns");
        findings.problems.push(what);
    }
    let root = file.ends_with("src/lib.rs") || file.ends_with("src/main.rs");
    if root && forbids_unsafe(file) && !content.contains("#![forbid(unsafe_code)]") {
        let what = format!("{file}: lacks #![forbid(unsafe_code)]");
        findings.problems.push(what);
    }
    for (index, (code, comment)) in split.code.iter().zip(&split.comments).enumerate() {
        let long = columns(code, comment).into_iter();
        let found = long.chain(words(file, code)).chain(marks(comment));
        let place = |what: String| format!("{file}:{}: {what}", index + 1);
        findings.problems.extend(found.map(place));
    }
    let lines = code_lines(file, &split);
    if lines > CODE_LINES_MAX {
        let what = format!("{file}: {lines} lines without tests; {CODE_LINES_MAX} at most");
        findings.problems.push(what);
    } else if lines > CODE_LINES_WARN {
        findings
            .warnings
            .push(format!("{file}: {lines} lines without tests"));
    }
    findings
}

/// Returns true if the crate that `file` belongs to has no unsafe code.
fn forbids_unsafe(file: &str) -> bool {
    !UNSAFE_CRATES.iter().any(|name| file.starts_with(name))
}

/// Reports a long line; strings do not count, since they cannot always be broken.
fn columns(code: &str, comment: &str) -> Option<String> {
    let columns = code.chars().count() + comment.chars().count();
    (columns > LINE_COLUMNS_MAX).then(|| format!("{columns} columns without strings"))
}

/// Returns the forbidden words in code.
fn words(file: &str, code: &str) -> Vec<String> {
    let mut found = Vec::new();
    // Commands for developers use nothing of the product, and examples are programs of users: no
    // model has either.
    let is_outside = file.starts_with("xtask/") || file.contains("/examples/");
    if !file.starts_with("crates/pando-sync/") && !is_outside {
        let excepted = |word: &str| EXCEPTIONS.iter().any(|(f, w, _)| (*f, *w) == (file, word));
        let named = SYNC_ONLY
            .iter()
            .filter(|word| code.contains(**word) && !excepted(word));
        found.extend(named.map(|word| format!("{word} outside of pando-sync")));
    }
    if code.contains("dbg!") {
        found.push("dbg!".to_owned());
    }
    found
}

/// Returns the forbidden words in comments.
fn marks(comment: &str) -> Vec<String> {
    let mut found = Vec::new();
    for mark in ["FIXME", "XXX"] {
        if word_at(comment, mark).is_some() {
            found.push(format!("{mark} in a comment"));
        }
    }
    if let Some(at) = word_at(comment, "TODO") {
        let issue = comment[at..].strip_prefix("TODO(#");
        if !issue.is_some_and(|issue| issue.starts_with(|c: char| c.is_ascii_digit())) {
            found.push("TODO without an issue: TODO(#number)".to_owned());
        }
    }
    found
}

/// Returns where `word` occurs in `text` as a word of its own.
fn word_at(text: &str, word: &str) -> Option<usize> {
    let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    text.match_indices(word).map(|(at, _)| at).find(|at| {
        let before = text[..*at].chars().next_back();
        let behind = text[at + word.len()..].chars().next();
        !part(before) && !part(behind)
    })
}

/// Returns the number of lines before the tests; 0 for files of tests.
fn code_lines(file: &str, split: &Split) -> usize {
    let is_test =
        file.contains("/tests/") || file.ends_with("tests.rs") || file.ends_with("_model.rs");
    if is_test {
        return 0;
    }
    let starts_tests = |line: &String| line.starts_with("#[cfg(") && line.contains("test");
    let end = split.code.iter().rposition(starts_tests);
    let of_module = end.filter(|end| {
        let next = split.code.get(end + 1);
        next.is_some_and(|line| line.starts_with("mod ") && line.ends_with('{'))
    });
    of_module.unwrap_or(split.code.len())
}

#[cfg(test)]
mod tests {
    use super::{check_any, check_rust};

    fn check(file: &str, content: &str, expected: &[&str]) {
        let problems = check_rust(file, content).problems;
        assert_eq!(problems.len(), expected.len(), "{problems:?}");
        for (problem, part) in problems.iter().zip(expected) {
            assert!(problem.contains(part), "{problem}");
        }
    }

    #[test]
    fn every_rule_finds_its_breach() {
        let file = "crates/pando-wal/src/x.rs";
        check(file, "//! X.\nfn f() {}\n", &[]);
        check(file, "fn f() {}\n", &["begin with"]);
        check(file, "//! X.\nuse std::sync::Arc;\n", &["std::sync"]);
        check(file, "//! X.\nlet a = Instant::now();\n", &["Instant::now"]);
        check(file, "//! X.\ndbg!(1);\n", &["dbg!"]);
        check(file, "//! X.\n// FIXME: x\n", &["FIXME"]);
        check(file, "//! X.\n// TODO: x\n", &["TODO"]);
        check(file, "//! X.\n// TODO(#12): x\n", &[]);
        check(
            file,
            &format!("//! X.\n// {}\n", "a".repeat(98)),
            &["101 columns"],
        );
        check("crates/pando-wal/src/lib.rs", "//! X.\n", &["forbid"]);
        check("crates/pando-format/src/lib.rs", "//! X.\n", &["forbid"]);
        check(
            "crates/pando-sync/src/x.rs",
            "//! X.\nuse std::sync::Arc;\n",
            &[],
        );
        let long = format!("//! X.\n{}", "fn f() {}\n".repeat(1000));
        check(file, &long, &["1001 lines"]);
        check("crates/pando-wal/tests/it/x.rs", &long, &[]);
    }

    #[test]
    fn words_in_strings_are_nobodys_business() {
        check(
            "xtask/src/x.rs",
            "//! X.\nlet a = \"std::sync dbg! FIXME\";\n",
            &[],
        );
    }

    #[test]
    fn paths_of_a_machine_are_found() {
        let line = format!("see {}{}x", "/ho", "me/");
        assert_eq!(check_any("README.md", &line).len(), 1);
        assert!(check_any("README.md", "see docs/testing.md").is_empty());
    }
}
