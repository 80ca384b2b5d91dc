//! Checks that take too long to run for every change: release tests with assertions, many seeds,
//! models with a higher bound, sanitizers, fuzzing, instruction counts, planted bugs.
//!
//! A step whose tool is not installed is skipped, and named at the end.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::run::{Result, cargo, command, output, run, succeeds, target};
use crate::{audit, instructions, mutants};

/// Crates whose threads share memory.
const CONCURRENT: [&str; 10] = [
    "pando-sync",
    "pando-stats",
    "pando-device",
    "pando-space",
    "pando-pool",
    "pando-wal",
    "pando-tree",
    "pando-versions",
    "pandodb",
    "pando-server",
];
/// What the runtimes of the sanitizers are told. Absurd sizes are asked for fallibly, and refused.
const THREAD_OPTIONS: &str = "halt_on_error=1:allocator_may_return_null=1";
/// Frames lie on the stack itself: their addresses tell how deep a script is.
const ADDRESS_OPTIONS: &str = "detect_stack_use_after_return=0:allocator_may_return_null=1";
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
/// Fuzz targets in whose builds nothing is asserted that only debug builds assert: that pages agree
/// with each other, for instance, which those of a store that somebody has forged do not.
const WITHOUT_ASSERTIONS: [&str; 1] = ["forged"];
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Number of simulation seeds, and of kills of the server, per minute.
const SEEDS_PER_MINUTE: u64 = 10;
/// Number of simulated power cuts per minute.
const CUTS_PER_MINUTE: u64 = 300;

/// The steps that were chosen, and what became of them.
struct Tally {
    /// Runs the steps whose names contain this.
    only: String,
    /// How many steps have run.
    ran: usize,
    failed: Vec<String>,
    left_out: Vec<String>,
}

impl Tally {
    fn is_chosen(&self, name: &str) -> bool {
        name.contains(&self.only)
    }

    fn step(&mut self, name: &str, run: impl FnOnce() -> Result<()>) {
        if !self.is_chosen(name) {
            return;
        }
        let begun = Instant::now();
        let result = run();
        let seconds = begun.elapsed().as_secs();
        self.ran += 1;
        match result {
            Ok(()) => eprintln!("xtask: {name} passed in {seconds} s"),
            Err(error) => {
                eprintln!("xtask: {name} failed after {seconds} s: {error}");
                self.failed.push(name.to_owned());
            }
        }
    }

    fn left_out(&mut self, name: &str, reason: &str) {
        if self.is_chosen(name) {
            self.left_out.push(format!("{name} ({reason})"));
        }
    }
}

/// Runs the command: all steps, or those whose names contain the text after `--only`, with about
/// `--minutes` for each long one (default 10).
pub(crate) fn run_command(root: &Path, arguments: &[String]) -> Result<()> {
    let (minutes, only) = parse(arguments)?;
    let mut tally = Tally {
        only,
        ran: 0,
        failed: Vec::new(),
        left_out: Vec::new(),
    };
    tally.step("release tests with assertions", || release_tests(root));
    tally.step("simulation", || simulation(root, minutes));
    tally.step("restarts, then power cuts", || restarts(root, minutes));
    tally.step("kill -9", || kills(root, minutes));
    full_disk(root, &mut tally);
    tests_of_redis(root, &mut tally);
    tally.step("loom models", || loom_models(root));
    tally.step("shuttle models", || shuttle_models(root));
    sanitizers(root, &mut tally);
    fuzz(root, minutes, &mut tally);
    tally.step("coherence audit", || audit::run_on(root, 64));
    tally.step("ablations of the audit", || audit::run_ablations(root));
    count_instructions(root, &mut tally);
    tally.step("planted bugs", || mutants::run_command(root, &[]));
    for step in &tally.left_out {
        eprintln!("xtask: not run: {step}");
    }
    if tally.ran == 0 {
        return Err(format!("no step ran whose name contains '{}'", tally.only));
    }
    match tally.failed.is_empty() {
        true => Ok(()),
        false => Err(format!("failed: {}", tally.failed.join(", "))),
    }
}

/// Returns the minutes of each long step, and the text that chooses steps.
fn parse(arguments: &[String]) -> Result<(u64, String)> {
    let (mut minutes, mut only) = (10, String::new());
    for pair in arguments.chunks(2) {
        match pair {
            [name, value] if name == "--minutes" => {
                minutes = value
                    .parse()
                    .map_err(|error| format!("--minutes {value}: {error}"))?;
            }
            [name, value] if name == "--only" => only.clone_from(value),
            [name, ..] => return Err(format!("unknown option '{name}', or it has no value")),
            [] => {}
        }
    }
    Ok((minutes, only))
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

/// The server with assertions. Returns its path.
fn build_server(root: &Path) -> Result<PathBuf> {
    let results = target(root, "nightly");
    run(cargo(root, None)
        .args(["build", "--release", "-p", "pando"])
        .args(["--config", "profile.release.debug-assertions=true"])
        .env("CARGO_TARGET_DIR", &results))?;
    Ok(results.join("release/pando"))
}

/// Kills the server while clients write, and checks what is left.
fn kills(root: &Path, minutes: u64) -> Result<()> {
    let server = build_server(root)?;
    let rounds = (minutes * SEEDS_PER_MINUTE).to_string();
    run(cargo(root, None)
        .args(["run", "--release", "-p", "pando-sim"])
        .args(["--config", "profile.release.debug-assertions=true"])
        .args(["--", "kill", "--rounds", &rounds, "--server"])
        .arg(server)
        .env("CARGO_TARGET_DIR", target(root, "nightly")))
}

/// Counts the instructions of single operations, and compares them with their bounds.
fn count_instructions(root: &Path, tally: &mut Tally) {
    for tool in ["valgrind", "cc"] {
        if !succeeds(command("which", root).arg(tool)) {
            return tally.left_out("instructions", &format!("there is no {tool}"));
        }
    }
    tally.step("instructions", || instructions::run_command(root, &[]));
}

/// A disk, and a quota, of 200 MiB on a loop device.
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
    let script = |options: &[&str]| {
        let server = build_server(root)?;
        run(command("sh", root)
            .arg("bench/full-disk")
            .args(options)
            .arg(server))
    };
    tally.step("full disk", || script(&[]));
    match succeeds(command("which", root).arg("mkfs.btrfs")) {
        true => tally.step("full quota", || script(&["--quota"])),
        false => tally.left_out("full quota", "there is no mkfs.btrfs"),
    }
}

/// The tests that Redis itself comes with, whose source is fetched.
fn tests_of_redis(root: &Path, tally: &mut Tally) {
    for tool in [
        "redis-cli",
        "redis-benchmark",
        "tclsh",
        "apt-get",
        "python3",
    ] {
        if !succeeds(command("which", root).arg(tool)) {
            return tally.left_out("tests of Redis", &format!("there is no {tool}"));
        }
    }
    tally.step("tests of Redis", || {
        let server = build_server(root)?;
        run(command("tests/foreign/run", root).arg(server))
    });
}

/// Loom, with one preemption more than CI allows.
fn loom_models(root: &Path) -> Result<()> {
    for name in MODELLED {
        run(cargo(root, None)
            .args(["test", "--release", "-p", name, "--lib"])
            .env("CARGO_TARGET_DIR", target(root, "loom"))
            .env("RUSTFLAGS", "--cfg pando_loom")
            .env("LOOM_MAX_PREEMPTIONS", "3"))?;
    }
    Ok(())
}

fn shuttle_models(root: &Path) -> Result<()> {
    for name in SHUTTLED {
        run(cargo(root, None)
            .args(["test", "-p", name, "--test", "shuttle"])
            .env("CARGO_TARGET_DIR", target(root, "shuttle"))
            .env("RUSTFLAGS", "--cfg pando_shuttle"))?;
    }
    Ok(())
}

fn sanitizers(root: &Path, tally: &mut Tally) {
    let sysroot = output(command("rustc", root).args(["+nightly", "--print", "sysroot"]));
    let lack = match &sysroot {
        Ok(sysroot) => lack_of_source(Path::new(sysroot.trim())),
        Err(error) => Some(format!("there is no nightly toolchain: {error}")),
    };
    for sanitizer in ["thread", "address"] {
        let name = format!("{sanitizer} sanitizer");
        if let Some(lack) = &lack {
            tally.left_out(&name, lack);
            continue;
        }
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
            .env("TSAN_OPTIONS", THREAD_OPTIONS)
            .env("ASAN_OPTIONS", ADDRESS_OPTIONS);
        tally.step(&name, || run(&mut tests));
    }
}

/// Returns what the source of the standard library lacks in the toolchain at `sysroot`, and what to
/// do, if it lacks something: an installation that was cut off has its folder, too.
fn lack_of_source(sysroot: &Path) -> Option<String> {
    let parts = sysroot.join("lib/rustlib");
    let Ok(files) = fs::read_to_string(parts.join("manifest-rust-src")) else {
        return Some("rustup component add rust-src --toolchain nightly".to_owned());
    };
    // The list is of the component as a whole: file:lib/rustlib/src/rust/library/...
    let mut names = files.lines().filter_map(|line| line.split_once(':'));
    let missing = names.find_map(|(kind, name)| {
        let path = sysroot.join(name);
        let is_there = match kind {
            "dir" => path.is_dir(),
            _ => path.is_file(),
        };
        (!is_there).then_some(path)
    })?;
    Some(format!(
        "{} is missing: rustup component remove rust-src --toolchain nightly, and add it again",
        missing.display()
    ))
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
        Err(error) => return tally.step("fuzzing", || Err(error)),
    };
    let targets: Vec<&str> = targets.split_whitespace().collect();
    let seconds = minutes * 60 / targets.len().max(1) as u64;
    for target in targets {
        let limit = format!("-max_total_time={seconds}");
        let mut fuzz = cargo(&folder, Some("nightly"));
        fuzz.args(["fuzz", "run", target]);
        if WITHOUT_ASSERTIONS.contains(&target) {
            fuzz.arg("-O");
        }
        fuzz.args(["--", &limit]);
        tally.step(&format!("fuzzing {target}"), || run(&mut fuzz));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::lack_of_source;

    #[test]
    fn a_source_that_is_there_in_part_is_none() {
        let sysroot = std::env::temp_dir().join(format!("sysroot-{}", std::process::id()));
        let parts = sysroot.join("lib/rustlib");
        let library = parts.join("src/rust/library");
        fs::create_dir_all(library.join("core/src")).unwrap();
        let lack = lack_of_source(&sysroot).unwrap();
        assert!(lack.contains("component add rust-src"), "{lack}");
        let list = "file:lib/rustlib/src/rust/library/Cargo.lock\n\
                    dir:lib/rustlib/src/rust/library/core/src\n\
                    file:lib/rustlib/src/rust/library/core/src/lib.rs\n";
        fs::write(parts.join("manifest-rust-src"), list).unwrap();
        fs::write(library.join("Cargo.lock"), "").unwrap();
        let lack = lack_of_source(&sysroot).unwrap();
        assert!(lack.contains("core/src/lib.rs is missing"), "{lack}");
        fs::write(library.join("core/src/lib.rs"), "").unwrap();
        assert_eq!(lack_of_source(&sysroot), None);
        fs::remove_dir_all(sysroot).unwrap();
    }
}
