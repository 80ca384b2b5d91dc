//! `mutants --in-diff BASE` and `mutants --in-file FILE`: bugs that cargo-mutants generates, one
//! for each condition, operator and returned value, in what has changed since `BASE` or in one
//! file. A bug that the tests of its own crate do not detect is an error.
//!
//! Works on the same copy of the tree as the planted bugs, with builds of its own there, so that
//! each bug is compiled on top of the previous one.

use std::fs;
use std::path::Path;

use crate::mutants::{self, TEST_SECONDS, build_soon, copied};
use crate::run::{Result, cargo, command, output, run, succeeds, target};

/// Where bugs are planted.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// What has changed since the common ancestor with a commit, committed or not.
    Diff(String),
    /// A file, relative to the root of the project.
    File(String),
}

impl Place {
    /// Parses `arguments`; returns `None` if they do not ask for generated bugs.
    fn of(arguments: &[String]) -> Result<Option<Self>> {
        match arguments {
            [name, base] if name == "--in-diff" => Ok(Some(Self::Diff(base.clone()))),
            [name, file] if name == "--in-file" => Ok(Some(Self::File(file.clone()))),
            _ if arguments.iter().any(|one| one.starts_with("--in-")) => {
                Err("--in-diff BASE or --in-file FILE is needed, and nothing else".to_owned())
            }
            _ => Ok(None),
        }
    }
}

/// Runs the command: cargo-mutants if the arguments name a place for it, else the list.
pub(crate) fn run_command(root: &Path, arguments: &[String]) -> Result<()> {
    match Place::of(arguments)? {
        Some(place) => run_over(root, &place),
        None => mutants::run_command(root, arguments),
    }
}

fn run_over(root: &Path, place: &Place) -> Result<()> {
    if !succeeds(cargo(root, None).args(["mutants", "--version"])) {
        return Err("there is no cargo-mutants: cargo install cargo-mutants --locked".to_owned());
    }
    let results = target(root, "mutants");
    let tree = copied(root)?;
    let mut plant = cargo(&tree, None);
    plant.args([
        "mutants",
        "--workspace",
        "--in-place",
        "--no-shuffle",
        "--timeout",
        TEST_SECONDS,
    ]);
    plant.arg("--output").arg(&results);
    match place {
        Place::File(file) if root.join(file).is_file() => plant.args(["--file", file]),
        Place::File(file) => return Err(format!("there is no file {file}")),
        Place::Diff(base) => {
            let diff = output(command("git", root).args(["diff", "--merge-base", base]))?;
            let file = results.join("changes.diff");
            fs::write(&file, diff).map_err(|error| format!("{}: {error}", file.display()))?;
            plant.arg("--in-diff").arg(file)
        }
    };
    // Without doc tests, which are compiled one by one.
    plant.args(["--", "--tests"]);
    run(build_soon(&mut plant, &tree, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_base_or_a_file() {
        let of = |words: &[&str]| {
            let words: Vec<String> = words.iter().copied().map(String::from).collect();
            Place::of(&words)
        };
        assert_eq!(of(&["--only", "wal"]), Ok(None));
        assert_eq!(
            of(&["--in-diff", "main"]),
            Ok(Some(Place::Diff("main".into())))
        );
        assert_eq!(
            of(&["--in-file", "a.rs"]),
            Ok(Some(Place::File("a.rs".into())))
        );
        for wrong in [
            &["--in-diff"][..],
            &["--in-file", "a.rs", "--list"],
            &["--in-out", "x"],
        ] {
            assert!(of(wrong).is_err(), "{wrong:?}");
        }
    }
}
