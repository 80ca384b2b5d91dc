//! The checks of a change while it is written: format, house rules, clippy, and the tests of the
//! crates that it touches. `.ci/run` does all other checks.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::run::{Result, cargo, command, output, run, succeeds};
use crate::tidy;

/// The trunk that a branch started from: the first of these that exists.
const TRUNKS: [&str; 2] = ["main", "origin/main"];

/// Tests of `pandodb` that take more than half of the time of all, by their file and name: those of
/// `tests/it` and of a program of its own beside it, and those of `src`. `.ci/run` runs them.
const LEFT_OUT: [&str; 12] = [
    "counted::gets_allocate_nothing",
    "crowds::a_thousand_threads_commit_batches_with_16_mib",
    "crowds::many_threads_commit_batches_with_8_mib",
    "compact::a_store_is_compacted_while_others_read_and_write",
    "compact::a_store_that_lost_most_of_its_keys_becomes_small",
    "dropped::a_table_dropped_under_readers_is_read_as_it_was_or_is_gone",
    "dropped::a_table_that_others_drop_is_made_again",
    "exits::the_mark_of_creation_is_durable_before_anything_else_is_made",
    "golden::a_store_of_another_version_is_refused_by_name_and_left_alone",
    "load::a_crash_at_any_sync_leaves_all_of_a_load_or_nothing",
    "locks::a_transaction_that_always_loses_gets_its_turn",
    "wait::register::tests::nobody_waits_for_a_poisoned_engine",
];

/// Runs the command.
pub(crate) fn check(root: &Path) -> Result<()> {
    run(cargo(root, None).args(["fmt", "--all", "--check"]))?;
    tidy::check(root)?;
    run(cargo(root, None)
        .args(["clippy", "--quiet", "--workspace", "--all-targets"])
        .args(["--", "-D", "warnings"]))?;
    let packages = packages(&changed_files(root)?);
    let there = |package: &&String| folder(root, package).join("Cargo.toml").is_file();
    let packages: Vec<&String> = packages.iter().filter(there).collect();
    if packages.is_empty() {
        eprintln!("xtask: no crate has changed");
        return Ok(());
    }
    if packages.iter().any(|package| *package == "pandodb") {
        eprintln!("xtask: left to .ci/run: {}", LEFT_OUT.join(", "));
    }
    run(cargo(root, None)
        .args(["test", "--quiet"])
        .args(packages.into_iter().flat_map(|package| ["-p", package]))
        .arg("--")
        .args(LEFT_OUT.iter().flat_map(|test| ["--skip", test])))
}

/// Returns the files that differ from the point where the branch left the trunk, committed or not.
/// On the trunk itself these are the uncommitted ones.
fn changed_files(root: &Path) -> Result<Vec<String>> {
    let exists = |trunk: &&&str| {
        succeeds(command("git", root).args(["rev-parse", "--verify", "--quiet", **trunk]))
    };
    let base = match TRUNKS.iter().find(exists) {
        Some(trunk) => output(command("git", root).args(["merge-base", "HEAD", trunk]))?,
        None => "HEAD".to_owned(),
    };
    let changed = output(command("git", root).args(["diff", "--name-only", base.trim()]))?;
    let how = ["ls-files", "--others", "--exclude-standard"];
    let new = output(command("git", root).args(how))?;
    Ok(changed
        .lines()
        .chain(new.lines())
        .map(str::to_owned)
        .collect())
}

/// Returns the packages of the workspace that `files` belong to.
fn packages(files: &[String]) -> BTreeSet<String> {
    let package = |file: &String| {
        let mut parts = file.split('/');
        match (parts.next(), parts.next(), parts.next()) {
            (Some("crates"), Some(package), Some(_)) => Some(package.to_owned()),
            (Some("xtask"), Some(_), _) => Some("xtask".to_owned()),
            _ => None,
        }
    };
    files.iter().filter_map(package).collect()
}

/// Returns the folder of a package.
fn folder(root: &Path, package: &str) -> PathBuf {
    match package {
        "xtask" => root.join(package),
        _ => root.join("crates").join(package),
    }
}

#[cfg(test)]
mod tests {
    use super::{LEFT_OUT, packages};
    use crate::run::project_root;

    #[test]
    fn a_file_names_its_package_and_those_beside_the_workspace_name_none() {
        let names = |files: &[&str]| {
            let files: Vec<String> = files.iter().map(|file| (*file).to_owned()).collect();
            packages(&files).into_iter().collect::<Vec<String>>()
        };
        assert_eq!(
            names(&[
                "xtask/src/run.rs",
                "crates/pando-wal/src/tail.rs",
                "crates/pando-wal/Cargo.toml",
                "crates/pandodb/tests/golden/1/data",
            ]),
            ["pando-wal", "pandodb", "xtask"]
        );
        let beside = ["README.md", "docs/format.md", "peers/src/run.rs", "fuzz/x"];
        assert!(names(&beside).is_empty());
    }

    #[test]
    fn tests_that_are_left_out_exist() {
        let package = project_root().unwrap().join("crates/pandodb");
        for test in LEFT_OUT {
            let (file, name) = test.rsplit_once("::").unwrap();
            let file = match file.strip_suffix("::tests") {
                Some(module) => format!("src/{}.rs", module.replace("::", "/")),
                None if file == "counted" => format!("tests/allocations/{file}.rs"),
                None => format!("tests/it/{file}.rs"),
            };
            let text = std::fs::read_to_string(package.join(file)).unwrap();
            assert!(text.contains(&format!("fn {name}()")), "{test}");
        }
    }
}
