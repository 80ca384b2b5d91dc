//! Runs other programs, and parses the options of our own commands.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Result of a command; the error is a message for people.
pub(crate) type Result<T> = std::result::Result<T, String>;

/// Returns the folder of the workspace.
pub(crate) fn project_root() -> Result<PathBuf> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    match manifest.parent() {
        Some(root) => Ok(root.to_owned()),
        None => Err("xtask lies in no workspace".to_owned()),
    }
}

/// Returns a command that runs `program` in `directory`.
pub(crate) fn command(program: &str, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(directory);
    command
}

/// Returns `cargo` in `directory`: the one that runs us, unless a `toolchain` is named.
pub(crate) fn cargo(directory: &Path, toolchain: Option<&str>) -> Command {
    let mut cargo = command("cargo", directory);
    // The variables that the outer cargo has set would override the requested toolchain.
    for variable in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
        cargo.env_remove(variable);
    }
    cargo.args(toolchain.map(|name| format!("+{name}")));
    cargo
}

/// Returns the folder for builds of one kind, so that builds with other flags are not overwritten.
pub(crate) fn target(root: &Path, kind: &str) -> PathBuf {
    let all = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    root.join(all).join(kind)
}

/// Runs a program; its output goes where ours goes.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    eprintln!("xtask: {command:?}");
    let status = command
        .status()
        .map_err(|error| format!("{command:?}: {error}"))?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{command:?}: {status}")),
    }
}

/// Runs a program silently; returns true if it can be run and succeeds.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Returns what a program writes to standard output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{command:?}: {}", output.status)),
    }
}

/// Returns the files that git tracks or would add, relative to `root`.
pub(crate) fn project_files(root: &Path) -> Result<Vec<String>> {
    let how = ["ls-files", "--cached", "--others", "--exclude-standard"];
    let mut files: Vec<String> = output(command("git", root).args(how))?
        .lines()
        .map(str::to_owned)
        .filter(|file| root.join(file).is_file())
        .collect();
    files.sort();
    files.dedup();
    Ok(files)
}

/// Returns the value of `name` among `arguments`, if it is given; all others must be in `switches`.
pub(crate) fn option(
    arguments: &[String],
    name: &str,
    switches: &[&str],
) -> Result<Option<String>> {
    let mut value = None;
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if argument == name {
            let next = arguments.next();
            value = Some(next.ok_or_else(|| format!("{name} needs a value"))?.clone());
        } else if !switches.contains(&argument.as_str()) {
            return Err(format!("unknown option '{argument}'"));
        }
    }
    Ok(value)
}
