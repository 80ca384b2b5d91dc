//! Rules of the house that a compiler does not check.
//!
//! [`edges`]: which of our crates, and of their folders, may use which. [`circles`]: no files that
//! import each other; [`modules`] finds who imports whom, from the [`imports`] of each file.
//! [`source`]: what a source file may say. [`text`]: splits Rust into code and comments, so that
//! rules look at the right one.

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

/// Checks everything; says on standard error what is wrong.
pub(crate) fn check(root: &Path) -> Result<()> {
    let mut problems = edges::check(root, &edges::document(root)?)?;
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
            problems.extend(check_imports(root, &file)?);
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

/// What is wrong with how files of the crate with this `manifest` import each other.
fn check_imports(root: &Path, manifest: &str) -> Result<Vec<String>> {
    let folder = Path::new(manifest).parent().unwrap_or(root);
    // Folders are called as their crates are.
    let package = folder.file_name().unwrap_or_default().to_string_lossy();
    let graph = modules::graph(&root.join(folder))?;
    let mut problems = circles::check(&package, &graph, &circles::LISTED);
    if let Ok(document) = edges::document(&root.join(folder)) {
        problems.extend(edges::check_folders(&package, &graph, &document)?);
    }
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
