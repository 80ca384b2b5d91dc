//! House rules that a compiler does not check.
//!
//! [`edges`]: which of our crates, and of their folders, may use which. [`circles`]: no cycles of
//! files that import each other; [`modules`] finds which file imports which, from the [`imports`]
//! of each file. [`source`]: what a source file may contain. [`text`]: splits Rust into code and
//! comments, so that each rule applies to the right one.

mod circles;
mod edges;
mod imports;
mod modules;
mod source;
mod text;

use std::fs;
use std::path::Path;

use crate::run::{Result, project_files};

const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// Checks everything; reports problems on standard error.
pub(crate) fn check(root: &Path) -> Result<()> {
    let document = edges::document(root)?;
    let mut problems = edges::check(root, &document)?;
    let mut warnings = Vec::new();
    for file in project_files(root)? {
        // Files that are not text cannot violate a rule.
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
            problems.extend(check_imports(root, &file, &document)?);
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

/// Returns what is wrong with the imports between files of the crate with this `manifest`.
fn check_imports(root: &Path, manifest: &str, document: &str) -> Result<Vec<String>> {
    let folder = Path::new(manifest).parent().unwrap_or(root);
    // Folders have the names of their crates.
    let package = folder.file_name().unwrap_or_default().to_string_lossy();
    let graph = modules::graph(&root.join(folder))?;
    let mut problems = circles::check(&package, &graph, &circles::LISTED);
    problems.extend(edges::check_folders(&package, &graph, document)?);
    Ok(problems)
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
