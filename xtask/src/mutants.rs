//! Planted bugs: each entry of `xtask/mutants.toml` changes one place, and the named test must
//! fail.
//!
//! Works on a copy of the tree, never on the tree itself. The tests run first without any bug,
//! since a test that fails anyway proves nothing. A test that hangs counts as failing. Bugs for the
//! same test come one after another, so that little is compiled twice, and the list can be divided
//! into parts, for several machines or several sessions. Entries can be chosen by their positions
//! in the list, as `--list` and the verdicts print them: the first is 0.

use std::collections::BTreeSet;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::run::{Result, cargo, command, option, project_files, run, succeeds, target};

const LIST: &str = "xtask/mutants.toml";
/// Seconds after which a test counts as hanging.
pub(crate) const TEST_SECONDS: &str = "300";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    mutant: Vec<Mutant>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mutant {
    /// The file, relative to the root of the project.
    file: String,
    /// Text that occurs exactly once in the file.
    old: String,
    /// The text that replaces it.
    new: String,
    /// Arguments of the `cargo test` that must fail.
    test: String,
    /// RUSTFLAGS to build with: which model checker or instrument.
    #[serde(default)]
    flags: String,
}

enum Verdict {
    Caught,
    Survived,
    Broken(&'static str),
}

/// `--part K/N`: the Kth of N parts of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    number: usize,
    parts: usize,
}

impl Part {
    /// Returns the other arguments, and the part that `arguments` ask for.
    fn taken_from(arguments: &[String]) -> Result<(Vec<String>, Self)> {
        let (rest, text) = taken(arguments, "--part");
        let Some(text) = text else {
            let (number, parts) = (1, 1);
            return Ok((rest, Self { number, parts }));
        };
        let numbers = text
            .split_once('/')
            .map(|(number, parts)| (number.parse(), parts.parse()));
        match numbers {
            Some((Ok(number), Ok(parts))) if (1..=parts).contains(&number) => {
                Ok((rest, Self { number, parts }))
            }
            _ => Err(format!("--part {text}: K/N is needed, with K from 1 to N")),
        }
    }

    /// Returns its share of `all`; shares differ by at most one entry.
    fn of<T>(self, all: &[T]) -> &[T] {
        let bound = |number| all.len() * number / self.parts;
        &all[bound(self.number - 1)..bound(self.number)]
    }
}

/// `--at 3,17-20`: these positions of the list.
#[derive(Debug, PartialEq, Eq)]
struct Positions(Vec<RangeInclusive<usize>>);

impl Positions {
    /// Returns the other arguments, and the positions that `arguments` ask for, if they do.
    fn taken_from(arguments: &[String]) -> Result<(Vec<String>, Option<Self>)> {
        let (rest, text) = taken(arguments, "--at");
        let Some(text) = text else {
            return Ok((rest, None));
        };
        let ranges = text.split(',').map(|word| {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            let range = first.parse().ok()?..=last.parse().ok()?;
            (!range.is_empty()).then_some(range)
        });
        match ranges.collect() {
            Some(ranges) => Ok((rest, Some(Self(ranges)))),
            None => Err(format!("--at {text}: positions like 3,17-20 are needed")),
        }
    }

    fn contain(&self, position: usize) -> bool {
        self.0.iter().any(|range| range.contains(&position))
    }
}

/// Returns the arguments without `name` and the word behind it, and that word: empty if there is
/// none, `None` without `name`.
fn taken(arguments: &[String], name: &str) -> (Vec<String>, Option<String>) {
    let mut rest = arguments.to_vec();
    let Some(at) = rest.iter().position(|argument| argument == name) else {
        return (rest, None);
    };
    let word = rest.drain(at..rest.len().min(at + 2)).nth(1);
    (rest, Some(word.unwrap_or_default()))
}

fn read_list(root: &Path) -> Result<List> {
    let text = fs::read_to_string(root.join(LIST)).map_err(|error| format!("{LIST}: {error}"))?;
    toml::from_str(&text).map_err(|error| format!("{LIST}: {error}"))
}

/// Runs the command.
pub(crate) fn run_command(root: &Path, arguments: &[String]) -> Result<()> {
    let (arguments, part) = Part::taken_from(arguments)?;
    let (arguments, positions) = Positions::taken_from(&arguments)?;
    let only = option(&arguments, "--only", &["--list"])?.unwrap_or_default();
    let list = read_list(root)?;
    let chosen = |(position, mutant): &(usize, &Mutant)| {
        (positions.as_ref()).is_none_or(|positions| positions.contain(*position))
            && (mutant.file.contains(&only) || mutant.test.contains(&only))
    };
    let mut mutants: Vec<(usize, &Mutant)> =
        (list.mutant.iter().enumerate()).filter(chosen).collect();
    mutants.sort_by_key(|(_, mutant)| (&mutant.flags, &mutant.test, &mutant.file));
    let mutants = part.of(&mutants);
    if mutants.is_empty() {
        return Err(format!(
            "no planted bug that was asked for has `{only}` in its file or its test"
        ));
    }
    if arguments.iter().any(|argument| argument == "--list") {
        for (position, Mutant { file, old, new, .. }) in mutants {
            eprintln!("{position} {file}: {old:?} -> {new:?}");
        }
        return Ok(());
    }
    let tree = copied(root)?;
    let tests: BTreeSet<(&str, &str)> = mutants
        .iter()
        .map(|(_, mutant)| (mutant.flags.as_str(), mutant.test.as_str()))
        .collect();
    for (flags, test) in tests {
        // With its output: a failure here is not caused by an entry of the list.
        run(&mut build(&tree, flags, test))
            .and_then(|()| run(&mut limited_test(&tree, flags, test)))
            .map_err(|error| format!("without any change: {error}"))?;
    }
    let mut wrong = 0;
    for (position, mutant) in mutants {
        let (word, fine) = match plant(&tree, mutant)? {
            Verdict::Caught => ("caught", true),
            Verdict::Survived => ("SURVIVED", false),
            Verdict::Broken(why) => (why, false),
        };
        wrong += usize::from(!fine);
        eprintln!("{word}: {position} {}: {:?}", mutant.file, mutant.new);
    }
    match wrong {
        0 => Ok(()),
        _ => Err(format!(
            "{wrong} of {} planted bugs were not caught",
            mutants.len()
        )),
    }
}

/// Copies the tree, and returns the copy, in which bugs are planted.
pub(crate) fn copied(root: &Path) -> Result<PathBuf> {
    let tree = target(root, "mutants/tree");
    copy(root, &tree)?;
    Ok(tree)
}

/// Makes `tree` contain exactly the files of the project. Files that are equal keep their time, so
/// that only changed ones are compiled.
fn copy(root: &Path, tree: &Path) -> Result<()> {
    let files = project_files(root)?;
    let kept: BTreeSet<PathBuf> = files.iter().map(|file| tree.join(file)).collect();
    if tree.is_dir() {
        remove_others(tree, &kept).map_err(|error| format!("{}: {error}", tree.display()))?;
    }
    for file in files {
        let (from, to) = (root.join(&file), tree.join(&file));
        let failed = |error: std::io::Error| format!("{}: {error}", to.display());
        let content = fs::read(&from).map_err(|error| format!("{}: {error}", from.display()))?;
        if fs::read(&to).is_ok_and(|known| known == content) {
            continue;
        }
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        fs::write(&to, content).map_err(failed)?;
    }
    Ok(())
}

/// Removes the files under `folder` that are not in `kept`.
fn remove_others(folder: &Path, kept: &BTreeSet<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_others(&path, kept)?;
        } else if !kept.contains(&path) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

fn plant(tree: &Path, mutant: &Mutant) -> Result<Verdict> {
    let path = tree.join(&mutant.file);
    let failed = |error: std::io::Error| format!("{}: {error}", mutant.file);
    let sound = fs::read_to_string(&path).map_err(failed)?;
    if !sound.contains(&mutant.old) {
        return Ok(Verdict::Broken("NOT FOUND"));
    }
    fs::write(&path, sound.replacen(&mutant.old, &mutant.new, 1)).map_err(failed)?;
    let verdict = if !succeeds(&mut build(tree, &mutant.flags, &mutant.test)) {
        Verdict::Broken("DOES NOT COMPILE")
    } else if succeeds(&mut limited_test(tree, &mutant.flags, &mutant.test)) {
        Verdict::Survived
    } else {
        Verdict::Caught
    };
    fs::write(&path, sound).map_err(failed)?;
    Ok(verdict)
}

/// Returns the folder for builds with `flags`, so that builds with and without a model checker do
/// not overwrite each other.
fn results(tree: &Path, flags: &str) -> PathBuf {
    let word: String = flags.chars().filter(char::is_ascii_alphanumeric).collect();
    tree.with_file_name(format!("target{word}"))
}

/// Makes `command` build with `flags`, and with settings that compile fast, since these builds
/// decide only between right and wrong and are not measured.
pub(crate) fn build_soon<'c>(
    command: &'c mut Command,
    tree: &Path,
    flags: &str,
) -> &'c mut Command {
    command
        .env("RUSTFLAGS", flags)
        .env("CARGO_TARGET_DIR", results(tree, flags))
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "0")
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .env("CARGO_PROFILE_RELEASE_INCREMENTAL", "true")
}

fn build(tree: &Path, flags: &str, test: &str) -> Command {
    let arguments = test.split_whitespace().take_while(|word| *word != "--");
    let mut build = cargo(tree, None);
    if test.split_whitespace().any(|word| word == "--doc") {
        // Doc tests are built when they run; only their dependencies are built here.
        build.args(["test", "--no-run", "--lib"]);
        build.args(arguments.take_while(|word| *word != "--doc"));
    } else {
        build.args(["test", "--no-run"]).args(arguments);
    }
    build_soon(&mut build, tree, flags);
    build
}

fn limited_test(tree: &Path, flags: &str, test: &str) -> Command {
    // `timeout` ends the child processes of the test, too.
    let mut limited = command("timeout", tree);
    limited
        .args(["--kill-after=5", TEST_SECONDS, "cargo", "test"])
        .args(test.split_whitespace());
    build_soon(&mut limited, tree, flags);
    limited
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::run::project_root;

    /// All parts together run each planted bug once.
    #[test]
    fn parts_make_up_the_whole() {
        let all: Vec<usize> = (0..330).collect();
        let mut seen = Vec::new();
        for number in 1..=7 {
            let words = ["--only", "x", "--part", &format!("{number}/7")].map(String::from);
            let (rest, part) = Part::taken_from(&words).unwrap();
            assert_eq!(rest, ["--only", "x"]);
            assert!((47..=48).contains(&part.of(&all).len()));
            seen.extend_from_slice(part.of(&all));
        }
        assert_eq!(seen, all);
        for wrong in [
            &["--part", "0/7"][..],
            &["--part", "8/7"],
            &["--part", "1"],
            &["--part"],
        ] {
            let words: Vec<String> = wrong.iter().copied().map(String::from).collect();
            assert!(Part::taken_from(&words).is_err(), "{wrong:?}");
        }
        let (_, whole) = Part::taken_from(&[]).unwrap();
        assert_eq!(whole.of(&all), all);
    }

    /// Entries of the list are chosen by their positions.
    #[test]
    fn positions_choose_entries() {
        let words =
            |words: &[&str]| -> Vec<String> { words.iter().copied().map(String::from).collect() };
        let (rest, positions) =
            Positions::taken_from(&words(&["--at", "3,17-20,0", "--list"])).unwrap();
        assert_eq!(rest, ["--list"]);
        let positions = positions.unwrap();
        let chosen: Vec<usize> = (0..100).filter(|at| positions.contain(*at)).collect();
        assert_eq!(chosen, [0, 3, 17, 18, 19, 20]);
        for wrong in ["", "x", "3,", "20-17", "1-2-3", "-1"] {
            assert!(
                Positions::taken_from(&words(&["--at", wrong])).is_err(),
                "{wrong}"
            );
        }
        assert!(Positions::taken_from(&words(&["--at"])).is_err());
        let (_, none) = Positions::taken_from(&words(&["--list"])).unwrap();
        assert_eq!(none, None);
    }

    /// Tells anyone who changes a line with a planted bug that its entry needs an update.
    #[test]
    fn each_bug_has_its_place() {
        let root = project_root().unwrap();
        for mutant in read_list(&root).unwrap().mutant {
            let text = fs::read_to_string(root.join(&mutant.file)).unwrap();
            let places = text.matches(&mutant.old).count();
            assert_eq!(places, 1, "{}: {}", mutant.file, mutant.old);
            assert_ne!(mutant.old, mutant.new, "{}", mutant.file);
        }
    }

    /// Returns the names that the functions of a file of a crate may have as tests: with those of
    /// their modules.
    fn names_of(file: &str, text: &str) -> Vec<String> {
        let modules = file.trim_end_matches(".rs").split('/').skip(3);
        let modules: Vec<&str> = modules
            .filter(|name| !["it", "main", "mod", "lib"].contains(name))
            .collect();
        let names = text.split("fn ").skip(1);
        let names = names.filter_map(|text| text.split(['(', '<']).next());
        names
            .flat_map(|name| ["", "tests", "models"].map(|inner| (inner, name)))
            .map(|(inner, name)| [&modules[..], &[inner, name]].concat())
            .map(|path| path.into_iter().filter(|name| !name.is_empty()).collect())
            .map(|path: Vec<&str>| path.join("::"))
            .collect()
    }

    /// A test that is not there would not fail.
    #[test]
    fn each_bug_has_a_test() {
        let root = project_root().unwrap();
        let files = project_files(&root).unwrap();
        let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for mutant in read_list(&root).unwrap().mutant {
            let words: Vec<&str> = mutant.test.split_whitespace().collect();
            let at = |name| words.iter().position(|word| *word == name);
            let of = words[at("-p").unwrap() + 1];
            let folder = format!("crates/{of}/");
            let names = names.entry(folder).or_insert_with_key(|folder| {
                let files = files.iter().filter(|file| file.starts_with(folder));
                let files = files.filter(|file| file.ends_with(".rs"));
                let text = |file: &str| fs::read_to_string(root.join(file)).unwrap();
                files.flat_map(|file| names_of(file, &text(file))).collect()
            });
            let options = ["-p", "--test", "--features"];
            let follows = |at: usize| at > 0 && options.contains(&words[at - 1]);
            let filter = (words.iter().enumerate())
                .take_while(|(_, word)| **word != "--")
                .find(|(at, word)| !(word.starts_with('-') || follows(*at)))
                .map(|(_, word)| *word);
            let is_there =
                filter.is_none_or(|filter| names.iter().any(|name| name.contains(filter)));
            assert!(is_there, "{}: no test has this name", mutant.test);
        }
    }
}
