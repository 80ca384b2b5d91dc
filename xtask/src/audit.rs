//! The coherence audit: the tests called `audit` of the engine, with every atomic access reported
//! to a model of cache-line ownership. Prints its table; fails when a promise is broken.

use std::path::Path;

use crate::run::{Result, cargo, option, run, target};

/// Runs the audit on as many simulated cores as `--cores` says (default 2).
pub(crate) fn run_on(root: &Path, cores: u32) -> Result<()> {
    let tests = root.join("crates/pandodb/tests");
    if !tests.join("audit.rs").is_file() && !tests.join("audit/main.rs").is_file() {
        return Err("crates/pandodb has no test target 'audit'".to_owned());
    }
    run(cargo(root, None)
        .args(["test", "--release", "-p", "pandodb", "--test", "audit"])
        .args(["--", "--nocapture"])
        .env("CARGO_TARGET_DIR", target(root, "audit"))
        .env("RUSTFLAGS", "--cfg pando_audit")
        .env("PANDO_AUDIT_CORES", cores.to_string()))
}

/// The command.
pub(crate) fn run_command(root: &Path, arguments: &[String]) -> Result<()> {
    let cores = match option(arguments, "--cores", &[])? {
        None => 2,
        Some(text) => text
            .parse()
            .ok()
            .filter(|cores| (1..=64).contains(cores))
            .ok_or_else(|| format!("--cores {text}: a number from 1 to 64 is needed"))?,
    };
    run_on(root, cores)
}
