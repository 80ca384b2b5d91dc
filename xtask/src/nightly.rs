//! Checks that take too long to run for every change: release tests with assertions, many seeds,
//! models with a higher bound, sanitizers, fuzzing, planted bugs.
//!
//! A step whose tool is not installed is skipped, and named at the end.

use std::path::Path;

use crate::run::{Result, cargo, command, option, output, run, succeeds, target};
use crate::{audit, mutants};

/// Crates whose threads share memory.
const CONCURRENT: [&str; 9] = [
    "pando-sync",
    "pando-stats",
    "pando-device",
    "pando-space",
    "pando-pool",
    "pando-wal",
    "pando-tree",
    "pando-versions",
    "pandodb",
];
/// Crates with loom models.
const MODELLED: [&str; 5] = [
    "pando-sync",
    "pando-space",
    "pando-pool",
    "pando-wal",
    "pando-versions",
];
/// Crates with shuttle models.
const SHUTTLED: [&str; 2] = ["pando-space", "pando-tree"];
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Number of simulation seeds, and of kills of the server, per minute.
const SEEDS_PER_MINUTE: u64 = 10;
/// Number of simulated power cuts per minute.
const CUTS_PER_MINUTE: u64 = 300;

#[derive(Default)]
struct Tally {
    failed: Vec<String>,
    left_out: Vec<String>,
}

impl Tally {
    fn step(&mut self, name: &str, result: Result<()>) {
        if let Err(error) = result {
            eprintln!("xtask: {name} failed: {error}");
            self.failed.push(name.to_owned());
        }
    }

    fn left_out(&mut self, name: &str, reason: &str) {
        self.left_out.push(format!("{name} ({reason})"));
    }
}

/// Runs the command: all steps, with about `--minutes` for each long one (default 10).
pub(crate) fn run_command(root: &Path, arguments: &[String]) -> Result<()> {
    let minutes = match option(arguments, "--minutes", &[])? {
        None => 10,
        Some(text) => text
            .parse::<u64>()
            .map_err(|error| format!("--minutes {text}: {error}"))?,
    };
    let mut tally = Tally::default();
    tally.step("release tests with assertions", release_tests(root));
    tally.step("simulation", simulation(root, minutes));
    tally.step("restarts, then power cuts", restarts(root, minutes));
    tally.step("kill -9", kills(root, minutes));
    full_disk(root, &mut tally);
    tally.step("loom models", models(root));
    sanitizers(root, &mut tally);
    fuzz(root, minutes, &mut tally);
    tally.step("coherence audit", audit::run_on(root, 64));
    tally.step("coherence audit of ablations", audit::run_ablations(root));
    tally.step("mutants", mutants::run_command(root, &[]));
    for step in &tally.left_out {
        eprintln!("xtask: not run: {step}");
    }
    match tally.failed.is_empty() {
        true => Ok(()),
        false => Err(format!("failed: {}", tally.failed.join(", "))),
    }
}

fn release_tests(root: &Path) -> Result<()> {
    run(cargo(root, None)
        .args(["test", "--workspace", "--release"])
        .env("CARGO_TARGET_DIR", target(root, "nightly"))
        .args(["--config", "profile.release.debug-assertions=true"])
        .args(["--config", "profile.release.overflow-checks=true"]))
}

fn simulation(root: &Path, minutes: u64) -> Result<()> {
    run(cargo(root, None)
        .args(["test", "--release", "-p", "pando-sim"])
        .env("CARGO_TARGET_DIR", target(root, "nightly"))
        .args(["--config", "profile.release.debug-assertions=true"])
        .env("PANDO_FULL_STEP", "1")
        .env("PANDO_SEEDS", (minutes * SEEDS_PER_MINUTE).to_string()))
}

/// Processes that end while the kernel keeps running, then power cuts.
fn restarts(root: &Path, minutes: u64) -> Result<()> {
    let crashes = (minutes * CUTS_PER_MINUTE).to_string();
    run(cargo(root, None)
        .args(["run", "--release", "-p", "pando-sim"])
        .args(["--config", "profile.release.debug-assertions=true"])
        .args(["--", "restarts", "--crashes", &crashes])
        .env("CARGO_TARGET_DIR", target(root, "nightly")))
}

/// Kills the server while clients write, and checks what is left.
fn kills(root: &Path, minutes: u64) -> Result<()> {
    let results = target(root, "nightly");
    let assertions = ["--config", "profile.release.debug-assertions=true"];
    run(cargo(root, None)
        .args(["build", "--release", "-p", "pando"])
        .args(assertions)
        .env("CARGO_TARGET_DIR", &results))?;
    let rounds = (minutes * SEEDS_PER_MINUTE).to_string();
    run(cargo(root, None)
        .args(["run", "--release", "-p", "pando-sim"])
        .args(assertions)
        .args(["--", "kill", "--rounds", &rounds, "--server"])
        .arg(results.join("release/pando"))
        .env("CARGO_TARGET_DIR", &results))
}

/// A disk, and a quota, of 200 MiB on a loop device, with the server that `kills` uses.
fn full_disk(root: &Path, tally: &mut Tally) {
    let is_root = output(command("id", root).arg("-u")).is_ok_and(|id| id.trim() == "0");
    if !is_root {
        return tally.left_out("full disk", "only root mounts one");
    }
    for tool in ["redis-cli", "mkfs.ext4", "python3"] {
        if !succeeds(command("which", root).arg(tool)) {
            return tally.left_out("full disk", &format!("there is no {tool}"));
        }
    }
    let server = target(root, "nightly").join("release/pando");
    let script = || command("sh", root);
    let full = run(script().arg("bench/full-disk").arg(&server));
    tally.step("full disk", full);
    if !succeeds(command("which", root).arg("mkfs.btrfs")) {
        return tally.left_out("full quota", "there is no mkfs.btrfs");
    }
    let full = run(script().args(["bench/full-disk", "--quota"]).arg(&server));
    tally.step("full quota", full);
}

/// Loom, with one preemption more than CI allows.
fn models(root: &Path) -> Result<()> {
    for name in MODELLED {
        run(cargo(root, None)
            .args(["test", "--release", "-p", name, "--lib"])
            .env("CARGO_TARGET_DIR", target(root, "loom"))
            .env("RUSTFLAGS", "--cfg pando_loom")
            .env("LOOM_MAX_PREEMPTIONS", "3"))?;
    }
    for name in SHUTTLED {
        run(cargo(root, None)
            .args(["test", "--release", "-p", name, "--test", "shuttle"])
            .env("CARGO_TARGET_DIR", target(root, "shuttle"))
            .env("RUSTFLAGS", "--cfg pando_shuttle"))?;
    }
    Ok(())
}

fn sanitizers(root: &Path, tally: &mut Tally) {
    let sysroot = output(command("rustc", root).args(["+nightly", "--print", "sysroot"]));
    let library = |sysroot: String| Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library");
    if !sysroot.map(library).is_ok_and(|library| library.is_dir()) {
        tally.left_out(
            "sanitizers",
            "rustup component add rust-src --toolchain nightly",
        );
        return;
    }
    for sanitizer in ["thread", "address"] {
        let mut tests = cargo(root, Some("nightly"));
        tests
            .args(["test", "-Zbuild-std", "--target", TARGET, "--tests"])
            .arg("--no-fail-fast")
            .env("CARGO_TARGET_DIR", target(root, sanitizer))
            .args(CONCURRENT.iter().flat_map(|name| ["-p", name]))
            .env("RUSTFLAGS", format!("-Zsanitizer={sanitizer}"))
            // C code is tested by its own projects, and instrumentation by another compiler
            // conflicts with the runtime: it would report a constant of zstd as memory that is out
            // of scope.
            .env("CFLAGS", "-fno-sanitize=all")
            .env("TSAN_OPTIONS", "halt_on_error=1");
        tally.step(&format!("{sanitizer} sanitizer"), run(&mut tests));
    }
}

fn fuzz(root: &Path, minutes: u64, tally: &mut Tally) {
    let folder = root.join("fuzz");
    if !folder.is_dir() {
        return tally.left_out("fuzzing", "there is no folder fuzz/");
    }
    if !succeeds(cargo(root, Some("nightly")).args(["fuzz", "--version"])) {
        return tally.left_out("fuzzing", "cargo install cargo-fuzz");
    }
    let targets = match output(cargo(&folder, Some("nightly")).args(["fuzz", "list"])) {
        Ok(targets) => targets,
        Err(error) => return tally.step("fuzzing", Err(error)),
    };
    let targets: Vec<&str> = targets.split_whitespace().collect();
    let seconds = minutes * 60 / targets.len().max(1) as u64;
    for target in targets {
        let limit = format!("-max_total_time={seconds}");
        let mut fuzz = cargo(&folder, Some("nightly"));
        fuzz.args(["fuzz", "run", target, "--", &limit]);
        tally.step(&format!("fuzzing {target}"), run(&mut fuzz));
    }
}
