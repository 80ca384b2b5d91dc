//! Instruction counts of the most important operations, compared with a table of bounds. Callgrind
//! counts them, so the counts do not depend on what else the machine does.
//!
//! Each figure is the difference between two runs of different length, divided by the difference of
//! their numbers of operations, so that start and end are not included.

mod server;
mod valgrind;

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::run::{Result, cargo, run, target};
use valgrind::Valgrind;

/// The cases that are counted, with their bounds.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    case: Vec<Case>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    /// Maximum number of instructions of one operation.
    most: u64,
}

/// Runs the command: counts each case whose name contains the text of `--only`, or all. `--engine`
/// and `--pando` name programs to count instead of the built ones: those of another version, for
/// example.
pub(crate) fn run_command(root: &Path, arguments: &[String]) -> Result<()> {
    let (mut only, mut engine, mut pando) = (None, None, None);
    let mut words = arguments.iter();
    while let Some(name) = words.next() {
        let slot = match &name[..] {
            "--only" => &mut only,
            "--engine" => &mut engine,
            "--pando" => &mut pando,
            other => return Err(format!("unknown option '{other}'")),
        };
        let value = words.next();
        *slot = Some(
            value
                .ok_or_else(|| format!("{name} needs a value"))?
                .clone(),
        );
    }
    let only = only.unwrap_or_default();
    let text = std::fs::read_to_string(root.join("xtask/instructions.toml"))
        .map_err(|error| format!("xtask/instructions.toml: {error}"))?;
    let table: Table =
        toml::from_str(&text).map_err(|error| format!("xtask/instructions.toml: {error}"))?;
    let cases: Vec<_> = table
        .case
        .iter()
        .filter(|case| case.name.contains(&only))
        .collect();
    if cases.is_empty() {
        return Err(format!("no case has '{only}' in its name"));
    }
    let programs = Programs::new(root, engine, pando)?;
    let valgrind = Valgrind::new(&target(root, "instructions"))?;
    let mut exceeded = Vec::new();
    eprintln!("{:<16} {:>12} {:>8}", "operation", "instructions", "most");
    for case in cases {
        let count = programs.count(&valgrind, &case.name)?;
        eprintln!("{:<16} {count:>12} {:>8}", case.name, case.most);
        if count > case.most {
            exceeded.push(format!("{} takes {count}, not {}", case.name, case.most));
        }
    }
    match exceeded.is_empty() {
        true => Ok(()),
        false => Err(exceeded.join("; ")),
    }
}

struct Programs {
    engine: PathBuf,
    pando: PathBuf,
}

impl Programs {
    /// Builds the programs that are not named.
    fn new(root: &Path, engine: Option<String>, pando: Option<String>) -> Result<Self> {
        let built = target(root, "release");
        if engine.is_none() {
            let example = ["--example", "instructions"];
            run(cargo(root, None)
                .args(["build", "--release", "-p", "pando-bench"])
                .args(example))?;
        }
        if pando.is_none() {
            run(cargo(root, None).args(["build", "--release", "-p", "pando"]))?;
        }
        Ok(Self {
            engine: engine.map_or_else(|| built.join("examples/instructions"), PathBuf::from),
            pando: pando.map_or_else(|| built.join("pando"), PathBuf::from),
        })
    }

    /// Returns the number of instructions of one operation.
    fn count(&self, valgrind: &Valgrind, name: &str) -> Result<u64> {
        let (less, more) = match name.strip_prefix("server ") {
            Some(_) => (8_000, 40_000),
            // With more puts, one of them would have to wait for the log now and then.
            None => (4_000, 20_000),
        };
        let of = |operations: u64| match name.strip_prefix("server ") {
            Some(command) => server::count(valgrind, &self.pando, command, operations),
            None => valgrind.count(&self.engine, &[name, &operations.to_string()]),
        };
        let difference = of(more)?.saturating_sub(of(less)?);
        Ok(difference / (more - less))
    }
}
