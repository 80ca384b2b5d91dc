//! The coherence audit: the tests called `audit` of the engine, with every atomic access reported
//! to a model of cache-line ownership. Prints its table; fails when a promise is broken. With
//! `--ablations` those of the benchmarks: what slower variants move beside the product.

use std::path::Path;
use std::process::Command;

use crate::run::{Result, cargo, option, run, target};

/// Runs the audit on as many simulated cores as `--cores` says (default 2).
pub(crate) fn run_on(root: &Path, cores: u32) -> Result<()> {
    run(tests_of(root, "pandodb")?.env("PANDO_AUDIT_CORES", cores.to_string()))
}

/// Runs the audit of the ablations, on 1, 8, 24 and 64 simulated cores.
pub(crate) fn run_ablations(root: &Path) -> Result<()> {
    run(&mut tests_of(root, "pando-bench")?)
}

/// The tests called `audit` of a crate.
fn tests_of(root: &Path, package: &str) -> Result<Command> {
    if !root
        .join(format!("crates/{package}/tests/audit.rs"))
        .is_file()
    {
        return Err(format!("crates/{package} has no test target 'audit'"));
    }
    let mut tests = cargo(root, None);
    tests
        .args(["test", "--release", "-p", package, "--test", "audit"])
        .args(["--", "--nocapture"])
        .env("CARGO_TARGET_DIR", target(root, "audit"))
        .env("RUSTFLAGS", "--cfg pando_audit");
    Ok(tests)
}

/// The command.
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
