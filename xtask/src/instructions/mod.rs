//! Instructions of the operations that matter most, held against a table of bounds: counted by
//! callgrind, which counts the same whatever else the machine does.
//!
//! Each figure is what two runs of different length differ by, divided by what their operations
//! differ by, so that starting and stopping are in none.

mod server;
mod valgrind;

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::run::{Result, cargo, run, target};
use valgrind::Valgrind;

/// What is counted, and the most that it may be.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    case: Vec<Case>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    /// Instructions of one operation.
    most: u64,
}

/// The command: counts each case whose name has the text of `--only`, or all. `--engine` and
/// `--pando` name programs to count in place of those that are built: of another version, say.
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
    /// Builds what is not named.
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

    /// Instructions of one operation.
    fn count(&self, valgrind: &Valgrind, name: &str) -> Result<u64> {
        let (less, more) = match name.strip_prefix("server ") {
            Some(_) => (8_000, 40_000),
            // A put more, and it would wait for the log now and then.
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
