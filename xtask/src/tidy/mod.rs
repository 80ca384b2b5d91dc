//! Rules of the house that a compiler does not check.
//!
//! [`edges`]: which of our crates may use which. [`source`]: what a source file may say.
//! [`text`]: splits Rust into code and comments, so that rules look at the right one.

mod edges;
mod source;
mod text;

use std::fs;
use std::path::Path;

use crate::run::{Result, project_files};

/// Crates that may hold unsafe code; all others forbid it.
const UNSAFE_CRATES: [&str; 6] = [
    "crates/pando-device/",
    "crates/pando-format/",
    "crates/pando-pool/",
    "crates/pando-stats/",
    "crates/pando-sync/",
    "peers/native/",
];
const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// Checks everything; says on standard error what is wrong.
pub(crate) fn check(root: &Path) -> Result<()> {
    let mut problems = edges::check(root)?;
    let mut warnings = Vec::new();
    for file in project_files(root)? {
        // Files that are no text say nothing that could be wrong.
        let Ok(content) = fs::read_to_string(root.join(&file)) else {
            continue;
        };
        problems.extend(source::check_any(&file, &content));
        if file.ends_with(".rs") {
            let found = source::check_rust(&file, &content);
            problems.extend(found.problems);
            warnings.extend(found.warnings);
        }
        let own_crate = file.starts_with("crates/") || file.starts_with("xtask/");
        if own_crate && file.ends_with("Cargo.toml") {
            problems.extend(check_manifest(&file, &content));
        }
    }
    for licence in LICENCES {
        if !root.join(licence).is_file() {
            problems.push(format!("{licence}: missing"));
        }
    }
    for warning in &warnings {
        eprintln!("warning: {warning}");
    }
    for problem in &problems {
        eprintln!("{problem}");
    }
    match problems.len() {
        0 => Ok(()),
        count => Err(format!("{count} problems")),
    }
}

fn check_manifest(file: &str, content: &str) -> Vec<String> {
    [
        "license.workspace = true",
        "edition.workspace = true",
        "description = ",
        "[lints]\nworkspace = true",
    ]
    .into_iter()
    .filter(|line| !content.contains(line))
    .map(|line| format!("{file}: lacks '{}'", line.replace('\n', " ")))
    .collect()
}

/// True if the crate that `file` belongs to has no unsafe code.
fn forbids_unsafe(file: &str) -> bool {
    !UNSAFE_CRATES.iter().any(|name| file.starts_with(name))
}
