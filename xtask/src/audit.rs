//! The coherence audit: runs the engine's tests called `audit`, with every atomic access reported
//! to a model of cache-line ownership, and prints their tables; fails if a promise is broken. With
//! `--ablations` it runs those of the benchmarks: what slower variants transfer, next to the
//! product.

use std::path::Path;
use std::process::Command;

use crate::run::{Result, cargo, option, run, target};

/// Runs the audit on the number of simulated cores that `--cores` gives (default 2).
pub(crate) fn run_on(root: &Path, cores: u32) -> Result<()> {
    run(tests_of(root, "pandodb")?.env("PANDO_AUDIT_CORES", cores.to_string()))
}

/// Runs the audit of the ablations on 1, 8, 24 and 64 simulated cores; before it, that of counters,
/// on 1, 2 and 32.
pub(crate) fn run_ablations(root: &Path) -> Result<()> {
    const COUNTERS: &str = "ablation::counters_audit::only_counters_of_all_threads_move_lines";
    let mut counters = audited(root, &["-p", "pando-bench", "--lib"]);
    let output = counters
        .args(["--", "--nocapture", "--exact", COUNTERS])
        .output()
        .map_err(|error| format!("cargo test: {error}"))?;
    let table = String::from_utf8_lossy(&output.stdout);
    eprintln!("{table}");
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{COUNTERS} failed\n{errors}"));
    }
    // If the test was renamed, the filter matches nothing, and that alone is no failure.
    if !table.contains("1 passed") {
        return Err(format!("there is no test {COUNTERS}"));
    }
    run(&mut tests_of(root, "pando-bench")?)
}

/// Returns the command that runs the tests called `audit` of a crate.
fn tests_of(root: &Path, package: &str) -> Result<Command> {
    if !root
        .join(format!("crates/{package}/tests/audit.rs"))
        .is_file()
    {
        return Err(format!("crates/{package} has no test target 'audit'"));
    }
    let mut tests = audited(root, &["-p", package, "--test", "audit"]);
    tests.args(["--", "--nocapture"]);
    Ok(tests)
}

/// Returns `cargo test` of what `which` names, with every atomic access reported.
fn audited(root: &Path, which: &[&str]) -> Command {
    let mut tests = cargo(root, None);
    tests
        .args(["test", "--release"])
        .args(which)
        .env("CARGO_TARGET_DIR", target(root, "audit"))
        .env("RUSTFLAGS", "--cfg pando_audit");
    tests
}

/// Runs the command.
pub(crate) fn run_command(root: &Path, arguments: &[String]) -> Result<()> {
    const ABLATIONS: &str = "--ablations";
    let cores = match option(arguments, "--cores", &[ABLATIONS])? {
        Some(_) if arguments.iter().any(|argument| argument == ABLATIONS) => {
            return Err(format!("{ABLATIONS} has its own numbers of cores"));
        }
        None if !arguments.is_empty() => return run_ablations(root),
        None => 2,
        Some(text) => text
            .parse()
            .ok()
            .filter(|cores| (1..=64).contains(cores))
            .ok_or_else(|| format!("--cores {text}: a number from 1 to 64 is needed"))?,
    };
    run_on(root, cores)
}
